"""What is asked of an ensemble, and the plan for each member: hashable, so that training is compiled once."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.inputs import as_count, as_number, as_positive
from finitewidth.core.methods import AbstractMethod
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.network import Network


@dataclass(frozen=True)
class Stepping(AbstractMethod):
    """How real networks are stepped towards the end of their training.

    Args:
        tolerance: The accuracy of gradient flow.
        max_steps: The most updates of endless training, and of gradient flow.
        training_error: A member stops when its loss is within this of the smallest possible loss. Endless
            training always ends in this way, by default at 1e-12 of the scale of the loss.

    ```python
    fw.train_ensemble(
        net, X, Y, X_test, algorithm=fw.GradientFlow(), members=5, key=0,
        method=fw.Stepping(training_error=1e-3),
    ).steps
    ```
    """

    tolerance: float = 1e-8
    max_steps: int = 100_000
    training_error: float | None = None

    def __post_init__(self):
        if not 1e-14 <= as_number(self.tolerance) <= 0.1:
            raise ValueError(
                f"tolerance must be a number from 1e-14 to 0.1, got {self.tolerance!r}; use 1e-8."
            )
        as_count("max_steps", self.max_steps, lowest=1)
        if self.training_error is not None:
            as_positive("training_error", self.training_error)


@dataclass(frozen=True)
class Record:
    """What an ensemble records beside outputs and loss at the end.

    Args:
        at: Steps or times of further records, before the end.
        ntk: Whether to record the NTK.
        kernels: Whether to record the kernels of hidden layers.
        members: Whether the store of the run keeps the outputs of every member.

    ```python
    fw.train_ensemble(
        net, X, Y, X_test, algorithm=fw.GradientDescent(0.1, 20), members=5, key=0,
        record=fw.Record(at=(0, 10), ntk=True),
    ).ntk.value.shape
    ```
    """

    at: Sequence[float] = ()
    ntk: bool = False
    kernels: bool = False
    members: bool = False

    def __post_init__(self):
        try:
            object.__setattr__(self, "at", tuple(sorted({float(point) for point in self.at})))
        except (TypeError, ValueError):
            raise ValueError(f"at must be a sequence of numbers, got {self.at!r}.") from None
        if any(math.isnan(point) for point in self.at):
            raise ValueError(f"at must be finite numbers, got {self.at!r}.")
        for name in ("ntk", "kernels", "members"):
            value = getattr(self, name)
            if not isinstance(value, bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {value!r}.")

    def points(self, end: float, *, counts_steps: bool) -> tuple[float, ...]:
        """Times or steps of all records, ascending and with the end."""
        for point in self.at:
            if not 0 <= point <= end:
                raise ValueError(f"at must lie between 0 and the end {end:g}, got {point:g}.")
            if counts_steps and math.isfinite(point) and point != int(point):
                raise ValueError(f"at must be whole numbers of steps, got {point:g}.")
        return tuple(sorted({*self.at, end}))


class Control(NamedTuple):
    """A control variate for the mean of trained outputs, and perhaps for their covariance.

    The prediction of infinitely wide networks is one: it is affine in the initial outputs, whose mean is
    zero.

    ```python
    fw.records.Control(lambda z: 0.5 * z, mean=np.zeros((5, 1)), linear=True)
    ```
    """

    # takes the outputs (N, n_L) of one member at initialization, on training and then test inputs, to an
    # array of that shape
    function: Callable
    mean: np.ndarray  # the exact mean of that array over members
    # whether `function` is a matrix over samples that acts on each output alone, and `mean` is zero: then the
    # covariance of trained outputs is controlled as well, where the last layer is dense
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


def stopping_error(end: float, asked: float | None, floor: float, Y: np.ndarray) -> float | None:
    """As asked; for endless training 1e-12 of the squared targets or of the smallest loss."""
    if asked is not None or not math.isinf(end):
        return asked
    return 1e-12 * max(0.5 * float(np.sum(Y**2)), 1e-3, floor)
