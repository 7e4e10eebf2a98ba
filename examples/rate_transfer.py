"""How the best learning rate changes with width and depth: rates by layer, one rate, and Adam.

    python examples/rate_transfer.py [--output figure.png]

The numbers are those of benchmarks/advice/tuned.py: digits, 80 steps, grids of a factor two.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from figure_options import figure_options

from finitewidth.interface.figures.look import INK, MARKERS, ROLES

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "advice" / "results" / "tuned.json"
COMMON = (8, 128)  # depth and width that all curves share; rates are relative to those of this network
DESCENT = {
    "tanh": "tanh {}x{} digits cross-entropy sgd",
    "relu": "relu {}x{} digits cross-entropy sgd",
    "gelu": "gelu {}x{} digits cross-entropy sgd",
    "tanh, squared loss": "tanh {}x{} digits squared sgd",
    "tanh, momentum": "tanh {}x{} digits cross-entropy momentum",
}
ADAM = {
    "tanh": "tanh {}x{} digits cross-entropy adam",
    "relu": "relu {}x{} digits cross-entropy adam",
}
PANELS = {
    "8 layers": [(8, 32), (8, 64), (8, 128), (8, 256)],
    "width 128": [(4, 128), (8, 128), (16, 128), (32, 128)],
    "depth = width/16": [(4, 64), (8, 128), (16, 256)],
}
COLORS = ("finite width", "sampled networks", "further series", "one more series", "infinite width")


class Row(NamedTuple):
    """A kind of rates, and the law that is drawn beside them: powers of depth and width."""

    title: str
    method: str
    settings: dict[str, str]
    law: tuple[float, float]
    label: str
    smallest: int  # at the bottom of the axis, as a power of two


ROWS = (
    Row("SGD by layer", "bias share 1/10", DESCENT, (-1.0, 0.0), "1/depth", -4),
    Row("SGD, one rate", "critical", DESCENT, (-1.5, -0.25), "depth$^{-3/2}$ width$^{-1/4}$", -7),
    Row("Adam, one rate", "critical", ADAM, (-1.0, -1.0), "1/(depth × width)", -5),
)


def best_power(entry: dict) -> int:
    """The base-two logarithm of the rate with the smallest loss at which no seed diverged."""
    losses = [math.inf if None in row else float(np.mean(np.log(row))) for row in entry["loss"]]
    return entry["powers"][int(np.argmin(losses))]


def curve(kept: dict, setting: str, method: str, sizes: list[tuple[int, int]]) -> list[float] | None:
    """Best rates over those of the common size, as powers of two; None where runs are missing."""
    entries = [kept.get(setting.format(*size), {}).get(method) for size in (COMMON, *sizes)]
    if not all(entries):
        return None
    first, *others = (best_power(entry) for entry in entries)
    return [power - first for power in others]


def panel(axes, kept: dict, row: Row, sizes: list[tuple[int, int]]) -> None:
    """A line for each setting, moved apart a little where they coincide, and the law."""
    along = 1 if len({depth for depth, _ in sizes}) == 1 else 0
    x = np.log2([size[along] for size in sizes])
    for i, (name, setting) in enumerate(row.settings.items()):
        powers = curve(kept, setting, row.method, sizes)
        if powers is not None:
            y = np.array(powers) + 0.12 * (i - (len(row.settings) - 1) / 2)
            color = ROLES[COLORS[i]]["color"]
            axes.plot(x, y, MARKERS[i] + "-", color=color, linewidth=1.4, markersize=5, label=name)
    law = np.log2(np.array(sizes) / COMMON) @ np.array(row.law)
    axes.plot(x, law, color=INK, linestyle=":", linewidth=1.6, label=row.label)
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_xticks(
        x, [str(size[along]) if along or len(sizes) == 4 else f"{size[0]} × {size[1]}" for size in sizes]
    )
    ticks = range(row.smallest, 4)
    axes.set_yticks(ticks, [f"{2**p}" if p >= 0 else f"1/{2**-p}" for p in ticks])
    axes.set_ylim(row.smallest - 0.2, 3.2)
    axes.tick_params(labelsize=8)


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "rate_transfer", arguments)
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    figure, axes = plt.subplots(3, 3, figsize=(8.6, 8.6), layout="constrained", sharey="row")
    for line, row in zip(axes, ROWS, strict=True):
        for one, (title, sizes) in zip(line, PANELS.items(), strict=True):
            panel(one, kept, row, sizes)
            one.set_title(f"{row.title}: {title}", fontsize=9)
        line[0].set_ylabel("best rate, 8 × 128 = 1", fontsize=9)
        line[1].legend(fontsize=7, loc="lower left")
    for one, label in zip(axes[-1], ("width", "depth", "depth × width"), strict=True):
        one.set_xlabel(label)
    figure.savefig(options.output, dpi=108)  # nine panels: fewer dots keep the file small
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
