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

_LENGTHS = (64, 128, 256, hermite_tables.LONGEST)  # shorter tables would not take less time
_UNEVEN = 1e4  # ratio of variances above which a delta function makes the series lose digits


@dataclass(frozen=True, eq=False)
class SeriesLegs(Legs):
    """Legs with tables of Hermite coefficients, made at their first use for each length of the series."""

    numbers_each: ClassVar[int] = 128

    widest: float  # at least the largest variance of the legs on both sides of a pair
    tolerance: float
    made: dict[int, Tables] = field(default_factory=dict, repr=False)
    cache: dict[int, tuple["SeriesLegs", series.Series]] = field(
        default_factory=dict, repr=False
    )  # by length
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
        roots = {a: values.reshape(-1, *shape) for a, values in made.roots.items()}
        diagonal = {pair: values.reshape(shape) for pair, values in made.diagonal.items()}
        return made._replace(coefficients=coefficients, roots=roots, diagonal=diagonal)

    def diagonal(self) -> list[np.ndarray]:
        """Averages of single legs, one array for each pair of orders, without tables."""
        made = hermite_tables.diagonal_averages(
            self.activation,
            self.variances.ravel(),
            self.orders,
            widest=self.widest,
            count=self.precision.count,
            tolerance=self.tolerance / 16,
        )
        return [made[pair].reshape(self.variances.shape) for pair in self.orders]

    @functools.cached_property
    def precision(self) -> quadrature.Precision:
        """The quadrature behind the tables."""
        squares = tuple((a, a) for a in as_functions(self.activation, of_legs(self.orders)))
        return quadrature.precision(self.activation, self.widest, squares, self.tolerance / 4)

    @functools.cached_property
    def has_delta(self) -> bool:
        """Whether a leg of some pair is a delta function."""
        return has_delta(self.activation, self.orders)

    @functools.cached_property
    def _tails(self) -> np.ndarray:
        orders = of_legs(self.orders)
        return hermite_tables.widest_tails(self.activation, self.widest, orders, self.precision.count)

    def length_for(self, correlation: float) -> int:
        """The number of terms that reach the tolerance at this correlation."""
        return hermite_tables.length_for(self._tails, correlation, self.tolerance / 4)

    def with_columns(self, columns: "SeriesLegs", length: int) -> series.Series:
        """The series of pairs with other legs, kept for the next block of such pairs."""
        last, made = self.cache.get(length, (None, None))
        if made is None or last is not columns:
            made = _series(self, columns, length)
            self.cache[length] = columns, made
        return made


def average(
    rows: Side, columns: Side, cross: np.ndarray, same: np.ndarray | None
) -> tuple[list[np.ndarray], float]:
    """Averages of a block of pairs, one for each pair of orders, and their largest relative error.

    `same` marks pairs of a leg with itself, whose averages the tables hold.
    """
    legs: SeriesLegs = rows.legs
    if same is not None and same.all():
        values = [np.broadcast_to(rows.select(own), cross.shape).copy() for own in legs.diagonal()]
        return values, legs.precision.error
    sums = _sums(rows, columns, cross, same)
    values = [np.empty(cross.shape) for _ in legs.orders]
    error = sums.into(legs.orders, values)
    if same is not None:
        for value, pair in zip(values, legs.orders, strict=True):
            np.copyto(value, rows.select(sums.series.tables[0].diagonal[pair]), where=same)
    if _may_be_slow(legs, sums.series, sums.correlations.largest):
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
    in_rows = K.flags.c_contiguous and (Theta is None or Theta.flags.c_contiguous)
    if not (in_rows and columns.along_columns) or (same is not None and same.all()):
        return _multiplied(*average(rows, columns, K, same), Theta)
    marked = None if same is None else _marked(same, K.shape)
    if marked is not None:
        K[marked] = 0.0  # what the series gives there is not used
    largest, most = series.largest_correlations(rows, columns, K)
    made = legs.with_columns(columns.legs, legs.length_for(most))
    if _may_be_slow(legs, made, most):
        return _multiplied(*average(rows, columns, K, same), Theta)
    results = [K] if Theta is None else [K, Theta]
    kept = [] if marked is None else _alone(rows, made, results, marked)
    error = made.advance(rows, columns, K, Theta, largest)
    for result, values in zip(results, kept, strict=False):
        result[marked] = values
    return K, Theta, error + legs.precision.error


def _multiplied(values: list[np.ndarray], error: float, Theta: np.ndarray | None):
    return values[0], None if Theta is None else Theta * values[1], error


def _marked(same: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """The places that are marked."""
    if same.shape == shape:  # as most blocks are; flat places are faster
        return np.unravel_index(np.flatnonzero(same), shape)
    return np.nonzero(np.broadcast_to(same, shape))


def _alone(rows: Side, made: series.Series, results: list[np.ndarray], marked) -> list[np.ndarray]:
    """What K and Theta become where a leg meets itself."""
    diagonal = [rows.select(made.tables[0].diagonal[pair]) for pair in rows.legs.orders[: len(results)]]
    K, *slope = (np.broadcast_to(values, results[0].shape)[marked] for values in diagonal)
    return [K, *(values * results[1][marked] for values in slope)]


def _sums(rows: Side, columns: Side, cross: np.ndarray, same: np.ndarray | None) -> series.Sums:
    legs: SeriesLegs = rows.legs
    correlations = series.correlations(rows, columns, cross, same)
    made = legs.with_columns(columns.legs, legs.length_for(correlations.largest))
    return series.Sums(rows, columns, correlations, made)


def _series(legs: SeriesLegs, columns: SeriesLegs, length: int) -> series.Series:
    """The tables of both sides, and what `series_loops.lengths` needs to know of remainders."""
    tables = _first(length, legs), _first(length, columns)
    levels = [leveled(legs.activation, pair) for pair in legs.orders]
    factor = math.sqrt(2) if legs.has_delta else 1.0
    of_rows = factor * np.stack([tables[0].roots[a] for a, _ in levels])
    of_columns = np.stack([tables[1].tails[b] for _, b in levels])
    last = factor * max(tables[0].tails[a][-1] * tables[1].tails[b][-1] for a, b in levels)
    return series.Series(tables, (of_rows, of_columns), float(last), legs.tolerance / 2)


def _may_be_slow(legs: SeriesLegs, made: series.Series, correlation: float) -> bool:
    """Whether some pairs may need quadrature."""
    return legs.has_delta or bool(_is_slow(made, correlation))


def _first(length: int, legs: SeriesLegs) -> Tables:
    """The first terms of tables, which are made in few lengths only."""
    from finitewidth.gaussian.two_legs.series_loops import GROUP

    tables = legs.tables(next(long for long in _LENGTHS if long >= length))
    coefficients = {a: table[:length] for a, table in tables.coefficients.items()}
    groups = length // GROUP + 1
    roots = {a: values[:groups] for a, values in tables.roots.items()}
    tails = {a: values[:groups] for a, values in tables.tails.items()}
    return tables._replace(coefficients=coefficients, roots=roots, tails=tails)


def _is_slow(made: series.Series, correlation):
    """Whether the series at this correlation needs more terms than the tables have."""
    return made.last * np.abs(correlation) ** made.length > made.tolerance


def _slow_pairs(sums: series.Sums) -> np.ndarray:
    legs: SeriesLegs = sums.rows.legs
    slow = _is_slow(sums.series, sums.correlations.c)
    if legs.has_delta:
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
