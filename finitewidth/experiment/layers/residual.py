"""Residual blocks of real networks: a body and a skip, side by side, each a sequence of layers.

Every derivative of the sum is the sum of those of the two sides, so that a block of dense layers and
activations has structured derivatives as a network of them has.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import AbstractRealLayer, FourLegs, Legs, Passage, real
from finitewidth.experiment.layers.sequence import RealSequence
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.residual import Residual


class Sides(NamedTuple):
    """Something of the body, and the same of the skip."""

    body: Any
    skip: Any


@dataclass(frozen=True)
class RealResidual(AbstractRealLayer):
    """body(z) + gamma * skip(z)."""

    body: RealSequence
    skip: RealSequence
    gamma: float

    @classmethod
    def of(cls, layer: Residual, shape: Shape) -> "RealResidual":
        """The block, where samples of this shape come in."""
        body, skip = (RealSequence.of(layers, shape) for layers in (layer.layers, layer.shortcut))
        return cls(body, skip, layer.gamma)

    @property
    def is_structured(self) -> bool:
        return self.body.is_structured and self.skip.is_structured

    @property
    def normal_count(self) -> int:
        return self.body.normal_count + self.skip.normal_count

    def initial(self, normals: Float[Array, " count"]) -> Sides:
        middle = self.body.normal_count
        return Sides(self.body.initial(normals[:middle]), self.skip.initial(normals[middle:]))

    @property
    def rates(self) -> Sides:
        return Sides(self.body.rates, self.skip.rates)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.body.sizes + self.skip.sizes

    def ntk_size(self, neurons: int, samples: int) -> int:
        return max(side.ntk_size(neurons, samples) for side in (self.body, self.skip))

    def check_fixed(self) -> None:
        self.body.check_fixed()
        self.skip.check_fixed()

    def apply(self, parameters: Sides, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        return self.body.apply(parameters.body, z) + self.gamma * self.skip.apply(parameters.skip, z)

    def traced(self, parameters: Sides, z: Float[Array, "N ..."]) -> tuple[Array, list[Passage]]:
        """The layers of the body count, the last one with the skip; those of the skip do not."""
        body, (*passages, last) = self.body.traced(parameters.body, z)
        behind = body + self.gamma * self.skip.apply(parameters.skip, z)
        return behind, [*passages, last._replace(preactivations=behind)]

    def forward(self, parameters: Sides, z: Float[Array, "N ..."], order: int) -> tuple[Array, Sides]:
        body, of_body = self.body.forward(parameters.body, z, order)
        skip, of_skip = self.skip.forward(parameters.skip, z, order)
        return body + self.gamma * skip, Sides(of_body, of_skip)

    def backward(self, parameters: Sides, saved: Sides, delta: Float[Array, "N ..."]) -> tuple[Sides, Array]:
        of_body, body = self.body.backward(parameters.body, saved.body, delta)
        of_skip, skip = self.skip.backward(parameters.skip, saved.skip, self.gamma * delta)
        return Sides(of_body, of_skip), body + skip

    def record(self, parameters: Sides, saved: Sides, delta: Float[Array, "legs ..."]) -> tuple[Sides, Array]:
        of_body, body = self.body.record(parameters.body, saved.body, delta)
        of_skip, skip = self.skip.record(parameters.skip, saved.skip, self.gamma * delta)
        return Sides(of_body, of_skip), body + skip

    def add_ntk(self, record: Sides, other: Sides, total: Legs) -> Legs:
        total = self.body.add_ntk(record.body, other.body, total)
        return self.skip.add_ntk(record.skip, other.skip, total)

    def tangent(
        self, record: Sides, tangent: Float[Array, "N legs ..."] | None
    ) -> tuple[Sides, Array | None]:
        of_body, body = self.body.tangent(record.body, tangent)
        of_skip, skip = self.skip.tangent(record.skip, tangent)
        return Sides(of_body, of_skip), self._added(body, skip)

    def higher(
        self, record: Sides, second: Array | None, third: Array | None
    ) -> tuple[Array | None, Array | None]:
        body = self.body.higher(record.body, second, third)
        skip = self.skip.higher(record.skip, second, third)
        return self._added(body[0], skip[0]), self._added(body[1], skip[1])

    def shared(self, record: Sides, change: Array, total: FourLegs) -> tuple[FourLegs, Array]:
        total, body = self.body.shared(record.body, change, total)
        total, skip = self.skip.shared(record.skip, self.gamma * change, total)
        return total, body + skip

    def _added(self, body: Array | None, skip: Array | None) -> Array | None:
        """body + gamma * skip; the body ends in weights, so that it always moves."""
        return body if body is None or skip is None else body + self.gamma * skip


real.register(Residual, RealResidual.of)
