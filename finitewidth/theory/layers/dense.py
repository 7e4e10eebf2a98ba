r"""Dense layers in the theory.

$$K' = C_b + C_W K, \qquad \Theta' = \lambda_b + \lambda_W K + C_W \Theta$$

with K and Theta of what arrives (PDLT chapters 4 and 8).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.dense import Dense
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Counter, register
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs


@dataclass(frozen=True)
class WeightsStep(AbstractStep):
    """Weights and biases acting on pairs of sites, after sums over `taps` sites of a filter."""

    grid: Grid
    layer: Any  # with C_b, C_W, lambda_b, lambda_W
    taps: int = 1

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        layer, Theta = self.layer, pairs.Theta
        if Theta is not None:
            Theta *= layer.C_W / self.taps
            Theta += (layer.lambda_W / self.taps) * pairs.K
            Theta += layer.lambda_b
        K = np.multiply(pairs.K, layer.C_W / self.taps)  # the kernel of an activation cannot be written to
        K += layer.C_b
        return Pairs(pairs.grid, pairs.displacements, K, Theta)


@register
def _(layer: Dense, shape: Shape, count: Counter) -> AbstractStep:
    return WeightsStep(Grid(shape[:-1]), layer)
