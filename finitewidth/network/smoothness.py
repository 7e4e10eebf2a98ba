"""Where a function's derivatives jump, found by comparing them with automatic differentiation.

Automatic differentiation does not see a delta function. So on every small cell the increment of
sigma^(m) is compared with the integral of the sigma^(m+1) that automatic differentiation gives:
where they differ the cell is halved, and a mismatch that survives to width 1e-10 is a jump.
Preactivations beyond what was searched when an activation was made are searched when they are met.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SEARCHED = 128.0  # |z| up to which a function is searched when it is made an activation
_REFUSED = 40.0  # |z| up to which all derivatives must be finite
_CENTRE = 3.0  # |z| up to which derivatives say what size is usual
_CELL = 0.125
_CELLS = 512  # at a time
_PER_E_FOLD = 1024  # far out
_MOST = 1 << 18  # far out, where a function that oscillates needs them
_NARROWEST = 1e-10
_NOTICED = 1e-7  # jumps smaller than this fraction of the derivative's size go unnoticed


class Jump(NamedTuple):
    """A derivative of order `order` that jumps by `size` at z = `at`."""

    at: float
    order: int
    size: float


def find_jumps(
    derivatives: Callable,
    name: str,
    highest: int,
    *,
    beyond: float = 0.0,
    reach: float = SEARCHED,
    places: Sequence[float] = (),
) -> list[Jump]:
    """The jumps of sigma, ..., sigma^(highest - 1) for `beyond` < |z| < `reach`, and around `places`."""
    measure = _mismatch(derivatives, highest)
    left, right = _cells(beyond, reach, places)
    most = _MOST if beyond else left.size // 2
    floor = np.zeros((highest, 1))
    coarse = None
    while True:
        mismatch, size = measure(left, right)
        finite, far = np.isfinite(size).all(axis=0), np.abs(left) > max(_REFUSED, beyond)
        if not (finite | far).all():
            raise ValueError(
                f"activation {name!r} has a derivative that is not finite near z = {left[~finite][0]:.3g}; "
                "write it so that automatic differentiation stays finite there."
            )
        known = finite & (np.isfinite(mismatch).all(axis=0) | ~far)
        left, right, mismatch, size = left[known], right[known], mismatch[:, known], size[:, known]
        # a sharp feature between the first nodes shows its size later, and its rounding error is no jump
        floor = np.maximum(floor, size[:, np.abs(left) < _CENTRE].max(axis=1, keepdims=True, initial=0.0))
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
        if left.size > most:
            raise ValueError(
                f"activation {name!r} is not smooth on {left.size} places of |z| < {reach:g}; "
                "use a function with few kinks and derivatives that agree with it."
            )
        if (right - left).max() < _NARROWEST:
            _refuse_unbounded(left, size[:, suspect] / (coarse + 1), name)
            return _merge(left, mismatch, excess)
        middle = (left + right) / 2
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])


def _cells(beyond: float, reach: float, places: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Cells of the range with those of the centre, and one around each of the places outside of it."""
    offset = 0.0137  # keeps round numbers away from the ends of cells
    near = min(reach, SEARCHED if beyond == 0 else _CENTRE)
    left = np.arange(-near, near, _CELL) + offset
    left = np.concatenate([left, [at - _CELL / 3 for at in places if abs(at) >= near]])
    right = left + _CELL
    if beyond:  # wider and wider: what needs narrow cells there is halved until it has them
        edges = np.geomspace(beyond, reach, math.ceil(_PER_E_FOLD * math.log(reach / beyond)) + 1) + offset
        left = np.concatenate([left, edges[:-1], -edges[1:]])
        right = np.concatenate([right, edges[1:], -edges[:-1]])
    return left, right


@functools.lru_cache(maxsize=8)  # what is searched when it is made may be searched farther out soon after
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

    def in_blocks(left, right):  # of one compiled shape, whatever the number of cells
        count = left.size
        ends = [np.pad(end, (0, -count % _CELLS), mode="edge").reshape(-1, _CELLS) for end in (left, right)]
        blocks = [evaluate(*block) for block in zip(*ends, strict=True)]
        return tuple(np.concatenate(part, axis=1)[:, :count] for part in zip(*blocks, strict=True))

    return in_blocks


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
