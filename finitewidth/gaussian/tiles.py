"""Square tiles of a matrix of pairs: bounded memory, few compiled shapes, work for several threads."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

SIDE = 256  # a tile of doubles is half a megabyte: a few of them fit a core's cache

_FEW = 3


@dataclass(frozen=True)
class Tile:
    """Rows and columns of one tile, and the padded side under which it is compiled."""

    rows: slice
    columns: slice
    side: int

    @property
    def parts(self) -> tuple[slice, slice]:
        return self.rows, self.columns

    @property
    def on_diagonal(self) -> bool:
        return self.rows == self.columns

    def padded(self, values: np.ndarray) -> np.ndarray:
        """A tile's matrix with zeros up to the padded side."""
        if values.shape == (self.side, self.side):
            return values
        whole = np.zeros((self.side, self.side))
        whole[: values.shape[0], : values.shape[1]] = values
        return whole

    def padded_last(self, values: np.ndarray, part: slice) -> np.ndarray:
        """`part` of the last axis, with zeros up to the padded side."""
        chosen = values[..., part]
        if chosen.shape[-1] == self.side:
            return chosen
        whole = np.zeros((*chosen.shape[:-1], self.side))
        whole[..., : chosen.shape[-1]] = chosen
        return whole

    def unpadded(self, values: np.ndarray) -> np.ndarray:
        """The inverse of `padded`."""
        return values[: self.rows.stop - self.rows.start, : self.columns.stop - self.columns.start]

    def padded_rows(self, values: np.ndarray) -> np.ndarray:
        return self.padded_last(values, self.rows)

    def padded_columns(self, values: np.ndarray) -> np.ndarray:
        return self.padded_last(values, self.columns)


def tiles(rows: int, columns: int, *, symmetric: bool) -> Iterator[Tile]:
    """The tiles of a (rows, columns) matrix; of a symmetric one those on and above the diagonal."""
    largest = max(rows, columns, 1)
    side = min(SIDE, 1 << (largest - 1).bit_length())
    for top in range(0, rows, side):
        for left in range(top if symmetric else 0, columns, side):
            yield Tile(slice(top, min(top + side, rows)), slice(left, min(left + side, columns)), side)


def for_each(work: Callable[[Tile], float], chosen: list[Tile]) -> float:
    """Do `work` on every tile, on all cores; return the largest of the errors that it returns.

    A few tiles are done one after the other: their compiled loops already use all cores.
    """
    if len(chosen) <= _FEW:
        return max(map(work, chosen), default=0.0)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return max(pool.map(work, chosen), default=0.0)
