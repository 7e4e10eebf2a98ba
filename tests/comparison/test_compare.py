"""Where theory and experiment meet: pulls, control variates, powers of the width."""

import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.comparison.compare import pulls_of
from finitewidth.experiment.scaling import power_of_width

PULL = 4.0
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 1))
NET = fw.MLP((3, 48, 48, 1), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
DESCENT = fw.GradientDescent(0.1, 6)


@pytest.fixture(scope="module")
def ensemble():
    control = fw.control_variate(NET, X[:3], Y, X[3:], DESCENT)
    return fw.train_ensemble(NET, X[:3], Y, X[3:], algorithm=DESCENT, members=2000, key=1, control=control)


@pytest.mark.long  # `test_prediction.py` trains networks too
def test_trained_networks_have_the_predicted_mean_and_covariance(ensemble):
    """2000 networks of width 48; the control variate leaves a tenth of the variance or less."""
    prediction = fw.predict(NET, X[:3], Y, X[3:], algorithm=DESCENT)
    comparison = fw.compare(prediction, ensemble)
    assert comparison.worst < PULL
    assert ensemble.controlled.variance_ratio.min() > 10
    expected = (prediction.mean - ensemble.controlled.mean.value) / ensemble.controlled.mean.stderr
    np.testing.assert_array_equal(comparison.pulls, expected)


def test_sampled_statistics_are_compared_by_name():
    """400 networks of width 48: corrections of order 1/n^2 are below a standard error."""
    sampled = fw.sample_statistics(NET, X[:2], members=400, key=0, tensors=("V", "A"))
    comparison = fw.compare(fw.solve(NET, X[:2]).output, sampled)
    assert set(comparison.pulls) == {"G", "H", "V", "A"}
    assert max(comparison.worst.values()) < PULL


def test_things_that_do_not_belong_together_are_refused(ensemble):
    layer = fw.solve(NET, X[:2], order=0).output
    with refused("compare takes fw.predict.*got Layer with Ensemble"):
        fw.compare(layer, ensemble)
    other = fw.predict(NET, X[:3], Y, X, order=0, algorithm=DESCENT)
    with refused(r"the prediction has \(4, 1\) test outputs but the ensemble \(1, 1\)"):
        fw.compare(other, ensemble)


def test_powers_of_the_width_are_fitted_with_their_error():
    widths = (16, 32, 64, 128)
    power = power_of_width(widths, [fw.Estimate(np.asarray(3 / n**2), np.asarray(1e-6)) for n in widths])
    assert power.value == pytest.approx(2, abs=1e-9)
    assert 0 < power.stderr < 0.01


def test_what_does_not_fluctuate_has_no_pull_where_it_agrees():
    estimate = fw.Estimate(np.array([1.0, 2.0]), np.array([0.0, 0.5]))
    np.testing.assert_array_equal(pulls_of(np.array([1.0, 3.0]), estimate), [0.0, 2.0])
