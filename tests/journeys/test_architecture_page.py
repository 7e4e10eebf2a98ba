"""What docs/architecture.md says of the house is so: files, counts, and its length."""

import ast
import re
from pathlib import Path

import pytest

from benchmarks.house.measure import ROOMS, House

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_WORDS = 2500
HOUSE = House(ROOT)


def row(name: str) -> str:
    """The last cell of a row of the table of numbers."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {name} |"))
    return line.split("|")[-2].strip()


def test_the_page_is_short():
    assert len(PAGE.split()) < MOST_WORDS


def test_files_and_folders_that_the_page_names_exist():
    named = re.findall(r"`([\w./]+/[\w./]*|[\w]+\.(?:py|yml|md))(?: \w+)?`", PAGE)
    assert len(named) > 60
    inner = [f"finitewidth/{room}" for room in ROOMS]
    starts = (".", "finitewidth", *inner, "finitewidth/interface/page")
    assert [name for name in named if not any((ROOT / start / name).exists() for start in starts)] == []


def test_functions_and_classes_in_backticks_with_a_file_are_in_it():
    """`Runner` in `core/tasks.py`, and so on."""
    pairs = re.findall(r"`(\w+)` in `([\w/]+\.py)`", PAGE)
    assert len(pairs) >= 3
    for name, file in pairs:
        body = ast.parse((ROOT / "finitewidth" / file).read_text(encoding="utf-8")).body
        assert name in {getattr(node, "name", None) for node in body}, (name, file)


def test_rooms_inside_rooms_are_those_of_the_table():
    table = PAGE[PAGE.index("| room | holds |") : PAGE.index("`experiment` never imports")]
    lines = {line.split("`")[1]: line for line in table.splitlines()[2:] if line}
    for room in ROOMS:
        inside = {f.parent.name for f in (ROOT / "finitewidth" / room).glob("*/__init__.py")}
        assert set(re.findall(r"`(\w+)/`", lines[f"{room}/"].split("|")[3])) == inside, room


def test_every_file_and_room_says_what_it_holds():
    for file in HOUSE.files():
        docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        assert docstring and docstring.split("\n\n")[0].strip()[-1] in ".:", file


@pytest.mark.parametrize("room", ROOMS)
def test_lines_and_files_of_rooms_are_about_as_stated(room):
    lines, files = map(int, re.match(r"(\d+) in (\d+)", row(f"`{room}/`, lines in files")).groups())
    assert HOUSE.lines(room) == pytest.approx(lines, rel=0.05)
    assert len(HOUSE.files(room)) == pytest.approx(files, rel=0.05, abs=2)


def test_counts_of_the_public_face_are_as_stated():
    assert int(row("names at the top")) == HOUSE.names_at_the_top()
    most, function = HOUSE.most_parameters()
    assert most <= 12 and row("most parameters of a public function").startswith(f"{most} ")
    assert int(row("loops over depth")) == len(HOUSE.loops_over_depth())
