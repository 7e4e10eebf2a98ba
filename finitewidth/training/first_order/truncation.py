r"""What a prediction through order 1/n neglects, from the sizes of its contributions before they cancel.

The contributions of order 1/n to an output add up to a correction, often a small difference of large numbers.
Order $1/n^2$ consists of their products, so that their sizes before they cancel count. Let $S$ be the sum of
their absolute values at an output in some unit, for the mean and for the variance, and $\rho$ the root mean
square of $S$ over the outputs. One standard deviation of what is neglected is, in the same unit,

$$\sigma = c\, \frac{\rho}{1+\rho}\, \sqrt{S^2 + \rho_S^2}, \qquad
  \rho^2 = \rho_\text{mean}^2 + \rho_\text{variance}^2,$$

where $\rho_S$ is that of the mean or of the variance. Orders behind the next one follow as a geometric
series, which the factor $1/(1+\rho)$ sums up. Units of trained networks are the root mean square $y$ of the
targets for means, and $y^2$ plus that of the variances at infinite width for variances; those of a posterior
are the standard deviation and variance of each output. A posterior whose variance moves has a mean that is
less sure, however little it moves itself: its $S$ contains a fifth of that of the variance, in quadrature.
Form and constants c were chosen with random problems, and other problems judged them
(`benchmarks/calibration.py`, `calibration_posterior.py`, docs/uncertainty.md).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from finitewidth.training.infinite.gaussian import Prediction, Truncation

MEAN_ALONE = 0.58  # c where no variance is known, and rho is that of the mean


class Constants(NamedTuple):
    """c of the mean and of the variance, and the share of the variance's S that means have too."""

    mean: float
    variance: float
    lent: float


TRAINED = Constants(0.33, 0.2, 0.0)
POSTERIOR = Constants(0.23, 0.25, 0.2)


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
    mean = _size(prediction.contributions.values(), units.mean)
    if not prediction.variance_contributions:
        return Truncation(MEAN_ALONE * _summed(_rms(mean)) * _softened(mean) * units.mean)
    spread = _size(prediction.variance_contributions.values(), units.variance)
    share = _summed(np.hypot(_rms(mean), _rms(spread)))
    below_zero = -prediction.variance  # by so much at least a variance is wrong
    of_variance = constants.variance * share * _softened(spread) * units.variance
    moved = np.hypot(mean, constants.lent * spread)
    of_mean = constants.mean * share * _softened(moved) * units.mean
    return Truncation(of_mean, np.maximum(of_variance, below_zero))


def _summed(rho: float) -> float:
    """All orders behind the first, in units of it: rho - rho^2 + ..."""
    return rho / (1 + rho)


def _size(parts: Iterable[np.ndarray], unit: np.ndarray | float) -> np.ndarray:
    """The sum of absolute values in a unit; zero where the unit is."""
    size = np.sum([np.abs(part) for part in parts], axis=0)
    return np.divide(size, unit, out=np.zeros_like(size), where=np.asarray(unit) > 0)


def _softened(size: np.ndarray) -> np.ndarray:
    """No output is better known than all of them are: its size and the root mean square together."""
    return np.hypot(size, _rms(size))


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
