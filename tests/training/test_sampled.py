"""Classification at infinite width: targets, dynamics, and real networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused
from helpers.trained_networks import cross_entropy, pulls, train

import finitewidth as fw
from finitewidth.training.infinite.sampled import gaussian_members

RANDOM = np.random.default_rng(11)
X, X_TEST = RANDOM.normal(size=(6, 3)), RANDOM.normal(size=(4, 3))
LABELS = np.array([0, 1, 2, 0, 1, 2])
SOFT = fw.losses.one_hot(LABELS, 3, smoothing=0.2)
HARD = fw.losses.one_hot(LABELS, 3)
NET = fw.MLP((3, 8, 8, 3), "tanh", C_b=0.1, C_W=1.3)
LOSS = fw.CrossEntropy()


def test_labels_become_probabilities_and_outputs_and_come_back():
    np.testing.assert_allclose(SOFT[0], [0.8, 0.1, 0.1])
    np.testing.assert_allclose(SOFT.sum(axis=1), 1, rtol=1e-15)
    np.testing.assert_array_equal(HARD, np.eye(3)[LABELS])
    for temperature in (1.0, 2.5):
        y = fw.losses.outputs_of(SOFT, temperature=temperature)
        np.testing.assert_allclose(y.mean(axis=1), 0, atol=1e-15)
        np.testing.assert_allclose(jax.nn.softmax(y / temperature), SOFT, rtol=1e-14)
    shift = RANDOM.normal(size=(6, 1))
    np.testing.assert_allclose(jax.nn.softmax(fw.losses.outputs_of(SOFT) + shift), SOFT, rtol=1e-13)


def test_shifts_of_all_targets_do_not_change_predicted_probabilities():
    """PDLT section 10.2.3."""
    y = fw.losses.outputs_of(SOFT)
    shift = RANDOM.normal(size=(6, 1))
    first, second = (fw.predict(NET, X, t, X_TEST, order=0).mean for t in (y, y + shift))
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_allclose(jax.nn.softmax(first), jax.nn.softmax(second), rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("temperature", [2.0, 1.0])
def test_the_end_of_training_is_what_long_descent_reaches(temperature):
    """Member by member: z(0) of 5 members, descended until nothing moves, against the closed form."""
    loss = fw.CrossEntropy(temperature)
    both = fw.kernels(NET, np.concatenate([X, X_TEST]))
    K, Theta = both.K, both.Theta
    z = start = gaussian_members(K, 5, 3, 0)
    for _ in range(40_000):
        q = jax.nn.softmax(z[:, :6] / temperature)
        z = z - 0.15 * temperature * (Theta[:, :6] @ (q - SOFT))
    gain = Theta[:, :6] @ np.linalg.inv(Theta[:6, :6])
    centred = start - start.mean(axis=2, keepdims=True)
    y = fw.losses.outputs_of(SOFT, temperature=temperature)
    expected = start - np.einsum("da,mai->mdi", gain, centred[:, :6] - y)  # the component mean never moves
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-4)
    theory = fw.predict(NET, X, SOFT, X_TEST, loss=loss, order=0)
    np.testing.assert_allclose(theory.mean, gain[6:] @ y, rtol=1e-8, atol=1e-9)
    L = np.eye(10)
    L[:, :6] -= gain
    own, common = (L @ K @ L.T)[6:, 6:], K[6:, 6:]
    third = np.full((3, 3), 1 / 3)
    covariance = np.einsum("ab,ij->aibj", own, np.eye(3) - third) + np.einsum("ab,ij->aibj", common, third)
    np.testing.assert_allclose(theory.covariance, covariance, rtol=1e-8, atol=1e-10)


THREE = fw.FunctionSpace(members=3, key=4)


def test_descent_steps_are_the_iteration_in_function_space():
    rate, steps = 0.05, 40
    algorithm = fw.GradientDescent(rate, steps)
    prediction = fw.predict(NET, X, HARD, X_TEST, loss=LOSS, algorithm=algorithm, order=0, method=THREE)
    both = fw.kernels(NET, np.concatenate([X, X_TEST]))
    z = gaussian_members(both.K, 3, 3, 4)
    for _ in range(steps):
        z = z - rate * np.einsum("da,mai->mdi", both.Theta[:, :6], jax.nn.softmax(z[:, :6]) - HARD)
    np.testing.assert_allclose(prediction.outputs, z[:, 6:], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(prediction.probabilities_of_members, jax.nn.softmax(z[:, 6:]), rtol=1e-10)


def test_flow_is_the_limit_of_small_steps():
    """Extrapolated to zero learning rate, descent at time 1 agrees with the integrated flow."""
    flow = fw.trajectory(NET, X, HARD, X_TEST, loss=LOSS, times=[1.0, 0.0], order=0, method=THREE)

    def descended(rate):
        steps = [round(1 / rate)]
        algorithm = fw.GradientDescent(rate)
        path = fw.trajectory(
            NET, X, HARD, X_TEST, loss=LOSS, algorithm=algorithm, times=steps, order=0, method=THREE
        )
        return path[0].outputs

    coarse, fine = descended(1e-2), descended(5e-3)
    np.testing.assert_allclose(flow[0].outputs, 2 * fine - coarse, rtol=0, atol=3e-5)
    assert np.abs(coarse - fine).max() > 3e-4  # there was something to extrapolate
    start = gaussian_members(fw.kernels(NET, np.concatenate([X, X_TEST])).K, 3, 3, 4)
    np.testing.assert_array_equal(flow[1].outputs, start[:, 6:])


@pytest.mark.long
def test_long_flow_arrives_at_the_end_of_training():
    """1600 members: mean, covariance and standard deviation within four standard errors of the end."""
    flow, drawn = fw.GradientFlow(600.0), fw.FunctionSpace(members=1600, key=1)
    late = fw.predict(NET, X, SOFT, X_TEST, loss=LOSS, algorithm=flow, order=0, method=drawn)
    end = fw.predict(NET, X, SOFT, X_TEST, loss=LOSS, order=0)
    assert np.abs((late.mean.value - end.mean) / late.mean.stderr).max() < 4
    covariance = late.covariance
    assert np.abs((covariance.value - end.covariance) / covariance.stderr).max() < 4
    std = late.std
    assert np.abs((std.value - end.std) / std.stderr).max() < 4


@pytest.mark.long
def test_real_networks_trained_on_cross_entropy_are_distributed_as_sampled(key):
    """256 erf networks of width 512, one-hot labels, 20 steps, against 6000 sampled members."""
    net = fw.MLP((3, 512, 3), "erf", C_b=0.1, C_W=1.5, lambda_b=1.0, lambda_W=1.5)
    rate, steps = 0.15, 20
    (real,) = train(
        net, X, HARD, X_TEST, key, learning_rate=rate, steps=(steps,), members=256, loss=cross_entropy
    )
    algorithm = fw.GradientDescent(rate, steps)
    drawn = fw.FunctionSpace(members=6000, key=2)
    theory = fw.predict(net, X, HARD, X_TEST, loss=LOSS, algorithm=algorithm, order=0, method=drawn)
    stderr = np.hypot(real.std(axis=0, ddof=1) / np.sqrt(256), theory.mean.stderr)
    assert np.abs((real.mean(axis=0) - theory.mean.value) / stderr).max() < 4
    of_covariance = pulls(real, theory.mean.value, theory.covariance.value)[1]
    assert np.abs(of_covariance).max() < 4
    assert np.abs(theory.mean.value).max() > 10 * stderr.max()  # training is seen


@pytest.mark.long
def test_real_networks_feel_the_temperature():
    """dL/dz of the trainer is the gradient of the loss, and the loss is that of `test_loss`."""
    loss = fw.CrossEntropy(2.5)
    z = jnp.asarray(RANDOM.normal(size=(6, 3)))
    value, residual = loss.value(z, jnp.asarray(SOFT)), loss.gradient(z, jnp.asarray(SOFT))
    slope = jax.grad(lambda z: -jnp.sum(jnp.asarray(SOFT) * jax.nn.log_softmax(z / 2.5)))(z)
    np.testing.assert_allclose(residual, slope, rtol=1e-12, atol=1e-14)
    certain = fw.records.Prediction(
        NET, fw.GradientFlow(), 0, np.asarray(z), ((np.eye(3), np.zeros((6, 6))),), 1.0, 0.0
    )
    np.testing.assert_allclose(value, certain.test_loss(SOFT, loss=loss).total, rtol=1e-12)


def test_cross_entropy_overfits_and_early_stopping_helps():
    random = np.random.default_rng(0)
    inputs, held_out = random.normal(size=(20, 3)), random.normal(size=(20, 3))
    net = fw.MLP((3, 8, 8, 2), "relu", C_W=2.0)
    labels = [(points[:, 0] > 0).astype(int) for points in (inputs, held_out)]
    wrong = random.random(20) < 0.25
    targets = fw.losses.one_hot(np.where(wrong, 1 - labels[0], labels[0]), 2)
    path = fw.trajectory(
        net, inputs, targets, held_out, loss=LOSS, times=[0.01, 0.3, 30.0], order=0,
        method=fw.FunctionSpace(members=200),
    )  # fmt: skip
    best = path.stopping_time(fw.losses.one_hot(labels[1], 2), loss=LOSS)
    assert best.time == 0.3 and best.loss.stderr > 0


@pytest.mark.parametrize(
    "targets, change, message",
    [
        (HARD, {}, "one-hot labels.*training has no end; stop at a finite time, or use fw.losses.one_hot"),
        (SOFT + 0.1, {}, "must hold probabilities, but row 0 sums to 1.3"),
        (LABELS, {}, r"integer labels.*fw.losses.one_hot\(Y_train, 3\)"),
        (SOFT, dict(ridge=1.0), "ridge and cutoff"),
        (
            SOFT,
            dict(algorithm=fw.algorithms.Schedule([0.1])),
            r"algorithm=Schedule\(1 updates\) is for loss=fw.MSE",
        ),
        (
            SOFT,
            dict(algorithm=fw.GradientDescent(50.0)),
            "learning_rate=50 is not below 2 / .* times the largest curvature 0.5 of CrossEntropy",
        ),
        (HARD, dict(algorithm=fw.GradientFlow(1e9)), "times the shortest time scale of learning"),
    ],
)
def test_bad_input_is_named(targets, change, message):
    with refused(message):
        fw.predict(NET, X, targets, X_TEST, loss=LOSS, order=0, **change)


def test_bad_labels_are_named():
    with refused("labels must lie between 0 and 1, got 2"):
        fw.losses.one_hot(LABELS, 2)
    with refused("labels must be whole numbers"):
        fw.losses.one_hot(LABELS + 0.5, 3)
    with refused("smoothing must lie between 0 and 1"):
        fw.losses.one_hot(LABELS, 3, smoothing=1.0)
    with refused("row 0 of probabilities has an entry of zero"):
        fw.losses.outputs_of(HARD)
    with refused("temperature must be a positive number, got 0"):
        fw.CrossEntropy(0)
