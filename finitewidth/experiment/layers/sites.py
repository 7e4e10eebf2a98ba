r"""Weights that are shared by all positions: convolutions, and dense layers at every position.

Output position p sees a patch $\phi_p$ of the sample, $z_p = b + W \phi_p$. The gradient of a leg is
$\sum_p \delta_p \phi_p^T$, and the NTK is a sum over weights, by automatic differentiation, or over pairs of
positions,

$$\hat H_{ab} = \sum_{pq}
  (\lambda_b + \lambda_W\, \phi_{ap} \cdot \phi_{bq})\, \delta_{ap} \cdot \delta_{bq},$$

whichever is less work: the latter for many neurons at few positions. All other derivatives are automatic.
"""

import abc
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import AbstractRealLayer, Legs, Record, axes_of_legs, real
from finitewidth.experiment.layers.dense import AbstractWeights, DenseParameters, RealDense
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense


class AbstractSites(AbstractWeights):
    """Weights that are the same at every position."""

    layer: Conv | Dense
    shape: Shape

    @abc.abstractmethod
    def patches(self, z: Float[Array, "N ..."]) -> Float[Array, "N P fan_in"]:
        """What the weights see at every output position."""

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.positions * self.fan_in, self.positions * self.layer.width

    def apply(self, parameters: DenseParameters, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        behind = self.patches(z) @ parameters.W.T + parameters.b[None, None]
        return behind.reshape(z.shape[0], *self.layer.output_shape(self.shape))

    def ntk_size(self, neurons: int, samples: int) -> int:
        legs = neurons * samples
        if self._sums_over_weights(neurons, samples):
            return 2 * legs * self.layer.width * self.fan_in
        return 2 * legs**2 * self.positions

    def add_ntk(self, record: Record, other: Record, total: Legs) -> Legs:
        if self._sums_over_weights(*axes_of_legs(record)):
            return super().add_ntk(record, other, total)
        return total + self._over_positions(record, other).reshape(total.shape)

    def _over_positions(self, record: Record, other: Record) -> Float[Array, "n N n M"]:
        """One position of the first leg after the other, which bounds the memory."""
        seen, beside = self.patches(record.incoming), self.patches(other.incoming)
        left, right = (one.delta.reshape(*axes_of_legs(one), -1, self.layer.width) for one in (record, other))
        rate_b, rate_W = self.rates

        def add_position(total, at):
            phi, delta = at
            gram = rate_b + rate_W * jnp.einsum("xf,yqf->xyq", phi, beside)
            aligned = jnp.einsum("ixn,jyqn->ixjyq", delta, right)
            return total + jnp.einsum("ixjyq,xyq->ixjy", aligned, gram), None

        start = jnp.zeros((*axes_of_legs(record), *axes_of_legs(other)))
        return jax.lax.scan(add_position, start, (seen.swapaxes(0, 1), jnp.moveaxis(left, 2, 0)))[0]

    def _sums_over_weights(self, neurons: int, samples: int) -> bool:
        """Whether sums over weights are less work than sums over pairs of positions.

        The latter are counted twice, since a part of them is not a product of matrices.
        """
        weights, legs = self.layer.width * self.fan_in, neurons * samples
        over_weights = legs * weights * (legs + 2 * self.positions)
        over_pairs = self.positions**2 * (legs**2 * self.layer.width + samples**2 * self.fan_in)
        return over_weights <= 2 * over_pairs

    @property
    def positions(self) -> int:
        """The number of output positions."""
        return math.prod(self.layer.output_shape(self.shape)[:-1])


@dataclass(frozen=True)
class RealDenseAtSites(AbstractSites):
    """A dense layer at every position of samples of this shape."""

    layer: Dense
    shape: Shape

    def patches(self, z: Float[Array, "N ..."]) -> Float[Array, "N P fan_in"]:
        return z.reshape(z.shape[0], -1, z.shape[-1])


@real.register
def _(layer: Dense, shape: Shape) -> AbstractRealLayer:
    return RealDense(layer, shape) if len(shape) == 1 else RealDenseAtSites(layer, shape)
