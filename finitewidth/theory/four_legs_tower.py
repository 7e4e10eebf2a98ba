"""The activation and its derivatives on arrays of any size, compiled for two block sizes only."""

import functools

import jax
import numpy as np

from finitewidth.activation import Activation

_BLOCKS = (1 << 13, 1 << 15)  # the larger still fits a core's cache with four derivatives


class Tower:
    """sigma, sigma', ..., sigma^(highest) evaluated on NumPy arrays.

    Arrays are cut into blocks of two fixed sizes, so that a new number of samples or a new grid
    never waits for a compiler.
    """

    def __init__(self, activation: Activation, highest: int):
        self.activation = activation
        self.highest = highest
        self.block = _BLOCKS[-1]

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """Derivatives along a new first axis."""
        flat = np.ascontiguousarray(z, dtype=float).reshape(-1)
        values = np.empty((self.highest + 1, flat.size))
        for start in range(0, flat.size, self.block):
            part = flat[start : start + self.block]
            for order, derivative in enumerate(self.on_block(part)):
                values[order, start : start + part.size] = derivative
        return values.reshape(self.highest + 1, *np.shape(z))

    def on_block(self, z: np.ndarray) -> list[np.ndarray]:
        """Derivatives at no more than `block` points, without a copy of the results."""
        size = next(size for size in _BLOCKS if z.size <= size)
        padded = z
        if z.size < size:
            padded = np.zeros(size)
            padded[: z.size] = z
        derivatives = _compiled(self.activation, self.highest)(padded)
        return [np.asarray(derivative)[: z.size] for derivative in derivatives]


@functools.lru_cache(maxsize=32)
def _compiled(activation: Activation, highest: int):
    return jax.jit(lambda z: activation.derivatives(z, highest))
