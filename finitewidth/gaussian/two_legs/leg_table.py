"""Averages of one preactivation over twenty decades of its variance, computed once for an activation.

The search for critical points looks at their signs; the phase diagram and deep networks interpolate them.
"""

import functools
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from scipy.interpolate import BSpline, make_interp_spline

from finitewidth.gaussian.tower import Tower
from finitewidth.gaussian.two_legs import quadrature
from finitewidth.gaussian.two_legs.one_leg import LegAverages, Origin, leg_averages, origin
from finitewidth.network.layers.activation import Activation

LOWEST, HIGHEST = 1e-10, 1e10
_PER_DECADE = 32
RESOLVED = 1e-6  # averages with larger errors are not used


@dataclass(frozen=True, eq=False)
class LegTable:
    """<sigma^2>, <sigma'^2> and <sigma sigma''> on a logarithmic grid of K."""

    activation: Activation
    K: Float[np.ndarray, " M"]
    averages: LegAverages
    complete: bool  # False if averages at large K overflow or cannot be resolved
    zero: Origin = field(repr=False)
    # (<sigma^2> - sigma(0)^2)/K, <sigma'^2> and <sigma sigma''> as functions of log K
    _splines: BSpline = field(repr=False)

    @property
    def at_zero(self) -> float:
        """<sigma^2> at K = 0."""
        return self.zero.value**2

    def __call__(self, K: Float[np.ndarray, "..."]) -> LegAverages:
        """Interpolated averages, relative error about 1e-9; below the grid linear in K, above it NaN."""
        inside = np.clip(K, self.K[0], self.K[-1])
        per_K, slope, curvature = np.moveaxis(self._splines(np.log(inside)), -1, 0)
        share = np.minimum(K / self.K[0], 1.0)  # of the way from zero to the grid
        slope = share * slope + (1 - share) * self.zero.slope
        if np.isfinite(self.zero.curvature):
            curvature = share * curvature + (1 - share) * self.zero.curvature
        square = self.at_zero + per_K * np.where(K < self.K[0], K, inside)
        known = np.where(self.K[-1] * (1 + 1e-12) >= K, 1.0, np.nan)
        error = np.full(np.shape(K), 1e-8)
        return LegAverages(square * known, slope * known, curvature * known, error)


@functools.lru_cache(maxsize=32)
def leg_table(activation: Activation) -> LegTable:
    """The averages from K = 1e-10 to 1e10, or as far as they can be computed."""
    decades = np.log10(HIGHEST / LOWEST)
    K = np.geomspace(LOWEST, HIGHEST, int(_PER_DECADE * decades) + 1)
    K = K[: _count_until(activation, K)]
    averages = _until_unresolved(activation, K)
    K = K[: averages.error.size]
    unresolved = np.flatnonzero(
        ~(averages.error <= RESOLVED) | ~np.isfinite(np.stack(averages[:3])).all(axis=0)
    )
    end = int(unresolved[0]) if unresolved.size else K.size
    if end < _PER_DECADE:
        raise ValueError(
            f"the Gaussian averages of activation {activation.name!r} cannot be resolved even at small "
            "variance; use a function that varies less rapidly."
        )
    complete = bool(K[end - 1] > 0.99 * HIGHEST)
    K, averages = K[:end], LegAverages(*(part[:end] for part in averages))
    zero = origin(activation)
    base = zero.value**2
    columns = np.stack([(averages.square - base) / K, averages.slope, averages.curvature], axis=-1)
    return LegTable(activation, K, averages, complete, zero, make_interp_spline(np.log(K), columns, k=5))


def _until_unresolved(activation: Activation, K: np.ndarray) -> LegAverages:
    """The averages in order of K, ending soon after a function oscillates too fast to be averaged."""
    parts = []
    for start in range(0, K.size, _PER_DECADE):
        parts.append(leg_averages(activation, K[start : start + _PER_DECADE]))
        if not parts[-1].error[-1] <= RESOLVED:
            break
    return LegAverages(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _count_until(activation: Activation, K: np.ndarray) -> int:
    """The number of variances up to the first at which sigma^2 grows too fast for a Gaussian average."""

    def averageable(index: int) -> bool:
        try:
            quadrature.reach(activation, float(K[index]))
        except ValueError:
            return False
        # sigma'' may overflow before sigma does
        edge = np.asarray([-1.0, 1.0]) * quadrature.GREATEST_REACH * np.sqrt(K[index])
        return bool(np.isfinite(Tower(activation, 2)(edge)).all())

    if averageable(K.size - 1):
        return K.size
    if not averageable(0):
        raise ValueError(
            f"activation {activation.name!r} grows faster than any Gaussian can average, even at variance "
            f"{K[0]:g}; use one with at most exponential growth."
        )
    low, high = 0, K.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if averageable(middle) else (low, middle)
    return low + 1
