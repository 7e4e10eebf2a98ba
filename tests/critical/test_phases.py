"""The phase diagram: fixed points and phases against closed forms, iteration, and the critical point.

Criteria: interpolated averages 1e-7 (stated 1e-9 and worse only next to critical lines), closed forms 1e-12.
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import finitewidth as fw
from finitewidth.critical.phases import fixed_point
from finitewidth.gaussian.two_legs.leg_table import leg_table
from finitewidth.gaussian.two_legs.one_leg import leg_averages

INTERPOLATED, EXACT = 1e-7, 1e-12


@pytest.mark.parametrize("activation", ["tanh", "gelu", "hardtanh"])
def test_fixed_points_solve_their_equation_with_averages_done_again(activation):
    C_b, C_W = np.linspace(0.01, 0.5, 9), np.linspace(0.1, 3.1, 11)
    diagram = fw.critical.phase_diagram(activation, C_b, C_W)
    rows, columns = np.nonzero(np.isfinite(diagram.K_star))
    K = diagram.K_star[rows, columns]
    averages = leg_averages(diagram.activation, K)
    np.testing.assert_allclose(C_b[rows] + C_W[columns] * averages.square, K, rtol=INTERPOLATED)
    np.testing.assert_allclose(
        diagram.chi_perp[rows, columns], C_W[columns] * averages.slope, rtol=INTERPOLATED
    )
    np.testing.assert_allclose(
        diagram.chi_parallel[rows, columns], C_W[columns] * averages.growth, rtol=INTERPOLATED, atol=1e-9
    )


def test_relu_diverges_beyond_two_and_has_one_fixed_point_below():
    C_b, C_W = np.asarray([0.0, 0.3]), np.asarray([0.5, 1.5, 2.5])
    diagram = fw.critical.phase_diagram("relu", C_b, C_W)
    np.testing.assert_allclose(diagram.K_star[1, :2], 0.3 / (1 - C_W[:2] / 2), rtol=1e-9)
    np.testing.assert_allclose(diagram.chi_perp[:, :2], np.broadcast_to(C_W[:2] / 2, (2, 2)), rtol=EXACT)
    assert diagram.region.tolist() == [["ordered", "ordered", "diverging"]] * 2
    assert np.isinf(diagram.K_star[:, 2]).all() and (diagram.K_star[0, :2] == 0).all()


def test_tanh_is_ordered_below_one_and_chaotic_above_without_biases():
    C_W = np.asarray([0.5, 0.95, 1.0, 1.05, 2.0])
    diagram = fw.critical.phase_diagram("tanh", [0.0], C_W)
    assert diagram.region.tolist() == [["ordered", "ordered", "critical", "chaotic", "chaotic"]]
    assert (diagram.K_star[0, :3] == 0).all() and (diagram.K_star[0, 3:] > 0).all()
    np.testing.assert_allclose(diagram.correlation_length_perp[0, :2], -1 / np.log(C_W[:2]), rtol=EXACT)
    assert diagram.correlation_length_perp[0, 2] == math.inf
    assert (diagram.point.C_b, diagram.point.C_W) == (0.0, 1.0)


@pytest.mark.parametrize("activation", ["tanh", lambda z: z * jnp.exp(-z * z)])
def test_the_fixed_point_is_where_iteration_ends(activation):
    """Also for a map that falls at large K, which may jump over fixed points."""
    for C_b, C_W, start in ((0.2, 1.7, 1.0), (0.05, 1.1, 5.0)):
        diagram = fw.critical.phase_diagram(activation, [C_b], [C_W], start=start)
        K, table = np.asarray([start]), leg_table(diagram.activation)
        for _ in range(3000):
            K = C_b + C_W * table(K).square
        assert diagram.K_star.item() == pytest.approx(K[0], rel=1e-6)


def test_the_start_decides_between_two_fixed_points():
    """Raising C_b splits the half-stable point of gelu in two, above the stable fixed point that it had."""
    point = fw.criticality("gelu")
    low, high = (
        fw.critical.phase_diagram("gelu", [point.C_b + 1e-6], [point.C_W], start=s) for s in (1.0, 20.0)
    )
    assert low.fixed_points.item() == high.fixed_points.item() == 3
    assert point.other_fixed_point < low.K_star.item() < point.K_star < high.K_star.item()
    half_width = math.sqrt(2e-6 / -point.constants["second_derivative_of_kernel_map"])
    assert high.K_star.item() == pytest.approx(point.K_star + half_width, rel=0.01)
    assert low.chi_parallel.item() < 1 and high.chi_parallel.item() < 1


def test_one_point_is_the_diagram_of_one_point():
    diagram = fw.critical.phase_diagram("tanh", [0.1], [1.4], start=0.5)
    point = fixed_point(diagram.activation, 0.1, 1.4, 0.5)
    assert point.K == diagram.K_star.item()
    assert point.perpendicular == diagram.chi_perp.item()


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
def test_skips_have_the_fixed_points_of_larger_variances_without_them(activation):
    """K* at (C_b, C_W) is that of (C_b, C_W)/(1 - gamma^2) without a skip; chi = gamma^2 + C_W <...>."""
    C_b, C_W, gamma = np.asarray([0.02, 0.1]), np.linspace(0.2, 1.2, 5), 0.6
    residual = fw.critical.phase_diagram(activation, C_b, C_W, gamma=gamma)
    dense = fw.critical.phase_diagram(activation, C_b / 0.64, C_W / 0.64)
    np.testing.assert_allclose(residual.K_star, dense.K_star, rtol=INTERPOLATED)
    np.testing.assert_allclose(residual.chi_perp, 0.36 + 0.64 * dense.chi_perp, rtol=INTERPOLATED)
    np.testing.assert_allclose(residual.chi_parallel, 0.36 + 0.64 * dense.chi_parallel, rtol=INTERPOLATED)
    point = fw.criticality(activation)
    C_W, C_b = residual.critical_line
    assert (C_W.item(), C_b.item()) == pytest.approx((0.64 * point.C_W, 0.64 * point.C_b))


def test_gamma_takes_the_place_of_biases_as_an_axis():
    """relu without biases is critical at C_W = 2 (1 - gamma^2), ordered below and diverging above."""
    gamma, C_W = np.asarray([0.0, 0.6, 0.8, 1.0]), np.asarray([0.5, 0.72, 1.0, 1.9])
    diagram = fw.critical.phase_diagram("relu", 0.0, C_W, gamma=gamma)
    assert diagram.over_gamma and diagram.region.shape == (4, 4)
    excess = C_W - 2 * (1 - gamma[:, None] ** 2)
    expected = np.where(np.abs(excess) < 1e-9, "critical", np.where(excess < 0, "ordered", "diverging"))
    assert (diagram.region == expected).all()
    np.testing.assert_allclose(diagram.chi_perp[1, :3], 0.36 + C_W[:3] / 2, rtol=EXACT)
    np.testing.assert_allclose(diagram.critical_line[0], 2 * (1 - gamma**2), rtol=EXACT)
    tanh = fw.critical.phase_diagram("tanh", 0.0, [0.3, 0.5], gamma=[0.2, 0.8])
    assert tanh.region.tolist() == [["ordered", "ordered"], ["ordered", "chaotic"]]


def test_without_attenuation_every_kernel_grows():
    diagram = fw.critical.phase_diagram("tanh", 0.0, [0.0, 0.5], gamma=1.0, start=0.7)
    assert diagram.K_star.tolist() == [[0.7, math.inf]]
    assert diagram.region.tolist() == [["critical", "diverging"]]


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("tanh", [-0.1], [1.0]), "C_b must be finite and at least 0, got -0.1"),
        (("tanh", [0.1], [math.nan]), "C_W must be finite"),
        (("tanh", [0.1], []), "C_W must be one axis"),
        (("tanh", [[0.1]], [1.0]), "C_b must be one axis"),
        (("perceptron", [0.1], [1.0]), "is discontinuous"),
    ],
)
def test_bad_grids_are_refused(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        fw.critical.phase_diagram(*arguments)


def test_a_bad_start_is_refused():
    with pytest.raises(ValueError, match="start must be a finite variance above 0"):
        fw.critical.phase_diagram("tanh", [0.1], [1.0], start=0.0)


def test_biases_and_skips_cannot_both_be_axes():
    with pytest.raises(ValueError, match="C_b and gamma cannot both be axes, got 2 and 3"):
        fw.critical.phase_diagram("tanh", [0.0, 0.1], [1.0], gamma=[0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="gamma must be finite and at least 0"):
        fw.critical.phase_diagram("tanh", 0.0, [1.0], gamma=-0.5)
