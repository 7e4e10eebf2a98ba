"""The main job: theory at both orders, trained networks beside it, and what is left on disk."""

import dataclasses
import io
import json
import os
import re
import tomllib
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from helpers.command_line import RUN, call, error_line
from helpers.paths import ROOT
from rich.console import Console

import finitewidth as fw
from finitewidth.core import tasks
from finitewidth.core.display import progress
from finitewidth.interface.cli import main as cli
from finitewidth.interface.report import tables
from finitewidth.interface.report.documents import ensemble_document
from finitewidth.interface.runs import embedded, main_job, output_directory, run_files
from finitewidth.interface.runs.answers import Row

PAGE = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")


def documented(title: str) -> list[str]:
    """The keys in the table under a title."""
    section = PAGE.split(f"### {title}\n", 1)[1].split("\n### ", 1)[0]
    return re.findall(r"^\| `([\w.\[\]]+)` \|", section, flags=re.M)


def keys_of(document: dict) -> list[str]:
    """Keys, and after a list those of its entries."""
    results = []
    for name, value in document.items():
        results.append(name)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            results += [f"{name}[].{key}" for key in value[0]]
    return results


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with a small ensemble and its results; nothing in it is changed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "run.toml").write_text(RUN, encoding="utf-8")
    assert call("solve", folder / "run.toml", "--output", folder / "out") == 0
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(RUN, encoding="utf-8")
    return tmp_path


def without(text: str, table: str) -> str:
    """A run file without one of its tables."""
    return re.sub(rf"\[{table}\]\n(?:(?!\[).+\n)*", "", text)


def test_results_are_complete_and_nothing_else_is_left(finished):
    assert sorted(os.listdir(finished / "out")) == sorted(output_directory.PREDICTION)
    assert sorted(os.listdir(finished)) == ["out", "run.toml"]
    assert (finished / "out/figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_store_has_what_the_library_computes(finished):
    import xarray

    net = fw.MLP.critical((2, 6, 6, 1), "tanh")
    X, Y = [[1.0, 0.5], [-0.5, 2.0], [0.25, -0.75]], [[0.5], [-0.5], [1.0]]
    X_test, algorithm = [[0.5, 1.0], [-1.0, 0.2]], fw.GradientDescent(0.05, 4)
    prediction = fw.predict(net, X, Y, X_test, algorithm=algorithm)
    control = fw.control_variate(net, X, Y, X_test, algorithm)
    ensemble = fw.train_ensemble(
        net, X, Y, X_test, algorithm=algorithm, members=40, key=3, control=control, run=fw.Run(batch_size=8)
    )
    expected = {
        "infinite_width_mean": prediction.infinite_width.mean,
        "finite_width_mean": prediction.mean,
        "infinite_width_covariance": prediction.infinite_width.covariance,
        "finite_width_covariance": prediction.covariance,
        "contributions": np.stack(list(prediction.contributions.values())),
        "ensemble_mean": ensemble.controlled.mean.value,
        "ensemble_mean_stderr": ensemble.controlled.mean.stderr,
        "ensemble_covariance": ensemble.covariance.value,
        "finite_width_pulls": fw.compare(prediction, ensemble).pulls,
        "infinite_width_pulls": fw.compare(prediction.infinite_width, ensemble).pulls,
    }
    with xarray.open_zarr(finished / "out/results.zarr") as data:
        assert data["finite_width_covariance"].dims == ("test", "output", "test_2", "output_2")
        assert list(data["contribution"].values) == list(prediction.contributions)
        for name, array in expected.items():
            np.testing.assert_allclose(data[name], array, rtol=1e-9, atol=1e-12, err_msg=name)
    with xarray.open_zarr(finished / "out/results.zarr", group="ensemble") as data:
        np.testing.assert_array_equal(data["outputs"][-1, 3:], ensemble.mean.value)
    document = ensemble_document(run_files.read(finished / "run.toml"), ensemble, finished)
    assert keys_of(document) == documented("`finitewidth ensemble`")


def test_documents_agree_and_the_saved_run_repeats_itself(finished, capsys, tmp_path):
    saved = json.loads((finished / "out/summary.json").read_text(encoding="utf-8"))
    assert call("solve", finished / "out/run.toml", "--output", tmp_path / "again", "--json") == 0
    out, err = capsys.readouterr()
    again = json.loads(out)
    assert err == "" and again["results"]["directory"] == str(tmp_path / "again")
    for name in ("network", "predictions", "contributions", "agreement", "ensemble", "theory"):
        assert again[name] == saved[name], name
    assert keys_of(again) == documented("`finitewidth solve`")


def test_report_is_well_formed_and_needs_nothing_from_outside(finished):
    text = (finished / "out/report.html").read_text(encoding="utf-8")
    page = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    assert re.search(r"<dt>order 1/n</dt><dd>Tensors\(.*\); \w+</dd>", text)
    tags = [element.tag.rpartition("}")[2] for element in page.iter()]
    assert "svg" in tags and "table" in tags
    assert not {"script", "link", "img", "iframe", "object", "image"} & set(tags)
    addresses = [
        value for element in page.iter() for name, value in element.attrib.items() if name.endswith("href")
    ]
    assert all(address.startswith("#") for address in addresses)
    assert "@import" not in text and "url(http" not in text
    declared = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    assert "http" not in declared


def test_text_of_a_user_is_escaped_in_the_report(folder):
    name = "<b>&'x'.toml"
    (folder / name).write_text(without(RUN, "ensemble"), encoding="utf-8")
    assert call("solve", name, "--output", "out") == 0
    text = (folder / "out/report.html").read_text(encoding="utf-8")
    assert "<b>" not in text and "&lt;b&gt;&amp;" in text
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def test_without_an_ensemble_theory_stands_alone(folder, capsys):
    (folder / "run.toml").write_text(without(RUN, "ensemble"), encoding="utf-8")
    assert call("solve", "run.toml", "--json", "--no-figure") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ensemble"] is None and document["agreement"] == {}
    assert document["predictions"][0]["ensemble"] is None
    assert document["predictions"][0]["finite_width"] is not None
    assert "figure.svg" not in document["results"]["files"]


def test_kinked_activations_need_order_zero_in_words(folder, capsys):
    kinked = without(RUN, "ensemble").replace('"tanh"', '"relu"')
    (folder / "run.toml").write_text(kinked, encoding="utf-8")
    assert "[theory] order is 1, but activation 'relu' has a kink" in error_line(capsys, "solve", "run.toml")
    (folder / "run.toml").write_text(kinked + "\n[theory]\norder = 0\n", encoding="utf-8")
    assert call("solve", "run.toml", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["order"] == 0 and document["predictions"][0]["finite_width"] is None


def test_the_printed_example_runs(folder, capsys):
    assert call("solve", "--example") == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["ensemble"]["members"] == 2000
    (folder / "run.toml").write_text(text.replace("members = 2000", "members = 20"), encoding="utf-8")
    assert call("solve", "run.toml") == 0
    out = capsys.readouterr().out
    assert "order 1/n" in out and "20 trained networks" in out


def wide_row() -> Row:
    """A row with many numbers, each with its sign and all its digits."""
    names = [one.name for one in dataclasses.fields(Row) if one.name not in ("test", "output", "label")]
    return Row(test=1, output=2, label="7", **{name: -830.7 - index for index, name in enumerate(names)})


@pytest.mark.parametrize("terminal, width", [(False, 80), (True, 80), (True, 60), (True, 20)])
def test_no_number_of_the_table_is_cut(terminal, width):
    heads, lines = tables.prediction_table([wide_row()])
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)
    tables._print_table(heads, lines, console)
    text = console.file.getvalue()
    assert "…" not in text and all(cell in text for cell in lines[0])
    if terminal and width > 20:  # that of one column
        assert max(map(len, text.splitlines())) <= width
        blocks = [line.split() for line in text.splitlines() if "830" in line or "-8" in line]
        assert len(blocks) > 1 and all(line[:3] == ["1", "2", "7"] for line in blocks)


def test_the_embedded_run_is_critical_and_labelled():
    run = embedded.embedded()
    assert (run.options["members"], run.options["key"], run.order) == (embedded.MEMBERS, 0, 1)
    assert run.network == fw.MLP.critical(run.network.widths, "tanh")
    assert run.labels == ("1",) * 3 + ("7",) * 3
    np.testing.assert_array_equal(run.Y_test[:, 0], [1, 1, 1, -1, -1, -1])
    assert not {x.tobytes() for x in run.X_train} & {x.tobytes() for x in run.X_test}


# --- interrupts ---------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_with_the_same_bits(finished, folder, capsys, monkeypatch):
    write, calls = tasks.write_task, []

    def interrupted(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(write(*arguments))

    monkeypatch.setattr(tasks, "write_task", interrupted)
    assert call("solve", "run.toml", "--output", "out") == 130
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "the same command continues" in err
    assert not (folder / "out").exists() and (folder / ".out.unfinished").exists()

    resumed = []
    monkeypatch.setattr(tasks, "write_task", lambda *given: resumed.append(write(*given)))
    assert call("solve", "run.toml", "--output", "out") == 0
    assert len(resumed) == 3  # of five batches, two were there
    assert sorted(os.listdir(folder)) == ["out", "run.toml"]
    for name in ("summary.json", "figure.svg", "report.html"):
        assert (folder / "out" / name).read_bytes() == (finished / "out" / name).read_bytes(), name


SAMPLED = RUN.split("[ensemble]")[0] + '[theory]\nmethod = "sampling"\ntolerance = 0.3\n'


def test_interrupted_theory_goes_on_with_the_same_bits(folder, capsys, monkeypatch):
    (folder / "run.toml").write_text(SAMPLED, encoding="utf-8")
    run = run_files.read(folder / "run.toml")
    assert isinstance(run, run_files.TrainingRun)
    plain = main_job.predict_run(run)
    write, calls = tasks.write_task, []

    def interrupted(*arguments):
        if len(calls) == 20:
            raise KeyboardInterrupt
        calls.append(write(*arguments))

    monkeypatch.setattr(tasks, "write_task", interrupted)
    assert call("solve", "run.toml", "--output", "out", "--no-figure") == 130
    assert "finished parts of theory and networks are kept" in capsys.readouterr().err
    resumed = []
    monkeypatch.setattr(tasks, "write_task", lambda *given: resumed.append(write(*given)))
    assert call("solve", "run.toml", "--output", "out", "--no-figure", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["predictions"][0]["finite_width"] == plain.mean[0, 0]
    assert resumed and sorted(os.listdir(folder)) == ["out", "run.toml"]


def test_refused_theory_leaves_nothing(folder, capsys):
    text = SAMPLED.replace("tolerance = 0.3", "tolerance = 1e-9\nbudget = 1.0")
    (folder / "run.toml").write_text(text, encoding="utf-8")
    assert "above budget=1 s" in error_line(capsys, "solve", "run.toml")
    assert [name for name in os.listdir(folder) if "unfinished" in name] == []


@pytest.mark.parametrize("quiet", [True, False])
def test_progress_of_theory_is_one_line_of_a_terminal(folder, monkeypatch, quiet):
    """The spinner counts the tasks and no bar is drawn beside it."""
    (folder / "run.toml").write_text(SAMPLED, encoding="utf-8")
    monkeypatch.setattr(progress, "_bar", lambda *_: pytest.fail("a bar was drawn"))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert call("solve", "run.toml", "--no-figure", *(["-q"] if quiet else [])) == 0


# --- what is refused ----------------------------------------------------------------------------------

WRONG = [
    ("critical = true", "critical = true\nC_W = 1.0", "[network] C_W cannot stand beside critical = true"),
    ("critical = true", "critical = 1", "[network] critical must be true or false, got 1"),
    ("critical = true", "critcal = true", "did you mean 'critical'?"),
    ("[training]", "[trainig]", "'trainig' is not a key of a run; did you mean 'training'?"),
    (
        "test_targets",
        "test_target",
        "[data]: 'test_target' is not a key of a run; did you mean 'test_targets'?",
    ),
    ("[0.5, -0.5, 1.0]", "[0.5, -0.5]", "[data] train_targets has 2 rows for 3 rows of train_inputs"),
    ("[[0.5, 1.0], [-1.0, 0.2]]", "[[0.5, 1.0], [-1.0]]", "[data] test_inputs has rows of different lengths"),
    ("[[0.5, 1.0], [-1.0, 0.2]]", "[[0.5], [-1.0]]", "takes 2 inputs, but [data] test_inputs has 1"),
    ("[[0.5, 1.0], [-1.0, 0.2]]", '"data.npz:X"', "[data] test_inputs"),
    ("[[0.5, 1.0], [-1.0, 0.2]]", "7", "[data] test_inputs must be a path or rows of numbers, got 7"),
    ("[ensemble]", "[record]\nntk = 1\n[ensemble]", "[record]: ntk must be true or false, got 1"),
    (
        "[ensemble]",
        "[record]\nmembers = true\n[ensemble]",
        "[record] members belongs to `finitewidth ensemble`",
    ),
    ("[ensemble]", "[stepping]\nmax_steps = 0\n[ensemble]", "[stepping]: max_steps must be a whole number"),
    ("steps = 4", 'steps = 4\nloss = "huber"\n[theory]\norder = 0', "[theory] order is 0, and means of"),
    ("[ensemble]", "[theory]\norder = 2\n[ensemble]", "[theory]: order must be 0"),
    (
        "[ensemble]",
        '[theory]\nmethod = "tensors"\ntolerance = 2\n[ensemble]',
        "[theory]: tolerance must lie between 0 and 1",
    ),
    ("[ensemble]", "[theory]\ntolerance = 1e-6\n[ensemble]", "[theory]: tolerance belongs to a method; add"),
    ("[ensemble]", "[theory]\nordr = 1\n[ensemble]", "did you mean 'order'?"),
    ("learning_rate = 0.05", "learning_rate = 900.0", "learning_rate"),
    ("[ensemble]", '[theory]\nmethod = "drawn"\n[ensemble]', "[theory]: method 'drawn' is not known"),
    *(
        ("[ensemble]", f'[theory]\nmethod = "sampling"\n{line}\n[ensemble]', words)
        for line, words in (
            ("samples = 5", "[theory]: samples must be"),
            ("variance = 1", "[theory]: variance must be true or false"),
            ("sampels = 5000", "did you mean 'samples'?"),
            ("remember = 8", "'remember' is not a key of a run"),
            ("key = -1", "[theory]: key"),
            ("order = 0", "[theory] order is 0, and a method belongs to order 1/n"),
        )
    ),
]


def test_a_run_file_asks_for_samples_and_gets_standard_errors(folder, capsys):
    theory = '[theory]\nmethod = "sampling"\nsamples = 4000\nvariance = true\nkey = 2\n'
    (folder / "run.toml").write_text(RUN.split("[ensemble]")[0] + theory, encoding="utf-8")
    assert call("solve", "run.toml", "--no-figure", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert "Sampling" in document["theory"]["method"] and 3900 <= document["theory"]["samples"] <= 4000
    run = run_files.read(folder / "results/run/run.toml")  # what was saved repeats the run
    assert isinstance(run, run_files.TrainingRun)
    exact = fw.predict(run.network, run.X_train, run.Y_train, run.X_test, algorithm=run.algorithm)
    for row in document["predictions"]:
        where = row["test"] - 1, row["output"] - 1
        for name, value in (("finite_width", exact.mean), ("finite_width_std", exact.std)):
            assert 0 < row[f"{name}_stderr"] < 0.1
            assert abs(row[name] - value[where]) < 4 * row[f"{name}_stderr"]
    again = main_job.predict_run(run)
    assert again.mean[0, 0] == document["predictions"][0]["finite_width"]


def test_variances_that_were_not_asked_for_are_null(folder, capsys):
    theory = '[theory]\nmethod = "sampling"\nsamples = 2000\n'
    (folder / "run.toml").write_text(RUN.split("[ensemble]")[0] + theory, encoding="utf-8")
    assert call("solve", "run.toml", "--json", "--no-figure") == 0
    report = (folder / "results/run/report.html").read_text(encoding="utf-8")
    assert re.search(
        r"<dd>\d+ sampled neurons, standard error [\d.]+ of the largest shift, rms; [^<]*\w+</dd>", report
    )
    expansion = json.loads(capsys.readouterr().out)["theory"]["expansion"]
    assert expansion["covariance"] is expansion["covariance_uncertainty"] is None
    assert expansion["lowest_eigenvalue"] is None and expansion["mean_uncertainty"] > 0


@pytest.mark.parametrize("old, new, named", WRONG, ids=[named for *_, named in WRONG])
def test_wrong_runs_are_named_with_their_key(folder, capsys, old, new, named):
    assert old in RUN
    (folder / "run.toml").write_text(RUN.replace(old, new), encoding="utf-8")
    assert named in error_line(capsys, "solve", "run.toml")
    assert os.listdir(folder) == ["run.toml"]


def test_a_defect_is_one_sentence_and_status_1(folder, capsys, monkeypatch):
    def broken(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr(run_files, "read", broken)
    assert call("solve", "run.toml") == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "defect of finitewidth (RuntimeError: boom)" in err and "--debug" in err
    with pytest.raises(RuntimeError, match="boom"):
        cli.main(["solve", "run.toml", "--debug"])


# --- the page on the command line ---------------------------------------------------------------------

STATISTICS_TEXT = '[network]\nwidths = [2, 4, 1]\nactivation = "tanh"\n[data]\npath = "inputs.csv"\n'


@pytest.mark.parametrize(
    "title, arguments, text",
    [
        ("`finitewidth solve` with inputs alone", ["solve", "run.toml", "--no-figure"], STATISTICS_TEXT),
        ("`finitewidth criticality`", ["criticality", "tanh"], ""),
        ("`finitewidth audit`", ["audit", "4,8x12,1", "--activation", "tanh", "--C_W", "0.5"], ""),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("`") else "",
)
def test_keys_of_json_are_those_of_the_page(folder, capsys, title, arguments, text):
    (folder / "run.toml").write_text(text, encoding="utf-8")
    (folder / "inputs.csv").write_text("1,2\n", encoding="utf-8")
    assert call(*arguments, "--json") == 0
    assert keys_of(json.loads(capsys.readouterr().out)) == documented(title)


def test_every_command_is_on_the_page_with_json_and_debug():
    import typer

    commands = typer.main.get_command(cli.app).commands
    for name, command in commands.items():
        assert f"`finitewidth {name}" in PAGE
        assert {"--json", "--debug"} <= {option for p in command.params for option in p.opts}
