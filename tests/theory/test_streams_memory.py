"""The memory of residual networks as a series in lines, carried from layer to layer.

Criteria: the exact sum over pairs of layers within the reported truncation error, streams that are read
linearly 1e-9, one input against Hermite coefficients within the reported error.
"""

import functools

import numpy as np
import pytest
from helpers.problems import inputs

import finitewidth as fw
from finitewidth.gaussian.four_legs.two_layers import four_legs_of_two_layers
from finitewidth.gaussian.two_legs.averages import relative_two_legs
from finitewidth.gaussian.wick import Axes, of_degree, projections, transported
from finitewidth.network.layers.activation import as_activation
from finitewidth.theory.tensors import MATRICES, TENSORS

X = np.concatenate([inputs(2, 3), np.zeros((1, 3))])
NAMES = MATRICES + TENSORS


def dense(n, C_W=0.9):
    return fw.Dense(n, 0.1, C_W, 0.5, 0.7)


def network():
    """Streams of two and three layers, one with a body of its own width, a dense layer between them."""
    first = fw.Residual("gelu", dense(20), gamma=0.8)
    second = fw.Residual("tanh", dense(30), "gelu", dense(20), gamma=-0.7)
    return fw.Network(3, dense(20), first, second, "swish", dense(12), fw.Residual("gelu", dense(12)))


@functools.cache
def solved(memory):
    return fw.solve(network(), X, method=fw.Tensors(remember=memory))


def distance(one, other, name):
    one, other = getattr(one, name), getattr(other, name)
    return np.abs(one - other).max() / max(np.abs(other).max(), 1e-300)


def test_an_average_of_two_layers_is_a_sum_over_lines():
    """Ten lines leave less than 1e-4 of gelu with correlations up to 0.6."""
    gelu, K = as_activation("gelu"), 0.1 + X @ X.T / 3
    joint = np.block([[K, 0.6 * K], [0.6 * K, K + 0.2]])
    orders = (2, 1)
    exact = four_legs_of_two_layers((gelu, gelu), joint, [(*orders, *orders)])[(*orders, *orders)].value
    lower, upper = Axes.of(K), Axes.of(K + 0.2)
    known = [relative_two_legs(gelu, axes.K, (orders,))[0] for axes in (lower, upper)]
    below, above = (projections(gelu, a, k, (), 10)[0] for a, k in zip((lower, upper), known, strict=True))
    total, R, skip = 0.0, lower.between_pairs(), upper.behind_a_skip(0.6, lower)
    for m in range(11):
        part = np.einsum("nqcdab,abq->abncd", transported(R, m), below[orders][..., of_degree(m)])
        part = np.einsum("nqcd,abqcd->abncd", transported(skip, m), part)
        total = total + np.einsum("abncd,cdn->abcd", part, above[orders][..., of_degree(m)])
    np.testing.assert_allclose(total, exact, atol=1e-4 * np.abs(exact).max())


def test_the_reported_error_covers_what_is_left_out_and_falls_with_the_number_of_lines():
    exact, errors = solved(True), []
    for lines in (4, 8):
        theory = solved(lines)
        worst = max(distance(theory.layer(l), exact.layer(l), name) for l in range(2, 7) for name in NAMES)
        assert 1e-5 < worst < theory.memory_error
        errors.append(theory.memory_error)
    assert errors[1] < errors[0] / 5
    assert exact.memory_error == 0.0


def test_layers_without_a_past_are_exact():
    """The first residual layer remembers nothing yet, and bare pairs have two lines."""
    for name in NAMES:
        np.testing.assert_allclose(
            getattr(solved(4).layer(2), name), getattr(solved(True).layer(2), name), atol=1e-9
        )


def test_two_lines_are_exact_where_the_stream_is_read_linearly():
    block = functools.partial(fw.Residual, dense(10), "gelu", dense(10), gamma=0.7)
    net = fw.Network(3, dense(10), block(), block(), "gelu", dense(4))
    exact, local = (fw.solve(net, X[:2], method=fw.Tensors(remember=memory)).output for memory in (True, 2))
    for name in NAMES:
        assert distance(local, exact, name) < 1e-7  # four-leg averages have 1e-8


def deep(depth, activation):
    body = fw.Dense(64, 0.05, 0.3, 0.5, 0.7)
    blocks = [fw.Residual(activation, body, gamma=0.9) for _ in range(depth - 2)]
    return fw.Network(3, dense(64), *blocks, activation, dense(2))


@pytest.mark.parametrize(
    "depth, activation",
    [
        (12, "gelu"),
        pytest.param(50, "gelu", marks=pytest.mark.long),
        pytest.param(50, "tanh", marks=pytest.mark.long),
    ],
)
def test_deep_streams_of_several_inputs_agree_with_each_input_alone(depth, activation):
    """Each input alone is solved by other code, to any number of lines."""
    together = inputs(2 if depth < 50 else 4, 3)
    theory = fw.solve(deep(depth, activation), together, layers=(depth,), method=fw.Tensors(remember=8))
    assert 0 < theory.memory_error < 0.1
    for place, x in enumerate(together):
        alone = fw.solve(deep(depth, activation), x[None], layers=(depth,)).output
        for name in TENSORS:
            one = getattr(theory.output, name)
            difference = abs(one[(place,) * 4] - getattr(alone, name).item())
            assert difference < theory.memory_error * np.abs(one).max()


def test_the_error_is_saved_with_the_theory(tmp_path):
    for memory in (4, False):
        theory = fw.solve(deep(3, "gelu"), X[:2], method=fw.Tensors(remember=memory))
        theory.save(tmp_path / f"{memory}.zarr")
        assert fw.load(tmp_path / f"{memory}.zarr").memory_error == theory.memory_error
    assert theory.memory_error is None  # pairs alone: nobody knows


@pytest.mark.parametrize("memory", [0, 1, 21])
def test_a_number_of_lines_is_refused_that_is_none(memory):
    with pytest.raises(
        ValueError, match="remember must be True, False or a number of lines from 2 to 20, got"
    ):
        fw.solve(network(), X, method=fw.Tensors(remember=memory))


def test_skips_within_skips_are_refused():
    inner = fw.Residual("gelu", dense(5))
    net = fw.Network(3, dense(5), fw.Residual(inner, "gelu", dense(5)), "gelu", dense(2))
    with pytest.raises(
        ValueError, match="remember=4 does not know skip connections within another; use remember=True"
    ):
        fw.solve(net, X, method=fw.Tensors(remember=4))
    assert fw.solve(net, X[:1]).output.V.item() > 0
