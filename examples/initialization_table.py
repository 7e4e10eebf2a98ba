"""The table of docs/initialization.md: every named activation, classified by the library.

python examples/initialization_table.py           # print it
python examples/initialization_table.py --write   # put it into the page
"""

import sys
from pathlib import Path

import finitewidth as fw

PAGE = Path(__file__).parents[1] / "docs" / "initialization.md"
BEGIN, END = "<!-- table: examples/initialization_table.py -->", "<!-- end of table -->"
NEED_PARAMETERS = {"scale_invariant": "scale_invariant(1.5, -0.5)", "polynomial": "polynomial(0, 1, 0, -0.2)"}
SAME = ("silu",)  # another name of swish


def names() -> list[str]:
    return [NEED_PARAMETERS.get(name, name) for name in fw.activations() if name not in SAME]


def row(name: str) -> str:
    point = fw.criticality(name)
    cells = [
        f"`{point.activation.name}`",
        point.universality_class,
        number(point.C_b),
        number(point.C_W),
        "any" if point.universality_class == "scale-invariant" else number(point.K_star),
        number(point.exponents.get("p_perp")),
        remark(point),
    ]
    return f"| {' | '.join(cells)} |"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value + 0.0:.9g}"


def remark(point) -> str:
    if point.universality_class == "half-stable":
        return f"attracts from {point.attracts_from}; start the first layer at K*"
    if point.remedy is not None:
        shifted, kind = point.remedy.activation.name, point.remedy.universality_class
        if point.remedy.C_W is not None and kind != "unstable":
            return f"use {shifted}: {kind}, C_W = {point.remedy.C_W:.9g}"
        return f"{shifted} is {kind}: use gelu or swish"
    if point.universality_class == "none":
        return "use tanh, gelu or swish"
    if point.other_fixed_point is not None:
        return f"attracts from below K = {point.other_fixed_point:.5g} only"
    if point.universality_class == "K*=0" and point.exponents["p_0"] == 0:
        return "linear around zero: K falls more slowly than any power"
    if point.universality_class == "K*=0":
        return f"K falls as l^-{point.exponents['p_0']:g}"
    return ""


def table() -> str:
    head = "| activation | class | C_b | C_W | K* | p_perp | |"
    return "\n".join([head, "|---" * 7 + "|", *map(row, names())])


def main() -> None:
    text = table()
    if "--write" not in sys.argv:
        print(text)
        return
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
