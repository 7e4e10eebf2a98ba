"""Learning curves from one spectrum: exact limits, random subsets, real networks, refusals."""

import numpy as np
from helpers.problems import refused
from sklearn.datasets import load_diabetes

import finitewidth as fw

NET = fw.MLP((10, 64, 64, 1), "relu", C_W=2.0, lambda_b=0.1)


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    data = load_diabetes()
    X, y = data.data / data.data.std(axis=0), data.target
    return X, ((y - y.mean()) / y.std())[:, None]


def test_the_expectation_is_that_of_random_subsets():
    """Diabetes, 442 points: within 4 standard errors of 60 subsets, or 5 percent."""
    X, Y = diabetes()
    curve = fw.learning_curve(NET, X, Y, (10, 100, 300), noise=3.0, subsets=60, key=1)
    for expected, measured in ((curve.test, curve.measured_test), (curve.train, curve.measured_train)):
        assert np.all(np.abs(measured.value - expected) < 4 * measured.stderr + 0.05 * expected)
    assert np.all(np.diff(curve.test) < 0) and np.all(np.diff(curve.kappa) < 0)
    assert np.all(np.diff(curve.learned, axis=1) <= 0)  # large eigenvalues are learned first


def test_all_points_but_one_are_generalized_cross_validation():
    """N = M - 1: residuals over (1 - u)^2, with u the mean leverage (Craven and Wahba 1979), up to 1/M."""
    X, Y = diabetes()
    X, Y, noise = X[:120], Y[:120], 3.0
    rest = noise * np.linalg.inv(fw.kernels(NET, X).Theta + noise * np.eye(len(X)))  # residuals of all points
    curve = fw.learning_curve(NET, X, Y, (119,), noise=noise)
    np.testing.assert_allclose(curve.test, np.mean((rest @ Y) ** 2) / np.mean(np.diag(rest)) ** 2, rtol=0.02)
    np.testing.assert_allclose(curve.train, np.mean((rest @ Y) ** 2), rtol=0.02)


def test_a_flat_spectrum_learns_nothing_about_other_points():
    """Orthogonal inputs of a linear network: each point is alone, the test error is that of no training."""
    X, Y = np.eye(8) * np.sqrt(8), np.arange(8.0)[:, None] - 3.5
    net = fw.MLP((8, 4, 1), "linear", lambda_b=0.0)
    curve = fw.learning_curve(net, X, Y, (2, 5), noise=0.5)
    np.testing.assert_allclose(curve.test, np.mean(Y**2))
    Theta = fw.kernels(net, X).Theta[0, 0]
    np.testing.assert_allclose(curve.train, (0.5 / (Theta + 0.5)) ** 2 * np.mean(Y**2))


def test_without_noise_training_points_are_fitted():
    X, Y = diabetes()
    curve = fw.learning_curve(NET, X[:60], Y[:60], (5, 30))
    assert np.all(np.abs(curve.train) < 1e-9) and np.all(curve.test > 0)


def test_what_is_not_known_is_refused():
    X, Y = diabetes()
    X, Y = X[:30], Y[:30]
    with refused("order must be 0, got 1: order 1/n of averages over subsets is not known"):
        fw.learning_curve(NET, X, Y, (5,), order=1)
    with refused("sizes must be whole numbers from 1 to 29, got 30; leave one point to test"):
        fw.learning_curve(NET, X, Y, (5, 30))
    with refused("sizes must name at least one"):
        fw.learning_curve(NET, X, Y, ())
    linear = fw.MLP((10, 4, 1), "linear", lambda_b=0.0)
    with refused("has rank 10, and noise=0 asks for an exact fit"):
        fw.learning_curve(linear, X, Y, (20,))
