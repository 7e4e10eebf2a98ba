"""Every kind of layer in real networks: its action by other means, and its derivatives by the definition."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import torch
from helpers.plain_layers import plain_network
from helpers.problems import also_long, refused

import finitewidth as fw
from finitewidth.experiment import directions
from finitewidth.experiment.layers.abstract import real
from finitewidth.experiment.layers.layer_norm import LayerNormParameters
from finitewidth.experiment.sampling import draw, outputs, preactivations, rates, real_network, up_to

RANDOM = np.random.default_rng(20)


def layer_of(layer: fw.Network, shape, key=0):
    """A layer of a real network with its parameters."""
    built = real(layer, shape)
    normals = np.random.default_rng(key).standard_normal(built.normal_count)
    return built, jax.jit(built.initial)(jnp.asarray(normals))


def applied(layer, x) -> np.ndarray:
    built, parameters = layer_of(layer, x.shape[1:])
    return np.asarray(jax.jit(built.apply)(parameters, jnp.asarray(x)))


def channels_first(x) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1)))


def channels_last(x: torch.Tensor) -> np.ndarray:
    return np.moveaxis(x.numpy(), 1, -1)


# --- action ---------------------------------------------------------------------------------------------

CONVOLUTIONS = [
    ((7, 6, 3), {"filter": (3, 2), "stride": (2, 1), "padding": (1, 0)}),
    ((6, 6, 2), {"filter": 3, "stride": 2, "padding": 1}),
    ((5, 4, 2), {"filter": 3, "padding": "valid"}),
    ((9, 3), {"filter": 4, "stride": 3, "padding": 2}),
]


@pytest.mark.parametrize("shape, options", CONVOLUTIONS)
def test_convolution_is_that_of_pytorch(shape, options):
    """Weights have axes (neuron, taps, channels); PyTorch has (neuron, channels, taps)."""
    x, layer = RANDOM.standard_normal((4, *shape)), fw.Conv(5, C_b=0.3, C_W=1.7, **options)
    _, (b, W) = layer_of(layer, shape)
    taps = tuple(axis.taps for axis in layer.axes(shape))
    weights = np.moveaxis(np.asarray(W).reshape(5, *taps, shape[-1]), -1, 1)
    convolve = torch.nn.functional.conv2d if len(shape) == 3 else torch.nn.functional.conv1d
    padding = 0 if options["padding"] == "valid" else options["padding"]
    expected = convolve(
        channels_first(x),
        torch.from_numpy(weights.copy()),
        torch.from_numpy(np.array(b)),
        options.get("stride", 1),
        padding,
    )
    np.testing.assert_allclose(applied(layer, x), channels_last(expected), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("padding, mode", [("same", "constant"), ("circular", "wrap")])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_puts_an_odd_position_behind(padding, mode, stride):
    x, layer = RANDOM.standard_normal((3, 6, 2)), fw.Conv(4, filter=4, stride=stride, padding=padding)
    _, (b, W) = layer_of(layer, (6, 2))
    total = max((-(-6 // stride) - 1) * stride + 4 - 6, 0)
    wide = np.pad(x, ((0, 0), (total // 2, total - total // 2), (0, 0)), mode=mode)
    places = range(0, wide.shape[1] - 3, stride)
    expected = np.stack([wide[:, p : p + 4].reshape(3, -1) @ np.asarray(W).T + b for p in places], axis=1)
    np.testing.assert_allclose(applied(layer, x), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("window, stride, padding", [(2, None, 0), (3, 2, 1), ((2, 3), (1, 2), (1, 1))])
def test_average_pool_is_that_of_pytorch(window, stride, padding, counted):
    x = RANDOM.standard_normal((2, 6, 7, 3))
    layer = fw.AveragePool(window, stride, padding=padding, count_padding=counted)
    expected = torch.nn.functional.avg_pool2d(
        channels_first(x), window, stride, padding, count_include_pad=counted
    )
    np.testing.assert_allclose(applied(layer, x), channels_last(expected), rtol=1e-12, atol=1e-13)


def test_pools_and_flattening_are_plain_averages_and_vectors():
    x = RANDOM.standard_normal((2, 3, 4, 5))
    np.testing.assert_allclose(applied(fw.GlobalAveragePool(), x), x.mean(axis=(1, 2)), rtol=1e-13)
    np.testing.assert_array_equal(applied(fw.Flatten(), x), x.reshape(2, -1))
    layer = fw.AveragePool(2, stride=1, padding="circular")
    around = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)), mode="wrap")
    expected = (around[:, :-1, :-1] + around[:, 1:, :-1] + around[:, :-1, 1:] + around[:, 1:, 1:]) / 4
    np.testing.assert_allclose(applied(layer, x), expected, rtol=1e-12)


@pytest.mark.parametrize("axes, normalized", [("channels", 1), ("all", 3)])
def test_layer_norm_is_that_of_pytorch(axes, normalized):
    """Gain 1 and offset 0 at initialization, and the biased variance."""
    x = RANDOM.standard_normal((2, 3, 4, 5))
    layer = fw.LayerNorm(epsilon=1e-3, axes=axes)
    expected = torch.nn.functional.layer_norm(torch.from_numpy(x), x.shape[-normalized:], eps=1e-3)
    np.testing.assert_allclose(applied(layer, x), expected.numpy(), rtol=1e-12, atol=1e-13)
    built, (gain, offset) = layer_of(layer, x.shape[1:])
    assert gain.shape == offset.shape == (5,)
    moved = jax.jit(built.apply)(LayerNormParameters(2 * gain, offset + 1), jnp.asarray(x))
    np.testing.assert_allclose(moved, 2 * expected.numpy() + 1, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("mixing", [None, "sum", "concatenate"])
@pytest.mark.parametrize("scaling", ["root", *also_long("linear")])
def test_attention_is_its_definition(mixing, scaling):
    x = RANDOM.standard_normal((3, 4, 2))
    positions = mixing and fw.Positions(mixing, 0.7, 1.3)
    layer = fw.SelfAttention(
        6, C_OV=1.4, C_b=0.2, sigma_QK=1.6, positions=positions, scaling=scaling, heads=2
    )
    _, (b, W_O, W_V, W_K, features, W_Q) = layer_of(layer, (4, 2))
    behind = np.empty((3, 4, 6))
    for sample in range(3):
        seen = x[sample]
        if mixing == "sum":
            seen = seen + features
        if mixing == "concatenate":
            seen = np.concatenate([seen, features], axis=1)
        for p, head in itertools.product(range(4), range(2)):
            part = slice(3 * head, 3 * head + 3)
            keys = seen @ W_K[part].T
            query = keys[p] if W_Q is None else seen[p] @ W_Q[part].T
            a = np.exp(1.6 * keys @ query / (3 if scaling == "linear" else 3**0.5))
            behind[sample, p] = a / a.sum() @ x[sample] @ W_V[part].T @ W_O[:, part].T + (
                behind[sample, p] if head else b
            )
    np.testing.assert_allclose(applied(layer, x), behind, rtol=1e-12)


def test_attention_is_drawn_as_its_definition_says():
    """Variances of all weights, and the covariance of the features of positions."""
    layer = fw.SelfAttention(40, C_OV=1.5, C_b=0.3, positions=fw.Positions("concatenate", 0.5, 1.2))
    built, parameters = layer_of(layer, (3, 60))
    for part, variance in zip(parameters[:4], (0.3, 1.5 / 40, 1 / 60, 1 / 120), strict=True):
        assert np.mean(np.square(part)) == pytest.approx(variance, rel=4 * (2 / part.size) ** 0.5)
    np.testing.assert_allclose(built.rates[:3], (0.3, 1.5 / 40, 1 / 60), rtol=1e-14)
    assert built.rates[3:] == (0.0, 0.0, None)
    root, (*_, W_K, features, W_Q) = layer_of(dataclasses.replace(layer, scaling="root"), (3, 60))
    assert np.mean(np.square(W_Q)) == pytest.approx(1 / 120, rel=4 * (2 / W_Q.size) ** 0.5)
    assert abs(np.mean(W_Q * W_K)) < 4 / 120 / W_Q.size**0.5
    np.testing.assert_allclose(root.rates[3:], (1 / 120, 0, 1 / 120), rtol=1e-14)
    normals = jnp.asarray(RANDOM.standard_normal((200, built.normal_count)))
    many = np.asarray(jax.jit(jax.vmap(built.initial))(normals).features)
    R = np.einsum("mpc,mqc->pq", many, many) / (200 * 60)
    np.testing.assert_allclose(R, layer.positions.kernel((3,)), atol=4 * 0.5 * (2 / 12000) ** 0.5)


def test_dropout_keeps_values_over_their_probability_with_a_mask_for_each_row():
    layer = fw.Dropout(0.3)
    x = np.ones((50, 8, 30))
    mask = applied(layer, x)
    np.testing.assert_allclose(np.unique(mask), [0, 1 / 0.7], rtol=1e-15)
    assert mask.mean() == pytest.approx(1, abs=4 * (0.3 / 0.7 / mask.size) ** 0.5)
    np.testing.assert_array_equal(applied(layer, x[:7]), mask[:7])  # the same network, the same rows
    assert np.abs(np.corrcoef(mask.reshape(50, -1)) - np.eye(50)).max() < 5 / 240**0.5
    built, other = layer_of(layer, (8, 30), key=1)
    assert (np.asarray(jax.jit(built.apply)(other, jnp.asarray(x))) != mask).mean() > 0.3


# --- derivatives ----------------------------------------------------------------------------------------

BLOCK = fw.Residual("tanh", fw.Dense(4, C_W=0.7, lambda_W=0.6), gamma=0.8)
LONG = fw.Residual("gelu", fw.Dense(3), "sin", fw.Dense(5, C_b=0.1), gamma=-0.4, shortcut=[fw.Dense(5)])
NETWORKS = {
    "residual": fw.Network(3, fw.Dense(4, C_b=0.2), BLOCK, LONG, "tanh", fw.Dense(2)),
    "nested": fw.Network(
        3, fw.Residual(fw.Dense(3), BLOCK.replace(layers=["sin", fw.Dense(3)])), fw.Dense(2)
    ),
    "image": fw.Network(
        (4, 4, 2),
        fw.Conv(3, C_b=0.1, stride=2),
        fw.Residual(fw.LayerNorm(lambda_gain=0.3, lambda_offset=0.2), fw.Conv(3, padding="circular")),
        fw.AveragePool(2, padding=1, count_padding=False),
        "gelu",
        fw.Dense(3, lambda_b=0.4),
        fw.Flatten(),
        fw.Dense(2),
    ),
    "sequence": fw.Network(
        (4, 3),
        fw.Conv(4, filter=2, padding=((1, 0),)),
        "tanh",
        fw.Dropout(0.2),
        fw.SelfAttention(4, C_b=0.1, positions=fw.Positions()),
        fw.LayerNorm(axes="all", lambda_gain=1.0),
        fw.Dense(60, lambda_b=0.7),
        "relu",
        fw.GlobalAveragePool(),
        fw.Dropout(0.3),
        fw.Dense(3),
    ),
}


def inputs_of(net: fw.Network, count: int = 3):
    return jnp.asarray(np.random.default_rng(5).standard_normal((count, *net.input_shape)))


def drawn(net: fw.Network, key: int):
    return jax.jit(lambda: draw(net, jax.random.key(key)))()


def ntk_by_jacobian(net: fw.Network, parameters, X):
    """sum over parameters of lambda dz_a/dtheta dz_b/dtheta, axes (neuron, sample, neuron, sample)."""
    jacobian = jax.jacrev(lambda p: outputs(net, p, X).T)(parameters)
    total = 0.0
    for part, rate in zip(jax.tree.leaves(jacobian), jax.tree.leaves(rates(net)), strict=True):
        part = part.reshape(*part.shape[:2], -1)
        total = total + rate * jnp.einsum("iap,jbp->iajb", part, part)
    return total


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name in ("sequence", "nested", "residual")))
        for name in NETWORKS
    ],
)
def test_ntk_and_gradients_of_any_network_are_those_of_the_definition(name):
    net, layers = NETWORKS[name], real_network(NETWORKS[name])
    X = inputs_of(net, 2)

    @jax.jit
    def both(parameters):
        z, saved = layers.forward(parameters, X, 1)
        structured = [layers.backward(parameters, saved, jnp.cos(z))[0], directions.ntk(net, parameters, X)]
        automatic = jax.grad(lambda p: jnp.sum(jnp.sin(outputs(net, p, X))))(parameters)
        definition = [automatic, ntk_by_jacobian(net, parameters, X)]
        if name != "sequence":  # masks belong to rows
            structured.append(directions.ntk_between(net, parameters, X[:1], X[1:]))
            definition.append(definition[1][:, :1, :, 1:])
        return structured, definition

    for one, two in zip(*map(jax.tree.leaves, both(drawn(net, 1))), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)


SMOOTH = {
    "residual": fw.Network(
        2,
        fw.Residual(fw.Dense(2, C_b=0.3), fw.Residual("sin", fw.Dense(2), gamma=0.7)),  # a skip of the data
        fw.Dense(3),
        fw.Residual("tanh", fw.Dense(3, lambda_W=0.6), gamma=-0.4, shortcut=[fw.Dense(3)]),
    ),
    "positions": fw.Network(
        (2, 1), fw.Conv(2, filter=1), fw.AveragePool(1), "sin", fw.Flatten(), fw.Dense(2)
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["residual", "positions"])
def test_differentials_of_the_parts_of_a_network_make_automatic_ones(name, monkeypatch):
    """dNTK and both ddNTKs of two neurons, also where a skip ends in the outputs."""
    net = SMOOTH[name]
    parameters, X = drawn(net, 2), inputs_of(net, 2)
    structured = jax.jit(lambda p: directions.differentials(net, p, X, 2))(parameters)
    monkeypatch.setattr(directions, "real_network", plain_network)
    automatic = jax.jit(lambda p: directions.differentials(net, p, X, 2))(parameters)
    z = jax.jit(lambda p: outputs(net, p, X))(parameters)
    np.testing.assert_allclose(structured.z, z.T[:2], rtol=1e-12, atol=1e-14)
    for field, expected in automatic._asdict().items():
        scale = np.max(np.abs(expected))
        assert scale > 1e-4, field
        np.testing.assert_allclose(getattr(structured, field), expected, rtol=0, atol=1e-10 * scale)


def test_residual_perceptrons_are_structured_and_others_are_not():
    structured = {name: real_network(net).is_structured for name, net in NETWORKS.items()}
    assert structured == {"residual": True, "nested": True, "image": False, "sequence": False}


# --- layers of a network --------------------------------------------------------------------------------


def test_layers_are_counted_through_bodies_with_the_skip_at_their_end():
    """Layer 3 of dense, block, (body of two) is inside the second body; layer 4 is the stream behind it."""
    net = NETWORKS["residual"]
    parameters, X = drawn(net, 1), inputs_of(net)
    first, (block, _), ((inner, last), (skip,)), end = parameters

    def dense(z, own):
        return z @ np.asarray(own.W).T + np.asarray(own.b)

    def gelu(z):
        return z * scipy.special.ndtr(z)

    z1 = dense(np.asarray(X), first)
    z2 = 0.8 * z1 + dense(np.tanh(z1), block[0])
    z3 = dense(gelu(z2), inner)
    z4 = -0.4 * dense(z2, skip) + dense(np.sin(z3), last)
    z5 = dense(np.tanh(z4), end)
    assert net.depth == 5
    values = jax.jit(lambda p: preactivations(net, p, X))(parameters)
    for layer, (z, expected) in enumerate(zip(values, (z1, z2, z3, z4, z5), strict=True), start=1):
        np.testing.assert_allclose(z, expected, rtol=1e-12, atol=1e-14)
        assert up_to(net, layer).outputs == expected.shape[1]
    assert up_to(net, 3).layers == (*net.layers[:2], *LONG.layers[:2])
    assert up_to(net, 4).layers == net.layers[:3]
    assert up_to(net, 3, neurons=8).outputs == 8
    assert up_to(net, 2, neurons=8).outputs == 4  # as wide as its skip


def test_layers_with_positions_are_no_outputs():
    with refused("layer 2 has positions, its values have shape"):
        up_to(NETWORKS["image"], 2)
