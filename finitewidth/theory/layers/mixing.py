r"""Linear layers that add pairs of sites, $M'(p', q') = \sum_{ij} w_{ij} M(p_i, q_j)$: sparse matrices."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from finitewidth.network.layers.windows import Axis
from finitewidth.theory.layers.interface import AbstractMixing, BlockShape
from finitewidth.theory.layers.sites import Displacement, Displacements, Grid, Pairs, ordered
from finitewidth.theory.layers.workspace import Workspace

Matrices = dict[Displacement, tuple[np.ndarray, sparse.csr_array]]
"""By displacement in front of a layer: rows of the result, and the matrix from the image to them."""


@dataclass(frozen=True)
class Mixing(AbstractMixing):
    """Windows that slide over positions with any stride and padding.

    With `tied` taps the same tap acts on both sites of a pair, as in a convolution with shared weights; else
    the taps of both sites run by themselves, as in an average.
    """

    grid: Grid
    axes: tuple[Axis, ...]
    tied: bool
    counts_padding: bool | None = None  # whether an average counts it; None for a sum

    @property
    def behind(self) -> Grid:
        return Grid(tuple(axis.output for axis in self.axes))

    def asks(self, wanted: Displacements) -> Displacements:
        return _asked(self, wanted)

    def gathered(
        self, chunks: Iterator[Pairs], wanted: Displacements, like: BlockShape, workspace: Workspace
    ) -> Pairs:
        from finitewidth.core.loops import add_product

        size = len(wanted) * self.behind.size
        sums = [workspace.zeros((size, like.rows * like.columns)) for _ in range(1 + like.has_ntk)]
        matrices = _matrices(self, wanted)
        for pairs in chunks:
            for place, displacement in enumerate(pairs.displacements):
                if displacement in matrices:
                    rows, matrix = matrices[displacement]
                    sparse_rows = matrix.indptr, matrix.indices, matrix.data, rows
                    for total, values in zip(sums, (pairs.K, pairs.Theta), strict=False):
                        assert values is not None
                        add_product(*sparse_rows, values[place].reshape(self.grid.size, -1), total)
            workspace.free(pairs.K, pairs.Theta)
        K, *Theta = (total.reshape(len(wanted), self.behind.size, *like[:2]) for total in sums)
        return Pairs(self.behind, wanted, K, *Theta or [None])


@functools.lru_cache(maxsize=64)
def _matrices(layer: Mixing, wanted: Displacements) -> Matrices:
    """By displacement in front of the layer: rows of the result, and a sparse matrix that gives them."""
    parts = []
    for place, one in enumerate(wanted):
        to, start, moved, weight = _terms(layer, one)
        parts.append((place * layer.behind.size + to, start, weight, moved))
    rows, columns, weights, sources = map(np.concatenate, zip(*parts, strict=True))
    return _sorted_by_source(rows, columns, weights, sources, layer)


def _terms(layer: Mixing, displacement: Displacement):
    """All terms of one image: flat output position, flat input position, flat displacement, weight."""
    axes = [_axis_terms(axis, layer, d) for axis, d in zip(layer.axes, displacement, strict=True)]
    shapes = layer.behind.shape, layer.grid.shape, layer.grid.shape
    grids = [np.meshgrid(*(axis[k] for axis in axes), indexing="ij") for k in range(4)]
    flat = [
        np.ravel_multi_index(tuple(part.ravel() for part in grid), shape)
        for grid, shape in zip(grids[:3], shapes, strict=True)
    ]
    return *flat, functools.reduce(np.multiply, grids[3]).ravel()


def _axis_terms(axis: Axis, layer: Mixing, displacement: int) -> tuple[np.ndarray, ...]:
    """Terms along one axis: output position, input position, cyclic displacement in front, weight."""
    places, inside = axis.sources()
    first = np.arange(axis.output)
    second = (first + displacement) % axis.output
    taps = np.arange(axis.taps)
    i, j = (taps, taps) if layer.tied else (np.repeat(taps, axis.taps), np.tile(taps, axis.taps))
    p, q = places[first][:, i], places[second][:, j]
    there = inside[first][:, i] & inside[second][:, j]
    share = _share(axis, layer.counts_padding)
    weight = np.broadcast_to((share[first] * share[second])[:, None], p.shape)
    to = np.broadcast_to(first[:, None], p.shape)
    return to[there], p[there], ((q - p) % axis.size)[there], weight[there]


def _share(axis: Axis, counts_padding: bool | None) -> np.ndarray:
    """The weight of each tap of an output along one axis."""
    if counts_padding is None:
        return np.ones(axis.output)
    return 1 / (np.full(axis.output, axis.taps) if counts_padding else axis.sources()[1].sum(axis=1))


def _sorted_by_source(rows, columns, weights, sources, layer: Mixing) -> Matrices:
    order = np.argsort(sources, kind="stable")
    rows, columns, weights, sources = (part[order] for part in (rows, columns, weights, sources))
    starts = np.searchsorted(sources, np.arange(layer.grid.size + 1))
    result: Matrices = {}
    for flat, displacement in enumerate(layer.grid.everything):
        part = slice(starts[flat], starts[flat + 1])
        if part.stop > part.start:
            distinct, index = np.unique(rows[part], return_inverse=True)
            shape = (distinct.size, layer.grid.size)
            matrix = sparse.csr_array((weights[part], (index, columns[part])), shape=shape)
            result[displacement] = distinct, matrix
    return result


@functools.lru_cache(maxsize=256)
def _asked(layer: Mixing, wanted: Displacements) -> Displacements:
    """Displacements in front, from those behind: products over the axes of all that an axis can make."""
    known = {
        (place, d): set(_axis_terms(axis, layer, d)[2].tolist())
        for place, axis in enumerate(layer.axes)
        for d in {one[place] for one in wanted}
    }
    return ordered(
        one for chosen in wanted for one in itertools.product(*(known[k, d] for k, d in enumerate(chosen)))
    )
