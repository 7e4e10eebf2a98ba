"""Closed forms on arrays: compiled loops for kernels and their slopes, XLA for other derivatives and sin."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from finitewidth.gaussian.two_legs.closed_forms import Covariance, other_form
from finitewidth.gaussian.two_legs.legs import Legs, Side
from finitewidth.gaussian.two_legs.orders import Orders
from finitewidth.network.layers.activation import Activation

ROUNDING = 1e-14  # relative rounding error of closed forms
_IN_LOOPS = ((0, 0), (1, 1))
_SMALL, _LARGE = 1 << 10, 1 << 14  # pairs in a block for XLA, which compiles for each size


@dataclass(frozen=True, eq=False)
class ClosedLegs(Legs):
    """Legs of an activation that has closed forms."""

    @functools.cached_property
    def family(self) -> "Family | None":
        """The compiled loop of the activation; None for sin."""
        return family(self.activation)


class Family(NamedTuple):
    """A compiled loop of `pair_loops` and its parameters."""

    form: int
    alpha: float = 0.0
    beta: float = 0.0


def has_closed_form(activation: Activation) -> bool:
    """Whether <sigma^(a)_1 sigma^(b)_2> is a formula, for all orders that exist."""
    return activation.slopes is not None or activation.family in ("perceptron", "sin", "erf", "gelu")


def family(activation: Activation) -> Family | None:
    """The compiled loop of an activation that has closed forms; None for sin."""
    from finitewidth.gaussian.two_legs import pair_loops

    if activation.slopes is not None:
        a_plus, a_minus = activation.slopes
        return Family(pair_loops.SCALE_INVARIANT, (a_plus + a_minus) / 2, (a_plus - a_minus) / 2)
    forms = {"perceptron": pair_loops.STEP, "erf": pair_loops.ERF, "gelu": pair_loops.GELU}
    return Family(forms[activation.family]) if activation.family in forms else None


def advance(
    rows: Side, columns: Side, K: np.ndarray, Theta: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """<sigma sigma>_K and Theta <sigma' sigma'>_K, in place where arrays are contiguous."""
    from finitewidth.gaussian.two_legs import pair_loops

    legs = rows.legs
    chosen = legs.family
    K = np.ascontiguousarray(K)
    slopes = np.ones(K.shape) if Theta is None else np.ascontiguousarray(Theta)
    if chosen.form == pair_loops.SCALE_INVARIANT and chosen.beta == 0:  # linear
        K *= chosen.alpha**2
        slopes *= chosen.alpha**2
    elif columns.along_columns:
        sides = legs.variances, columns.legs.variances, (rows.start, columns.start)
        places = columns.places_of(K.shape)
        pair_loops.block(chosen.form, *sides, places, K, slopes, chosen.alpha, chosen.beta, legs.rounding)
    else:
        first, second = (_spread(side.variances, K.shape) for side in (rows, columns))
        flat = K.reshape(-1), slopes.reshape(-1)
        pair_loops.aligned(chosen.form, first, second, *flat, chosen.alpha, chosen.beta, legs.rounding)
    return K, None if Theta is None else slopes


def averages(
    activation: Activation,
    orders: tuple[Orders, ...],
    first: np.ndarray,
    second: np.ndarray,
    cross: np.ndarray,
    rounding: float = 0.0,
) -> list[np.ndarray]:
    """Averages of pairs, one array for each pair of orders; variances broadcast against `cross`."""
    from finitewidth.gaussian.two_legs import pair_loops

    shape = cross.shape
    first, second, cross = (_spread(part, shape) for part in (first, second, cross))
    values: dict[Orders, np.ndarray] = {}
    chosen = family(activation)
    if chosen is not None and any(pair in _IN_LOOPS for pair in orders):
        K, slope = cross.copy(), np.ones(cross.size)
        pair_loops.aligned(chosen.form, first, second, K, slope, chosen.alpha, chosen.beta, rounding)
        values = dict(zip(_IN_LOOPS, (K, slope), strict=True))
    others = tuple(pair for pair in orders if pair not in values)
    if others:
        determinant = pair_loops.determinants(first, second, cross)
        determinant[determinant < rounding * first * second] = 0.0
        values |= dict(
            zip(others, _by_xla(activation, others, first, second, cross, determinant), strict=True)
        )
    return [values[pair].reshape(shape) for pair in orders]


def _spread(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A flat copy; a view could not be written to, for which loops would be compiled again."""
    return np.array(np.broadcast_to(values, shape), dtype=float, order="C").reshape(-1)


def _by_xla(activation: Activation, orders: tuple[Orders, ...], *entries: np.ndarray) -> np.ndarray:
    """(orders, M), in blocks of two sizes."""
    count = entries[0].size
    size = _SMALL if count <= _SMALL else _LARGE
    values = np.empty((len(orders), count))
    for start in range(0, count, size):
        part = slice(start, start + size)
        padded = [np.pad(entry[part], (0, max(0, start + size - count))) for entry in entries]
        values[:, part] = np.stack(_other_forms(activation, orders, *padded))[:, : count - start]
    return values


@functools.partial(jax.jit, static_argnames=("activation", "orders"))
def _other_forms(activation, orders, *entries):
    return [other_form(activation, pair)(Covariance(*entries)) for pair in orders]
