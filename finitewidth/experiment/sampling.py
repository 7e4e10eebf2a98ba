"""Real networks: their parameters at initialization, drawn for many members at once, and their values.

Member m of an ensemble has the key fold_in(key, m). Its parameters are made from the stream of normal numbers
of that key, layer by layer. They depend neither on the batch that a member is drawn in nor on later layers.
"""

import numbers
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

import finitewidth.experiment.layers
from finitewidth.core.rooms import import_modules
from finitewidth.experiment.layers.sequence import RealSequence
from finitewidth.network.network import Network

import_modules(finitewidth.experiment.layers)

Parameters = tuple[Any, ...]  # an entry for each layer with parameters: DenseParameters for a dense layer


def real_network(net: Network) -> RealSequence:
    """The layers of a network as real networks have them."""
    return RealSequence.of(net.layers, net.input_shape)


def member_key(key: Array, member) -> Array:
    """The key of member `member`, from which all its randomness comes."""
    return jax.random.fold_in(key, member)


def draw(net: Network, key: Array) -> Parameters:
    """The parameters of one network at initialization."""
    layers = real_network(net)
    normals = jax.random.normal(key, (layers.normal_count,), jnp.float64)  # one stream compiles fastest
    return layers.initial(normals)


def draw_members(net: Network, key: Array, members: Integer[Array, " M"]) -> Parameters:
    """The parameters of the members with these numbers, stacked along a first axis."""
    return jax.vmap(lambda member: draw(net, member_key(key, member)))(members)


def rates(net: Network) -> tuple[Any, ...]:
    r"""Learning rates in the structure of the parameters; $\lambda_b$ and $\lambda_W/n_{l-1}$ if dense."""
    return real_network(net).rates


def preactivations(
    net: Network, parameters: Parameters, X: Float[Array, "N n0"]
) -> tuple[Float[Array, "N _"], ...]:
    """z of every layer 1 ... L of one network; `jax.vmap` gives it for many."""
    values = real_network(net).values(parameters, X)
    return tuple(z for layer, z in zip(net.layers, values, strict=True) if layer.has_weights)


def outputs(net: Network, parameters: Parameters, X: Float[Array, "N n0"]) -> Float[Array, "N nL"]:
    """The outputs of one network."""
    return real_network(net).apply(parameters, X)


def up_to(net: Network, layer: int, neurons: int | None = None) -> Network:
    """The network whose output is layer `layer`, with `neurons` in it if given.

    No statistic of a layer depends on its own width.
    """
    if not isinstance(layer, numbers.Integral) or not 1 <= layer <= net.depth:
        raise ValueError(f"layer must be a number from 1 to {net.depth}, got {layer!r}.")
    kept = Network(net.input_shape, *(one for block in net.blocks[:layer] for one in block))
    return kept.with_widths((*net.widths[:layer], neurons or net.widths[layer]))
