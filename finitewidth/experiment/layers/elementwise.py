"""Layers that act on every value alone: only their slopes are needed, and nothing of them learns."""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import (
    AbstractRealLayer,
    FourLegs,
    Legs,
    sample_of_leg,
    three_ways,
)

Slopes = tuple[Float[Array, "N ..."], ...]  # sigma', sigma'', ... at what comes in


class ElementwiseRecord(NamedTuple):
    """An elementwise layer of one network, seen from the outputs."""

    slopes: Slopes
    delta: Float[Array, "legs ..."]
    tangent: Float[Array, "N legs ..."] | None = None

    @property
    def incoming(self) -> Float[Array, "N ..."]:
        """An array with the samples along its first axis."""
        return self.slopes[0]


class AbstractElementwise(AbstractRealLayer):
    """A layer that acts on every value alone."""

    @abc.abstractmethod
    def derivatives(self, parameters: Any, z: Float[Array, "N ..."], highest: int) -> tuple[Array, ...]:
        """The values behind the layer and their derivatives by those in front of it, up to `highest`."""

    @property
    def is_structured(self) -> bool:
        return True

    def ntk_size(self, neurons: int, samples: int) -> int:
        return 0

    def forward(self, parameters: Any, z: Float[Array, "N ..."], order: int) -> tuple[Array, Slopes]:
        value, *slopes = self.derivatives(parameters, z, order)
        return value, tuple(slopes)

    def backward(self, parameters: Any, saved: Slopes, delta: Float[Array, "N ..."]) -> tuple[Any, Array]:
        return jax.tree.map(jnp.zeros_like, parameters), delta * saved[0]

    def record(
        self, parameters: Any, saved: Slopes, delta: Float[Array, "legs ..."]
    ) -> tuple[ElementwiseRecord, Array]:
        record = ElementwiseRecord(saved, delta)
        return record, delta * saved[0][sample_of_leg(record)]

    def add_ntk(self, record: ElementwiseRecord, other: ElementwiseRecord, total: Legs) -> Legs:
        return total

    def tangent(
        self, record: ElementwiseRecord, tangent: Float[Array, "N legs ..."] | None
    ) -> tuple[ElementwiseRecord, Array | None]:
        behind = None if tangent is None else record.slopes[0][:, None] * tangent
        return record._replace(tangent=tangent), behind

    def higher(
        self, record: ElementwiseRecord, second: Array | None, third: Array | None
    ) -> tuple[Array | None, Array | None]:
        """Derivatives of sigma(z(theta)), by the chain rule."""
        t, (d1, d2, d3) = record.tangent, record.slopes
        if t is None or second is None or third is None:
            return None, None
        pair = t[:, :, None] * t[:, None, :]
        second_out = d2[:, None, None] * pair + d1[:, None, None] * second
        mixed = t[:, :, None, None] * second[:, None]
        third_out = d3[:, None, None, None] * t[:, :, None, None] * pair[:, None]
        third_out = third_out + d2[:, None, None, None] * three_ways(mixed) + d1[:, None, None, None] * third
        return second_out, third_out

    def shared(self, record: ElementwiseRecord, change: Array, total: FourLegs) -> tuple[FourLegs, Array]:
        of_leg = sample_of_leg(record)
        below = record.slopes[0][of_leg][:, None] * change
        if record.tangent is not None:
            curvature = record.slopes[1][of_leg] * record.delta
            below = below + curvature[:, None] * record.tangent[of_leg]
        return total, below
