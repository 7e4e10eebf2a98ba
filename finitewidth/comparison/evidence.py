"""The evidence for a claim: two independent numbers, and how far apart they may be.

The allowance is fixed before the numbers are known: four standard errors where networks were sampled, else an
accuracy that the claim states.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.experiment.scaling import power_of_width

PULL = 4.0  # standard errors


@dataclass(frozen=True)
class Comparison:
    """A stated and a measured number; for arrays, the entry where the two are furthest apart."""

    what: str
    stated: float
    measured: float
    error: float  # standard error of a sampled number, else the stated accuracy
    allowed: float = 1.0  # the largest distance, in units of the error
    different: bool = False  # whether the statement is that the two differ

    @property
    def distance(self) -> float:
        """Between the two numbers, in units of the error."""
        gap = abs(self.stated - self.measured)
        if self.error > 0:
            return gap / self.error
        return 0.0 if gap == 0 else np.inf

    @property
    def strain(self) -> float:
        """The used fraction of the allowance, at most 1 where the statement holds."""
        used = self.distance / self.allowed
        return used if not self.different else (1 / used if used > 0 else np.inf)

    @property
    def holds(self) -> bool:
        """Whether the two numbers are as close, or as different, as the statement says."""
        return bool(self.strain <= 1)  # NaN does not hold


def _worst(what: str, stated, measured, error, allowed: float) -> Comparison:
    arrays = np.broadcast_arrays(*(np.asarray(part, dtype=float) for part in (stated, measured, error)))
    places = zip(*(np.ravel(array).tolist() for array in arrays), strict=True)
    entries = [Comparison(what, stated, measured, error, allowed) for stated, measured, error in places]
    broken = [one for one in entries if np.isnan(one.distance)]
    return broken[0] if broken else max(entries, key=lambda one: one.distance)


def agree(what: str, stated, measured, accuracy: float, *, scale: float | None = None) -> Comparison:
    """The two are equal within `accuracy` times `scale`, by default the largest stated number."""
    size = float(np.abs(stated).max()) if scale is None else scale
    return _worst(what, stated, measured, accuracy * size, 1.0)


def differ(what: str, stated, measured, accuracy: float, *, scale: float | None = None) -> Comparison:
    """The opposite of `agree`: somewhere the two are further apart than the accuracy."""
    furthest = agree(what, stated, measured, accuracy, scale=scale)
    return dataclasses.replace(furthest, different=True)


def pull(what: str, stated, estimate: Estimate) -> Comparison:
    """The two are equal within four standard errors, entry by entry."""
    return _worst(what, stated, estimate.value, estimate.stderr, PULL)


def significant(what: str, estimate: Estimate, stated: float = 0.0) -> Comparison:
    """Somewhere the estimate is more than four standard errors from `stated`, the value the claim denies."""
    return dataclasses.replace(pull(what, stated, estimate), different=True)


def falls(what: str, power: float, sizes: Sequence[int], estimates: Sequence[Estimate]) -> Comparison:
    """Positive numbers fall as sizes^-power: the fitted power is within four standard errors of `power`."""
    return pull(what, power, power_of_width(sizes, estimates))


# --- numbers from samples ----------------------------------------------------------------------------


def mean_of(samples: np.ndarray) -> Estimate:
    """Mean over the first axis and its standard error."""
    return Estimate(samples.mean(axis=0), samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


def root_mean_square(samples: np.ndarray) -> Estimate:
    """The root mean square over all axes; samples along the first axis are independent."""
    squares = mean_of((np.asarray(samples) ** 2).reshape(len(samples), -1).mean(axis=1))
    root = np.sqrt(squares.value)
    return Estimate(root, squares.stderr / (2 * root))


def extrapolated(widths: Sequence[int], estimates: Sequence[Estimate]) -> Estimate:
    """The value at 1/n = 0 of the polynomial in 1/n through the estimates."""
    h = 1 / np.asarray(widths, dtype=float)
    weights = [np.prod([other / (other - own) for other in h if other != own]) for own in h]
    value = sum(w * e.value for w, e in zip(weights, estimates, strict=True))
    variance = sum((w * e.stderr) ** 2 for w, e in zip(weights, estimates, strict=True))
    return Estimate(np.asarray(value), np.sqrt(variance))


def slope_of_logs(x, y) -> float:
    """The power p of y ~ x^p, fitted to all points."""
    return float(np.polyfit(np.log(x), np.log(np.abs(y)), 1)[0])
