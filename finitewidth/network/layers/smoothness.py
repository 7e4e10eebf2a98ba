"""The search for points where a derivative of a function jumps.

Automatic differentiation does not see a delta function. On every small cell the increment of
sigma^(m) is therefore compared with the integral of the sigma^(m+1) that automatic differentiation
gives. Where they differ the cell is halved, and a mismatch that survives to width 1e-10 is a jump.
A new activation is searched up to |z| = 128; larger |z| are searched when preactivations reach them.
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
_CENTRE = 3.0  # |z| up to which the usual size of a derivative is measured
_CELL = 0.125
_CELLS = 512  # at a time
_PER_E_FOLD = 1024  # cells beyond `SEARCHED`
_MOST = 1 << 18  # suspect cells beyond `SEARCHED`, where a function that oscillates needs many
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
    usual = np.zeros((highest, 1))
    first_usual = None
    while True:
        cells = _with_finite_derivatives(_Cells(left, right, *measure(left, right)), beyond, name)
        usual = _usual_size(cells, usual)
        first_usual = usual if first_usual is None else first_usual
        excess = cells.mismatch / (_NOTICED * (usual + cells.size) + np.finfo(float).tiny)
        suspect = np.any(excess > 1, axis=0)
        cells, excess = cells.where(suspect), excess[:, suspect]
        if cells.left.size == 0:
            return []
        if cells.left.size > most:
            raise ValueError(
                f"activation {name!r} is not smooth on {cells.left.size} places of |z| < {reach:g}; "
                "use a function with few kinks and derivatives that agree with it."
            )
        if (cells.right - cells.left).max() < _NARROWEST:
            _refuse_unbounded(cells.left, cells.size / (first_usual + 1), name)
            return _merge(cells.left, cells.mismatch, excess)
        middle = (cells.left + cells.right) / 2
        left, right = np.concatenate([cells.left, middle]), np.concatenate([middle, cells.right])


class _Cells(NamedTuple):
    """Cells [left, right] with the mismatch and the size of each derivative on them, (order, cell)."""

    left: np.ndarray
    right: np.ndarray
    mismatch: np.ndarray
    size: np.ndarray

    def where(self, chosen: np.ndarray | np.bool) -> "_Cells":
        return _Cells(*(part[..., chosen] for part in self))


def _with_finite_derivatives(cells: _Cells, beyond: float, name: str) -> _Cells:
    """The cells on which all derivatives are finite; only far out may some be missing."""
    finite, far = np.isfinite(cells.size).all(axis=0), np.abs(cells.left) > max(_REFUSED, beyond)
    if not (finite | far).all():
        raise ValueError(
            f"activation {name!r} has a derivative that is not finite near z = {cells.left[~finite][0]:.3g}; "
            "write it so that automatic differentiation stays finite there."
        )
    return cells.where(finite & (np.isfinite(cells.mismatch).all(axis=0) | ~far))


def _usual_size(cells: _Cells, before: np.ndarray) -> np.ndarray:
    """The size of each derivative near zero, (order, 1), at least `before` and that of sigma itself.

    A sharp feature between the first nodes shows its size later, and its rounding error is no jump.
    """
    near = np.abs(cells.left) < _CENTRE
    size = np.maximum(before, cells.size[:, near].max(axis=1, keepdims=True, initial=0.0))
    return np.maximum(size, size[0])


def _cells(beyond: float, reach: float, places: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Cells of the range and of the centre, and one around each place that lies outside of them."""
    offset = 0.0137  # keeps round numbers away from the ends of cells
    near = min(reach, SEARCHED if beyond == 0 else _CENTRE)
    left = np.arange(-near, near, _CELL) + offset
    left = np.concatenate([left, [at - _CELL / 3 for at in places if abs(at) >= near]])
    right = left + _CELL
    if beyond:  # wider and wider cells: where the function needs narrow ones, they are halved
        edges = np.geomspace(beyond, reach, math.ceil(_PER_E_FOLD * math.log(reach / beyond)) + 1) + offset
        left = np.concatenate([left, edges[:-1], -edges[1:]])
        right = np.concatenate([right, edges[1:], -edges[:-1]])
    return left, right


@functools.lru_cache(maxsize=8)  # a new activation may soon be searched farther out
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
