"""Networks of other layers than dense ones: sampled statistics with exact answers, and training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.experiment.sampling import draw, member_key, outputs, rates, up_to
from finitewidth.experiment.statistics import _as_tensors

X = np.random.default_rng(3).standard_normal((3, 4))


def pulls(exact, estimate) -> np.ndarray:
    return (exact - estimate.value) / estimate.stderr


# --- statistics with exact answers at any width ---------------------------------------------------------


def test_dropout_divides_by_its_probability_where_an_input_meets_itself():
    """A linear network of one hidden layer, at any width; equal inputs are one input. 20 000 networks."""
    net = fw.Network(
        4, fw.Dense(5, C_W=1.2, lambda_W=0.7), fw.Dropout(0.4), fw.Dense(2, C_W=0.9, lambda_W=0.6)
    )
    inputs = X[[0, 1, 0]]
    K, Theta = 1.2 * inputs @ inputs.T / 4, 1 + 0.7 * inputs @ inputs.T / 4
    same = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]]) == 1
    K, Theta = (np.where(same, values / 0.6, values) for values in (K, Theta))
    sampled = fw.sample_statistics(net, inputs, members=20_000, key=0, tensors=())
    assert np.abs(pulls(0.9 * K, sampled.G)).max() < 4
    assert np.abs(pulls(1 + 0.6 * K + 0.9 * Theta, sampled.H)).max() < 4


STREAM = fw.Network(
    4, fw.Dense(6), fw.Residual(fw.Dense(6, C_W=0.5), gamma=0.8), fw.Residual(fw.Dense(6, C_W=0.7), gamma=0.6)
)


def test_stream_is_sampled_at_its_own_width():
    """Linear blocks have E[z_i^2 z_k^2] = K^2 prod ((g^2 + C)^2 + (4 g^2 C + 2 C^2)/n) for i != k."""
    sampled = fw.sample_statistics(STREAM, X[:1], members=20_000, key=1, tensors=("V",), neurons=4)
    fourth, second = 1.0, 1.0
    for C, gamma in ((0.5, 0.8), (0.7, 0.6)):
        second *= gamma**2 + C
        fourth *= (gamma**2 + C) ** 2 + (4 * gamma**2 * C + 2 * C**2) / 6
    K = np.sum(X[0] ** 2) / 4
    assert sampled.n == 6
    assert abs(pulls(second * K, sampled.G).item()) < 4
    assert abs(pulls(6 * K**2 * (fourth - second**2), sampled.V).item()) < 4


def test_convolution_averages_over_the_taps_of_its_filter():
    """Zeros outside, fan-in fixed; behind, G is the mean over positions of K at equal ones. 2000 networks."""
    x = np.random.default_rng(5).standard_normal((2, 4, 3))
    net = fw.Network((4, 3), fw.Conv(6, C_W=1.5), fw.Flatten(), fw.Dense(2, C_W=0.8))
    K = np.einsum("apc,bqc->apbq", x, x) / 3
    padded = np.pad(K, ((0, 0), (1, 1), (0, 0), (1, 1)))
    shared = sum(padded[:, f : f + 4, :, f : f + 4] for f in range(3)) / 3
    sampled = fw.sample_statistics(net, x, members=2000, key=2, tensors=())
    assert sampled.n == 6  # channels, of which the average over positions has the same number
    assert np.abs(pulls(0.8 * 1.5 * np.einsum("apbp->ab", shared) / 4, sampled.G)).max() < 4


def test_layer_norm_makes_wide_samples_of_unit_variance():
    """Where an input meets itself G is C_W v/(v + epsilon), in every network; here v is far above epsilon."""
    net = fw.Network(4, fw.Dense(8), fw.LayerNorm(1e-12, lambda_gain=0.5), fw.Dense(2, C_W=1.3))
    sampled = fw.sample_statistics(net, X, members=2000, key=2, tensors=())
    assert np.abs(pulls(1.3, fw.Estimate(*(np.diagonal(part) for part in sampled.G)))).max() < 4


@pytest.mark.long
@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_gains_that_learn_before_an_activation_are_those_of_the_theory(activation):
    """Mean NTKs of 3000 networks of each of three widths, extrapolated by a + b/n + c/n^2."""
    norm, rest = fw.LayerNorm(lambda_gain=0.9, lambda_offset=0.2), {"C_b": 0.1, "lambda_b": 0.3}
    widths, values = np.array([24, 48, 96]), []
    for n in widths:
        hidden, end = fw.Dense(int(n), **rest), fw.Dense(2, **rest, lambda_W=0.2)
        net = fw.Network(4, hidden, norm, activation, hidden, norm, activation, end)
        values.append(fw.sample_statistics(net, X, members=3000, key=int(n), tensors=()).H)
    weights = np.linalg.inv(np.stack([widths**-0.0, 1 / widths, widths**-2.0], axis=1))[0]
    value = np.tensordot(weights, [one.value for one in values], 1)
    stderr = np.sqrt(np.tensordot(weights**2, [one.stderr**2 for one in values], 1))
    assert np.abs(pulls(fw.kernels(net, X).Theta, fw.Estimate(value, stderr))).max() < 4


# --- which statistics there are -------------------------------------------------------------------------

IMAGE = fw.Network(
    (4, 4, 1), fw.Conv(3), fw.Residual("tanh", fw.Conv(3)), fw.LayerNorm(), fw.Flatten(), fw.Dense(2)
)


@pytest.mark.long
def test_tensors_of_differentials_are_sampled_by_default_where_they_are_fast():
    residual = fw.Network(4, fw.Dense(3), fw.Residual("tanh", fw.Dense(3)), fw.Dense(1))
    assert set(_as_tensors(residual, None)) == set("VDFABPQRSTU")
    assert set(_as_tensors(IMAGE, None)) == set("VDFAB")
    sampled = fw.sample_statistics(IMAGE, np.ones((1, 4, 4, 1)), members=4, key=0, tensors=("V",))
    assert set(sampled.estimates) == set("GHV")
    with refused("P was not sampled; add it to tensors"):
        sampled.P  # noqa: B018


@pytest.mark.long
def test_differentials_of_any_smooth_network_can_be_asked_for():
    small = fw.Network((2, 1), fw.Conv(2), fw.LayerNorm(), "tanh", fw.Flatten(), fw.Dense(2))
    asked = fw.sample_statistics(small, np.ones((1, 2, 1)), members=4, key=0, tensors=("P",))
    assert asked.P.value.shape == (1, 1, 1, 1)


def test_statistics_that_cannot_be_sampled_are_refused():
    with refused("layer 2 has positions"):
        fw.sample_statistics(IMAGE, np.ones((1, 4, 4, 1)), members=4, key=0, layer=2)
    thin = fw.Network(4, fw.Dense(1), fw.Residual("tanh", fw.Dense(1)))
    with refused("layer 2 has one neuron, as many as the stream"):
        fw.sample_statistics(thin, X, members=4, key=0)
    kinked = fw.Network(4, fw.Dense(3), fw.Residual("relu", fw.Dense(3)), fw.Dense(1))
    with refused("P does not exist: activation 'relu' has a kink"):
        fw.sample_statistics(kinked, X, members=4, key=0, tensors=("P",))
    with refused("X must have shape"):
        fw.sample_statistics(IMAGE, np.ones((1, 16)), members=4, key=0)


# --- training -------------------------------------------------------------------------------------------

TRAINED = fw.Network(
    (4, 2),
    fw.Conv(3, C_b=0.1, lambda_b=0.5),
    fw.Residual(fw.LayerNorm(lambda_gain=0.4), fw.Conv(3, filter=1), gamma=0.7),
    fw.GlobalAveragePool(),
    fw.Dense(2),
)
IMAGES = jnp.asarray(np.random.default_rng(6).standard_normal((3, 4, 2)))
TARGETS = jnp.asarray([[0.5, -0.2], [0.1, 0.4]])


def trained(**options):
    options = {
        "algorithm": fw.GradientDescent(0.05, 3),
        "members": 3,
        "key": 7,
        "run": fw.Run(batch_size=2),
        **options,
    }
    return fw.train_ensemble(TRAINED, IMAGES[:2], TARGETS, IMAGES[2:], **options)


@pytest.mark.long
def test_training_of_any_network_is_that_of_the_definition(tmp_path):
    """Three steps of three members, by automatic differentiation of the outputs."""

    @jax.jit
    def descended(key):
        parameters = draw(TRAINED, key)
        for _ in range(3):
            slope = jax.grad(lambda p: jnp.sum((outputs(TRAINED, p, IMAGES[:2]) - TARGETS) ** 2) / 2)(
                parameters
            )
            parameters = jax.tree.map(
                lambda p, g, rate: p - 0.05 * rate * g, parameters, slope, rates(TRAINED)
            )
        return outputs(TRAINED, parameters, IMAGES)

    control = fw.records.Control(jnp.zeros_like, np.zeros((3, 2)))
    ensemble = trained(
        control=control,
        record=fw.Record(members=True, kernels=True),
        run=fw.Run(batch_size=2, store=tmp_path / "run.zarr"),
    )
    each = [descended(member_key(jax.random.key(7), m)) for m in range(3)]
    np.testing.assert_allclose(ensemble.member_outputs()[:, -1], each, rtol=1e-10, atol=1e-12)
    assert ensemble.kernels.value.shape == (1, TRAINED.depth - 1, 3, 3)
    np.testing.assert_allclose(ensemble.controlled.mean.value, ensemble.mean.value, rtol=1e-12)
    dataset = ensemble.to_xarray()
    assert dataset["inputs"].dims == ("sample", "input_position_1", "input")


@pytest.mark.long
def test_gradient_flow_of_residual_networks_descends():
    """To first order in time the loss falls by its squared gradient; the skip has no parameters."""
    net = fw.Network(4, fw.Dense(2), fw.Residual("tanh", fw.Dense(2)), fw.Dense(1))
    options = {"algorithm": fw.GradientFlow(1e-4), "members": 2, "key": 0, "record": fw.Record(at=(0.0,))}
    ensemble = fw.train_ensemble(net, X[:2], np.ones((2, 1)), X[2:], **options)

    @jax.jit
    def slope(key):
        loss = lambda p: jnp.sum((outputs(net, p, jnp.asarray(X[:2])) - 1) ** 2) / 2  # noqa: E731
        gradient = jax.grad(loss)(draw(net, key))
        return sum(jax.tree.leaves(jax.tree.map(lambda g, rate: rate * jnp.sum(g**2), gradient, rates(net))))

    expected = np.mean([slope(member_key(jax.random.key(0), m)) for m in range(2)])
    before, after = ensemble.loss.value
    assert (before - after) / 1e-4 == pytest.approx(expected, rel=1e-2)


def test_dropout_is_not_trained():
    net = fw.Network(4, fw.Dense(3), fw.Residual("tanh", fw.Dropout(0.2), fw.Dense(3)), fw.Dense(1))
    with refused("draws masks, anew at every step of training"):
        fw.train_ensemble(
            net, X[:2], np.ones((2, 1)), X[2:], algorithm=fw.GradientFlow(1.0), members=2, key=0
        )


def test_a_member_does_not_depend_on_what_follows_its_layers():
    """Members of a stream that ends earlier start from the same bits."""
    nets = (STREAM, up_to(STREAM, 2))
    whole, part = (jax.jit(lambda net=net: draw(net, jax.random.key(0)))() for net in nets)
    for one, two in zip(jax.tree.leaves(whole[:2]), jax.tree.leaves(part), strict=True):
        np.testing.assert_array_equal(one, two)


def test_memory_of_a_batch_counts_what_layers_keep():
    with refused("memory of 1e-05 GB is too little"):
        fw.sample_statistics(
            IMAGE, np.ones((1, 4, 4, 1)), members=8, key=0, tensors=(), run=fw.Run(memory=1e4)
        )
