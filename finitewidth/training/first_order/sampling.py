"""What a prediction says of the samples that it was made of."""

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.training.first_order.corrections import Corrections
from finitewidth.training.infinite.gaussian import SampledVariance, Sampling


def sampling_of(corrected: Corrections, n: int) -> Sampling | None:
    """Standard errors of mean and variance; None where nothing was sampled."""
    sampled, spread = corrected.sampled, corrected.spread
    if sampled is None:
        return None
    contributions = {name: part.stderr / n for name, part in sampled.contributions.items()}
    samples = sampled.samples + (0 if spread is None else spread.samples)
    variance = None
    if spread is not None:
        parts = {name: Estimate(*(v[:, 0] / n for v in part)) for name, part in spread.contributions.items()}
        variance = SampledVariance(spread.samples, spread.accuracy, spread.total.stderr[:, 0] / n, parts)
    return Sampling(samples, sampled.accuracy, sampled.total.stderr / n, contributions, variance)


def averaged_variance(free: np.ndarray, corrected: Corrections, n: int) -> np.ndarray | None:
    """The variance averaged over outputs where it was sampled, (M,)."""
    return None if corrected.spread is None else free + corrected.spread.total.value[:, 0] / n
