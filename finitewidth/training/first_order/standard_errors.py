"""Standard errors of sampled predictions, in their records."""

import numpy as np

from finitewidth.training.first_order.mean_and_covariance import Corrections
from finitewidth.training.infinite.gaussian import Sampling
from finitewidth.training.many_points.estimation import SampledEstimate

_FEW = 100  # batches
NOTE = "standard errors from few batches are 10 to 20 percent too small"


def sampling_of(corrected: Corrections, n: int) -> Sampling | None:
    """Standard errors of mean and variance; None where nothing was sampled."""
    if corrected.sampled is None:
        return None
    variance = None if corrected.sampled_variance is None else _errors(corrected.sampled_variance, n)
    return _errors(corrected.sampled, n, variance)


def _errors(sampled: SampledEstimate, n: int, variance: Sampling | None = None) -> Sampling:
    contributions = {name: part.stderr / n for name, part in sampled.contributions.items()}
    return Sampling(
        sampled.samples,
        sampled.accuracy,
        sampled.total.stderr / n,
        sampled.averaged.stderr / n,
        contributions,
        variance,
        round(sampled.batches, 1),
        NOTE if sampled.batches < _FEW else None,
    )


def variance_parts(corrected: Corrections) -> dict[str, np.ndarray] | None:
    """n times the contributions to the variance, (M, n_L) each; None where it was not asked for."""
    if corrected.sampled_variance is None:
        return corrected.variance
    return {name: part.value for name, part in corrected.sampled_variance.contributions.items()}
