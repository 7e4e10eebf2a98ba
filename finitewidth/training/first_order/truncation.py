r"""What a prediction through order 1/n neglects, from its contributions before and after they cancel.

Order $1/n^2$ consists of products of contributions of order 1/n: one of them changes another by some share.
What is changed has two causes, which are added in quadrature since they err independently: $F$, the
contributions of networks whose NTK stays as it was drawn, and $L$, those of an NTK that moves as features are
learned (dNTK and ddNTKs). Contributions that cancel at order 1/n need not cancel at the next one: a fifth of
$S$, the sum of their absolute values, is left. One standard deviation of what is neglected is

$$\sigma = c\, \frac{\rho}{1+\rho}\, \sqrt{F^2 + L^2 + (S/5)^2}, \qquad
  \rho^2 = (5\delta/2)^2 + (5v)^2 + (3\ell)^2,$$

with $F$, $L$ and $S$ of the mean or of the variance at one output. The share $\rho$ is the same for all
outputs: $\delta$ is the sum of the absolute contributions of both ddNTKs to the mean, $v$ the correction of
the variance, both root mean squares over outputs, and $\ell$ depth over width. Where no variance is known
$6\ell$ stands for the last two. Orders behind the next one follow as a geometric series, which the factor
$1/(1+\rho)$ sums up. Means are measured by the root mean square y of the targets, variances by $y^2$ plus
that of the variances at infinite width.

A posterior has no training: $L = 0$, $\delta$ is $S$ of the mean, and $\rho^2 = (2\delta)^2 + (2v)^2$, in
units of the standard deviation and variance of each output. A posterior whose variance moves has a mean that
is less sure, however little it moves itself: under its root is also a tenth of $S$ of the variance.
Form and constants were chosen with random problems, and other problems judged them
(`benchmarks/calibration/predictions.py`, `posterior.py` beside it, docs/uncertainty.md).
"""

from typing import NamedTuple

import numpy as np

from finitewidth.network.network import Network
from finitewidth.training.first_order.mean_terms import CUBIC
from finitewidth.training.infinite.gaussian import Prediction, Truncation

LEARNED = ("dntk", *CUBIC)  # contributions of an NTK that moves
CANCELLED = 0.2  # how much contributions that cancel still count
ALONE = 6.0  # what depth over width counts in rho where no variance is known


class Recipe(NamedTuple):
    """The constants c, what the three parts of rho count, and what a mean takes over from its variance."""

    mean: float
    variance: float
    delta: float
    spread: float
    depth: float
    lent: float = 0.0


TRAINED = Recipe(mean=0.9, variance=0.4, delta=2.5, spread=5.0, depth=3.0)
POSTERIOR = Recipe(mean=0.45, variance=0.86, delta=2.0, spread=2.0, depth=0.0, lent=0.1)


class Units(NamedTuple):
    """What means and variances are measured by, one number for all outputs or one for each."""

    mean: np.ndarray | float
    variance: np.ndarray | float

    @classmethod
    def of_training(cls, prediction: Prediction, Y: np.ndarray) -> "Units":
        """Targets, and targets together with the spread of infinitely wide networks."""
        y = _rms(Y)
        return cls(y, y**2 + _rms(prediction.infinite_width.variance))


def truncation_of(prediction: Prediction, units: Units, recipe: Recipe = TRAINED) -> Truncation:
    """One standard deviation of what is neglected, in the mean and where it is known in the variance."""
    mean = Corrections.of(prediction.contributions, units.mean)
    delta, depth = recipe.delta * _rms(mean.driving), depth_over_width(prediction.net)
    if not prediction.variance_contributions:
        share = _summed(np.hypot(delta, ALONE * depth))
        return Truncation(recipe.mean * share * mean.root * units.mean)
    variance = Corrections.of(prediction.variance_contributions, units.variance)
    rho = np.sqrt(delta**2 + (recipe.spread * _rms(variance.total)) ** 2 + (recipe.depth * depth) ** 2)
    of_mean = recipe.mean * np.hypot(mean.root, recipe.lent * variance.size) * units.mean
    of_variance = recipe.variance * variance.root * units.variance
    below_zero = -prediction.variance  # by so much at least a variance is wrong
    return Truncation(_summed(rho) * of_mean, np.maximum(_summed(rho) * of_variance, below_zero))


def depth_over_width(net: Network) -> float:
    """The sum of 1/n over hidden layers."""
    return sum(1 / n for n in net.ladder.widths[1:-1])


class Corrections(NamedTuple):
    """Contributions of order 1/n in a unit: sums of them and of their absolute values."""

    total: np.ndarray
    learned: np.ndarray  # the part of the total that a moving NTK makes
    size: np.ndarray
    driving: np.ndarray  # absolute values of the ddNTKs, or of all contributions where there is no NTK

    @classmethod
    def of(cls, parts: dict[str, np.ndarray], unit: np.ndarray | float) -> "Corrections":
        """All are zero where the unit is."""
        relative = {name: _relative(part, unit) for name, part in parts.items()}
        zero = np.zeros_like(next(iter(relative.values())))
        size = sum((abs(part) for part in relative.values()), zero)
        driving = sum((abs(relative[name]) for name in CUBIC), zero) if CUBIC.keys() <= parts.keys() else size
        learned = sum((relative[name] for name in LEARNED if name in relative), zero)
        return cls(sum(relative.values(), zero), learned, size, driving)

    @property
    def root(self) -> np.ndarray:
        """Both causes and what cancels, in quadrature."""
        frozen = self.total - self.learned
        return np.sqrt(frozen**2 + self.learned**2 + (CANCELLED * self.size) ** 2)


def _relative(values: np.ndarray, unit: np.ndarray | float) -> np.ndarray:
    return np.divide(values, unit, out=np.zeros_like(values), where=np.asarray(unit) > 0)


def _summed(rho: float) -> float:
    """All orders behind the first, in units of it: rho - rho^2 + ..."""
    return rho / (1 + rho)


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
