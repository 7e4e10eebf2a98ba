r"""What order 1/n neglects in trained ensembles: one standard deviation, for the mean and the variance.

Order $1/n^2$ consists of products of contributions of order 1/n: one of them changes another by some share.
On one sample three independent sources are added in quadrature,

$$\sigma^2 = \Big(c\, \frac{\rho}{1+\rho}\Big)^2
  \Big[R_d^2 + \tfrac14 \textstyle\sum_A g_{dA}^2\, \overline{R_A^2}\Big] + (b\, \Lambda_d)^2 .$$

- $R_d = \sqrt{F^2 + L^2 + (S/5)^2}$ is what is changed on the sample itself: $F$, the contributions of
  networks whose NTK stays as it was drawn, $L$, those of an NTK that moves as features are learned, and a
  fifth of the sum $S$ of their absolute values, since what cancels at order 1/n need not cancel at the
  next.
- $\overline{R_A^2}$ is the same averaged over the training points. Corrections mix them, and samples follow
  the training set with the response $g = \Theta_{dA} \tilde\Theta^{-1}$; for variances it is squared.
- $\Lambda_d$ is what networks leave that learn late (`laggards.py`). On training points and beside them
  everything else vanishes as training goes on, and this is what remains.

The share belongs to the problem, not to the samples that are asked about: $\rho^2 = (5\delta/2)^2 + (5v)^2
+ (3\ell)^2$, where $\delta$ is the largest sum of absolute contributions of both ddNTKs to the mean and $v$
the largest correction of the variance along the training of the training points (root mean squares), and
$\ell$ is depth over width. Orders behind the next one are a geometric series, which $1/(1+\rho)$ sums up.
Means are measured by the root mean square y of the targets, variances by $y^2$ plus the mean variance of
the training points before training. Where order 1/n is known on the asked samples alone, $\delta$ is that
of each sample, $6\ell$ stands for the rest, and $2\ell$ for the relative variance of the NTK. Other
problems judge form and constants than those that chose them (`benchmarks/calibration/`).
"""

from typing import NamedTuple

import numpy as np

from finitewidth.network.network import Network
from finitewidth.training.infinite.gaussian import Prediction, Truncation
from finitewidth.training.infinite.spreads import AtBothOrders
from finitewidth.training.neglected.along_training import Sizes, changed, learning, rms
from finitewidth.training.neglected.laggards import TrainingModes, left_by_laggards

SHARE_OF_MEAN, SHARE_OF_VARIANCE = 0.85, 0.55  # c
LAGGARDS_IN_MEAN, LAGGARDS_IN_VARIANCE = 0.65, 0.55  # b
LEARNING, SPREAD, DEPTH = 2.5, 5.0, 3.0  # what the three parts of rho count
ALONE = 6.0  # what depth over width counts in rho where corrections on training points are not known
SPREAD_OF_NTK = 2.0  # relative variance of an eigenvalue, over depth over width, where it is not known


class Along(NamedTuple):
    """Corrections on the training points: the largest on the way, and those at the end."""

    learning: float
    spread: float
    end: Sizes

    @classmethod
    def of(cls, sizes: list[Sizes]) -> "Along":
        """From their sizes at some times, the end last."""
        return cls(max(one.learning for one in sizes), max(one.spread for one in sizes), sizes[-1])


class Units(NamedTuple):
    """What means and variances are measured by, one number for all outputs or one for each."""

    mean: np.ndarray | float
    variance: np.ndarray | float


def truncation_of(prediction: Prediction, modes: TrainingModes, along: Along | None) -> Truncation:
    """One standard deviation of what is neglected, in the mean and where it is known in the variance."""
    share = _summed(_rho(prediction, modes, along))
    late = left_by_laggards(modes, prediction.algorithm)
    end_mean, end_variance = (along.end.mean, along.end.variance) if along else (0.0, 0.0)
    product = share * np.hypot(changed(prediction.contributions), np.sqrt(modes.follow) * end_mean / 2)
    mean = np.hypot(SHARE_OF_MEAN * product, LAGGARDS_IN_MEAN * late.mean)
    if not prediction.variance_contributions:
        return Truncation(mean)
    product = share * np.hypot(changed(prediction.variance_contributions), modes.follow * end_variance / 2)
    variance = np.hypot(SHARE_OF_VARIANCE * product, LAGGARDS_IN_VARIANCE * late.variance)
    return Truncation(mean, np.maximum(variance, -prediction.variance))  # by so much at least it is wrong


def truncation_of_replay(prediction: AtBothOrders, y: float) -> Truncation:
    """The same where the training points are not known, with targets of this size."""
    share = _summed(_rho_alone(prediction, y))
    mean = SHARE_OF_MEAN * share * changed(prediction.contributions)
    if not prediction.variance_contributions:
        return Truncation(mean)
    variance = SHARE_OF_VARIANCE * share * changed(prediction.variance_contributions)
    return Truncation(mean, np.maximum(variance, -prediction.variance))


def _rho_alone(prediction: AtBothOrders, y: float) -> np.ndarray:
    learned = LEARNING * _over(rms(learning(prediction.contributions), axis=1), y)
    return np.hypot(learned, ALONE * depth_over_width(prediction.net))[:, None]


def _rho(prediction: Prediction, modes: TrainingModes, along: Along | None) -> np.ndarray | float:
    """How large the next order is beside order 1/n: one number, or one for each sample."""
    y, depth = rms(modes.y), depth_over_width(prediction.net)
    if along is None:
        return _rho_alone(prediction, y)
    learned = LEARNING * _over(along.learning, y)
    spread = SPREAD * _over(along.spread, y**2 + modes.kernel.mean())
    return np.sqrt(learned**2 + spread**2 + (DEPTH * depth) ** 2)


def depth_over_width(net: Network) -> float:
    """The sum of 1/n over hidden layers."""
    return sum(1 / n for n in net.ladder.widths[1:-1])


def _over(values: np.ndarray | float, unit: float) -> np.ndarray | float:
    return values / unit if unit > 0 else 0.0 * values


def _summed(rho: np.ndarray | float) -> np.ndarray | float:
    """All orders behind the first, in units of it: rho - rho^2 + ..."""
    return rho / (1 + rho)
