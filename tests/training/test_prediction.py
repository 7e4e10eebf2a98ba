"""The trained ensemble at infinite width: closed forms, other programs, and real networks."""

import math
import pickle

import numpy as np
import pytest
from helpers.problems import as_for_users, refused
from helpers.trained_networks import pulls, train
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel
from sklearn.kernel_ridge import KernelRidge

import finitewidth as fw
from finitewidth.core.inputs import input_numbers
from finitewidth.training.infinite.conditioning import equal_rows

RANDOM = np.random.default_rng(1)
X, Y = RANDOM.normal(size=(9, 3)), RANDOM.normal(size=(9, 2))
X_TEST = RANDOM.normal(size=(5, 3))
NETWORKS = {
    "tanh": fw.MLP((3, 8, 8, 2), "tanh", C_b=0.1, C_W=1.3, lambda_b=0.5, lambda_W=0.8),
    "relu": fw.MLP((3, 8, 8, 2), "relu", C_b=0.0, C_W=2.0),
    "gelu": fw.MLP((3, 8, 2), "gelu", C_b=(0.2, 0.0), C_W=(1.0, 1.5), lambda_b=(0.0, 1.0)),
    "one layer": fw.MLP((12, 2), "linear", C_b=0.1),
}


@pytest.fixture(params=NETWORKS.values(), ids=NETWORKS.keys())
def problem(request):
    net = request.param
    width = net.widths[0]
    inputs = np.random.default_rng(2).normal(size=(14, width))
    return net, inputs[:9], Y, inputs[9:]


def written_out(net, X, Y, X_test):
    """(10.40) and (10.41) term by term, with an explicit inverse."""
    both = fw.kernels(net, np.concatenate([X, X_test]))
    K, Theta, N = both.K, both.Theta, len(X)
    inverse = np.linalg.inv(Theta[:N, :N])
    gain = Theta[N:, :N] @ inverse
    covariance = K[N:, N:] - gain @ K[:N, N:] - K[N:, :N] @ gain.T + gain @ K[:N, :N] @ gain.T
    return gain @ Y, covariance


def test_mean_and_covariance_are_those_of_the_book(problem):
    net, X, Y, X_test = problem
    prediction = fw.predict(net, X, Y, X_test, order=0)
    mean, covariance = written_out(net, X, Y, X_test)
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-9, atol=1e-10)
    expected = np.einsum("ij,ab->aibj", np.eye(2), covariance)
    np.testing.assert_allclose(prediction.covariance, expected, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(prediction.std**2, np.diag(covariance)[:, None] * [1, 1], rtol=1e-8)
    assert prediction.covariance.shape == (5, 2, 5, 2) and prediction.std.shape == (5, 2)
    assert prediction.infinite_width is prediction and prediction.contributions == {}


def test_training_data_are_fitted_with_certainty(problem):
    net, X, Y, _ = problem
    prediction = fw.predict(net, X, Y, order=0)
    np.testing.assert_allclose(prediction.mean, Y, rtol=0, atol=1e-9 * prediction.condition / 1e3 + 1e-9)
    assert prediction.std.max() < 1e-5


def test_covariance_is_positive_semidefinite(problem):
    net, X, Y, X_test = problem
    factors = fw.predict(net, X, Y, np.concatenate([X, X_test]), order=0).factors
    values = np.linalg.eigvalsh(factors[0][1])
    assert values.min() > -1e-10 * values.max()


class Given(Kernel):
    """A kernel of scikit-learn that looks up one of ours."""

    def __init__(self, net):
        self.net = net

    def __call__(self, X, Y=None, eval_gradient=False):
        return fw.kernels(self.net, X, Y).K

    def diag(self, X):
        return np.diag(fw.kernels(self.net, X).K).copy()

    def is_stationary(self):
        return False


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_posterior_is_that_of_scikit_learn(name):
    net, noise = NETWORKS[name], 0.05
    peer = GaussianProcessRegressor(Given(net), alpha=noise, optimizer=None).fit(X, Y[:, 0])
    mean, covariance = peer.predict(X_TEST, return_cov=True)
    ours = fw.bayes.posterior(net, X, Y, X_TEST, noise=noise, order=0)
    np.testing.assert_allclose(ours.mean[:, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(ours.factors[0][1], covariance, rtol=1e-9, atol=1e-11)
    one = fw.bayes.evidence(net.replace(widths=(*net.widths[:-1], 1)), X, Y[:, :1], noise=noise, order=0)
    np.testing.assert_allclose(one.value, peer.log_marginal_likelihood_value_, rtol=1e-9)


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_ridge_is_kernel_ridge_regression(name):
    net, ridge = NETWORKS[name], 0.3
    peer = KernelRidge(alpha=ridge, kernel="precomputed").fit(fw.kernels(net, X).Theta, Y)
    expected = peer.predict(fw.kernels(net, X_TEST, X).Theta)
    np.testing.assert_allclose(fw.predict(net, X, Y, X_TEST, order=0, ridge=ridge).mean, expected, rtol=1e-9)


def test_last_layer_training_is_bayesian_inference():
    """(10.46)-(10.49): Theta = K, and the trained ensemble is the posterior."""
    net = fw.bayes.rates(NETWORKS["tanh"])
    kernels = fw.kernels(net, X)
    np.testing.assert_allclose(kernels.Theta, kernels.K, rtol=1e-13)
    trained, posterior = (
        fw.predict(net, X, Y, X_TEST, order=0),
        fw.bayes.posterior(net, X, Y, X_TEST, order=0),
    )
    np.testing.assert_allclose(trained.mean, posterior.mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(trained.covariance, posterior.covariance, rtol=1e-6, atol=1e-9)


def test_blocks_of_test_inputs_give_the_same(monkeypatch):
    net = NETWORKS["relu"]
    fitted = fw.fit(net, X, Y)
    whole = fitted.predict(X_TEST)
    monkeypatch.setattr("finitewidth.training.infinite.fitting.BLOCK", 2)
    np.testing.assert_allclose(fitted.mean(X_TEST), whole.mean, rtol=1e-12)
    np.testing.assert_allclose(fitted.std(X_TEST), whole.std[:, 0], rtol=1e-9)
    assert pickle.loads(pickle.dumps(fitted)).mean(X_TEST).shape == (5, 2)


# --- algorithms --------------------------------------------------------------------------------------


def test_every_algorithm_that_trains_to_the_end_predicts_the_same():
    net = NETWORKS["tanh"]
    rate = fw.textbook.spectrum(net, X).largest_learning_rate / 3
    expected = fw.predict(net, X, Y, X_TEST, order=0)
    for algorithm in (fw.Newton(), fw.TwoStep(), fw.GradientDescent(rate)):
        prediction = fw.predict(net, X, Y, X_TEST, algorithm=algorithm, order=0)
        np.testing.assert_array_equal(prediction.mean, expected.mean)


def test_newton_step_is_an_update_with_the_inverse_ntk_as_newton_tensor():
    """(10.27): one step lands on the minimum."""
    net = NETWORKS["tanh"]
    step = fw.algorithms.Schedule([np.linalg.inv(fw.kernels(net, X).Theta)])
    prediction = fw.predict(net, X, Y, X_TEST, algorithm=step, order=0)
    expected = fw.predict(net, X, Y, X_TEST, algorithm=fw.Newton(), order=0)
    np.testing.assert_allclose(prediction.mean, expected.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(prediction.covariance, expected.covariance, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", range(8))
def test_the_end_of_training_does_not_depend_on_the_way(seed):
    """(10.35): random learning rates, Newton tensors and mini-batches, then one leap to the minimum."""
    random = np.random.default_rng(seed)
    net = NETWORKS["tanh"]
    Theta = fw.kernels(net, X).Theta
    largest = np.linalg.eigvalsh(Theta)[-1]
    updates: list = []
    for _ in range(random.integers(3, 30)):
        rate = random.uniform(0.1, 1.9) / largest
        kind = random.integers(3)
        if kind == 0:
            updates.append(rate)
        elif kind == 1:
            updates.append(rate * (random.random(9) < 0.4))
        else:
            root = random.normal(size=(9, 9)) / 3
            updates.append(rate / 3 * (np.eye(9) + root @ root.T))
    updates.append(np.linalg.inv(Theta))
    prediction = fw.predict(net, X, Y, X_TEST, algorithm=fw.algorithms.Schedule(updates), order=0)
    expected = fw.predict(net, X, Y, X_TEST, order=0)
    np.testing.assert_allclose(prediction.mean, expected.mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(prediction.covariance, expected.covariance, rtol=1e-6, atol=1e-8)


def test_schedules_follow_the_networks_step_by_step():
    """z(t+1) = z(t) - Theta M (z(t) - y), for one z(0)."""
    net, random = NETWORKS["relu"], np.random.default_rng(3)
    both = fw.kernels(net, np.concatenate([X, X_TEST]))
    Theta = both.Theta
    updates = [0.02, 0.05 * (random.random(9) < 0.5), 0.01 * random.normal(size=(9, 9))]
    z = start = np.linalg.cholesky(both.K) @ random.normal(size=(14, 2))
    for update in updates:
        full = update * np.eye(9) if np.ndim(update) < 2 else update
        z = z - Theta[:, :9] @ full @ (z[:9] - Y)
    mean = fw.predict(net, X, Y, X_TEST, algorithm=fw.algorithms.Schedule(updates), order=0).mean
    shifted = fw.predict(
        net, X, Y - start[:9], X_TEST, algorithm=fw.algorithms.Schedule(updates), order=0
    ).mean
    np.testing.assert_allclose(start[9:] + shifted, z[9:], rtol=1e-10, atol=1e-11)
    assert np.abs(mean - shifted).max() > 0.01  # the targets did matter


def test_vanishing_ridge_of_repeated_inputs_averages_their_targets():
    """The limit a -> 0+ with two equal inputs: as if both had the mean of their targets."""
    net = NETWORKS["tanh"]
    twice, targets = np.concatenate([X, X[:1]]), np.concatenate([Y, Y[:1] + 2.0])
    merged = Y.copy()
    merged[0] += 1.0
    expected = fw.predict(net, X, merged, X_TEST, order=0)
    limit = fw.predict(net, twice, targets, X_TEST, order=0, cutoff=1e-12)
    np.testing.assert_allclose(limit.mean, expected.mean, rtol=1e-7, atol=1e-8)
    small = fw.predict(net, twice, targets, X_TEST, order=0, ridge=1e-8)
    np.testing.assert_allclose(small.mean, expected.mean, rtol=1e-4, atol=1e-5)


# --- real networks -----------------------------------------------------------------------------------


@pytest.mark.long
def test_trained_networks_are_distributed_as_predicted(key):
    """200 erf networks of width 512 at times 1, 5 and 10: means and covariances within four standard errors.

    The setting of the prediction tests of neural-tangents: W_std 1.2, b_std 0.05, four training and six test
    inputs. At this width corrections of order 1/n stay below the standard errors of 200 members.
    """
    net = fw.MLP((3, 512, 1), "erf", C_b=0.05**2, C_W=1.2**2, lambda_b=0.05**2, lambda_W=1.2**2)
    x, y, x_test = X[:4], Y[:4, :1], np.concatenate([X_TEST, X[8:]])
    rate, times = 0.1, (0, 1, 5, 10)
    steps = [round(time / rate) for time in times]
    sampled = train(net, x, y, x_test, key, learning_rate=rate, steps=steps, members=200)
    path = fw.trajectory(net, x, y, x_test, times=steps, algorithm=fw.GradientDescent(rate), order=0)
    for members, theory in zip(sampled, path.predictions, strict=True):
        of_mean, of_covariance = pulls(members, theory.mean, theory.covariance)
        assert np.abs(of_mean).max() < 4 and np.abs(of_covariance).max() < 4
    assert np.abs(pulls(sampled[-1], path[0].mean, path[0].covariance)[0]).max() > 10  # training is seen
    flow = fw.trajectory(net, x, y, x_test, times=times, order=0)
    np.testing.assert_allclose(flow.mean, path.mean, rtol=0, atol=0.1)  # small steps follow the flow


@pytest.mark.long
def test_deeper_networks_with_two_outputs_are_distributed_as_predicted(key):
    """150 tanh networks with two hidden layers of width 128, 12 steps."""
    net = fw.MLP((3, 128, 128, 2), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5, lambda_W=1.0)
    x, y, x_test = X[:4], Y[:4], X_TEST[:2]
    rate = fw.textbook.spectrum(net, x).largest_learning_rate / 4
    (members,) = train(net, x, y, x_test, key, learning_rate=rate, steps=(12,), members=150)
    theory = fw.predict(net, x, y, x_test, algorithm=fw.GradientDescent(rate, 12), order=0)
    of_mean, of_covariance = pulls(members, theory.mean, theory.covariance)
    assert np.abs(of_mean).max() < 4 and np.abs(of_covariance).max() < 4


# --- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(Y_train=Y[:, :1]), r"Y_train must have shape \(9, 2\)"),
        (dict(Y_train=Y[:5]), "Y_train has 5 rows but X_train has 9 samples"),
        (dict(Y_train=np.arange(9) % 2), r"integer labels.*fw.losses.one_hot\(Y_train, 2\)"),
        (dict(Y_train=np.where(Y > 2, np.nan, Y * np.inf)), "Y_train has NaN or infinity in row 0"),
        (dict(X_train=X[:, :2]), "X_train has 2 columns but the network takes n_0 = 3"),
        (dict(X_test=X_TEST[0]), r"X_test must have shape \(samples, 3\)"),
        (dict(ridge=-1.0), "ridge must be zero or a positive number, got -1"),
        (dict(cutoff=1.5), "cutoff must lie between 0 and 1"),
        (dict(order=2), "order must be 0"),
        (dict(loss="mse"), "loss must be fw.MSE"),
        (dict(algorithm="adam"), "algorithm adam moves each parameter by a nonlinear function"),
        (
            dict(algorithm=fw.algorithms.Schedule([np.eye(4)])),
            "update 0 of the schedule is made for 4 training samples",
        ),
        (dict(algorithm=fw.algorithms.Schedule([1e200] * 9)), "the schedule diverges at step"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = dict(X_train=X, Y_train=Y, X_test=X_TEST, order=0) | change
    with refused(message):
        fw.predict(NETWORKS["tanh"], **arguments)


@pytest.mark.parametrize("steps", [10, math.inf])
def test_a_learning_rate_beyond_stability_is_refused(steps):
    net = NETWORKS["tanh"]
    limit = fw.textbook.spectrum(net, X).largest_learning_rate
    with refused(r"learning_rate=.* is not below 2 / .*lower it"):
        fw.predict(net, X, Y, X_TEST, algorithm=fw.GradientDescent(limit * 1.0001, steps), order=0)
    algorithm = fw.GradientDescent(limit * 0.9999, steps)
    assert np.isfinite(fw.predict(net, X, Y, X_TEST, algorithm=algorithm, order=0).mean).all()


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_repeated_inputs_are_named(name):
    net, twice = NETWORKS[name], np.concatenate([X, X[4:5]])
    with refused(r"condition number inf.*rows 4 and 9 of X_train are equal; drop one, or pass ridge="):
        fw.predict(net, twice, np.concatenate([Y, Y[4:5]]), X_TEST, order=0)
    with refused(r"rows 4 and 9 of X_train are equal but their targets differ by 2, so no network fits both"):
        fw.predict(net, twice, np.concatenate([Y, Y[4:5] + 2]), X_TEST, order=0)
    stopped = fw.predict(
        net, twice, np.concatenate([Y, Y[4:5]]), X_TEST, algorithm=fw.GradientFlow(1.0), order=0
    )
    assert np.isfinite(stopped.mean).all() and stopped.condition > 1e12


def test_parallel_inputs_without_biases_are_named():
    scaled = np.concatenate([X, 3 * X[2:3]])
    targets = np.concatenate([Y, 3 * Y[2:3]])
    net = fw.MLP((3, 8, 8, 2), "relu", C_W=2.0, lambda_b=0.0)
    with refused("rows 2 and 9 of X_train are parallel and without biases"):
        fw.predict(net, scaled, targets, X_TEST, order=0)
    with refused("row 9 of X_train is zero and the network has no biases"):
        fw.predict(net, np.concatenate([X, np.zeros((1, 3))]), targets, X_TEST, order=0)
    assert fw.predict(net.replace(lambda_b=1.0), scaled, targets, X_TEST, order=0).condition < 1e8
    tanh = fw.MLP((3, 8, 8, 2), "tanh", lambda_b=0.0)  # tells lengths apart
    assert fw.predict(tanh, scaled, targets, X_TEST, order=0).condition < 1e8


def test_too_many_inputs_for_the_features_are_refused_with_the_condition_number():
    net = fw.MLP((3, 8, 2), "linear", C_b=0.1)
    with refused(r"condition number .*e\+1.*too many for the features"):
        fw.predict(net, X, Y, X_TEST, order=0)


def test_nearly_equal_inputs_are_refused_or_reported():
    near = np.concatenate([X, X[:1] + 1e-9])
    with refused("condition number"):
        fw.predict(NETWORKS["tanh"], near, np.concatenate([Y, Y[:1]]), X_TEST, order=0)
    far = np.concatenate([X, X[:1] + 1e-3])
    assert (
        1e5 < fw.predict(NETWORKS["tanh"], far, np.concatenate([Y, Y[:1]]), X_TEST, order=0).condition < 1e14
    )


def test_a_step_activation_has_a_posterior_but_no_training():
    net = fw.MLP((3, 8, 2), "perceptron", C_b=0.1)
    with refused("has no neural tangent kernel"):
        fw.predict(net, X, Y, X_TEST, order=0)
    assert np.isfinite(fw.bayes.posterior(net, X, Y, X_TEST, order=0).mean).all()


def test_one_input_met_twice_has_correlation_one_to_the_last_bit():
    """A kink turns a rounding error of the correlation into 1e-8 of the NTK."""
    net = NETWORKS["relu"]
    square = fw.kernels(net, X).Theta
    with as_for_users():
        block = fw.kernels(net, X_TEST, np.concatenate([X, X_TEST])).Theta
    np.testing.assert_allclose(np.diag(block[:, 9:]), np.diag(fw.kernels(net, X_TEST).Theta), rtol=1e-14)
    repeated = fw.kernels(net, np.concatenate([X, X])).Theta
    np.testing.assert_allclose(np.diag(repeated[:9, 9:]), np.diag(square), rtol=1e-14)


def test_equal_rows_are_found_wherever_they_are():
    """Against comparison of all pairs, with rows that differ in one component only."""
    random = np.random.default_rng(7)
    inputs = random.integers(0, 2, size=(60, 40)).astype(float) * np.r_[np.zeros(37), np.ones(3)]
    other = np.concatenate([inputs[:5], -inputs[5:9], inputs[9:12] + 1])
    for second in (None, other):
        first, numbers = input_numbers(inputs, second)
        columns = inputs if second is None else second
        expected = [[np.array_equal(one, two) for two in columns] for one in inputs]
        np.testing.assert_array_equal(first[:, None] == numbers[None, :], expected)
        assert np.any(expected)
    assert equal_rows(random.normal(size=(20, 3))) is None
    assert equal_rows(np.array([[1.0], [2.0], [3.0], [-0.0], [2.0], [0.0], [2.0]])) == (1, 4)
