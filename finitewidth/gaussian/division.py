"""Division by variances and scales that may be zero: a leg without variance is an ordinary case."""

import numpy as np


def divisor(value: np.ndarray) -> np.ndarray:
    """The value, and 1 where it is 0: whatever it divides is 0 there, or is not used."""
    return np.where(value == 0, 1.0, value)


def quotient(numerator: np.ndarray, denominator: np.ndarray | float) -> np.ndarray:
    """The ratio, and 0 where the denominator is not positive."""
    denominator = np.broadcast_to(denominator, numerator.shape)
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
