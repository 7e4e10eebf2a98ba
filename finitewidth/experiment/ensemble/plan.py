"""What is to be done with every member of an ensemble: a hashable record, so that it is compiled once."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.inputs import as_number
from finitewidth.network.algorithm import (
    Algorithm,
    GradientDescent,
    GradientFlow,
    Newton,
    StochasticGradientDescent,
    TwoStep,
)
from finitewidth.network.loss import MSE, CrossEntropy, Loss
from finitewidth.network.network import Network

MAX_STEPS = 100_000


class Control(NamedTuple):
    """A control variate for the mean of trained outputs.

    `function` takes the outputs (N, n_L) of one member at initialization, on training and then test inputs,
    to an array of that shape whose exact mean over members is `mean`. What infinitely wide networks predict
    is such a function: it is affine in the initial outputs, and their mean is zero.
    """

    function: Callable
    mean: np.ndarray


@dataclass(frozen=True)
class Plan:
    """The network, how it is trained, when that stops and what is recorded."""

    net: Network
    algorithm: Algorithm
    loss: Loss
    train_count: int
    points: tuple[float, ...]  # steps or times of records; the last one is the end, perhaps infinite
    training_error: float | None  # a member stops when its loss is this close to the smallest possible
    tolerance: float  # of the integration of gradient flow
    max_steps: int
    ntk: bool
    kernels: bool
    control: Callable | None
    floor: float  # the smallest possible loss

    @property
    def pattern(self) -> "Plan":
        """What is compiled: the plan without the numbers that `numbers` hands to it."""
        algorithm = self.algorithm
        stochastic = isinstance(algorithm, StochasticGradientDescent)
        match algorithm:
            case GradientDescent():
                algorithm = GradientDescent(1.0)
            case StochasticGradientDescent():
                algorithm = StochasticGradientDescent(1.0, 0, algorithm.batch_size)
            case GradientFlow():
                algorithm = GradientFlow()
            case _:
                return self
        return dataclasses.replace(
            self,
            algorithm=algorithm,
            points=(0.0,) * len(self.points),
            training_error=1.0 if stochastic and self.training_error is not None else None,
            max_steps=self.max_steps if isinstance(algorithm, GradientFlow) else 1,
            tolerance=1.0,
            floor=0.0,
        )

    @property
    def numbers(self) -> "Numbers":
        """What may change without compiling again."""
        steps = [self.max_steps if math.isinf(point) else point for point in self.points]
        error = -math.inf if self.training_error is None else self.training_error
        values = (
            np.asarray(self.points),
            np.asarray(steps),
            getattr(self.algorithm, "learning_rate", 0.0),
            getattr(self.algorithm, "decay", 0.0),
            self.floor + error,
            self.tolerance,
        )
        return Numbers(*(np.asarray(value, dtype=np.float64) for value in values))


class Numbers(NamedTuple):
    """The numbers of a plan."""

    points: Float[Array | np.ndarray, " records"]
    steps: Float[Array | np.ndarray, " records"]  # the points in steps, an endless one as the largest number
    learning_rate: Float[Array | np.ndarray, ""]
    decay: Float[Array | np.ndarray, ""]
    low_enough: Float[Array | np.ndarray, ""]  # the loss at which a member stops
    tolerance: Float[Array | np.ndarray, ""]


def end_of(algorithm: Algorithm) -> float:
    """The step or the time at which training ends."""
    match algorithm:
        case GradientFlow():
            return algorithm.time
        case GradientDescent() | StochasticGradientDescent():
            return float(algorithm.steps)
        case Newton():
            return 1.0
        case TwoStep():
            return 2.0
    raise ValueError(
        f"algorithm must be GradientFlow, GradientDescent, StochasticGradientDescent, Newton or TwoStep, "
        f"got {algorithm!r}."
    )


def record_points(algorithm: Algorithm, record_at: Sequence[float]) -> tuple[float, ...]:
    """Where records are taken, ascending and with the end."""
    end = end_of(algorithm)
    flowing = isinstance(algorithm, GradientFlow)
    try:
        points = {float(point) for point in record_at}
    except (TypeError, ValueError):
        raise ValueError(f"record_at must be a sequence of numbers, got {record_at!r}.") from None
    for point in sorted(points):
        if not 0 <= point <= end:
            raise ValueError(f"record_at must lie between 0 and the end {end:g}, got {point:g}.")
        if not flowing and math.isfinite(point) and point != int(point):
            raise ValueError(f"record_at must be whole numbers of steps, got {point:g}.")
    return tuple(sorted(points | {end}))


def smallest_loss(loss: Loss, Y: np.ndarray) -> float:
    """Zero for the squared error; the entropy of the targets for cross-entropy."""
    if isinstance(loss, MSE):
        return 0.0
    positive = Y[Y > 0]
    return float(-np.sum(positive * np.log(positive)))


def check_targets(Y: np.ndarray, loss: Loss) -> None:
    """Refuse losses that are not known, and targets of cross-entropy that are no distributions."""
    if isinstance(loss, CrossEntropy):
        _check_distributions(Y)
    elif not isinstance(loss, MSE):
        raise ValueError(f"loss must be MSE() or CrossEntropy(), got {loss!r}.")


def _check_distributions(Y: np.ndarray) -> None:
    if Y.shape[1] < 2:
        raise ValueError("cross-entropy needs at least two classes, but n_L is 1; use MSE().")
    wrong = (Y < 0).any(axis=1) | (np.abs(Y.sum(axis=1) - 1) > 1e-9)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"Y_train must be distributions over classes for CrossEntropy, but row {row} is not; "
            "use numbers of at least 0 that sum to 1."
        )


def stopping_error(algorithm: Algorithm, training_error, floor: float, Y: np.ndarray) -> float | None:
    """As given; for endless training 1e-12 of the squared targets, or of the entropy scale."""
    if training_error is None:
        if not math.isinf(end_of(algorithm)):
            return None
        return 1e-12 * max(0.5 * float(np.sum(Y**2)), 1e-3, floor)
    if 0 < as_number(training_error) < math.inf:
        return float(training_error)
    raise ValueError(f"training_error must be a positive number, got {training_error!r}.")
