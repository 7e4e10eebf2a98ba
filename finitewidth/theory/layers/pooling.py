r"""Layers that gather positions, in the theory.

An average over windows is $K' = B K B^T$ with the matrix B of the average, and so is the average over all
positions; flattening is the mean of $K(p, p)$. Theta likewise: none of them has parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.pooling import AveragePool, Flatten, GlobalAveragePool
from finitewidth.theory.layers.interface import AbstractMixing, AbstractStep, Assembly, BlockShape, register
from finitewidth.theory.layers.mixing import Mixing
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs
from finitewidth.theory.layers.workspace import Workspace

NOWHERE = Grid(())


@dataclass(frozen=True)
class Gathering(AbstractMixing):
    """The average over all pairs of positions, or only over pairs of a position with itself."""

    grid: Grid
    among_all: bool

    @property
    def behind(self) -> Grid:
        return NOWHERE

    def asks(self, wanted: Displacements) -> Displacements:
        return self.grid.everything if self.among_all else (self.grid.zero,)

    def gathered(
        self, chunks: Iterator[Pairs], wanted: Displacements, like: BlockShape, workspace: Workspace
    ) -> Pairs:
        from finitewidth.core.loops import add_rows

        count = self.grid.size ** (2 if self.among_all else 1)
        sums = [np.zeros(like[:2]) for _ in range(1 + like.has_ntk)]
        for pairs in chunks:
            for total, values in zip(sums, (pairs.K, pairs.Theta), strict=False):
                assert values is not None
                add_rows(values.reshape(-1, total.size), total.reshape(-1))
            workspace.free(pairs.K, pairs.Theta)
        K, *Theta = (total[None, None] / count for total in sums)
        return Pairs(NOWHERE, wanted, K, *Theta or [None])


@register
def _(layer: AveragePool, shape: Shape, assembly: Assembly) -> AbstractStep:
    return Mixing(Grid(shape[:-1]), layer.axes(shape), tied=False, counts_padding=layer.count_padding)


@register
def _(layer: GlobalAveragePool, shape: Shape, assembly: Assembly) -> AbstractStep:
    return Gathering(Grid(shape[:-1]), among_all=True)


@register
def _(layer: Flatten, shape: Shape, assembly: Assembly) -> AbstractStep:
    return Gathering(Grid(shape[:-1]), among_all=False)
