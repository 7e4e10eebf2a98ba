"""NTK, linearization and Taylor models of any function of parameters and inputs."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.experiment import ntk_blocks
from finitewidth.experiment.sampling import rates

X = np.random.default_rng(0).standard_normal((5, 3))
OTHER = np.random.default_rng(1).standard_normal((4, 3))
PARAMETERS = {
    "in": jax.random.normal(jax.random.key(1), (3, 6)),
    "out": (jax.random.normal(jax.random.key(2), (6, 2)), jnp.asarray(0.3)),
}


def plain(parameters, X):
    """A model that is no network of the package: its inputs enter twice, and one parameter is a number."""
    hidden = jnp.tanh(X @ parameters["in"]) * jnp.sum(X**2, axis=1, keepdims=True)
    W, scale = parameters["out"]
    return scale * hidden @ W


def by_jacobian(f, parameters, X, X_other, rates):
    """The definition, axes (neuron, sample, neuron, sample)."""

    @jax.jit
    def jacobian(parameters, X):
        return jax.jacrev(lambda p: f(p, X).T)(parameters)

    left, right = (jacobian(parameters, jnp.asarray(x)) for x in (X, X_other))
    whole = jax.tree.map(lambda rate, part: np.broadcast_to(rate, part.shape), rates, parameters)
    total = 0.0
    for one, two, rate in zip(*map(jax.tree.leaves, (left, right, whole)), strict=True):
        one, two = (np.asarray(part).reshape(*part.shape[:2], -1) for part in (one, two))
        total = total + np.einsum("iap,jbp,p->iajb", one, two, rate.reshape(-1))
    return total


# --- the NTK --------------------------------------------------------------------------------------------


RATES = {"in": jnp.asarray([[0.5], [1.5], [0.0]]), "out": (2.0, 0.7)}


PRODUCTS, ALONG = ntk_blocks.ProductBlocks, ntk_blocks.DirectionBlocks
SIZES = [
    (PRODUCTS, 1e9, 5, 2),
    pytest.param(PRODUCTS, 5000, 2, 2, marks=pytest.mark.long),
    (ALONG, 1e9, 5, 2),
    pytest.param(ALONG, 3000, 1, 2, marks=pytest.mark.long),
    pytest.param(ALONG, 1500, 1, 1, marks=pytest.mark.long),
]


@pytest.mark.parametrize("blocks, memory, rows, neurons", SIZES)
def test_ntk_of_a_function_is_its_definition_in_blocks_of_any_size(
    blocks, memory, rows, neurons, monkeypatch
):
    """Both ways to compute a block, down to one output neuron of one sample at a time."""
    chosen = []

    def only(model, X, counts, average, memory):
        chosen.append(blocks.of(model, 2, counts, ntk_blocks.Cost(100.0, 8.0), memory))
        return chosen[-1]

    monkeypatch.setattr("finitewidth.experiment.empirical.cheaper_blocks", only)
    within = by_jacobian(plain, PARAMETERS, X, X, RATES)
    H = fw.empirical.ntk(plain, PARAMETERS, X, rates=RATES, memory=memory)
    np.testing.assert_allclose(H, within, rtol=1e-12, atol=1e-13)
    averaged = fw.empirical.ntk(plain, PARAMETERS, X, rates=RATES, memory=memory, average_outputs=True)
    np.testing.assert_allclose(averaged, np.einsum("iaib->ab", within) / 2, rtol=1e-12, atol=1e-13)
    between = by_jacobian(plain, PARAMETERS, X, OTHER, RATES)
    H = fw.empirical.ntk(plain, PARAMETERS, X, OTHER, rates=RATES, memory=memory)
    np.testing.assert_allclose(H, between, rtol=1e-12, atol=1e-13)
    assert (chosen[0].rows, chosen[0].neurons) == (rows, neurons)


def test_ntk_of_a_network_is_that_of_its_function_with_its_rates():
    net = fw.Network(
        3, fw.Dense(4, C_b=0.1), fw.Residual("tanh", fw.Dense(4), gamma=0.6), "relu", fw.Dense(2)
    )
    parameters = jax.jit(lambda: fw.empirical.initialize(net, key=3))()
    f = functools.partial(fw.empirical.apply, net)
    expected = by_jacobian(f, parameters, X, X, rates(net))
    for memory in (1e9, 4000):
        np.testing.assert_allclose(fw.empirical.ntk(net, parameters, X, memory=memory), expected, rtol=1e-11)
        between = fw.empirical.ntk(net, parameters, X[:3], X[3:], memory=memory)
        np.testing.assert_allclose(between, expected[:, :3, :, 3:], rtol=1e-11)
    averaged = fw.empirical.ntk(net, parameters, X, average_outputs=True)
    np.testing.assert_allclose(averaged, np.einsum("iaib->ab", expected) / 2, rtol=1e-11)
    np.testing.assert_allclose(fw.empirical.ntk(f, parameters, X, rates=rates(net)), expected, rtol=1e-11)
    unit = fw.empirical.ntk(net, parameters, X, rates=1.0)
    np.testing.assert_allclose(
        unit, by_jacobian(f, parameters, X, X, jax.tree.map(lambda _: 1.0, parameters))
    )


def test_equinox_models_of_one_output_and_of_whole_numbers():
    """Single-precision parameters are promoted; inputs may be the numbers of tokens."""

    class Model(eqx.Module):
        table: jax.Array
        layer: eqx.nn.Linear

        def __call__(self, tokens):
            return self.layer(jnp.sin(self.table[tokens]).sum(axis=0))

    table = jnp.asarray(np.random.default_rng(2).standard_normal((6, 4)), jnp.float32)
    model = Model(table, eqx.nn.Linear(4, "scalar", key=jax.random.key(0)))
    learns, fixed = eqx.partition(model, eqx.is_inexact_array)
    tokens = np.array([[0, 3, 3], [5, 1, 0], [2, 2, 4]])
    f = lambda p, x: jax.vmap(eqx.combine(p, fixed))(x)  # noqa: E731
    H = fw.empirical.ntk(f, learns, tokens)
    double = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), learns)
    expected = by_jacobian(
        lambda p, x: f(p, x)[:, None], double, tokens, tokens, jax.tree.map(lambda _: 1.0, double)
    )
    assert H.shape == (1, 3, 1, 3)
    np.testing.assert_allclose(H, expected, rtol=1e-12)

    @jax.jit
    def moved(parameters, tokens):
        step = jax.tree.map(lambda leaf: 0.1 * jnp.cos(leaf), parameters)
        tangent = jax.jvp(lambda p: f(p, tokens), (parameters,), (step,))
        return sum(tangent), fw.empirical.taylor(f, learns, order=1)(
            jax.tree.map(jnp.add, parameters, step), tokens
        )

    expected, linear = moved(double, jnp.asarray(tokens))
    np.testing.assert_allclose(linear, expected, rtol=1e-12)


def test_work_decides_between_products_of_gradients_and_derivatives_along_them():
    """Many outputs of dense weights: derivatives; one output, or weights that positions share: products."""

    def chosen(net, average=False):
        parameters = jax.jit(lambda: fw.empirical.initialize(net, 0))()
        model = ntk_blocks.Model(functools.partial(fw.empirical.apply, net), parameters, None)
        X = jnp.zeros((4, *net.input_shape))
        return type(ntk_blocks.cheaper_blocks(model, X, (4, 4), average, 1e9))

    assert chosen(fw.MLP((8, 16, 1), "relu")) is PRODUCTS
    assert chosen(fw.MLP((8, 16, 10), "relu")) is ALONG
    assert chosen(fw.MLP((8, 16, 10), "relu"), average=True) is PRODUCTS
    image = fw.Network((6, 6, 1), fw.Conv(8), "relu", fw.GlobalAveragePool(), fw.Dense(10))
    assert chosen(image) is PRODUCTS


# --- Taylor models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3])
def test_taylor_models_of_a_function_err_by_one_power_more_than_their_order(order):
    steps = 0.2 * 0.5 ** np.arange(5)
    model = fw.empirical.taylor(plain, PARAMETERS, order)

    @jax.jit
    def error(step):
        moved = jax.tree.map(lambda p: p + step * jnp.cos(p), PARAMETERS)
        return jnp.abs(model(moved, jnp.asarray(X)) - plain(moved, X)).max()

    errors = [error(step) for step in steps]
    slopes = np.diff(np.log(errors)) / np.log(0.5)
    np.testing.assert_allclose(slopes[-1], order + 1, atol=0.1)


def test_linearized_networks_learn_as_their_ntk_says():
    """One small step of gradient descent moves the outputs of any network by its NTK."""
    net = fw.Network((4, 2), fw.SelfAttention(3), fw.GlobalAveragePool(), fw.Dense(2))
    x = jnp.asarray(np.random.default_rng(4).standard_normal((3, 4, 2)))
    start = jax.jit(lambda: fw.empirical.initialize(net, 5))()

    @jax.jit
    def descended(start):
        gradient = jax.grad(lambda p: jnp.sum(fw.empirical.apply(net, p, x) ** 2) / 2)(start)
        moved = jax.tree.map(lambda p, g, rate: p - rate * g, start, gradient, rates(net))
        return fw.empirical.apply(net, start, x), fw.empirical.taylor(net, start, order=1)(moved, x)

    before, after = map(np.asarray, descended(start))
    H = fw.empirical.ntk(net, start, x)
    np.testing.assert_allclose(after, before - np.einsum("iajb,bj->ai", H, before), rtol=1e-11)


# --- refusals -------------------------------------------------------------------------------------------


def test_what_is_no_model_is_refused_with_the_remedy():
    with refused("f must be a function of parameters and inputs or an fw.Network, got"):
        fw.empirical.ntk("tanh", PARAMETERS, X)
    with refused("which has no derivatives; pass what learns only"):
        fw.empirical.ntk(plain, {"in": jnp.arange(3)}, X)
    with refused("parameters has a leaf that is no array"):
        fw.empirical.taylor(plain, {"in": jnp.tanh}, order=1)
    with refused("parameters has no arrays"):
        fw.empirical.taylor(plain, {}, order=1)
    with refused("rates must have the structure of the parameters or a prefix of it"):
        fw.empirical.ntk(plain, PARAMETERS, X, rates={"in": 1.0})
    with refused("rates has an array that does not fit"):
        fw.empirical.ntk(plain, PARAMETERS, X, rates={"in": jnp.ones((2, 3, 6)), "out": 1.0})
    with refused("rates must be numbers of at least 0"):
        fw.empirical.ntk(plain, PARAMETERS, X, rates=-1.0)
    with refused(re.escape("shape (5, n_L) or (5,) for 5 samples, got (5, 2, 1)")):
        fw.empirical.ntk(lambda p, x: plain(p, x)[:, :, None], PARAMETERS, X)
    with refused("memory must be a positive number of bytes, got 0"):
        fw.empirical.ntk(plain, PARAMETERS, X, memory=0)
    with refused("is too little for one gradient of 31 parameters"):
        fw.empirical.ntk(plain, PARAMETERS, X, memory=100)
    with refused("X must be an array with samples along its first axis"):
        fw.empirical.ntk(plain, PARAMETERS, 1.0)
    with refused("order must be 1, 2 or 3, got 4"):
        fw.empirical.taylor(plain, PARAMETERS, 4)
    with refused("parameters must have the structure of those around which"):
        fw.empirical.taylor(plain, PARAMETERS, order=1)({"in": 0.0}, X)


def test_networks_take_inputs_of_their_shape_and_no_masks():
    net = fw.Network((4, 4, 1), fw.Conv(2), fw.Dropout(0.5), fw.Flatten(), fw.Dense(1))
    parameters = fw.empirical.initialize(net, 0)
    with refused("draws masks, anew at every step of training"):
        fw.empirical.ntk(net, parameters, np.zeros((2, 4, 4, 1)))
    with refused("draws masks, anew at every step of training"):
        fw.empirical.taylor(net, parameters, order=1)
    with refused(re.escape("X must have shape (samples, 4, 4, 1), got (2, 16)")):
        fw.empirical.apply(net, parameters, np.zeros((2, 16)))
    assert jax.eval_shape(lambda p: fw.empirical.apply(net, p, np.zeros((2, 4, 4, 1))), parameters).shape == (
        2,
        1,
    )
