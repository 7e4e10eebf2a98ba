"""Extreme data, sizes and learning rates: the answer is finite and that of a closed form, or a refusal."""

import math

import mpmath
import numpy as np
import pytest
from helpers.close import assert_close, own_sizes
from helpers.problems import linear_network_means, refused, scale_invariant_means

import finitewidth as fw

TOLERANCE = 1e-12  # of an average, in units of the scale that it lives on
ANGLE = 1e-7  # where rounding of K, 1e-16, is felt as an angle, its root
NORMS = (1e-8, 1e-4, 1.0, 1e4, 1e8)
BASE = np.array([[0.6, -0.8], [0.28, 0.96]])
GEOMETRIES = {
    "generic": BASE,
    "repeated": np.stack([BASE[0], BASE[0], BASE[1]]),
    "parallel": np.stack([BASE[0], 3 * BASE[0], BASE[1]]),
    "opposite": np.stack([BASE[0], -BASE[0], BASE[1]]),
    "zero": np.stack([BASE[0], np.zeros(2), BASE[1]]),
}
DEPTHS = (1, 2, 3, 30, 400, 2000)


def deep(activation, depth, width=10, outputs=1, **hyperparameters):
    return fw.MLP((2, *[width] * (depth - 1), outputs), activation, **hyperparameters)


# --- inputs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_linear_and_relu_kernels_at_every_norm(geometry, norm):
    X = norm * GEOMETRIES[geometry]
    for hyperparameters in ({"C_b": 0.1, "C_W": 1.3}, {"C_b": 0.0, "C_W": 2.0, "lambda_b": 0.5}):
        net = deep("linear", 3, **hyperparameters)
        layer, exact = fw.solve(net, X, order=0).output, linear_network_means(net, X, 3)
        assert_close(layer.K, exact[0], TOLERANCE, scale=own_sizes(exact[0]))
        assert_close(layer.Theta, exact[1], TOLERANCE, scale=own_sizes(exact[1]))
    net = deep("relu", 3, C_b=0.1 * norm**2, C_W=2.0)  # a bias as large as the signal
    layer, exact = fw.solve(net, X, order=0).output, scale_invariant_means(net, X, 3)
    assert_close(layer.K, exact[0], TOLERANCE, scale=own_sizes(exact[0]))
    assert_close(layer.Theta, exact[1], ANGLE, scale=own_sizes(exact[1]))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_vertex_of_a_linear_network_at_every_norm(geometry, norm):
    """PDLT chapter 3: V = (depth - 1)(K K + K K), where no bias is drawn and C_W = 1."""
    X = norm * GEOMETRIES[geometry]
    layer = fw.solve(deep("linear", 4), X, order=1, tensors=("V",)).output
    K = X @ X.T / 2
    exact = 3 * (np.einsum("ac,bd->abcd", K, K) + np.einsum("ad,bc->abcd", K, K))
    own = np.sqrt(np.diag(K))
    scale = np.einsum("a,b,c,d->abcd", own, own, own, own)
    assert np.isfinite(layer.V).all()
    np.testing.assert_array_less(np.abs(layer.V - exact), 100 * TOLERANCE * scale + 1e-300)
    np.testing.assert_allclose(layer.G1, 0.0, atol=TOLERANCE * norm**2)


def exact_erf(X: np.ndarray) -> np.ndarray:
    """<erf erf> of the first layer by its arc sine (Williams 1997), with 60 digits."""
    with mpmath.workdps(60):
        x = mpmath.matrix(X.tolist())
        K = x * x.T / X.shape[1]
        count = range(len(X))
        value = [
            [
                2 / mpmath.pi * mpmath.asin(2 * K[i, j] / mpmath.sqrt((1 + 2 * K[i, i]) * (1 + 2 * K[j, j])))
                for j in count
            ]
            for i in count
        ]
        return np.array([[float(v) for v in row] for row in value])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_saturated_and_vanishing_signals_follow_the_arc_sine(geometry, norm):
    X = norm * GEOMETRIES[geometry]
    layer = fw.solve(deep("erf", 2), X, order=0).output
    exact = exact_erf(X)
    saturated = norm >= 1e4 and geometry in ("parallel", "opposite")
    assert_close(layer.K, exact, ANGLE if saturated else TOLERANCE, scale=own_sizes(exact))
    np.testing.assert_array_equal(layer.K[0, 1], layer.K[1, 0])
    if geometry == "repeated":
        np.testing.assert_array_equal(layer.Theta[0], layer.Theta[1])
    own = np.sqrt(np.diag(layer.Theta))
    np.testing.assert_array_less(np.abs(layer.Theta), np.outer(own, own) * (1 + ANGLE))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_singular_data_are_refused_at_the_end_of_training_and_predicted_before_it(geometry):
    """Without biases; at a finite time the mean is (1 - exp(-t Theta)) y on the training inputs."""
    X, net = GEOMETRIES[geometry], deep("linear", 3, lambda_b=0.0)
    Y = np.linspace(-1.0, 1.0, len(X))[:, None]
    prediction = fw.predict(net, X, Y, algorithm=fw.GradientFlow(time=0.7), order=0)
    K, Theta = linear_network_means(net, X, 3)
    l, U = np.linalg.eigh(Theta)
    decay = U @ np.diag(np.exp(-0.7 * l)) @ U.T
    np.testing.assert_allclose(prediction.mean, Y - decay @ Y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(prediction.covariance[:, 0, :, 0], decay @ K @ decay, rtol=0, atol=1e-12)
    if geometry == "generic":
        np.testing.assert_allclose(fw.predict(net, X, Y, order=0).mean, Y, rtol=1e-10)
    else:
        with refused("training NTK .*condition number"):
            fw.predict(net, X, Y, order=0)


# --- depth and width --------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
def test_critical_networks_of_every_depth(depth):
    """Each layer adds lambda_b + lambda_W times the mean square of the input to the NTK, and 2 K^2 to V."""
    X = np.array([[0.3, 1.7]])
    square = float(np.mean(X**2))
    rates = {"lambda_b": 0.5, "lambda_W": 0.25}
    output = fw.solve(deep("linear", depth, **rates), X, layers=[depth], tensors=("V",)).output
    np.testing.assert_allclose(output.K, square, rtol=1e-11)
    np.testing.assert_allclose(output.Theta, depth * (0.5 + 0.25 * square), rtol=1e-11)
    np.testing.assert_allclose(output.V, 2 * (depth - 1) * square**2, rtol=1e-10, atol=0)
    if depth <= 30:  # at depth 2000 in theory/test_solve.py
        output = fw.solve(deep("relu", depth, C_W=2.0, **rates), X, order=0).output
        np.testing.assert_allclose(output.K, 2 * square, rtol=1e-11)
        np.testing.assert_allclose(output.Theta, depth * (0.5 + 0.25 * square), rtol=1e-11)


def test_depth_2000_off_criticality_vanishes_or_is_refused():
    X = BASE[:1]
    small = fw.solve(deep("linear", 2000, C_W=0.9), X, layers=[1000, 2000], tensors=())
    np.testing.assert_allclose(small.layer(1000).K, 0.9**1000 * X @ X.T / 2, rtol=1e-10, atol=0)
    last_layers_alone = (1 - 0.9**2000) / (1 - 0.9)  # their biases
    np.testing.assert_allclose(small.output.Theta, last_layers_alone, rtol=1e-10)
    with refused("double precision"):
        fw.solve(deep("linear", 2000, C_W=2.0), X, tensors=())


@pytest.mark.parametrize("width", [1, 2, 1000, 1_000_000])
def test_statistics_know_the_width_as_one_over_it_and_nothing_else(width):
    net, X = deep("sin", 3, width=width, C_b=0.1), BASE
    layer, other = fw.solve(net, X).output, fw.solve(deep("sin", 3, width=64, C_b=0.1), X).output
    for name in ("K", "G1", "H1", "V"):
        np.testing.assert_array_equal(getattr(layer, name), getattr(other, name))
    np.testing.assert_allclose(width * (layer.H - layer.Theta), layer.H1, rtol=1e-4 if width > 1e3 else 1e-9)


def test_a_million_neurons_are_their_limit_and_a_million_squared_is_refused():
    data = (BASE, np.array([[0.5], [-0.5]]), BASE[:1])
    options = {"algorithm": fw.GradientDescent(0.01, 0), "key": 1, "record": fw.Record(ntk=True)}
    wide = deep("relu", 2, width=1_000_000, C_W=2.0)
    ensemble = fw.train_ensemble(wide, *data, members=2, **options, run=fw.Run(batch_size=1))
    Theta = fw.solve(wide, np.concatenate([BASE, BASE[:1]]), order=0).output.Theta
    H = ensemble.ntk.value[0].reshape(3, 3)
    np.testing.assert_allclose(H, Theta, rtol=0, atol=10 / math.sqrt(1e6) * Theta.max())
    with refused("memory of 1 GB is too little"):
        fw.train_ensemble(deep("relu", 3, width=1_000_000), *data, members=1, **options)


# --- outputs and learning rates ---------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2, 3, 10])
def test_outputs_of_an_infinitely_wide_network_do_not_know_each_other(outputs):
    Y = np.random.default_rng(0).standard_normal((2, outputs))
    X_test = np.array([[1.0, 1.0], [-0.3, 0.2]])
    prediction = fw.predict(deep("tanh", 3, outputs=outputs), BASE, Y, X_test, order=0)
    for i in range(outputs):
        alone = fw.predict(deep("tanh", 3), BASE, Y[:, i : i + 1], X_test, order=0)
        np.testing.assert_allclose(prediction.mean[:, i], alone.mean[:, 0], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(
            prediction.covariance[:, i, :, i], alone.covariance[:, 0, :, 0], rtol=1e-12, atol=1e-13
        )
        for j in range(i):
            np.testing.assert_array_equal(prediction.covariance[:, i, :, j], 0.0)


@pytest.mark.parametrize("fraction", [1e-12, 1e-6, 0.3, 0.5, 1 - 1e-3, 1 - 1e-9])
def test_learning_rates_up_to_the_limit(fraction):
    """Modes of the residual are multiplied by 1 - eta l in each step; the limit is 2 / largest l."""
    net, Y = deep("linear", 3, C_b=0.2), np.array([[1.0], [-2.0]])
    K, Theta = linear_network_means(net, BASE, 3)
    l, U = np.linalg.eigh(Theta)
    rate = fraction * 2 / l[-1]
    for steps in (0, 1, 1000):
        prediction = fw.predict(net, BASE, Y, algorithm=fw.GradientDescent(rate, steps), order=0)
        factor = np.exp(steps * np.log1p(-rate * l)) if fraction < 0.5 else (1 - rate * l) ** steps
        learned = -np.expm1(steps * np.log1p(-rate * l)) if fraction < 0.5 else 1 - factor
        np.testing.assert_allclose(prediction.mean, U @ (learned[:, None] * (U.T @ Y)), rtol=1e-9, atol=1e-25)
        left = U @ np.diag(factor) @ U.T
        np.testing.assert_allclose(
            prediction.covariance[:, 0, :, 0], left @ K @ left, rtol=1e-9, atol=1e-12 * K.max()
        )
    end = fw.predict(net, BASE, Y, algorithm=fw.GradientDescent(rate), order=0)
    np.testing.assert_allclose(end.mean, Y, rtol=1e-10)


def test_tiny_steps_are_gradient_flow_and_steps_beyond_the_limit_are_refused():
    net, Y = deep("linear", 3, C_b=0.2), np.array([[1.0], [-2.0]])
    flow = fw.predict(net, BASE, Y, algorithm=fw.GradientFlow(time=0.9), order=0)
    small = fw.predict(net, BASE, Y, algorithm=fw.GradientDescent(1e-12, 900_000_000_000), order=0)
    np.testing.assert_allclose(small.mean, flow.mean, rtol=1e-9)
    limit = 2 / np.linalg.eigvalsh(linear_network_means(net, BASE, 3)[1])[-1]
    with refused("learning.rate"):
        fw.predict(net, BASE, Y, algorithm=fw.GradientDescent(1.000001 * limit), order=0)


def test_one_tiny_step_at_order_one_is_the_mean_ntk_times_the_targets():
    """The prior mean is zero and odd powers of outputs have no average: E[z] = eta H y to first order."""
    net, Y, x = deep("sin", 3, C_b=0.1), np.array([[1.0], [-2.0]]), np.array([[0.4, 0.4]])
    H = fw.solve(net, np.concatenate([BASE, x]), order=1, layers=[3], tensors=()).output.H
    for rate in (1e-12, 1e-6):
        prediction = fw.predict(net, BASE, Y, x, algorithm=fw.GradientDescent(rate, 1), covariance=False)
        np.testing.assert_allclose(prediction.mean / rate, H[2:, :2] @ Y, rtol=1e-4 if rate > 1e-9 else 1e-9)
