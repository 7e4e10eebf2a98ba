"""Networks of different activations: their critical initialization, learning rates and audit.

Criteria: networks whose activations are equal 1e-13; kernels against fw.solve 1e-8 (the path of one input
interpolates averages), against quadrature done again 1e-9; susceptibilities of one within 1e-9.
"""

import math

import numpy as np
import pytest
from helpers.command_line import call
from helpers.problems import refused

import finitewidth as fw
from finitewidth.critical.initialization import is_critical
from finitewidth.critical.one_input import layer_by_layer

EQUAL, DERIVED, AGAIN = 1e-13, 1e-8, 1e-9
NODES = np.polynomial.legendre.leggauss(400)
MIXED = ("tanh", "relu", "gelu")
FUNCTIONS = {  # sigma and sigma', written a second time
    "tanh": (np.tanh, lambda z: 1 / np.cosh(z) ** 2),
    "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0) * 1.0),
    "gelu": (
        lambda z: z * (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2,
        lambda z: (
            (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2
            + z * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        ),
    ),
}


def averages(name, K):
    """<sigma^2> and <sigma'^2> on both sides of zero, by Gauss-Legendre."""
    x, w = 6 * (NODES[0] + 1), 6 * NODES[1]
    w = w * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    z, weights = math.sqrt(K) * np.concatenate([x, -x]), np.concatenate([w, w])
    return tuple(float(weights @ function(z) ** 2) for function in FUNCTIONS[name])


def scalars(net, scale):
    """K, chi_perp and Theta of each layer by their recursions, with those averages."""
    K, Theta = [net.C_b[0] + net.C_W[0] * scale], [net.lambda_b[0] + net.lambda_W[0] * scale]
    chi = []
    for l, activation in enumerate(net.activations, start=1):
        square, slope = averages(activation.name, K[-1])
        chi.append(net.C_W[l] * slope)
        K.append(net.C_b[l] + net.C_W[l] * square)
        Theta.append(net.lambda_b[l] + net.lambda_W[l] * square + chi[-1] * Theta[-1])
    return np.asarray(K), np.asarray(chi), np.asarray(Theta)


# --- one input through the layers ------------------------------------------------------------------------


def test_each_layer_is_passed_by_its_own_activation():
    net = fw.MLP((3, *[8] * 6, 2), MIXED * 2, C_b=0.1, C_W=(1.0, 1.4, 1.9, 1.7, 1.2, 2.1, 1.5), lambda_b=0.3)
    path = layer_by_layer(net, 0.7)
    K, chi, Theta = scalars(net, 0.7)
    np.testing.assert_allclose(path.K, K, rtol=AGAIN)
    np.testing.assert_allclose(path.perpendicular[:-1], chi, rtol=AGAIN)
    np.testing.assert_allclose(path.Theta, Theta, rtol=AGAIN)
    np.testing.assert_allclose(path.arriving[1:] * net.C_W[1:] + net.C_b[1:], path.K[1:], rtol=1e-14)
    theory = fw.solve(net, np.full((1, 3), math.sqrt(0.7)), order=0)
    for l in range(1, net.depth + 1):
        assert path.K[l - 1] == pytest.approx(theory.layer(l).K.item(), rel=DERIVED)
        assert path.Theta[l - 1] == pytest.approx(theory.layer(l).Theta.item(), rel=DERIVED)


def twins(name):
    """One function in two activations, so that networks with both have different activations."""
    activation = fw.MLP((1, 1, 1), name).activations[0]
    one, other = (lambda z: activation.function(z)), (lambda z: activation.function(z))
    return tuple(fw.Activation(f, name=f"my {name}", kinks=activation.kinks) for f in (one, other))


@pytest.mark.parametrize("name", [pytest.param("tanh", marks=pytest.mark.long), "relu", "gelu"])
def test_activations_that_happen_to_be_equal_give_the_numbers_of_one(name):
    first, second = twins(name)
    one = fw.MLP((3, *[20] * 8, 2), first, C_b=0.05, C_W=1.6)
    two = one.replace(activation=(first, second) * 4)
    assert first != second and one != two
    ours, theirs = fw.audit(two, input_scale=0.8), fw.audit(one, input_scale=0.8)
    for mine, its in zip(ours.path, theirs.path, strict=True):
        np.testing.assert_allclose(mine, its, rtol=EQUAL)
    assert [f.what for f in ours.findings] == [f.what for f in theirs.findings]
    assert ours.report.expansion_parameter == pytest.approx(theirs.report.expansion_parameter, rel=1e-11)
    tuned = [fw.MLP.critical(one.widths, net.activations, input_scale=0.8) for net in (one, two)]
    for variance in ("C_b", "C_W"):
        np.testing.assert_allclose(getattr(tuned[1], variance), getattr(tuned[0], variance), rtol=EQUAL)
    assert is_critical(tuned[1])


@pytest.mark.parametrize("name", ["tanh", "relu", "gelu"])
def test_one_activation_for_each_layer_may_be_the_same(name):
    listed, single = (fw.MLP.critical((3, 9, 9, 9, 2), given) for given in ((name,) * 3, name))
    assert listed == single


def test_lengths_of_equal_activations_are_those_of_the_fixed_point():
    first, second = twins("tanh")
    one = fw.MLP((3, *[20] * 60, 2), first, C_b=0.05, C_W=1.6)
    ours, theirs = fw.audit(one.replace(activation=(first, second) * 30)), fw.audit(one)
    assert ours.correlation_length_perp == pytest.approx(theirs.correlation_length_perp, rel=0.05)
    assert ours.correlation_length_parallel == pytest.approx(theirs.correlation_length_parallel, rel=0.05)


# --- the critical network --------------------------------------------------------------------------------


def test_without_half_stable_activations_each_layer_has_the_point_of_the_activation_before_it():
    net = fw.MLP.critical((3, 9, 9, 9, 9, 2), ("tanh", "relu", "leaky_relu(0.2)", "sin"))
    assert net.C_b == (0.0,) * 5
    assert net.C_W == pytest.approx((1.0, 1.0, 2.0, 2 / 1.04, 1.0), rel=1e-14)
    assert is_critical(net) and not is_critical(net.replace(C_W=1.0))


@pytest.mark.parametrize("scale", [0.4, 1.0])
def test_a_half_stable_activation_receives_its_fixed_point(scale):
    """Every step has chi_perp = 1 at K*, done again by quadrature."""
    net = fw.MLP.critical((3, *[9] * 9, 2), MIXED * 3, input_scale=scale)
    K, chi, _ = scalars(net, scale)
    np.testing.assert_allclose(K, fw.criticality("gelu").K_star, rtol=AGAIN)
    np.testing.assert_allclose(chi, 1.0, rtol=AGAIN)
    parallel = layer_by_layer(net, scale).parallel[:-1]
    np.testing.assert_allclose(parallel[[1, 2]], 1.0, atol=1e-8)
    assert 0 < parallel[0] < 1
    assert is_critical(net)


def test_scale_invariant_and_half_stable_layers_are_critical_together():
    net = fw.MLP.critical((3, *[9] * 4, 2), ("relu", "gelu", "leaky_relu(0.2)", "gelu"))
    path, gelu = layer_by_layer(net, 1.0), fw.criticality("gelu")
    np.testing.assert_allclose(path.parallel, 1.0, atol=1e-8)
    np.testing.assert_allclose(path.perpendicular, 1.0, atol=1e-8)
    assert (net.C_b[2], net.C_W[2]) == (net.C_b[4], net.C_W[4]) == (gelu.C_b, gelu.C_W)
    assert (net.C_b[0], net.C_W[0]) == (0.0, gelu.K_star)
    assert (net.C_b[1], net.C_W[1]) == (0.0, 2.0)
    assert fw.audit(net).correlation_length_parallel == math.inf


def test_a_bias_raises_the_kernel_to_a_larger_fixed_point():
    gelu, swish = fw.criticality("gelu"), fw.criticality("swish")
    net = fw.MLP.critical((3, 9, 9, 9, 2), ("gelu", "relu", "swish"))
    K = [fw.solve(net, np.ones((1, 3)), order=0).layer(l).K.item() for l in range(1, 5)]
    assert K == pytest.approx([gelu.K_star] * 2 + [swish.K_star] * 2, rel=AGAIN)
    assert net.C_b[2] == pytest.approx(swish.K_star - gelu.K_star, rel=1e-12)


def test_a_kernel_is_lowered_only_as_far_as_gradients_allow():
    """tanh lowers the kernel while chi_perp = 1: once from gelu is not enough for mish, twice is."""
    with refused(
        "'tanh' on layer 2 and 'mish' on layer 3 cannot be critical together.*C_b would be negative"
    ):
        fw.MLP.critical((3, 9, 9, 9, 2), ("gelu", "tanh", "mish"))
    with refused("'swish' on layer 1 and 'gelu' on layer 2 cannot be critical together"):
        fw.MLP.critical((3, 9, 9, 2), ("swish", "gelu"))
    net = fw.MLP.critical((3, 9, 9, 9, 9, 2), ("gelu", "tanh", "tanh", "mish"))
    path = layer_by_layer(net, 1.0)
    np.testing.assert_allclose(path.perpendicular, 1.0, atol=1e-8)
    assert path.K[3] == pytest.approx(fw.criticality("mish").K_star, rel=1e-8)
    assert min(net.C_b) >= 0


def test_one_activation_without_a_critical_point_is_named():
    with refused("activation 'sigmoid' has no critical point to initialize at"):
        fw.MLP.critical((3, 9, 9, 2), ("tanh", "sigmoid"))


@pytest.mark.parametrize("activations", [MIXED * 2, ("tanh", "relu") * 3, ("relu", "linear", "relu")])
def test_all_layers_contribute_equally_to_the_ntk(activations):
    """Each layer's biases give lambda_b/L and its weights lambda_W x^2/L, by switching the others off."""
    depth, scale, x = len(activations) + 1, 0.6, np.full((1, 3), math.sqrt(0.6))
    net = fw.MLP.critical((3, *[9] * (depth - 1), 2), activations, 0.7, 1.3, input_scale=scale)
    off = (0.0,) * depth
    for l in range(depth):
        for name, share in (("lambda_b", 0.7 / depth), ("lambda_W", 1.3 * scale / depth)):
            alone = tuple(rate if i == l else 0.0 for i, rate in enumerate(getattr(net, name)))
            part = net.replace(**{"lambda_b": off, "lambda_W": off, name: alone})
            assert fw.solve(part, x, order=0).output.Theta.item() == pytest.approx(share, rel=DERIVED)


# --- the audit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "activations",
    [
        pytest.param(("tanh", "relu") * 100, marks=pytest.mark.long),
        pytest.param(("relu", "gelu") * 100, marks=pytest.mark.long),
        MIXED * 60,
    ],
)
def test_a_critical_network_of_different_activations_loses_nothing(activations):
    audit = fw.audit(fw.MLP.critical((10, *[1000] * len(activations), 1), activations))
    assert audit.findings == () and audit.correlation_length_perp == math.inf and audit.depth_limit is None


def test_findings_name_the_layer_and_its_activation():
    net = fw.MLP((10, *[100] * 80, 1), ("tanh", "relu") * 40, C_W=1.0)
    audit = fw.audit(net)
    signal, gradient = audit.findings
    assert str(signal).startswith("the signal vanishes from layer 17 (after relu) on")
    assert str(gradient).startswith("the gradient vanishes in layer 62 (before relu) and below")
    K = scalars(net, 1.0)[0]
    assert K[16] < K[0] / 1000 < K[15]
    assert audit.correlation_length_perp == pytest.approx(
        2 / math.log(2), rel=1e-6
    )  # relu halves, tanh keeps
    assert "layers 3, 5, 7, ..., 81 (after relu) to C_b = 0, C_W = 2" in audit.advice[0]
    assert fw.audit(fw.MLP.critical(net.widths, net.activations)).findings == ()


def test_advice_says_where_activations_cannot_be_critical_together():
    audit = fw.audit(fw.MLP((10, *[50] * 60, 1), ("swish", "gelu") * 30, C_W=1.0))
    assert audit.findings and "cannot be critical together" in audit.advice[0]


def test_the_steps_say_what_was_set():
    audit = fw.audit(fw.MLP.critical((3, 500, 500, 500, 1), MIXED))
    first, tanh, relu, gelu = audit.steps
    assert first == "layer 1: C_b = 0, C_W = 3.56155281; the kernel starts at K = 3.562"
    assert tanh.startswith("layer 2 (after tanh): C_b = 1.27606917, C_W = 3.70321166; chi_perpendicular = 1")
    assert "differences of norm shrink by chi_parallel = 0.1645" in tanh
    assert relu == "layer 3 (after relu): C_b = 0, C_W = 2; critical at K = 3.562"
    assert gelu.startswith("layer 4 (after gelu): C_b = 0.172922391, C_W = 1.98305826; critical at K = 3.562")
    assert audit.healthy and len(audit.points) == 3
    assert fw.audit(fw.MLP.critical((3, 50, 1), "tanh")).steps == ()


def test_many_kinds_of_layers_are_shortened():
    C_W = tuple(np.linspace(1, 2, 41))
    steps = fw.audit(fw.MLP((3, *[50] * 40, 1), ("tanh", "relu") * 20, C_W=C_W)).steps
    assert len(steps) == 13 and steps[-1] == "and 29 further kinds of layers"


def test_the_width_of_a_network_of_different_activations_is_judged_by_solve():
    net = fw.MLP.critical((3, *[40] * 9, 1), MIXED * 3)
    audit = fw.audit(net)
    report = fw.solve(net, np.ones((1, 3))).report()
    assert audit.report.expansion_parameter == pytest.approx(report.expansion_parameter, rel=1e-12)


# --- statements about one activation ---------------------------------------------------------------------


def test_laws_are_those_of_one_activation():
    laws = fw.critical.asymptotes(
        fw.solve(fw.MLP.critical((2, 8, 8, 1), ("tanh", "relu")), [[1.0, 1.0]], order=0)
    )
    assert laws.K is None and laws.Theta is None
    assert laws.K_law == laws.Theta_law == "known for one activation only"
    for ask in (fw.criticality, fw.critical.exponents, lambda a: fw.critical.phase_diagram(a, [0.0], [1.0])):
        with refused("activation must be a name, an Activation or a function of z"):
            ask(("tanh", "relu"))


def test_the_audit_of_a_file_prints_the_steps(capsys, tmp_path):
    (tmp_path / "net.toml").write_text(fw.MLP.critical((3, 9, 9, 1), ("relu", "gelu")).to_toml())
    assert call("audit", tmp_path / "net.toml") == 0
    assert "layer 2 (after relu): C_b = 0, C_W = 2; critical at K = 3.562" in capsys.readouterr().out
