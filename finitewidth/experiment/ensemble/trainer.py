"""What every way of training real networks has in common."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from finitewidth.experiment.ensemble.plan import Numbers, Plan
from finitewidth.experiment.sampling import Parameters

GROWTH = 1e6  # a loss that has grown by this factor will not come back


class Members(NamedTuple):
    """The members of a batch at initialization, and the loss beyond which they have diverged."""

    parameters: Parameters
    keys: Array
    bound: Float[Array, " M"]


class Trained(NamedTuple):
    """The members of a batch after training; records have axes (records, members, ...)."""

    records: Any
    diverged: Bool[Array, " M"]
    finished: Bool[Array, " M"]  # whether it came to its end, and to its training error if one was set
    steps: Float[Array, " M"]  # updates made


class AbstractTrainer(abc.ABC):
    """One way of training real networks; an algorithm names it by its `motion`."""

    counts_steps: ClassVar[bool] = True  # training ends after a whole number of steps, else at a time
    needs_squared_error: ClassVar[bool] = False
    inverts_ntk: ClassVar[bool] = False  # of every member, which takes memory
    copies: ClassVar[int] = 4  # of the parameters, at most, while a member is trained
    remedy: ClassVar[str] = ""  # where some members diverge

    @abc.abstractmethod
    def train(
        self, plan: Plan, numbers: Numbers, X: Array, Y: Array, members: Members, observe: Callable
    ) -> Trained:
        """Train all members to the end of the plan, with records of `observe` on the way."""

    @abc.abstractmethod
    def pattern(self, plan: Plan) -> Plan:
        """The plan without the numbers that `train` takes from `numbers`: compiled once for all of them."""

    @abc.abstractmethod
    def failure(self, plan: Plan, members: int, X: np.ndarray, key_data: np.ndarray) -> str:
        """The error where all members diverge, with the remedy."""


def finished(numbers: Numbers, losses: Float[Array, " M"]) -> Bool[Array, " M"]:
    """Whether the training error was reached, where one was set."""
    return (losses <= numbers.low_enough) | jnp.isneginf(numbers.low_enough)
