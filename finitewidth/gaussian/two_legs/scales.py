r"""The scale $\sqrt{\langle(\sigma^{(a)}_1)^2\rangle\langle(\sigma^{(b)}_2)^2\rangle}$ of a two-leg average.

Errors are stated in units of this scale.
"""

from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.division import divisor
from finitewidth.gaussian.two_legs import quadrature
from finitewidth.gaussian.two_legs.orders import Orders, leveled
from finitewidth.network.layers.activation import Activation


def scale(activation: Activation, first: np.ndarray, second: np.ndarray, pair: Orders) -> np.ndarray:
    """The scale for each pair of variances; for a delta function that of the integral by parts."""
    if pair[0] < pair[1]:
        return scale(activation, second, first, (pair[1], pair[0]))
    a, b = leveled(activation, pair)
    of_first, of_second = _mean_square(activation, first, a), _mean_square(activation, second, b)
    if pair == (a, b):
        return np.sqrt(of_first * of_second)
    undone = _mean_square(activation, second, pair[1]) / divisor(first)
    return np.sqrt(of_first * np.maximum(of_second, undone))


def largest_scale(activation: Activation, variances: np.ndarray, pair: Orders) -> float:
    """The largest scale over all pairs of legs."""
    smallest = variances[variances > 0].min(initial=np.inf)
    corners = np.asarray([variances.max(initial=0.0), smallest if np.isfinite(smallest) else 0.0])
    diagonal = scale(activation, variances, variances, pair).max(initial=0.0)
    mixed = scale(activation, corners, corners[::-1], pair).max(initial=0.0)
    return float(max(diagonal, mixed))


def _mean_square(activation: Activation, variances: np.ndarray, order: int) -> np.ndarray:
    return quadrature.one_sample(activation, variances, ((order, order),)).fine[0]


class PairAverages(NamedTuple):
    """Averages of listed pairs, one array for each pair of orders, and their largest relative error."""

    values: list[np.ndarray]
    error: float


def by_quadrature(
    activation: Activation,
    first: np.ndarray,
    second: np.ndarray,
    cross: np.ndarray,
    orders: tuple[Orders, ...],
    tolerance: float,
) -> PairAverages:
    """Averages of pairs with the given variances and covariances, by quadrature."""
    from finitewidth.gaussian.two_legs.pair_loops import determinants

    first, second, cross = (np.array(entry, dtype=float) for entry in (first, second, cross))
    pairs = quadrature.Pairs(first, second, cross, determinants(first, second, cross))
    scales = np.stack([scale(activation, first, second, pair) for pair in orders])
    values, errors = quadrature.two_samples(activation, pairs, orders, scale=scales, tolerance=tolerance)
    return PairAverages(list(values), float(errors.max(initial=0.0)))
