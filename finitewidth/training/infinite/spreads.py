"""Standard deviations from variances, which order 1/n may take below zero."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

AtBothOrders = Any  # a Prediction, or a ReplayedPrediction, which has the same attributes
_ROUNDING = 1e-9  # of the largest variance, or of the largest mean squared


class Spreads:
    """What a record with mean, variance, variance_uncertainty and order says of the standard deviation."""

    @property
    def std(self: Any) -> Float[np.ndarray, "M n_L"]:
        """Standard deviations over the ensemble; NaN where there is none, see `below_zero`."""
        return np.where(self.below_zero, np.nan, np.sqrt(np.maximum(self.variance, 0.0)))

    @property
    def below_zero(self: Any) -> Bool[np.ndarray, "M n_L"]:
        """Where the variance through order 1/n is negative, beyond rounding: no standard deviation exists."""
        variance = self.variance
        scale = max(np.abs(variance).max(initial=0.0), np.square(self.mean).max(initial=0.0))
        return (variance < -_ROUNDING * scale) & (self.order > 0)

    @property
    def note(self: Any) -> str | None:
        """What a line that shows this record must say besides its numbers, or None."""
        return "variances below zero" if self.gives_variance and self.below_zero.any() else None

    @property
    def std_uncertainty(self: Any) -> Float[np.ndarray, "M n_L"]:
        """What order 1/n neglects in `std`, one standard deviation; NaN where there is none."""
        unsure, std = self.variance_uncertainty, self.std
        return np.where(
            unsure == 0, 0.0, np.divide(unsure, 2 * std, out=np.full_like(std, np.nan), where=std > 0)
        )
