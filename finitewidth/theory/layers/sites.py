"""Pairs of sites, (sample, position) each, ordered by their displacement.

A convolution with shared weights maps the kernel of two sites to sums of kernels with the same difference of
positions. So each displacement d is an image of its own: entry p is the pair of positions p and p + d.
Displacements are cyclic, p + d wraps around: then one image has as many entries as there are positions, and
all of them together are all pairs, each once.
"""

import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

Displacement = tuple[int, ...]  # one entry for each axis of positions
Displacements = tuple[Displacement, ...]


@dataclass(frozen=True)
class Grid:
    """The positions of a sample."""

    shape: tuple[int, ...]  # without the channels; () if there are no positions

    @functools.cached_property
    def size(self) -> int:
        """The number of positions P."""
        return math.prod(self.shape)

    @property
    def zero(self) -> Displacement:
        """Of a position from itself."""
        return (0,) * len(self.shape)

    @functools.cached_property
    def everything(self) -> Displacements:
        """All displacements, which are as many as positions."""
        return tuple(itertools.product(*map(range, self.shape)))

    def partners(self, displacements: Displacements) -> np.ndarray:
        """The position p + d for every displacement and position p, (D, P)."""
        return _partners(self.shape, displacements)


@functools.lru_cache(maxsize=4096)
def _partners(shape: tuple[int, ...], displacements: Displacements) -> np.ndarray:
    if not shape:
        return np.zeros((len(displacements), 1), dtype=int)
    places = np.indices(shape).reshape(len(shape), 1, -1)
    steps = np.asarray(displacements, dtype=int).T[:, :, None]
    size = np.asarray(shape).reshape(-1, 1, 1)
    return np.asarray(np.ravel_multi_index(tuple((places + steps) % size), shape))


@dataclass
class Pairs:
    """Kernel and NTK of the pairs of sites of a block of samples, (D, P, A, B) each."""

    grid: Grid
    displacements: Displacements
    K: np.ndarray
    Theta: np.ndarray | None

    def only(self, wanted: Displacements) -> "Pairs":
        """The pairs with these displacements; the same arrays if that is all of them."""
        if wanted == self.displacements:
            return self
        places = [self.displacements.index(one) for one in wanted]
        Theta = None if self.Theta is None else self.Theta[places]
        return Pairs(self.grid, wanted, self.K[places], Theta)

    def mapped(self, function, grid: Grid | None = None, displacements: Displacements | None = None):
        """The pairs with a linear function of K and Theta in their place."""
        Theta = None if self.Theta is None else function(self.Theta)
        return Pairs(grid or self.grid, displacements or self.displacements, function(self.K), Theta)


def ordered(displacements: Iterable[Displacement]) -> Displacements:
    """Each once, in a fixed order."""
    return tuple(sorted(set(displacements)))
