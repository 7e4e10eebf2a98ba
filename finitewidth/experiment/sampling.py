"""Real networks: their parameters at initialization, drawn for many members at once, and the forward pass.

Member m of an ensemble has the key fold_in(key, m), and its parameters are the stream of normal numbers of
that key, layer by layer, biases before weights: they depend neither on the batch that a member is drawn in
nor on later layers.
"""

import numbers
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from finitewidth.network.mlp import MLP


class LayerParameters(NamedTuple):
    """Biases and weights of one layer; a leading axis of members where there are many networks."""

    b: Float[Array, "*members n"]
    W: Float[Array, "*members n fan_in"]


Parameters = tuple[LayerParameters, ...]  # layers 1 ... L


def as_key(key) -> Array:
    """The JAX key that a whole number, a key or the raw data of one stands for."""
    if isinstance(key, numbers.Integral) and not isinstance(key, bool):
        if not 0 <= int(key) < 2**63:
            raise ValueError(f"key must be a whole number from 0 to 2^63 - 1, got {key}; use key=0.")
        return jax.random.key(int(key))
    if isinstance(key, jax.Array) and key.ndim == 0 and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    if getattr(key, "shape", None) == (2,) and getattr(key, "dtype", None) == jnp.uint32:
        return jax.random.wrap_key_data(jnp.asarray(key))
    raise ValueError(f"key must be a whole number or a JAX key, got {key!r}; use key=0.")


def member_key(key: Array, member) -> Array:
    """The key of member `member`, from which all its randomness comes."""
    return jax.random.fold_in(key, member)


def draw(net: MLP, key: Array) -> Parameters:
    r"""The parameters of one network: $b \sim N(0, C_b)$, $W \sim N(0, C_W/n_{l-1})$ (PDLT section 2.3)."""
    normals = jax.random.normal(key, (net.parameter_count,), jnp.float64)  # one stream compiles fastest
    layers, start = [], 0
    for l, (fan_in, fan_out) in enumerate(zip(net.widths, net.widths[1:], strict=False)):
        middle, end = start + fan_out, start + fan_out * (1 + fan_in)
        b = net.C_b[l] ** 0.5 * normals[start:middle]
        W = (net.C_W[l] / fan_in) ** 0.5 * normals[middle:end].reshape(fan_out, fan_in)
        layers.append(LayerParameters(b, W))
        start = end
    return tuple(layers)


def draw_members(net: MLP, key: Array, members: Integer[Array, " M"]) -> Parameters:
    """The parameters of the members with these numbers, stacked along a first axis."""
    return jax.vmap(lambda member: draw(net, member_key(key, member)))(members)


def rates(net: MLP) -> tuple[tuple[float, float], ...]:
    r"""For each layer the learning rates $\lambda_b$ and $\lambda_W/n_{l-1}$."""
    return tuple((net.lambda_b[l], net.lambda_W[l] / net.widths[l]) for l in range(net.depth))


def preactivations(
    net: MLP, parameters: Parameters, X: Float[Array, "N n0"]
) -> tuple[Float[Array, "N _"], ...]:
    """z of every layer 1 ... L of one network; `jax.vmap` gives it for many."""
    incoming, found = X, []
    for b, W in parameters:
        z = incoming @ W.T + b[None]
        found.append(z)
        incoming = net.activation(z)
    return tuple(found)


def outputs(net: MLP, parameters: Parameters, X: Float[Array, "N n0"]) -> Float[Array, "N nL"]:
    """What one network answers."""
    return preactivations(net, parameters, X)[-1]


def up_to(net: MLP, layer: int, neurons: int | None = None) -> MLP:
    """The network whose output is layer `layer`, with `neurons` in it if given.

    No statistic of a layer depends on its own width.
    """
    if not isinstance(layer, numbers.Integral) or not 1 <= layer <= net.depth:
        raise ValueError(f"layer must be a number from 1 to {net.depth}, got {layer!r}.")
    widths = (*net.widths[:layer], neurons or net.widths[layer])
    hyperparameters = {name: getattr(net, name)[:layer] for name in ("C_b", "C_W", "lambda_b", "lambda_W")}
    return MLP(widths, net.activation, **hyperparameters)
