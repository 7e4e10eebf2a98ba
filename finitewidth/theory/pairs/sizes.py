"""How pairs of samples are divided into blocks: bounded memory, work in cache, few compiled shapes."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.tiles import SIDE, tile_side
from finitewidth.theory.layers.interface import Chain

_BUDGET = 2 * SIDE**2  # pairs of sites at once: a megabyte
_MOST = 16 * _BUDGET  # pairs of sites that are there at once where a layer needs many displacements
_OVERHEAD = 16384  # what a step of a block costs besides its arithmetic, in pairs of sites
_LEGS = 1 << 26  # bytes of tables of legs


class Sizes(NamedTuple):
    """Samples along rows and columns of a block, pairs of sites at once, and tables of legs that are kept."""

    rows: int
    columns: int
    budget: int
    legs_kept: int


class Tile(NamedTuple):
    """Samples along the rows and columns of a block; the last ones repeat to fill it."""

    rows: np.ndarray
    columns: np.ndarray

    def inside(self, row_count: int, column_count: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows and columns without repeats."""
        starts = self.rows[0], self.columns[0]
        sizes = self.rows.size, self.columns.size
        return (
            np.arange(starts[0], min(starts[0] + sizes[0], row_count)),
            np.arange(starts[1], min(starts[1] + sizes[1], column_count)),
        )


def block_sizes(chain: Chain, rows: int, columns: int) -> Sizes:
    """The sizes of blocks for a network and two sets of samples."""
    positions = max(_positions(chain))
    if positions == 1:
        side = tile_side(max(rows, columns))
        return Sizes(side, side, _BUDGET, 64)
    pairs = max(1, min(_BUDGET // positions, _MOST // _most_at_once(chain)))
    most = max(1, math.isqrt(pairs))
    kept = max(8, _LEGS // (positions * most * 8 * 128))
    return Sizes(_best_size(rows, most, positions), _best_size(columns, most, positions), _BUDGET, kept)


def _best_size(count: int, most: int, positions: int) -> int:
    """The number of samples at once, at most `most`, that makes the blocks of a square cheapest.

    Few sizes are possible, so that few shapes are compiled.
    """
    sizes = [size for size in (1, 2, 3, 4, 6, 8, 10, *range(12, most + 4, 4)) if size <= most]

    def cost(size: int) -> float:
        blocks = -(-count // size)
        return blocks * (blocks + 1) / 2 * (size**2 * positions + _OVERHEAD)

    return min(sizes, key=cost)


def _positions(chain: Chain) -> list[int]:
    return [chain.grid.size, *(step.behind.size for step in chain.steps)]


def _most_at_once(chain: Chain) -> int:
    """Pairs of positions that are there at once behind a layer that needs many displacements."""
    wanted, most = (chain.behind.zero,), 1
    for step in reversed(chain.steps):
        if step.mixes:
            most = max(most, len(wanted) * step.behind.size)
        wanted = step.asks(wanted)
        if not step.mixes and len(wanted) > 1 and wanted == step.grid.everything and step.slot is not None:
            most = max(most, step.grid.size**2)
    return most


def tiles(rows: int, columns: int, sizes: Sizes, symmetric: bool) -> Iterator[Tile]:
    """The blocks of a (rows, columns) matrix of pairs; of a symmetric one those that reach the diagonal."""
    for top in range(0, rows, sizes.rows):
        chosen = np.minimum(np.arange(top, top + sizes.rows), rows - 1)
        for left in range(0, columns, sizes.columns):
            if not (symmetric and left + sizes.columns <= top):
                yield Tile(chosen, np.minimum(np.arange(left, left + sizes.columns), columns - 1))


def pairs_of_sites(chain: Chain) -> int:
    """How many pairs of sites all steps together meet in a pair of samples: the cost of the pair."""
    wanted, total = (chain.behind.zero,), 1
    for step in reversed(chain.steps):
        wanted = step.asks(wanted)
        total += len(wanted) * step.grid.size
    return total
