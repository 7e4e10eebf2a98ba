"""The notebooks run in Jupyter as they are, and show what they print."""

import json
from pathlib import Path

import pytest
from helpers.printed_outputs import ROOT, agree, executed

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(cell: dict) -> str:
    streams = [part["text"] for part in cell["outputs"] if part["output_type"] == "stream"]
    return "".join("".join(text) for text in streams)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_with_their_outputs_and_small(path: Path):
    assert path.stat().st_size < 150_000
    cells = code_cells(json.loads(path.read_text(encoding="utf-8")))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(part["output_type"] != "error" for cell in cells for part in cell["outputs"])
    assert all(printed(cell) for cell in cells if "print(" in "".join(cell["source"]))
    assert any("image/png" in part.get("data", {}) for cell in cells for part in cell["outputs"])


# the others take a minute of processor time together
QUICK = ("ten_minutes", "depth_over_width")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.long] * (path.stem not in QUICK)) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_notebooks_print_what_they_show(path: Path, tmp_path):
    pytest.importorskip("nbclient", reason="nbclient is not installed; pip install '.[notebooks]'")
    if "import torch" in path.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    stored, now = json.loads(path.read_text(encoding="utf-8")), json.loads(executed(path, str(tmp_path)))
    for shown, cell in zip(code_cells(stored), code_cells(now), strict=True):
        assert agree(printed(shown), printed(cell)), f"printed:\n{printed(cell)}"


def test_there_are_four_notebooks():
    names = {"depth_over_width", "paper_figure", "ten_minutes", "your_model"}
    assert {path.stem for path in NOTEBOOKS} == names
