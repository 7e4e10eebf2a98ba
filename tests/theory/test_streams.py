"""Residual networks through order 1/n: closed forms, worked examples, limits, symmetries and messages.

Criteria: exact identities 1e-12 of a tensor's largest entry, limits of vanishing skips 1e-13, printed digits
of worked examples, four-leg averages 1e-8.
"""

import functools
import itertools

import numpy as np
import pytest
from helpers.close import assert_close
from helpers.problems import also_long, inputs
from helpers.residual_networks import RATES, chain, joint_kernel
from helpers.symmetries import SYMMETRIES, permuted

import finitewidth as fw
from finitewidth.core.tasks import HERE
from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.gaussian.four_legs.two_layers import SOURCES, TWO_LAYER_FAMILIES, four_legs_of_two_layers
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import as_activation
from finitewidth.theory import solve as solving
from finitewidth.theory.tensors import MATRICES, TENSORS
from finitewidth.theory.unrolled.leg_by_leg import LegSlices, Request, contract_slots

EXACT, FINE = 1e-12, 1e-11
NAMES = MATRICES + TENSORS


def assert_equal_statistics(first, second, tolerance):
    for name in NAMES:
        assert_close(getattr(first, name), getattr(second, name), tolerance)


# --- averages of two layers -------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["gelu", "tanh"])
def test_averages_of_two_layers_are_averages_on_the_enlarged_set_of_samples(activation):
    X = inputs(3, 3)
    X[1] = -X[0]  # parallel inputs
    K, one = joint_kernel(X, C_b=0.0), as_activation(activation)
    K[3:, 3:] = 1.7 * K[:3, :3]  # so that their residual layers are parallel, too
    whole = four_legs(activation, K, tolerance=1e-10)
    averages = four_legs_of_two_layers((one, one), K, SOURCES)
    for family, average in averages.items():
        order = sorted(range(4), key=lambda slot: -family[slot])
        labels = "".join("abcd"[slot] for slot in order)
        values = np.einsum(f"{labels}->abcd", whole[tuple(family[slot] for slot in order)].value)
        assert np.abs(values[:3, :3, 3:, 3:] - average.value).max() <= average.error + 1e-10


def test_averages_of_two_layers_with_different_activations_agree_with_quadrature():
    activations = as_activation("tanh"), as_activation("swish")
    K = joint_kernel(0.6 * inputs(2))
    nodes = (np.arange(-19, 19) + 0.5) * 0.34
    points = np.stack([axis.reshape(-1) for axis in np.meshgrid(*[nodes] * 4, indexing="ij")])
    weights = np.exp(-(points**2).sum(axis=0) / 2) * (0.34 / np.sqrt(2 * np.pi)) ** 4
    z = np.linalg.cholesky(K) @ points
    lower, upper = (
        Tower(activation, 3)(part) for activation, part in zip(activations, np.split(z, 2), strict=True)
    )
    averages = four_legs_of_two_layers(activations, K)
    labels = [(0, 0, 0, 0), (0, 1, 0, 1), (1, 0, 1, 1), (1, 1, 0, 1)]
    for (a, b, c, d), (p, q, r, s) in itertools.product(TWO_LAYER_FAMILIES, labels):
        value = weights @ (lower[a, p] * lower[b, q] * upper[c, r] * upper[d, s])
        assert averages[a, b, c, d].value[p, q, r, s] == pytest.approx(value, abs=3e-8)


def test_averages_of_two_layers_in_closed_form_agree_with_conditioning():
    cubic, linear = as_activation("polynomial(0.2, 1, -0.3, 0.1)"), as_activation("linear")
    same = as_activation(lambda z: 0.2 + z - 0.3 * z**2 + 0.1 * z**3)
    K = joint_kernel(0.5 * inputs(3))
    exact = four_legs_of_two_layers((cubic, linear), K)
    averages = four_legs_of_two_layers((same, linear), K)
    for family, average in averages.items():
        assert np.abs(exact[family].value - average.value).max() <= average.error


# --- limits and closed forms ------------------------------------------------------------------------------


def test_a_vanishing_skip_is_a_dense_layer():
    activations = ["gelu", "tanh", "swish"]
    X = inputs(3, 3)
    dense = fw.solve(chain([None] * 3, activations), X)
    residual = fw.solve(chain([0.0] * 3, activations), X)
    for layer in range(1, 5):
        assert_equal_statistics(residual.layer(layer), dense.layer(layer), 1e-13)


def test_the_sum_over_sources_is_the_recursion_where_no_layers_are_correlated():
    net = fw.MLP((3, 20, 30, 10, 5), ("gelu", "tanh", "swish"), C_b=0.1, C_W=1.2, **RATES)
    X = inputs(3, 3)
    request = solving.Request({1, 2, 3, 4}, TENSORS, 1e-12, 1e-8, True)
    unrolled = solving._with_skips(net, X, request, HERE)
    dense = fw.solve(net, X)
    for layer in range(1, 5):
        for name in NAMES:
            assert_close(unrolled.layers[layer][name], getattr(dense.layer(layer), name), 1e-13)


@pytest.mark.parametrize("gamma", [0.3, 0.8, -0.9])
def test_deep_linear_residual_networks_follow_polynomials_in_depth(gamma):
    lb, lW, c = 0.7, 0.4, 1 - gamma**4
    first = fw.Dense(10, 0.0, 1.0, lb, lW)
    block = fw.Residual(fw.Dense(10, 0.0, 1 - gamma**2, lb, lW), gamma=gamma)
    X = inputs(1)
    theory = fw.solve(fw.Network(4, first, *[block] * 5), X)
    K = float(X[0] @ X[0] / 4)
    mu = lb + lW * K
    for l in range(1, 7):
        t = (l - 1) * l * (2 * l - 1) / 6 + c * l * (l - 1) ** 2 * (l - 2) / 12
        exact = {
            "K": K,
            "Theta": l * mu,
            "V": 2 * c * (l - 1) * K**2,
            "F": c * mu * K * l * (l - 1) / 2,
            "B": c * mu**2 * (l - 1) * l * (2 * l - 1) / 6,
            "D": lW * K**2 * (l - 1) * (2 + c * (l - 2)),
            "A": lW**2 * K**2 * (2 * (l - 1) ** 2 + c * (l - 1) * (l - 2) * (2 * l - 3) / 3),
            "Q": lW * mu * K * (l * (l - 1) / 2 + c * l * (l - 1) * (l - 2) / 6),
            "T": lW**2 * mu * K * t,
            "S": lW * mu**2 * t,
        } | dict.fromkeys(("G1", "H1", "P", "R", "U"), 0.0)
        for name, value in exact.items():
            assert theory.layer(l).arrays[name].flat[0] == pytest.approx(value, rel=EXACT, abs=EXACT)


def test_the_vertex_of_linear_residual_networks_adds_up_layer_by_layer():
    gammas, C_W = (0.5, None, -1.2, 0.9), (1.0, 0.8, 1.3, 0.4, 0.7)
    layers = [fw.Dense(10, 0.0, C_W[0])]
    for gamma, C in zip(gammas, C_W[1:], strict=True):
        dense = fw.Dense(10, 0.0, C)
        layers.append(dense if gamma is None else fw.Residual(dense, gamma=gamma))
    output = fw.solve(fw.Network(4, *layers), inputs(4)).output
    K, total = output.K, 0.0
    for gamma, C in zip(gammas, C_W[1:], strict=True):
        square = (gamma or 0.0) ** 2
        total += (2 * square * C + C**2) / (square + C) ** 2
    pairs = np.einsum("ac,bd->abcd", K, K) + np.einsum("ad,bc->abcd", K, K)
    assert_close(output.V, total * pairs, EXACT)


# --- worked examples (one input, gelu) --------------------------------------------------------------------

ORDER = "K G1 Theta H1 V D A F B P Q R S T U".split()
LAYER_2 = """1.27804700 0 2.62635005 0 2.90029229 2.74496359 2.86618920 1.84380091 2.33001848 .13442327
    1.50355414 -1.05419868 2.53779040 1.29608630 .29979629"""
LAYER_3 = """.66169705 .25251709 2.29563200 .80781979 3.23677328 5.84144259 12.27136654 2.39161803
    3.89858940 .33377303 3.36492524 -4.61977320 6.91176484 6.71177453 1.67375811"""
PAIR_LAW = """.66169705 .02990979 2.29563200 .08424889 2.61778596 4.38867337 8.75857577 2.12231520
    3.69113416 .31249630 2.82431635 -4.36053915 6.48539521 5.50461840 1.58444408"""
TWO_SKIPS = """.98120881 .25251709 2.95221952 .80781979 5.25550389 8.15992179 15.04609816 3.92852907
    6.32233178 .43940408 4.79939234 -6.19881403 10.35371640 7.92939887 1.81044662"""


@pytest.mark.parametrize(
    "gamma, layer, memory, printed",
    [
        (0.0, 2, True, LAYER_2),
        (0.0, 3, True, LAYER_3),
        (0.0, 3, False, PAIR_LAW),
        (0.5, 3, True, TWO_SKIPS),
    ],
)
def test_worked_examples_to_all_printed_digits(gamma, layer, memory, printed):
    net = chain([0.8, gamma], ["gelu"] * 2, inputs=1, C_W=1.0, lambda_b=0.5, lambda_W=1.0)
    statistics = fw.solve(net, [[1.0]], method=fw.Tensors(remember=memory, tolerance=1e-10)).layer(layer)
    for name, value in zip(ORDER, map(float, printed.split()), strict=True):
        assert getattr(statistics, name).item() == pytest.approx(value, abs=6e-9), name


# --- bodies -----------------------------------------------------------------------------------------------


def bodies(*body, gamma=0.7, repeats=2):
    """Blocks with the given body; numbers are widths of dense layers."""
    layers = [fw.Dense(one, 0.1, 1.1, **RATES) if isinstance(one, int) else one for one in body]
    block = fw.Residual(*layers, gamma=gamma)
    return fw.Network(3, fw.Dense(20, 0.1, 1.0, **RATES), *[block] * repeats, "gelu", fw.Dense(2, 0.1, 1.0))


def test_without_memory_is_exact_where_the_stream_is_read_linearly():
    X = 0.8 * inputs(2, 3)
    theories = [
        fw.solve(bodies(30, "gelu", 20), X, method=fw.Tensors(remember=memory)) for memory in (True, False)
    ]
    for layer in range(1, 6):
        assert_equal_statistics(theories[0].layer(layer), theories[1].layer(layer), EXACT)
    # the output layer reads the stream by an activation: four-leg averages, good to 1e-8
    assert_equal_statistics(theories[0].layer(6), theories[1].layer(6), 1e-7)


def test_memory_matters_where_the_stream_is_read_twice():
    theories = [
        fw.solve(bodies("gelu", 30, "gelu", 20), inputs(1, 3), method=fw.Tensors(remember=m))
        for m in (True, False)
    ]
    V, approximate = (theory.layer(5).V.item() for theory in theories)
    assert approximate < 0.97 * V


def test_a_body_of_linear_layers_is_a_longer_linear_body():
    """A skip over two linear layers of width m: V = sum of what both create (no biases, one input)."""
    m, n, C, gamma = 7, 10, (0.9, 0.6), 0.8
    block = fw.Residual(fw.Dense(m, 0.0, C[0]), fw.Dense(n, 0.0, C[1]), gamma=gamma)
    layers = [fw.Dense(n, 0.0, 1.0), block, fw.Dense(3, 0.0, 1.0)]
    output = fw.solve(fw.Network(4, *layers), inputs(1)).output
    a, b = gamma**2, C[0] * C[1]
    # E[z_i^2 z_k^2], i != k, of gamma z + W2 W1 z: relative variances 1/n per source
    stream = (2 * a * b + b**2) / (a + b) ** 2 / n
    body = (b**2 / (a + b) ** 2) / m
    K = output.K.item()
    assert output.V.item() / output.n == pytest.approx(2 * K**2 * (stream + body + 1 / n), rel=EXACT)


# --- inputs and symmetries --------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [True, False])
def test_every_tensor_has_its_symmetries(memory):
    net = chain([0.8, None, 0.5, -0.7], ["gelu", "tanh", "swish", "gelu"])
    output = fw.solve(net, inputs(3, 3), layers=[5], method=fw.Tensors(remember=memory)).output
    for name in MATRICES:
        assert_close(output.arrays[name], output.arrays[name].T, 1e-8)
    for name, group in SYMMETRIES.items():
        for slots in group.split():
            assert_close(permuted(output.arrays[name], slots), output.arrays[name], 1e-8)


def test_statistics_of_an_input_do_not_depend_on_the_others():
    net, X = chain([0.8, 0.6, -0.5], ["gelu", "tanh", "swish"]), inputs(3, 3)
    X = X[[0, 1, 2, 1]]
    whole = fw.solve(net, X, layers=[4]).output
    for chosen in ([1], [2, 0], [3, 1]):
        part = fw.solve(net, X[chosen], layers=[4]).output
        for name in NAMES:
            value = getattr(whole, name)
            cut = value[np.ix_(*[chosen] * value.ndim)]
            assert np.abs(cut - getattr(part, name)).max() <= 1e-6 * np.abs(value).max()


def test_skips_of_different_length_meet():
    """A skip over two layers, the second of which has a skip of its own; C_W = 0 leaves nothing but skips."""
    inner = fw.Residual("gelu", fw.Dense(20, 0.1, 0.9), gamma=0.5)
    block = fw.Residual(inner, "tanh", fw.Dense(20, 0.2, 0.8), gamma=-0.9)
    net = fw.Network(3, fw.Dense(20, 0.1, 1.0), block, "gelu", fw.Dense(2))
    assert net.ladder.relation(3, 2) == (pytest.approx(-0.45), 1)
    output = fw.solve(net, inputs(2, 3)).output
    for name, group in SYMMETRIES.items():
        for slots in group.split():
            assert_close(permuted(output.arrays[name], slots), output.arrays[name], 1e-8)


# --- messages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layers, named",
    [
        ([fw.Dense(5), fw.Residual(fw.Dense(3), shortcut=[fw.Dense(3)]), fw.Dense(2)], "shortcut"),
        ([fw.Residual(fw.Dense(3)), fw.Dense(2)], "inputs"),
        ([fw.Dense(5), "gelu", fw.Residual(fw.Dense(5)), fw.Dense(2)], "behind an activation"),
        (
            [fw.Dense(5), fw.Residual("gelu", fw.Dense(5), fw.Residual("gelu", fw.Dense(5)))],
            "reads its stream through 'gelu'",
        ),
    ],
)
def test_what_order_one_does_not_know_is_refused_by_name(layers, named):
    net = fw.Network(3, *layers)
    with pytest.raises(ValueError, match=named) as error:
        fw.solve(net, np.ones((1, 3)))
    assert "order=0" in str(error.value)


# --- the unrolled form ------------------------------------------------------------------------------------


UNROLLED = chain([0.8, -0.6, None], ["tanh", "gelu", "tanh"])


@functools.cache
def unrolled(layer):
    X = 0.7 * inputs(2, 3)
    return fw.unroll(UNROLLED, X, layer=layer), fw.solve(
        UNROLLED, X, layers=[layer], method=fw.Tensors(tolerance=FINE)
    ).layer(layer)


@pytest.mark.parametrize("layer", [3, 4])
def test_the_unrolled_form_gives_the_same_tensors(layer):
    form, statistics = unrolled(layer)
    for name in TENSORS:
        assert_close(form.tensor(name, tolerance=FINE), getattr(statistics, name), 1e-9)
    vectors = np.random.default_rng(3).standard_normal((4, 2))
    exact = np.einsum("abcd,a,b,c,d", statistics.T, *vectors)
    assert form.contract("T", vectors, tolerance=FINE) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("activation", ["sin", pytest.param("gelu", marks=pytest.mark.long)])
def test_every_slot_may_be_left_open_against_a_dual_on_the_others(activation):
    """Duals on the first two of three samples; all tensors and slots in one pass over pairs of layers."""
    net = chain([0.8, -0.6, None], [activation, "sin", activation])
    part, duals = fw.unroll(net, inputs(3, 3)), np.random.default_rng(3).standard_normal((2, 2, 2, 2))
    requests = [Request(name, slot, duals) for name in TENSORS for slot in range(4)]
    contracted = contract_slots(LegSlices(part, lambda: requests, 1e-9))
    tensors = {name: part.tensor(name, tolerance=1e-9) for name in TENSORS}
    for request, values in zip(requests, contracted, strict=True):
        tensor = np.moveaxis(tensors[request.tensor], request.slot, 0)
        exact = np.einsum("dxyz,kxyz->kd", tensor[:, :2, :2, :2], duals)
        assert np.abs(values - exact).max() <= 1e-8 * np.abs(tensor).max() * np.abs(duals).sum()


@pytest.mark.parametrize("name", ["V", "Q", "U", *also_long("D", "F", "B", "P", "S")])
def test_sampled_trajectories_of_one_neuron_give_the_same_contractions(name):
    """20 000 trajectories, pulls below 4; layer 3 has bare pairs, layer 4 has not."""
    vectors = np.random.default_rng(4).standard_normal((4, 2))
    for layer in (3, 4):
        form, statistics = unrolled(layer)
        estimate = form.sample_contraction(name, vectors, samples=20_000, key=1)
        exact = np.einsum("abcd,a,b,c,d", getattr(statistics, name), *vectors)
        assert abs(estimate.value - exact) <= 4 * estimate.stderr


# --- one input, any depth ---------------------------------------------------------------------------------


def test_the_memory_of_one_neuron_gives_what_pairs_of_layers_give(monkeypatch):
    """Two derivations: Hermite coefficients layer by layer, and the sum over pairs of source layers."""
    wide = functools.partial(fw.Dense, 50, 0.2, 1.1, 0.3, 0.9)
    layers = [fw.Residual("gelu", fw.Dense(20, 0.1, 0.8), gamma=0.8), "tanh", wide()]
    layers += [
        fw.Residual("swish", wide(), gamma=-0.6),
        fw.Residual("tanh", wide(), gamma=0.9),
        "gelu",
        wide(),
    ]
    net, X = fw.Network(3, fw.Dense(20, 0.1, 1.0), *layers), inputs(1, 3)
    fast = fw.solve(net, X)
    monkeypatch.setattr(solving.one_input_with_skips, "applies", lambda net: False)
    slow = fw.solve(net, X, method=fw.Tensors(tolerance=FINE))
    for layer in range(1, 7):
        assert_equal_statistics(fast.layer(layer), slow.layer(layer), 1e-9)


def test_fluctuations_of_deep_critical_residual_networks_grow_by_a_smaller_amount_in_each_layer():
    """Odd activations, C_W = 1 - gamma^2: ratios approach multiples of (1 - gamma^4) l; 3 % at l = 2000."""
    gamma, depth = 0.8, 2000
    rates = [dict(lambda_b=1 / l, lambda_W=1.0) for l in range(1, depth + 1)]
    blocks = [fw.Residual("tanh", fw.Dense(9, 0.0, 1 - gamma**2, **one), gamma=gamma) for one in rates[1:]]
    output = fw.solve(
        fw.Network(1, fw.Dense(9, 0.0, 1.0, **rates[0]), *blocks), [[1.0]], layers=[depth]
    ).output
    K, Theta, unit = output.K.item(), output.Theta.item(), (1 - gamma**4) * depth
    ratios = {
        "V": (K**2, 2 / 3),
        "G1": (K, -1 / 3),
        "B": (Theta**2, 1 / 3),
        "F": (K * Theta, 1 / 4),
        "P": (Theta**2, -1 / 12),
    }
    for name, (scale, limit) in ratios.items():
        assert getattr(output, name).item() / scale / unit == pytest.approx(limit, rel=0.03), name
    assert output.U.item() / Theta**3 == pytest.approx((1 + gamma**4) / (1 + gamma**2), rel=0.03)
