"""The parameters of sampled networks: their distribution, and that nothing but the key decides them."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers.problems import INPUTS, PER_LAYER, WIDTHS, refused

import finitewidth as fw
from finitewidth.core.keys import as_key
from finitewidth.core.run import Run
from finitewidth.experiment.partition import partition
from finitewidth.experiment.sampling import draw, draw_members, member_key, preactivations, up_to

NET = fw.MLP(WIDTHS, "tanh", **PER_LAYER)


def drawn(members, key, net=NET):
    return jax.jit(lambda numbers: draw_members(net, key, numbers))(jnp.asarray(members, jnp.uint32))


def test_a_member_has_the_same_bits_in_every_batch(key):
    together = drawn(range(200), key)
    for start, size in ((61, 1), (61, 64)):
        batch = drawn(range(start, start + size), key)
        for layer, expected in zip(batch, together, strict=True):
            np.testing.assert_array_equal(layer.b, expected.b[start : start + size])
            np.testing.assert_array_equal(layer.W, expected.W[start : start + size])
    alone = jax.jit(lambda: draw(NET, member_key(key, 5)))()
    np.testing.assert_array_equal(alone[1].W, together[1].W[5])


def test_hidden_layers_do_not_depend_on_how_many_outputs_there_are(key):
    more = drawn(range(4), key, up_to(NET, 4, neurons=9))
    np.testing.assert_array_equal(more[2].W, drawn(range(4), key)[2].W)


def test_parameters_have_the_variances_of_the_definition(key):
    """20000 members; means and variances inside 4 standard errors, and Gaussian fourth moments."""
    count = 20000
    for l, layer in enumerate(drawn(range(count), key)):
        for values, variance in ((layer.b, NET.C_b[l]), (layer.W, NET.C_W[l] / NET.widths[l])):
            flat = np.asarray(values).ravel()
            if variance == 0:
                assert not flat.any()
                continue
            z = flat / np.sqrt(variance)
            for power, moment, spread in ((1, 0, 1), (2, 1, 2), (4, 3, 96)):
                assert abs(np.mean(z**power) - moment) < 4 * np.sqrt(spread / z.size)


def test_members_and_layers_are_independent(key):
    first = np.asarray(drawn(range(20000), key)[0].W[:, 0, 0])
    second = np.asarray(drawn(range(20000), key)[1].W[:, 0, 0])
    for one, other in ((first[1:], first[:-1]), (first, second)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(20000)


def test_first_layer_has_the_kernel_of_the_definition(key):
    """E[z z] = C_b + C_W x.x / n_0, 20000 members."""
    X = jnp.asarray(INPUTS["generic"])
    z = jax.jit(jax.vmap(lambda p: preactivations(NET, p, X)[0]))(drawn(range(20000), key))
    products = np.einsum("mai,mbi->mab", z, z) / z.shape[-1]
    pulls = products.mean(axis=0) - (NET.C_b[0] + NET.C_W[0] / 3 * np.asarray(X @ X.T))
    pulls /= products.std(axis=0) / np.sqrt(len(products))
    assert np.max(np.abs(pulls)) < 4


def test_keys_are_numbers_or_jax_keys(key):
    data = jax.random.key_data
    np.testing.assert_array_equal(data(as_key(7)), data(jax.random.key(7)))
    np.testing.assert_array_equal(data(as_key(np.int64(7))), data(as_key(jax.random.PRNGKey(7))))
    assert as_key(key) is key
    for bad in (-1, 1.5, True, "seed", None):
        with refused("key must be a whole number"):
            as_key(bad)


def test_batches_are_chosen_from_a_stated_memory():
    chosen = partition(1000, Run(memory=1e6), of_one=1e4, least_batches=2)
    assert chosen.batch_size == 100 and chosen.batches == 10
    assert partition(1000, Run(), of_one=1e4, least_batches=4).batch_size == 250
    numbers, weight = partition(10, Run(batch_size=4), of_one=1, least_batches=1).numbers(2)
    assert numbers.tolist() == [8, 9, 10, 11] and weight.tolist() == [1, 1, 0, 0]
    with refused("memory of .* is too little: 1 member"):
        partition(1000, Run(memory=1e3), of_one=1e4, least_batches=2)
    with refused("members must be a whole number of at least 1, got 0"):
        partition(0, Run(), of_one=1, least_batches=1)
    with refused("batch_size must be a whole number of at least 2, got 1"):
        partition(5, Run(batch_size=1), of_one=1, least_batches=1, lowest=2)
