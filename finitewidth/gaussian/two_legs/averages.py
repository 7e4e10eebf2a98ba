r"""Gaussian averages of two legs: derivatives $\sigma^{(a)}(z_1)$ and $\sigma^{(b)}(z_2)$ under a kernel K.

A closed form answers where there is one; else the Hermite series, and quadrature for pairs whose series is
too long. Averages are asked for in blocks of pairs: work that depends on one leg only is done once for all.
"""

import functools
import itertools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.average import Average
from finitewidth.gaussian.kernel_matrix import as_kernel
from finitewidth.gaussian.tiles import tile_side
from finitewidth.gaussian.two_legs import closed_averages, series_legs
from finitewidth.gaussian.two_legs.closed_averages import ClosedLegs
from finitewidth.gaussian.two_legs.legs import Legs, Side
from finitewidth.gaussian.two_legs.orders import Orders, existing
from finitewidth.gaussian.two_legs.scales import largest_scale
from finitewidth.gaussian.two_legs.series_legs import SeriesLegs, widest_variance
from finitewidth.network.layers.activation import Activation, as_activation

ACCURACY = 1e-12  # in units of the scale that each average lives on


def two_legs(
    activation: str | Activation | Callable,
    K: Float[np.ndarray, "N N"],
    orders: tuple[Orders, ...] = ((0, 0), (1, 1)),
    accuracy: float = ACCURACY,
) -> dict[Orders, Average]:
    """Averages over all pairs of samples, by pair of derivative orders."""
    activation = as_activation(activation)
    values, relative = relative_two_legs(activation, K, orders, accuracy)
    variances = np.ascontiguousarray(np.diag(K))
    scales = {pair: largest_scale(activation, variances, pair) for pair in values}
    return {pair: Average(value, relative * scales[pair]) for pair, value in values.items()}


def relative_two_legs(
    activation: Activation, K: np.ndarray, orders: tuple[Orders, ...], accuracy: float = ACCURACY
) -> tuple[dict[Orders, np.ndarray], float]:
    """The same with one error for all, in units of the scale that each average lives on."""
    require_double_precision()
    K = as_kernel(K)
    orders = existing(activation, orders)
    count, side = K.shape[0], tile_side(K.shape[0])
    values = np.empty((len(orders), *K.shape))
    if not count:
        return {pair: values[index] for index, pair in enumerate(orders)}, 0.0
    variances = np.diag(K)[None].copy()
    widest = functools.partial(widest_variance, activation, variances)
    legs = prepared_legs(activation, variances, orders, accuracy, widest=widest)
    worst = 0.0
    for top, left in itertools.product(range(0, count, side), repeat=2):
        part = slice(top, min(top + side, count)), slice(left, min(left + side, count))
        cross = K[part][None, None]
        same = np.eye(cross.shape[2], dtype=bool)[None, None] if top == left else None
        sides = Side(legs, part[0]), Side(legs, part[1], along_columns=True)
        averages, error = average(*sides, cross, same)
        worst = max(worst, error)
        values[:, *part] = np.stack(averages)[:, 0, 0]
    return {pair: values[index] for index, pair in enumerate(orders)}, worst


def prepared_legs(
    activation: Activation,
    variances: np.ndarray,
    orders: tuple[Orders, ...],
    accuracy: float,
    *,
    widest: Callable[[], float],
) -> Legs:
    """Legs with these variances; `widest()` is at least the largest on both sides of a pair."""
    if closed_averages.has_closed_form(activation):
        return ClosedLegs(activation, orders, variances)
    return SeriesLegs(activation, orders, variances, widest(), accuracy)


def average(
    rows: Side, columns: Side, cross: np.ndarray, same: np.ndarray | None = None
) -> tuple[list[np.ndarray], float]:
    """Averages of pairs of legs with covariances `cross`, one array for each pair of orders.

    Also their largest error, in units of the scale that each lives on. `same` marks pairs of a leg with
    itself, whose averages need no series.
    """
    legs = rows.legs
    if isinstance(legs, SeriesLegs):
        return series_legs.average(rows, columns, cross, same)
    sides = rows.variances, columns.variances
    values = closed_averages.averages(legs.activation, legs.orders, *sides, cross, legs.rounding)
    return values, closed_averages.ROUNDING


def advance(
    rows: Side, columns: Side, K: np.ndarray, Theta: np.ndarray | None, same: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None, float]:
    """<sigma sigma>_K, Theta <sigma' sigma'>_K and the error; K and Theta may be overwritten."""
    legs = rows.legs
    if isinstance(legs, SeriesLegs):
        return series_legs.advance(rows, columns, K, Theta, same)
    if legs.family is not None:
        return *closed_averages.advance(rows, columns, K, Theta), closed_averages.ROUNDING
    averages, error = average(rows, columns, K)
    if Theta is not None:
        Theta *= averages[1]
    return averages[0], Theta, error
