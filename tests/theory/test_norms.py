"""Layer norm and RMS norm at order 1/n: closed forms, refusals, and real networks."""

import functools
import math

import numpy as np
import pytest
from helpers.close import assert_close
from helpers.problems import refused
from helpers.widths import pulls_at_infinity

import finitewidth as fw

X = np.random.default_rng(3).standard_normal((2, 3)) * np.array([[1.5], [0.7]])
NORMS = {"layer norm": fw.LayerNorm, "rms norm": fw.RMSNorm}
FLUCTUATIONS = ("V", "D", "A", "F", "B")


def dense(width: int, **changes) -> fw.Dense:
    return fw.Dense(width, **{"C_b": 0.1, "C_W": 1.7, "lambda_b": 0.3, "lambda_W": 0.8, **changes})


# --- closed forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_deep_linear_networks_with_norms_have_the_law_of_a_correlation_coefficient(norm):
    """Fisher: V_1212 = (l-1)(1-rho^2)^2 and G1_12 = -(l-1) rho (1-rho^2)/2; V_11.. and F_1111 vanish."""
    end = fw.Dense(4, lambda_b=0.0)
    net = fw.Network(3, *[fw.Dense(6, lambda_b=0.0), norm(epsilon=0.0)] * 4, end)
    rho = X[0] @ X[1] / math.sqrt((X[0] @ X[0]) * (X[1] @ X[1]))
    theory = fw.solve(net, X)
    for index in range(2, 6):
        layer = theory.layer(index)
        assert_close(layer.V[0, 1, 0, 1], (index - 1) * (1 - rho**2) ** 2, tolerance=1e-12)
        assert_close(layer.G1[0, 1], -(index - 1) * rho * (1 - rho**2) / 2, tolerance=1e-12)
        assert max(np.abs(layer.V[0, 0]).max(), np.abs(layer.G1.diagonal()).max()) < 1e-12
        assert abs(layer.F[0, 0, 0, 0]) < 1e-12


@pytest.mark.parametrize("norm, V", [(fw.LayerNorm, 3 / 4 - 2 / math.pi), (fw.RMSNorm, 3 / 4)])
def test_relu_behind_a_norm_forgets_what_fluctuated_below(norm, V):
    """One input: V = C_W^2 (3/4 - 2/pi), without the mean 3/4, in every layer; without a norm it grows."""
    hidden = fw.Dense(8, C_W=2.0)
    net = fw.Network(3, *[hidden, norm(epsilon=0.0), "relu"] * 3, fw.Dense(2, C_W=2.0))
    theory = fw.solve(net, X[:1])
    assert_close([theory.layer(index).V.item() for index in (2, 3, 4)], 4 * V, tolerance=1e-8)
    plain = fw.solve(fw.MLP((3, 8, 8, 8, 2), "relu", C_W=2.0), X[:1]).output
    assert_close(plain.V.item() / plain.K.item() ** 2, 15.0, tolerance=1e-10)


def test_square_behind_a_norm_loses_six_and_four():
    """sigma = u^2: <u^4> is 3 - 6/n, whatever K was; the NTK feels -4 C Theta/K."""
    square = fw.Activation(lambda z: z * z, name="square")
    net = fw.Network(3, dense(7), fw.LayerNorm(epsilon=0.0), square, fw.Dense(2, C_W=0.6, lambda_W=0.0))
    theory = fw.solve(net, X)
    below, layer = theory.layer(1), theory.output
    assert_close(layer.G1.diagonal(), [-6 * 0.6] * 2, tolerance=1e-10)
    assert_close(layer.H1.diagonal(), -4 * 0.6 * (below.Theta / below.K).diagonal(), tolerance=1e-10)


def test_kernels_at_order_one_are_those_of_infinite_width():
    """With gains and offsets that learn, before and behind activations and weights."""
    for norm in (
        fw.LayerNorm(lambda_gain=0.4, lambda_offset=0.2),
        fw.RMSNorm(epsilon=0.1, lambda_gain=0.9),
    ):
        net = fw.Network(3, dense(5), norm, "tanh", dense(6), norm, dense(4), norm, "relu", dense(2))
        layer, wide = fw.solve(net, X, tensors=("V",)).output, fw.solve(net, X, order=0).output
        assert_close(layer.K, wide.K, tolerance=1e-12)
        assert_close(layer.Theta, wide.Theta, tolerance=1e-12)


def test_a_gain_that_learns_counts_like_the_weights_of_two_straight_lines():
    """For relu u relu'(u) is relu: a gain of rate g is C_W g added to lambda_W of the next weights."""
    with_gain = fw.Network(3, dense(5), fw.RMSNorm(lambda_gain=0.5), "relu", dense(2))
    instead = fw.Network(3, dense(5), fw.RMSNorm(), "relu", dense(2, lambda_W=0.8 + 1.7 * 0.5))
    learned, other = (fw.solve(net, X).output for net in (with_gain, instead))
    for name in ("Theta", "H1", "V", "D", "A"):
        assert_close(getattr(learned, name), getattr(other, name), tolerance=1e-12)
    assert learned.F[0, 0, 0, 0] > other.F[0, 0, 0, 0] and learned.B[0, 0, 0, 0] > other.B[0, 0, 0, 0]


def test_an_offset_that_learns_adds_tangents_that_no_norm_removes():
    """relu, one input: B grows with the square of Theta, F by C_W^2 times the rate times <s'^2 s^2> = 1/2."""
    norm = functools.partial(fw.LayerNorm, epsilon=0.0)
    plain, learned = (
        fw.solve(fw.Network(3, dense(5), norm(lambda_offset=rate), "relu", dense(2)), X[:1])
        for rate in (0.0, 0.3)
    )
    below = plain.layer(1).Theta.item() / plain.layer(1).K.item()
    share = 1 + 0.3 / below
    assert_close(learned.output.B / plain.output.B, share**2)
    assert_close(learned.output.F - plain.output.F, 1.7**2 * 0.3 / 2)


def test_results_stand_in_the_records_of_every_network():
    net = fw.Network(3, dense(30), fw.LayerNorm(), "gelu", dense(20), fw.LayerNorm(), "gelu", dense(2))
    theory = fw.solve(net, X)
    assert theory.output.n == 20 and theory.layer(2).n == 30
    assert_close(theory.output.G, theory.output.K + theory.output.G1 / 20, tolerance=1e-15)
    assert theory.output.uncertainty("V").shape == (2,) * 4
    assert {row.name for row in theory.report().rows} == {"G1", "H1", *FLUCTUATIONS}
    with refused("P is known of dense layers, .* a network with LayerNorm has V, D, A, F and B"):
        theory.output.P  # noqa: B018


# --- refused by name ----------------------------------------------------------------------------------------

REFUSED = [
    ((dense(4), fw.Dropout(0.2), dense(2)), "fw.Dropout"),
    (
        (dense(4), fw.LayerNorm(lambda_gain=1.0), fw.LayerNorm(), dense(2)),
        "fw.LayerNorm behind a norm",
    ),
    (
        (dense(4), fw.LayerNorm(lambda_gain=1.0), fw.Residual(dense(4)), dense(2)),
        "fw.Residual behind a norm that learns",
    ),
    (
        (dense(4), fw.Residual(fw.LayerNorm(), "tanh", dense(4)), dense(2)),
        "fw.Residual whose body reads its stream through 'tanh'",
    ),
    (
        (dense(4), fw.Residual(fw.LayerNorm(lambda_gain=1.0), dense(4)), dense(2)),
        "fw.Residual whose body begins with a norm with a gain that learns",
    ),
    (
        (dense(4), fw.LayerNorm(), fw.Activation(lambda z: abs(z - 1), kinks=(1.0,), name="bent"), dense(2)),
        "D, A and H1 of fw.LayerNorm before activation 'bent', which has kinks",
    ),
]


@pytest.mark.parametrize("layers, named", REFUSED)
def test_what_order_one_does_not_know_is_refused_by_name(layers, named):
    with refused(f"^order 1/n does not know {named}.*; use order=0, infinite width, which knows every layer"):
        fw.solve(fw.Network(3, *layers), X)


# --- real networks ------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_statistics_of_real_networks_with_norms(norm, activation):
    """Widths 24 to 96, terms to 1/n^2, fixed beforehand: 7 statistics, no pull above 4."""

    def make(n):
        one = norm(epsilon=0.05, lambda_gain=0.4)
        return fw.Network(3, dense(n), one, activation, dense(n), one, activation, dense(2))

    found = pulls_at_infinity(make, X, (24, 36, 56, 96), 6000, ("G", "H", *FLUCTUATIONS))
    assert max(found.values()) < 4, found
