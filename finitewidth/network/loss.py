"""What training minimizes: a sum over samples, never a mean."""

import math
import numbers
from dataclasses import dataclass


@dataclass(frozen=True)
class MSE:
    r"""$\frac12 \sum (z - y)^2$ over samples and outputs."""


@dataclass(frozen=True)
class CrossEntropy:
    r"""$-\sum y \log \mathrm{softmax}(z/T)$ over samples and classes, with soft targets $y$ that sum to one.

    `temperature` is $T$.
    """

    temperature: float = 1.0

    def __post_init__(self):
        T = self.temperature
        number = isinstance(T, numbers.Real) and not isinstance(T, bool)
        if not (number and math.isfinite(T) and T > 0):
            raise ValueError(f"temperature must be a positive number, got {T!r}.")
        object.__setattr__(self, "temperature", float(T))


Loss = MSE | CrossEntropy
