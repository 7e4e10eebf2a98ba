"""Layers that are linear maps of each sample, without parameters."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import AbstractRealLayer, FourLegs, Legs, Record
from finitewidth.network.layers.abstract import Shape


class AbstractLinear(AbstractRealLayer):
    """A linear map of each sample: derivatives go through it as values do, and back by its transpose."""

    shape: Shape  # of a sample that comes in

    @property
    def is_structured(self) -> bool:
        return True

    def backward(self, parameters: tuple, saved: Array, delta: Float[Array, "N ..."]) -> tuple[tuple, Array]:
        return (), self._back(delta, 1)

    def record(
        self, parameters: tuple, saved: Array, delta: Float[Array, "legs ..."]
    ) -> tuple[Record, Array]:
        return Record(parameters, saved, delta), self._back(delta, 1)

    def add_ntk(self, record: Record, other: Record, total: Legs) -> Legs:
        return total

    def tangent(
        self, record: Record, tangent: Float[Array, "N legs ..."] | None
    ) -> tuple[Record, Array | None]:
        return record._replace(tangent=tangent), self._through(tangent, 2)

    def higher(
        self, record: Record, second: Array | None, third: Array | None
    ) -> tuple[Array | None, Array | None]:
        return self._through(second, 3), self._through(third, 4)

    def shared(self, record: Record, change: Array, total: FourLegs) -> tuple[FourLegs, Array]:
        return total, self._back(change, 2)

    def _through(self, values: Array | None, axes: int) -> Array | None:
        """The map of samples that stand along the first `axes` axes."""
        if values is None:
            return None
        behind = self.apply((), values.reshape(-1, *self.shape))
        return behind.reshape(*values.shape[:axes], *behind.shape[1:])

    def _back(self, delta: Array, axes: int) -> Array:
        """The transposed map of samples that stand along the first `axes` axes."""
        count = math.prod(delta.shape[:axes])
        front = jax.ShapeDtypeStruct((count, *self.shape), jnp.float64)
        flat = delta.reshape(count, *delta.shape[axes:])
        (pulled,) = jax.linear_transpose(lambda z: self.apply((), z), front)(flat)
        return pulled.reshape(*delta.shape[:axes], *self.shape)
