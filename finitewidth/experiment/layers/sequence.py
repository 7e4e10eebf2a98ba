"""Layers one behind the other: itself a layer, with the parameters of its parts that have any.

A whole network is one sequence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import AbstractRealLayer, FourLegs, Legs, real
from finitewidth.network.layers.abstract import AbstractLayer, Shape


@dataclass(frozen=True)
class RealSequence(AbstractRealLayer):
    """The parts in order; parameters are a tuple with an entry for each part that has parameters."""

    parts: tuple[AbstractRealLayer, ...]

    @classmethod
    def of(cls, layers: Iterable[AbstractLayer], shape: Shape) -> "RealSequence":
        """These layers, where samples of this shape come in."""
        parts = []
        for layer in layers:
            parts.append(real(layer, shape))
            shape = layer.output_shape(shape)
        return cls(tuple(parts))

    @property
    def normal_count(self) -> int:
        return sum(part.normal_count for part in self.parts)

    def initial(self, normals: Float[Array, " count"]) -> tuple:
        parameters, start = [], 0
        for part in self.parts:
            end = start + part.normal_count
            if part.has_parameters:
                parameters.append(part.initial(normals[start:end]))
            start = end
        return tuple(parameters)

    @property
    def rates(self) -> tuple:
        return tuple(part.rates for part in self.parts if part.has_parameters)

    def values(self, parameters: tuple, z: Float[Array, "N ..."]) -> list[Array]:
        """The values behind every part."""
        values = []
        for part, own in self._with(parameters):
            z = part.apply(own, z)
            values.append(z)
        return values

    def apply(self, parameters: tuple, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        return self.values(parameters, z)[-1]

    def forward(self, parameters: tuple, z: Float[Array, "N ..."], order: int) -> tuple[Array, list]:
        saved = []
        for part, own in self._with(parameters):
            z, of_part = part.forward(own, z, order)
            saved.append(of_part)
        return z, saved

    def backward(self, parameters: tuple, saved: list, delta: Float[Array, "N ..."]) -> tuple[tuple, Array]:
        gradients = []
        for (part, own), of_part in reversed(list(zip(self._with(parameters), saved, strict=True))):
            gradient, delta = part.backward(own, of_part, delta)
            if part.has_parameters:
                gradients.append(gradient)
        return tuple(gradients[::-1]), delta

    def record(self, parameters: tuple, saved: list, delta: Float[Array, "legs ..."]) -> tuple[list, Array]:
        records = []
        for (part, own), of_part in reversed(list(zip(self._with(parameters), saved, strict=True))):
            record, delta = part.record(own, of_part, delta)
            records.append(record)
        return records[::-1], delta

    def add_ntk(self, record: list, total: Legs) -> Legs:
        for part, of_part in zip(self.parts, record, strict=True):
            total = part.add_ntk(of_part, total)
        return total

    def tangent(
        self, record: list, tangent: Float[Array, "N legs ..."] | None
    ) -> tuple[list, Float[Array, "N legs ..."]]:
        records = []
        for part, of_part in zip(self.parts, record, strict=True):
            of_part, tangent = part.tangent(of_part, tangent)
            records.append(of_part)
        assert tangent is not None
        return records, tangent

    def higher(self, record: list, second: Array | None, third: Array | None) -> tuple[Array, Array]:
        for part, of_part in zip(self.parts, record, strict=True):
            second, third = part.higher(of_part, second, third)
        assert second is not None and third is not None
        return second, third

    def shared(self, record: list, change: Array, total: FourLegs) -> tuple[FourLegs, Array]:
        for part, of_part in reversed(list(zip(self.parts, record, strict=True))):
            total, change = part.shared(of_part, change, total)
        return total, change

    def _with(self, parameters: Sequence) -> list[tuple[AbstractRealLayer, Any]]:
        """The parts, each with its own parameters."""
        expected = sum(part.has_parameters for part in self.parts)
        if len(parameters) != expected:
            raise ValueError(f"parameters must have {expected} entries, got {len(parameters)}.")
        own = iter(parameters)
        return [(part, next(own) if part.has_parameters else ()) for part in self.parts]
