"""Residual networks with kinked activations through order 1/n.

Criteria: closed forms of one input 1e-12; sums over pairs of layers ten times the error that they report, of
the largest entry; derivatives by differences 1e-4; vanishing skips 1e-13; sampled networks pulls below 4 (4.5
for the largest of the entries of the first residual layer). Sampled here: relu, the first residual layer, and
three layers with gamma 0.8; more in `benchmarks/tensors/results/sampled_kinks.md`.
"""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.close import assert_close
from helpers.problems import inputs
from helpers.residual_networks import chain, joint_kernel
from helpers.sampled_networks import extrapolated
from helpers.sampled_streams import stream_statistics
from helpers.symmetries import SYMMETRIES, permuted

import finitewidth as fw
from finitewidth.core.estimate import Estimate
from finitewidth.core.tasks import HERE
from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.gaussian.four_legs.kinked import FUNCTIONS, RESPONSES, kinked_layers
from finitewidth.network.layers.activation import as_activation
from finitewidth.theory import solve as solving
from finitewidth.theory.tensors import KINKED_TENSORS, MATRICES, TENSORS

EXACT, DIFFERENCES = 1e-12, 1e-4
NAMES = MATRICES + KINKED_TENSORS
X = np.array([[1.0, 0.5], [-0.3, 1.2]])


def dense(n, C_W):
    return fw.Dense(n, 0.1, C_W, 0.5, 0.8)


def rectified(n=16, blocks=1, gamma=0.8):
    """A stream that is read by relu in every layer."""
    block = fw.Residual("relu", dense(n, 0.9), gamma=gamma)
    return fw.Network(2, dense(n, 1.2), *[block] * blocks, "relu", dense(1, 1.3))


@functools.cache
def solved(memory=True):
    return fw.solve(rectified(), X, method=fw.Tensors(remember=memory))


def by_pairs(monkeypatch, net, inputs):
    """One input by the sum over pairs of layers, which many inputs take."""
    with monkeypatch.context() as patch:
        patch.setattr(solving.one_input_with_skips, "applies", lambda net: False)
        return fw.solve(net, inputs)


# --- averages of two layers -------------------------------------------------------------------------------


def test_kinked_averages_of_two_layers_are_averages_on_the_enlarged_set_of_samples():
    K, relu = joint_kernel(inputs(2, 3)), as_activation("relu")
    whole = four_legs("relu", K, ((0, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 1)), tolerance=1e-5)
    averages, error = kinked_layers((relu, relu), K, FUNCTIONS, 1e-5)
    for family, average in averages.items():
        order = sorted(range(4), key=lambda slot: -family[slot])
        labels = "".join("abcd"[slot] for slot in order)
        expected = whole[tuple(family[slot] for slot in order)]
        values = np.einsum(f"{labels}->abcd", expected.value)[:2, :2, 2:, 2:]
        assert np.abs(values - average).max() <= error + expected.error


def test_kinked_averages_of_two_layers_scale_with_the_kernel():
    K, relu = joint_kernel(inputs(2, 3)), as_activation("relu")
    once, error = kinked_layers((relu, relu), K, FUNCTIONS, 1e-5)
    large, error_of_large = kinked_layers((relu, relu), 60 * K, FUNCTIONS, 1e-2)
    for family, value in once.items():
        factor = 60 ** (family.count(0) / 2)
        assert np.abs(factor * value - large[family]).max() <= factor * error + error_of_large


def difference(activations, K, place):
    """Derivatives of averages by an entry of the joint kernel, from four of its values."""

    def moved(step):
        change = np.zeros_like(K)
        change[place] = change[place[::-1]] = 0.02 * step
        return kinked_layers(activations, K + change, FUNCTIONS, 1e-5)[0]

    values = {step: moved(step) for step in (-2, -1, 1, 2)}
    return {
        f: (8 * (values[1][f] - values[-1][f]) - (values[2][f] - values[-2][f])) / 0.24 for f in FUNCTIONS
    }


@pytest.mark.parametrize(
    "names", [("relu", "hardtanh"), pytest.param(("gelu", "elu(0.5)"), marks=pytest.mark.long)]
)
def test_delta_functions_of_an_upper_layer_are_derivatives_by_its_kernel(names):
    """Two samples, and one sample, where only sums over legs exist."""
    activations = as_activation(names[0]), as_activation(names[1])
    K = joint_kernel(inputs(2, 3))
    tensors, _ = kinked_layers(activations, K, FUNCTIONS + RESPONSES, 1e-5)
    by_one, by_both = difference(activations, K, (2, 2)), difference(activations, K, (2, 3))
    by_cross = difference(activations, K, (1, 2))  # of sample 1 below with sample 0 above
    checks = {
        "20": (2 * by_one[0, 0, 0, 0][0, 0, 0, 1], tensors[0, 0, 2, 0][0, 0, 0, 1]),
        "31": (2 * by_one[0, 0, 1, 1][0, 0, 0, 1], tensors[0, 0, 3, 1][0, 0, 0, 1]),
        "one sample": (
            by_one[0, 0, 0, 0][0, 0, 0, 0],
            (tensors[0, 0, 2, 0] + tensors[0, 0, 1, 1])[0, 0, 0, 0],
        ),
        "its slope": (by_one[0, 0, 1, 1][0, 0, 0, 0], tensors[0, 0, 2, 2][0, 0, 0, 0]),
        "21": (by_cross[0, 0, 1, 1][0, 1, 0, 1], tensors[1, 0, 2, 1][1, 0, 0, 1]),
        "21, twice below": (by_cross[0, 0, 1, 1][1, 1, 0, 1], 2 * tensors[1, 0, 2, 1][1, 1, 0, 1]),
    }
    for a, b in ((0, 0), (0, 1), (1, 1)):
        checks[f"22 {a}{b}"] = by_both[0, 0, 1, 1][a, b, 0, 1], tensors[0, 0, 2, 2][a, b, 0, 1]
    for name, (expected, value) in checks.items():
        assert value == pytest.approx(expected, abs=DIFFERENCES), name


# --- one input --------------------------------------------------------------------------------------------


def scale_invariant(gamma, layers, slopes):
    r"""V/K^2 and G1/K of a critical stream: sums over pairs of layers with correlation rho = gamma^|k-p|.

    From E[x|x| y|y|] and E[x|x| sgn y], which differ for no pair of layers but by rho.
    """
    plus, minus = (slope**2 for slope in slopes)
    kappa, k = ((plus - minus) / (plus + minus)) ** 2, np.arange(1, layers)
    rho = gamma ** np.abs(k[:, None] - k)
    h = 2 / np.pi * ((1 + 2 * rho**2) * np.arcsin(rho) + 3 * rho * np.sqrt(1 - rho**2))
    bent = np.triu(2 / np.pi * (np.arcsin(rho) + rho * np.sqrt(1 - rho**2)), 1)
    factor = kappa * (1 - gamma**2) ** 2
    return 2 * (1 - gamma**4) * (layers - 1) + factor * h.sum(), factor * bent.sum()


def critical_stream(gamma, layers, slopes):
    C_W = 2 * (1 - gamma**2) / sum(slope**2 for slope in slopes)
    block = fw.Residual(f"scale_invariant({slopes[0]}, {slopes[1]})", fw.Dense(9, 0.0, C_W), gamma=gamma)
    return fw.Network(2, fw.Dense(9, 0.0, 1.0), *[block] * (layers - 1))


SLOPES = [(1.0, 0.0), (1.0, 0.3), (1.0, -0.5), (1.0, -1.0)]


@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("gamma, layers", [(0.6, 5), (0.9, 40), (0.99, 300)])
def test_critical_streams_of_two_straight_lines_follow_sums_of_arcsines(gamma, layers, slopes):
    theory = fw.solve(critical_stream(gamma, layers, slopes), X[:1], layers=[layers])
    V, G1 = scale_invariant(gamma, layers, slopes)
    K = theory.output.K.item()
    assert theory.four_leg_error <= EXACT
    assert theory.output.V.item() / K**2 == pytest.approx(V, rel=EXACT)
    assert theory.output.G1.item() / K == pytest.approx(G1, rel=EXACT, abs=EXACT)


def test_pairs_of_layers_follow_the_same_sums(monkeypatch):
    theory = by_pairs(monkeypatch, critical_stream(0.8, 5, SLOPES[1]), X[:1])
    for layer in range(2, 6):
        V, G1 = scale_invariant(0.8, layer, SLOPES[1])
        K = theory.layer(layer).K.item()
        tolerance = 10 * theory.four_leg_error
        assert theory.layer(layer).V.item() / K**2 == pytest.approx(V, abs=tolerance)
        assert theory.layer(layer).G1.item() / K == pytest.approx(G1, abs=tolerance)


def test_the_memory_of_a_kinked_neuron_gives_what_pairs_of_layers_give(monkeypatch):
    """Two derivations: Hermite series, and Gaussians of pairs of layers that are differentiated."""
    wide = functools.partial(fw.Dense, 50, 0.2, 1.1, 0.3, 0.9)
    layers = [fw.Residual("gelu", fw.Dense(20, 0.1, 0.8), gamma=0.8)]
    layers += [fw.Residual("relu", fw.Dense(20, 0.1, 0.8), gamma=-0.7), "tanh", wide()]
    layers += [fw.Residual("leaky_relu(0.2)", wide(), gamma=-0.6), fw.Residual("tanh", wide(), gamma=0.9)]
    net = fw.Network(2, fw.Dense(20, 0.1, 1.0), *layers, "relu", wide())
    fast, slow = fw.solve(net, X[:1]), by_pairs(monkeypatch, net, X[:1])
    assert fast.four_leg_error <= EXACT
    for layer in range(1, 8):
        for name, value in fast.layer(layer).arrays.items():
            tolerance = 10 * slow.four_leg_error * max(1.0, abs(value.item()))
            assert slow.layer(layer).arrays[name].item() == pytest.approx(value.item(), abs=tolerance), name


def test_the_rest_of_the_series_of_a_strong_memory_is_reported():
    """gamma = 1 with weak weights: a correlation of 0.99998 needs more terms than are allowed."""
    block = fw.Residual("relu", fw.Dense(9, 0.0, 1e-4), gamma=1.0)
    net = fw.Network(2, fw.Dense(9, 0.0, 1.0), block, "relu", fw.Dense(1, 0.0, 1.0))
    theory = fw.solve(net, X[:1])
    assert EXACT < theory.four_leg_error <= 1e-5
    rho, K = 1 / np.sqrt(1 + 5e-5), theory.layer(2).K.item()
    G1 = 1e-4 * K / (1 + 5e-5) / 4 * 2 / np.pi * (np.arcsin(rho) + rho * np.sqrt(1 - rho**2))
    assert theory.layer(3).G1.item() == pytest.approx(G1, abs=theory.four_leg_error)


# --- limits -----------------------------------------------------------------------------------------------


def test_kinked_layers_without_skips_are_those_of_dense_networks():
    net = fw.MLP((2, 20, 30, 10), ("relu", "gelu"), C_b=0.1, C_W=1.2, lambda_b=0.5, lambda_W=0.8)
    request = solving.Request({1, 2, 3}, TENSORS, 1e-12, 1e-5, True)
    unrolled, recursion = solving._with_skips(net, X, request, HERE), fw.solve(net, X)
    vanishing = fw.Network(2, dense(20, 1.0), fw.Residual("relu", dense(20, 0.9), gamma=0.0))
    assert not vanishing.ladder.has_skips
    for layer, name in itertools.product((1, 2, 3), NAMES):
        assert_close(unrolled.layers[layer][name], getattr(recursion.layer(layer), name), 1e-13)


def test_without_memory_is_exact_where_a_kinked_body_is_read_linearly():
    block = fw.Residual(dense(12, 1.1), "relu", dense(9, 1.2), gamma=0.7)
    net = fw.Network(2, dense(9, 1.0), block, block, "relu", dense(1, 1.0))
    theories = [fw.solve(net, X, method=fw.Tensors(remember=memory)) for memory in (True, False)]
    for layer, name in itertools.product(range(2, 7), NAMES):
        one, other = (getattr(theory.layer(layer), name) for theory in theories)
        tolerance = 10 * theories[0].four_leg_error * max(1.0, np.abs(one).max())
        assert np.abs(one - other).max() <= (tolerance if layer == 6 else EXACT * np.abs(one).max() + EXACT)


def test_the_diagonal_of_two_inputs_is_one_input():
    together = solved()
    alone = fw.solve(rectified(), X[:1]).output
    for name in NAMES:
        value = getattr(together.output, name)
        tolerance = 10 * together.four_leg_error * max(1.0, np.abs(value).max())
        assert value.flat[0] == pytest.approx(getattr(alone, name).item(), abs=tolerance), name


@pytest.mark.parametrize("memory", [True, False])
def test_every_tensor_of_a_kinked_stream_has_its_symmetries(memory):
    theory = solved(memory)
    for name in KINKED_TENSORS:
        value = getattr(theory.output, name)
        for slots in SYMMETRIES[name].split():
            assert np.abs(permuted(value, slots) - value).max() <= 10 * theory.four_leg_error
    for name in MATRICES:
        assert_close(getattr(theory.output, name), getattr(theory.output, name).T, 1e-12)


def test_rectified_streams_scale_with_parallel_inputs():
    """Without biases z(2 x) = 2 z(x), and V, F and B need no derivative that diverges."""
    block = fw.Residual("relu", fw.Dense(9, 0.0, 0.9, 0.0, 0.8), gamma=0.8)
    net = fw.Network(2, fw.Dense(9, 0.0, 1.0, 0.0, 0.8), block, "relu", fw.Dense(1, 0.0, 1.0, 0.0, 0.8))
    rows = np.stack([X[0], X[1], 2 * X[0], X[1]])  # a parallel input, and a repeated one
    with pytest.raises(ValueError, match="inputs 0 and 2 are parallel"):
        fw.solve(net, rows)
    theory = fw.solve(net, rows, tensors=("V", "F", "B"))
    factor, same = np.array([1.0, 1.0, 2.0, 1.0]), np.array([0, 1, 0, 1])
    for name in ("V", "F", "B"):
        value = getattr(theory.output, name)
        scaled = value[np.ix_(*[same] * 4)] * np.einsum("a,b,c,d->abcd", *[factor] * 4)
        assert np.abs(value - scaled).max() <= 10 * theory.four_leg_error * np.abs(value).max()


# --- what exists ------------------------------------------------------------------------------------------


def test_tensors_with_second_derivatives_exist_below_the_first_kink():
    """A skip that jumps over a kink does not bring them back: the layer with the kink sends noise, too."""
    smooth = chain([0.8, None], ["gelu", "tanh"], inputs=2)
    kinked = chain([0.8, 0.6, None], ["gelu", "relu", "gelu"], inputs=2)
    theory = fw.solve(kinked, X[:1], method=fw.Tensors(tolerance=1e-8))
    expected = fw.solve(smooth, X[:1])
    for name in TENSORS:
        assert_close(getattr(theory.layer(2), name), getattr(expected.layer(2), name), 1e-12)
    for layer, name in itertools.product((3, 4), [name for name in TENSORS if name not in KINKED_TENSORS]):
        with pytest.raises(ValueError, match=f"{name} does not exist: activation 'relu' has a kink"):
            getattr(theory.layer(layer), name)


def test_functions_of_a_user_with_kinks_are_known_in_streams():
    bent = fw.Activation(lambda z: z - jnp.clip(z, -0.5, 0.5) / 2, name="bent", kinks=(-0.5, 0.5))
    output = fw.solve(chain([0.8, None], [bent, bent], inputs=2), X[:1]).output
    assert all(np.isfinite(value).all() for value in output.arrays.values())
    assert set(output.arrays) == {*MATRICES, *KINKED_TENSORS}


@pytest.mark.parametrize("count, reason", [(1, "little .*tolerance="), (2, "almost nothing")])
def test_a_skip_that_nothing_is_added_to_is_refused_with_kinks(count, reason):
    block = fw.Residual("relu", fw.Dense(9, 0.0, 0.0), gamma=1.0)
    net = fw.Network(2, fw.Dense(9, 0.0, 1.0), block, "relu", fw.Dense(1))
    with pytest.raises(ValueError, match=f"add {reason}") as error:
        fw.solve(net, X[:count])
    assert "raise C_W" in str(error.value)


def test_the_unrolled_form_refuses_kinks_as_in_dense_networks():
    with pytest.raises(ValueError, match="'relu' has a kink, which the unrolled form cannot treat"):
        fw.unroll(rectified(), X)


# --- sampled networks -------------------------------------------------------------------------------------


def test_the_first_residual_layer_is_exact_at_any_width():
    net = fw.Network(2, dense(4, 1.2), fw.Residual("relu", dense(4, 0.9), gamma=0.8))
    sampled = fw.sample_statistics(net, X, members=10_000, key=1, neurons=4)
    layer = fw.solve(net, X).layer(2)
    pulls = [
        np.abs((getattr(sampled, name).value - getattr(layer, name)) / getattr(sampled, name).stderr).max()
        for name in ("G", "H", *KINKED_TENSORS)
    ]
    assert max(pulls) < 4.5


@pytest.mark.long
def test_sampled_streams_have_these_statistics_and_those_without_memory_are_excluded():
    """20 000 networks at each of three widths, extrapolated to 1/n = 0."""
    widths = (16, 32, 64)
    sampled = [stream_statistics(rectified(n), X, 20_000, seed=n) for n in widths]
    output, paired = solved().output, solved(memory=False).output
    means = {"G1": ("G", output.K), "H1": ("H", output.Theta)}
    for name in (*means, *KINKED_TENSORS):
        key, infinite = means.get(name, (name, 0.0))
        scales = widths if name in means else (1, 1, 1)
        estimates = [
            Estimate(scale * (one[key].value - infinite), scale * one[key].stderr)
            for scale, one in zip(scales, sampled, strict=True)
        ]
        limit = extrapolated(widths, estimates)
        assert np.abs((getattr(output, name) - limit.value) / limit.stderr).max() < 4, name
        if name in ("G1", "V", "D", "A"):
            assert np.abs((getattr(paired, name) - limit.value) / limit.stderr).max() > 4, name
