"""The plan for every member of an ensemble: a hashable record, so that training is compiled once."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.inputs import as_number
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.network import Network

MAX_STEPS = 100_000


class Control(NamedTuple):
    """A control variate for the mean of trained outputs, and perhaps for their covariance.

    The prediction of infinitely wide networks is one: it is affine in the initial outputs, whose mean is
    zero.

    Args:
        function: It takes the outputs (N, n_L) of one member at initialization, on training and then test
            inputs, to an array of that shape.
        mean: The exact mean of that array over members.
        linear: Whether `function` is a matrix over samples that acts on each output alone, and `mean` is
            zero. Then the covariance of trained outputs is controlled as well, where the last layer is dense.

    ```python
    fw.records.Control(lambda z: 0.5 * z, mean=np.zeros((5, 1)), linear=True)
    ```
    """

    function: Callable
    mean: np.ndarray
    linear: bool = False


@dataclass(frozen=True)
class Plan:
    """The network, its training, when training stops, and which records are taken."""

    net: Network
    algorithm: AbstractAlgorithm
    loss: AbstractLoss
    train_count: int
    points: tuple[float, ...]  # steps or times of records; the last one is the end, perhaps infinite
    training_error: float | None  # a member stops when its loss is this close to the smallest possible
    tolerance: float  # of the integration of gradient flow
    max_steps: int
    ntk: bool
    kernels: bool
    control: Callable | None
    controls_covariance: bool
    floor: float  # the smallest possible loss

    @property
    def numbers(self) -> "Numbers":
        """The numbers that may change without compiling again."""
        steps = [self.max_steps if math.isinf(point) else point for point in self.points]
        error = -math.inf if self.training_error is None else self.training_error
        return Numbers(
            np.asarray(self.points, dtype=np.float64),
            np.asarray(steps, dtype=np.float64),
            {name: np.asarray(value, dtype=np.float64) for name, value in self.algorithm.numbers.items()},
            np.asarray(self.floor + error, dtype=np.float64),
            np.asarray(self.tolerance, dtype=np.float64),
        )


class Numbers(NamedTuple):
    """The numbers of a plan."""

    points: Float[Array | np.ndarray, " records"]
    steps: Float[Array | np.ndarray, " records"]  # the points in steps, an endless one as the largest number
    algorithm: Mapping[str, Float[Array | np.ndarray, ""]]  # its own numbers, such as the learning rate
    low_enough: Float[Array | np.ndarray, ""]  # the loss at which a member stops
    tolerance: Float[Array | np.ndarray, ""]


def record_points(end: float, record_at: Sequence[float], *, counts_steps: bool) -> tuple[float, ...]:
    """Times or steps of records, ascending and with the end."""
    try:
        points = {float(point) for point in record_at}
    except (TypeError, ValueError):
        raise ValueError(f"record_at must be a sequence of numbers, got {record_at!r}.") from None
    for point in sorted(points):
        if not 0 <= point <= end:
            raise ValueError(f"record_at must lie between 0 and the end {end:g}, got {point:g}.")
        if counts_steps and math.isfinite(point) and point != int(point):
            raise ValueError(f"record_at must be whole numbers of steps, got {point:g}.")
    return tuple(sorted(points | {end}))


def stopping_error(end: float, training_error, floor: float, Y: np.ndarray) -> float | None:
    """As given; for endless training 1e-12 of the squared targets or of the smallest loss."""
    if training_error is None:
        if not math.isinf(end):
            return None
        return 1e-12 * max(0.5 * float(np.sum(Y**2)), 1e-3, floor)
    if 0 < as_number(training_error) < math.inf:
        return float(training_error)
    raise ValueError(f"training_error must be a positive number, got {training_error!r}.")
