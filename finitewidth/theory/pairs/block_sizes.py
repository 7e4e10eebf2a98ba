"""How pairs of samples are divided into blocks: bounded memory, and work that stays in cache."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from finitewidth.theory.layers.interface import Chain

_BUDGET = 1 << 16  # pairs of sites at once: half a megabyte
_MOST = 32 * _BUDGET  # pairs of sites that are there at once where a layer needs many displacements
_OVERHEAD = 8192  # what a step of a block costs besides its arithmetic, in pairs of sites
_THREADS = 16384  # what threads cost, likewise
_LEGS = 1 << 11  # sites whose legs are prepared together: few of them would cost as much
_WIDEST = 512  # samples


class Sizes(NamedTuple):
    """How many are done at once."""

    rows: int  # samples along the rows of a block
    columns: int  # samples along its columns, a multiple of `rows`
    legs: int  # samples whose legs are prepared together, a multiple of `columns`
    budget: int  # pairs of sites


class Tile(NamedTuple):
    """Samples along the rows and columns of a block."""

    rows: slice
    columns: slice

    @property
    def shape(self) -> tuple[int, int]:
        """The number of samples along rows and columns."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start


def block_sizes(chain: Chain, rows: int, columns: int, symmetric: bool) -> Sizes:
    """The sizes of blocks for a network and two sets of samples; they depend on nothing else."""
    positions = max(_positions(chain))
    pairs = max(1, min(_BUDGET // positions, _MOST // _most_at_once(chain)))
    best = _best_sizes(rows, columns, symmetric, pairs, positions)
    legs = best[1] * max(1, _LEGS // (best[1] * positions))
    return Sizes(*best, legs, _BUDGET)


@functools.lru_cache(maxsize=1024)
def _best_sizes(rows: int, columns: int, symmetric: bool, most: int, positions: int) -> tuple[int, int]:
    """Samples along rows and columns of a block, at most `most` pairs, that make all blocks cheapest."""
    powers = [1 << k for k in range(_WIDEST.bit_length())]
    sizes = [(a, b) for b in powers for a in powers if a <= b and a * b <= most]

    def cost(size: tuple[int, int]) -> float:
        tops = np.arange(0, rows, size[0])
        lefts = tops if symmetric else np.zeros_like(tops)
        pairs = np.minimum(size[0], rows - tops) * (columns - lefts)
        blocks = -(-columns // size[1]) - lefts // size[1]
        largest = min(size[0], rows) * min(size[1], columns)  # the other cores wait for the last block
        work = positions * (pairs.sum() + 2 * largest) + _OVERHEAD * blocks.sum()
        return float(work + _THREADS * (blocks.sum() > 1))

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
    """The blocks of a (rows, columns) matrix of pairs; of a symmetric one those on and above the diagonal."""
    for top in range(0, rows, sizes.rows):
        chosen = slice(top, min(top + sizes.rows, rows))
        for left in range(top - top % sizes.columns if symmetric else 0, columns, sizes.columns):
            start = max(left, top) if symmetric else left
            yield Tile(chosen, slice(start, min(left + sizes.columns, columns)))


def pairs_of_sites(chain: Chain) -> int:
    """How many pairs of sites all steps together meet in a pair of samples: the cost of the pair."""
    wanted, total = (chain.behind.zero,), 1
    for step in reversed(chain.steps):
        wanted = step.asks(wanted)
        total += len(wanted) * step.grid.size
    return total
