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

from finitewidth.experiment.sampling import Parameters, real_network
from finitewidth.network.network import Network


class Outputs(NamedTuple):
    """One network: outputs, NTK and, if asked for, its differentials; axes (neuron, sample) for each leg."""

    z: Float[Array, "n N"]
    H: Float[Array, "n N n N"]
    dH: Float[Array, "n N n N n N"] | None = None
    ddI: Float[Array, "n N n N n N n N"] | None = None
    ddII: Float[Array, "n N n N n N n N"] | None = None


def ntk(net: Network, parameters: Parameters, X: Float[Array, "N n0"]) -> Float[Array, "n N n N"]:
    """The neural tangent kernel of the output."""
    return outputs_and_ntk(net, parameters, X).H


def outputs_and_ntk(net: Network, parameters: Parameters, X: Float[Array, "N n0"]) -> Outputs:
    """Outputs and their NTK."""
    layers = real_network(net)
    z, saved = layers.forward(parameters, X, 1)
    record, _ = layers.record(parameters, saved, _identity(z))
    H = layers.add_ntk(record, jnp.zeros((z.size, z.size)))
    return Outputs(z.T, H.reshape(_leg(z) * 2))


def differentials(net: Network, parameters: Parameters, X: Float[Array, "N n0"]) -> Outputs:
    """Outputs, their NTK, dNTK and both ddNTKs."""
    layers = real_network(net)
    z, saved = layers.forward(parameters, X, 3)
    record, _ = layers.record(parameters, saved, _identity(z))
    record, first = layers.tangent(record, None)
    second, third = layers.higher(record, None, None)
    nothing = jnp.zeros((z.size, z.size, z.shape[1]))  # delta of the outputs does not change
    ddII, _ = layers.shared(record, nothing, jnp.zeros((z.size,) * 4))
    H, dH, ddI = (
        jnp.moveaxis(jet, -1, 0).reshape(_leg(z) * (jet.ndim - 1)) for jet in (first, second, third)
    )
    return Outputs(z.T, H, dH, ddI, ddII.reshape(_leg(z) * 4))


def _leg(z: Float[Array, "N n"]) -> tuple[int, int]:
    """The axes (neuron, sample) of one leg."""
    return z.shape[1], z.shape[0]


def _identity(z: Float[Array, "N n"]) -> Float[Array, "legs n"]:
    """The derivatives of the outputs with respect to themselves."""
    return jnp.repeat(jnp.eye(z.shape[1]), z.shape[0], axis=0)
