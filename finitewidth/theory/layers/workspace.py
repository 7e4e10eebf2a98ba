"""Arrays that a block of pairs on its way through a network uses again and again.

A new array of a megabyte costs as much as the arithmetic on it: the system hands out its pages one by one.
"""

import math

import numpy as np

_MOST = 16  # arrays that are kept


class Workspace:
    """Arrays of doubles of one thread, given back when nobody needs them any more."""

    def __init__(self):
        self._spare: list[np.ndarray] = []

    def empty(self, shape: tuple[int, ...]) -> np.ndarray:
        """An array whose content is arbitrary."""
        size = math.prod(shape)
        large = [(spare.size, place) for place, spare in enumerate(self._spare) if spare.size >= size]
        buffer = self._spare.pop(min(large)[1]) if large else np.empty(size)
        return buffer[:size].reshape(shape)

    def zeros(self, shape: tuple[int, ...]) -> np.ndarray:
        """An array of zeros."""
        result = self.empty(shape)
        result[...] = 0.0
        return result

    def copy(self, values: np.ndarray) -> np.ndarray:
        """The same numbers in another array."""
        result = self.empty(values.shape)
        result[...] = values
        return result

    def free(self, *arrays: np.ndarray | None) -> None:
        """Take back arrays that came from here; others are left alone."""
        for array in arrays:
            buffer = None if array is None else array.base
            if buffer is None or buffer.ndim != 1 or not buffer.flags.owndata:
                continue
            if len(self._spare) < _MOST and not any(buffer is spare for spare in self._spare):
                self._spare.append(buffer)
