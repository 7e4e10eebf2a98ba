"""Memory for arrays of about a megabyte that live for a while.

The system hands out the pages of such an array one by one, which can take longer than to compute its numbers.
Pieces of one large array share its large pages.
"""

import math
import threading

import numpy as np

_SIZE = 1 << 21  # doubles that are asked for at once: 16 MB, of which only what is used is taken


class _Reserve:
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


_reserve = _Reserve()


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """An array of doubles whose content is arbitrary."""
    return _reserve.empty(shape)
