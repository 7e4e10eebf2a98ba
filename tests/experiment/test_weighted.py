"""Weighted samples of the prior, and theory beside them."""

import numpy as np
import pytest
from helpers.problems import refused
from helpers.sampled_networks import extrapolated

import finitewidth as fw
from finitewidth.core.estimate import Estimate
from finitewidth.experiment import weighted

RANDOM = np.random.default_rng(7)
X, X_TEST = RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(1, 3))
Y = RANDOM.normal(size=(2, 2))
NOISE = 0.2


def pulls(estimate, expected):
    return (estimate.value - expected) / estimate.stderr


def test_posteriors_of_networks_are_those_of_theory():
    """One hidden layer of 24 neurons; at 20000 networks the neglected order 1/n^2 is below the errors."""
    net = fw.MLP((3, 24, 2), "tanh", C_b=0.1, C_W=1.4)
    sampled = fw.bayes.sample(net, X, Y, X_TEST, members=20_000, key=24, noise=NOISE)
    assert 10_000 < sampled.effective_members <= 20_000
    posterior = fw.bayes.posterior(net, X, Y, X_TEST, noise=NOISE, order=1)
    evidence = fw.bayes.evidence(net, X, Y, noise=NOISE, order=1, gradient=False)
    assert np.abs(pulls(sampled.mean, posterior.mean)).max() < 4
    assert np.abs(pulls(sampled.covariance, posterior.covariance)).max() < 4
    assert abs(pulls(sampled.log_evidence, evidence.value)) < 4
    leading = pulls(sampled.covariance, posterior.infinite_width.covariance)
    assert np.abs(leading).max() > 6  # infinite width is not enough


@pytest.mark.long
def test_third_and_fourth_cumulants_are_those_of_theory():
    """Their errors are so small that 1/n^2 shows: a polynomial in 1/n through three widths takes it out."""
    widths, gaps = (12, 24, 48), {"third": [], "fourth": []}
    for n in widths:
        net = fw.MLP((3, n, 2), "tanh", C_b=0.1, C_W=1.4)
        sampled = fw.bayes.sample(net, X, Y, X_TEST, members=8_000, key=n, noise=NOISE)
        posterior = fw.bayes.posterior(net, X, Y, X_TEST, noise=NOISE, order=1, cumulants=True)
        variance = posterior.infinite_width.variance
        for name, estimate, expected in (
            ("third", sampled.third_cumulant, posterior.skewness * variance**1.5),
            ("fourth", sampled.fourth_cumulant, posterior.excess_kurtosis * variance**2),
        ):
            gaps[name].append(Estimate(n * (estimate.value - expected), n * estimate.stderr))
        assert np.abs(pulls(sampled.third_cumulant, 0.0)).max() > 6  # the posterior is not Gaussian
    for left in gaps.values():
        assert np.abs(pulls(extrapolated(widths, left), 0.0)).max() < 4


@pytest.mark.long
def test_neurons_and_weights_are_drawn_from_one_prior(monkeypatch):
    net = fw.MLP((3, 12, 12, 2), "relu", C_b=0.1, C_W=1.8)
    options = {"members": 8000, "noise": NOISE, "layers": True}
    by_neurons = fw.bayes.sample(net, X, Y, X_TEST, key=1, **options)
    monkeypatch.setattr(weighted, "_root", lambda net, X: None)
    by_weights = fw.bayes.sample(net, X, Y, X_TEST, key=2, **options)
    for name in ("mean", "covariance", "log_evidence"):
        one, two = getattr(by_neurons, name), getattr(by_weights, name)
        assert np.abs((one.value - two.value) / np.hypot(one.stderr, two.stderr)).max() < 4
    for name in ("kernel", "second_moment", "mean"):
        one, two = (getattr(sampled.layers[2], name) for sampled in (by_neurons, by_weights))
        assert np.abs((one.value - two.value) / np.hypot(one.stderr, two.stderr)).max() < 4


def test_one_network_of_infinite_width_is_the_posterior():
    """Networks as wide as 4000 hardly differ: sixty of them agree with the posterior to their own spread."""
    net = fw.MLP((3, 4000, 1), "gelu", C_b=0.1, C_W=1.5)
    sampled = fw.bayes.sample(net, X, Y[:, :1], members=60, key=3, noise=NOISE)
    posterior = fw.bayes.posterior(net, X, Y[:, :1], noise=NOISE, order=0)
    np.testing.assert_allclose(sampled.mean.value, posterior.mean, atol=0.02)
    np.testing.assert_allclose(sampled.covariance.value, posterior.covariance, atol=0.02)


def test_residual_networks_have_the_posteriors_of_theory():
    """Weights are drawn here, and not neurons; at width 64 what is left is below the errors."""
    body = fw.Residual("tanh", fw.Dense(64, C_b=0.1, C_W=0.8), gamma=0.8)
    net = fw.Network(3, fw.Dense(64, C_b=0.1), body, "tanh", fw.Dense(2, C_b=0.1))
    posterior = fw.bayes.posterior(net, X, Y, X_TEST, noise=NOISE, order=1)
    sampled = fw.bayes.sample(net, X, Y, X_TEST, members=2_000, key=0, noise=NOISE)
    assert np.abs(pulls(sampled.mean, posterior.mean)).max() < 4
    assert np.abs(pulls(sampled.covariance, posterior.covariance)).max() < 4


def test_close_inputs_are_sampled_and_close_training_inputs_refused():
    """Kernels of forty inputs on a line are indefinite by rounding."""
    net, line = fw.MLP((1, 96, 96, 1), "tanh", C_b=0.3, C_W=1.5), np.linspace(-2, 2, 40)[:, None]
    options = {"members": 400, "key": 0}
    sampled = fw.bayes.sample(net, line[::20], np.sin(line[::20]), line, **options)
    posterior = fw.bayes.posterior(net, line[::20], np.sin(line[::20]), line, order=0)
    assert np.abs(sampled.mean.value - posterior.mean).max() < 0.05
    with refused("training inputs are so close .*pass noise= above zero"):
        fw.bayes.sample(net.replace(widths=(1, 48, 48, 1)), line, np.sin(line), **options)


def test_bad_input_is_named():
    net = fw.MLP((3, 4, 2), "tanh")
    with refused("noise must be zero or a positive number, got -1"):
        fw.bayes.sample(net, X, Y, members=10, key=0, noise=-1)
    with refused("noise=0 asks networks with 1 features to fit 2 samples exactly"):
        fw.bayes.sample(fw.MLP((3, 1, 2), "tanh"), X, Y, members=10, key=0)
    with refused("the last layer must be dense, got a Residual"):
        ending = fw.Network(3, fw.Dense(2), fw.Residual(fw.Dense(2), gamma=1.0))
        fw.bayes.sample(ending, X, Y, members=10, key=0)


def test_networks_are_ranked_by_evidence():
    """Data drawn from a prior of four layers prefer it to a shallow one with other variances."""
    deep = fw.MLP((3, 300, 300, 300, 1), "tanh", C_b=0.1, C_W=2.5)
    shallow = fw.MLP((3, 300, 1), "tanh", C_b=0.0, C_W=0.3)
    inputs = RANDOM.normal(size=(6, 3))
    targets = np.linalg.cholesky(fw.kernels(deep, inputs).K) @ RANDOM.normal(size=(6, 1))
    ranking = fw.bayes.rank({"deep": deep, "shallow": shallow}, inputs, targets, noise=0.01)
    assert ranking.best.name == "deep" and "log evidence" in str(ranking)
    expected = fw.bayes.evidence(deep, inputs, targets, noise=0.01, order=1, gradient=False).value
    assert ranking["deep"].evidence.value == expected
    far = fw.bayes.rank([deep], inputs, 30 * targets, noise=0.01)
    assert far.best is None and far.rows[0].evidence.verdict == "meaningless"
    with refused("networks must be one network or more with different names"):
        fw.bayes.rank([deep, deep], inputs, targets)
