"""What networks that learn late leave behind order 1/n, against closed forms and real numbers."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma

import finitewidth as fw
from finitewidth.network.algorithms.clock import Clock
from finitewidth.training.first_order.mean_terms import CUBIC, LINEAR
from finitewidth.training.neglected.along_training import DDNTKS, LEARNED, stops
from finitewidth.training.neglected.laggards import leftover

L, SPREAD = np.array([0.3, 1.0, 2.5]), np.array([0.02, 0.05, 0.2])


def test_gradient_flow_leaves_the_gamma_average_minus_its_first_order():
    """E exp(-l T x) = (1 + s^2 l T)^(-1/s^2) for x of mean 1 and variance s^2."""
    tau = 2.0 * L
    left = leftover(Clock(0.0, 2.0), L, SPREAD)
    average = [(1 + SPREAD * k * tau) ** (-1 / SPREAD) for k in (1, 2)]
    first = np.exp(-tau) * (1 + SPREAD * tau**2 / 2)
    np.testing.assert_allclose(left.mean, abs(average[0] - first), rtol=1e-5)
    square = np.exp(-2 * tau) * (1 + 2 * SPREAD * tau**2)
    np.testing.assert_allclose(left.kernel, abs(average[1] - square), rtol=1e-5)
    varied = average[1] - average[0] ** 2 - SPREAD * tau**2 * np.exp(-2 * tau)
    np.testing.assert_allclose(left.targets, abs(varied), rtol=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_descent_leaves_the_integral_over_networks_minus_its_first_order(steps):
    eta = 0.25
    left = leftover(Clock(eta, steps), L, SPREAD)
    for power, ours in ((steps, left.mean), (2 * steps, left.kernel)):
        average = np.array([_over_networks(eta * l, s2, power) for l, s2 in zip(L, SPREAD, strict=True)])
        u, x = 1 - eta * L, eta * L
        first = u**power + SPREAD * power * (power - 1) * x**2 * u ** (power - 2) / 2
        np.testing.assert_allclose(ours, abs(average - first), rtol=1e-3, atol=1e-5)


def _over_networks(x: float, s2: float, power: int) -> float:
    """The average of (1 - x g)^power over g; networks beyond the edge of convergence stay on it."""
    density = gamma(1 / s2, scale=s2)
    inside = quad(lambda g: density.pdf(g) * (1 - x * g) ** power, 0, 2 / x)[0]
    return inside + (-1) ** power * density.sf(2 / x)


def test_one_step_leaves_nothing_in_the_mean_since_it_is_linear_in_the_ntk():
    assert leftover(Clock(0.2, 1), L, SPREAD).mean.max() < 1e-5


def test_the_end_of_training_leaves_nothing():
    for part in leftover(Clock(0.0, np.inf), L, SPREAD):
        assert not part.any()


def test_what_is_left_is_of_order_one_over_n_squared():
    small, smaller = (leftover(Clock(0.0, 2.0), L, scale * np.ones(3)).mean for scale in (1e-3, 1e-4))
    np.testing.assert_allclose(small, 100 * smaller, rtol=0.02)


def test_contributions_of_learning_are_those_of_the_mean():
    assert set(DDNTKS) == set(CUBIC) and set(LEARNED) <= set(CUBIC) | set(LINEAR)


@pytest.mark.parametrize("algorithm", [fw.GradientFlow(4.0), fw.GradientDescent(0.3, 20), fw.GradientFlow()])
def test_times_on_the_way_lie_before_the_end_and_rise(algorithm):
    ends = [stop.end for stop in stops(algorithm, L)]
    assert ends == sorted(set(ends)) and 1 < len(ends) <= 12 and ends[-1] < algorithm.end
