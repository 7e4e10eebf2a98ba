"""Linear models, kernel methods and random features of real networks."""

import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw

RANDOM = np.random.default_rng(31)
X, Y, X_TEST = RANDOM.normal(size=(10, 3)), RANDOM.normal(size=(10, 2)), RANDOM.normal(size=(6, 3))


def polynomials(X):
    """Products of up to four components: 35 features with the constant."""
    powers = [(a, b, c) for a in range(5) for b in range(5) for c in range(5) if 0 < a + b + c <= 4]
    return np.stack([X[:, 0] ** a * X[:, 1] ** b * X[:, 2] ** c for a, b, c in powers], axis=1)


def few(X):
    return np.stack([X[:, 0], X[:, 1] * X[:, 2], np.sin(X[:, 0])], axis=1)


def test_both_solutions_agree_when_overparameterized():
    """(10.124) = (10.131)."""
    features = fw.textbook.with_constant(polynomials)
    model, machine = (
        fw.textbook.fit_linear_model(features, X, Y),
        fw.textbook.fit_kernel_machine(features, X, Y),
    )
    assert model.weights.shape == (35, 2) and machine.weights.shape == (10, 2)
    np.testing.assert_allclose(model.predict(X), Y, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(machine.predict(X_TEST), model.predict(X_TEST), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("features", [polynomials, few])
def test_both_solutions_agree_with_a_ridge(features):
    """(10.127), whatever the number of features."""
    features = fw.textbook.with_constant(features)
    model = fw.textbook.fit_linear_model(features, X, Y, ridge=0.3)
    machine = fw.textbook.fit_kernel_machine(features, X, Y, ridge=0.3)
    np.testing.assert_allclose(machine.predict(X_TEST), model.predict(X_TEST), rtol=1e-9)
    residual = features(X) @ model.weights - Y  # stationary: phi^T residual + ridge W = 0
    np.testing.assert_allclose(features(X).T @ residual, -0.3 * model.weights, rtol=1e-9, atol=1e-11)


def test_a_vanishing_ridge_gives_the_least_weights():
    features = fw.textbook.with_constant(polynomials)
    exact = fw.textbook.fit_linear_model(features, X, Y)
    small = fw.textbook.fit_linear_model(features, X, Y, ridge=1e-6)
    np.testing.assert_allclose(small.weights, exact.weights, rtol=1e-3, atol=1e-5)


def test_underparameterized_models_have_no_dual():
    features = fw.textbook.with_constant(few)
    model = fw.textbook.fit_linear_model(features, X, Y)
    normal = np.linalg.solve(features(X).T @ features(X), features(X).T @ Y)  # (10.123)
    np.testing.assert_allclose(model.weights, normal, rtol=1e-9)
    with refused("4 features for 10 samples make a singular kernel"):
        fw.textbook.fit_kernel_machine(features, X, Y)


def test_one_layer_networks_are_linear_models():
    """(10.118): infinite width has nothing to say; the trained mean is ridgeless regression from zero."""
    net = fw.MLP((12, 2), "linear", lambda_b=1.0, lambda_W=12.0)
    inputs, test = RANDOM.normal(size=(8, 12)), RANDOM.normal(size=(3, 12))
    model = fw.textbook.fit_linear_model(fw.textbook.with_constant(lambda x: x), inputs, Y[:8])
    trained = fw.predict(net, inputs, Y[:8], test, order=0)
    np.testing.assert_allclose(trained.mean, model.predict(test), rtol=1e-9, atol=1e-10)


def test_random_features_are_the_gradients_of_one_network():
    """Their kernel is the NTK: what a small step of training changes (10.137)-(10.140), by differences."""
    net = fw.MLP((3, 5, 4, 2), "tanh", C_b=0.2, C_W=1.5, lambda_b=(0.3, 1.0, 0.5), lambda_W=(1.0, 2.0, 0.7))
    for output in (0, 1):
        phi = fw.textbook.random_features(net, key=3, output=output)(X)
        assert phi.shape == (10, net.parameter_count)
    first, second = (fw.textbook.random_features(net, key=3, output=i)(X) for i in (0, 1))
    again = fw.textbook.random_features(net, key=3, output=0)(X)
    np.testing.assert_array_equal(first, again)
    # features of last-layer biases are sqrt(lambda_b), of the output's own bias only
    own = np.isclose(first, np.sqrt(0.5), rtol=1e-14).all(axis=0)
    other = np.isclose(second, np.sqrt(0.5), rtol=1e-14).all(axis=0)
    assert own.sum() == 1 and other.sum() == 1 and not (own & other).any()
    with refused("output must lie between 0 and 1, got 2"):
        fw.textbook.random_features(net, output=2)


@pytest.mark.long
def test_kernels_of_random_features_tend_to_the_ntk():
    """Fluctuations fall as n^(-1/2): squared deviations, over 10 networks, as 1/n within their scatter."""
    deviations = []
    for width in (32, 128, 512):
        net = fw.MLP((3, width, 1), "erf", C_b=0.1, C_W=1.5)
        Theta = fw.kernels(net, X).Theta
        squares = []
        for key in range(10):
            phi = fw.textbook.random_features(net, key=key)(X)
            squares.append(np.mean((phi @ phi.T - Theta) ** 2))
        deviations.append(np.mean(squares))
    slope = np.polyfit(np.log([32, 128, 512]), np.log(deviations), 1)[0]
    assert -1.5 < slope < -0.6
    assert np.sqrt(deviations[-1]) < 0.15 * np.abs(Theta).mean()


def test_wide_random_features_predict_as_infinitely_wide_networks():
    """One network of width 2048, with a ridge that keeps n^(-1/2) = 2% of its kernel from being amplified."""
    net = fw.MLP((3, 2048, 1), "erf", C_b=0.1, C_W=1.5)
    machine = fw.textbook.fit_kernel_machine(fw.textbook.random_features(net, key=1), X, Y[:, :1], ridge=1.0)
    theory = fw.predict(net, X, Y[:, :1], X_TEST, order=0, ridge=1.0)
    assert np.abs(machine.predict(X_TEST) - theory.mean).max() < 0.1 * np.abs(Y).max()


def test_bad_features_are_named():
    with refused("features must give finite numbers of shape"):
        fw.textbook.fit_linear_model(lambda x: x[0], X, Y)
    with refused("ridge must be zero or a positive number"):
        fw.textbook.fit_linear_model(few, X, Y, ridge=-1)
    with refused("Y_train must be finite with shape"):
        fw.textbook.fit_kernel_machine(polynomials, X, Y[:4])
    with refused("the kernel of the features has condition number"):
        fw.textbook.fit_kernel_machine(polynomials, np.concatenate([X, X[:1]]), np.concatenate([Y, Y[:1]]))
