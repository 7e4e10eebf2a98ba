"""Blocks of tensors between pairs of samples, all of a layer made in one pass over memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from finitewidth.core.cores import in_pieces
from finitewidth.theory.layers.pair_map import PairMap

_AT_ONCE = 1 << 17  # entries of a block that are worth a task


class Term(NamedTuple):
    """Averages times a weight of the row pair (a b) and one of the column pair (c d)."""

    values: np.ndarray  # flat
    strides: tuple[int, ...]  # of a, b, c and d in the values
    row: np.ndarray  # (N, N)
    column: np.ndarray  # (N, N)


class Move(NamedTuple):
    """Sum of factor R X over rows, times C^T."""

    rows: Sequence[tuple[np.ndarray, PairMap, float]]  # X, R, factor
    column: PairMap  # C


@dataclass
class Recipe:
    """What a block is made of: terms, times entries of Theta that tie rows to columns, and moved blocks.

    A mirrored block is this plus the same with rows and columns exchanged.
    """

    sources: list[Term] = field(default_factory=list)
    ties: tuple[str, ...] = ()  # pairs of the labels a b c d
    moves: list[Move] = field(default_factory=list)
    mirrored: bool = False


def make_blocks(
    blocks: Sequence[np.ndarray], recipes: Sequence[Recipe], Theta: np.ndarray, *, keep: bool = False
) -> None:
    """Fill blocks (N, N, N, N), or add to them what the recipes say and multiply by ties, if `keep`."""
    from finitewidth.core.loops import make_rows, symmetrize

    count = len(Theta)
    totals = tuple(block.reshape(count**2, count**2) for block in blocks)
    averages, sources = _source_tables([recipe.sources for recipe in recipes], count)
    known, moves = _move_tables([recipe.moves for recipe in recipes], count)
    ties = [np.array([["abcd".index(one) for one in tie] for tie in r.ties]).reshape(-1, 2) for r in recipes]
    starts, numbers = _starts(ties), np.concatenate(ties).astype(int)
    Theta, known = np.ascontiguousarray(Theta), known or totals[:1]
    arguments = totals, keep, averages, sources, Theta, (starts, numbers), known, moves
    in_pieces(
        lambda start, stop: make_rows(*arguments, start, stop), count**2, 1 + _AT_ONCE // totals[0].size
    )
    for total, recipe in zip(totals, recipes, strict=True):
        if recipe.mirrored:
            tiles = -(-(count**2) // 64)
            in_pieces(lambda start, stop, total=total: symmetrize(total, start, stop), tiles, 16)


def _starts(parts: Sequence[Sequence | np.ndarray]) -> np.ndarray:
    return np.cumsum([0, *map(len, parts)])


def _distinct(arrays: Sequence[np.ndarray]) -> tuple[tuple[np.ndarray, ...], list[int]]:
    """Arrays that are not the same memory, and the place of each among them."""
    distinct = {array.ctypes.data: array for array in arrays}
    places = {address: place for place, address in enumerate(distinct)}
    return tuple(distinct.values()), [places[array.ctypes.data] for array in arrays]


def _source_tables(sources: Sequence[Sequence[Term]], count: int):
    """The averages, and sources as `make_rows` takes them."""
    every = [term for terms in sources for term in terms]
    averages, family = _distinct([term.values for term in every])
    strides = np.array([term.strides for term in every], dtype=int).reshape(-1, 4)
    weights = (np.array([term[n] for term in every]).reshape(-1, count, count) for n in (2, 3))
    return averages or (np.zeros(1),), (_starts(sources), np.array(family, dtype=int), strides, *weights)


def _move_tables(moves: Sequence[Sequence[Move]], count: int):
    """The blocks that are moved, and moves as `make_rows` takes them."""
    every = [move for own in moves for move in own]
    maps = [move.column for move in every]
    columns = np.array([one.stacked() for one in maps]).reshape(-1, 3, count, count)
    present = np.array([[part is not None for part in one] for one in maps], dtype=bool).reshape(-1, 3)
    rows = [
        [(block, place, factor * part) for block, row, factor in move.rows for place, part in _parts(row)]
        for move in every
    ]
    flat = [row for own in rows for row in own]
    known, which = _distinct([np.ascontiguousarray(block) for block, _, _ in flat])
    places = np.array([*zip(which, (place for _, place, _ in flat), strict=True)], dtype=int).reshape(-1, 2)
    weights = np.array([weight for _, _, weight in flat]).reshape(-1, count, count)
    known = tuple(block.reshape(count**2, count**2) for block in known)
    return known, (_starts(moves), columns, present, _starts(rows), places, weights)


def _parts(row: PairMap) -> list[tuple[int, np.ndarray]]:
    return [(place, part) for place, part in enumerate(row) if part is not None]
