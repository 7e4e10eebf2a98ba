r"""Convolutions in the theory.

$$M \to \frac1F \sum_f M(s p + f, s q + f)$$

for K and Theta, with zeros outside and F the number of taps; then as a dense layer. With stride one and as
many positions behind as before, each displacement stays an image of its own, and sums over taps are sums over
shifts along each axis.
"""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.windows import Axis
from finitewidth.theory.layers.dense import WeightsStep, coefficients
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Assembly, register
from finitewidth.theory.layers.mixing import Mixing
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs

Runs = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # as `core.loops.convolve` takes them


class Run(NamedTuple):
    """Places along an axis that sum over neighbours which move with them."""

    start: int
    length: int
    neighbours: np.ndarray  # of the first place


@dataclass(frozen=True)
class ConvStep(AbstractStep):
    """A filter of stride one that leaves the number of positions as it is, and its weights."""

    grid: Grid
    axes: tuple[Axis, ...]
    layer: Conv

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        from finitewidth.core.loops import convolve

        along = _runs(self.axes, wanted)
        weights = coefficients(self.layer, _taps(self.axes))
        shape, space = pairs.K.shape, block.workspace
        front = pairs.K, space.zeros(shape) if pairs.Theta is None else pairs.Theta
        behind = space.empty(shape), space.empty(shape)
        convolve(*map(np.ravel, front), math.prod(shape[2:]), *along, weights, *map(np.ravel, behind))
        space.free(*front)
        return Pairs(self.grid, wanted, behind[0], None if pairs.Theta is None else behind[1])


def _taps(axes: tuple[Axis, ...]) -> int:
    return math.prod(axis.taps for axis in axes)


@functools.lru_cache(maxsize=256)
def _runs(axes: tuple[Axis, ...], displacements: Displacements) -> tuple[Runs, Runs]:
    """The runs along both axes for each displacement; a sequence has one column."""
    one = np.ones((len(displacements), 1), dtype=int)
    one_column = 0 * one, one, one, np.zeros((len(displacements), 1, 1), dtype=int)
    along = [_listed([_along(axis, d[place]) for d in displacements]) for place, axis in enumerate(axes)]
    return (along[0], along[1]) if len(along) == 2 else (along[0], one_column)


def _listed(images: "list[list[Run]]") -> Runs:
    """Runs of several images as arrays; images with fewer runs are filled with empty ones."""
    count = max(map(len, images))
    most = max(1, *(run.neighbours.size for runs in images for run in runs))
    result = np.zeros((3, len(images), count), dtype=int)
    neighbours = np.zeros((len(images), count, most), dtype=int)
    for d, runs in enumerate(images):
        for place, run in enumerate(runs):
            result[:, d, place] = run.start, run.length, run.neighbours.size
            neighbours[d, place, : run.neighbours.size] = run.neighbours
    return *(np.ascontiguousarray(part) for part in result), neighbours  # type: ignore[return-value]


@functools.lru_cache(maxsize=1024)
def _along(axis: Axis, displacement: int) -> "list[Run]":
    """The places that each place of an image sums over, along one axis.

    Where p + d wraps around, the image is cut: no tap reaches from one of its two parts into the other.
    """
    places, inside = axis.sources()
    first = np.arange(axis.size)
    second = (first + displacement) % axis.size
    there = inside[first] & inside[second] & ((places[second] - places[first]) % axis.size == displacement)
    runs: list[Run] = []
    for place in range(axis.size):
        chosen = places[place][there[place]]
        if runs and np.array_equal(runs[-1].neighbours + runs[-1].length, chosen):
            runs[-1] = runs[-1]._replace(length=runs[-1].length + 1)
        else:
            runs.append(Run(place, 1, chosen))
    return runs


@register
def _(layer: Conv, shape: Shape, assembly: Assembly) -> AbstractStep | list[AbstractStep]:
    axes = layer.axes(shape)
    grid = Grid(shape[:-1])
    if all(axis.stride == 1 and axis.output == axis.size for axis in axes):
        return ConvStep(grid, axes, layer)
    sums = Mixing(grid, axes, tied=True)
    return [sums, WeightsStep(sums.behind, layer, _taps(axes))]
