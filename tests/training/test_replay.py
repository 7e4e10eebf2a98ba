"""Order 1/n from replays of training: against eigenmodes, true training, and enumerated batches."""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import also_long, refused

import finitewidth as fw
from finitewidth.core.tasks import HERE
from finitewidth.training.replay.averages import average, draw, gathered
from finitewidth.training.replay.initial_networks import Given, InitialNetworks
from finitewidth.training.replay.polynomial_mean import mean_of_squared_error
from finitewidth.training.replay.replayed import ReplayedPrediction
from finitewidth.training.replay.trajectories import Training, corrected

RANDOM = np.random.default_rng(11)
X, Y, X_TEST = RANDOM.normal(size=(3, 3)), RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(1, 3))
WIDE = fw.MLP((3, 10**7, 10**7, 2), "tanh", C_b=0.1, C_W=1.3)  # strict in 1/n to 1e-7
NARROW = WIDE.with_widths((3, 64, 64, 2))


@pytest.fixture(scope="module")
def initial():
    inputs = np.concatenate([X, X_TEST])
    return InitialNetworks.of(fw.solve(NARROW, inputs).output.arrays, 3, 2)


# --- the squared error --------------------------------------------------------------------------------


def test_contributions_are_those_of_eigenmodes():
    """Six full-batch steps as a schedule of equal rates, and with masks of ones: to 1e-7 of the largest."""
    options = dict(X_train=X, Y_train=Y, X_test=np.concatenate([X, X_TEST]))
    known = fw.predict(WIDE, algorithm=fw.GradientDescent(0.2, 6), **options)
    largest = max(np.abs(part).max() for part in known.contributions.values())
    for algorithm in (fw.GradientDescent([0.2] * 6), fw.GradientDescent(0.2, batches=np.ones((6, 3)))):
        found = fw.predict(WIDE, algorithm=algorithm, **options)
        assert found.contributions.keys() == known.contributions.keys()
        for name, part in known.contributions.items():
            np.testing.assert_allclose(found.contributions[name], part, rtol=0, atol=1e-7 * largest)
        np.testing.assert_allclose(found.correction.value, found.mean - found.infinite_width.mean)


def test_one_step_of_a_linear_network_is_known_in_closed_form():
    """z = v w with weights of variance C, C/n: E z' = 2 eta lambda C y - 2 (eta lambda C)^2 y / n."""
    C, rate, y, eta, n = 1.3, 0.7, 0.8, 0.3, 20
    net = fw.MLP((1, n, 1), "linear", C_b=0.0, C_W=C, lambda_b=0.0, lambda_W=rate)
    found = fw.predict(net, [[1.0]], [[y]], algorithm=fw.GradientDescent([eta / 2], batches=[[2.0]]))
    step = eta * rate * C
    np.testing.assert_allclose(found.infinite_width.mean, 2 * step * y, rtol=1e-10)
    np.testing.assert_allclose(found.correction.value, -2 * step**2 * y / n, rtol=1e-8)


@dataclass(frozen=True)
class HeavyBall(fw.algorithms.AbstractAlgorithm):
    """Momentum with the rate inside of the velocity, as an algorithm of one's own."""

    learning_rate: float
    end = 4.0
    motion = "steps"
    memory = 1

    def accumulate(self, state, x, step, numbers):
        total, velocity = state
        velocity = 0.6 * velocity + self.learning_rate * x
        return total + velocity, velocity


def test_an_algorithm_of_ones_own_has_order_1(initial):
    """With one rate it does not matter where the rate stands."""
    found = []
    for algorithm in (HeavyBall(0.2), fw.GradientDescent(0.2, 4, momentum=0.6)):
        training = Training(algorithm, fw.MSE(), Y, (4,), np.arange(4))
        found.append(sum(mean_of_squared_error(initial, training, np.ones((1, 4, 3))).values()))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11)


# --- true training of a network with prescribed derivatives ---------------------------------------------


@dataclass(frozen=True)
class LogCosh(fw.losses.AbstractLoss):
    """A smooth loss with derivatives of every order."""

    def value(self, z, y):
        return jnp.sum(jnp.log(jnp.cosh(z - y)))


class Prescribed:
    """z_d = z0_d + (J + k j)_d a + k a N_d b + k^2 (a M_d a / 2 + C_d[a, a, a] / 6) of parameters (a, b).

    Its NTK is J J^T + k (J j^T + j J^T) + k^2 j j^T; its other differentials are of order k^2.
    """

    count, size = 3, 4

    def __init__(self):
        random = np.random.default_rng(2)
        N, p, r = self.size, 5, 3
        self.J, self.j = 0.5 * random.normal(size=(N, p)), 0.5 * random.normal(size=(N, p))
        self.N = 0.4 * random.normal(size=(N, p, r))
        M, C = 0.3 * random.normal(size=(N, p, p)), 0.2 * random.normal(size=(N, p, p, p))
        self.M = (M + M.transpose(0, 2, 1)) / 2
        self.C = sum(C.transpose(0, *(1 + np.array(s))) for s in itertools.permutations(range(3))) / 6
        self.z0, self.Y = random.normal(size=N), random.normal(size=(self.count, 1))

    def outputs(self, theta, k):
        a, b = theta[:5], theta[5:]
        first = (self.J + k * self.j) @ a + k * jnp.einsum("dpr,p,r->d", self.N, a, b)
        bent = jnp.einsum("dpq,p,q->d", self.M, a, a) / 2 + jnp.einsum("dpqs,p,q,s->d", self.C, a, a, a) / 6
        return self.z0 + first + k**2 * bent

    def trained(self, algorithm, masks):
        """Outputs after training at each k."""
        slope = jax.jacobian(self.outputs)

        @jax.jit
        def run(k):
            state = algorithm.begin(jnp.zeros(8))
            for step, mask in enumerate(masks):
                theta = -state[0]
                z = self.outputs(theta, k)[: self.count]
                residual = mask * jnp.tanh(z - self.Y[:, 0])
                gradient = residual @ slope(theta, k)[: self.count]
                state = algorithm.accumulate(state, gradient, jnp.float64(step), algorithm_numbers(algorithm))
            return self.outputs(-state[0], k)

        return run

    def initial(self) -> "PrescribedNetworks":
        J, j, N = self.J, self.j, self.size
        dH = np.einsum("dpq,ap,bq->dab", self.M, J, J)
        ddI = np.einsum("dpqs,ap,bq,cs->dabc", self.C, J, J, J)
        moved = np.einsum("dpr,ap->dar", self.N, J)
        ddII = np.einsum("acr,bdr->abcd", moved, moved)  # ddII_{12;34}
        tensors = {"Theta": J @ J.T, "R": ddI / 3, "S": 0.5 * ddII}
        tensors["T"] = 0.3 * ddII.transpose(0, 2, 3, 1)  # T_1342
        tensors["U"] = 0.2 * ddII.transpose(0, 3, 1, 2)  # U_1423
        none = np.zeros((N * N, 0))
        return PrescribedNetworks(tensors, self.count, 1, np.eye(N), np.eye(N), none, none, dH, j @ j.T)


def algorithm_numbers(algorithm):
    return {name: jnp.asarray(value) for name, value in algorithm.numbers.items()}


@dataclass(frozen=True, eq=False)
class PrescribedNetworks(InitialNetworks):
    """One network whose differentials are given."""

    dH: np.ndarray
    H2: np.ndarray

    def given(self, xi):
        t, dH = self.count, self.dH
        H = np.stack([self.H2[:, :t], np.zeros((self.size, t))])[None, :, :, None, :, None]
        slots = dH[:, :t, :t][None, ..., None], dH[:t, :, :t][None, ..., None]
        nothing = np.zeros((1, t, t, self.size, 1))
        return Given(H, slots[0], 0 * slots[0], slots[1], 0 * slots[1], nothing)


MASKS = np.array([[1.5, 1.5, 0], [0, 1.5, 1.5], [1.5, 0, 1.5], [1.5, 1.5, 0], [0, 1.5, 1.5]])
RATES = (0.4, 0.4, 0.3, 0.2, 0.1)


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        *also_long(dict(momentum=0.7), dict(momentum=0.7, nesterov=True)),
        dict(momentum=0.7, nesterov=True, ridge=0.2),
    ],
    ids=["plain", "heavy ball", "Nesterov", "Nesterov and ridge"],
)
def test_both_corrections_are_differences_of_true_training(options):
    """Batches of two, falling rates: even and odd differences in k, with Richardson's weights, to 1e-7."""
    network = Prescribed()
    algorithm = fw.GradientDescent(RATES, batches=MASKS, **options)
    k = 0.01 * np.arange(1, 5)
    run = network.trained(algorithm, MASKS)
    plus, minus = (np.stack([np.asarray(run(sign * step)) for step in k]) for sign in (1, -1))
    even, odd = (plus + minus) / 2 - np.asarray(run(0.0)), (plus - minus) / 2
    z2 = np.linalg.solve(np.stack([k**power for power in (2, 4, 6, 8)], axis=1), even)[0]
    z1 = np.linalg.solve(np.stack([k**power for power in (1, 3, 5, 7)], axis=1), odd)[0]
    networks = network.initial()
    training = Training(algorithm, LogCosh(), network.Y, (len(MASKS),), np.arange(network.size))
    fluctuation = network.J @ network.j.T + network.j @ network.J.T
    found = corrected(
        networks,
        training,
        jnp.asarray(MASKS)[None],
        jnp.asarray(network.z0)[None, :, None],
        jnp.asarray(fluctuation[:, : network.count])[None, :, None, :, None],
    )
    np.testing.assert_allclose(np.asarray(found.z)[0, 0, :, 0], np.asarray(run(0.0)), rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.asarray(found.z1)[0, 0, :, 0], z1, rtol=0, atol=1e-7)
    np.testing.assert_allclose(np.asarray(found.z2).sum(axis=0)[0, 0, :, 0], z2, rtol=0, atol=1e-7)
    assert np.abs(z1).max() > 0.05 and np.abs(z2).max() > 0.05


# --- averages over initial networks and batches ---------------------------------------------------------


def drawn(networks, training, batches):
    return gathered(networks, training, draw(networks, training, range(batches), (0, 1), HERE))


@pytest.mark.long
@pytest.mark.parametrize("replacement", [True, False])
def test_drawn_batches_average_to_enumerated_ones(initial, replacement):
    """Three points, batches of one, three steps: 27 schedules with replacement, 6 orders without."""
    algorithm = fw.StochasticGradientDescent(0.05, 3, 1, replacement, momentum=0.6)
    training = Training(algorithm, fw.MSE(), Y, (3,), np.arange(4))
    every = itertools.product(range(3), repeat=3) if replacement else itertools.permutations(range(3))
    masks = [3.0 * np.eye(3)[list(order)] for order in every]
    exact = np.mean(
        [sum(mean_of_squared_error(initial, training, mask[None]).values()) for mask in masks], axis=0
    )
    found = average(drawn(initial, training, 8), lambda z: z)
    pulls = (found.correction.value - exact) / found.correction.stderr
    assert np.abs(pulls).max() < 4
    assert found.correction.stderr.max() < 0.1 * np.abs(exact).max()


def test_the_sum_of_logits_has_no_correction(initial):
    """Neither the cross-entropy nor the initial distribution knows the direction (1, 1) of outputs."""
    labels = fw.losses.one_hot([0, 1, 0], 2)
    descent = fw.GradientDescent(0.2, 6, momentum=0.5)
    draws = drawn(initial, Training(descent, fw.CrossEntropy(), labels, (3, 6), np.arange(4)), 4)
    found = average(draws, lambda z: z.sum(axis=-1)).correction
    assert np.abs(found.value / found.stderr).max() < 4
    one = average(draws, lambda z: z[..., 0]).correction
    assert np.abs(one.value).max() > 20 * found.stderr.max()
    _check_record(ReplayedPrediction(NARROW, descent, fw.CrossEntropy(), fw.Sampling(), 1.0, 0.0, draws, 1))


def _check_record(prediction):
    """Parts of a record of these draws: other widths, smooth decisions, standard errors."""
    wide = prediction.with_width(640)
    np.testing.assert_allclose(10 * wide.correction.value, prediction.correction.value, rtol=1e-12)
    np.testing.assert_array_equal(wide.infinite_width.mean, prediction.infinite_width.mean)
    half = prediction.smoothed_accuracy([0, 1, 0, 1], smoothing=1.0).value
    chances = prediction.probabilities.value[np.arange(4), [0, 1, 0, 1]]
    np.testing.assert_allclose(half, chances.mean(), rtol=1e-10)
    sharp = prediction.smoothed_accuracy(np.eye(2)[[0, 1, 0, 1]], smoothing=0.1).value
    assert half < sharp < 1  # these are the classes that the networks learned, and a guess
    np.testing.assert_array_equal(prediction.sampling.stderr, prediction.stderr)
    np.testing.assert_array_equal(prediction.sampling.variance.stderr, prediction.variance_stderr)
    with refused("has smoothed_accuracy and expectation instead"):
        fw.accuracy(prediction, [0, 1, 0, 1])


@pytest.mark.long
def test_draws_of_a_linear_problem_agree_with_the_exact_mean(initial):
    """The same replays, averaged with samples and without."""
    descent = fw.GradientDescent(0.2, 4, momentum=0.5, batches=MASKS[:4])
    training = Training(descent, fw.MSE(), Y, (2, 4), np.arange(4))
    exact = sum(mean_of_squared_error(initial, training, MASKS[None, :4]).values())
    draws = drawn(initial, training, 4)
    found = average(draws, lambda z: z).correction
    assert np.abs((found.value - exact) / np.maximum(found.stderr, 1e-9)).max() < 4
    leading = fw.predict(NARROW, X, Y, np.concatenate([X, X_TEST]), algorithm=descent, order=0)
    center = jnp.asarray(average(draws, lambda z: z).leading.value)
    squares = average(draws, lambda z: (z - center) ** 2)
    np.testing.assert_allclose(center[1], leading.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(squares.leading.value[1], leading.variance, rtol=0, atol=1e-10)


# --- refusals -------------------------------------------------------------------------------------------

STEPS = fw.GradientDescent(0.1, 3, momentum=0.5)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            dict(loss=LogCosh()),
            r"order=1 with loss=LogCosh\(\) replays training step by step.* finite number",
        ),
        (
            dict(algorithm=fw.GradientDescent(0.1, momentum=0.5)),
            "has no closed end at order 1/n; give it a finite",
        ),
        (dict(algorithm=STEPS, covariance=True), "covariance=True is not known at order=1"),
        (dict(algorithm=STEPS, method=fw.LegByLeg()), "method=fw.LegByLeg.* has no meaning at order=1 with"),
        (dict(algorithm=STEPS, ridge=0.1), "or give a ridge to fw.GradientDescent"),
        (
            dict(algorithm=STEPS, X_test=X[:1] * (1 + 1e-9)),
            "has condition number .* drop inputs that are equal",
        ),
        (dict(algorithm=fw.GradientDescent(90.0, 3, momentum=0.5)), "descent diverges; lower it"),
    ],
)
def test_what_a_replay_does_not_know_is_refused(changes, message):
    options = dict(X_train=X, Y_train=Y, X_test=X_TEST) | changes
    with refused(message):
        fw.predict(NARROW, **options)
