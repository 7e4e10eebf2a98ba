"""Bayesian inference and ridges, against definitions, finite differences and retraining."""

import numpy as np
import pytest
from helpers.problems import refused
from scipy.stats import multivariate_normal

import finitewidth as fw

RANDOM = np.random.default_rng(8)
X, Y = RANDOM.normal(size=(8, 3)), RANDOM.normal(size=(8, 2))
NETWORKS = {
    "tanh": fw.MLP((3, 8, 8, 2), "tanh", C_b=(0.1, 0.2, 0.3), C_W=(1.3, 1.0, 0.8)),
    "relu": fw.MLP((3, 8, 8, 2), "relu", C_b=0.05, C_W=2.0),
    "gelu": fw.MLP((3, 8, 2), "gelu", C_b=0.1, C_W=1.5),
    "one layer": fw.MLP((3, 2), "linear", C_b=0.2, C_W=1.5),
}


@pytest.fixture(params=NETWORKS.values(), ids=NETWORKS.keys())
def net(request):
    return request.param


def test_evidence_is_the_density_of_the_data(net):
    K = fw.kernels(net, X).K + 0.2 * np.eye(8)
    expected = sum(multivariate_normal(cov=K).logpdf(Y[:, i]) for i in range(2))
    np.testing.assert_allclose(fw.bayes.evidence(net, X, Y, noise=0.2, order=0).value, expected, rtol=1e-10)


def test_gradient_of_the_evidence_is_that_of_finite_differences(net):
    """Central differences of size h = 1e-4 err by about 1e-8."""
    log_evidence, h = fw.bayes.evidence(net, X, Y, noise=0.2, order=0), 1e-4
    for name in ("C_b", "C_W"):
        for layer in range(net.depth):
            values = []
            for sign in (1, -1):
                changed = list(getattr(net, name))
                changed[layer] += sign * h
                values.append(
                    fw.bayes.evidence(net.replace(**{name: changed}), X, Y, noise=0.2, order=0).value
                )
            slope = (values[0] - values[1]) / (2 * h)
            np.testing.assert_allclose(log_evidence.gradient[name][layer], slope, rtol=1e-5, atol=1e-6)
    slope = (
        fw.bayes.evidence(net, X, Y, noise=0.2 + h, order=0).value
        - fw.bayes.evidence(net, X, Y, noise=0.2 - h, order=0).value
    ) / (2 * h)
    np.testing.assert_allclose(log_evidence.gradient["noise"], slope, rtol=1e-5)


def test_an_activation_that_jumps_has_evidence_without_gradient():
    log_evidence = fw.bayes.evidence(fw.MLP((3, 8, 2), "perceptron", C_b=0.1), X, Y, noise=0.1, order=0)
    assert np.isfinite(log_evidence.value) and log_evidence.gradient is None


def test_evidence_prefers_the_prior_that_the_data_come_from():
    """Climbing the gradient in log C_W from 0.5 finds the 2.0 that 40 inputs of 5 outputs were drawn with."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(40, 4))
    net = fw.MLP((4, 8, 5), "erf", C_b=0.1, C_W=(1.5, 2.0))
    targets = np.linalg.cholesky(fw.kernels(net, inputs).K + 0.01 * np.eye(40)) @ random.normal(size=(40, 5))
    C_W = 0.5
    for _ in range(30):
        log_evidence = fw.bayes.evidence(net.replace(C_W=(1.5, C_W)), inputs, targets, noise=0.01, order=0)
        assert log_evidence.gradient is not None
        C_W *= np.exp(np.clip(log_evidence.gradient["C_W"][1] * C_W / 50, -0.3, 0.3))
    assert abs(np.log(C_W / 2.0)) < 4 * np.sqrt(2 / 200)  # 200 numbers know a scale to sqrt(2/200)


def test_posterior_covariance_counts_the_noise_of_the_data():
    """Without noise (10.41) with Theta = K; with it, s^2 g g^T more than the spread of ridge solutions."""
    net, noise = NETWORKS["tanh"], 0.3
    X_test = RANDOM.normal(size=(3, 3))
    posterior = fw.bayes.posterior(net, X, Y, X_test, noise=noise, order=0)
    trained = fw.predict(fw.bayes.rates(net), X, Y, X_test, order=0, ridge=noise)
    np.testing.assert_allclose(posterior.mean, trained.mean, rtol=1e-10)
    gain = fw.kernels(net, X_test, X).K @ np.linalg.inv(fw.kernels(net, X).K + noise * np.eye(8))
    extra = posterior.factors[0][1] - trained.factors[0][1]
    np.testing.assert_allclose(extra, noise * gain @ gain.T, rtol=1e-9, atol=1e-12)


def test_singular_kernels_ask_for_noise():
    twice = np.concatenate([X, X[:1]])
    with refused("training kernel is singular.*rows 0 and 8 .* pass noise= above zero"):
        fw.bayes.posterior(NETWORKS["tanh"], twice, np.concatenate([Y, Y[:1]]), order=0)
    with refused("noise must be a variance, zero or positive, got -1"):
        fw.bayes.evidence(NETWORKS["tanh"], X, Y, noise=-1, order=0)
    assert np.isfinite(
        fw.bayes.evidence(NETWORKS["tanh"], twice, np.concatenate([Y, Y[:1]]), noise=0.1, order=0).value
    )


# --- ridges ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1.0])
def test_leave_one_out_in_closed_form_is_what_training_eight_times_gives(ridge):
    net = NETWORKS["tanh"]
    errors = []
    for out in range(8):
        kept = np.arange(8) != out
        prediction = fw.predict(net, X[kept], Y[kept], X[out : out + 1], order=0, ridge=ridge)
        errors.append((prediction.mean[0] - Y[out]) ** 2)
    path = fw.choose_ridge(net, X, Y, ridges=[ridge])
    np.testing.assert_allclose(path.leave_one_out[0], np.mean(errors), rtol=1e-8)


def test_generalized_cross_validation_is_its_definition():
    """N |(1 - S) y|^2 / tr(1 - S)^2 per output with S = Theta (Theta + a)^-1."""
    net, ridge = NETWORKS["relu"], 0.7
    Theta = fw.kernels(net, X).Theta
    rest = np.eye(8) - Theta @ np.linalg.inv(Theta + ridge * np.eye(8))
    expected = np.mean((rest @ Y) ** 2) / (np.trace(rest) / 8) ** 2
    np.testing.assert_allclose(fw.choose_ridge(net, X, Y, ridges=[ridge]).generalized[0], expected, rtol=1e-9)


def test_the_chosen_ridge_is_a_minimum():
    random = np.random.default_rng(1)
    net = fw.MLP((3, 8, 8, 1), "relu", C_W=2.0)
    inputs = random.normal(size=(40, 3))
    targets = np.sin(inputs[:, :1]) + 0.5 * random.normal(size=(40, 1))
    path = fw.choose_ridge(net, inputs, targets)
    for best, which in ((path.best_leave_one_out, "leave_one_out"), (path.best_generalized, "generalized")):
        near = fw.choose_ridge(net, inputs, targets, ridges=best * np.asarray([0.97, 1.0, 1.03]))
        values = getattr(near, which)
        assert values[1] <= min(values[0], values[2])
        assert values[1] <= getattr(path, which).min() * (1 + 1e-12)


def test_bad_ridges_are_named():
    with refused("ridges must be a row of numbers, zero or positive"):
        fw.choose_ridge(NETWORKS["tanh"], X, Y, ridges=[-1.0])
    with refused("X_train has one sample"):
        fw.choose_ridge(NETWORKS["tanh"], X[:1], Y[:1])
    twice = np.concatenate([X, X[:1]])
    with refused("rows 0 and 8 of X_train are equal"):
        fw.choose_ridge(NETWORKS["tanh"], twice, np.concatenate([Y, Y[:1]]), ridges=[0.0])
