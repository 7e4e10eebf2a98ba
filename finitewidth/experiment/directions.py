r"""The NTK and its differentials of one network.

With $g_a = \lambda\, \partial z_a/\partial\theta$ the direction of leg a = (neuron, sample),

$$\hat H_{0a} = z'_0[g_a], \quad \widehat{dH}_{0ab} = z''_0[g_a, g_b], \quad
  \widehat{dd_IH}_{0abc} = z'''_0[g_a, g_b, g_c], \quad
  \widehat{dd_{II}H}_{abcd} = \lambda\, \partial_\theta (z'_a[g_c])\, \partial_\theta (z'_b[g_d])$$

(PDLT section 11.2 and chapter infinity). Outputs are pulled back through the layers once; the directions are
then sent forward through the layers, each of which knows its own derivatives. Hidden neurons are never legs.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.experiment.layers.sequence import RealSequence
from finitewidth.experiment.sampling import Parameters, real_network
from finitewidth.network.network import Network


class Outputs(NamedTuple):
    """One network: outputs, NTK and, if asked for, its differentials; axes (neuron, sample) for each leg."""

    z: Float[Array, "n N"]
    H: Float[Array, "n N n N"]
    dH: Float[Array, "n N n N n N"] | None = None
    ddI: Float[Array, "n N n N n N n N"] | None = None
    ddII: Float[Array, "n N n N n N n N"] | None = None


def ntk(net: Network, parameters: Parameters, X: Float[Array, "N ..."]) -> Float[Array, "n N n N"]:
    """The neural tangent kernel of the output."""
    return outputs_and_ntk(net, parameters, X).H


def outputs_and_ntk(
    net: Network, parameters: Parameters, X: Float[Array, "N ..."], neurons: int | None = None
) -> Outputs:
    """Outputs and their NTK, of the first `neurons` output neurons if given."""
    seen = _seen(net, parameters, X, neurons)
    H = seen.layers.add_ntk(seen.record, seen.record, jnp.zeros((seen.z.size, seen.z.size)))
    return Outputs(seen.z.T, H.reshape(_leg(seen.z) * 2))


def ntk_between(
    net: Network, parameters: Parameters, X: Float[Array, "N ..."], X_other: Float[Array, "M ..."]
) -> Float[Array, "n N n M"]:
    """The neural tangent kernel between two sets of samples."""
    layers, z, record = _seen(net, parameters, X)
    _, z_other, other = _seen(net, parameters, X_other)
    return layers.add_ntk(record, other, jnp.zeros((z.size, z_other.size))).reshape(_leg(z) + _leg(z_other))


def differentials(
    net: Network, parameters: Parameters, X: Float[Array, "N ..."], neurons: int | None = None
) -> Outputs:
    """Outputs, their NTK, dNTK and both ddNTKs, of the first `neurons` output neurons if given."""
    layers, z, record = _seen(net, parameters, X, neurons, order=3)
    record, first = layers.tangent(record, None)
    second, third = layers.higher(record, None, None)
    assert first is not None and second is not None and third is not None  # weights stand before the outputs
    nothing = jnp.zeros((z.size, z.size, first.shape[-1]))  # delta of the outputs does not change
    ddII, _ = layers.shared(record, nothing, jnp.zeros((z.size,) * 4))
    H, dH, ddI = (
        jnp.moveaxis(jet, -1, 0)[:neurons].reshape(_leg(z) * (jet.ndim - 1)) for jet in (first, second, third)
    )
    return Outputs(z.T, H, dH, ddI, ddII.reshape(_leg(z) * 4))


class _Seen(NamedTuple):
    """The layers of one network and their record, seen from the outputs z."""

    layers: RealSequence
    z: Float[Array, "N n"]
    record: list


def _seen(
    net: Network, parameters: Parameters, X: Array, neurons: int | None = None, *, order: int = 1
) -> _Seen:
    """One network seen from its first `neurons` output neurons, or from all."""
    layers = real_network(net)
    if neurons is not None:
        layers, parameters = layers.narrowed(parameters, neurons)
    z, saved = layers.forward(parameters, X, order)
    ends = jnp.repeat(
        jnp.eye(z.shape[1])[:neurons], z.shape[0], axis=0
    )  # derivatives of outputs by themselves
    record, _ = layers.record(parameters, saved, ends)
    return _Seen(layers, z[:, :neurons], record)


def _leg(z: Float[Array, "N n"]) -> tuple[int, int]:
    """The axes (neuron, sample) of one leg."""
    return z.shape[1], z.shape[0]
