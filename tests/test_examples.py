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


@pytest.mark.filterwarnings("error")
def test_the_phase_diagram_is_drawn(tmp_path, monkeypatch):
    script = example("phase_diagram")
    coarse = {name: (C_b[::10], C_W[::10]) for name, (C_b, C_W) in script.GRIDS.items()}
    monkeypatch.setattr(script, "GRIDS", coarse)
    script.main(tmp_path)
    assert (tmp_path / "phase_diagram.png").read_bytes().startswith(b"\x89PNG")


def test_fifty_layers_in_torch_are_compared(capsys):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    script = example("torch_deep")
    script.DEPTH, script.DEFAULT_RATES = 6, (0.1,)  # the comparison at full depth is made in test_torch.py
    script.main(quick=True)
    assert capsys.readouterr().out.count("critical") == 2


def test_code_of_the_page_on_torch_runs(capsys):
    page = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S):
        exec(compile(block, "pytorch.md", "exec"), names)
    assert "normalization, BatchNorm1d" in capsys.readouterr().out
    assert names["eta"] > 0
