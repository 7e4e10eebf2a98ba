r"""Residual blocks in the theory.

$$K' = \gamma^2 K_{\mathrm{shortcut}} + K_{\mathrm{body}}$$

and Theta likewise: the body ends in fresh weights, so that it is independent of the shortcut.
"""

from dataclasses import dataclass

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.residual import Residual
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Assembly, Chain, register
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs, ordered


@dataclass(frozen=True)
class ResidualStep(AbstractStep):
    """A body and a shortcut acting on the same pairs."""

    grid: Grid
    body: Chain
    shortcut: Chain
    gamma: float

    @property
    def behind(self) -> Grid:
        return self.body.behind

    def asks(self, wanted: Displacements) -> Displacements:
        return self.takes(wanted, measuring=False)

    def takes(self, wanted: Displacements, *, measuring: bool) -> Displacements:
        parts = (part.asked(wanted, measuring=measuring)[0] for part in (self.body, self.shortcut))
        return ordered(one for part in parts for one in part)

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        measuring = block.measured is not None
        parts = [
            pairs.only(part.asked(wanted, measuring=measuring)[0]) for part in (self.body, self.shortcut)
        ]
        skipped = self.shortcut.apply(parts[1].mapped(block.workspace.copy), wanted, block)
        result = self.body.apply(parts[0], wanted, block)
        if not wanted:  # it was only measured
            return result
        K, Theta = self._sum(result.K, skipped.K), None
        if result.Theta is not None:
            Theta = self._sum(result.Theta, skipped.Theta)
        block.workspace.free(skipped.K, skipped.Theta)
        return Pairs(result.grid, result.displacements, K, Theta)

    def _sum(self, body: np.ndarray, skip: np.ndarray | None) -> np.ndarray:
        from finitewidth.core.loops import scaled_sum

        assert skip is not None
        total = np.ascontiguousarray(body)
        scaled_sum(total.reshape(-1), np.ascontiguousarray(skip).reshape(-1), float(self.gamma**2))
        return total


@register
def _(layer: Residual, shape: Shape, assembly: Assembly) -> AbstractStep:
    gain = assembly.gain_rate
    body = Chain.of(layer.layers, shape, assembly, ends_inside=True)
    assembly.gain_rate = gain
    shortcut = Chain.of(layer.shortcut, shape, assembly, counted=False)
    return ResidualStep(Grid(shape[:-1]), body, shortcut, layer.gamma)
