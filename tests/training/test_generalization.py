"""Expected loss, nearby inputs, and what networks do between and beyond two training inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw

RANDOM = np.random.default_rng(21)
X, Y = RANDOM.normal(size=(6, 3)), RANDOM.normal(size=(6, 3))
X_TEST, Y_TEST = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(5, 3))
NET = fw.MLP((3, 8, 8, 3), "tanh", C_b=0.1, C_W=1.3)
SMOOTH = ("tanh", "gelu", "erf", "sin", "swish")


def members_of(prediction, count, seed):
    """Draws of the Gaussian ensemble (count, M, n_L)."""
    size = prediction.mean.size
    random = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(prediction.covariance.reshape(size, size))
    root = vectors * np.sqrt(np.maximum(values, 0))
    return prediction.mean + (random.normal(size=(count, size)) @ root.T).reshape(
        count, *prediction.mean.shape
    )


# --- bias and variance -------------------------------------------------------------------------------


def test_squared_loss_is_bias_plus_variance():
    """(10.52) against 20000 draws of the ensemble."""
    prediction = fw.predict(NET, X, Y, X_TEST, order=0)
    expected_loss = prediction.test_loss(Y_TEST)
    losses = ((members_of(prediction, 20_000, 0) - Y_TEST) ** 2).sum(axis=(1, 2)) / 2
    assert abs(losses.mean() - expected_loss.total) / (losses.std() / np.sqrt(losses.size)) < 4
    np.testing.assert_allclose(expected_loss.bias, ((prediction.mean - Y_TEST) ** 2).sum() / 2, rtol=1e-12)
    np.testing.assert_allclose(
        expected_loss.bias_of_samples.sum() + expected_loss.variance_of_samples.sum(), expected_loss.total
    )
    assert expected_loss.exact and expected_loss.stderr == 0


def test_a_squared_loss_by_hand_gives_the_same_split():
    """(10.55) for a quadratic loss is (10.52)."""
    prediction = fw.predict(NET, X, Y, X_TEST, order=0)
    by_hand = prediction.test_loss(Y_TEST, loss=lambda z, y: jnp.sum((z - y) ** 2) / 2)
    expected_loss = prediction.test_loss(Y_TEST)
    np.testing.assert_allclose(
        [by_hand.bias, by_hand.variance], [expected_loss.bias, expected_loss.variance], rtol=1e-12
    )


@pytest.mark.parametrize("loss", [fw.CrossEntropy(), fw.CrossEntropy(2.0)])
def test_variance_of_any_loss_is_its_hessian_with_the_covariance(loss):
    """(10.55): shrinking all fluctuations by s leaves an error of order s^4 beside the s^2 that is kept."""
    soft, targets = jax.nn.softmax(Y), jax.nn.softmax(Y_TEST)
    prediction = fw.predict(NET, X, soft, X_TEST, loss=loss, order=0)
    expected_loss = prediction.test_loss(targets, loss=loss)
    assert not expected_loss.exact
    draws = members_of(prediction, 20_000, 1) - prediction.mean

    def excess(s):  # the average over +draw and -draw has no odd orders
        logs = [
            jax.nn.log_softmax((prediction.mean + sign * s * draws) / loss.temperature) for sign in (1, -1)
        ]
        losses = -sum((targets * log).sum(axis=(1, 2)) for log in logs) / 2
        return (np.asarray(losses) - expected_loss.bias) / s**2

    small = excess(0.05)
    assert (
        abs(small.mean() - expected_loss.variance)
        < 4 * small.std() / np.sqrt(small.size) + 0.01 * expected_loss.variance
    )


def test_a_sampled_ensemble_is_averaged_member_by_member():
    targets = fw.losses.one_hot(np.arange(5) % 3, 3)
    algorithm = fw.GradientFlow(1.0)
    sampled = fw.predict(
        NET, X, jax.nn.softmax(Y), X_TEST, loss=fw.CrossEntropy(), algorithm=algorithm, order=0,
        method=fw.FunctionSpace(members=50),
    )  # fmt: skip
    expected_loss = sampled.test_loss(targets, loss=fw.CrossEntropy())
    losses = -(targets * np.log(sampled.probabilities_of_members)).sum(axis=(1, 2))
    np.testing.assert_allclose(expected_loss.total, losses.mean(), rtol=1e-12)
    np.testing.assert_allclose(expected_loss.stderr, losses.std(ddof=1) / np.sqrt(50), rtol=1e-12)
    with refused("loss must be fw.MSE"):
        sampled.test_loss(targets, loss="hinge")


# --- one training and one test input -----------------------------------------------------------------


def test_a_neighbour_is_a_prediction_from_one_sample():
    """(10.56)-(10.63)."""
    nearby = fw.textbook.neighbour(NET, X[0], X_TEST[0])
    prediction = fw.predict(NET, X[:1], Y[:1], X_TEST[:1], order=0)
    np.testing.assert_allclose(nearby.bias(Y[0], Y_TEST[0]), prediction.mean[0] - Y_TEST[0], rtol=1e-12)
    np.testing.assert_allclose(nearby.variance, prediction.variance[0, 0], rtol=1e-10)


def pair(size, unequal=0.0):
    """Two inputs at distance `size`, of equal norm unless told."""
    middle, across = np.array([1.0, 0.4, -0.3]), np.array([0.3, 0.0, 1.0])
    direction = across - (across @ middle) / (middle @ middle) * middle + unequal * middle
    step = size * direction / np.linalg.norm(direction)
    return middle + step / 2, middle - step / 2


def measured(net, plus, minus, layer):
    """The components [0], [1], [2] of K and Theta, the midpoint value taken off [0]."""
    whole = fw.solve(net, np.stack([plus, minus, (plus + minus) / 2]), order=0).layer(layer)
    coefficients = {}
    for name, M in (("K", whole.K), ("Theta", whole.Theta)):
        diagonal, off = (M[0, 0] + M[1, 1]) / 2, M[0, 1]
        coefficients[name + "0"] = (diagonal + off) / 2 - M[2, 2]
        coefficients[name + "1"] = (M[0, 0] - M[1, 1]) / 2
        coefficients[name + "2"] = (diagonal - off) / 2
    return coefficients


@pytest.mark.parametrize("unequal", [0.0, 0.7])
@pytest.mark.parametrize("activation", SMOOTH)
def test_expansion_is_the_limit_of_differences(activation, unequal):
    """The relative error falls as the square of the distance, at every layer: (10.67), (10.70) and beyond."""
    net = fw.MLP(
        (3, 8, 8, 8, 1),
        activation,
        C_b=(0.1, 0.2, 0.0, 0.1),
        C_W=1.2,
        lambda_b=0.6,
        lambda_W=(0.5, 1.0, 0.0, 2.0),
    )
    errors = {}
    for size in (0.08, 0.04):
        plus, minus = pair(size, unequal)
        expansion = fw.textbook.delta_expansion(net, plus, minus)
        for layer in (2, 4):
            for name, value in measured(net, plus, minus, layer).items():
                if unequal == 0 and name.endswith("1"):
                    assert abs(value) < 1e-12 and abs(getattr(expansion, name)[layer - 1]) < 1e-12
                    continue
                relative = getattr(expansion, name)[layer - 1] / value - 1
                errors.setdefault((layer, name), []).append(abs(relative))
    for coarse, fine in errors.values():
        assert fine < 0.02
        assert fine < 0.3 * coarse or fine < 1e-6


@pytest.mark.parametrize("unequal", [0.0, 0.7])
def test_robustness_and_variance_of_nearby_inputs(unequal):
    """(10.62)-(10.66): errors fall as the third power of the distance, or faster."""
    gaps = []
    for size in (0.025, 0.0125):
        plus, minus = pair(size, unequal)
        exact, expansion = (
            fw.textbook.neighbour(NET, plus, minus),
            fw.textbook.delta_expansion(NET, plus, minus),
        )
        robustness, variance = expansion.robustness[-1], expansion.variance[-1]
        gaps.append([abs(exact.robustness - robustness), abs(exact.variance - variance)])
        assert abs(exact.robustness / robustness - 1) < 0.1 and abs(exact.variance / variance - 1) < 0.1
    assert (np.asarray(gaps[1]) < np.asarray(gaps[0]) / 6).all()


def test_kinks_have_no_expansion():
    with refused("has a kink, and its kernels"):
        fw.textbook.delta_expansion(fw.MLP((3, 8, 1), "relu"), *pair(0.1))
    with refused("x_plus has 2 columns"):
        fw.textbook.delta_expansion(NET, [1.0, 2.0], [1.0, 2.0])
    with refused("is not scale-invariant"):
        fw.textbook.finite_angle(NET, *pair(0.1))
    with refused("must have equal norms"):
        fw.textbook.finite_angle(fw.MLP((3, 8, 1), "relu"), *pair(0.1, 0.7))


# --- asymptotic laws ---------------------------------------------------------------------------------


def test_finite_angles_are_the_kernels_of_scale_invariant_networks():
    """(10.88), (10.89)."""
    net = fw.MLP(
        (3, 8, 8, 8, 1), "leaky_relu(0.2)", C_b=0.1, C_W=1.7, lambda_b=0.3, lambda_W=(1.0, 0.0, 2.0, 1.0)
    )
    plus, minus = np.array([1.0, 2.0, 2.0]), np.array([2.0, -1.0, 2.0])
    angles = fw.textbook.finite_angle(net, plus, minus)
    theory = fw.solve(net, np.stack([plus, minus]), order=0)
    for l in range(1, 5):
        K, Theta = theory.layer(l).K, theory.layer(l).Theta
        np.testing.assert_allclose(angles.K_d[l - 1], K[0, 0], rtol=1e-12)
        np.testing.assert_allclose(np.cos(angles.psi[l - 1]), K[0, 1] / K[0, 0], rtol=1e-12)
        np.testing.assert_allclose(angles.Theta_d[l - 1], Theta[0, 0], rtol=1e-12)
        np.testing.assert_allclose(angles.cos_zeta[l - 1], Theta[0, 1] / Theta[0, 0], rtol=1e-12)
    exact = fw.textbook.neighbour(net, plus, minus)
    np.testing.assert_allclose(angles.robustness[-1], exact.robustness, rtol=1e-11)
    np.testing.assert_allclose(angles.variance[-1], exact.variance, rtol=1e-11)


@pytest.mark.parametrize("activation, C_W", [("relu", 2.0), ("leaky_relu(0.5)", 1.6)])
def test_deep_scale_invariant_networks_forget_the_angle(activation, C_W):
    """(10.93)-(10.95) at depth 10000, learning rates in proportion to 1/L: 1/4, -3/4 and 9/16 K."""
    depth = 10_000
    net = fw.MLP((2, *[1] * depth), activation, C_W=C_W, lambda_b=0.7 / depth, lambda_W=1.3 / depth)
    angles = fw.textbook.finite_angle(net, [1.0, 0.0], [0.0, 1.0])
    assert abs(angles.cos_zeta[-1] - 1 / 4) < 0.002 and abs(angles.robustness[-1] + 3 / 4) < 0.002
    assert abs(angles.variance[-1] / angles.K_d[-1] - 9 / 16) < 0.004
    errors = np.abs(angles.cos_zeta[[99, 999, 9999]] - 1 / 4)
    assert errors[0] > 5 * errors[1] > 25 * errors[2]  # about 1/l


def test_deep_linear_networks_keep_the_angle():
    """(10.98): cos zeta tends to (lb + lW K cos psi) / (lb + lW K)."""
    depth, lb, lW = 5000, 0.7, 1.3
    net = fw.MLP((2, *[1] * depth), "linear", lambda_b=lb / depth, lambda_W=lW / depth)
    angles = fw.textbook.finite_angle(net, [1.0, 0.0], [0.6, 0.8])
    K = 0.5
    np.testing.assert_allclose(angles.K_d[-1], K, rtol=1e-12)
    expected = (lb + lW * K * 0.6) / (lb + lW * K)
    np.testing.assert_allclose(angles.cos_zeta[-1], expected, rtol=1e-3)


def test_odd_activations_stay_robust_under_learning_rate_equivalence():
    """(10.75), (10.78) for tanh, p_perp = 1: with rates lb/l and lW the robustness tends to a constant.

    tanh has sigma_1 = 1, sigma_2 = 0 and a_1 = -2, so that Theta_00 tends to lb + lW/2 and
    dd Theta_[2] to lW times dd K_[2] l. Corrections are of order log(l)/l.
    """
    depth, lb, lW = 300, 0.8, 1.1
    layers = np.arange(1, depth + 1)
    net = fw.MLP((3, *[1] * depth), "tanh", lambda_b=tuple(lb / layers), lambda_W=lW)
    expansion = fw.textbook.delta_expansion(net, *pair(0.05))
    np.testing.assert_allclose(expansion.Theta00[-1], lb + lW / 2, rtol=0.03)
    square = expansion.K2 * layers  # delta^2 of (10.71), up to logarithms
    np.testing.assert_allclose(expansion.Theta2[-1] / square[-1], lW, rtol=0.04)
    coefficient = -2 * square[-1] * lW / (lb + lW / 2)  # (10.78) at p_perp = 1, sigma_2 = 0
    np.testing.assert_allclose(-2 * expansion.Theta2[-1] / expansion.Theta00[-1], coefficient, rtol=0.06)
    half = depth // 2 - 1
    assert abs(expansion.robustness[-1] / expansion.robustness[half] - 1) < 0.05


@pytest.mark.parametrize("activation, a_1", [("tanh", -2.0), ("sin", -1.0)])
def test_equal_learning_rates_lose_robustness_with_depth(activation, a_1):
    """(10.79)-(10.81) for odd activations: Theta_00 grows as lb l/2, dd Theta_[2] stays, the ratio falls.

    (10.80) prints lW sigma_1^2 delta^2 for dd Theta_[2]. <s''s''> falls as 1/l, but multiplies a Theta_00
    that grows as l, and adds (-a_1) lb/2 to lW sigma_1^2.
    """
    depth, lb, lW = 400, 0.8, 1.1
    net = fw.MLP((3, *[1] * depth), activation, lambda_b=lb, lambda_W=lW)
    expansion = fw.textbook.delta_expansion(net, *pair(0.05))
    np.testing.assert_allclose(expansion.Theta00[-1] / depth, lb / 2, rtol=0.03)
    square = expansion.K2[-1] * depth  # delta^2
    np.testing.assert_allclose(expansion.Theta2[-1] / square, lW - a_1 * lb / 2, rtol=0.02)
    half = depth // 2 - 1
    np.testing.assert_allclose(expansion.robustness[-1] / expansion.robustness[half], 1 / 2, rtol=0.1)


# --- star-polation -----------------------------------------------------------------------------------


def test_starpolation_is_exact_at_every_s():
    s = np.linspace(-1.5, 2.5, 9)
    plus, minus = X[0], X[1]
    starpolation = fw.textbook.starpolate(NET, plus, minus, Y[0], Y[1], s)
    Theta = fw.kernels(NET, np.stack([plus, minus])).Theta
    line = s[:, None] * plus + (1 - s)[:, None] * minus
    inverse = np.array([[Theta[1, 1], -Theta[0, 1]], [-Theta[0, 1], Theta[0, 0]]]) / np.linalg.det(Theta)
    expected = fw.kernels(NET, line, np.stack([plus, minus])).Theta @ inverse @ Y[:2]  # (10.106)
    np.testing.assert_allclose(starpolation.mean, expected, rtol=1e-10, atol=1e-12)
    ends = fw.textbook.starpolate(NET, plus, minus, Y[0], Y[1], [1.0, 0.0])
    np.testing.assert_allclose(ends.mean, Y[:2], rtol=1e-10)
    assert ends.variance.max() < 1e-12


def test_linear_networks_starpolate_linearly_and_with_certainty():
    """(10.104)."""
    net = fw.MLP((3, 8, 8, 3), "linear", C_b=0.1, C_W=1.2)
    starpolation = fw.textbook.starpolate(net, X[0], X[1], Y[0], Y[1], np.linspace(-2, 3, 11))
    np.testing.assert_allclose(starpolation.mean, starpolation.linear, rtol=1e-9, atol=1e-10)
    assert starpolation.variance.max() < 1e-10
    assert abs(starpolation.curvature) < 1e-14


@pytest.mark.parametrize("activation", SMOOTH)
def test_nearby_starpolation_bends_by_the_curvature(activation):
    """(10.115) with factor 1 errs by the third power of the distance if targets differ by the first.

    With equal targets it errs by the fourth power, as the variance does (10.117).
    """
    net = fw.MLP((3, 8, 8, 1), activation, C_b=0.1, C_W=1.2)
    s = np.array([-0.5, 0.3, 0.5, 1.4])
    errors, variances = {0.0: [], 1.0: []}, []
    for size in (0.1, 0.05):
        for difference, seen in errors.items():
            y = 1.0 + difference * size, 1.0 - difference * size
            starpolation = fw.textbook.starpolate(net, *pair(size), [y[0]], [y[1]], s)
            seen.append(np.abs(starpolation.mean - starpolation.expanded_mean).max())
        variances.append(starpolation.variance)
        bend = starpolation.expanded_mean - starpolation.linear
        np.testing.assert_allclose(bend[:, 0], -starpolation.curvature * s * (1 - s) * 2.0, rtol=1e-10)
    assert errors[0.0][1] < 0.05 * np.abs(bend).max()
    np.testing.assert_allclose(errors[0.0][0] / errors[0.0][1], 16, rtol=0.15)
    np.testing.assert_allclose(errors[1.0][0] / errors[1.0][1], 8, rtol=0.15)
    np.testing.assert_allclose(variances[0] / variances[1], 16, rtol=0.15)


def test_starpolation_names_what_it_cannot_expand():
    starpolation = fw.textbook.starpolate(NET, *pair(0.1, 0.7), Y[0], Y[1], 0.5)
    with refused("is for inputs of equal norm"):
        _ = starpolation.expanded_mean
    relu = fw.textbook.starpolate(fw.MLP((3, 8, 1), "relu"), X[0], X[1], [1.0], [2.0], 0.5)
    with refused("a kinked activation has no expansion"):
        _ = relu.curvature
    with refused("s must be a finite number"):
        fw.textbook.starpolate(NET, X[0], X[1], Y[0], Y[1], np.nan)
    with refused("y_minus must have shape"):
        fw.textbook.starpolate(NET, X[0], X[1], Y[0], Y[1][:2], 0.5)
