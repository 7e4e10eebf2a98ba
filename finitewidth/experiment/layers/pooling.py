"""Averages over positions and flattening, in real networks."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import real
from finitewidth.experiment.layers.linear import AbstractLinear
from finitewidth.experiment.layers.patches import Patches
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.pooling import AveragePool, Flatten, GlobalAveragePool


@dataclass(frozen=True)
class RealAveragePool(AbstractLinear):
    """An average over windows of samples of this shape."""

    layer: AveragePool
    shape: Shape

    def apply(self, parameters: tuple, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        patches = Patches(self.layer.axes(self.shape))
        counted = patches.taps if self.layer.count_padding else np.maximum(patches.inside.sum(axis=1), 1)
        average = jnp.sum(patches.of(z), axis=2) / np.reshape(counted, (1, -1, 1)).astype(float)
        return average.reshape(z.shape[0], *self.layer.output_shape(self.shape))


@dataclass(frozen=True)
class RealGlobalAveragePool(AbstractLinear):
    """The average over all positions of samples of this shape."""

    layer: GlobalAveragePool
    shape: Shape

    def apply(self, parameters: tuple, z: Float[Array, "N ..."]) -> Float[Array, "N channels"]:
        return jnp.mean(z, axis=tuple(range(1, z.ndim - 1)))


@dataclass(frozen=True)
class RealFlatten(AbstractLinear):
    """All positions and channels of samples of this shape as one vector, channels running fastest."""

    layer: Flatten
    shape: Shape

    def apply(self, parameters: tuple, z: Float[Array, "N ..."]) -> Float[Array, "N values"]:
        return z.reshape(z.shape[0], -1)


real.register(AveragePool, RealAveragePool)
real.register(GlobalAveragePool, RealGlobalAveragePool)
real.register(Flatten, RealFlatten)
