r"""Two-leg averages by the Hermite (Mehler) series in the correlation.

$$\langle \sigma^{(a)}_1 \sigma^{(b)}_2 \rangle = \sum_k \alpha^{(a)}_{1k} \alpha^{(b)}_{2k} c^k, \qquad
  \alpha^{(a)}_{ik} = \langle \sigma^{(a)}(\sqrt{K_{ii}} x)\, he_k(x) \rangle$$

with normalized Hermite polynomials $he_k$ and $c$ the correlation. This file sums the series for a block
of pairs; the coefficients of its legs come from `hermite_tables`, the loops are those of `series_loops`.
"""

from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.two_legs.hermite_tables import Parity, Tables
from finitewidth.gaussian.two_legs.legs import Side
from finitewidth.gaussian.two_legs.orders import Orders

_SPARE = 1024  # series are summed to this fraction of their tolerance, which takes few terms more
_ROUNDING = 2e-14  # what rounding leaves of a Parseval remainder: a smaller one cannot be told from it


def parities(rows: Tables, columns: Tables, orders: tuple[Orders, ...]) -> tuple[Parity, ...]:
    """Whether there are even and odd terms beyond the first two: often one of them is absent."""
    first, second = rows.present, columns.present
    return tuple((first[a][0] and second[b][0], first[a][1] and second[b][1]) for a, b in orders)


class Correlations(NamedTuple):
    """Correlations of a block of pairs (D, P, A, B), zero where a leg meets itself."""

    c: np.ndarray
    of_rows: np.ndarray  # the largest |c| of each row, (D, P, A)

    @property
    def largest(self) -> float:
        return float(self.of_rows.max(initial=0.0))


def correlations(rows: Side, columns: Side, cross: np.ndarray, same: np.ndarray | None) -> Correlations:
    """Covariances over standard deviations; 0 where one of them is 0."""
    from finitewidth.gaussian.two_legs import series_loops

    if same is not None:
        cross = np.where(same, 0.0, cross)
    inverse = rows.legs.inverse_deviations, columns.legs.inverse_deviations
    if not columns.along_columns:
        c = np.clip(cross * rows.select(inverse[0]) * columns.select(inverse[1]), -1.0, 1.0)
        return Correlations(c, np.abs(c).max(axis=3, initial=0.0))
    c, largest = np.empty(cross.shape), np.empty(cross.shape[:3])
    starts, places = (rows.start, columns.start), columns.places_of(cross.shape)
    series_loops.correlations(np.ascontiguousarray(cross), *inverse, starts, places, c, largest)
    return Correlations(c, largest)


def largest_correlations(rows: Side, columns: Side, cross: np.ndarray) -> tuple[np.ndarray, float]:
    """The largest |c| of each row, (D, P, A), and of all, for legs along columns."""
    from finitewidth.gaussian.two_legs import series_loops

    inverse = rows.legs.inverse_deviations, columns.legs.inverse_deviations
    of_rows, starts = np.empty(cross.shape[:3]), (rows.start, columns.start)
    most = series_loops.largest_correlations(cross, *inverse, starts, columns.places_of(cross.shape), of_rows)
    return of_rows, most


class Series(NamedTuple):
    """What the series of all pairs of two sets of legs have in common."""

    tables: tuple[Tables, Tables]
    bounds: tuple[np.ndarray, np.ndarray]  # see `series_loops.lengths`
    last: float  # relative remainder of all terms at correlation one
    tolerance: float

    @property
    def length(self) -> int:
        """The number of terms that there are."""
        return next(iter(self.tables[0].coefficients.values())).shape[0]

    @property
    def enough(self) -> tuple[float, float]:
        """Remainders that need no more terms, of a row and at correlation one."""
        return self.tolerance / _SPARE, min(_ROUNDING, self.tolerance / 16)

    def advance(
        self, rows: Side, columns: Side, K: np.ndarray, Theta: np.ndarray | None, largest: np.ndarray
    ) -> float:
        """<sigma sigma>_K and Theta <sigma' sigma'>_K in place; the largest relative remainder."""
        from finitewidth.gaussian.two_legs import series_loops

        orders: tuple[Orders, ...] = ((0, 0), (0, 0) if Theta is None else (1, 1))
        first, second = (tables.coefficients for tables in self.tables)
        present = parities(*self.tables, orders)
        averages = tuple((first[a], second[b], p) for (a, b), p in zip(orders, present, strict=True))
        return series_loops.advanced(
            K,
            np.empty((0, 0, 0, 0)) if Theta is None else Theta,
            (rows.legs.inverse_deviations, columns.legs.inverse_deviations),
            largest,
            self.bounds,
            self.enough,
            (rows.start, columns.start),
            columns.places_of(K.shape),
            averages,
        )


class Sums(NamedTuple):
    """What the series of a block of pairs are summed from."""

    rows: Side
    columns: Side
    correlations: Correlations
    series: Series

    def into(self, orders: tuple[Orders, ...], values: list[np.ndarray]) -> float:
        """Write sums into `values`; the largest relative remainder."""
        add = self._blocks if self.columns.along_columns else self._listed
        return add(orders, values)

    def _blocks(self, orders, values) -> float:
        from finitewidth.gaussian.two_legs import series_loops

        c, largest = self.correlations
        terms = np.empty(largest.shape, dtype=np.int64)
        bounds, enough = self.series.bounds, self.series.enough
        remainder = series_loops.lengths(largest, *bounds, self.rows.start, *enough, terms)
        starts, places = (self.rows.start, self.columns.start), self.columns.places_of(c.shape)
        first, second = (tables.coefficients for tables in self.series.tables)
        present = parities(*self.series.tables, orders)
        for (a, b), parity, out in zip(orders, present, values, strict=True):
            series_loops.summed(c, first[a], second[b], starts, places, terms, parity, out)
        return remainder

    def _listed(self, orders, values) -> float:
        """Samples paired with themselves, other sites of them: few pairs."""
        c, (first, second) = self.correlations.c, self.series.tables
        for (a, b), out in zip(orders, values, strict=True):
            of_rows = self.rows.select(first.coefficients[a])
            of_columns = self.columns.select(second.coefficients[b])
            total = np.zeros(c.shape)
            for k in reversed(range(self.series.length)):
                total = total * c + of_rows[k] * of_columns[k]
            np.copyto(out, total)
        return self.series.last * self.correlations.largest**self.series.length
