r"""The NTK and its differentials of one network, fast: what a multilayer perceptron's structure allows.

A parameter's gradient is an outer product, of the derivative `delta` of an output with respect to a
preactivation and of what comes in. The NTK is then a product of small matrices,

$$\hat H_{ab} = \sum_l \Bigl(\lambda_b + \frac{\lambda_W}{n_{l-1}} \sigma_a \cdot \sigma_b\Bigr)
  \delta_a \cdot \delta_b,$$

and its differentials follow from sending the directions $g_a = \lambda\, \partial z_a/\partial\theta$ through
the network by hand. Legs are outputs (neuron, sample); hidden neurons are never legs.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from finitewidth.experiment.sampling import Parameters, rates
from finitewidth.network.mlp import MLP


class Outputs(NamedTuple):
    """One network: outputs, NTK and, if asked for, its differentials; axes (neuron, sample) for each leg."""

    z: Float[Array, "n N"]
    H: Float[Array, "n N n N"]
    dH: Float[Array, "n N n N n N"] | None = None
    ddI: Float[Array, "n N n N n N n N"] | None = None
    ddII: Float[Array, "n N n N n N n N"] | None = None


class _Pass(NamedTuple):
    """What one layer hands to the next."""

    W: Array
    incoming: Array  # sample, neuron of layer l - 1
    delta: Array  # dz^(L)_a/dz^(l): leg a, neuron of layer l
    slopes: tuple[Array, ...]  # derivatives of sigma in layer l - 1, empty for the first layer
    bias_rate: float
    weight_rate: float


def ntk(net: MLP, parameters: Parameters, X: Float[Array, "N n0"]) -> Float[Array, "n N n N"]:
    """The neural tangent kernel of the output."""
    return outputs_and_ntk(net, parameters, X).H


def outputs_and_ntk(net: MLP, parameters: Parameters, X: Float[Array, "N n0"]) -> Outputs:
    """Outputs and their NTK, by matrices of the size of the legs."""
    z, passes, _ = _passes(net, parameters, X, highest=1)
    n, N = z.shape[1], z.shape[0]
    H = jnp.zeros((n, N, n, N))
    for layer in passes:
        gram = layer.bias_rate + layer.weight_rate * layer.incoming @ layer.incoming.T
        aligned = (layer.delta @ layer.delta.T).reshape(n, N, n, N)
        H = H + aligned * gram[None, :, None, :]
    return Outputs(z.T, H)


def differentials(net: MLP, parameters: Parameters, X: Float[Array, "N n0"]) -> Outputs:
    """Outputs, their NTK, dNTK and both ddNTKs."""
    z, passes, of_leg = _passes(net, parameters, X, highest=3)
    leg = (z.shape[1], z.shape[0])
    tangents = _first_order(passes, of_leg)
    second, third = _higher_orders(passes, tangents, of_leg)
    ddII = _shared_parameter(passes, tangents, of_leg).reshape(leg * 4)
    return Outputs(z.T, _legs(tangents[-1], leg, 1), _legs(second, leg, 2), _legs(third, leg, 3), ddII)


def _legs(tangent: Array, leg: tuple[int, int], count: int) -> Array:
    """Axes (sample, legs..., neuron) to ((neuron, sample), legs...)."""
    return jnp.moveaxis(tangent, -1, 0).reshape(leg * (count + 1))


def _passes(
    net: MLP, parameters: Parameters, X: Array, *, highest: int
) -> tuple[Array, list[_Pass], Integer[Array, " legs"]]:
    """Forward, then backward: outputs (sample, neuron), what each layer hands on, the sample of each leg."""
    z, incoming, slopes, kept = X, X, (), []
    for (b, W), layer_rates in zip(parameters, rates(net), strict=True):
        z = incoming @ W.T + b[None]
        kept.append((W, incoming, tuple(slopes), layer_rates))
        incoming, *slopes = net.activation.derivatives(z, highest)
    samples, neurons = z.shape
    of_leg = jnp.tile(jnp.arange(samples), neurons)
    delta, passes = jnp.repeat(jnp.eye(neurons), samples, axis=0), []
    for W, incoming, slopes, layer_rates in reversed(kept):
        passes.append(_Pass(W, incoming, delta, slopes, *layer_rates))
        if slopes:
            delta = (delta @ W) * slopes[0][of_leg]
    return z, passes[::-1], of_leg


def _first_order(passes: list[_Pass], of_leg: Array) -> list[Array]:
    """dz^(l)[g_a] of every layer, axes (sample, a, neuron)."""
    found: list[Array] = []
    for layer in passes:
        overlap = layer.weight_rate * layer.incoming @ layer.incoming[of_leg].T
        tangent = (layer.bias_rate + overlap)[:, :, None] * layer.delta[None]
        if found:
            tangent = tangent + (layer.slopes[0][:, None] * found[-1]) @ layer.W.T
        found.append(tangent)
    return found


def _higher_orders(passes: list[_Pass], tangents: list[Array], of_leg: Array) -> tuple[Array, Array]:
    """d2z^(L)[g_a, g_b] and d3z^(L)[g_a, g_b, g_c], axes (sample, legs..., neuron)."""
    count, legs, width = tangents[0].shape
    second = jnp.zeros((count, legs, legs, width))
    third = jnp.zeros((count, legs, legs, legs, width))
    for layer, t in zip(passes[1:], tangents, strict=False):
        d1, d2, d3 = layer.slopes
        first_out = d1[:, None] * t
        pair = t[:, :, None] * t[:, None, :]
        second_out = d2[:, None, None] * pair + d1[:, None, None] * second
        mixed = t[:, :, None, None] * second[:, None]
        third_out = d3[:, None, None, None] * t[:, :, None, None] * pair[:, None]
        third_out = third_out + d2[:, None, None, None] * _three(mixed) + d1[:, None, None, None] * third
        towards = layer.weight_rate * layer.incoming[of_leg]
        once = jnp.einsum("an,aj,xbj->xabn", layer.delta, towards, first_out)
        twice = jnp.einsum("an,aj,xbcj->xabcn", layer.delta, towards, second_out)
        second = once + once.swapaxes(1, 2) + second_out @ layer.W.T
        third = _three(twice) + third_out @ layer.W.T
    return second, third


def _three(x: Array) -> Array:
    """The three ways to single out one of legs a, b, c, given x with leg a singled out."""
    return x + x.transpose(0, 2, 1, 3, 4) + x.transpose(0, 2, 3, 1, 4)


def _shared_parameter(passes: list[_Pass], tangents: list[Array], of_leg: Array) -> Array:
    """ddNTK_II, axes (1, 2, 3, 4): gradients of dz_1[g_3] and dz_2[g_4] contracted."""
    change = jnp.zeros((of_leg.size, *passes[-1].delta.shape))  # of delta_a along g_c
    total = jnp.zeros((of_leg.size,) * 4)
    below = [None, *tangents[:-1]]
    for layer, tangent in zip(reversed(passes), reversed(below), strict=True):
        incoming = layer.incoming[of_leg]
        aligned = layer.delta @ layer.delta.T
        turned = jnp.einsum("acn,bn->acb", change, layer.delta)
        rate = layer.bias_rate + layer.weight_rate * incoming @ incoming.T
        total = total + jnp.einsum("acn,bdn,ab->abcd", change, change, rate)
        if tangent is None:
            return total
        moved = layer.slopes[0][of_leg][:, None] * tangent[of_leg]  # change of the incoming of a along g_c
        along = layer.weight_rate * jnp.einsum("acj,bj->acb", moved, incoming)
        cross = jnp.einsum("acb,bda->abcd", turned, along)
        total = total + cross + cross.transpose(1, 0, 3, 2)
        total = total + layer.weight_rate * jnp.einsum("ab,acj,bdj->abcd", aligned, moved, moved)
        d1, d2 = layer.slopes[0][of_leg], layer.slopes[1][of_leg]
        back = layer.weight_rate * jnp.einsum("ac,cj->acj", aligned, incoming) + change @ layer.W
        change = d1[:, None] * back + (d2 * (layer.delta @ layer.W))[:, None] * tangent[of_leg]
    return total
