"""What a solution at order 1/n is asked for and gives, and its tasks: the four-leg averages of each layer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from finitewidth.core.tasks import Runner
from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.gaussian.four_legs.families import FAMILIES
from finitewidth.network.network import Network
from finitewidth.theory.architectures.gains import averages_with_gains
from finitewidth.theory.feature_products import FourLegs
from finitewidth.theory.recursion import State
from finitewidth.theory.steps import Step
from finitewidth.theory.tensors import BARE_TENSORS, MATRICES, existing


class Solved(NamedTuple):
    """Statistics by layer and name, and the errors of the averages."""

    layers: dict[int, dict[str, np.ndarray]]
    error: float
    four_leg_error: float = 0.0
    memory_error: float | None = 0.0  # None where it is not known


class Request(NamedTuple):
    """What to compute at order 1/n, and how accurately."""

    kept: set[int]
    names: tuple[str, ...]
    tolerance: float
    accuracy: float  # of four-leg averages
    remember: bool | int  # whether neurons remember more of their past than pairs, or up to how many lines

    def at(self, net: Network, layer: int) -> tuple[str, ...]:
        """The tensors asked for that exist at a layer."""
        return tuple(name for name in self.names if name in existing(net, layer))

    def is_bare(self, net: Network) -> bool:
        """Whether only what kinks leave between parallel inputs is asked for."""
        return not net.is_smooth and set(self.names) <= set(BARE_TENSORS)


class Legs(NamedTuple):
    """What the four-leg averages of a layer are of; all that a task needs to be sent."""

    activation: Any
    K: np.ndarray
    smooth: bool
    with_gains: bool = False  # of a norm in front that learn
    kernel_only: bool = False

    @classmethod
    def of(cls, step: Step) -> "Legs":
        gains = bool(step.gain) and not step.kernel_only
        return cls(step.activation, step.K, step.smooth, gains, step.kernel_only)


def averages_of(legs: Sequence[Legs], accuracy: float, task: int) -> FourLegs:
    """Four-leg averages of one layer: the slow part, which needs nothing but the layer's kernel."""
    activation, K, smooth, with_gains, kernel_only = legs[task]
    highest = 0 if kernel_only else 9 if smooth else 1
    families = [family for family in FAMILIES if max(family) <= highest]
    averages = FourLegs.of(four_legs(activation, K, families, tolerance=accuracy))
    return averages_with_gains(averages, activation, K, accuracy) if with_gains else averages


def averaged(
    running: Runner, work: Callable[[int], FourLegs], count: int, what: str, name: str = "layers"
) -> Iterator[FourLegs]:
    """The results of these tasks in order; a store names averages by their derivative orders."""
    return running.results(
        work,
        count,
        name=name,
        what=what,
        to_arrays=FourLegs.to_arrays,
        from_arrays=FourLegs.from_arrays,
    )


def arrays_of(state: State, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The statistics of a layer by letter."""
    matrices = {name: getattr(state, name) for name in MATRICES if getattr(state, name) is not None}
    tensors, zero = state.tensors(), (state.K.shape[0],) * 4
    return matrices | {name: tensors[name] if name in tensors else np.zeros(zero) for name in names}
