"""Where a function's derivatives jump, found by comparing them with automatic differentiation.

Automatic differentiation does not see a delta function. So on every small cell the increment of
sigma^(m) is compared with the integral of the sigma^(m+1) that automatic differentiation gives:
where they differ the cell is halved, and a mismatch that survives to width 1e-10 is a jump.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_REACH = 32.0
_CELLS = 512
_NARROWEST = 1e-10
_NOTICED = 1e-7  # jumps smaller than this fraction of the derivative's size go unnoticed


class Jump(NamedTuple):
    """A derivative of order `order` that jumps by `size` at z = `at`."""

    at: float
    order: int
    size: float


def find_jumps(derivatives: Callable, name: str, highest: int) -> list[Jump]:
    """The jumps of sigma, sigma', ..., sigma^(highest - 1) for |z| below 32, one for each place."""
    measure = _mismatch(derivatives, highest)
    offset = 0.0137  # keeps round numbers away from the ends of cells
    edges = np.linspace(-_REACH, _REACH, _CELLS + 1) + offset
    left, right = edges[:-1], edges[1:]
    floor = np.zeros((highest, 1))
    coarse = None
    while True:
        mismatch, size = measure(left, right)
        if not np.isfinite(size).all():
            cell = np.argmin(np.isfinite(size).all(axis=0))
            raise ValueError(
                f"activation {name!r} has a derivative that is not finite near z = {left[cell]:.3g}; "
                "write it so that automatic differentiation stays finite there."
            )
        # a sharp feature between the first nodes shows its size later, and its rounding error is no jump
        floor = np.maximum(floor, size[:, np.abs(left) < 3].max(axis=1, keepdims=True, initial=0.0))
        floor = np.maximum(floor, floor[0])
        coarse = floor if coarse is None else coarse
        excess = mismatch / (_NOTICED * (floor + size) + np.finfo(float).tiny)
        suspect = (excess > 1).any(axis=0)
        left, right, mismatch, excess = (
            left[suspect],
            right[suspect],
            mismatch[:, suspect],
            excess[:, suspect],
        )
        if left.size == 0:
            return []
        if left.size > _CELLS // 2:
            raise ValueError(
                f"activation {name!r} is not smooth on {left.size} places of |z| < {_REACH:g}; "
                "use a function with few kinks and derivatives that agree with it."
            )
        if right[0] - left[0] < _NARROWEST:
            _refuse_unbounded(left, size[:, suspect] / (coarse + 1), name)
            return _merge(left, mismatch, excess)
        middle = (left + right) / 2
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])


def _mismatch(derivatives: Callable, highest: int) -> Callable:
    """For cells [left, right]: |increment of sigma^(m) - integral of sigma^(m+1)|, and |sigma^(m)|."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    both_ends = np.concatenate([[-1.0], nodes, [1.0]])

    @jax.jit
    def evaluate(left, right):
        half = (right - left)[None, :] / 2
        z = (left + right)[None, :] / 2 + half * both_ends[:, None]
        values = jnp.stack(derivatives(z, highest))  # (order, node, cell)
        increment = values[:-1, -1] - values[:-1, 0]
        integral = half * jnp.tensordot(jnp.asarray(weights), values[1:, 1:-1], axes=(0, 1))
        return jnp.abs(increment - integral), jnp.abs(values[:-1]).max(axis=1)

    def padded(left, right):  # one compiled shape for every number of cells
        count = left.size
        pad = (0, 2 * _CELLS - count) if count > _CELLS else (0, _CELLS - count)
        results = evaluate(*(np.pad(end, pad, mode="edge") for end in (left, right)))
        return tuple(np.asarray(r)[:, :count] for r in results)

    return padded


def _refuse_unbounded(left: np.ndarray, relative_size: np.ndarray, name: str) -> None:
    unbounded = (relative_size > 1e6).any(axis=0)
    if unbounded.any():
        raise ValueError(
            f"activation {name!r} has a derivative without bound near z = {left[unbounded][0]:.3g}; "
            "use a function whose derivatives jump at most by finite steps."
        )


def _merge(left: np.ndarray, mismatch: np.ndarray, excess: np.ndarray) -> list[Jump]:
    jumps: list[Jump] = []
    for cell in np.argsort(left):
        at = float(np.round(left[cell], 9)) + 0.0  # + 0.0 turns -0.0 into 0.0
        if jumps and abs(jumps[-1].at - at) < 1e-8:
            continue
        order = int(np.argmax(excess[:, cell] > 1))
        jumps.append(Jump(at, order, float(mismatch[order, cell])))
    return jumps
