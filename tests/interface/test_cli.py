"""The command line: what it prints, what it writes, and how it refuses bad input."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from helpers.command_line import call, error_line

import finitewidth as fw
from finitewidth.interface.cli import arguments
from finitewidth.interface.cli import main as cli
from finitewidth.interface.runs import ensemble_runs, output_directory, run_files

RUN = """
[network]
widths = [2, 8, 8, 1]
activation = "tanh"
C_W = 1.2

[data]
path = "inputs.csv"
"""
INPUTS = "x,y\n1.0,0.5\n-0.5,2.0\n0.25,0.75\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a small run in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(RUN, encoding="utf-8")
    (tmp_path / "inputs.csv").write_text(INPUTS, encoding="utf-8")
    return tmp_path


def test_version_is_printed(capsys):
    assert call("--version") == 0
    assert capsys.readouterr().out == f"finitewidth {fw.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["solve", "--help"]])
def test_help_is_printed(capsys, arguments):
    assert call(*arguments) == 0
    assert "Usage: finitewidth" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", [[], ["solve"], ["criticality"], ["audit"], ["ensemble"], ["claims"], ["page"]]
)
def test_help_shows_no_type_beside_flags(capsys, command):
    assert call(*command, "--help") == 0
    text = capsys.readouterr().out
    assert "<bool>" not in text and "--help" in text


def test_a_quiet_run_writes_files_and_not_a_word(capsys, folder):
    assert call("solve", "run.toml", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert (folder / "results/run/summary.json").exists()


def test_audit_without_arguments_shows_what_pytorch_does_to_twenty_layers(capsys):
    """The variance of uniform weights between -1 and 1 over the root of the fan-in is 1/3 over the fan-in."""
    assert call("audit") == 0
    out, err = capsys.readouterr()
    assert "needs attention" in out and "C_W 0.33333333" in out and "set C_b = 0 and C_W = 2" in out
    assert err.startswith("finitewidth: note: without WIDTHS") and err.count("\n") == 1


def test_settings_of_a_network_without_widths_are_refused(capsys):
    assert call("audit", "--C_W", "1.5") == 2
    assert "WIDTHS is missing, and --C_W needs it; write 784,100x20,10" in capsys.readouterr().err


def test_help_of_a_command_shows_a_run_file_that_is_understood(capsys, folder):
    call("solve", "--help")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    first = lines.index("[network]")
    (folder / "shown.toml").write_text("\n".join(lines[first : lines.index("", first)]), encoding="utf-8")
    (folder / "inputs.csv").write_text("1,2,3\n", encoding="utf-8")
    assert run_files.read(folder / "shown.toml").network.activation_name == "gelu"


def test_completion_is_offered_to_shells():
    asked = {"_FINITEWIDTH_COMPLETE": "complete_bash", "COMP_WORDS": "finitewidth so", "COMP_CWORD": "1"}
    result = subprocess.run(
        [sys.executable, "-c", "from finitewidth.interface.cli.main import main; main()"],
        capture_output=True,
        text=True,
        env={**os.environ, **asked},
    )
    assert "solve" in result.stdout.split()


def test_statistics_show_a_table_and_write_their_results(capsys, folder):
    assert call("solve", "run.toml") == 0
    out = capsys.readouterr().out
    assert "tanh" in out and "results/run" in out
    directory = folder / "results" / "run"
    assert sorted(os.listdir(directory)) == sorted(output_directory.STATISTICS)
    assert os.listdir(folder / "results") == ["run"]  # no draft is left
    assert (directory / "kernels.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (directory / "kernels.svg").read_text(encoding="utf-8")


def test_json_is_one_document_with_stable_keys(capsys, folder):
    assert call("solve", "run.toml", "--json", "--no-figure") == 0
    out, err = capsys.readouterr()
    assert err == ""
    document = json.loads(out)
    assert list(document) == [
        "finitewidth", "command", "order", "network", "data", "error", "layers", "results",
    ]  # fmt: skip
    assert [layer["layer"] for layer in document["layers"]] == [1, 2, 3]
    assert list(document["layers"][0]) == [
        "layer", "kernel", "kernel_correlation", "ntk", "ntk_correlation",
        "ntk_smallest_eigenvalue", "ntk_condition_number",
    ]  # fmt: skip
    assert list(document["layers"][0]["kernel"]) == ["mean", "smallest", "largest"]
    assert document["results"]["files"] == ["inputs.npy", "run.toml", "summary.json", "theory.zarr"]
    saved = json.loads((folder / "results/run/summary.json").read_text(encoding="utf-8"))
    assert saved == {name: value for name, value in document.items() if name != "results"}


def test_summary_agrees_with_the_theory(capsys, folder):
    call("solve", "run.toml", "--json", "--no-figure")
    document = json.loads(capsys.readouterr().out)
    X = np.loadtxt("inputs.csv", delimiter=",", skiprows=1)
    theory = fw.solve(fw.MLP((2, 8, 8, 1), "tanh", C_W=1.2), X, order=0)
    last, K, Theta = document["layers"][-1], theory.output.K, theory.output.Theta
    np.testing.assert_allclose(last["kernel"]["mean"], np.diag(K).mean(), rtol=1e-12)
    np.testing.assert_allclose(last["ntk_condition_number"], np.linalg.cond(Theta), rtol=1e-8)
    pair = K[0, 1] / np.sqrt(K[0, 0] * K[1, 1])
    least, greatest = last["kernel_correlation"]["smallest"], last["kernel_correlation"]["largest"]
    assert least - 1e-12 <= pair <= greatest + 1e-12  # the three inputs have more pairs than this one
    np.testing.assert_allclose(fw.load(folder / "results/run/theory.zarr").output.K, K, rtol=1e-12)


def test_saved_run_file_repeats_the_run(capsys, folder):
    call("solve", "run.toml", "--no-figure")
    call("solve", "results/run/run.toml", "--no-figure", "--output", "again")
    first = json.loads((folder / "results/run/summary.json").read_text(encoding="utf-8"))
    again = json.loads((folder / "again/summary.json").read_text(encoding="utf-8"))
    assert again["layers"] == first["layers"]
    assert again["network"] == first["network"]


def test_same_run_writes_the_same_figure(folder):
    call("solve", "run.toml", "--output", "a")
    call("solve", "run.toml", "--output", "b")
    assert (folder / "a/kernels.svg").read_bytes() == (folder / "b/kernels.svg").read_bytes()


@pytest.mark.parametrize("text", ["1,0\n", "0,0\n0,0\n", "1,2\n1,2\n", "1,2\n-2,-4\n"])
def test_one_input_zeros_and_parallel_inputs_are_no_obstacle(capsys, folder, text):
    (folder / "inputs.csv").write_text(text, encoding="utf-8")
    assert call("solve", "run.toml") == 0
    assert json.loads((folder / "results/run/summary.json").read_text(encoding="utf-8"))["layers"]


def test_earlier_results_are_replaced_as_a_whole(folder):
    call("solve", "run.toml")
    call("solve", "run.toml", "--no-figure")
    assert sorted(os.listdir(folder / "results/run")) == [
        "inputs.npy",
        "run.toml",
        "summary.json",
        "theory.zarr",
    ]


def test_directory_with_other_files_is_error_line(capsys, folder):
    (folder / "mine").mkdir()
    (folder / "mine/notes.txt").write_text("keep", encoding="utf-8")
    assert "'notes.txt'" in error_line(capsys, "solve", "run.toml", "--output", "mine")
    assert os.listdir(folder / "mine") == ["notes.txt"]
    assert "is a file" in error_line(capsys, "solve", "run.toml", "--output", "run.toml")


def test_failure_while_writing_leaves_earlier_results_alone(capsys, folder, monkeypatch):
    call("solve", "run.toml", "--no-figure")
    before = (folder / "results/run/summary.json").read_bytes()
    capsys.readouterr()

    def full_disk(*_, **__):
        raise OSError(28, "No space left on device", "kernels.svg")

    monkeypatch.setattr("finitewidth.interface.report.kernel_figure.save_kernels", full_disk)
    assert "No space left on device" in error_line(capsys, "solve", "run.toml")
    assert (folder / "results/run/summary.json").read_bytes() == before
    assert os.listdir(folder / "results") == ["run"]


def test_interrupt_is_one_line_and_status_130(capsys, folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_files, "read", interrupted)
    assert call("solve", "run.toml") == 130
    assert capsys.readouterr().err == "finitewidth: interrupted; no results were written.\n"
    assert not (folder / "results").exists()


def test_traceback_is_shown_only_with_debug(folder):
    with pytest.raises(ValueError, match="does not exist"):
        cli.main(["solve", "missing.toml", "--debug"])


WRONG_OPTIONS = [
    (["slove"], "No such command 'slove'"),
    (["solve", "--jason"], "--jason"),
    (["solve", "a.toml", "b.toml"], "b.toml"),
    (["solve", "--output"], "--output"),
    (["solve", "missing.toml"], "'missing.toml' does not exist"),
    (["solve", "."], "is a directory"),
]


@pytest.mark.parametrize("arguments, named", WRONG_OPTIONS, ids=[named for _, named in WRONG_OPTIONS])
def test_wrong_arguments_are_one_line(capsys, folder, arguments, named):
    assert named in error_line(capsys, *arguments)


WRONG_RUNS = [
    ("[network", "not valid TOML"),
    ("", "'network' is missing"),
    ("network = 3\ndata = 4", "write [network]"),
    ("[network]\n[dta]", "did you mean 'data'?"),
    ("[network]\n[data]", "[data]: 'path' is missing"),
    ('[network]\n[data]\npth = "x"', "did you mean 'path'?"),
    ("[network]\n[data]\npath = 3", "put it in quotes"),
    ('[network]\n[data]\npath = "inputs.csv"', "[network] needs a key 'widths'"),
    (RUN.replace("C_W", "C_V"), "'c_v'"),
    (RUN.replace('"tanh"', '"tanhh"'), "did you mean 'tanh'?"),
    (RUN.replace("1.2", "-1.2"), "C_W must be finite and at least 0"),
    (RUN.replace("1.2", "[1.0, 1.0]"), "2 values for 3 layers"),
    (RUN.replace("[2, 8, 8, 1]", "[2, 0, 1]"), "n_1 is 0"),
    (RUN.replace("[2, 8, 8, 1]", "[5, 8, 1]"), "[network] takes 5 inputs, but [data] path has 2 columns"),
    (RUN.replace("inputs.csv", "other.csv"), "is not a file"),
    (RUN.replace("inputs.csv", "run.toml"), "must end in .csv, .npy or .npz"),
    (RUN + 'inputs = "X"', "remove it"),
]


@pytest.mark.parametrize("text, named", WRONG_RUNS, ids=[named for _, named in WRONG_RUNS])
def test_wrong_run_files_are_named_with_their_key(capsys, folder, text, named):
    (folder / "run.toml").write_text(text, encoding="utf-8")
    assert named in error_line(capsys, "solve", "run.toml")
    assert not (folder / "results").exists()


WRONG_TABLES = [
    (b"", "no rows"),
    (b"x,y\n", "no rows"),
    (b"1,2\n3\n", "1 columns on line 2"),
    (b"1,2\n3,four\n", "'four' on line 2, column 2"),
    (b"1;2\n3;4\n", "'3;4' on line 2"),
    (b"1,nan\n", "nan in row 1, column 2"),
    (b"1,2\n-inf,3\n", "-inf in row 2, column 1"),
    (b"\xff\xfe1,2\n", "is not a CSV file"),
]


@pytest.mark.parametrize("text, named", WRONG_TABLES, ids=[named for _, named in WRONG_TABLES])
def test_wrong_tables_are_named_with_their_line(capsys, folder, text, named):
    (folder / "inputs.csv").write_bytes(text)
    assert named in error_line(capsys, "solve", "run.toml")


def save_npz(folder, **arrays):
    np.savez(folder / "inputs.npz", allow_pickle=True, **arrays)
    (folder / "run.toml").write_text(RUN.replace("inputs.csv", "inputs.npz"), encoding="utf-8")


WRONG_ARRAYS = [
    ({"X": np.ones(2)}, "shape (2,)"),
    ({"X": np.ones((0, 2))}, "shape (0, 2)"),
    ({"X": np.ones((2, 2), complex)}, "complex128"),
    ({"X": np.array([["a", "b"]])}, "save real numbers"),
    ({"X": np.array([[{}, 1]], dtype=object)}, "never loaded"),
    ({"X": np.ones((2, 2)), "Y": np.ones((2, 2))}, "arrays X, Y"),
]


@pytest.mark.parametrize("arrays, named", WRONG_ARRAYS, ids=[named for _, named in WRONG_ARRAYS])
def test_wrong_arrays_are_refused_and_objects_never_loaded(capsys, folder, arrays, named):
    save_npz(folder, **arrays)
    assert named in error_line(capsys, "solve", "run.toml")


def test_array_is_chosen_by_name(capsys, folder):
    save_npz(folder, X=np.ones((2, 2), np.float32), Y=np.ones((3, 1)))
    run = (folder / "run.toml").read_text(encoding="utf-8")
    (folder / "run.toml").write_text(run + 'inputs = "X"\n', encoding="utf-8")
    assert run_files.read(folder / "run.toml").inputs.dtype == np.float64
    (folder / "run.toml").write_text(run + 'inputs = "Z"\n', encoding="utf-8")
    assert "it holds X, Y" in error_line(capsys, "solve", "run.toml")


def test_damaged_archive_is_error_line(capsys, folder):
    (folder / "run.toml").write_text(RUN.replace("inputs.csv", "inputs.npz"), encoding="utf-8")
    (folder / "inputs.npz").write_bytes(b"PK\x03\x04 broken")
    assert "damaged" in error_line(capsys, "solve", "run.toml")


def test_perceptron_has_no_ntk_and_says_so(capsys, folder):
    (folder / "run.toml").write_text(RUN.replace("tanh", "perceptron"), encoding="utf-8")
    assert "perceptron" in error_line(capsys, "solve", "run.toml")


# --- networks ----------------------------------------------------------------------------------------

LAYERS = """
[network]
input_shape = 2
layers = [
    { kind = "Dense", width = 8, C_W = 1.2 },
    "tanh",
    { kind = "Dense", width = 6, C_b = 0.1, C_W = 1.2 },
    "relu",
    { kind = "Dense", width = 1, C_W = 1.2 },
]

[data]
path = "inputs.csv"
"""
MIXED = RUN.replace('"tanh"', '["tanh", "relu"]')


def test_hidden_layers_may_have_activations_of_their_own(capsys, folder):
    (folder / "run.toml").write_text(MIXED, encoding="utf-8")
    assert call("solve", "run.toml", "--json", "--no-figure") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["network"]["activation"] == ["tanh", "relu"]
    X = np.loadtxt("inputs.csv", delimiter=",", skiprows=1)
    theory = fw.solve(fw.MLP((2, 8, 8, 1), ("tanh", "relu"), C_W=1.2), X, order=0)
    last = document["layers"][-1]
    np.testing.assert_allclose(last["ntk"]["mean"], np.diag(theory.output.Theta).mean(), rtol=1e-12)
    assert run_files.read(folder / "results/run/run.toml").network == theory.net


def test_a_network_may_be_written_as_its_layers(capsys, folder):
    (folder / "run.toml").write_text(LAYERS, encoding="utf-8")
    assert call("solve", "run.toml", "--no-figure") == 0
    dense = [fw.Dense(8, C_W=1.2), fw.Dense(6, C_b=0.1, C_W=1.2), fw.Dense(1, C_W=1.2)]
    network = fw.Network(2, dense[0], "tanh", dense[1], "relu", dense[2])
    for file in ("run.toml", "results/run/run.toml"):
        assert run_files.read(folder / file).network == network
    assert "Dense(6, C_b=0.1, C_W=1.2)" in capsys.readouterr().out


WRONG_NETWORKS = [
    (MIXED.replace('"relu"', '"relu", "gelu"'), "activation has 3 entries for 2 hidden layers"),
    (MIXED.replace('"relu"', '"rleu"'), "did you mean 'relu'?"),
    (MIXED.replace('"relu"', "3"), "activation must be a name, got 3"),
    (LAYERS.replace("input_shape = 2", ""), "[network]: 'input_shape' is missing"),
    (
        LAYERS.replace("input_shape = 2", "widths = [2, 1]"),
        "widths cannot stand beside input_shape and layers",
    ),
    (LAYERS.replace("input_shape = 2", "input_shape = 2\ncritical = 1"), "critical must be true or false"),
    (LAYERS.replace("input_shape = 2", "input_shape = 3"), "[network] takes 3 inputs, but [data] path has 2"),
    (LAYERS.replace('"tanh"', "7"), "[network] layers has 7; write the name of an activation"),
    (LAYERS.replace('"tanh"', "{ kind = [] }"), "[network] layers has {'kind': []}"),
    (LAYERS.replace('"tanh"', '{ kind = "Dens" }'), "kind = "),
    (LAYERS.replace('"tanh"', '"tanh", "tanh"'), "activation 'tanh' follows an activation"),
    (LAYERS.replace("width = 6", "wdth = 6"), "[network] layers has {'kind': 'Dense', 'wdth': 6"),
]


@pytest.mark.parametrize("text, named", WRONG_NETWORKS, ids=[named for _, named in WRONG_NETWORKS])
def test_wrong_networks_are_one_sentence(capsys, folder, text, named):
    (folder / "run.toml").write_text(text, encoding="utf-8")
    assert named in error_line(capsys, "solve", "run.toml")


@pytest.mark.parametrize(
    "given, names",
    [
        ("tanh", "tanh"),
        ("tanh,relu", "tanh, relu"),
        ("polynomial(0, 1, 1) , leaky_relu(0.2)", "polynomial(0, 1, 1), leaky_relu(0.2)"),
    ],
)
def test_audit_takes_an_activation_for_each_hidden_layer(given, names):
    network, notes = arguments.network_described("4,8,6,1", given, {"C_W": "1.5"}, 1.0)
    assert network.activation_name == names and network.C_W == (1.5,) * 3 and notes == []


def test_audit_judges_each_layer_by_its_activation(capsys, folder):
    (folder / "run.toml").write_text(MIXED, encoding="utf-8")
    assert call("audit", "2,8,8,1", "--activation", "tanh,relu", "--C_W", "1.2") == 0
    text = capsys.readouterr().out
    assert "widths 2, 8 x 2, 1; tanh, relu, C_b 0, C_W 1.2" in text
    assert call("audit", str(folder / "run.toml")) == 0
    assert capsys.readouterr().out == text
    assert call("audit", str(folder / "run.toml"), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["network"]["activation"] == ["tanh", "relu"] and len(document["layers"]) == 3


def test_audit_refuses_activations_that_do_not_fit(capsys):
    message = error_line(capsys, "audit", "4,8,8,8,1", "--activation", "tanh,relu")
    assert "activation has 2 entries for 3 hidden layers" in message
    assert "did you mean 'relu'?" in error_line(capsys, "audit", "4,8,8,1", "--activation", "tanh,rleu")


# --- ensembles --------------------------------------------------------------------------------------

ENSEMBLE = """
[network]
widths = [2, 4, 1]
activation = "tanh"

[data]
train_inputs = "inputs.csv"
train_targets = "targets.csv"
test_inputs = "test.npy"

[training]
algorithm = "gradient_descent"
learning_rate = 0.1
steps = 5

[ensemble]
members = 6
key = 0
[record]
at = [0]
"""


@pytest.fixture
def ensemble_folder(folder):
    (folder / "config.toml").write_text(ENSEMBLE, encoding="utf-8")
    (folder / "targets.csv").write_text("0.5\n-0.5\n1.0\n", encoding="utf-8")
    np.save(folder / "test.npy", np.array([[1.0, 2.0]]))
    return folder


def test_ensemble_prints_a_table_and_leaves_a_store(capsys, ensemble_folder):
    import xarray

    assert call("ensemble", "config.toml", "--output", "out") == 0
    assert "members   6" in capsys.readouterr().out
    assert call("ensemble", "config.toml", "--output", "out", "--json") == 0  # finished: read again
    document = json.loads(capsys.readouterr().out)
    assert json.loads((ensemble_folder / "out" / "summary.json").read_text()) == document
    assert document["members"] == 6 and document["diverged"] == 0 and document["points"] == [0, 5]
    X, Y = np.array([[1.0, 0.5], [-0.5, 2.0], [0.25, 0.75]]), np.array([[0.5], [-0.5], [1.0]])
    direct = fw.train_ensemble(
        fw.MLP((2, 4, 1), "tanh"), X, Y, [[1.0, 2.0]], algorithm=fw.GradientDescent(0.1, 5), members=6, key=0
    )
    np.testing.assert_allclose(document["mean"]["value"], direct.mean.value, rtol=1e-10)
    with xarray.open_zarr("out/ensemble.zarr") as data:
        np.testing.assert_allclose(data["outputs"][-1, 3:], direct.mean.value, rtol=1e-10)
        assert json.loads(data.attrs["configuration"])["algorithm"] == repr(fw.GradientDescent(0.1, 5))


@pytest.mark.long
def test_ensembles_of_networks_with_different_activations(capsys, ensemble_folder):
    layers = """[network]
input_shape = 2
layers = [
    { kind = "Dense", width = 4 }, "tanh",
    { kind = "Dense", width = 4 }, "relu",
    { kind = "Dense", width = 1 },
]
"""
    mixed = ENSEMBLE.replace("[2, 4, 1]", "[2, 4, 4, 1]").replace('"tanh"', '["tanh", "relu"]')
    means = []
    for text in (mixed, layers + ENSEMBLE[ENSEMBLE.index("[data]") :]):
        (ensemble_folder / "config.toml").write_text(text, encoding="utf-8")
        assert call("ensemble", "config.toml", "--output", f"out{len(means)}", "--json") == 0
        means.append(json.loads(capsys.readouterr().out)["mean"]["value"])
    assert means[0] == means[1]


def test_help_of_ensemble_shows_a_configuration_that_is_understood(capsys, ensemble_folder):
    call("ensemble", "--help")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    first = lines.index("[network]")
    shown = "\n".join(lines[first : lines.index("", first)])
    (ensemble_folder / "shown.toml").write_text(shown, encoding="utf-8")
    for name, row in (("X", "1,2,3\n"), ("Y", "1\n"), ("X_test", "3,2,1\n")):
        (ensemble_folder / f"{name}.csv").write_text(row, encoding="utf-8")
    run = ensemble_runs.read(ensemble_folder / "shown.toml")
    assert run.algorithm == fw.GradientDescent(0.1, 100) and run.options["members"] == 1000


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("members = 6", "members = 0", "members must be a whole number of at least 1, got 0"),
        ("members = 6", "mebers = 6", "'mebers' is not a key of a run; did you mean 'members'?"),
        ('"gradient_descent"', '"adam"', "algorithm 'adam' is not known; known are gradient_flow"),
        ("learning_rate = 0.1", "", "algorithm 'gradient_descent' needs learning_rate, steps"),
        ("learning_rate = 0.1", "learning_rate = -1", "learning_rate must be a positive number, got -1"),
        ("steps = 5", "time = 5", "'time' is not a key of a run"),
        ('"targets.csv"', '"absent.csv"', "is not a file"),
        ("steps = 5", 'steps = 5\nloss = "hinge"', "loss 'hinge' is not known"),
        ("steps = 5", "steps = 5\ntemperature = 2.0", "temperature does not belong to loss 'mse'; remove it"),
    ],
)
def test_ensembles_that_cannot_be_run_are_error_line(capsys, ensemble_folder, old, new, message):
    text = ENSEMBLE.replace(old, new)
    assert text != ENSEMBLE
    (ensemble_folder / "config.toml").write_text(text, encoding="utf-8")
    assert message in error_line(capsys, "ensemble", "config.toml")


def test_an_ensemble_does_not_replace_what_it_did_not_write(capsys, ensemble_folder):
    assert "holds 'config.toml'" in error_line(capsys, "ensemble", "config.toml", "--output", ".")


def test_options_and_keys_are_read_in_any_case(folder, capsys):
    assert call("audit", "4,20x3,1", "--activation", "tanh", "--c_w", "1.5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["network"]["C_W"] == [1.5] * 4
    (folder / "run.toml").write_text('[Network]\nWidths = [2, 3, 1]\nactivation = "tanh"\nC_w = 1.5\n')
    assert call("audit", str(folder / "run.toml"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["network"]["C_W"] == [1.5] * 2
    (folder / "run.toml").write_text("[network]\nwidths = [2, 3, 1]\nC_w = 1.5\nC_W = 1\n")
    assert call("audit", str(folder / "run.toml")) == 2
    assert "differ in case only" in capsys.readouterr().err


def test_the_list_of_claims_is_json_too(capsys):
    assert call("claims", "--list", "--json", "--only", "10.93") == 0
    (one,) = json.loads(capsys.readouterr().out)["claims"]
    assert one["id"] == "10.92-10.95" and "cos zeta" in one["statement"] and one["long"] is False
