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
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs


@dataclass(frozen=True)
class Shifts(AbstractStep):
    """Sums over the taps of a filter of stride one that leaves the number of positions as it is."""

    grid: Grid
    axes: tuple[Axis, ...]

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        images = [[_shifts(axis, d) for axis, d in zip(self.axes, one, strict=True)] for one in wanted]
        return pairs.mapped(functools.partial(self._summed, images))

    def _summed(self, images: list[list[np.ndarray]], values: np.ndarray) -> np.ndarray:
        result = np.empty(values.shape)
        for shifts, before, behind in zip(images, values, result, strict=True):
            if len(shifts) == 1:
                np.matmul(
                    shifts[0], before.reshape(*self.grid.shape, -1), out=behind.reshape(*self.grid.shape, -1)
                )
            else:
                moved = (shifts[0] @ before.reshape(self.grid.shape[0], -1)).reshape(*self.grid.shape, -1)
                np.matmul(shifts[1], moved, out=behind.reshape(moved.shape))
        return result


@functools.lru_cache(maxsize=1024)
def _shifts(axis: Axis, displacement: int) -> np.ndarray:
    """The sum over taps along one axis as a matrix: for the short axes of images a product is fastest.

    Where p + d wraps around, the image is cut: no tap reaches from one of its two parts into the other.
    """
    places, inside = axis.sources()
    first = np.arange(axis.size)
    second = (first + displacement) % axis.size
    there = inside[first] & inside[second] & ((places[second] - places[first]) % axis.size == displacement)
    matrix = np.zeros((axis.size, axis.size))
    np.add.at(matrix, (np.broadcast_to(first[:, None], places.shape)[there], places[there]), 1.0)
    return matrix


@register
def _(layer: Conv, shape: Shape, count: Counter) -> list[AbstractStep]:
    axes = layer.axes(shape)
    grid = Grid(shape[:-1])
    aligned = all(axis.stride == 1 and axis.output == axis.size for axis in axes)
    sums = Shifts(grid, axes) if aligned else Mixing(grid, axes, tied=True)
    return [sums, WeightsStep(sums.behind, layer, math.prod(axis.taps for axis in axes))]
