r"""What order 1/n neglects in posteriors and in the evidence: one standard deviation.

At order 1/n data change the kernel by three parts, $\bar G = G^{\{1\}} + \frac12 V \Psi - V M$. How large
they are belongs to the training data, in units in which the kernel with its noise is one:

$$r^2 = \frac{1}{N_A n^2} \sum_{\text{parts}} \mathrm{tr}\, (M \bar G_{AA})^2 .$$

The next order changes the kernel once more, by a share $\rho = 1.8\, r \sqrt{N_A}$ of it, since every
direction of the data adds its part. On one sample it changes the correction that is there, and adds a
change of the kernel that has no direction: $T^T \delta G\, a$ has the size $r \sqrt{(T^T K T)_{dd}\, a^T K
a}$, which is small where the data know the answer. With $R = \sqrt{c^2 + (S/5)^2}$ of the correction $c$
and the sum $S$ of its absolute parts,

$$\sigma_m = 0.45\, \tfrac{\rho}{1+\rho} \sqrt{R_m^2 + (S_v/10 s)^2 + \tfrac1{25} r^2 (T^T K T)\, a^T K a},$$
$$\sigma_v = 0.5\, \tfrac{\rho}{1+\rho} \sqrt{R_v^2 + \tfrac1{4} r^2 (T^T K T)^2},$$

where the mean borrows a tenth of $S$ of the variance in units of the standard deviation s. The logarithm of
the evidence is a sum over directions of the data: its next order is a share of the sum $S$ of the absolute
values of its parts, $\sigma = \frac14 S \sqrt{r^2 + (\ell/4)^2}$ with depth over width $\ell$. Half the
square of the correction, which seems natural, would be an error: parts of Q of both signs cancel.
"""

import numpy as np

from finitewidth.training.infinite.gaussian import Prediction, Truncation

SHARE = 1.8  # rho over r, for one training point
OF_MEAN, OF_VARIANCE, OF_EVIDENCE = 0.45, 0.5, 0.25
CANCELLED, LENT = 0.2, 0.1  # of the absolute parts of the same correction, and of that of the variance
FLOOR_OF_MEAN, FLOOR_OF_VARIANCE = 0.2, 0.5
DEPTH = 0.25


def posterior_truncation(
    prediction: Prediction, change: float, points: int, open_variance: np.ndarray, fitted: np.ndarray
) -> Truncation:
    """From r, N_A, (T^T K T)_dd of each test input (M,) and a^T K a of each output (n_L,)."""
    rho = SHARE * change * np.sqrt(points)
    share, left = rho / (1 + rho), change * open_variance[:, None]
    variance = prediction.infinite_width.variance
    of_mean, of_variance = prediction.contributions, prediction.variance_contributions
    std = np.sqrt(np.maximum(variance, 0.0))
    lent = np.divide(LENT * _size(of_variance), std, out=np.zeros_like(std), where=std > 0)
    floor = FLOOR_OF_MEAN * change * np.sqrt(np.multiply.outer(open_variance, fitted))
    mean = OF_MEAN * share * np.sqrt(_root(of_mean) ** 2 + lent**2 + floor**2)
    varied = OF_VARIANCE * share * np.hypot(_root(of_variance), FLOOR_OF_VARIANCE * left)
    return Truncation(mean, np.maximum(varied, -prediction.variance))


def evidence_truncation(parts: np.ndarray, change: float, depth_over_width: float) -> float:
    """From the parts of the correction, and r."""
    return float(OF_EVIDENCE * np.abs(parts).sum() * np.hypot(change, DEPTH * depth_over_width))


def _size(parts: dict[str, np.ndarray]) -> np.ndarray:
    return np.sum([np.abs(part) for part in parts.values()], axis=0)


def _root(parts: dict[str, np.ndarray]) -> np.ndarray:
    return np.hypot(np.sum(list(parts.values()), axis=0), CANCELLED * _size(parts))
