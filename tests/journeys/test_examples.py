"""Examples run, and the page on initialization says what the library computes."""

import re

import pytest
from helpers.examples import example
from helpers.paths import ROOT

import finitewidth as fw

FIGURES = sorted(
    path.stem
    for path in (ROOT / "examples").glob("*.py")
    if "from figure_options import" in path.read_text(encoding="utf-8")
)
TRAINING = (
    "classifier",
    "fluctuations",
    "learning_curve",
    "four_point_vertex",
    "memory",
    "ntk_ellipse",
    "orthogonal_weights",
    "posterior",
    "residuals",
    "taylor_orders",
    "trained_outputs",
)  # sample or train


def test_the_table_of_initializations_is_what_the_library_computes():
    script = example("initialization_table")
    page = (ROOT / "docs" / "initialization.md").read_text(encoding="utf-8")
    shown = page.split(script.BEGIN)[1].split(script.END)[0].strip()
    assert shown == script.table()
    for name in fw.activations():
        assert f"`{name}" in shown or name in script.SAME


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in TRAINING)) for name in FIGURES]
)
def test_figures_are_drawn(name, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "examples")  # as for a script, for the options that they share
    path = tmp_path / "figure.png"
    example(name).main(["--quick", "--output", str(path)])
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"figure written to {path}" in capsys.readouterr().out


def test_order_1_beyond_its_range_is_said_in_the_picture_of_the_digits(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    script = example("many_digits_loss")
    titles = [axes.get_title(loc="left") for axes in script.draw(script.results()).axes]
    late = [title for title in titles if "1000 steps" in title]
    assert late == [title for title in titles if "order 1/n is beyond its range" in title] and len(late) == 2


def test_every_figure_of_the_documents_is_drawn_by_a_script():
    drawn = {path.stem for path in (ROOT / "docs" / "figures").iterdir()}
    assert drawn <= {path.stem for path in (ROOT / "examples").glob("*.py")}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        shown = re.findall(r"!\[[^]]*\]\((?:docs/)?figures/(\w+)\.\w+\)", page.read_text(encoding="utf-8"))
        assert set(shown) <= drawn


def test_every_example_is_in_the_gallery():
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    scripts = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"figure_options"}
    assert set(re.findall(r"`examples/(\w+)\.py`", gallery)) == scripts
    figures = {path.stem for path in (ROOT / "docs" / "figures").iterdir()}
    assert figures <= set(re.findall(r"\(figures/(\w+)\.png\)", gallery))


def test_figures_are_small_enough_for_a_page():
    for path in (ROOT / "docs" / "figures").iterdir():
        assert path.stat().st_size < 200_000, path.name


def test_fifty_layers_in_torch_are_compared(capsys):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    script = example("torch_deep")
    script.DEPTH, script.DEFAULT_RATES = 6, (0.1,)  # the comparison at full depth is made in test_torch.py
    script.main(quick=True)
    assert capsys.readouterr().out.count("critical") == 2


def test_convolutions_are_compared_with_a_perceptron(capsys):
    rows = example("cnn_digits").main(24, 16)
    assert [row.network for row in rows] == list(example("cnn_digits").NETWORKS)
    assert all(row.trained > 40 and row.bayesian > 40 for row in rows)
    assert capsys.readouterr().out.count("\n") == 6


@pytest.mark.long
def test_convolutions_classify_digits_as_well_as_reported():
    """To 0.3 percent, two images: another machine may round a tie another way."""
    page = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    for row in example("cnn_digits").main():
        stated = re.search(rf"^\| {re.escape(row.network)} \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
        assert stated, row.network
        assert abs(row.trained - float(stated[1])) < 0.3 and abs(row.bayesian - float(stated[2])) < 0.3


@pytest.mark.long
def test_the_main_job_is_drawn_with_its_table(tmp_path):
    script = example("main_job")
    outcome = script.main(16, tmp_path / "main_job.png")
    assert (tmp_path / "main_job.png").read_bytes().startswith(b"\x89PNG")
    table = script.markdown(outcome).splitlines()
    assert len(table) == 2 + 6 and "| pull, 1/n |" in table[0]
