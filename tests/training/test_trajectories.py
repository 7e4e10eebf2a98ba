"""The ensemble at every time: against brute-force iteration, limits, and what an eigenbasis must not lose."""

import math

import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw

RANDOM = np.random.default_rng(5)
X, Y, X_TEST = RANDOM.normal(size=(7, 3)), RANDOM.normal(size=(7, 2)), RANDOM.normal(size=(4, 3))
NET = fw.MLP((3, 8, 8, 2), "tanh", C_b=0.1, C_W=1.3)
BOTH = fw.kernels(NET, np.concatenate([X, X_TEST]))
RATE = 0.7 / np.linalg.eigvalsh(BOTH.Theta[:7, :7])[-1]


def brute_force(rate: float, steps: int, ridge: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance by stepping the linear map z -> z - rate Theta (z_A - y) and its dual weights."""
    size, N = len(BOTH.K), len(X)
    L, mean = np.eye(size), np.zeros((size, 2))
    moved, dual = np.zeros((N, size)), np.zeros((N, 2))  # z = z(0) - Theta (moved z(0)) and Theta dual
    for _ in range(steps):
        moved, dual = (
            moved + rate * (L[:N] - ridge * moved),
            dual - rate * (mean[:N] - Y + ridge * dual),
        )
        L = np.eye(size) - BOTH.Theta[:, :N] @ moved
        mean = BOTH.Theta[:, :N] @ dual
    return mean, L @ BOTH.K @ L.T


@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_descent_is_what_iteration_gives(ridge):
    steps = [0, 1, 2, 17, 200]
    algorithm = fw.GradientDescent(RATE)
    everywhere = np.concatenate([X, X_TEST])
    path = fw.trajectory(NET, X, Y, everywhere, times=steps, algorithm=algorithm, ridge=ridge, order=0)
    for count, prediction in zip(steps, path.predictions, strict=True):
        mean, covariance = brute_force(RATE, count, ridge)
        np.testing.assert_allclose(prediction.mean, mean, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(prediction.factors[0][1], covariance, rtol=1e-9, atol=1e-11)
        alone = fw.predict(
            NET, X, Y, everywhere, algorithm=fw.GradientDescent(RATE, count), order=0, ridge=ridge
        )
        np.testing.assert_allclose(alone.mean, mean, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(alone.factors[0][1], covariance, rtol=1e-9, atol=1e-11)


def test_a_path_goes_from_the_prior_to_the_closed_form():
    path = fw.trajectory(NET, X, Y, X_TEST, times=[0.0, 1.0, math.inf], order=0)
    assert not path[0].mean.any()
    np.testing.assert_array_equal(path[0].factors[0][1], fw.kernels(NET, X_TEST).K)
    end = fw.predict(NET, X, Y, X_TEST, order=0)
    np.testing.assert_allclose(path[2].mean, end.mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(path[2].covariance, end.covariance, rtol=1e-9, atol=1e-11)
    late = fw.trajectory(NET, X, Y, X_TEST, times=[1e9], order=0)
    np.testing.assert_allclose(late.mean[0], end.mean, rtol=1e-9, atol=1e-11)
    assert path.mean.shape == (3, 4, 2) and path.std.shape == (3, 4, 2) and len(path) == 3


def test_small_steps_follow_the_flow():
    """The difference between descent and flow falls in proportion to the learning rate."""
    flow = fw.trajectory(NET, X, Y, X_TEST, times=[2.0], order=0).mean[0]

    def gap(rate):
        steps = [round(2.0 / rate)]
        path = fw.trajectory(NET, X, Y, X_TEST, times=steps, algorithm=fw.GradientDescent(rate), order=0)
        return np.abs(path.mean[0] - flow).max()

    assert gap(1e-3) < 0.02
    np.testing.assert_allclose(gap(1e-3) / gap(1e-4), 10, rtol=0.05)


def test_flow_obeys_its_differential_equation():
    """d mean/dt = -Theta (mean_A - y), by central differences of size h: error h^2."""
    time, h = 0.3, 1e-4
    everywhere = np.concatenate([X, X_TEST])
    path = fw.trajectory(NET, X, Y, everywhere, times=[time - h, time, time + h], order=0)
    slope = (path.mean[2] - path.mean[0]) / (2 * h)
    expected = -BOTH.Theta[:, :7] @ (path.mean[1][:7] - Y)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-5)


def test_training_residual_decays_mode_by_mode():
    """On the training set the mean residual is -(1 - eta Theta)^t y and the covariance U K U^T."""
    steps = 25
    path = fw.trajectory(NET, X, Y, times=[steps], algorithm=fw.GradientDescent(RATE), order=0)
    U = np.linalg.matrix_power(np.eye(7) - RATE * BOTH.Theta[:7, :7], steps)
    np.testing.assert_allclose(path.mean[0] - Y, -U @ Y, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(path[0].factors[0][1], U @ BOTH.K[:7, :7] @ U.T, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("l", [0.0, 1e-300, 1e-18, 1e-9, 1e-3, 0.9, 1.0, 1.7])
def test_small_eigenvalues_keep_their_digits(l):
    """(1 - (1 - eta l)^t)/l as a sum of powers, and (1 - e^(-l t))/l as a series."""
    eta, steps, time = 1.0, 40, 3.0
    descent = sum((1 - eta * l) ** s for s in range(steps)) * eta
    flow = sum((-l) ** k * time ** (k + 1) / math.factorial(k + 1) for k in range(40))
    one = np.asarray([l])
    np.testing.assert_allclose(fw.GradientDescent(eta, steps).response(one), descent, rtol=1e-12)
    np.testing.assert_allclose(fw.GradientFlow(time).response(one), flow, rtol=1e-12)


def test_nothing_is_refused_for_being_singular_before_the_end():
    twice, targets = np.concatenate([X, X[:2]]), np.concatenate([Y, Y[:2] + 1])
    path = fw.trajectory(NET, twice, targets, X_TEST, times=[0.5, 50.0, 1e6], order=0)
    merged = Y.copy()
    merged[:2] += 0.5
    # two equal inputs learn their mean target, twice as fast; at the end speed does not matter
    end = fw.predict(NET, X, merged, X_TEST, order=0)
    np.testing.assert_allclose(path.mean[-1], end.mean, rtol=1e-6, atol=1e-6)
    with refused("rows 0 and 7 of X_train are equal but their targets differ by 1"):
        fw.trajectory(NET, twice, targets, X_TEST, times=[1.0, math.inf], order=0)


def test_early_stopping_finds_the_lowest_expected_loss():
    noisy = Y + RANDOM.normal(size=Y.shape)
    times = np.geomspace(0.01, 1e4, 40)
    path = fw.trajectory(NET, X, noisy, X, times=times, order=0)
    best = path.stopping_time(Y)
    losses = [one.total for one in best.losses]
    assert losses[best.index] == min(losses) == best.loss.total
    assert best.time == times[best.index] and 0 < best.index < 39  # noise is not worth learning
    by_hand = ((path.mean[3] - Y) ** 2).sum() / 2 + (path.std[3] ** 2).sum() / 2
    np.testing.assert_allclose(losses[3], by_hand, rtol=1e-10)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(times=[]), "times must be a row of one or more numbers"),
        (dict(times=[-1.0]), "time must be zero or a positive number"),
        (dict(times=[1.5], algorithm=fw.GradientDescent(0.01)), "steps must be a whole number"),
        (dict(times=[1.0], algorithm=fw.Newton()), "a trajectory needs fw.GradientFlow"),
        (dict(times=[1], algorithm=fw.GradientDescent(9.0)), "learning_rate=9 is not below"),
    ],
)
def test_bad_times_are_named(change, message):
    with refused(message):
        fw.trajectory(NET, X, Y, X_TEST, **change, order=0)


# --- the spectrum ------------------------------------------------------------------------------------


def test_spectrum_says_how_fast_and_how_long(tmp_path):
    spectrum = fw.textbook.spectrum(NET, X)
    Theta = BOTH.Theta[:7, :7]
    np.testing.assert_allclose(spectrum.eigenvalues, np.linalg.eigvalsh(Theta), rtol=1e-10)
    np.testing.assert_allclose(spectrum.condition, np.linalg.cond(Theta), rtol=1e-9)
    np.testing.assert_allclose(spectrum.largest_learning_rate, 2 / np.linalg.norm(Theta, 2), rtol=1e-12)
    np.testing.assert_allclose(spectrum.time_scales * spectrum.eigenvalues, 1, rtol=1e-14)
    np.testing.assert_allclose(
        spectrum.learned(fw.GradientFlow(2.0)), 1 - np.exp(-2.0 * spectrum.eigenvalues), rtol=1e-12
    )
    np.testing.assert_allclose(spectrum.learned(fw.GradientFlow()), 1, rtol=1e-14)
    for name in ("spectrum.svg", "spectrum.png"):
        fw.plots.save(spectrum.plot(), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    with refused("path must end in .svg, .png or .pdf"):
        fw.plots.save(spectrum.plot(), tmp_path / "spectrum.txt")
