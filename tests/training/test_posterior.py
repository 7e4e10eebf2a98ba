"""Posterior and evidence at order 1/n: worked examples, linear networks, training of the last layer."""

import warnings

import numpy as np
import pytest
from helpers.close import assert_close
from helpers.problems import refused

import finitewidth as fw
from finitewidth.gaussian.two_legs.averages import two_legs
from finitewidth.theory.vertex import fields as vertex_fields
from finitewidth.theory.vertex.fields import fields
from finitewidth.theory.vertex.interface import WholeVertex
from finitewidth.training.bayes.conditioned_prior import ConditionedPrior
from finitewidth.training.bayes.posterior_corrections import corrections, evidence_correction
from finitewidth.training.infinite.bayes import log_density
from finitewidth.training.infinite.solver import inverse

RANDOM = np.random.default_rng(18)
X, X_TEST = RANDOM.normal(size=(3, 3)), RANDOM.normal(size=(2, 3))
Y = RANDOM.normal(size=(3, 2))


def mlp(activation, n=64, outputs=2, **kwargs):
    return fw.MLP((3, n, n, outputs), activation, **{"C_b": 0.1, "C_W": 1.4, **kwargs})


# --- worked examples, with K, G1 and V given ---------------------------------------------------------


def conditioned(K, Y, train, tests, noise):
    return ConditionedPrior.of(K, Y, train, tests, inverse(K[np.ix_(train, train)].copy(), noise))


def log_prior(K, Y, train, noise):
    return log_density(inverse(K[np.ix_(train, train)].copy(), noise), Y)


def pairs_of(K):
    return np.einsum("ac,bd->abcd", K, K) + np.einsum("ad,bc->abcd", K, K)


def test_two_samples_by_hand():
    K, G1 = np.array([[1, 0.5], [0.5, 1]]), np.array([[0.2, 0.1], [0.1, 0.3]])
    vertex = WholeVertex(G1, pairs_of(K))
    Y = np.array([[2, -0.5]])
    given = conditioned(K, Y, [0], [1], 0.25)
    result = corrections(given, vertex, cumulants=True)
    assert_close(given.mean[0], [0.8, -0.2])
    assert_close(sum(result.mean.values())[0], [-0.0448, 0.0112])
    assert_close(given.covariance, [[0.8]])
    assert_close(sum(result.own.values()), [[-0.3528]])
    assert_close(result.coupling[0, :, 0], [[1.9712, -0.4928], [-0.4928, 0.1232]])
    assert_close(result.cumulants.third[0, 0, 0], [0.2432, -0.0608])
    assert_close(result.cumulants.fourth, [[[[1.1552]]]])
    assert_close([log_prior(K, Y, [0], 0.25), result.log_density], [-3.7610206177, -1.1104])
    corrected = evidence_correction(given, vertex)
    Q, derivatives = corrected.Q, corrected.derivatives
    assert_close([Q, np.trace(given.Psi) / 2, np.trace(derivatives.by_kernel)], [-1.1104, 0.56, 2.17088])


@pytest.mark.parametrize(
    "noise, mean, mean1, among, own, coupling, log_p, Q",
    [
        (
            0.0,
            [0.46846847, -0.54954955],
            [0.68738967, -1.10742283],
            0.53963964,
            -0.86464581,
            [[0.09273764, -0.11554262], [-0.11554262, 0.53892438]],
            -4.81615018,
            0.21113496,
        ),
        (
            0.1,
            [0.41940299, -0.4858209],
            [0.4666251, -0.78348388],
            0.57985075,
            -0.69711057,
            [[0.05025855, -0.04982579], [-0.04982579, 0.3510434]],
            -4.90312524,
            0.38925177,
        ),
    ],
)
def test_three_samples_by_hand(noise, mean, mean1, among, own, coupling, log_p, Q):
    f1 = np.array([[1, 0.3, 0.2], [0.3, 0.8, -0.1], [0.2, -0.1, 0.9]])
    f2 = np.array([[0.2, -0.4, 0.1], [-0.4, 0.5, 0.3], [0.1, 0.3, -0.2]])
    V = np.einsum("ab,cd->abcd", f1, f1) + np.einsum("ab,cd->abcd", f2, f2)
    K = np.array([[1, 0.3, 0.5], [0.3, 1.2, -0.2], [0.5, -0.2, 0.9]])
    G1 = np.array([[0.1, 0.05, -0.1], [0.05, -0.2, 0.1], [-0.1, 0.1, 0.3]])
    Y = np.array([[1, -0.5], [0.4, 0.8]])
    given = conditioned(K, Y, [0, 1], [2], noise)
    result = corrections(given, WholeVertex(G1, V))
    for value, expected in (
        (given.mean[0], mean),
        (sum(result.mean.values())[0], mean1),
        (given.covariance[0, 0], among),
        (sum(result.own.values())[0, 0], own),
        (result.coupling[0, :, 0], coupling),
        (log_prior(K, Y, [0, 1], noise), log_p),
        (result.log_density, Q),
    ):
        np.testing.assert_allclose(value, expected, atol=1e-8)


# --- closed forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [1, 3])
def test_deep_linear_networks_are_exact(hidden):
    """V = (L-1)(K13 K24 + K14 K23), G1 = 0: the mean is not corrected, the covariance by q."""
    n, L = 5000, hidden + 1
    net = fw.MLP((5, *[n] * hidden, 2), "linear", C_b=(0.3, *[0.0] * hidden), C_W=1.2)
    inputs, tests, targets = (
        RANDOM.normal(size=(3, 5)),
        RANDOM.normal(size=(2, 5)),
        RANDOM.normal(size=(3, 2)),
    )
    posterior = fw.bayes.posterior(net, inputs, targets, tests, order=1)
    K = fw.kernels(net, inputs).K
    q = targets.T @ np.linalg.solve(K, targets)
    assert_close(posterior.mean, posterior.infinite_width.mean)
    expected = (
        (L - 1) / n * np.einsum("bc,ij->bicj", posterior.infinite_width.factors[0][1], q - 3 * np.eye(2))
    )
    assert_close(posterior.covariance - posterior.infinite_width.covariance, expected)
    Q = (L - 1) / 4 * (np.trace(q @ q) - 2 * 6 * np.trace(q) + 36)
    assert_close(fw.bayes.evidence(net, inputs, targets, order=1, gradient=False).correction, Q / n)
    assert_close(posterior.log_evidence_correction, Q / n)


@pytest.mark.parametrize("activation", ["tanh", pytest.param("gelu", marks=pytest.mark.long)])
def test_training_the_last_layer_is_the_posterior_without_learning_of_hidden_layers(activation):
    """At width 64000 training, which resums H1, agrees to its own order 1/n^2."""
    n = 64_000
    net = mlp(activation, n)
    posterior = fw.bayes.posterior(net, X, Y, X_TEST, order=1)
    trained = fw.predict(fw.bayes.rates(net), X, Y, X_TEST)
    kept = ("kernel_shift", "vertex_without_data")
    mean = sum(posterior.contributions[name] for name in kept)
    assert_close(n * (trained.mean - trained.infinite_width.mean), n * mean, 1e-3)
    own = sum(posterior.covariance_contributions[name] for name in kept)
    covariance = posterior.coupling + np.einsum("ij,ab->aibj", np.eye(2), own)
    assert_close(n * (trained.covariance - trained.infinite_width.covariance), n * covariance, 1e-3)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_contractions_of_the_vertex_are_those_of_the_whole_tensor(activation, monkeypatch):
    """Stored, and slice by slice; every layer, with widths and hyperparameters of its own."""
    tolerance = 1e-9 if activation != "relu" else None
    net = fw.MLP((3, 20, 30, 40, 2), activation, C_b=(0.1, 0.2, 0.3, 0.1), C_W=(1.4, 1.2, 1.1, 1.5))
    inputs = np.concatenate([X, X_TEST])[: 3 if activation == "relu" else 4]
    size = (len(inputs),) * 2
    theory = fw.solve(net, inputs, method=fw.Tensors(tolerance=tolerance))
    P, M = (
        A + A.transpose(0, 2, 1) for A in (RANDOM.normal(size=(3, *size)), RANDOM.normal(size=(2, *size)))
    )
    for layer in (1, 4) if activation != "relu" else (4,):
        expected = WholeVertex(theory.layer(layer).G1, theory.layer(layer).V).contract(P, M)
        for most in (64, 0):
            monkeypatch.setattr(vertex_fields, "DENSE", most)
            prepared = fields(net, inputs, tolerance=tolerance).with_averages()
            for value, reference in zip(prepared.vertex(layer).contract(P, M), expected, strict=True):
                assert_close(value, reference, 1e-7)


# --- symmetries --------------------------------------------------------------------------------------


def test_order_zero_is_infinite_width():
    net = mlp("tanh")
    assert isinstance(fw.bayes.posterior(net, X, Y, X_TEST, order=0), fw.records.Posterior)
    first, zeroth = (
        fw.bayes.posterior(net, X, Y, X_TEST, noise=0.1, order=1),
        fw.bayes.posterior(net, X, Y, X_TEST, noise=0.1, order=0),
    )
    assert_close(first.infinite_width.mean, zeroth.mean)
    assert_close(first.infinite_width.covariance, zeroth.covariance)
    assert fw.bayes.evidence(net, X, Y, noise=0.1, order=0).correction == 0.0
    with refused("at infinite width hidden layers do not learn from data; use order=1"):
        zeroth.layer(1)


def test_without_noise_the_posterior_at_training_inputs_is_the_data():
    posterior = fw.bayes.posterior(mlp("relu"), X, Y, order=1, cumulants=True)
    assert_close(posterior.mean, Y)
    np.testing.assert_allclose(posterior.covariance, 0.0, atol=1e-12)
    np.testing.assert_allclose(posterior.excess_kurtosis, 0.0, atol=1e-6)


def test_an_input_seen_twice_is_seen_once_with_half_the_noise():
    """Also at order 1/n: the mean of two observations is all that depends on the network."""
    net, twice = mlp("gelu"), np.concatenate([X, X[:1]])
    two = np.concatenate([Y, Y[:1] + 0.4])
    doubled = fw.bayes.posterior(
        net, np.repeat(X, 2, axis=0), np.repeat(Y, 2, axis=0), X_TEST, noise=0.2, order=1
    )
    once = fw.bayes.posterior(net, X, Y, X_TEST, noise=0.1, order=1)
    assert_close(doubled.mean, once.mean)
    assert_close(doubled.covariance, once.covariance)
    assert np.isfinite(fw.bayes.posterior(net, twice, two, X_TEST, noise=0.2, order=1).mean).all()


def test_outputs_are_predicted_jointly():
    """Another target of output 2 changes the mean of output 1, at order 1/n only."""
    net, other = mlp("tanh"), Y * np.array([1.0, -0.5])
    one, two = (fw.bayes.posterior(net, X, targets, X_TEST, noise=0.1, order=1) for targets in (Y, other))
    assert_close(one.infinite_width.mean[:, 0], two.infinite_width.mean[:, 0])
    assert np.abs(one.mean[:, 0] - two.mean[:, 0]).min() > 1e-5
    between = one.covariance[:, 0, :, 1]
    assert np.abs(between).max() > 1e-4 and not one.infinite_width.covariance[:, 0, :, 1].any()


def test_the_posterior_of_two_data_sets_is_that_of_the_second_given_the_first():
    """Evidence is a chain: log p(y1, y2) - log p(y1) is the density of y2 under the posterior of y1, to order
    1/n, which the first two moments and cumulants of that posterior give."""
    net, noise = mlp("tanh", 200, outputs=1), 0.1
    y = Y[:, :1]
    both = fw.bayes.evidence(net, X, y, noise=noise, order=1, gradient=False)
    first = fw.bayes.evidence(net, X[:2], y[:2], noise=noise, order=1, gradient=False)
    posterior = fw.bayes.posterior(net, X[:2], y[:2], X[2:], noise=noise, order=1, cumulants=True)
    m, s = posterior.infinite_width.mean[0, 0], posterior.infinite_width.variance[0, 0] + noise
    u = (y[2, 0] - m) / np.sqrt(s)
    moved = (posterior.mean[0, 0] - m) / np.sqrt(s)
    spread = (posterior.variance[0, 0] + noise - s) / s
    third = 3 * posterior.cumulants.third[0, 0, 0, 0] / s**1.5
    fourth = 3 * posterior.cumulants.fourth[0, 0, 0, 0] / s**2
    hermite = (
        moved * u + spread / 2 * (u**2 - 1) + third / 6 * (u**3 - 3 * u) + fourth / 24 * (u**4 - 6 * u**2 + 3)
    )
    assert_close(both.correction - first.correction, hermite, 1e-6)


# --- gradients, hidden layers ------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", pytest.param("tanh", marks=pytest.mark.long)])
def test_gradient_of_the_evidence_is_that_of_finite_differences(activation):
    """Central differences of size 1e-3 err by about 1e-6; the noise, where log p bends most, takes 1e-4."""
    net, h = mlp(activation, 30, C_b=(0.1, 0.2, 0.3), C_W=(1.3, 1.0, 0.8)), 1e-3

    def value(net, noise=0.2):
        return fw.bayes.evidence(net, X, Y, noise=noise, order=1, gradient=False).value

    gradient = fw.bayes.evidence(net, X, Y, noise=0.2, order=1).gradient
    for name, layer in (("C_b", 2), ("C_W", 2), ("C_b", 0), ("C_W", 1)):
        changed = [list(getattr(net, name)) for _ in range(2)]
        changed[0][layer] += h
        changed[1][layer] -= h
        above, below = (value(net.replace(**{name: values})) for values in changed)
        np.testing.assert_allclose(gradient[name][layer], (above - below) / (2 * h), rtol=1e-4)
    slope = (value(net, 0.2 + h / 10) - value(net, 0.2 - h / 10)) / (2 * h / 10)
    np.testing.assert_allclose(gradient["noise"], slope, rtol=1e-4)


@pytest.mark.parametrize("layer", [0, 1])
def test_the_gradient_by_a_bias_of_zero_is_a_one_sided_difference_of_second_order(layer):
    """Differences of fourth order with larger steps agree to 1e-5; those of first order are off by 2e-4."""
    net = mlp("sin", 30, C_b=(0.0, 0.0, 0.3), C_W=1.3)

    def correction(C_b):
        values = tuple(C_b if place == layer else old for place, old in enumerate(net.C_b))
        options = {"noise": 0.1, "order": 1, "gradient": False}
        return fw.bayes.evidence(net.replace(C_b=values), X, Y, **options).correction

    h, weights = 4e-3, (-25, 48, -36, 16, -3)
    slope = sum(weight * correction(step * h) for step, weight in enumerate(weights)) / (12 * h)
    gradients = [fw.bayes.evidence(net, X, Y, noise=0.1, order=order).gradient["C_b"] for order in (0, 1)]
    np.testing.assert_allclose(gradients[1][layer] - gradients[0][layer], slope, rtol=1e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_kernel_of_a_hidden_layer_climbs_the_gradient_of_the_evidence(activation):
    """E[Ghat | y] - E[Ghat] = V g / n with g by finite differences of the infinite-width evidence."""
    net, noise, h = mlp(activation), 0.1, 1e-5
    posterior = fw.bayes.posterior(net, X, Y, noise=noise, order=1)
    layer = posterior.layer(2)
    theory = fw.solve(net, X)
    K2, C_b, C_W = theory.layer(2).K, net.C_b[2], net.C_W[2]

    def log_p(K):
        out = C_b + C_W * two_legs(net.activations[1], K)[0, 0].value + noise * np.eye(3)
        return -np.trace(Y.T @ np.linalg.solve(out, Y)) / 2 - np.linalg.slogdet(out)[1]

    g = np.zeros((3, 3))
    for a, b in np.ndindex(3, 3):
        change = np.zeros((3, 3))
        change[a, b] += h / 2
        change[b, a] += h / 2
        g[a, b] = (log_p(K2 + change) - log_p(K2 - change)) / (2 * h)
    assert_close(64 * layer.shift, np.tensordot(theory.layer(2).V, g, 2), 1e-5)
    assert_close(layer.prior, theory.layer(2).G, 1e-9)
    first = posterior.layer(1)
    assert not first.shift.any() and np.abs(first.second_moment - first.prior).max() > 1e-3
    odd = np.abs(layer.mean).max() < 1e-12
    assert odd == (activation == "tanh")


def test_residual_networks_have_posteriors_if_their_last_layer_is_dense():
    body = fw.Residual(fw.Dense(40, C_W=1.2), "tanh", fw.Dense(40, C_W=0.9), gamma=0.8)
    net = fw.Network(3, fw.Dense(40), body, "tanh", fw.Dense(2, C_b=0.1))
    posterior = fw.bayes.posterior(net, X, Y, X_TEST, noise=0.1, order=1)
    theory = fw.solve(net, np.concatenate([X, X_TEST]), tensors=("V",))
    given = conditioned(theory.output.K, Y, [0, 1, 2], [3, 4], 0.1)
    result = corrections(given, WholeVertex(theory.output.G1, theory.output.V))
    assert_close(40 * (posterior.mean - posterior.infinite_width.mean), sum(result.mean.values()), 1e-7)
    with refused("hidden layers given data are not known for networks with skip connections"):
        posterior.layer(1)
    with refused("a skip ends in the output of this network"):
        fw.bayes.posterior(fw.Network(3, fw.Dense(2), fw.Residual(fw.Dense(2), gamma=1.0)), X, Y, order=1)


# --- range and bad input -----------------------------------------------------------------------------


def test_corrections_of_the_size_of_what_they_correct_are_warned_of():
    far = 20 * Y
    with pytest.warns(fw.warnings.ExpansionWarning, match="condition number of the training kernel"):
        posterior = fw.bayes.posterior(mlp("tanh", 8), X, far, X_TEST, order=1)
    assert posterior.verdict == "meaningless"
    with pytest.warns(fw.warnings.ExpansionWarning, match="log evidence is .*meaningless"):
        evidence = fw.bayes.evidence(mlp("tanh", 8), X, far, order=1, gradient=False)
    assert evidence.verdict == "meaningless"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fw.bayes.evidence(mlp("tanh", 4000), X, Y, order=1, gradient=False).verdict == "trusted"


def test_a_covariance_below_zero_is_named_with_its_number():
    """Linear networks and targets of zero: variances are 1 - N_A/n of infinite width, here 1 - 3/2."""
    inputs = np.random.default_rng(0).normal(size=(4, 4))
    net = fw.MLP((4, 2, 1), "linear", C_W=1.0)
    message = r"covariance by 1\.5 of the posterior variance.*eigenvalue of -0\.5"
    with pytest.warns(fw.warnings.ExpansionWarning, match=message):
        posterior = fw.bayes.posterior(net, inputs[:3], np.zeros((3, 1)), inputs[3:], order=1)
    assert posterior.verdict == "meaningless"


def test_corrections_are_measured_by_the_posterior_itself():
    """The problem of benchmarks/bayes/hmc.py: at width 64 means move by three standard deviations."""
    random = np.random.default_rng(5)
    inputs = random.normal(size=(10, 2))
    data = inputs, np.sin(1.5 * inputs[:, :1]) * inputs[:, 1:], np.array([[0.4, -0.3], [-0.6, 1.5]])
    for n, verdict in ((64, "meaningless"), (256, "doubtful"), (1024, "trusted")):
        net = fw.MLP((2, n, 1), "tanh", C_b=0.2, C_W=1.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
            posterior = fw.bayes.posterior(net, *data, noise=0.02, order=1)
        infinite = posterior.infinite_width
        assert posterior.verdict == verdict
        shift = np.abs(posterior.mean - infinite.mean) / infinite.std
        np.testing.assert_allclose(posterior.expansion.mean, shift.max(), rtol=1e-12)
    with pytest.warns(
        fw.warnings.ExpansionWarning,
        match=r"meaningless: it moves the mean by 3\.1 of the posterior standard",
    ):
        fw.bayes.posterior(fw.MLP((2, 64, 1), "tanh", C_b=0.2, C_W=1.5), *data, noise=0.02, order=1)


def test_bad_input_is_named():
    net = mlp("tanh")
    with refused("order must be 0 .infinite width. or 1 .through 1/n., got 2"):
        fw.bayes.posterior(net, X, Y, order=2)
    with refused("noise must be a variance, zero or positive, got -1"):
        fw.bayes.posterior(net, X, Y, noise=-1, order=1)
    with refused("rows 0 and 3 of X_train are equal"):
        fw.bayes.posterior(net, np.concatenate([X, X[:1]]), np.concatenate([Y, Y[:1]]), order=1)
    with refused("cumulants were not computed"):
        _ = fw.bayes.posterior(net, X, Y, X_TEST, order=1).skewness
    with refused("cumulants=True is for order=1"):
        fw.bayes.posterior(net, X, Y, cumulants=True, order=0)
    with refused("'perceptron' jumps"):
        fw.bayes.posterior(mlp("perceptron"), X, Y, order=1)
    with refused("hidden layer of width 1"):
        fw.bayes.evidence(mlp("tanh", 1), X, Y, order=1)
    with refused("layer must be a whole number from 1 to 3, got 4"):
        fw.bayes.posterior(net, X, Y, order=1).layer(4)
    with refused("not the LayerNorm of this network"):
        layers = (fw.Dense(8), fw.LayerNorm(), "tanh", fw.Dense(2))
        fw.bayes.posterior(fw.Network(3, *layers), X, Y, order=1)


def test_one_layer_has_no_corrections():
    net = fw.MLP((3, 2), "linear", C_b=0.2, C_W=1.5)
    assert_close(
        fw.bayes.posterior(net, X, Y, X_TEST, noise=0.1, order=1).mean,
        fw.bayes.posterior(net, X, Y, X_TEST, noise=0.1, order=0).mean,
    )
    assert fw.bayes.evidence(net, X, Y, noise=0.1, order=1).correction == 0.0


def test_a_posterior_is_the_same_from_a_store(tmp_path, monkeypatch):
    monkeypatch.setattr(vertex_fields, "DENSE", 0)
    options = {"noise": 0.1, "order": 1, "run": fw.Run(store=tmp_path / "posterior.zarr")}
    first, second = (fw.bayes.posterior(mlp("tanh"), X, Y, X_TEST, **options) for _ in range(2))
    np.testing.assert_array_equal(first.covariance, second.covariance)
