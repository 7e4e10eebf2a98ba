"""How large corrections of order 1/n are on the training points, at the end of training and on the way there.

The next order is a share of order 1/n, and this share belongs to the problem: it is read off where
corrections are largest along the training of the training points, whatever test inputs are asked about.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow

DDNTKS = ("ddntk_1", "ddntk_2")
LEARNED = ("dntk", *DDNTKS)  # contributions of an NTK that moves
CANCELLED = 0.2  # how much contributions that cancel still count
_FACTOR = 3.0  # between one time and the next
_MOST = 12  # times
_FADED = 10.0  # time constants of the slowest mode, after which corrections only fade


class Sizes(NamedTuple):
    """Root mean squares over training points at one time."""

    learning: float  # absolute contributions of both ddNTKs to the mean
    spread: float  # the correction of the variance
    mean: np.ndarray  # what order 1/n^2 changes, of each output (n_L,)
    variance: np.ndarray

    @classmethod
    def of(cls, mean: Mapping[str, np.ndarray], variance: Mapping[str, np.ndarray]) -> "Sizes":
        """From contributions on the training points, (N_A, n_L) each."""
        spread = sum(variance.values(), np.zeros(1))
        return cls(rms(learning(mean)), rms(spread), *(rms(changed(p), axis=0) for p in (mean, variance)))


def learning(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    """The absolute contributions of both ddNTKs."""
    return sum((np.abs(parts[name]) for name in DDNTKS if name in parts), np.zeros(1))


def changed(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the next order changes: a frozen NTK, learning and a part of what cancels, in quadrature."""
    zero = np.zeros_like(next(iter(parts.values())))
    total, size = sum(parts.values(), zero), sum((abs(part) for part in parts.values()), zero)
    learned = sum((parts[name] for name in LEARNED if name in parts), zero)
    return np.sqrt((total - learned) ** 2 + learned**2 + (CANCELLED * size) ** 2)


def stops(algorithm: AbstractAlgorithm, l: np.ndarray) -> list[AbstractAlgorithm]:
    """The algorithm at times on the way to its end, by powers of three of the shortest time constant.

    An algorithm whose time does not pass is represented by gradient flow to the end of training.
    """
    clock = algorithm.clock
    if clock is None:
        algorithm, clock = GradientFlow(), GradientFlow().clock
    slowest = max(l[0], l[-1] / _FACTOR ** (_MOST - 3))
    last = min(clock.duration, _FADED / slowest / (clock.eta or 1.0))
    times = _FACTOR ** np.arange(_MOST) / l[-1] / (clock.eta or 1.0)
    times = times[times < last]
    if clock.eta:
        times = np.unique(np.maximum(np.round(times), 1.0))
    return [algorithm.at_time(float(time)) for time in times if time < clock.duration]


def rms(values: np.ndarray, axis: int | None = None) -> Any:
    return np.sqrt(np.mean(np.square(values), axis=axis)) if values.size else 0.0
