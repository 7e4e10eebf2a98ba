r"""TimeBins on a replayed trajectory, drawn so that a sum over them is an unbiased estimate of an integral.

TimeBins from 0 to S are spread evenly in

$$v(x) = \log(1 + x/c) + \tfrac12 [\log(1 + S/c) - \log(1 + (S - x)/c)],$$

so that both ends are resolved down to the scale c: early times, at which large modes are learned, and the
last ones, whose effects the training set has no time to absorb. Bins of v are strata, and points of a
Kronecker sequence fill a bin evenly. A sum over steps of descent, $\eta \sum_j f(j)$, is the integral of
$f(\lfloor x / \eta \rfloor)$, so that descent needs no rule of its own.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_BIN_WIDTH = 0.8  # in v
_END_WEIGHT = 0.5  # of the logarithm that resolves the end
_STEPS = np.array([0.7548776662466927, 0.5698402909980532])  # Kronecker sequence in two dimensions


class WeightedTime(NamedTuple):
    """A time and the length of time that it stands for."""

    time: float
    weight: float


@dataclass(frozen=True)
class TimeBins:
    """Bins of the times from 0 to `span`; what is integrated hardly changes within `scale`."""

    span: float
    scale: float

    @property
    def count(self) -> int:
        return max(1, math.ceil(self._length / _BIN_WIDTH)) if self.span > 0 else 0

    def in_bin(self, index: int, u: float) -> WeightedTime:
        """The time at a fraction u of a bin."""
        width = self._length / self.count
        return self._at((index + u) * width, width)

    def in_span(self, u: float) -> WeightedTime:
        """The time at a fraction u of all bins together."""
        return self._at(u * self._length, self._length)

    @property
    def _length(self) -> float:
        return (1 + _END_WEIGHT) * math.log1p(self.span / self.scale)

    def _at(self, v: float, width: float) -> WeightedTime:
        low, high = 0.0, self.span
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._v(middle) < v else (low, middle)
        density = 1 / (self.scale + low) + _END_WEIGHT / (self.scale + self.span - low)
        return WeightedTime(low, width / density)

    def _v(self, x: float) -> float:
        late = math.log1p(self.span / self.scale) - math.log1p((self.span - x) / self.scale)
        return math.log1p(x / self.scale) + _END_WEIGHT * late


def kronecker(offset: np.ndarray, index: int) -> np.ndarray:
    """Two fractions that fill the unit square evenly as the index grows."""
    return (offset + index * _STEPS) % 1.0
