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
from finitewidth.experiment.layers.abstract import Passage
from finitewidth.experiment.layers.sequence import RealSequence
from finitewidth.network.layers.sequence import output_shape
from finitewidth.network.layers.sequence import up_to as layers_up_to
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


def passages(net: Network, parameters: Parameters, X: Float[Array, "N ..."]) -> list[Passage]:
    """What comes into every layer 1 ... L of one network, and its preactivations."""
    return real_network(net).traced(parameters, X)[1]


def preactivations(
    net: Network, parameters: Parameters, X: Float[Array, "N ..."]
) -> tuple[Float[Array, "N ..."], ...]:
    """z of every layer 1 ... L of one network; `jax.vmap` gives it for many."""
    return tuple(passage.preactivations for passage in passages(net, parameters, X))


def outputs(net: Network, parameters: Parameters, X: Float[Array, "N ..."]) -> Float[Array, "N nL"]:
    """The outputs of one network."""
    return real_network(net).apply(parameters, X)


def up_to(net: Network, layer: int, neurons: int | None = None) -> Network:
    """The network whose output is layer `layer`, with `neurons` in it if given.

    No statistic of a layer depends on its own width, unless a skip ends there: then the width is that of the
    stream, on which statistics depend, and it stays as it is. So does that of orthogonal weights with more
    neurons than inputs.
    """
    if not isinstance(layer, numbers.Integral) or not 1 <= layer <= net.depth:
        raise ValueError(f"layer must be a number from 1 to {net.depth}, got {layer!r}.")
    kept = layers_up_to(net.layers, int(layer))
    shape = output_shape(kept, net.input_shape)
    if len(shape) > 1:
        raise ValueError(
            f"layer {layer} has positions, its values have shape {shape}; sample a layer behind "
            f"fw.Flatten() or fw.GlobalAveragePool(), such as layer {net.depth}."
        )
    below = output_shape(kept[:-1], net.input_shape)
    last = kept[-1] if neurons is None else kept[-1].with_fewer_outputs(neurons, below)
    return Network(net.input_shape, *kept[:-1], last)


def fan_in(net: Network) -> int:
    """The number of inputs of an output neuron."""
    return net.layers[-1].fan_in(output_shape(net.layers[:-1], net.input_shape))  # type: ignore[attr-defined]
