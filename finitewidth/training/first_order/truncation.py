r"""What a prediction through order 1/n neglects, from its contributions before and after they cancel.

The contributions of order 1/n to an output add up to its correction $\Delta$, often a small difference of
large numbers. Order $1/n^2$ consists of products of contributions: of those that cancel at order 1/n and of
those that do not. Let $S$ be the sum of their absolute values at an output, for the mean and for the
variance, and $\rho$ the root mean square of $S$ over the outputs in some unit. One standard deviation of
what is neglected is

$$\sigma = c\, \frac{\rho}{1+\rho}\, \sqrt{S^2 + (7\Delta/2)^2}, \qquad
  \rho^2 = \rho_\text{mean}^2 + \rho_\text{variance}^2,$$

with $S$ and $\Delta$ of the mean or of the variance. Orders behind the next one follow as a geometric
series, which the factor $1/(1+\rho)$ sums up. Units of trained networks are the root mean square $y$ of the
targets for means, and $y^2$ plus that of the variances at infinite width for variances; those of a posterior
are the standard deviation and variance of each output. A posterior whose variance moves has a mean that is
less sure, however little it moves itself: under its root is a tenth of that of the variance, in quadrature.
Form and constants c were chosen with random problems, and other problems judged them
(`benchmarks/calibration.py`, `calibration_posterior.py`, docs/uncertainty.md).
"""

from typing import NamedTuple

import numpy as np

from finitewidth.training.infinite.gaussian import Prediction, Truncation

MEAN_ALONE = 0.45  # c where no variance is known, and rho is that of the mean
KEPT = 3.5  # how much more a correction counts than contributions that cancel


class Constants(NamedTuple):
    """c of the mean and of the variance, and the share of the variance's root that means have too."""

    mean: float
    variance: float
    lent: float


TRAINED = Constants(0.28, 0.17, 0.0)
POSTERIOR = Constants(0.22, 0.14, 0.1)


class Units(NamedTuple):
    """What means and variances are measured by, one number for all outputs or one for each."""

    mean: np.ndarray | float
    variance: np.ndarray | float

    @classmethod
    def of_training(cls, prediction: Prediction, Y: np.ndarray) -> "Units":
        """Targets, and targets together with the spread of infinitely wide networks."""
        y = _rms(Y)
        return cls(y, y**2 + _rms(prediction.infinite_width.variance))


def truncation_of(prediction: Prediction, units: Units, constants: Constants = TRAINED) -> Truncation:
    """One standard deviation of what is neglected, in the mean and where it is known in the variance."""
    mean = Corrections.of(prediction.contributions, units.mean)
    if not prediction.variance_contributions:
        return Truncation(MEAN_ALONE * _summed(_rms(mean.size)) * mean.root * units.mean)
    variance = Corrections.of(prediction.variance_contributions, units.variance)
    share = _summed(np.hypot(_rms(mean.size), _rms(variance.size)))
    below_zero = -prediction.variance  # by so much at least a variance is wrong
    of_variance = constants.variance * share * variance.root * units.variance
    of_mean = constants.mean * share * np.hypot(mean.root, constants.lent * variance.root) * units.mean
    return Truncation(of_mean, np.maximum(of_variance, below_zero))


class Corrections(NamedTuple):
    """Contributions of order 1/n in a unit: the sum of their absolute values, and their sum."""

    size: np.ndarray
    total: np.ndarray

    @classmethod
    def of(cls, parts: dict[str, np.ndarray], unit: np.ndarray | float) -> "Corrections":
        """Both are zero where the unit is."""
        values = np.stack(list(parts.values()))
        relative = np.divide(values, unit, out=np.zeros_like(values), where=np.asarray(unit) > 0)
        return cls(np.abs(relative).sum(axis=0), relative.sum(axis=0))

    @property
    def root(self) -> np.ndarray:
        """What cancels and what is kept, in quadrature."""
        return np.hypot(self.size, KEPT * self.total)


def _summed(rho: float) -> float:
    """All orders behind the first, in units of it: rho - rho^2 + ..."""
    return rho / (1 + rho)


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
