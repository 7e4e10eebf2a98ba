"""Sums over steps and integrals over time, against sums that are written out."""

import itertools

import numpy as np
import pytest

from finitewidth.network.algorithms.clock import Clock

RATES = np.array([0.0, 1e-9, 0.7, 3.0])  # eigenvalues


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_what_a_mode_has_absorbed_is_a_sum_over_steps(steps):
    clock = Clock(0.3, steps)
    left = [(1 - 0.3 * RATES) ** s for s in range(steps + 1)]
    np.testing.assert_allclose(clock.decayed(RATES), left[-1], rtol=1e-14)
    np.testing.assert_allclose(clock.absorbed(RATES), 0.3 * np.sum(left[:-1], axis=0) + 0 * RATES, rtol=1e-12)


def test_flow_is_descent_in_many_small_steps():
    flow, steps = Clock(0.0, 2.0), Clock(1e-5, 200_000)
    np.testing.assert_allclose(steps.decayed(RATES), flow.decayed(RATES), rtol=2e-4)
    np.testing.assert_allclose(steps.absorbed(RATES), flow.absorbed(RATES), rtol=2e-4)
    np.testing.assert_allclose(flow.absorbed(RATES[2:]), (1 - np.exp(-2 * RATES[2:])) / RATES[2:], rtol=1e-12)
    assert flow.until(1.0).decayed(RATES)[2] == np.exp(-0.7)


def test_ordered_steps_are_a_double_sum():
    clock, one, two = Clock(0.3, 6), np.array([0.7]), np.array([3.0])
    u, v = clock.rate(one), clock.rate(two)
    assert (u.item(), v.item()) == pytest.approx((1 - 0.21, 1 - 0.9))
    pairs = itertools.combinations(range(6), 2)  # s_2 < s_1
    exact = 0.3**2 * sum(u**s_1 * v**s_2 for s_2, s_1 in pairs)
    assert clock.ordered(u, v) == pytest.approx(exact, rel=1e-12)
