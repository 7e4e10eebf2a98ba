"""One input: scalars to any depth, against the block recursion and against asymptotics of deep networks.

Criteria: two derivations 1e-9, closed forms 1e-12, asymptotic ratios at depth 10^4 within 0.5 % of one and
their approach (a + b log l)/l from l = 10^3 on, to 5 % of the largest deviation times l.
"""

import functools

import numpy as np
import pytest
from helpers.problems import VARIED, inputs

import finitewidth as fw
from finitewidth.theory.one_input import NAMES, single_input

DERIVED, EXACT, ASYMPTOTIC, APPROACH = 1e-9, 1e-12, 5e-3, 5e-2
DEPTH = 10_000

# --- the block recursion -------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "gelu", "swish", "sin", "polynomial(0.2, 1, -0.3, 0.1)"])
def test_one_input_is_the_diagonal_of_many(activation):
    net, X = fw.MLP(activation=activation, **VARIED), inputs(2)
    alone, together = fw.solve(net, X[:1]), fw.solve(net, X, method=fw.Tensors(tolerance=1e-11))
    for index in range(1, 5):
        for name in NAMES:
            one, many = alone.layer(index).arrays[name], together.layer(index).arrays[name]
            assert one.shape == (1,) * many.ndim
            assert one.item() == pytest.approx(many.flat[0], rel=DERIVED, abs=DERIVED)


def test_a_repeated_input_is_one_input():
    net, X = fw.MLP(activation="tanh", **VARIED), inputs(1)
    alone, twice = fw.solve(net, X).output, fw.solve(net, np.repeat(X, 2, axis=0)).output
    for name in NAMES:
        np.testing.assert_array_equal(twice.arrays[name], alone.arrays[name].item())


def test_a_vanishing_input_of_an_odd_network_stays_at_zero():
    output = fw.solve(fw.MLP((4, 9, 9, 9), "tanh", C_W=1.5), np.zeros((1, 4))).output
    assert output.K.item() == output.V.item() == output.G1.item() == 0.0
    assert output.Theta.item() == pytest.approx(1 + 1.5 + 1.5**2, rel=EXACT)


def test_a_kernel_that_grows_with_depth_keeps_its_accuracy():
    net = fw.MLP((1, *[20] * 12), "swish", C_b=0.5, C_W=2.5)
    alone = fw.solve(net, [[1.0]], layers=[12]).output
    fine = single_input(net, 1.0, 1e-14)
    assert alone.K.item() > 10 * fine.layers["K"][0]
    for name in NAMES:
        assert alone.arrays[name].item() == pytest.approx(fine.layers[name][-1], rel=DERIVED)


def test_a_kernel_beyond_double_precision_is_refused():
    with pytest.raises(ValueError, match="beyond double precision.*lower C_W"):
        fw.solve(fw.MLP((1, *[2] * 1500), "linear", C_W=3.0), [[1.0]])


# --- depth 10^4 ----------------------------------------------------------------------------------------

C_B, C_LAMBDA = 1.0, 1.0  # lambda_b = c_b / l, lambda_W = c_W
THIRD = {"tanh": -2.0, "sin": -1.0}  # sigma_3 / sigma_1


@functools.cache
def ratios_to_asymptotics(activation):
    """Statistics over their limits at K* = 0 criticality, which tend to one (statistics section 8)."""
    l = np.arange(1, DEPTH + 1.0)
    a_1 = -THIRD[activation]
    net = fw.MLP((1, *[100] * DEPTH), activation, lambda_b=tuple(C_B / l), lambda_W=C_LAMBDA)
    layers = single_input(net, 1.0, 1e-12).layers
    K, Theta = layers["K"], layers["Theta"]
    w = C_LAMBDA / a_1
    total = C_B + w
    limits = {
        "K": 1 / (a_1 * l),
        "Theta": total * np.ones(DEPTH),
        "V": 2 / 3 * l * K**2,
        "G1": -l / 3 * K,
        "B": l / 3 * Theta**2,
        "F": l / 4 * K * Theta,
        "P": -l / 12 * Theta**2,
        "R": -l / 48 * (3 * C_B + 4 * w) / total * Theta**3 / K,
        "S": l / 12 * w / total * Theta**3 / K,
        "T": l / 32 * (C_B / total) ** 2 * Theta**3 / K,
        "U": 1 / (2 * l) * Theta**3 / K,
    }
    return {name: layers[name] / limit for name, limit in limits.items()}


STATISTICS = ["K", "Theta", "V", "G1", "B", "F", "P", "R", "S", "T", "U"]


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("activation", THIRD)
def test_deep_odd_networks_reach_their_asymptotics(activation, name):
    assert abs(ratios_to_asymptotics(activation)[name][-1] - 1) < ASYMPTOTIC


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("activation", THIRD)
def test_asymptotics_are_approached_as_log_depth_over_depth(activation, name):
    l = np.unique(np.geomspace(1000, DEPTH, 25).astype(int))
    deviation = (ratios_to_asymptotics(activation)[name][l - 1] - 1) * l
    terms = np.stack([np.ones(l.size), np.log(l)], axis=1)
    coefficients = np.linalg.lstsq(terms, deviation, rcond=None)[0]
    assert np.abs(deviation - terms @ coefficients).max() < APPROACH * np.abs(deviation).max()


# --- two straight lines --------------------------------------------------------------------------------


@pytest.mark.parametrize("slopes", [(1.0, 0.0), (1.0, 0.2), (1.0, 1.0), (1.5, -0.5)])
def test_vertex_grows_linearly_at_criticality(slopes):
    """V = (l - 1)(3 A_4 / A_2^2 - 1) K^2 (PDLT section 5.4)."""
    A_2, A_4 = (sum(s**p for s in slopes) / 2 for p in (2, 4))
    theory = fw.solve(
        fw.MLP((4, *[50] * 100), f"scale_invariant({slopes[0]}, {slopes[1]})", C_W=1 / A_2), inputs(1)
    )
    K = theory.layer(1).K.item()
    for l in (1, 2, 3, 50, 100):
        assert theory.layer(l).K.item() == pytest.approx(K, rel=EXACT)
        exact = (l - 1) * (3 * A_4 / A_2**2 - 1) * K**2
        assert theory.layer(l).V.item() == pytest.approx(exact, rel=EXACT, abs=EXACT)
