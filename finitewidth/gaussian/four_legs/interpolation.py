r"""Hermite coefficients of legs on a plane grid, interpolated along the one direction on which they depend.

The coefficients $c_i$ of a leg with mean $B_r\cdot x$ and variance $v_r$ are analytic functions of one
number. A Chebyshev series in it replaces smoothing at every grid point by one matrix product. Many legs have
their series from one table: a Chebyshev series in mean and deviation.
"""

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.fft import dct

from finitewidth.gaussian.four_legs.coefficients import coefficients
from finitewidth.gaussian.four_legs.plans import Need, Plan
from finitewidth.gaussian.tower import Tower

_TRIALS = (40, 100, 250, 600)  # degrees at which the decay of a series is measured
_CHUNK = 1 << 17  # Chebyshev polynomials held at once


def smoothed_legs(
    tower: Tower, directions: np.ndarray, variances: np.ndarray, points: np.ndarray, plan: Plan
) -> np.ndarray:
    """c_i of every leg at every grid point, (i, leg, point)."""
    deviations = np.sqrt(variances)
    lengths = np.sqrt((directions**2).sum(axis=1))
    radius = float(np.sqrt((points**2).sum(axis=1).max()))
    series = chebyshev_series(tower, lengths * radius, deviations, plan, len(points))
    if series is None:
        means = directions @ points.T
        spread = np.broadcast_to(deviations[:, None], means.shape)
        return coefficients(tower, means, spread, plan.rule, plan.terms)
    units = directions / np.where(lengths > 0, lengths * radius, 1.0)[:, None]
    values = np.empty((series.shape[1], len(directions), len(points)))
    rows = max(1, _CHUNK // (series.shape[2] * len(points)))
    for start in range(0, len(directions), rows):
        part = slice(start, start + rows)
        polynomials = _chebyshev(np.clip(units[part] @ points.T, -1.0, 1.0), series.shape[2])
        values[:, part] = (series[part] @ polynomials).transpose(1, 0, 2)
    return values


def chebyshev_series(
    tower: Tower, lengths: np.ndarray, deviations: np.ndarray, plan: Plan, points: int
) -> np.ndarray | None:
    """Series in mean / length, (leg, i, degree), or None if it would not be shorter than the grid."""
    hardest = np.unique([lengths.argmax(), (lengths / np.maximum(deviations, 1e-3)).argmax()])
    degree = 1 if lengths.max() == 0 else _degree_needed(tower, lengths[hardest], deviations[hardest], plan)
    while degree is not None and 2 * degree < points:
        series = _series(tower, lengths, deviations, plan, degree)
        # the missing coefficients together are at most as large as the last ones
        if degree == 1 or _effect(series[..., -2:], plan) <= plan.tolerance:
            return np.ascontiguousarray(series.transpose(1, 0, 2))
        degree = degree + degree // 4 + 2
    return None


@dataclass(frozen=True)
class Table:
    """Series in mean / length and in the deviation, for legs up to this length and of these deviations."""

    length: float
    low: float
    high: float
    series: np.ndarray  # (deviation, part, i, degree)
    tails: np.ndarray  # sums of sizes from each degree on, at nodes of deviations, (i, deviation, degree)

    def of_legs(self, deviations: np.ndarray, need: Need) -> tuple[np.ndarray, np.ndarray]:
        """Series of legs (leg, part, i, degree) with as many coefficients as are needed, and degrees (leg).

        The number of degrees, of each part, is what a leg of this deviation needs.
        """
        size, parts, _, most = self.series.shape
        count = need.sensitivity.size
        effects = np.tensordot(need.sensitivity, self.tails[:count], 1)  # (deviation, degree)
        enough = effects <= need.tolerance / 2
        needed = np.where(enough.any(axis=1), -(-enough.argmax(axis=1) // parts), most)
        needed = np.maximum.accumulate(np.clip(needed, 1, most))  # nodes decrease, and low ones are harder
        places = self._places(deviations)
        below = np.searchsorted(-_chebyshev_nodes(size), -places)  # the next node that is lower
        degrees = needed[np.minimum(below, size - 1)]
        table = self.series[:, :, : -(-count // parts), : int(degrees.max())]
        polynomials = _chebyshev(places, size)
        series = polynomials.T @ table.reshape(size, -1)
        return series.reshape(-1, *table.shape[1:]), degrees

    def _places(self, deviations: np.ndarray) -> np.ndarray:
        return np.clip((2 * deviations - self.low - self.high) / max(self.high - self.low, 1e-300), -1.0, 1.0)


def table_of_legs(
    tower: Tower, length: float, deviations: np.ndarray, plan: Plan, points: int
) -> Table | None:
    """A table for many legs with so many points together; None if it would not be smaller."""
    low, high = float(deviations.min()), float(deviations.max())
    plan, ratio = replace(plan, tolerance=plan.tolerance / 4), high / max(low, 1e-300)
    degree, size = 32 + math.ceil(8 * min(length, 16.0)), 8 + math.ceil(8 * min(ratio, 4.0))  # at first
    while length > 0 and 2 * degree * size < points and 2 * size < len(deviations):
        nodes = (low + high) / 2 + (high - low) / 2 * _chebyshev_nodes(size)
        series = _series(tower, np.full(size, length), nodes, plan, degree)
        tails = np.cumsum(np.abs(series[..., ::-1]), axis=-1)[..., ::-1]
        table = _transformed(series, axis=1)
        few = np.flatnonzero(plan.sensitivity @ tails.max(axis=1) <= plan.tolerance)
        if not few.size or few[0] > degree - 4:
            degree += degree // 2
        elif high > low and _effect(table[:, -2:].reshape(len(table), 1, -1), plan) > plan.tolerance:
            size += size // 2
        else:
            shared = parted(table[..., : few[0] + 1].transpose(1, 0, 2), tower.activation.is_odd)
            return Table(length, low, high, shared, tails)
    return None


def parted(series: np.ndarray, is_odd: bool) -> np.ndarray:
    """Series (legs, I, D) as (legs, 1, I, D) or, of an odd activation, without their zeros as (legs, 2, ...).

    The coefficients of a smoothed odd function are its derivatives: odd and even functions by turns.
    """
    if not is_odd:
        return series[:, None]
    legs, count, degree = series.shape
    padded = np.zeros((legs, count + count % 2, degree + degree % 2))
    padded[:, :count, :degree] = series
    return np.stack([padded[:, 0::2, 1::2], padded[:, 1::2, 0::2]], axis=1)


def _degree_needed(tower: Tower, lengths: np.ndarray, deviations: np.ndarray, plan: Plan) -> int | None:
    for trial in _TRIALS:
        series = _series(tower, lengths, deviations, plan, trial)
        tails = np.cumsum(np.abs(series[..., ::-1]), axis=-1)[..., ::-1].max(axis=1)
        small = np.flatnonzero(plan.sensitivity @ tails <= plan.tolerance)
        if small.size and small[0] < trial - 4:
            return int(small[0]) + 2
    return None


def _series(tower: Tower, lengths: np.ndarray, deviations: np.ndarray, plan: Plan, degree: int) -> np.ndarray:
    nodes = _chebyshev_nodes(degree)
    spread = np.broadcast_to(deviations[:, None], (len(deviations), degree))
    values = coefficients(tower, lengths[:, None] * nodes, spread, plan.rule, plan.terms)
    return _transformed(values)


def _transformed(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Values at Chebyshev nodes along an axis as coefficients of a series."""
    series = np.asarray(dct(values, type=2, axis=axis)) / values.shape[axis]
    series[(slice(None),) * (axis % values.ndim) + (0,)] /= 2
    return series


def _effect(series: np.ndarray, plan: Plan) -> float:
    """The largest change of the result if these coefficients of the series were left out."""
    return float(np.abs(series).sum(axis=-1).max(axis=1) @ plan.sensitivity)


@functools.cache
def _chebyshev_nodes(degree: int) -> np.ndarray:
    return np.cos(np.pi * (np.arange(degree) + 0.5) / degree)


def _chebyshev(t: np.ndarray, degree: int) -> np.ndarray:
    """T_0 ... T_(degree-1) at t, new axis before the last.

    By doubling, which takes fewer passes over long arrays than the recursion of `chebvander`.
    """
    values = np.empty((*t.shape[:-1], degree, t.shape[-1]))
    values[..., 0, :] = 1.0
    if degree > 1:
        values[..., 1, :] = t
    known = 1  # the highest known degree
    while known < degree - 1:
        more = min(known, degree - 1 - known)
        top = 2 * values[..., known : known + 1, :]
        lower = values[..., known - more : known, :][..., ::-1, :]
        values[..., known + 1 : known + more + 1, :] = top * values[..., 1 : more + 1, :] - lower
        known += more
    return values
