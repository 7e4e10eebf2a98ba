"""The activation and its derivatives on arrays of any size, compiled as few times as possible."""

import functools

import jax
import numpy as np

from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.named import ON_ARRAYS

_SMALL, _LARGE = 1 << 13, 1 << 15  # points in a block; the larger fits a core's cache with four derivatives
_FEW = 16 * _SMALL  # points up to which a second program would cost more than it saves
_SHARED = 3  # derivatives in the program that serves all requests for few points


class Tower:
    """sigma, sigma', ..., sigma^(highest) evaluated on NumPy arrays.

    Arrays are cut into blocks of fixed sizes, so that a new number of samples or a new grid needs no
    compilation. One program computes all orders up to the third for small arrays: unused derivatives take
    less time than compiling another program.
    """

    def __init__(self, activation: Activation, highest: int):
        self.activation = activation
        self.highest = highest
        self.block = _LARGE

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """Derivatives along a new first axis."""
        flat = np.ascontiguousarray(z, dtype=float).reshape(-1)
        values = np.empty((self.highest + 1, flat.size))
        block = _SMALL if flat.size <= _FEW else _LARGE
        for start in range(0, flat.size, block):
            part = flat[start : start + block]
            for order, derivative in enumerate(self.on_block(part)):
                values[order, start : start + part.size] = derivative
        return values.reshape(self.highest + 1, *np.shape(z))

    def on_block(self, z: np.ndarray) -> list[np.ndarray]:
        """Derivatives at no more than `block` points, without a copy of the results."""
        if self.activation.exact is not None and self.activation.family in ON_ARRAYS:
            return list(self.activation.exact(z, self.highest))  # type: ignore[arg-type]
        few = z.size <= _SMALL
        size, highest = (_SMALL, max(self.highest, _SHARED)) if few else (_LARGE, self.highest)
        padded = z
        if z.size < size:
            padded = np.zeros(size)
            padded[: z.size] = z
        derivatives = _compiled(self.activation, highest)(padded)
        return [np.asarray(derivative)[: z.size] for derivative in derivatives[: self.highest + 1]]


@functools.lru_cache(maxsize=32)
def _compiled(activation: Activation, highest: int):
    return jax.jit(lambda z: activation.derivatives(z, highest))
