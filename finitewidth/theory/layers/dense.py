r"""Dense layers in the theory.

$$K' = C_b + C_W K, \qquad \Theta' = \lambda_b + \lambda_W K + C_W \Theta$$

with K and Theta of what arrives (PDLT chapters 4 and 8).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.dense import Dense
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Assembly, register
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs


class Means(NamedTuple):
    """K and Theta of one layer: matrices of pairs, or whatever can be added and multiplied."""

    K: Any
    Theta: Any

    def plus(self, other: "Means", factor: float) -> "Means":
        """The sum, with a factor on the other."""
        return Means(self.K + factor * other.K, self.Theta + factor * other.Theta)


def behind_weights(layer: Any, K: Any, Theta: Any = 0.0) -> Means:
    """Means behind the weights of a layer; no NTK arrives from the inputs."""
    return Means(layer.C_b + layer.C_W * K, layer.lambda_b + (layer.lambda_W * K + layer.C_W * Theta))


@dataclass(frozen=True)
class WeightsStep(AbstractStep):
    """Weights and biases acting on pairs of sites, after sums over `taps` sites of a filter."""

    grid: Grid
    layer: Any  # with C_b, C_W, lambda_b, lambda_W
    taps: int = 1

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        from finitewidth.core.loops import affine

        K = np.ascontiguousarray(pairs.K)
        Theta = block.workspace.zeros(K.shape) if pairs.Theta is None else np.ascontiguousarray(pairs.Theta)
        affine(K.reshape(-1), Theta.reshape(-1), *coefficients(self.layer, self.taps))
        if pairs.Theta is None:
            block.workspace.free(Theta)
        return Pairs(pairs.grid, pairs.displacements, K, None if pairs.Theta is None else Theta)


def coefficients(layer: Any, taps: int) -> tuple[float, float, float, float, float]:
    """C_W, lambda_W and lambda_b of Theta, C_W and C_b of K, as `core.loops.affine` takes them."""
    share = layer.C_W / taps
    return float(share), float(layer.lambda_W / taps), float(layer.lambda_b), float(share), float(layer.C_b)


@register
def _(layer: Dense, shape: Shape, assembly: Assembly) -> AbstractStep:
    return WeightsStep(Grid(shape[:-1]), layer)
