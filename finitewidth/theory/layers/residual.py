r"""Residual blocks in the theory.

$$K' = \gamma^2 K_{\mathrm{shortcut}} + K_{\mathrm{body}}$$

and Theta likewise: the body ends in fresh weights, so that it is independent of the shortcut.
"""

from dataclasses import dataclass

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.residual import Residual
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Chain, Counter, register
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
        skipped = self.shortcut.apply(parts[1].mapped(np.copy), wanted, block)
        result = self.body.apply(parts[0], wanted, block)
        if not wanted:  # it was only measured
            return result
        for total, skip in ((result.K, skipped.K), (result.Theta, skipped.Theta)):
            if total is not None and skip is not None:
                skip *= self.gamma**2
                total += skip
        return result


@register
def _(layer: Residual, shape: Shape, count: Counter) -> AbstractStep:
    gain = count.gain
    body = Chain.of(layer.layers, shape, count, ends_inside=True)
    count.gain = gain
    shortcut = Chain.of(layer.shortcut, shape, count, counted=False)
    return ResidualStep(Grid(shape[:-1]), body, shortcut, layer.gamma)
