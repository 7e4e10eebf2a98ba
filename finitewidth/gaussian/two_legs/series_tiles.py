"""The Hermite series on the tiles of a layer, with quadrature for the pairs whose series is too long."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from finitewidth.gaussian.tiles import Tile
from finitewidth.gaussian.two_legs import hermite_tables, quadrature, series
from finitewidth.gaussian.two_legs.hermite_tables import Tables
from finitewidth.gaussian.two_legs.orders import Orders, as_functions, has_delta, leveled, of_legs
from finitewidth.gaussian.two_legs.scales import by_quadrature
from finitewidth.network.layers.activation import Activation

_UNEVEN = 1e4  # ratio of variances above which a delta function makes the series lose digits


@dataclass(frozen=True)
class SeriesTiles:
    """Averages of any tile, from tables of coefficients that were prepared for all legs."""

    activation: Activation
    variances: tuple[np.ndarray, np.ndarray]  # of the legs of rows and columns
    orders: tuple[Orders, ...]
    tolerance: float
    tables: tuple[Tables, Tables]  # one object twice if rows and columns are the same legs
    bound: np.ndarray  # relative remainder after k terms at correlation one, (P + 1,)
    precision: quadrature.Precision

    def __call__(self, cross: np.ndarray, tile: Tile) -> tuple[list[np.ndarray], float]:
        """Averages, one for each pair of orders, and their largest error in units of their scale."""
        diagonal = self.tables[0] is self.tables[1] and tile.on_diagonal
        sums = self._sums(cross, tile, diagonal)
        values, error = [tile.unpadded(value) for value in sums.values], sums.remainder
        if self._has_delta or self._is_slow(sums.largest):
            slow = self._slow_pairs(cross, tile)
            if diagonal:  # single legs, whose averages the tables hold
                np.fill_diagonal(slow, False)
            if slow.any():
                values = [np.array(value) for value in values]  # compiled results are read-only
                error = self._replace(values, slow, cross, tile)
        return values, error + self.precision.error

    def _sums(self, cross: np.ndarray, tile: Tile, diagonal: bool) -> series.Sums:
        alone = tuple(tile.padded_rows(self.tables[0].alone[pair]) for pair in self.orders)
        return series.evaluate(
            self._side(0, tile.padded_rows),
            self._side(1, tile.padded_columns),
            series.Diagonal(diagonal, alone),
            tile.padded(cross),
            self.bound,
            self.tolerance / 2,
            self.orders,
            self._parities,
        )

    def _side(self, side: int, padded: Callable) -> series.Side:
        coefficients = {order: padded(table) for order, table in self.tables[side].coefficients.items()}
        return series.Side(padded(self._sigma[side]), coefficients)

    @functools.cached_property
    def _sigma(self) -> tuple[np.ndarray, np.ndarray]:
        return np.sqrt(self.variances[0]), np.sqrt(self.variances[1])

    @functools.cached_property
    def _parities(self) -> tuple[series.Parity, ...]:
        return series.parities(*self.tables, self.orders)

    @functools.cached_property
    def _has_delta(self) -> bool:
        return has_delta(self.activation, self.orders)

    def _is_slow(self, correlation):
        """Whether the series at this correlation needs more terms than the tables have."""
        return self.bound[-1] * np.abs(correlation) ** (self.bound.size - 1) > self.tolerance / 2

    def _slow_pairs(self, cross: np.ndarray, tile: Tile) -> np.ndarray:
        rows, columns = (sigma[part] for sigma, part in zip(self._sigma, tile.parts, strict=True))
        slow = self._is_slow(series.correlations(cross, rows, columns))
        if self._has_delta:
            first, second = (k[part] for k, part in zip(self.variances, tile.parts, strict=True))
            ratio = np.divide.outer(np.maximum(first, 1e-300), second + 1e-300)
            slow |= (ratio > _UNEVEN) | (ratio < 1 / _UNEVEN)
        return slow

    def _replace(self, values: list[np.ndarray], slow: np.ndarray, cross: np.ndarray, tile: Tile) -> float:
        """Overwrite the averages of the pairs marked `slow` by quadrature; the largest error."""
        i, j = np.nonzero(slow)
        first, second = self.variances[0][tile.rows][i], self.variances[1][tile.columns][j]
        replaced = by_quadrature(self.activation, first, second, cross[i, j], self.orders, self.tolerance)
        for value, new in zip(values, replaced.values, strict=True):
            value[i, j] = new
        return max(replaced.error, self.tolerance / 2)


def prepare(
    activation: Activation,
    first: np.ndarray,
    second: np.ndarray,
    orders: tuple[Orders, ...],
    *,
    largest_correlation: Callable[[], float],
    tolerance: float,
) -> SeriesTiles:
    """Tables for legs with variances `first` (rows) and `second` (columns)."""
    widest = widest_variance(activation, first, second)
    legs = of_legs(orders)
    squares = tuple((a, a) for a in as_functions(activation, legs))
    precision = quadrature.precision(activation, widest, squares, tolerance / 4)
    length = hermite_tables.length_for(
        activation,
        widest,
        legs,
        correlation=largest_correlation(),
        tolerance=tolerance / 4,
        count=precision.count,
    )
    tables = functools.partial(
        hermite_tables.tables,
        activation,
        pairs=orders,
        length=length,
        widest=widest,
        count=precision.count,
        tolerance=tolerance / 16,
    )
    rows = tables(first)
    columns = rows if second is first else tables(second)
    bound = _remainder(activation, rows, columns, orders)
    return SeriesTiles(activation, (first, second), orders, tolerance, (rows, columns), bound, precision)


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


def _remainder(activation: Activation, rows: Tables, columns: Tables, orders) -> np.ndarray:
    """Relative remainder of the series after k terms at correlation one, for the worst order."""
    levels = [leveled(activation, pair) for pair in orders]
    factor = math.sqrt(2) if has_delta(activation, orders) else 1.0
    return factor * np.max([np.sqrt(rows.tails[a] * columns.tails[b]) for a, b in levels], axis=0)
