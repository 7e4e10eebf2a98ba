"""Powers of the width."""

import numpy as np
from helpers.problems import refused

import finitewidth as fw
from finitewidth.experiment.scaling import fall_with_width, power_of_width


def test_an_exact_power_is_found_and_errors_are_those_of_repeated_fits():
    """1000 fits to values with noise of 1, 2 and 4 %: the stated error is their spread, to 10 %."""
    widths = (16, 64, 256)
    exact = np.array([3 * n**-1.3 for n in widths])
    errors = exact * (0.01, 0.02, 0.04)
    fit = power_of_width(widths, [fw.Estimate(v, e) for v, e in zip(exact, errors, strict=True)])
    np.testing.assert_allclose(fit.value, 1.3, rtol=1e-12)
    noisy = exact + errors * np.random.default_rng(0).standard_normal((1000, 3))
    power = [
        power_of_width(widths, [fw.Estimate(v, e) for v, e in zip(row, errors, strict=True)]).value
        for row in noisy
    ]
    np.testing.assert_allclose(np.std(power), fit.stderr, rtol=0.1)


def test_what_has_no_power_is_refused():
    one = fw.Estimate(np.asarray(1.0), np.asarray(0.1))
    with refused("estimates must be one for each of two or more widths"):
        power_of_width((16,), [one])
    with refused("estimates must be positive with finite errors"):
        power_of_width((16, 64), [one, fw.Estimate(np.asarray(-1.0), np.asarray(0.1))])


def test_a_sum_of_powers_has_its_coefficients_and_their_errors():
    """Two values fix two coefficients; at another width the fit is their sum."""
    widths = (16, 64)
    exact = [fw.Estimate(np.asarray(2 / n - 5 / n**2), np.asarray(0.01 / n)) for n in widths]
    fit = fall_with_width(widths, exact, (1, 2))
    np.testing.assert_allclose(fit.coefficients, [2, -5], rtol=1e-10)
    solve = np.linalg.inv([[1 / n, 1 / n**2] for n in widths])
    covariance = solve @ np.diag([(0.01 / n) ** 2 for n in widths]) @ solve.T
    np.testing.assert_allclose(fit.errors, covariance, rtol=1e-10)
    np.testing.assert_allclose(fit.at(32).value, 2 / 32 - 5 / 32**2, rtol=1e-10)
