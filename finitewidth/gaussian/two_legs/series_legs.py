"""The Hermite series for blocks of pairs, with quadrature for the pairs whose series is too long."""

import functools
import math
import threading
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from finitewidth.gaussian.two_legs import hermite_tables, quadrature, series
from finitewidth.gaussian.two_legs.hermite_tables import Tables
from finitewidth.gaussian.two_legs.legs import Legs, Side
from finitewidth.gaussian.two_legs.orders import as_functions, has_delta, leveled, of_legs
from finitewidth.gaussian.two_legs.scales import by_quadrature
from finitewidth.network.layers.activation import Activation

_LENGTHS = (hermite_tables.SHORTEST, 64, 128, 256, hermite_tables.LONGEST)
_UNEVEN = 1e4  # ratio of variances above which a delta function makes the series lose digits


@dataclass(frozen=True, eq=False)
class SeriesLegs(Legs):
    """Legs with tables of Hermite coefficients, made at their first use for each length of the series."""

    numbers_each: ClassVar[int] = 128

    widest: float  # at least the largest variance of the legs on both sides of a pair
    tolerance: float
    made: dict[int, Tables] = field(default_factory=dict, repr=False)
    bounds: dict[int, np.ndarray] = field(default_factory=dict, repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @functools.cached_property
    def inverse_deviations(self) -> np.ndarray:
        """One over the standard deviation of each leg; zero if that is zero."""
        sigma = np.sqrt(self.variances)
        return np.where(sigma > 0, 1 / np.where(sigma > 0, sigma, 1.0), 0.0)

    def tables(self, length: int) -> Tables:
        """Coefficients (length, *legs), tails and averages of single legs."""
        with self.lock:
            if length not in self.made:
                self.made[length] = self._tables(length)
            return self.made[length]

    def _tables(self, length: int) -> Tables:
        shape = self.variances.shape
        made = hermite_tables.tables(
            self.activation,
            self.variances.ravel(),
            pairs=self.orders,
            length=length,
            widest=self.widest,
            count=self.precision.count,
            tolerance=self.tolerance / 16,
        )
        coefficients = {a: table.reshape(-1, *shape) for a, table in made.coefficients.items()}
        alone = {pair: values.reshape(shape) for pair, values in made.alone.items()}
        return made._replace(coefficients=coefficients, alone=alone)

    @functools.cached_property
    def precision(self) -> quadrature.Precision:
        """The quadrature behind the tables."""
        squares = tuple((a, a) for a in as_functions(self.activation, of_legs(self.orders)))
        return quadrature.precision(self.activation, self.widest, squares, self.tolerance / 4)

    def length_for(self, correlation: float) -> int:
        """The number of terms that reach the tolerance at this correlation."""
        return hermite_tables.length_for(
            self.activation,
            self.widest,
            of_legs(self.orders),
            correlation=correlation,
            tolerance=self.tolerance / 4,
            count=self.precision.count,
        )


def average(
    rows: Side, columns: Side, cross: np.ndarray, same: np.ndarray | None
) -> tuple[list[np.ndarray], float]:
    """Averages of a block of pairs, one for each pair of orders, and their largest relative error.

    `same` marks pairs of a leg with itself, whose averages the tables hold.
    """
    legs: SeriesLegs = rows.legs
    sums = _sums(rows, columns, cross, same)
    values = [np.empty(cross.shape) for _ in legs.orders]
    error = sums.into(legs.orders, values, (False,) * len(values))
    if same is not None:
        for value, pair in zip(values, legs.orders, strict=True):
            np.copyto(value, rows.select(sums.tables[0].alone[pair]), where=same)
    if _may_be_slow(sums):
        slow = _slow_pairs(sums)
        slow &= True if same is None else ~same
        if slow.any():
            error = _replace(values, slow, rows, columns, cross)
    return values, error + legs.precision.error


def advance(
    rows: Side, columns: Side, K: np.ndarray, Theta: np.ndarray | None, same: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, float]:
    """<sigma sigma>_K and Theta <sigma' sigma'>_K in place, and the largest relative error."""
    legs: SeriesLegs = rows.legs
    sums = _sums(rows, columns, K, same)
    if _may_be_slow(sums) or not (K.flags.c_contiguous and (Theta is None or Theta.flags.c_contiguous)):
        values, error = average(rows, columns, K, same)
        return values[0], None if Theta is None else Theta * values[1], error
    results = [K] if Theta is None else [K, Theta]
    orders = legs.orders[: len(results)]
    marked = None if same is None else _marked(same, K.shape)
    kept = [] if marked is None else _alone(sums, orders, results, marked)
    error = sums.into(orders, results, (False, True)[: len(results)])
    for result, values in zip(results, kept, strict=False):
        result[marked] = values
    return K, Theta, error + legs.precision.error


def _marked(same: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """The places that are marked."""
    if same.shape == shape:  # as most blocks are; flat places are found faster
        return np.unravel_index(np.flatnonzero(same), shape)
    return np.nonzero(np.broadcast_to(same, shape))


def _alone(sums: series.Sums, orders, results: list[np.ndarray], marked) -> list[np.ndarray]:
    """What K and Theta become where a leg meets itself."""
    alone = [sums.rows.select(sums.tables[0].alone[pair]) for pair in orders]
    K, *slope = (np.broadcast_to(values, results[0].shape)[marked] for values in alone)
    return [K, *(values * results[1][marked] for values in slope)]


def _sums(rows: Side, columns: Side, cross: np.ndarray, same: np.ndarray | None) -> series.Sums:
    legs: SeriesLegs = rows.legs
    correlations = series.correlations(rows, columns, cross, same)
    length = legs.length_for(correlations.largest)
    tables = _first(length, rows.legs), _first(length, columns.legs)
    bound = legs.bounds.get(length) if columns.legs is legs else None
    if bound is None:
        bound = _remainder(legs, tables)
        if columns.legs is legs:
            legs.bounds[length] = bound
    return series.Sums(rows, columns, correlations, tables, bound, legs.tolerance / 2)


def _may_be_slow(sums: series.Sums) -> bool:
    """Whether some pairs may need quadrature."""
    legs: SeriesLegs = sums.rows.legs
    uneven = has_delta(legs.activation, legs.orders)
    return uneven or bool(_is_slow(sums.bound, sums.correlations.largest, legs.tolerance))


def _first(length: int, legs: SeriesLegs) -> Tables:
    """The first terms of tables, which are made in few lengths only."""
    tables = legs.tables(next(long for long in _LENGTHS if long >= length))
    coefficients = {a: table[:length] for a, table in tables.coefficients.items()}
    tails = {a: tail[: length + 1] for a, tail in tables.tails.items()}
    return tables._replace(coefficients=coefficients, tails=tails)


def _is_slow(bound: np.ndarray, correlation, tolerance: float):
    """Whether the series at this correlation needs more terms than the tables have."""
    return bound[-1] * np.abs(correlation) ** (bound.size - 1) > tolerance / 2


def _slow_pairs(sums: series.Sums) -> np.ndarray:
    legs: SeriesLegs = sums.rows.legs
    slow = _is_slow(sums.bound, sums.correlations.c, legs.tolerance)
    if has_delta(legs.activation, legs.orders):
        ratio = np.maximum(sums.rows.variances, 1e-300) / (sums.columns.variances + 1e-300)
        slow |= (ratio > _UNEVEN) | (ratio < 1 / _UNEVEN)
    return slow


def _replace(values: list[np.ndarray], slow: np.ndarray, rows: Side, columns: Side, cross) -> float:
    """Overwrite the averages of the pairs marked `slow` by quadrature; the largest error."""
    legs: SeriesLegs = rows.legs
    first, second = (np.broadcast_to(side.variances, cross.shape)[slow] for side in (rows, columns))
    replaced = by_quadrature(legs.activation, first, second, cross[slow], legs.orders, legs.tolerance)
    for value, new in zip(values, replaced.values, strict=True):
        value[slow] = new
    return max(replaced.error, legs.tolerance / 2)


def widest_variance(activation: Activation, *variances: np.ndarray) -> float:
    """The largest variance, rounded up to half a power of two where the average still exists there.

    Work prepared for the rounded variance serves many layers and inputs.
    """
    exact = max(float(part.max(initial=0.0)) for part in variances)
    rounded = 2.0 ** (math.ceil(2 * math.log2(exact)) / 2) if exact > 0 else 0.0
    try:
        quadrature.reach(activation, rounded)
    except ValueError:  # the function grows too fast there, perhaps not at the variance itself
        quadrature.reach(activation, exact)
        return exact
    return rounded


def _remainder(legs: SeriesLegs, tables: tuple[Tables, Tables]) -> np.ndarray:
    """Relative remainder of the series after k terms at correlation one, for the worst order."""
    levels = [leveled(legs.activation, pair) for pair in legs.orders]
    factor = math.sqrt(2) if has_delta(legs.activation, legs.orders) else 1.0
    first, second = (table.tails for table in tables)
    return factor * np.max([np.sqrt(first[a] * second[b]) for a, b in levels], axis=0)
