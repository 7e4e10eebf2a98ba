r"""Times on a replayed trajectory, drawn so that a sum over them is an unbiased estimate of an integral.

Times from 0 to S are spread evenly in

$$v(x) = \log(1 + x/c) + \tfrac12 [\log(1 + S/c) - \log(1 + (S - x)/c)],$$

so that both ends are resolved down to the scale c: early times, at which large modes are learned, and the
last ones, whose effects the training set has no time to absorb. Bins of v are strata, and points of a
Kronecker sequence fill a bin evenly. A sum over steps of descent, $\eta \sum_j f(j)$, is the integral of
$f(\lfloor x / \eta \rfloor)$, so that descent needs nothing of its own.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_WIDTH = 0.8  # of a bin
_END = 0.5  # weight of the logarithm that resolves the end
_STEPS = np.array([0.7548776662466927, 0.5698402909980532])  # Kronecker sequence in two dimensions


class Drawn(NamedTuple):
    """A time and the length of time that it stands for."""

    time: float
    weight: float


@dataclass(frozen=True)
class Times:
    """Times from 0 to `span`, of which those below `scale` look alike."""

    span: float
    scale: float

    @property
    def bins(self) -> int:
        return max(1, math.ceil(self._whole / _WIDTH)) if self.span > 0 else 0

    def in_bin(self, index: int, u: float) -> Drawn:
        """The time at a fraction u of a bin."""
        width = self._whole / self.bins
        return self._at((index + u) * width, width)

    def anywhere(self, u: float) -> Drawn:
        """The time at a fraction u of all."""
        return self._at(u * self._whole, self._whole)

    @property
    def _whole(self) -> float:
        return (1 + _END) * math.log1p(self.span / self.scale)

    def _at(self, v: float, width: float) -> Drawn:
        low, high = 0.0, self.span
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._even(middle) < v else (low, middle)
        density = 1 / (self.scale + low) + _END / (self.scale + self.span - low)
        return Drawn(low, width / density)

    def _even(self, x: float) -> float:
        late = math.log1p(self.span / self.scale) - math.log1p((self.span - x) / self.scale)
        return math.log1p(x / self.scale) + _END * late


def kronecker(offset: np.ndarray, index: int) -> np.ndarray:
    """Two fractions that fill the unit square evenly as the index grows."""
    return (offset + index * _STEPS) % 1.0
