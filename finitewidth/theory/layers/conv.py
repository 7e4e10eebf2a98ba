r"""Convolutions in the theory.

$$M \to \frac1F \sum_f M(s p + f, s q + f)$$

for K and Theta, with zeros outside and F the number of taps; then as a dense layer. With stride one and as
many positions behind as before, each displacement stays an image of its own, and sums over taps are sums over
shifts along each axis.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.windows import Axis
from finitewidth.theory.layers.dense import WeightsStep
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Counter, register
from finitewidth.theory.layers.mixing import Mixing
from finitewidth.theory.layers.sites import Displacement, Displacements, Grid, Pairs


@dataclass(frozen=True)
class Shifts(AbstractStep):
    """Sums over the taps of a filter of stride one that leaves the number of positions as it is."""

    grid: Grid
    axes: tuple[Axis, ...]

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        return pairs.mapped(functools.partial(self._summed, pairs.displacements))

    def _summed(self, displacements: Displacements, values: np.ndarray) -> np.ndarray:
        result = np.empty(values.shape)
        for place, displacement in enumerate(displacements):
            result[place] = self._on_image(values[place], displacement)
        return result

    def _on_image(self, image: np.ndarray, displacement: Displacement) -> np.ndarray:
        shape = image.shape
        image = image.reshape(*self.grid.shape, -1)
        for place, (axis, d) in enumerate(zip(self.axes, displacement, strict=True)):
            if axis.taps > 1 or axis.low:
                image = _along(np.moveaxis(image, place, 0), axis, d)
                image = np.moveaxis(image, 0, place)
        return image.reshape(shape)


def _along(image: np.ndarray, axis: Axis, displacement: int) -> np.ndarray:
    """The sum over taps along the first axis.

    Where p + d wraps around the image is cut: no tap may reach from one of its two parts into the other.
    """
    total = np.zeros_like(image)
    cut = axis.size - displacement
    for offset in range(-axis.low, axis.taps - axis.low):
        if axis.circular:
            total += np.roll(image, -offset, axis=0)
            continue
        for start, stop in ((0, cut), (cut, axis.size)):
            low, high = max(start, start - offset), min(stop, stop - offset)
            if low < high:
                total[low:high] += image[low + offset : high + offset]
    return total


@register
def _(layer: Conv, shape: Shape, count: Counter) -> list[AbstractStep]:
    axes = layer.axes(shape)
    grid = Grid(shape[:-1])
    aligned = all(axis.stride == 1 and axis.output == axis.size for axis in axes)
    sums = Shifts(grid, axes) if aligned else Mixing(grid, axes, tied=True)
    return [sums, WeightsStep(sums.behind, layer, math.prod(axis.taps for axis in axes))]
