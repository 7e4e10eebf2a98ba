"""Real networks of which only parameters and action are known."""

from dataclasses import dataclass
from typing import Any

import finitewidth as fw
from finitewidth.experiment.layers.abstract import AbstractRealLayer
from finitewidth.experiment.layers.sequence import RealSequence
from finitewidth.experiment.sampling import real_network


@dataclass(frozen=True)
class Plain(AbstractRealLayer):
    """A layer of which only parameters and action are known: every derivative is automatic."""

    layer: AbstractRealLayer

    @property
    def normal_count(self) -> int:
        return self.layer.normal_count

    def initial(self, normals) -> Any:
        return self.layer.initial(normals)

    @property
    def rates(self) -> Any:
        return self.layer.rates

    def apply(self, parameters, z):
        return self.layer.apply(parameters, z)


def plain_network(net: fw.Network) -> RealSequence:
    return RealSequence(tuple(Plain(part) for part in real_network(net).parts))
