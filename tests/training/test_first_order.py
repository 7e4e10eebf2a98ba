"""Trained ensembles through order 1/n: known values, exact properties, real networks, bad input."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.core.inputs import merge_inputs
from finitewidth.training.first_order.eigenmodes import Modes
from finitewidth.training.first_order.expansion import warn_of
from finitewidth.training.first_order.mean_and_covariance import corrections, initial_output_map
from finitewidth.training.first_order.mean_terms import (
    CUBIC,
    TERMS,
    Source,
    average_over_outputs,
    dual,
    three_residuals,
)
from finitewidth.training.infinite.gaussian import Expansion

PRINTED = 6e-13  # values known to twelve decimals
TOLERANCE = 1e-10  # exact properties of predictions, which invert the training NTK
PULL = 4.0

K = np.array([[1, 0.3, 0.2], [0.3, 0.8, 0.4], [0.2, 0.4, 0.9]])
H = np.array([[2, 0.5, 0.6], [0.5, 1.5, 0.7], [0.6, 0.7, 1.8]])
G = np.array([1, 0.5, -0.7])
SIZES = dict(A=0.9, B=0.5, D=0.4, F=0.3, P=-0.2, Q=0.25, R=-0.35, S=0.6, T=0.45, U=0.15)


def rank_one(Y, algorithm, n=10):
    """Mean and covariance of three samples whose tensors are products of one vector."""
    modes = Modes.of(K, K, H, Y)
    s = algorithm.symbols(modes.l)
    product = np.einsum("a,b,c,d->abcd", G, G, G, G)
    corrected = corrections(modes, lambda name: SIZES[name] * product, s, covariance=True)
    L = initial_output_map(modes, s.f)
    mean = modes.back((modes.H[:, :2] * s.f) @ modes.y.T) + sum(corrected.mean.values()) / n
    own = modes.back(modes.back(L @ modes.G @ L.T), 1) + corrected.own / n
    return mean, np.einsum("de,ij->diej", own, np.eye(Y.shape[1])) + corrected.coupling / n


@pytest.mark.parametrize(
    "algorithm, mean, variance",
    [
        (fw.GradientDescent(0.4), -0.293607192508, 0.676140526148),
        (fw.GradientDescent(0.4, 3), -0.260328801875, 0.680053667700),
        (fw.GradientFlow(), -0.295094318182, 0.681092900826),
        (fw.GradientFlow(200.0), -0.295094318182, 0.681092900826),
        (fw.TwoStep(), -0.293256250000, 0.674904099174),
    ],
)
def test_one_output_has_its_known_values(algorithm, mean, variance):
    moments = rank_one(np.array([[0.5], [-1.0]]), algorithm)
    assert moments[0][2, 0] == pytest.approx(mean, abs=PRINTED)
    assert moments[1][2, 0, 2, 0] == pytest.approx(variance, abs=PRINTED)


def test_training_means_at_a_finite_time_have_their_known_values():
    mean, _ = rank_one(np.array([[0.5], [-1.0]]), fw.GradientDescent(0.4, 3))
    np.testing.assert_allclose(mean[:2, 0], (0.413768547536, -0.865090519232), atol=PRINTED)


@pytest.mark.parametrize(
    "algorithm, mean, covariance",
    [
        (
            fw.GradientDescent(0.4),
            (-0.291576632948, 0.362408515350),
            (0.660452714446, 0.004413494654, 0.700792544314),
        ),
        (
            fw.GradientFlow(),
            (-0.293943282741, 0.335122989209),
            (0.674378402389, 0.004279238169, 0.713426990397),
        ),
    ],
)
def test_two_outputs_have_their_known_values_and_wiring(algorithm, mean, covariance):
    moments = rank_one(np.array([[0.5, 0.8], [-1.0, 0.3]]), algorithm)
    np.testing.assert_allclose(moments[0][2], mean, atol=PRINTED)
    between = moments[1][2, :, 2]
    np.testing.assert_allclose([between[0, 0], between[0, 1], between[1, 1]], covariance, atol=PRINTED)


# --- terms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TERMS)
def test_duals_contract_a_tensor_to_what_its_source_gives(name):
    """Each term is stated once and read in two ways; tensors without any symmetry tell slots apart."""
    random = np.random.default_rng(1)
    samples, count, outputs = 5, 3, 2
    y, kernel = random.normal(size=(outputs, count)), random.normal(size=(count, count))
    pair = y.T @ y + outputs * (kernel + kernel.T)
    weights = three_residuals(y, kernel, pair) if name in CUBIC else y
    kinds = {term.symbol: len(term.modes) for term in TERMS[name]}
    Z = {kind: random.normal(size=(count,) * modes) for kind, modes in kinds.items()}
    for term in TERMS[name]:
        X = {term.tensor: random.normal(size=(samples,) * 4)}
        source = Source.of((term,), X, count, outputs)(Z, slice(None))
        expected = np.einsum("dabc,iabc->id" if name in CUBIC else "dab,ia->id", source, weights)
        opened = np.moveaxis(X[term.tensor], term.open_slot, 0)[:, :count, :count, :count]
        contracted = np.tensordot(dual((term,), Z, weights, outputs), opened, ([1, 2, 3], [1, 2, 3]))
        np.testing.assert_allclose(contracted, expected, rtol=1e-12)


def test_averaging_a_cubic_form_is_the_transpose_of_three_residuals():
    random = np.random.default_rng(2)
    y, kernel, pair = (random.normal(size=shape) for shape in ((2, 3), (3, 3), (3, 3)))
    kernel, M = kernel + kernel.T, random.normal(size=(4, 3, 3, 3))
    M = M + M.transpose(0, 1, 3, 2)
    expected = np.einsum("dabc,iabc->di", M, three_residuals(y, kernel, pair))
    np.testing.assert_allclose(average_over_outputs(M, kernel, pair) @ y.T, expected, rtol=1e-12)


def test_equal_inputs_are_merged_in_the_order_in_which_they_appear():
    rows = np.array([[2.0, 0.0], [1.0, 3.0], [2.0, -0.0], [0.0, 0.0], [1.0, 3.0]])
    distinct, places = merge_inputs(rows)
    np.testing.assert_array_equal(distinct, rows[[0, 1, 3]])
    np.testing.assert_array_equal(places, [0, 1, 0, 2, 1])
    distinct, places = merge_inputs(rows, keep=3)
    np.testing.assert_array_equal(distinct, rows[:4])
    np.testing.assert_array_equal(places, [0, 1, 2, 3, 1])


# --- predictions of networks -------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 3))
Y = RNG.standard_normal((3, 2))
NET = fw.MLP((3, 64, 48, 2), "tanh", C_b=0.1, C_W=1.2, lambda_b=(0.5, 0.3, 0.7))
ALGORITHMS = {
    "flow": fw.GradientFlow(),
    "flow until 3": fw.GradientFlow(3.0),
    "descent": fw.GradientDescent(0.2),
    "ten steps": fw.GradientDescent(0.2, 10),
    "two steps": fw.TwoStep(),
}


@pytest.fixture(scope="module")
def prepared():
    return fw.prepare(NET, X[:3], Y, X)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_contributions_add_up_to_the_correction(prepared, algorithm):
    prediction = prepared.predict(algorithm)
    assert set(prediction.contributions) == {"ntk_mean", "ntk_fluctuation", "dntk", "ddntk_1", "ddntk_2"}
    total = sum(prediction.contributions.values())
    np.testing.assert_allclose(prediction.mean, prediction.infinite_width.mean + total, rtol=TOLERANCE)
    infinite = fw.predict(NET, X[:3], Y, X, algorithm=algorithm, order=0)
    np.testing.assert_allclose(prediction.infinite_width.mean, infinite.mean, rtol=TOLERANCE)
    np.testing.assert_allclose(
        prediction.infinite_width.covariance, infinite.covariance, rtol=TOLERANCE, atol=TOLERANCE
    )


@pytest.mark.parametrize("name", ["flow", "descent", "two steps"])
def test_trained_networks_fit_their_targets_without_fluctuation(prepared, name):
    """Each contribution vanishes on the training set, and so does every covariance with it."""
    prediction = prepared.predict(ALGORITHMS[name])
    np.testing.assert_allclose(prediction.mean[:3], Y, atol=TOLERANCE)
    for part in prediction.contributions.values():
        np.testing.assert_allclose(part[:3], 0, atol=TOLERANCE)
        assert np.abs(part[3:]).max() > 0 or name == "two steps"
    np.testing.assert_allclose(prediction.covariance[:3], 0, atol=TOLERANCE)
    assert prediction.covariance[3, 0, 3, 1] != 0


def test_an_untrained_ensemble_has_the_statistics_of_initialization(prepared):
    prediction = prepared.predict(fw.GradientFlow(0.0))
    np.testing.assert_array_equal(prediction.mean, 0)
    theory = fw.solve(NET, X).output
    np.testing.assert_allclose(
        prediction.covariance, np.einsum("ab,ij->aibj", theory.G, np.eye(2)), rtol=TOLERANCE, atol=1e-14
    )


def test_long_training_is_the_end_of_training(prepared):
    long, end = prepared.predict(fw.GradientFlow(1e5)), prepared.predict(fw.GradientFlow())
    np.testing.assert_allclose(long.mean, end.mean, atol=1e-9)
    np.testing.assert_allclose(long.covariance, end.covariance, atol=1e-9)


def test_a_path_over_times_is_one_prediction_after_another(prepared):
    path = fw.trajectory(NET, X[:3], Y, X, times=(0.0, 3.0))
    alone = prepared.predict(fw.GradientFlow(3.0))
    np.testing.assert_allclose(path[1].mean, alone.mean, rtol=TOLERANCE)
    np.testing.assert_array_equal(path[0].mean, 0)


def test_covariance_is_symmetric_and_positive(prepared):
    prediction = prepared.predict(fw.GradientFlow(3.0))
    flat = prediction.covariance.reshape(10, 10)
    np.testing.assert_allclose(flat, flat.T, rtol=TOLERANCE, atol=1e-14)
    assert prediction.expansion.lowest_eigenvalue > 0
    assert 0 < prediction.expansion.size < 0.5
    np.testing.assert_allclose(
        prediction.std**2, np.einsum("aiai->ai", prediction.covariance), rtol=TOLERANCE
    )


def test_targets_rotate_with_the_outputs(prepared):
    """Outputs are alike, so rotating the targets rotates mean and covariance."""
    angle = 0.7
    O = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    plain, rotated = prepared.predict(), fw.predict(NET, X[:3], Y @ O.T, X)
    np.testing.assert_allclose(rotated.mean, plain.mean @ O.T, atol=TOLERANCE)
    expected = np.einsum("ij,ajbl,kl->aibk", O, plain.covariance, O)
    np.testing.assert_allclose(rotated.covariance, expected, atol=TOLERANCE)


def test_order_of_inputs_does_not_matter(prepared):
    order = [2, 0, 1]
    plain, permuted = prepared.predict(), fw.predict(NET, X[:3][order], Y[order], X)
    np.testing.assert_allclose(permuted.mean, plain.mean, atol=1e-8)  # accuracy of the four-leg averages
    np.testing.assert_allclose(permuted.covariance, plain.covariance, atol=1e-8)


def test_corrections_fall_as_one_over_width():
    corrections = [
        fw.predict(NET.replace(widths=(3, n, n, 2)), X[:3], Y, X).contributions for n in (200, 400)
    ]
    for name in corrections[0]:
        np.testing.assert_allclose(
            corrections[0][name][3:] / corrections[1][name][3:], 2, rtol=0.2 if name == "ntk_mean" else 0.1
        )


def test_statistics_serve_other_widths_of_any_network_of_dense_layers():
    """Also where activations differ and the network is no MLP."""
    layers = lambda n: (fw.Dense(n, C_b=0.1), "tanh", fw.Dense(n), "sin", fw.Dense(2))  # noqa: E731
    narrow, wide = (fw.Network(3, *layers(n)) for n in (64, 96))
    adapted = fw.prepare(narrow, X[:3], Y, X).with_width(96)
    assert adapted.net == wide and adapted.n == 96
    anew = fw.predict(fw.MLP((3, 96, 96, 2), ("tanh", "sin"), C_b=(0.1, 0, 0)), X[:3], Y, X)
    np.testing.assert_allclose(adapted.predict().mean, anew.mean, rtol=TOLERANCE, atol=TOLERANCE)
    with refused("widths=.3, 64, 48, 2. has unequal hidden layers.*prepare the other network"):
        fw.prepare(NET, X[:3], Y, X).with_width(96)


def test_linear_networks_keep_only_what_their_depth_makes():
    """A linear model of one layer has no correction at all."""
    net = fw.MLP((3, 2), "linear", C_b=0.1, lambda_b=0.5)
    prediction = fw.predict(net, X[:3], Y, X)
    np.testing.assert_allclose(prediction.mean, prediction.infinite_width.mean, rtol=1e-12)


@pytest.mark.long
def test_the_mean_alone_needs_no_tensor_of_four_samples(prepared, monkeypatch):
    """Leg by leg with duals on three modes; four-leg averages are good to 1e-8."""
    monkeypatch.setattr("finitewidth.training.first_order.chosen_method.DENSE", 4)
    for algorithm in (fw.GradientFlow(), fw.GradientDescent(0.2)):
        whole, alone = (
            prepared.predict(algorithm),
            fw.predict(NET, X[:3], Y, X, algorithm=algorithm, covariance=False),
        )
        for name, part in whole.contributions.items():
            np.testing.assert_allclose(alone.contributions[name], part, atol=1e-8)
    with refused("the covariance was not computed; predict with covariance=True"):
        alone.covariance  # noqa: B018
    with refused("before the end of training, order 1/n of . inputs needs whole tensors"):
        fw.predict(NET, X[:3], Y, X, algorithm=fw.GradientFlow(1.0), method=fw.LegByLeg())


# --- real networks -----------------------------------------------------------------------------------


def trained(net, eta, steps, members, key):
    """Outputs on all inputs before and after gradient descent on the first three, (members, N, n_L)."""
    depth = net.depth

    def initialize(key):
        keys = jax.random.split(key, (depth, 2))
        biases = [
            math.sqrt(net.C_b[l]) * jax.random.normal(keys[l, 0], (net.widths[l + 1],)) for l in range(depth)
        ]
        weights = [
            math.sqrt(net.C_W[l] / net.widths[l])
            * jax.random.normal(keys[l, 1], (net.widths[l + 1], net.widths[l]))
            for l in range(depth)
        ]
        return biases, weights

    def outputs(parameters, X):
        z = X
        for l, (b, W) in enumerate(zip(*parameters, strict=True)):
            z = (z if l == 0 else net.activation(z)) @ W.T + b
        return z

    def loss(parameters):
        return jnp.sum((outputs(parameters, jnp.asarray(X[:3])) - jnp.asarray(Y)) ** 2) / 2

    def update(_, parameters):
        biases, weights = jax.grad(loss)(parameters)
        return (
            [
                b - eta * net.lambda_b[l] * g
                for l, (b, g) in enumerate(zip(parameters[0], biases, strict=True))
            ],
            [
                W - eta * net.lambda_W[l] / net.widths[l] * g
                for l, (W, g) in enumerate(zip(parameters[1], weights, strict=True))
            ],
        )

    def one(key):
        initial = initialize(key)
        final = jax.lax.fori_loop(0, steps, update, initial)
        return outputs(initial, jnp.asarray(X)), outputs(final, jnp.asarray(X))

    keys = jax.random.split(key, members)
    return [np.asarray(part) for part in jax.jit(lambda k: jax.lax.map(one, k, batch_size=250))(keys)]


@pytest.mark.parametrize(
    "activation, C_W", [("tanh", 1.2), pytest.param("gelu", 1.8, marks=pytest.mark.long)]
)
def test_trained_networks_have_this_mean_and_covariance(activation, C_W, key):
    """6000 networks of width 40 after 8 large steps; the infinite-width prediction is a control variate."""
    net = fw.MLP((3, 40, 60, 2), activation, C_b=0.1, C_W=C_W, lambda_b=0.5)
    eta, steps, members = 0.12, 8, 6000
    theory = fw.predict(net, X[:3], Y, X, algorithm=fw.GradientDescent(eta, steps))
    before, after = trained(net, eta, steps, members, key)
    Theta = fw.kernels(net, X).Theta
    l, V = np.linalg.eigh(Theta[:3, :3])
    learned = (V * ((1 - (1 - eta * l) ** steps) / l)) @ V.T
    L = np.eye(5)
    L[:, :3] -= Theta[:, :3] @ learned
    controlled = after - np.einsum("de,mei->mdi", L, before)
    stderr = controlled.std(axis=0, ddof=1) / math.sqrt(members)
    mean = controlled.mean(axis=0)
    # what is left is of order 1/n^2: a tenth of the correction is allowed for
    allowed = PULL * stderr + 0.15 * np.abs(theory.mean - theory.infinite_width.mean).max()
    assert (np.abs(mean - theory.mean) < allowed).all()
    assert (np.abs(mean - theory.infinite_width.mean) / stderr).max() > 3 * PULL
    centred = after[:, 3:] - after[:, 3:].mean(axis=0)
    products = np.einsum("mai,mbj->maibj", centred, centred)
    spread = products.std(axis=0, ddof=1) / math.sqrt(members)
    pulls = (products.mean(axis=0) - theory.covariance[3:, :, 3:]) / spread
    assert np.abs(pulls).max() < PULL


# --- bad input and warnings --------------------------------------------------------------------------


def test_kinks_are_refused_by_name():
    with refused("activation 'relu' has a kink, where the dNTK .* use a smooth one such as gelu"):
        fw.predict(fw.MLP((3, 8, 2), "relu"), X[:3], Y, X)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(algorithm=fw.Newton()), r"algorithm=Newton\(\) lands beside the minimum.*TwoStep"),
        (dict(algorithm=fw.GradientDescent(50.0)), "learning_rate=50 is not below"),
        (dict(algorithm=fw.GradientDescent(50.0, 10)), "learning_rate=50 is not below"),
        (dict(ridge=0.1), "ridge and cutoff are for order=0"),
        (dict(loss=fw.CrossEntropy()), r"order=1 with loss=CrossEntropy"),
        (dict(order=2), "order must be 0 .* or 1"),
    ],
)
def test_what_the_expansion_does_not_know_is_refused(changes, message):
    with refused(message):
        fw.predict(NET, X[:3], Y, X, **changes)


def test_repeated_training_inputs_are_refused_at_the_end_of_training_only():
    again = X[[0, 0, 1]]
    with refused("condition number .* rows 0 and 1 of X_train are equal.*stop at a finite time"):
        fw.predict(NET, again, Y, X)
    prediction = fw.predict(NET, again, Y, X, algorithm=fw.GradientFlow(1.0))
    assert np.isfinite(prediction.mean).all() and np.isfinite(prediction.covariance).all()


def test_width_one_is_refused_and_narrow_networks_are_warned_of():
    with refused("hidden layer of width 1"):
        fw.predict(NET.replace(widths=(3, 1, 48, 2)), X[:3], Y, X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fw.predict(NET.replace(widths=(3, 2, 2, 2)), X[:3], Y, X)
    assert [w.category for w in caught] == [fw.warnings.ExpansionWarning]
    assert "depth over width 1" in str(caught[0].message)


@pytest.mark.parametrize(
    "expansion, message",
    [
        (
            Expansion(0.1, 0.7, 0.2, 0.0, 0.06, 0.01),
            "doubtful: it moves the mean by 0.7 of the largest target and leaves it uncertain by 0.06 of",
        ),
        (
            Expansion(0.1, 0.2, 0.8, 0.0, 0.1, 0.6),
            "meaningless: .* covariance by 0.8 of the largest variance",
        ),
        (Expansion(0.1, 0.2, 2.5, -1.5, 0.1, 0.6), "uncertain by 0.6 of that, and .* eigenvalue of -1.5 of"),
        (Expansion(0.1, 0.9, 0.9, -0.01), "^the covariance .* eigenvalue of -0.01 of the largest.*width 0.1"),
    ],
)
def test_each_way_out_of_the_range_of_the_expansion_is_warned_of(expansion, message):
    with pytest.warns(fw.warnings.ExpansionWarning, match=message):
        warn_of(expansion, 10.0)
