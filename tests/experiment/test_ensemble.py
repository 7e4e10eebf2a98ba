"""Ensembles of trained networks against loops of their own, exact results and each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import INPUTS, also_long, refused
from jax.experimental.compilation_cache import compilation_cache
from scipy.linalg import expm

import finitewidth as fw
from finitewidth.core import programs
from finitewidth.experiment.ensemble import batch
from finitewidth.experiment.ensemble.trainer import Members, Trained
from finitewidth.experiment.sampling import draw, member_key, outputs, rates

GENERIC = INPUTS["generic"]
X_TRAIN, X_TEST = GENERIC[:2], GENERIC[2:]
Y = np.array([[0.7, -0.2], [-0.4, 0.5]])
CLASSES = np.array([[0.7, 0.3], [0.1, 0.9]])
NET = fw.MLP((3, 6, 5, 2), "tanh", C_b=0.1, C_W=1.2, lambda_b=(0.3, 0.5, 0.2), lambda_W=(0.9, 1.1, 0.7))
FLAT = fw.MLP((3, 2), "tanh", C_b=0.2, C_W=1.5, lambda_b=0.5, lambda_W=0.8)  # linear in its parameters


def trained(net=NET, targets=Y, **options):
    defaults = {"algorithm": fw.GradientDescent(0.2, 5), "members": 6, "key": 3}
    return fw.train_ensemble(net, X_TRAIN, targets, X_TEST, **{**defaults, **options})


def squared(z):
    return 0.5 * jnp.sum((z - Y) ** 2)


def cross_entropy(z):
    return -jnp.sum(CLASSES * jax.nn.log_softmax(z))


@functools.cache
def descent_of_one(loss, net):
    """Gradient descent of one member by automatic differentiation, as a compiled function."""

    def run(key, learning_rate, steps):
        def step(_, theta):
            gradient = jax.grad(lambda p: loss(outputs(net, p, jnp.asarray(X_TRAIN))))(theta)
            return tuple(
                type(p)(p.b - learning_rate * rate_b * g.b, p.W - learning_rate * rate_W * g.W)
                for p, g, (rate_b, rate_W) in zip(theta, gradient, rates(net), strict=True)
            )

        return outputs(net, jax.lax.fori_loop(0, steps, step, draw(net, key)), jnp.asarray(GENERIC))

    return jax.jit(run)


def loop(loss, learning_rate, steps, member, net=NET, key=3):
    """Outputs of one member on all inputs."""
    return np.asarray(
        descent_of_one(loss, net)(member_key(jax.random.key(key), member), learning_rate, steps)
    )


# --- each algorithm -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss, targets, by_hand",
    [(fw.CrossEntropy(), CLASSES, cross_entropy), *also_long((fw.MSE(), Y, squared))],
)
def test_descent_is_that_of_a_loop_over_members(loss, targets, by_hand):
    ensemble = trained(targets=targets, loss=loss, record=fw.Record(at=(0, 2)))
    expected = np.array([[loop(by_hand, 0.2, steps, m) for m in range(6)] for steps in (0, 2, 5)])
    np.testing.assert_allclose(ensemble.outputs.value, expected.mean(axis=1), rtol=1e-10, atol=1e-12)
    errors = expected.std(axis=1, ddof=1) / np.sqrt(6)
    np.testing.assert_allclose(ensemble.outputs.stderr, errors, rtol=1e-9)
    np.testing.assert_allclose(ensemble.mean.value, expected[-1].mean(axis=0)[2:], rtol=1e-10, atol=1e-12)
    flat = expected[-1][:, 2:].reshape(6, -1)
    np.testing.assert_allclose(ensemble.covariance.value.reshape(4, 4), np.cov(flat.T), rtol=1e-9, atol=1e-12)
    losses = [by_hand(jnp.asarray(z[:2])) for z in expected[1]]
    np.testing.assert_allclose(ensemble.loss.value[1], np.mean(losses), rtol=1e-10)
    assert ensemble.points == (0, 2, 5) and ensemble.diverged == ensemble.unfinished == 0


@pytest.mark.long
def test_stochastic_descent_with_all_samples_in_a_batch_is_descent():
    full = trained(record=fw.Record(at=(0, 2)))
    ensemble = trained(
        algorithm=fw.StochasticGradientDescent(0.2, 5, batch_size=2), record=fw.Record(at=(0, 2))
    )
    np.testing.assert_allclose(ensemble.outputs.value, full.outputs.value, rtol=1e-10, atol=1e-12)


def test_mini_batches_of_an_epoch_add_up_to_the_full_gradient():
    """Two single-sample steps of a tiny rate move outputs as two full steps do, up to the rate squared."""
    deviation = []
    for rate in (1e-3, 5e-4):
        outputs = trained(
            algorithm=fw.StochasticGradientDescent(rate, 2, batch_size=1), record=fw.Record(at=(0, 1))
        ).outputs.value
        full = trained(algorithm=fw.GradientDescent(rate, 2), record=fw.Record(at=(0, 1))).outputs.value
        deviation.append(np.max(np.abs(outputs[2] - full[2])) / np.max(np.abs(full[2] - full[0])))
    assert deviation[0] < 0.01
    assert 1.6 < deviation[0] / deviation[1] < 2.4


def test_mini_batches_are_drawn_anew_in_each_epoch_and_learning_rates_fall():
    """One step sees one sample: the loss gradient's footprint tells which."""
    rates = 0.01 / (1 + 0.5 * np.arange(12))
    algorithm = fw.StochasticGradientDescent(rates, 12, batch_size=1)
    path = trained(FLAT, members=1, algorithm=algorithm, record=fw.Record(at=range(13))).outputs.value[:, :2]
    theta = FLAT.lambda_b[0] + FLAT.lambda_W[0] / 3 * X_TRAIN @ X_TRAIN.T
    chosen = []
    for step in range(12):
        rate = 0.01 / (1 + 0.5 * step)
        residual = path[step] - Y
        moves = [path[step] - rate * 2 * np.outer(theta[:, a], residual[a]) for a in range(2)]
        matches = [a for a in range(2) if np.allclose(path[step + 1], moves[a], rtol=1e-10, atol=1e-12)]
        assert len(matches) == 1
        chosen += matches
    epochs = [tuple(chosen[i : i + 2]) for i in range(0, 12, 2)]
    assert set(epochs) == {(0, 1), (1, 0)}  # each sample once per epoch, in both orders over six epochs


@pytest.mark.long
def test_gradient_flow_of_a_network_linear_in_its_parameters_is_exponential():
    ensemble = trained(
        FLAT,
        members=3,
        algorithm=fw.GradientFlow(0.7),
        record=fw.Record(at=(0, 0.3)),
        method=fw.Stepping(tolerance=1e-10),
    )
    theta = FLAT.lambda_b[0] + FLAT.lambda_W[0] / 3 * GENERIC @ X_TRAIN.T
    start = ensemble.outputs.value[0]
    for time, value in zip((0.3, 0.7), ensemble.outputs.value[1:], strict=True):
        decay = (np.eye(2) - expm(-theta[:2] * time)) @ np.linalg.inv(theta[:2])
        np.testing.assert_allclose(value, start - theta @ decay @ (start[:2] - Y), rtol=1e-8, atol=1e-9)


@pytest.mark.long
def test_gradient_flow_is_the_limit_of_small_steps():
    """At time 1; Richardson's extrapolation of steps 1/200 and 1/400 is right to about 1e-5 of the change."""
    flow = trained(
        algorithm=fw.GradientFlow(1.0), record=fw.Record(at=(0, 0.5)), method=fw.Stepping(tolerance=1e-9)
    ).outputs.value
    coarse, fine = (
        trained(algorithm=fw.GradientDescent(1 / n, n), record=fw.Record(at=(0, n // 2))).outputs.value
        for n in (200, 400)
    )
    change = np.max(np.abs(flow[2] - flow[0]))
    assert np.max(np.abs(fine - flow)) > 1e-4 * change  # small steps alone are not the flow
    np.testing.assert_allclose(2 * fine - coarse, flow, rtol=0, atol=1e-4 * change)


@pytest.mark.long
def test_endless_training_ends_at_the_training_error():
    for algorithm in (fw.GradientFlow(), fw.GradientDescent(0.3)):
        ensemble = trained(
            algorithm=algorithm, record=fw.Record(at=(0, 1)), method=fw.Stepping(training_error=1e-8)
        )
        assert ensemble.unfinished == 0 and ensemble.loss.value[-1] <= 1e-8 < ensemble.loss.value[0]
        assert ensemble.steps.value > 3
        np.testing.assert_allclose(ensemble.train_mean.value, Y, atol=2e-4)


def test_training_that_does_not_reach_its_error_says_so():
    with pytest.warns(fw.warnings.UnfinishedWarning, match="6 of 6 members did not come to the end"):
        ensemble = trained(
            algorithm=fw.GradientDescent(0.01),
            record=fw.Record(at=(0, 1)),
            method=fw.Stepping(training_error=1e-8, max_steps=3),
        )
    assert ensemble.unfinished == 6 and ensemble.steps.value == 3


@pytest.mark.long
def test_a_flow_that_runs_out_of_steps_says_so():
    with pytest.warns(fw.warnings.UnfinishedWarning, match="3 of 3 members did not come to the end"):
        ensemble = trained(
            FLAT,
            members=3,
            algorithm=fw.GradientFlow(50.0),
            record=fw.Record(at=(0, 1)),
            method=fw.Stepping(tolerance=1e-10, max_steps=5),
        )
    assert ensemble.unfinished == 3


def test_newton_fits_a_network_that_is_linear_in_its_parameters():
    ensemble = trained(FLAT, algorithm=fw.Newton())
    np.testing.assert_allclose(ensemble.train_mean.value, Y, atol=1e-12)


@pytest.mark.long
def test_two_updates_leave_a_residual_beyond_first_order_in_inverse_width():
    """Root mean square residual at widths 128 and 512, 64 members: powers 1 and 2 of the width, to 0.25."""
    residual = []
    for width in (128, 512):
        net = fw.MLP((3, width, 2), "tanh", C_b=0.1, C_W=1.2)
        ensemble = trained(net, algorithm=fw.TwoStep(), members=64, record=fw.Record(at=(1,)))
        residual.append(np.sqrt(ensemble.loss.value))
    powers = np.log(residual[0] / residual[1]) / np.log(4)
    np.testing.assert_allclose(powers, (1, 2), atol=0.25)


# --- estimates ----------------------------------------------------------------------------------------


def test_the_distribution_of_linear_models_is_exact():
    """4000 members of a one-layer network after 7 steps: mean and covariance inside 4 standard errors."""
    ensemble = trained(FLAT, members=4000, algorithm=fw.GradientDescent(0.3, 7))
    K, theta = (b + w / 3 * GENERIC @ GENERIC.T for b, w in ((0.2, 1.5), (0.5, 0.8)))
    kept = np.linalg.matrix_power(np.eye(2) - 0.3 * theta[:2, :2], 7)
    gain = theta[:, :2] @ (np.eye(2) - kept) @ np.linalg.inv(theta[:2, :2])
    L = np.eye(4) - gain @ np.eye(4)[:2]
    mean, covariance = (gain @ Y)[2:], np.einsum("ab,ij->aibj", (L @ K @ L.T)[2:, 2:], np.eye(2))
    assert np.max(np.abs((ensemble.mean.value - mean) / ensemble.mean.stderr)) < 4
    assert np.max(np.abs((ensemble.covariance.value - covariance) / ensemble.covariance.stderr)) < 4
    assert np.max(ensemble.covariance.stderr) < 0.1 * np.max(covariance)


@pytest.mark.long
def test_a_control_variate_of_the_exact_prediction_removes_all_variance():
    theta = FLAT.lambda_b[0] + FLAT.lambda_W[0] / 3 * GENERIC @ GENERIC.T
    kept = np.linalg.matrix_power(np.eye(2) - 0.3 * theta[:2, :2], 7)
    gain = theta[:, :2] @ (np.eye(2) - kept) @ np.linalg.inv(theta[:2, :2])
    L = np.eye(4) - gain @ np.eye(4)[:2]
    control = fw.records.Control(lambda z: jnp.asarray(L) @ z, 0.0, linear=True)
    ensemble = trained(FLAT, members=50, algorithm=fw.GradientDescent(0.3, 7), control=control)
    np.testing.assert_allclose(ensemble.controlled.mean.value, (gain @ Y)[2:], rtol=1e-10)
    K = FLAT.C_b[0] + FLAT.C_W[0] / 3 * GENERIC @ GENERIC.T
    exact = np.einsum("ab,ij->aibj", (L @ K @ L.T)[2:, 2:], np.eye(2))
    np.testing.assert_allclose(ensemble.controlled.covariance.value, exact, rtol=1e-10, atol=1e-10)
    assert np.max(ensemble.controlled.covariance.stderr) < 1e-7 * np.max(ensemble.covariance.stderr)
    assert np.min(ensemble.controlled.variance_ratio) > 1e15
    assert np.max(ensemble.controlled.mean.stderr) < 1e-7 * np.min(ensemble.mean.stderr)


def test_a_control_variate_from_infinite_width_saves_variance_and_does_not_bias():
    """400 networks of width 64: estimates with and without control differ by less than 4 standard errors."""
    net = fw.MLP((3, 64, 64, 2), "tanh", C_b=0.1, C_W=1.2)
    theta = fw.solve(net, GENERIC, order=0).output.Theta
    kept = np.linalg.matrix_power(np.eye(2) - 0.2 * theta[:2, :2], 10)
    gain = theta[:, :2] @ (np.eye(2) - kept) @ np.linalg.inv(theta[:2, :2])
    L = np.eye(4) - gain @ np.eye(4)[:2]
    control = fw.records.Control(lambda z: jnp.asarray(L) @ z, np.zeros((4, 2)), linear=True)
    ensemble = trained(net, members=400, algorithm=fw.GradientDescent(0.2, 10), control=control)
    assert np.min(ensemble.controlled.variance_ratio) > 4
    ratio = (ensemble.mean.stderr / ensemble.controlled.mean.stderr) ** 2
    np.testing.assert_allclose(ratio, ensemble.controlled.variance_ratio, rtol=1e-9)
    difference = ensemble.mean.value - ensemble.controlled.mean.value
    assert np.max(np.abs(difference) / ensemble.mean.stderr) < 4
    plain, controlled = ensemble.covariance, ensemble.controlled.covariance
    assert np.max(np.abs(plain.value - controlled.value) / plain.stderr) < 4
    assert np.median(plain.stderr / controlled.stderr) > 1.5


@pytest.mark.long
def test_another_batch_size_agrees_to_rounding():
    first, other = (trained(members=25, run=fw.Run(batch_size=size)) for size in (25, 4))
    for name in ("outputs", "output_covariance", "loss", "steps"):
        for one, two in zip(getattr(first, name), getattr(other, name), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-12)


def test_ntk_and_kernels_are_recorded_and_move():
    from helpers.autodiff_derivatives import ntk

    from finitewidth.experiment.sampling import preactivations

    ensemble = trained(members=2, record=fw.Record(at=(0,), ntk=True, kernels=True))
    X = jnp.asarray(GENERIC)
    drawn = jax.jit(lambda m: draw(NET, member_key(jax.random.key(3), m)))
    kernel_of = jax.jit(lambda p: ntk(NET, p, X))
    members = [drawn(m) for m in range(2)]
    np.testing.assert_allclose(
        ensemble.ntk.value[0], np.mean([kernel_of(p) for p in members], axis=0), rtol=1e-10
    )
    hidden = [np.tanh(preactivations(NET, p, X)[1]) for p in members]
    kernel = np.mean([s @ s.T / 5 for s in hidden], axis=0)
    np.testing.assert_allclose(ensemble.kernels.value[0, 1], kernel, rtol=1e-10)
    assert max(ensemble.ntk_movement.value[0], *ensemble.kernel_movement.value[0]) < 1e-15
    assert np.all(ensemble.ntk_movement.value[1] > 0) and np.all(ensemble.kernel_movement.value[1] > 0)


@pytest.mark.long
def test_kernels_move_as_the_inverse_width():
    """Relative movement of NTK and hidden kernel at widths 128 and 512, 64 members: power 1, to 0.2."""
    moved = []
    for width in (128, 512):
        net = fw.MLP((3, width, 2), "tanh", C_b=0.1, C_W=1.2)
        ensemble = trained(
            net, members=64, algorithm=fw.GradientDescent(0.2, 20), record=fw.Record(ntk=True, kernels=True)
        )
        moved.append([ensemble.ntk_movement.value[-1], *ensemble.kernel_movement.value[-1]])
    powers = np.log(np.divide(*moved)) / np.log(4)
    np.testing.assert_allclose(powers, 1, atol=0.2)


# --- members that diverge, and bad input --------------------------------------------------------------


def test_members_that_diverge_are_counted_and_left_out():
    net = fw.MLP((3, 2, 2), "linear", C_b=0.1, C_W=1.2)
    with pytest.warns(
        fw.warnings.DivergenceWarning, match=r"of 60 members diverged and are not in the estimates"
    ):
        ensemble = trained(net, members=60, algorithm=fw.GradientDescent(0.5, 200))
    assert 0 < ensemble.diverged < 60
    assert np.isfinite(ensemble.mean.value).all() and np.isfinite(ensemble.covariance.value).all()
    by_hand = [loop(squared, 0.5, 200, m, net) for m in range(60)]
    stayed = [z for z in by_hand if np.isfinite(z).all() and np.max(np.abs(z)) < 1e3]
    assert len(stayed) == 60 - ensemble.diverged
    np.testing.assert_allclose(ensemble.outputs.value[-1], np.mean(stayed, axis=0), rtol=1e-6)


def test_a_polynomial_has_no_mean_over_all_networks():
    """Some networks of any width have slopes that no learning rate is small enough for."""
    quadratic = fw.Activation(lambda z: z + z * z / 2, name="quadratic")
    net = fw.MLP((3, 2, 2), quadratic, C_b=0.1, C_W=1.2)
    with pytest.warns(fw.warnings.DivergenceWarning, match="'quadratic' grows faster than its argument"):
        ensemble = trained(net, members=60, algorithm=fw.GradientDescent(0.2, 30))
    assert 0 < ensemble.diverged < 60
    for name in ("linear", "tanh", "relu", "gelu", "softplus", "swish"):
        assert net.replace(activation=name).grows_faster_than_linearly is None


def test_an_ensemble_of_which_nothing_is_left_is_refused_with_the_remedy():
    with refused(
        r"makes all 6 members diverge; use a learning rate below 2 / largest eigenvalue .* about 1\.\d"
    ):
        trained(FLAT, algorithm=fw.GradientDescent(50.0, 300))


def test_a_singular_ntk_is_named():
    with refused("X_train gives every member a singular NTK"):
        fw.train_ensemble(NET, X_TRAIN[[0, 0]], Y, X_TEST, algorithm=fw.Newton(), members=3, key=0)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"targets": np.array([[np.nan, 0], [0, 0]])}, "Y_train has NaN or infinity in row 0"),
        ({"targets": Y[:1]}, "Y_train has 1 rows but X_train has 2 samples"),
        ({"targets": Y, "loss": fw.CrossEntropy()}, "Y_train must hold probabilities, but row 0 sums to"),
        ({"members": 0}, "members must be a whole number of at least 1, got 0"),
        ({"record": fw.Record(at=(9,))}, "at must lie between 0 and the end 5, got 9"),
        ({"record": fw.Record(at=(1.5,))}, "at must be whole numbers of steps, got 1.5"),
        ({"method": fw.Stepping(tolerance=1e-6)}, "tolerance=1e-06, which does nothing for algorithm=.*Desc"),
        ({"method": fw.Stepping(max_steps=9)}, "max_steps=9, which does nothing for algorithm=.*Descent"),
        ({"algorithm": "sgd"}, "algorithm must be fw.GradientFlow.* got 'sgd'"),
        ({"algorithm": fw.StochasticGradientDescent(0.1, 3, 5)}, "is 5, but there are 2 training inputs"),
        ({"algorithm": fw.Newton(), "loss": fw.CrossEntropy(), "targets": CLASSES}, "is for MSE"),
        ({"record": fw.Record(members=True)}, "record has members=True, which needs a store"),
        ({"net": fw.MLP((3, 4, 2), "perceptron")}, "'perceptron' cannot be trained by gradients"),
        ({"run": fw.Run(memory=100)}, "memory of .* is too little"),
        ({"control": fw.records.Control(lambda z: z[:1], 0.0)}, "control must take outputs"),
        ({"control": fw.records.Control(lambda z: z, 1.0, linear=True)}, "its mean is not; use mean=0.0"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with refused(message):
        trained(**changes)


@pytest.mark.parametrize(
    "value, options, message",
    [
        (fw.Stepping, {"training_error": -1}, "training_error must be a positive number, got -1"),
        (fw.Stepping, {"tolerance": 0}, "tolerance must be a number from 1e-14 to 0.1, got 0"),
        (fw.Stepping, {"max_steps": 0}, "max_steps must be a whole number of at least 1, got 0"),
        (fw.Record, {"at": (float("nan"),)}, "at must be finite numbers"),
    ],
)
def test_values_that_ask_are_checked_where_they_are_made(value, options, message):
    with refused(message):
        value(**options)


@pytest.mark.parametrize("size", [2, 3, 7, 50])
def test_groups_give_every_member_its_own_records(size):
    def train(group):
        records = {"outputs": jnp.stack([group.parameters, 2 * group.parameters])}  # (records, members, 4)
        return Trained(records, group.bound > 3, group.bound > 5, group.bound)

    members = Members(jnp.arange(28.0).reshape(7, 4), jnp.arange(7), jnp.arange(7.0))
    grouped, expected = batch.in_groups(train, members, size), train(members)
    jax.tree.map(np.testing.assert_array_equal, grouped, expected)


def test_a_shape_is_compiled_once_for_all_threads_keys_and_numbers():
    before = batch._train_batch._cache_size()
    for key, (rate, steps) in enumerate(((0.01, 3), (0.02, 2))):
        net = fw.MLP((X_TRAIN.shape[1], 5, Y.shape[1]), "tanh")
        trained(net, algorithm=fw.GradientDescent(rate, steps), members=40, key=key)
    assert batch._train_batch._cache_size() == before + 1


def test_programs_are_kept_unless_the_user_has_one_already(monkeypatch, tmp_path):
    before = jax.config.jax_compilation_cache_dir
    try:
        programs.keep_programs.cache_clear()
        programs.keep_programs()
        assert jax.config.jax_compilation_cache_dir == before  # chosen in conftest.py
        monkeypatch.setenv("FINITEWIDTH_PROGRAMS", "off")
        assert programs._folder() is None
        monkeypatch.setenv("FINITEWIDTH_PROGRAMS", str(tmp_path / "programs"))
        jax.config.update("jax_compilation_cache_dir", None)
        programs.keep_programs.cache_clear()
        programs.keep_programs()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "programs")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        compilation_cache.reset_cache()
