"""The audit of a network, and the two commands: what they find, print and refuse."""

import json
import math
import shlex

import numpy as np
import pytest
from helpers.command_line import call, error_line
from helpers.problems import also_long

import finitewidth as fw
from finitewidth.critical.findings import LOST


def network(activation, depth=200, width=100, **hyperparameters):
    return fw.MLP((10, *[width] * (depth - 1), 1), activation, **hyperparameters)


def findings(value):
    return {(finding.what, finding.how) for finding in value.findings}


@pytest.mark.parametrize(
    "activation, hyperparameters, expected",
    [
        ("tanh", {"C_W": 0.9}, {("signal", "vanishes"), ("gradient", "vanishes")}),
        ("tanh", {"C_W": 1.5}, {("nearby inputs", "separate"), ("gradient", "explodes")}),
        ("relu", {"C_W": 1.0}, {("signal", "vanishes"), ("gradient", "vanishes")}),
        ("relu", {"C_W": 3.0}, {("signal", "explodes")}),
        ("sigmoid", {"C_W": 1.0}, {("nearby inputs", "merge"), ("gradient", "vanishes")}),
        ("tanh", {"C_W": 1.0}, set()),
        ("relu", {"C_W": 2.0}, set()),
        ("elu", {"C_W": 1.0}, set()),
    ],
)
def test_what_explodes_or_vanishes_is_found(activation, hyperparameters, expected):
    assert findings(fw.audit(network(activation, **hyperparameters))) == expected


def test_a_signal_is_lost_at_the_layer_that_solve_confirms():
    net = network("tanh", C_W=0.9)
    (signal, gradient) = fw.audit(net).findings
    theory = fw.solve(net, np.ones((1, 10)), layers=[1, signal.layer - 1, signal.layer])
    first, before, at = (theory.layer(l).K.item() for l in (1, signal.layer - 1, signal.layer))
    assert at < first / LOST < before
    assert signal.correlation_length == pytest.approx(-1 / math.log(0.9), rel=1e-9)
    assert gradient.layer == pytest.approx(200 - math.log(LOST) * signal.correlation_length, abs=2)


@pytest.mark.parametrize("activation", ["tanh", *also_long("relu", "gelu")])
def test_a_critical_network_loses_nothing_however_deep(activation):
    verdict = fw.audit(fw.MLP.critical((10, *[1000] * 300, 1), activation))
    assert verdict.findings == () and verdict.depth_limit is None
    assert verdict.correlation_length_perp == math.inf


def test_the_aspect_ratio_decides_at_criticality():
    wide, narrow = (fw.audit(fw.MLP.critical((10, *[n] * 60, 1), "tanh")) for n in (2000, 30))
    assert wide.healthy and wide.aspect_verdict.startswith("trusted")
    assert not narrow.healthy and narrow.aspect_verdict.startswith("meaningless")
    assert narrow.report.expansion_parameter == pytest.approx(
        2000 / 30 * wide.report.expansion_parameter, rel=1e-9
    )
    assert f"{narrow.report.expansion_parameter:.2g}" in narrow.aspect_verdict
    assert 1 <= narrow.deepest < 60 and wide.deepest is None
    assert "times wider" in narrow.advice[0]
    wider = 30 * narrow.report.expansion_parameter / 0.3
    again = fw.audit(fw.MLP.critical((10, *[math.ceil(wider)] * 60, 1), "tanh"))
    assert again.report.expansion_parameter == pytest.approx(0.3, rel=0.02)


def test_advice_names_the_critical_point_or_another_activation():
    assert "set C_b = 0 and C_W = 1," in fw.audit(network("tanh", C_W=0.9)).advice[0]
    assert "sigma(z) - 0.5" in fw.audit(network("sigmoid")).advice[0]


def test_the_depth_limit_is_that_of_the_correlation_length():
    verdict = fw.audit(network("tanh", depth=20, C_W=1.5))
    assert verdict.findings == ()
    chi = fw.critical.phase_diagram("tanh", [0.0], [1.5]).chi_perp.item()
    assert verdict.depth_limit == pytest.approx(math.log(LOST) / math.log(chi), rel=0.02)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, "one"])
def test_a_bad_input_scale_is_refused(scale):
    with pytest.raises(ValueError, match="input_scale must be a finite number above 0"):
        fw.audit(network("tanh"), input_scale=scale)


# --- the commands ----------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A user's module in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *__import__("sys").path])
    lines = [
        "import jax.numpy as jnp",
        "def bump(z): return z * jnp.exp(-z * z)",
        "def kinked(z): return jnp.maximum(z, 0.1 * z) + 0.05 * jnp.sin(z)",
        "def step(z): return jnp.where(z > 0, 1.0, 0.0)",
        "def nan(z): return jnp.sqrt(z)",
    ]
    (tmp_path / "users_functions.py").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "users_broken.py").write_text("1 / 0", encoding="utf-8")
    return tmp_path


def test_criticality_prints_class_point_exponents_and_settings(capsys):
    assert call("criticality", "tanh") == 0
    out = capsys.readouterr().out
    for piece in ("K*=0", "C_b = 0, C_W = 1", "p_perp", "converged", "MLP.critical", "lambda_b l^-1"):
        assert piece in out


def test_criticality_of_a_half_stable_activation_says_how_to_start(capsys):
    assert call("criticality", "gelu") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1.98305826" in out and "0.172922391" in out and "attracts from above" in out
    assert "first layer: biases 0, weights 3.5615528" in out


def test_criticality_as_json_has_every_number(capsys):
    assert call("criticality", "sigmoid", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["universality_class"], document["C_W"], document["residual"]) == ("none", None, None)
    assert document["remedy"]["C_W"] == 16.0
    assert call("criticality", "relu", "--fit", "--json") == 0
    exponents = json.loads(capsys.readouterr().out)["exponents"]
    assert exponents["V"]["stated"] == -1.0
    assert abs(exponents["V"]["fitted"] + 1) < 3 * exponents["V"]["error"]


def test_fitted_exponents_are_printed_beside_the_stated(capsys):
    assert call("criticality", "relu", "--fit") == 0
    assert "p fitted" in capsys.readouterr().out


def test_criticality_takes_a_function_of_the_user(capsys, module):
    assert call("criticality", "users_functions:bump", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["activation"], document["universality_class"]) == ("bump", "K*=0")
    assert call("criticality", "users_functions:kinked") == 0
    assert "note: activation 'kinked' has a kink" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, complaint",
    [
        ("users_functions:step", "is discontinuous at z = 0"),
        ("users_functions:nan", "returns NaN"),
        ("users_functions:nothing", "has no function 'nothing'"),
        ("users_broken:f", "cannot be imported (ZeroDivisionError"),
        ("no_such_module:f", "cannot be imported (ModuleNotFoundError"),
        (":f", "is not of the form module:function"),
        ("tanhh", "did you mean 'tanh'"),
    ],
)
def test_bad_activations_end_in_one_line(capsys, module, name, complaint):
    assert complaint in error_line(capsys, "criticality", name)


def test_audit_prints_a_verdict_and_what_to_set(capsys):
    assert call(*shlex.split("audit 784,100x200,10 --activation tanh --C_W 0.9")) == 0
    out = capsys.readouterr().out
    for piece in (
        "needs attention",
        "the signal vanishes from layer",
        "set C_b = 0 and C_W = 1",
        "100 x 200",
    ):
        assert piece in out
    assert max(map(len, out.splitlines())) < 200
    assert call(*shlex.split("audit 10,2000x5,1 --activation relu --C_W 2")) == 0
    assert "healthy" in capsys.readouterr().out


def test_audit_has_one_word_for_the_expansion(capsys):
    """The mutual information of outputs leaves its range before other statistics do, which is said."""
    assert call(*shlex.split("audit 10,100x20,10 --activation tanh --C_W 1")) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (
        lines["verdict"]
        == "healthy: signals survive, and order 1/n of kernels and NTKs at initialization is trusted"
    )
    assert ": trusted (" in lines["width"] and "aspect" not in lines
    assert "beyond the" in lines["outputs"] and "kernels and NTKs are described further" in lines["outputs"]
    assert call(*shlex.split("audit 10,30x60,1 --activation tanh --C_W 1")) == 0
    out = capsys.readouterr().out
    assert "signals survive, and order 1/n of kernels and NTKs at initialization is meaningless" in out


def test_audit_as_json_has_every_layer(capsys):
    assert call(*shlex.split("audit 10,50x3,1 --activation relu --C_W 2 --json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert [layer["layer"] for layer in document["layers"]] == [1, 2, 3, 4]
    assert document["correlation_length_perp"] is None  # infinite
    assert document["ratios"]["V"] == pytest.approx(3 * 5 / 50)  # (l - 1)(3 A_4/A_2^2 - 1)/n


def test_audit_reads_a_network_from_a_file(capsys, tmp_path):
    (tmp_path / "net.toml").write_text(fw.MLP((3, 9, 9, 1), "tanh", C_W=1.1).to_toml(), encoding="utf-8")
    assert call("audit", tmp_path / "net.toml", "--json") == 0
    assert json.loads(capsys.readouterr().out)["network"]["C_W"] == [1.1] * 3


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ("audit 10,ten,1", "WIDTHS has 'ten'"),
        ("audit 10,0,1", "widths must be at least 1"),
        ("audit 10,5,1 --C_W much", "--C_W must be a number"),
        ("audit 10,5,1 --C_W 1,2,3", "C_W has 3 values for 2 layers"),
        ("audit 10,5,1 --input-scale -1", "input_scale must be a finite number above 0"),
        ("audit 10,5,1 --activation perceptron", "is discontinuous"),
        ("audit absent.toml", "RUN 'absent.toml' does not exist"),
        ("audit --C_W 1.5", "WIDTHS is missing, and --C_W needs it"),
    ],
)
def test_bad_audits_end_in_one_line(capsys, arguments, complaint):
    assert complaint in error_line(capsys, *shlex.split(arguments))
