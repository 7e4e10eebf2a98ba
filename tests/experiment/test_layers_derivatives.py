"""Layers of real networks: different activations in one network, and derivatives that every kind has."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.plain_layers import plain_network
from helpers.problems import INPUTS, refused
from jax.scipy.special import erf

import finitewidth as fw
from finitewidth.experiment import directions
from finitewidth.experiment.layers.abstract import real
from finitewidth.experiment.sampling import draw, draw_members, member_key, outputs, real_network, up_to
from finitewidth.network.layers.abstract import AbstractLayer

X = jnp.asarray(INPUTS["generic"])
Y = jnp.asarray([[0.7, -0.2], [-0.4, 0.5]])
NUMBERS = {"C_b": (0.1, 0.2, 0.0, 0.3), "C_W": (1.1, 1.6, 2.0, 0.9)}
RATES = {"lambda_b": (0.3, 0.5, 0.2, 0.4), "lambda_W": (0.9, 1.1, 0.7, 0.8)}
WIDTHS = (3, 5, 4, 6, 2)
FUNCTIONS = (jnp.tanh, lambda z: jnp.maximum(z, 0), erf)
MIXED = fw.MLP(WIDTHS, ("tanh", "relu", "erf"), **NUMBERS, **RATES)


def by_hand(parameters, X):
    """A network of four layers with three different activations, written out."""
    z = X @ parameters[0].W.T + parameters[0].b[None]
    for function, (b, W) in zip(FUNCTIONS, parameters[1:], strict=True):
        z = function(z) @ W.T + b[None]
    return z


def flat_rates(parameters):
    """lambda_b and lambda_W / n of every parameter, in the order of the parameters."""
    per_layer = zip(parameters, RATES["lambda_b"], RATES["lambda_W"], WIDTHS, strict=False)
    return [
        type(layer)(jnp.full_like(layer.b, rate_b), jnp.full_like(layer.W, rate_W / fan_in))
        for layer, rate_b, rate_W, fan_in in per_layer
    ]


def ntk_by_jacobian(parameters, X):
    """sum over parameters of lambda dz_a/dtheta dz_b/dtheta, axes (neuron, sample, neuron, sample)."""
    jacobian = jax.jacobian(lambda p: by_hand(p, X).T)(parameters)
    total = 0.0
    for part, rate in zip(jax.tree.leaves(jacobian), jax.tree.leaves(flat_rates(parameters)), strict=True):
        part = part.reshape(*part.shape[:2], -1)
        total = total + jnp.einsum("iap,jbp,p->iajb", part, part, rate.reshape(-1))
    return total


def members(net, count):
    return jax.jit(lambda: draw_members(net, jax.random.key(3), jnp.arange(count, dtype=jnp.uint32)))()


# --- different activations ------------------------------------------------------------------------------


@pytest.mark.long
def test_outputs_and_ntk_of_different_activations_are_those_of_the_definition():
    parameters = draw(MIXED, jax.random.key(0))
    z, H = by_hand(parameters, X), jax.jit(ntk_by_jacobian)(parameters, X)
    np.testing.assert_allclose(outputs(MIXED, parameters, X), z, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(directions.ntk(MIXED, parameters, X), H, rtol=1e-11, atol=1e-13)


@functools.cache
def trained(net: fw.Network, count: int = 3) -> fw.records.Ensemble:
    options = {
        "algorithm": fw.GradientDescent(0.1, 4),
        "members": count,
        "key": 3,
        "run": fw.Run(batch_size=count),
    }
    return fw.train_ensemble(net, X[:2], Y, X[2:], **options, record=fw.Record(ntk=True, kernels=True))


@pytest.mark.long
def test_training_with_different_activations_is_that_of_the_definition():
    """Four steps of three members, by automatic differentiation of the network written out."""

    @jax.jit
    def descended(key):
        parameters = draw(MIXED, key)
        rates = flat_rates(parameters)
        for _ in range(4):
            gradient = jax.grad(lambda p: 0.5 * jnp.sum((by_hand(p, X[:2]) - Y) ** 2))(parameters)
            parameters = jax.tree.map(lambda p, g, r: p - 0.1 * r * g, parameters, gradient, tuple(rates))
        hidden = FUNCTIONS[0](X @ parameters[0].W.T + parameters[0].b[None])
        second = FUNCTIONS[1](hidden @ parameters[1].W.T + parameters[1].b[None])
        kernels = [s @ s.T / s.shape[1] for s in (hidden, second)]
        return by_hand(parameters, X), ntk_by_jacobian(parameters, X), kernels

    ensemble = trained(MIXED)
    each = [descended(member_key(jax.random.key(3), m)) for m in range(3)]
    z, H, kernels = jax.tree.map(lambda *values: np.mean(values, axis=0), *each)
    np.testing.assert_allclose(ensemble.outputs.value[-1], z, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(ensemble.ntk.value[-1], H, rtol=1e-10, atol=1e-12)
    for layer, kernel in enumerate(kernels):
        np.testing.assert_allclose(ensemble.kernels.value[-1, layer], kernel, rtol=1e-11)


@pytest.mark.long
def test_statistics_with_different_activations_are_those_of_the_definition():
    """Mean kernel and mean NTK of twelve networks with eight output neurons, network by network."""
    sampled = fw.sample_statistics(MIXED, X, members=12, key=3, tensors=("V",))
    wide = up_to(MIXED, 4, neurons=8)

    @jax.jit
    def of_one(parameters):
        z, H = by_hand(parameters, X), ntk_by_jacobian(parameters, X)
        return z @ z.T / 8, jnp.einsum("iaib->ab", H) / 8

    G, H = (np.mean(values, axis=0) for values in jax.vmap(of_one)(members(wide, 12)))
    np.testing.assert_allclose(sampled.G.value, G, rtol=1e-11)
    np.testing.assert_allclose(sampled.H.value, H, rtol=1e-11)


def test_differentials_exist_up_to_the_first_kink():
    sampled = fw.sample_statistics(MIXED, X[:1], members=4, key=0, layer=2, tensors=("P", "V"))
    assert np.isfinite(sampled.P.value).all()
    with refused("P does not exist: activation 'relu' has a kink"):
        fw.sample_statistics(MIXED, X[:1], members=4, key=0, layer=3, tensors=("P",))
    with refused("P does not exist: activation 'relu' has a kink"):
        fw.sample_statistics(MIXED, X[:1], members=4, key=0, tensors=("V",)).P  # noqa: B018


def test_the_first_discontinuous_activation_is_named():
    net = MIXED.replace(activation=("tanh", "perceptron", "erf"))
    with refused("activation 'perceptron' cannot be trained by gradients"):
        fw.train_ensemble(net, X[:2], Y, X[2:], algorithm=fw.Newton(), members=2, key=0)
    with refused("activation 'perceptron' has no NTK"):
        fw.sample_statistics(net, X, members=4, key=0)


def same_network(net: fw.MLP) -> fw.Network:
    return fw.Network(net.input_shape, *net.layers)


@pytest.mark.parametrize("kind", [pytest.param("a tuple", marks=pytest.mark.long), "a network"])
def test_equal_activations_and_networks_of_layers_give_the_same_bits(kind):
    net = fw.MLP(WIDTHS, "tanh", **NUMBERS, **RATES)
    twin = same_network(net) if kind == "a network" else fw.MLP(WIDTHS, ("tanh",) * 3, **NUMBERS, **RATES)
    assert twin is not net
    for name in ("outputs", "output_covariance", "loss", "ntk", "kernels"):
        for one, two in zip(
            getattr(trained(net), name), getattr(trained.__wrapped__(twin), name), strict=True
        ):
            np.testing.assert_array_equal(one, two, err_msg=name)


@pytest.mark.long
def test_a_network_of_layers_is_sampled_and_kept_like_a_perceptron(tmp_path):
    net = same_network(MIXED)
    mine, other = (fw.sample_statistics(n, X[:2], members=8, key=1, tensors=("A",)) for n in (net, MIXED))
    np.testing.assert_array_equal(mine.A.value, other.A.value)
    options = {
        "algorithm": fw.GradientDescent(0.1, 2),
        "members": 3,
        "key": 1,
        "record": fw.Record(members=True),
    }
    kept = fw.train_ensemble(net, X[:2], Y, X[2:], **options, run=fw.Run(store=tmp_path / "run.zarr"))
    assert kept.member_outputs().shape == (3, 1, len(X), 2)
    assert kept.configuration["network"] == net.to_dict()


# --- what follows for every kind of layer ---------------------------------------------------------------


SMOOTH = fw.Network(3, fw.Dense(2, C_W=1.3), fw.Dense(3, C_b=0.2), "sin", fw.Dense(2, lambda_W=0.6))


@pytest.mark.long
def test_automatic_derivatives_of_a_layer_are_its_structured_ones(monkeypatch):
    """The NTK and its differentials; a dense layer may follow another without an activation."""
    parameters = draw(SMOOTH, jax.random.key(2))
    structured = jax.jit(lambda p: directions.differentials(SMOOTH, p, X[:2]))(parameters)
    by_matrices = directions.ntk(SMOOTH, parameters, X[:2])
    monkeypatch.setattr(directions, "real_network", plain_network)
    automatic = jax.jit(lambda p: directions.differentials(SMOOTH, p, X[:2]))(parameters)
    for name, expected in automatic._asdict().items():
        scale = np.max(np.abs(expected))
        assert scale > 1e-3, name
        np.testing.assert_allclose(getattr(structured, name), expected, rtol=0, atol=1e-12 * scale)
    by_gradients = directions.ntk(SMOOTH, parameters, X[:2])
    np.testing.assert_allclose(by_gradients, by_matrices, rtol=1e-11, atol=1e-13)


@pytest.mark.long
def test_automatic_gradients_of_a_layer_are_its_structured_ones():
    parameters = draw(MIXED, jax.random.key(2))
    gradients = []
    for layers in (real_network(MIXED), plain_network(MIXED)):
        z, saved = layers.forward(parameters, X, 1)
        gradients.append(layers.backward(parameters, saved, jnp.cos(z)))
    for one, two in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-11, atol=1e-13)


def test_a_kind_without_a_file_is_refused_by_name():
    @dataclasses.dataclass(frozen=True)
    class Unheard(AbstractLayer):
        def output_shape(self, shape):
            return shape

        def to_plain(self):
            return {}

    with refused("has no real networks; add a file for Unheard to experiment/layers"):
        real(Unheard(), (3,))


def test_parameters_of_another_network_are_refused():
    with refused("parameters must have 4 entries, got 3"):
        outputs(MIXED, draw(MIXED, jax.random.key(0))[:3], X)
