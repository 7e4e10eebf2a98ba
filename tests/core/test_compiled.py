"""Compiled loops: right to rounding, the same bits on any number of cores, with or without a cache."""

import math

import mpmath
import numba
import numpy as np
import pytest

import finitewidth as fw
from finitewidth.core import compiled as compiled_module
from finitewidth.core import cores
from finitewidth.core.compiled import compiled
from finitewidth.gaussian.two_legs import closed_averages, pair_loops
from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.network.layers.activation import as_activation
from finitewidth.theory.layers.blocks import Move, Recipe, make_blocks
from finitewidth.theory.layers.pair_map import PairMap
from finitewidth.theory.pairs.propagation import Propagation

ULP = np.finfo(float).eps


def test_the_arctangent_is_right_to_two_units_of_the_last_place():
    rng = np.random.default_rng(0)
    x = np.concatenate([[0.0, 0.0, 1.0, 1e-300, 1e300], 10 ** rng.uniform(-12, 12, 400)])
    y = np.concatenate(
        [[0.0, -2.0, 0.0, 1e-300, -1e300], rng.normal(size=400) * 10 ** rng.uniform(-9, 9, 400)]
    )
    with mpmath.workdps(40):
        for one, other in zip(y, x, strict=True):
            exact = mpmath.atan2(mpmath.mpf(one), mpmath.mpf(other))
            assert abs(pair_loops.arctangent(one, other) - exact) <= 2 * ULP * abs(exact)


def test_the_determinant_does_not_cancel():
    rng = np.random.default_rng(1)
    first, share = 10 ** rng.uniform(-5, 5, 200), 10 ** rng.uniform(-16, 0, 200)
    second = first * rng.uniform(0.5, 2, 200)
    cross = np.sqrt(first * second) * (1 - share)
    with mpmath.workdps(40):
        for v, w, c in zip(first, second, cross, strict=True):
            exact = max(mpmath.mpf(v) * mpmath.mpf(w) - mpmath.mpf(c) ** 2, 0)
            assert abs(pair_loops.determinant(v, w, c) - exact) <= 2 * ULP * exact
    assert pair_loops.determinant(0.3, 0.3, 0.3) == 0  # one input met with itself


def _exact(name: str, v, w, c):
    """<sigma sigma> and <sigma' sigma'> in extended precision, from other formulas than the loops have."""
    v, w, c = map(mpmath.mpf, (v, w, c))
    if name == "relu":
        angle = mpmath.acos(c / mpmath.sqrt(v * w))
        value = mpmath.sqrt(v * w) * (mpmath.sin(angle) + (mpmath.pi - angle) * mpmath.cos(angle))
        return value / (2 * mpmath.pi), (mpmath.pi - angle) / (2 * mpmath.pi)
    if name == "erf":
        value = mpmath.asin(2 * c / mpmath.sqrt((1 + 2 * v) * (1 + 2 * w)))
        return 2 / mpmath.pi * value, 4 / mpmath.pi / mpmath.sqrt((1 + 2 * v) * (1 + 2 * w) - 4 * c**2)
    return mpmath.mpf(1) / 4 + mpmath.asin(c / mpmath.sqrt(v * w)) / (2 * mpmath.pi), None


@pytest.mark.parametrize("name", ["relu", "erf", "perceptron"])
def test_closed_forms_are_right_to_rounding_also_for_correlations_next_to_one(name):
    rng = np.random.default_rng(2)
    v, w = 10 ** rng.uniform(-3, 3, (2, 300))
    correlation = np.where(np.arange(300) % 2, rng.uniform(-1, 1, 300), 1 - 10 ** rng.uniform(-15, 0, 300))
    c = correlation * np.sqrt(v * w)
    orders = ((0, 0),) if name == "perceptron" else ((0, 0), (1, 1))
    values = closed_averages.averages(as_activation(name), orders, v, w, c)
    with mpmath.workdps(40):
        for place in range(300):
            exact = _exact(name, v[place], w[place], c[place])
            scale = max(1.0, np.sqrt(v[place] * w[place])) if name == "relu" else 1.0
            for value, right in zip(values, exact, strict=False):
                assert abs(value[place] - right) <= 4 * ULP * scale


def test_a_block_of_pairs_is_its_pairs_one_by_one():
    """The same bits, whatever the shape of the block; so tiles may have any shape."""
    rng = np.random.default_rng(3)
    rows, columns = rng.uniform(0.5, 2, (3, 5)), rng.uniform(0.5, 2, (3, 40))
    places = np.array([[0, 1, 2], [1, 2, 0]])
    cross = rng.uniform(-0.4, 0.4, (2, 3, 4, 37))
    K, Theta = cross.copy(), np.ones(cross.shape)
    pair_loops.block(pair_loops.GELU, rows, columns, (1, 3), places, K, Theta, 0.0, 0.0, 0.0)
    first = np.broadcast_to(rows[None, :, 1:, None], cross.shape)
    second = np.broadcast_to(columns[places][:, :, None, 3:], cross.shape)
    alone = closed_averages.averages(as_activation("gelu"), ((0, 0), (1, 1)), first, second, cross)
    assert np.array_equal(K, alone[0]) and np.array_equal(Theta, alone[1])


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_kernels_have_the_same_bits_on_any_number_of_cores(activation, monkeypatch):
    X = np.random.default_rng(4).normal(size=(150, 6, 6, 2))
    net = fw.Network(
        (6, 6, 2), fw.Conv(8, 3), activation, fw.Conv(8, 3), activation, fw.Flatten(), fw.Dense(1)
    )
    results = []
    for count in (1, 2, 5):
        monkeypatch.setattr(cores, "available", lambda count=count: count)
        results.append(fw.kernels(net, X))
    for other in results[1:]:
        assert np.array_equal(results[0].K, other.K) and np.array_equal(results[0].Theta, other.Theta)


def test_loops_are_compiled_where_no_cache_can_be_written():
    space: dict = {}
    exec("def doubled(x):\n    return 2 * x", space)  # a function without a file has no place for a cache
    assert compiled(space["doubled"])(1.5) == 3.0


@pytest.mark.parametrize("name", ["relu", "erf", "gelu"])
def test_all_layers_in_one_pass_have_the_bits_of_layers_one_by_one(name):
    rng = np.random.default_rng(4)
    net = fw.MLP((6, 8, 8, 8, 1), name, C_b=0.1, C_W=1.7, lambda_b=0.2, lambda_W=0.6)
    X, other = rng.normal(size=(150, 6)), rng.normal(size=(40, 6))
    X[3], X[5], other[0] = X[1], 0.0, X[2]  # equal inputs, and one that vanishes
    for second in (None, other):
        whole = Propagation(net, X, second, ACCURACY, (4,))
        by_layers = Propagation(net, X, second, ACCURACY, (3, 4))
        assert whole.closed is not None and by_layers.closed is None
        for one, two in zip(whole.matrices()[0][4], by_layers.matrices()[0][4], strict=True):
            np.testing.assert_array_equal(one, two)


def test_a_kernel_that_overflows_is_refused_by_its_layer_in_one_pass_too():
    net = fw.MLP((2, 4, 4, 1), "relu", C_W=1e120)
    with pytest.raises(ValueError, match="the kernel of layer 3 exceeds"):
        fw.kernels(net, np.ones((3, 2)))


def test_tensors_move_by_the_maps_of_rows_and_columns():
    rng = np.random.default_rng(5)
    block, rows, columns = (
        rng.normal(size=(3, 3, 3, 3)),
        PairMap(*rng.normal(size=(3, 3, 3))),
        PairMap(None, *rng.normal(size=(2, 3, 3))),
    )
    by_rows = rows.of_rows(block).transpose(2, 3, 0, 1)
    exact = 0.5 * columns.of_rows(by_rows).transpose(2, 3, 0, 1)
    for mirrored in (False, True):
        total = np.empty_like(block)
        make_blocks(
            [total], [Recipe(moves=[Move([(block, rows, 0.5)], columns)], mirrored=mirrored)], np.eye(3)
        )
        mirror = exact.transpose(2, 3, 0, 1) if mirrored else 0.0
        np.testing.assert_allclose(total, exact + mirror, rtol=1e-12, atol=1e-14)


def test_four_leg_averages_have_the_same_bits_on_any_number_of_cores(monkeypatch):
    x = np.random.default_rng(6).normal(size=(9, 5))
    results = []
    for count in (1, 2, 5):
        monkeypatch.setattr(cores, "available", lambda count=count: count)
        results.append(
            fw.solve(fw.MLP((5, 8, 8, 1), "tanh"), x, method=fw.Tensors(tolerance=1e-4)).output.arrays
        )
    for other in results[1:]:
        assert all(np.array_equal(value, other[name]) for name, value in results[0].items())


def test_lanes_add_in_their_own_order():
    """Eight sums side by side, then halves to halves: on every machine."""
    x, y = np.random.default_rng(7).normal(size=(2, 16))

    @numba.njit
    def dot(x, y):
        lanes = compiled_module.spread(0.0)
        for j in range(0, x.size, 8):
            lanes = compiled_module.product_sum(compiled_module.load(x, j), compiled_module.load(y, j), lanes)
        return compiled_module.total(lanes)

    exact = [math.fsum([x[j] * y[j], x[j + 8] * y[j + 8]]) for j in range(8)]
    while len(exact) > 1:
        exact = [a + b for a, b in zip(exact[: len(exact) // 2], exact[len(exact) // 2 :], strict=True)]
    assert abs(dot(x, y) - exact[0]) <= 4 * ULP * np.abs(x * y).sum()
