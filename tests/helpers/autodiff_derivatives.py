r"""The NTK and its differentials of one network, by automatic differentiation of the whole network.

With $g_a = \lambda\, \partial z_a/\partial\theta$ the direction of leg a = (neuron, sample),

$$\hat H_{0a} = z'_0[g_a], \quad \widehat{dH}_{0ab} = z''_0[g_a, g_b], \quad
  \widehat{dd_IH}_{0abc} = z'''_0[g_a, g_b, g_c], \quad
  \widehat{dd_{II}H}_{abcd} = \lambda\, \partial_\theta (z'_a[g_c])\, \partial_\theta (z'_b[g_d])$$

are nested Jacobian-vector products; no Hessian is formed (PDLT section 11.2 and chapter infinity).
Axes are (neuron, sample) for each leg in printed order. This checks `finitewidth.experiment.directions`, and
takes any layer of any network; `forward_equations` is another check.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.core.memory import require_memory
from finitewidth.experiment.sampling import Parameters, outputs, rates, up_to
from finitewidth.network.network import Network

NTK = Float[Array, "n N n N"]
DNTK = Float[Array, "n N n N n N"]
DDNTK = Float[Array, "n N n N n N n N"]


def ntk(net: Network, parameters: Parameters, X: Float[Array, "N n0"], layer: int | None = None) -> NTK:
    """The neural tangent kernel of `layer`, the output if None."""
    legs = _Legs(net, parameters, X, layer)
    return legs.folded(jax.vmap(lambda g: legs.along(g)(legs.parameters), out_axes=-1)(legs.directions))


def dntk(net: Network, parameters: Parameters, X: Float[Array, "N n0"], layer: int | None = None) -> DNTK:
    """The differential of the NTK, symmetric in its second and third legs."""
    legs = _Legs(net, parameters, X, layer)

    def second(g, h):
        return legs.along(g, h)(legs.parameters)

    over_h = jax.vmap(second, in_axes=(None, 0), out_axes=-1)
    return legs.folded(jax.vmap(over_h, in_axes=(0, None), out_axes=-2)(legs.directions, legs.directions))


def ddntk_1(net: Network, parameters: Parameters, X: Float[Array, "N n0"], layer: int | None = None) -> DDNTK:
    """The first second differential of the NTK, symmetric in its last three legs."""
    legs = _Legs(net, parameters, X, layer)
    g = legs.directions

    def third(first, second, third):
        return legs.along(first, second, third)(legs.parameters)

    over_third = jax.vmap(third, in_axes=(None, None, 0), out_axes=-1)
    over_second = jax.vmap(over_third, in_axes=(None, 0, None), out_axes=-2)
    return legs.folded(jax.vmap(over_second, in_axes=(0, None, None), out_axes=-3)(g, g, g))


def ddntk_2(net: Network, parameters: Parameters, X: Float[Array, "N n0"], layer: int | None = None) -> DDNTK:
    """The second second differential: legs 1 and 2 share a parameter, leg 3 hangs on 1 and leg 4 on 2."""
    legs = _Legs(net, parameters, X, layer)
    require_memory(
        8.0 * legs.count**2 * legs.net.parameter_count,
        f"the gradients of {legs.count**2} pairs of legs",
        "use fewer inputs or a narrower network",
    )
    shared = jax.vmap(lambda g: jax.jacrev(legs.along(g))(legs.parameters))(legs.directions)
    total = jnp.zeros((legs.count,) * 4)
    for part, rate in zip(jax.tree.leaves(shared), jax.tree.leaves(rates(legs.net)), strict=True):
        flat = part.reshape(legs.count, legs.count, -1)  # the direction c, then the leg a
        total = total + rate * jnp.einsum("cap,dbp->abcd", flat, flat)
    return total.reshape((legs.neurons, legs.samples) * 4)


class _Legs:
    """One network up to a layer, and the direction of each of its outputs."""

    def __init__(self, net: Network, parameters: Parameters, X: Float[Array, "N n0"], layer: int | None):
        depth = net.depth if layer is None else layer
        self.net = up_to(net, depth)
        self.parameters, self.X = parameters[:depth], X
        self.neurons, self.samples = self.net.widths[-1], X.shape[0]
        self.count = self.neurons * self.samples
        jacobian = jax.jacrev(self.values)(self.parameters)
        self.directions = jax.tree.map(
            lambda part, rate: rate * part.reshape(self.count, *part.shape[2:]), jacobian, rates(self.net)
        )

    def values(self, parameters: Parameters) -> Float[Array, "n N"]:
        return outputs(self.net, parameters, self.X).T

    def along(self, *directions) -> Callable:
        """The derivative of the outputs in these fixed directions, as a function of the parameters."""
        return functools.reduce(_derivative, directions, self.values)

    def folded(self, array: Array) -> Array:
        """Legs as (neuron, sample) axes."""
        return array.reshape(array.shape[:2] + (self.neurons, self.samples) * (array.ndim - 2))


def _derivative(function: Callable, direction) -> Callable:
    return lambda parameters: jax.jvp(function, (parameters,), (direction,))[1]
