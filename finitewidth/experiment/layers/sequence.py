"""Layers one behind the other: itself a layer, with the parameters of its parts that have any.

A whole network is one sequence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import AbstractRealLayer, FourLegs, Legs, Passage, real
from finitewidth.network.layers.abstract import AbstractLayer, Shape


@dataclass(frozen=True)
class RealSequence(AbstractRealLayer):
    """The parts in order; parameters are a tuple with an entry for each part that has parameters."""

    parts: tuple[AbstractRealLayer, ...]

    @property
    def is_structured(self) -> bool:
        return all(part.is_structured for part in self.parts)

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

    def apply(self, parameters: tuple, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        for part, own in self._with(parameters):
            z = part.apply(own, z)
        return z

    def traced(self, parameters: tuple, z: Float[Array, "N ..."]) -> tuple[Array, list[Passage]]:
        passages = []
        for part, own in self._with(parameters):
            z, of_part = part.traced(own, z)
            passages += of_part
        return z, passages

    def narrowed(self, parameters: tuple, neurons: int) -> "tuple[RealSequence, tuple]":
        last, own = self.parts[-1].narrowed(parameters[-1], neurons)
        return RealSequence((*self.parts[:-1], last)), (*parameters[:-1], own)

    def check_fixed(self) -> None:
        for part in self.parts:
            part.check_fixed()

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for part in self.parts for size in part.sizes)

    def ntk_size(self, neurons: int, samples: int) -> int:
        return max((part.ntk_size(neurons, samples) for part in self.parts), default=0)

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

    def add_ntk(self, record: list, other: list, total: Legs) -> Legs:
        for part, of_part, of_other in zip(self.parts, record, other, strict=True):
            total = part.add_ntk(of_part, of_other, total)
        return total

    def tangent(self, record: list, tangent: Float[Array, "N legs ..."] | None) -> tuple[list, Array | None]:
        records = []
        for part, of_part in zip(self.parts, record, strict=True):
            of_part, tangent = part.tangent(of_part, tangent)
            records.append(of_part)
        return records, tangent

    def higher(
        self, record: list, second: Array | None, third: Array | None
    ) -> tuple[Array | None, Array | None]:
        for part, of_part in zip(self.parts, record, strict=True):
            second, third = part.higher(of_part, second, third)
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
