"""Memory that is used again: a system hands out new pages one by one and clears them.

That can take longer than to compute the numbers. Arrays of about a megabyte that live for a while are pieces
of one larger array, which has larger pages. Arrays of many megabytes, which the system would take back when
they are free, are kept while work of the same kind goes on.
"""

import contextlib
import math
import threading
import weakref
from collections.abc import Iterator

import numpy as np

_SIZE = 1 << 21  # doubles that are asked for at once: 16 MB, of which only what is used is taken


class _Pieces:
    """Hands out pieces of a large array; the array lives as long as one of its pieces does."""

    def __init__(self):
        self._lock = threading.Lock()
        self._left = np.empty(0)

    def empty(self, shape: tuple[int, ...]) -> np.ndarray:
        size = math.prod(shape)
        if size > _SIZE // 4:
            return np.empty(shape)
        with self._lock:
            if size > self._left.size:
                self._left = np.empty(_SIZE)
            piece, self._left = self._left[:size], self._left[size:]
        return piece.reshape(shape)


_pieces = _Pieces()


def piece(shape: tuple[int, ...]) -> np.ndarray:
    """An array of doubles whose content is arbitrary, with the pages of a larger one."""
    return _pieces.empty(shape)


class _Kept(threading.local):
    """Large arrays of one thread, while it recycles: those handed out, and those that were given back."""

    def __init__(self):
        self.depth = 0
        self.out: dict[int, weakref.ref] = {}
        self.spare: list[np.ndarray] = []


_kept = _Kept()


@contextlib.contextmanager
def recycling() -> Iterator[None]:
    """Arrays of this thread that are given back inside are handed out again, and let go at the end."""
    _kept.depth += 1
    try:
        yield
    finally:
        _kept.depth -= 1
        if not _kept.depth:
            _kept.out.clear()
            _kept.spare.clear()


def zeros(shape: tuple[int, ...]) -> np.ndarray:
    """An array of zeros, in memory that was given back if there is some of this size."""
    size = math.prod(shape)
    place = next((n for n, spare in enumerate(_kept.spare) if spare.size == size), None)
    if place is None:
        array = np.zeros(size)
    else:
        array = _kept.spare.pop(place)
        array.fill(0.0)
    if _kept.depth:
        _kept.out[id(array)] = weakref.ref(array)
    return array.reshape(shape)


def give_back(array: np.ndarray) -> None:
    """Nobody needs this array any more; one that does not come from here is left alone."""
    buffer = array if array.base is None else array.base
    handed_out = _kept.out.pop(id(buffer), None)
    if handed_out is not None and handed_out() is buffer:
        _kept.spare.append(buffer)
