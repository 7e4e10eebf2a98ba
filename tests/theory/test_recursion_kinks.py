"""Activations with kinks: what exists, against closed forms and smooth limits, and what is refused.

Criteria: closed forms of one input 1e-12, derivatives with respect to the kernel 1e-7 of their largest,
entries with four-leg averages ten times their reported error, smooth limits z sigmoid(z/e) extrapolated
from e = 0.1 and 0.05 to zero 1 % of the largest entry (4 % for G1 and H1).
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import also_long
from jax.scipy.special import erf

import finitewidth as fw
from finitewidth.gaussian.two_legs.kernel_derivatives import _by_quadrature, kernel_derivatives
from finitewidth.network.layers.activation import as_activation
from finitewidth.theory.layers.activation import moments
from finitewidth.theory.tensors import KINKED_TENSORS, MATRICES, TENSORS

EXACT, DIFFERENTIATED, SMOOTH_LIMIT, SMOOTH_LIMIT_OF_MEANS = 1e-12, 1e-7, 1e-2, 4e-2

X = np.array([[1.0, 0.5], [-0.3, 1.2]])
NET = fw.MLP((2, 40, 30, 1), "relu", C_b=0.1, C_W=1.6, lambda_b=0.5, lambda_W=0.7)
K = np.array([[0.9, 0.35], [0.35, 0.6]])


@functools.cache
def solved(activation):
    return fw.solve(NET.replace(activation=activation), X)


# --- what exists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "hardtanh"])
def test_tensors_without_a_second_derivative_exist(activation):
    theory = solved(activation)
    assert theory.four_leg_error <= 1e-5
    for layer in theory.layers.values():
        assert set(layer.arrays) == {*MATRICES, *KINKED_TENSORS}
        assert all(np.isfinite(value).all() for value in layer.arrays.values())


@pytest.mark.parametrize("name", [name for name in TENSORS if name not in KINKED_TENSORS])
def test_tensors_with_delta_functions_are_refused(name):
    message = f"{name} does not exist: activation 'relu' has a kink.*delta functions.*use a smooth activation"
    with pytest.raises(ValueError, match=message):
        getattr(solved("relu").output, name)
    with pytest.raises(ValueError, match=message):
        fw.solve(NET, X, tensors=("V", name))


def test_parallel_inputs_are_refused_by_name():
    for close in (2 * X[0], -X[0], X[0] + 1e-12):
        with pytest.raises(ValueError, match="inputs 0 and 2 are parallel .*'relu'.*drop one"):
            fw.solve(NET.replace(C_b=0.0), np.stack([X[0], X[1], close]))
    with pytest.raises(ValueError, match="inputs . and 2 are parallel or zero"):
        fw.solve(NET.replace(C_b=0.0), np.stack([X[0], X[1], np.zeros(2)]))


def test_rectified_networks_scale_with_parallel_inputs():
    """Without biases z(2 x) = 2 z(x), and V, F and B need no derivative that diverges."""
    net = NET.replace(C_b=0.0, lambda_b=0.0)
    theory = fw.solve(net, np.stack([X[0], X[1], 2 * X[0]]), tensors=("V", "F", "B"))
    factor, same = np.array([1.0, 1.0, 2.0]), np.array([0, 1, 0])
    for name in ("V", "F", "B"):
        value = getattr(theory.output, name)
        scaled = value[np.ix_(*[same] * 4)] * np.einsum("a,b,c,d->abcd", *[factor] * 4)
        assert np.abs(value - scaled).max() <= 10 * theory.four_leg_error * np.abs(value).max()


def test_fewer_tensors_of_a_kinked_activation_can_be_labelled_and_stored(tmp_path):
    theory = fw.solve(NET, X, tensors=("V", "F", "B"))
    theory.save(tmp_path / "theory.zarr")
    again = fw.load(tmp_path / "theory.zarr")
    for name in ("K", "Theta", "V", "F", "B"):
        np.testing.assert_array_equal(getattr(again.output, name), getattr(theory.output, name))
    assert {row.name for row in theory.report().rows} >= {"V", "F", "B"}


def test_a_repeated_input_is_not_a_parallel_one():
    output = fw.solve(NET, X[[0, 1, 0]]).output
    for name, value in solved("relu").output.arrays.items():
        expected = value[np.ix_(*[[0, 1, 0]] * value.ndim)]
        np.testing.assert_allclose(output.arrays[name], expected, rtol=1e-4, atol=1e-4)


# --- one input -----------------------------------------------------------------------------------------


def scale_invariant_tensors(net, square, slopes):
    """V, D, A, F, B over n, layer by layer, with moments A_2 and A_4 of the two slopes."""
    A_2, A_4 = (sum(s**p for s in slopes) / 2 for p in (2, 4))
    K, Theta = net.C_b[0] + net.C_W[0] * square, net.lambda_b[0] + net.lambda_W[0] * square
    v = d = a = f = b = 0.0
    for l in range(1, net.depth):
        C, lW, n = net.C_W[l], net.lambda_W[l], net.widths[l]
        chi, x = C * A_2, lW * A_2
        ss, tied, slope = (3 * A_4 - A_2**2) * K**2, (A_4 - A_2**2) * K * C * Theta, C * Theta
        both = (A_4 - A_2**2) * slope**2
        a = (lW**2 * ss + 2 * lW * tied + both) / n + x**2 * v + 2 * chi * x * d + chi**2 * a
        d = C * (lW * ss + tied) / n + C * x * A_2 * v + chi**2 * d
        v = C**2 * ss / n + chi**2 * v
        f = C**2 * A_4 * K * Theta / n + chi**2 * f
        b = C**2 * A_4 * Theta**2 / n + chi**2 * b
        Theta = net.lambda_b[l] + lW * A_2 * K + chi * Theta
        K = net.C_b[l] + chi * K
    return {"K": K, "Theta": Theta, "V": v, "D": d, "A": a, "F": f, "B": b}


@pytest.mark.parametrize("slopes", [(1.0, 0.0), (1.0, 0.2)])
def test_one_input_follows_two_moments_of_the_slopes(slopes):
    net = fw.MLP((2, 40, 30, 20, 1), f"leaky_relu({slopes[1]})", C_b=0.1, C_W=1.6, lambda_b=0.5, lambda_W=0.7)
    output = fw.solve(net, X[:1]).output
    for name, exact in scale_invariant_tensors(net, float(np.mean(X[0] ** 2)), slopes).items():
        scale = 1 if name in MATRICES else output.n
        assert output.arrays[name].item() == pytest.approx(scale * exact, rel=EXACT)
    assert output.G1.item() == output.H1.item() == 0.0


def test_one_input_is_the_diagonal_of_two():
    alone, together = fw.solve(NET, X[:1]).output, solved("relu")
    for name, value in together.output.arrays.items():
        tolerance = 10 * together.four_leg_error * max(1.0, abs(value.flat[0]))
        assert abs(alone.arrays[name].item() - value.flat[0]) <= tolerance + 1e-12


def hardtanh_square(K):
    inside = erf(1 / jnp.sqrt(2 * K))
    return K * inside - jnp.sqrt(2 * K / jnp.pi) * jnp.exp(-1 / (2 * K)) + 1 - inside


def hardtanh_slope_square(K):
    return erf(1 / jnp.sqrt(2 * K))


@pytest.mark.parametrize("count", [1, 2])
def test_mean_corrections_of_hard_saturation_are_derivatives_of_its_kernel(count):
    theory = fw.solve(NET.replace(activation="hardtanh"), X[:count], tensors=("V", "D", "F"))
    below, above = theory.layer(2), theory.layer(3)
    V, D, F = (getattr(below, name).flat[0] for name in "VDF")
    square = jax.grad(jax.grad(hardtanh_square))(below.K[0, 0]) * V / 2
    slope = below.Theta[0, 0] * jax.grad(jax.grad(hardtanh_slope_square))(below.K[0, 0]) * V / 2
    slope += jax.grad(hardtanh_slope_square)(below.K[0, 0]) * (D + 2 * F)
    r = 30 / 40
    assert above.G1[0, 0] == pytest.approx(float(r * 1.6 * square), rel=DIFFERENTIATED)
    assert above.H1[0, 0] == pytest.approx(float(r * (0.7 * square + 1.6 * slope)), rel=DIFFERENTIATED)


# --- derivatives with respect to the kernel ------------------------------------------------------------


def at_kinks(polynomial):
    """Sum over the kinks of hardtanh on two legs of polynomial(y) times the density, y = K^-1 z."""
    total = 0.0
    for a, b in itertools.product((-1.0, 1.0), repeat=2):  # sigma'' = delta(z + 1) - delta(z - 1)
        z = np.array([a, b])
        y = np.linalg.solve(K, z)
        total += a * b * polynomial(*y) * math.exp(-z @ y / 2)
    return total / (2 * math.pi * math.sqrt(np.linalg.det(K)))


def test_delta_functions_of_hard_saturation_are_densities_at_its_kinks():
    sigma, slope, _ = kernel_derivatives(as_activation("hardtanh"), K)
    M = np.linalg.inv(K)
    curved = at_kinks(lambda y_1, y_2: 1.0)  # <s'' s''>
    assert sigma.both2[0, 1] == pytest.approx(curved, rel=DIFFERENTIATED)
    assert slope.both[0, 1] == pytest.approx(curved, rel=DIFFERENTIATED)
    twice = at_kinks(lambda y_1, y_2: y_1**2 - M[0, 0])  # <s'''' s''>
    assert 2 * slope.first_both[0, 1] == pytest.approx(twice, rel=DIFFERENTIATED)
    once_each = at_kinks(lambda y_1, y_2: y_1 * y_2 - M[0, 1])  # <s''' s'''>
    assert slope.both2[0, 1] == pytest.approx(once_each, rel=DIFFERENTIATED)


def test_scale_invariant_derivatives_are_those_of_any_kinked_activation():
    """The closed forms of two straight lines against polynomials in z under the integral."""
    relu = as_activation("relu")
    closed, numerical = kernel_derivatives(relu, K), _by_quadrature(relu, K)
    off = ~np.eye(2, dtype=bool)
    for exact, value, skipped in zip(closed[:2], numerical[:2], ({"both"}, set()), strict=True):
        for field in set(exact._fields) - skipped:
            one, other = getattr(exact, field)[off], getattr(value, field)[off]
            assert np.abs(one - other).max() <= DIFFERENTIATED * max(1.0, np.abs(one).max())


def test_first_derivatives_of_a_kernel_are_averages():
    averages = moments(as_activation("relu"), K, 1e-12)
    theta = math.acos(K[0, 1] / math.sqrt(K[0, 0] * K[1, 1]))
    assert averages.sigma.gradient.both[0, 1] == pytest.approx((math.pi - theta) / (2 * math.pi), rel=EXACT)
    curved = math.sqrt(np.linalg.det(K)) / (2 * math.pi * K[0, 0])  # <delta(z_1) relu(z_2)>
    assert 2 * averages.sigma.gradient.first[0, 1] == pytest.approx(curved, rel=EXACT)


# --- smooth limits -------------------------------------------------------------------------------------


@functools.cache
def smoothed(width, tolerance):
    net = NET.replace(activation=f"swish({1 / width})")
    return fw.solve(net, X, tensors=KINKED_TENSORS, method=fw.Tensors(tolerance=tolerance)).output.arrays


@pytest.mark.parametrize("name", ["V", "B", "H1", *also_long("D", "A", "F", "G1")])
def test_rectified_networks_are_limits_of_smooth_ones(name):
    wide, narrow = smoothed(0.1, 1e-6)[name], smoothed(0.05, 1e-5)[name]
    exact = solved("relu").output.arrays[name]
    tolerance = SMOOTH_LIMIT_OF_MEANS if name in MATRICES else SMOOTH_LIMIT
    assert np.abs(2 * narrow - wide - exact).max() <= tolerance * np.abs(exact).max()
    assert np.abs(narrow - exact).max() < np.abs(wide - exact).max()
