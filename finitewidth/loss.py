"""What training minimizes: a sum over samples, never a mean."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MSE:
    r"""$\frac12 \sum (z - y)^2$ over samples and outputs."""


@dataclass(frozen=True)
class CrossEntropy:
    r"""$-\sum y \log \mathrm{softmax}(z)$ over samples and classes, with soft targets $y$ that sum to one."""


Loss = MSE | CrossEntropy
