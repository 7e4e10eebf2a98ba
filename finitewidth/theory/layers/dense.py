r"""Dense layers in the theory.

$$K' = C_b + C_W K, \qquad \Theta' = \lambda_b + \lambda_W K + C_W \Theta$$

with K and Theta of what arrives (PDLT chapters 4 and 8).
"""

from dataclasses import dataclass

import numpy as np

from finitewidth.gaussian.tiles import Tile
from finitewidth.network.layers.dense import Dense
from finitewidth.theory.layers.interface import AbstractStep, Legs, TileStep, register


@dataclass(frozen=True)
class DenseStep(AbstractStep):
    """Weights and biases acting on pairs of samples."""

    layer: Dense

    def on_tiles(self, legs: Legs, rule) -> TileStep:
        return self._on_tile

    def of_variances(self, variances: np.ndarray, rule) -> np.ndarray:
        return self.layer.C_b + self.layer.C_W * variances

    def _on_tile(
        self, K: np.ndarray, Theta: np.ndarray | None, out: np.ndarray, tile: Tile
    ) -> tuple[np.ndarray, float]:
        layer = self.layer
        if Theta is not None:
            Theta *= layer.C_W
            Theta += layer.lambda_W * K
            Theta += layer.lambda_b
        np.multiply(K, layer.C_W, out=out)
        out += layer.C_b
        return out, 0.0


@register
def _(layer: Dense) -> AbstractStep:
    return DenseStep(layer)
