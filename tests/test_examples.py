"""Examples run, and the page on initialization says what the library computes."""

import importlib.util
import re
from pathlib import Path

import pytest

import finitewidth as fw

ROOT = Path(__file__).parents[1]


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_initializations_is_what_the_library_computes():
    script = example("initialization_table")
    page = (ROOT / "docs" / "initialization.md").read_text(encoding="utf-8")
    shown = page.split(script.BEGIN)[1].split(script.END)[0].strip()
    assert shown == script.table()
    for name in fw.activations():
        assert f"`{name}" in shown or name in script.SAME


def test_code_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "initialization.md").read_text(encoding="utf-8")
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S):
        exec(compile(block, "initialization.md", "exec"), names)
    assert names["diagram"].region.shape == (50, 50)


def test_the_main_job_is_drawn_with_its_table(tmp_path):
    script = example("main_job")
    outcome = script.main(16, tmp_path / "main_job.png")
    assert (tmp_path / "main_job.png").read_bytes().startswith(b"\x89PNG")
    table = script.markdown(outcome).splitlines()
    assert len(table) == 2 + 6 and "| pull, 1/n |" in table[0]


@pytest.mark.filterwarnings("error")
def test_the_phase_diagram_is_drawn(tmp_path, monkeypatch):
    script = example("phase_diagram")
    coarse = {name: (C_b[::10], C_W[::10]) for name, (C_b, C_W) in script.GRIDS.items()}
    monkeypatch.setattr(script, "GRIDS", coarse)
    script.main(tmp_path)
    assert (tmp_path / "phase_diagram.png").read_bytes().startswith(b"\x89PNG")
