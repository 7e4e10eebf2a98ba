"""The learning rates of every layer as an Optax transformation: the same steps as the library's own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import finitewidth as fw
from finitewidth.core.keys import as_key
from finitewidth.experiment.ensemble.descent import moved, pulled_back
from finitewidth.experiment.sampling import draw, member_key, outputs


@pytest.mark.parametrize("activation", [("tanh", "gelu"), pytest.param("gelu", marks=pytest.mark.long)])
def test_scaled_updates_are_the_steps_of_the_librarys_own_networks(activation):
    net = fw.MLP.critical((3, 6, 5, 2), activation)
    rng = np.random.default_rng(0)
    X, Y = jnp.asarray(rng.normal(size=(4, 3))), jnp.asarray(rng.normal(size=(4, 2)))
    parameters = own = draw(net, member_key(as_key(0), 0))
    optimizer = optax.chain(fw.optax.scale_by_layer(net), optax.sgd(0.05))
    state = optimizer.init(parameters)

    @jax.jit
    def theirs(parameters):
        gradient = jax.grad(lambda p: 0.5 * jnp.sum((outputs(net, p, X) - Y) ** 2))(parameters)
        updates, _ = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates)

    @jax.jit
    def ours(parameters):
        _, gradient = pulled_back(net, parameters, X, lambda z: (None, fw.MSE().gradient(z, Y)))
        return moved(net, parameters, gradient, 0.05)

    for _ in range(3):
        parameters, own = theirs(parameters), ours(own)
    for theirs_end, ours_end in zip(jax.tree.leaves(parameters), jax.tree.leaves(own), strict=True):
        np.testing.assert_allclose(theirs_end, ours_end, rtol=1e-12, atol=1e-14)


def test_layers_of_any_tree_are_told_by_a_function_of_the_path():
    net = fw.MLP.critical((3, 6, 2), "tanh", lambda_b=0.5)
    shapes = {"Dense_0": ((3, 6), (6,)), "Dense_1": ((6, 2), (2,))}
    tree = {"params": {k: {"kernel": np.ones(W), "bias": np.ones(b)} for k, (W, b) in shapes.items()}}
    transformation = fw.optax.scale_by_layer(net, lambda path: 1 + int(path.split("Dense_")[1][0]))
    scaled, _ = transformation.update(tree, transformation.init(tree))
    for l, name in enumerate(shapes):
        assert scaled["params"][name]["kernel"][0, 0] == net.lambda_W[l] / net.widths[l]
        assert scaled["params"][name]["bias"][0] == net.lambda_b[l]
    with pytest.raises(ValueError, match="sequence of layers, .* pass layer_of"):
        fw.optax.scale_by_layer(net).init(tree)
    with pytest.raises(ValueError, match="shape \\(7, 3\\)"):
        fw.optax.scale_by_layer(net).init([(np.ones((7, 3)), np.ones(7)), (np.ones((2, 6)), np.ones(2))])
    with pytest.raises(ValueError, match="weights of layers \\[1\\], but the network has layers 1 to 2"):
        fw.optax.scale_by_layer(net).init([(np.ones((6, 3)), np.ones(6))])
    with pytest.raises(ValueError, match="is put into layer 9"):
        fw.optax.scale_by_layer(net, lambda path: 9).update(tree, ())
