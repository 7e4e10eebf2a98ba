"""Activations of real networks: elementwise, without parameters, and with derivatives of their own."""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import (
    AbstractRealLayer,
    FourLegs,
    Legs,
    real,
    sample_of_leg,
    three_ways,
)
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.activation import Activation

Slopes = tuple[Float[Array, "N ..."], ...]  # sigma', sigma'', ... at what comes in


class ActivationRecord(NamedTuple):
    """An activation of one network, seen from the outputs."""

    slopes: Slopes
    delta: Float[Array, "legs ..."]
    tangent: Float[Array, "N legs ..."] | None = None

    @property
    def incoming(self) -> Float[Array, "N ..."]:
        """An array with the samples along its first axis."""
        return self.slopes[0]


@dataclass(frozen=True)
class RealActivation(AbstractRealLayer):
    """An activation behind samples of this shape."""

    layer: Activation
    shape: Shape

    @property
    def normal_count(self) -> int:
        return 0

    def initial(self, normals: Float[Array, " count"]) -> tuple:
        return ()

    @property
    def rates(self) -> tuple:
        return ()

    def apply(self, parameters: tuple, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        return self.layer(z)

    def forward(self, parameters: tuple, z: Float[Array, "N ..."], order: int) -> tuple[Array, Slopes]:
        value, *slopes = self.layer.derivatives(z, order)
        return value, tuple(slopes)

    def backward(self, parameters: tuple, saved: Slopes, delta: Float[Array, "N ..."]) -> tuple[tuple, Array]:
        return (), delta * saved[0]

    def record(
        self, parameters: tuple, saved: Slopes, delta: Float[Array, "legs ..."]
    ) -> tuple[ActivationRecord, Array]:
        record = ActivationRecord(saved, delta)
        return record, delta * saved[0][sample_of_leg(record)]

    def add_ntk(self, record: ActivationRecord, total: Legs) -> Legs:
        return total

    def tangent(
        self, record: ActivationRecord, tangent: Float[Array, "N legs ..."] | None
    ) -> tuple[ActivationRecord, Array]:
        assert tangent is not None  # weights stand before an activation
        return record._replace(tangent=tangent), record.slopes[0][:, None] * tangent

    def higher(
        self, record: ActivationRecord, second: Array | None, third: Array | None
    ) -> tuple[Array, Array]:
        """Derivatives of sigma(z(theta)), by the chain rule."""
        t, (d1, d2, d3) = record.tangent, record.slopes
        assert t is not None and second is not None and third is not None
        pair = t[:, :, None] * t[:, None, :]
        second_out = d2[:, None, None] * pair + d1[:, None, None] * second
        mixed = t[:, :, None, None] * second[:, None]
        third_out = d3[:, None, None, None] * t[:, :, None, None] * pair[:, None]
        third_out = third_out + d2[:, None, None, None] * three_ways(mixed) + d1[:, None, None, None] * third
        return second_out, third_out

    def shared(self, record: ActivationRecord, change: Array, total: FourLegs) -> tuple[FourLegs, Array]:
        assert record.tangent is not None
        of_leg = sample_of_leg(record)
        d1, d2 = record.slopes[0][of_leg], record.slopes[1][of_leg]
        return total, d1[:, None] * change + (d2 * record.delta)[:, None] * record.tangent[of_leg]


real.register(Activation, RealActivation)
