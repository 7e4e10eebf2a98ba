"""Dropout in the theory: K and Theta grow by 1/keep where a site of an input meets itself, only there."""

from dataclasses import dataclass

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.dropout import Dropout
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Assembly, register
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs


@dataclass(frozen=True)
class DropoutStep(AbstractStep):
    """Dropout acting on pairs of sites; masks of different inputs and sites are independent."""

    grid: Grid
    layer: Dropout

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        same = block.same(pairs)
        if same is None:
            return pairs
        return pairs.mapped(lambda values: np.where(same, values / self.layer.keep, values))


@register
def _(layer: Dropout, shape: Shape, assembly: Assembly) -> AbstractStep:
    return DropoutStep(Grid(shape[:-1]), layer)
