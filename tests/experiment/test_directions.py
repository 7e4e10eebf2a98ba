"""NTK, dNTK and ddNTKs of real networks: three ways that know nothing of each other, and Taylor models.

Agreement is to 1e-10 of the largest entry; the three ways are automatic differentiation, the layer-to-layer
forward equations and directions sent through the network by hand.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import autodiff_derivatives as derivatives
from helpers.forward_equations import forward_equations
from helpers.problems import INPUTS, PER_LAYER, also_long, refused

import finitewidth as fw
from finitewidth.experiment import directions
from finitewidth.experiment.sampling import draw, outputs, preactivations, rates
from finitewidth.experiment.taylor import taylor

TOLERANCE = 1e-10
X = jnp.asarray(INPUTS["generic"][:2])
AUTODIFF = {
    "H": derivatives.ntk,
    "dH": derivatives.dntk,
    "ddI": derivatives.ddntk_1,
    "ddII": derivatives.ddntk_2,
}


def network(widths, activation):
    depth = len(widths) - 1
    return fw.MLP(widths, activation, **{name: values[:depth] for name, values in PER_LAYER.items()})


NETWORKS = [
    network((3, 2, 3, 2), "gelu"),
    pytest.param(network((3, 3, 2), "tanh"), marks=pytest.mark.long),
    pytest.param(network((3, 2, 3, 2), ("sin", "softplus")), marks=pytest.mark.long),
]


def assert_agree(value, expected, name):
    scale = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(value, expected, rtol=0, atol=TOLERANCE * scale, err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize("net", NETWORKS, ids=str)
def test_automatic_differentiation_and_directions_agree_with_the_forward_equations_at_every_layer(net, key):
    @jax.jit
    def three_ways(parameters):
        layers = range(1, net.depth + 1)
        by_autodiff = {l: {name: f(net, parameters, X, l) for name, f in AUTODIFF.items()} for l in layers}
        by_hand = directions.differentials(net, parameters, X), directions.ntk(net, parameters, X)
        return forward_equations(net, parameters, X), by_autodiff, by_hand

    expected, by_autodiff, (by_hand, by_matrices) = three_ways(draw(net, key))
    for l, values in by_autodiff.items():
        for name, value in values.items():
            assert_agree(value, getattr(expected[l - 1], name), f"{name} of layer {l}")
            assert np.any(np.asarray(value)) or (l == 1 and name != "H")
    for name in ("z", *AUTODIFF):
        assert_agree(getattr(by_hand, name), getattr(expected[-1], name), name)
    assert_agree(by_matrices, expected[-1].H, "H by matrices")


def test_ntk_is_the_definition_on_a_network_of_one_neuron():
    """z = W2 tanh(W1 x + b1) + b2: every gradient written down."""
    net = fw.MLP((1, 1, 1), "tanh", C_b=0.3, C_W=1.1, lambda_b=(0.5, 0.2), lambda_W=(1.5, 0.7))
    (b1, W1), (b2, W2) = draw(net, jax.random.key(3))
    x = 0.8
    t = np.tanh(float(W1[0, 0]) * x + float(b1[0]))
    slope = float(W2[0, 0]) * (1 - t**2)
    expected = 0.5 * slope**2 + 1.5 * (slope * x) ** 2 + 0.2 + 0.7 * t**2
    H = derivatives.ntk(net, draw(net, jax.random.key(3)), jnp.array([[x]]))
    np.testing.assert_allclose(H.item(), expected, rtol=1e-12)


# --- the differentials say how training moves outputs and the NTK -------------------------------------


@pytest.mark.long  # `journeys/test_one_network.py` takes many steps
def test_a_gradient_step_moves_outputs_and_ntk_as_the_differentials_say(key):
    """What is left over falls as eta^4 for z and eta^3 for H (PDLT chapter infinity)."""
    net = network((3, 4, 3, 2), "tanh")
    theta = draw(net, key)
    e = jnp.asarray(np.random.default_rng(0).standard_normal((2, 2)))  # residual, (neuron, sample)
    start = jax.jit(lambda p: directions.differentials(net, p, X))(theta)
    gradient = jax.jit(lambda p: jax.vjp(lambda q: outputs(net, q, X).T, p)[1](e)[0])(theta)
    linear = jnp.einsum("iajb,jb->ia", start.H, e)
    quadratic = jnp.einsum("iajbkc,jb,kc->ia", start.dH, e, e)
    cubic = jnp.einsum("iajbkcld,jb,kc,ld->ia", start.ddI, e, e, e)
    turn = jnp.einsum("iajbkc,kc->iajb", start.dH, e)
    once = turn + turn.transpose(2, 3, 0, 1)
    bend = jnp.einsum("iajbkcld,kc,ld->iajb", start.ddI, e, e)
    twice = bend + bend.transpose(2, 3, 0, 1)
    twice = twice + 2 * jnp.einsum("iajbkcld,kc,ld->iajb", start.ddII, e, e)
    left_over = []
    for eta in (0.04, 0.02):
        moved = tuple(
            type(layer)(layer.b - eta * rate_b * g.b, layer.W - eta * rate_W * g.W)
            for layer, g, (rate_b, rate_W) in zip(theta, gradient, rates(net), strict=True)
        )
        z = outputs(net, moved, X).T
        z_error = z - (start.z - eta * linear + eta**2 / 2 * quadratic - eta**3 / 6 * cubic)
        H_error = directions.ntk(net, moved, X) - (start.H - eta * once + eta**2 / 2 * twice)
        left_over.append((jnp.max(jnp.abs(z_error)), jnp.max(jnp.abs(H_error))))
    (z_first, H_first), (z_second, H_second) = np.array(left_over)
    assert 3.5 < np.log2(z_first / z_second) < 4.5
    assert 2.5 < np.log2(H_first / H_second) < 3.5


# --- Taylor models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [2, *also_long(1, 3)])
def test_taylor_models_err_by_one_power_more_than_their_order(order, key):
    net = network((3, 4, 3, 2), "tanh")
    theta, direction = draw(net, key), draw(net, jax.random.key(1))
    model = jax.jit(taylor(net, theta, order))
    errors = []
    for h in (0.02, 0.01):
        moved = jax.tree.map(lambda p, d, h=h: p + h * d, theta, direction)
        errors.append(np.max(np.abs(model(moved, X) - outputs(net, moved, X))))
    assert order + 0.6 < np.log2(errors[0] / errors[1]) < order + 1.4


def test_taylor_model_of_a_linear_network_of_three_layers_is_exact_at_third_order(key):
    """The outputs are a polynomial of degree three in the parameters."""
    net = network((3, 4, 3, 2), "linear")
    theta, moved = draw(net, key), draw(net, jax.random.key(1))
    np.testing.assert_allclose(taylor(net, theta, 3)(moved, X), outputs(net, moved, X), rtol=1e-12)
    assert np.max(np.abs(taylor(net, theta, 2)(moved, X) - outputs(net, moved, X))) > 1e-3


def test_preactivations_are_those_of_the_definition(key):
    net = network((3, 4, 2), "relu")
    (b1, W1), (b2, W2) = (tuple(map(np.asarray, layer)) for layer in draw(net, key))
    first, second = preactivations(net, draw(net, key), X)
    np.testing.assert_allclose(first, np.asarray(X) @ W1.T + b1, rtol=1e-12)
    np.testing.assert_allclose(second, np.maximum(np.asarray(X) @ W1.T + b1, 0) @ W2.T + b2, rtol=1e-12)


def test_impossible_requests_are_refused(key):
    net = network((3, 4, 2), "tanh")
    with refused("layer must be a number from 1 to 2, got 3"):
        derivatives.ntk(net, draw(net, key), X, 3)
    with refused("order must be 1, 2 or 3, got 4"):
        taylor(net, draw(net, key), 4)
    wide = fw.MLP((3, 4000, 1), "tanh")
    with refused("the ddNTKs of 2 inputs and 4000 neurons needs .* GB"):
        forward_equations(wide, draw(wide, key), X)
