"""What the theory asks of a kind of layer at infinite width; found by the type of the layer.

A kind of layer is known once a file of this folder registers it:

    @register
    def _(layer: Dense, shape: Shape, assembly: Assembly) -> AbstractStep: ...
"""

import abc
import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.core.rooms import import_modules
from finitewidth.gaussian.two_legs.legs import Side
from finitewidth.network.layers.abstract import AbstractLayer, Shape
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs, ordered
from finitewidth.theory.layers.workspace import Workspace


class Assembly:
    """What is counted while the steps of a network are made."""

    def __init__(self):
        self.layers = 0  # with weights
        self.slots = 0  # of steps that need to know single samples
        self.gain_rate = 0.0  # learning rates of the gains of norms since the last weights, added up

    def next_slot(self) -> int:
        """The place of a step among those that need to know single samples."""
        self.slots += 1
        return self.slots - 1

    def next_layer(self) -> int:
        """The next layer with weights."""
        self.layers += 1
        return self.layers


class AbstractBlock(abc.ABC):
    """A block of pairs of samples on its way through a network, as the steps see it."""

    workspace: Workspace
    measured: "dict[int, np.ndarray] | None" = None  # in a pass of samples with themselves: slot and value
    error: float = 0.0  # of averages so far, in units of the scale that each lives on
    sampling_error: float = 0.0  # the standard error of averages over draws, in units of the largest entry

    @abc.abstractmethod
    def sides(self, step: "AbstractStep", pairs: Pairs) -> tuple[Side, Side]:
        """The legs of both sides in front of an activation, for all pairs of sites."""

    @abc.abstractmethod
    def of_samples(self, step: "AbstractStep") -> tuple[np.ndarray, np.ndarray]:
        """What the step measured of the samples along rows and columns, (..., A, 1) and (..., 1, B)."""

    @abc.abstractmethod
    def of_sites(self, step: "AbstractStep", pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        """The same at both sites of all pairs, (1, P, A, 1) and (D, P, 1, B)."""

    @abc.abstractmethod
    def same(self, pairs: Pairs) -> np.ndarray | None:
        """Marks where both sites are one and the same of equal inputs, (D, 1, A, B); None if nowhere."""

    @abc.abstractmethod
    def record(self, layer: int, pairs: Pairs) -> None:
        """Take note of the pairs behind a layer with weights."""


class AbstractStep(abc.ABC):
    """One layer acting on the kernel K and the NTK Theta of pairs of sites."""

    grid: Grid  # in front of the layer
    slot: int | None = None  # where the layer needs to know single samples: its place among such layers
    mixes: bool = False  # whether it adds pairs with different displacements, or images of different sizes

    @property
    def behind(self) -> Grid:
        """The positions behind the layer."""
        return self.grid

    def asks(self, wanted: Displacements) -> Displacements:
        """The displacements in front of the layer that those behind it need."""
        return wanted

    def takes(self, wanted: Displacements, *, measuring: bool) -> Displacements:
        """The displacements that `apply` is given; while measuring, also those that layers inside measure."""
        return self.asks(wanted) if wanted else ()

    @property
    def measured(self) -> Displacements:
        """The displacements within single samples that `measure` needs."""
        return () if self.slot is None else (self.grid.zero,)

    def measure(self, pairs: Pairs) -> np.ndarray:
        """What the layer needs to know of single samples, from pairs of a sample with itself, (..., A)."""
        return pairs.K[pairs.displacements.index(self.grid.zero), :, :, 0].copy()

    @abc.abstractmethod
    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        """The pairs behind the layer. Arrays of `pairs` may be overwritten, or given to the workspace."""


class BlockShape(NamedTuple):
    """The samples along rows and columns of a block, and whether it has an NTK."""

    rows: int
    columns: int
    has_ntk: bool


class AbstractMixing(AbstractStep):
    """A linear layer without parameters of its own that adds pairs of different displacements."""

    mixes = True

    @abc.abstractmethod
    def gathered(
        self, chunks: Iterator[Pairs], wanted: Displacements, like: BlockShape, workspace: Workspace
    ) -> Pairs:
        """The pairs behind the layer from chunks of those in front of it, which go to the workspace."""

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        like = BlockShape(pairs.K.shape[2], pairs.K.shape[3], pairs.Theta is not None)
        return self.gathered(iter((pairs,)), wanted, like, block.workspace)


@dataclass(frozen=True)
class Chain:
    """Steps one behind the other, with the number of the layer that each ends, if it ends one."""

    grid: Grid  # in front
    steps: tuple[AbstractStep, ...]
    numbers: tuple[int | None, ...]

    @classmethod
    def of(
        cls,
        layers: Sequence[AbstractLayer],
        shape: Shape,
        assembly: Assembly,
        *,
        counted: bool = True,
        ends_inside: bool = False,
    ) -> "Chain":
        """The steps of layers; the last one is not counted if it `ends_inside` a larger step."""
        grid, steps, numbers = Grid(shape[:-1]), [], []
        for place, layer in enumerate(layers, start=1):
            for step in infinite_width(layer, shape, assembly):
                steps.append(step)
                numbers.append(None)
            shape = layer.output_shape(shape)
            if layer.has_weights:
                assembly.gain_rate = 0.0
            if counted and layer.has_weights and not (ends_inside and place == len(layers)):
                numbers[-1] = assembly.next_layer()
        return cls(grid, tuple(steps), tuple(numbers))

    @property
    def behind(self) -> Grid:
        return self.steps[-1].behind if self.steps else self.grid

    @functools.cached_property
    def _known(self) -> "dict[tuple, tuple[Displacements, ...]]":
        return {}  # what blocks asked before

    def asked(
        self, wanted: Displacements, start: int = 0, end: int | None = None, *, measuring: bool = False
    ) -> tuple[Displacements, ...]:
        """The displacements in front of steps `start` ... `end`, and behind the last of them."""
        key = wanted, start, end, measuring
        if key not in self._known:
            sets = [wanted]
            for step in reversed(self.steps[start:end]):
                taken = step.takes(sets[-1], measuring=measuring)
                sets.append(ordered((*taken, *step.measured)) if measuring else taken)
            self._known[key] = tuple(sets[::-1])
        return self._known[key]

    def apply(
        self,
        pairs: Pairs,
        wanted: Displacements,
        block: AbstractBlock,
        start: int = 0,
        end: int | None = None,
    ) -> Pairs:
        """The pairs behind the steps from `start` to `end`."""
        measuring = block.measured is not None
        sets = self.asked(wanted, start, end, measuring=measuring)
        places = zip(self.steps[start:end], self.numbers[start:end], sets, sets[1:], strict=False)
        for step, number, front, behind in places:
            if not front:  # no step from here on measures anything
                break
            if block.measured is not None and step.slot is not None:
                block.measured[step.slot] = step.measure(pairs)
            taken = step.takes(behind, measuring=True) if measuring else front
            if not taken:
                break
            pairs = step.apply(pairs.only(taken), behind, block)
            if number is not None and behind:
                block.record(number, pairs)
        return pairs


@functools.singledispatch
def _registered(layer: AbstractLayer, shape: Shape, assembly: Assembly) -> AbstractStep | list[AbstractStep]:
    raise ValueError(f"{layer!r} has no kernel in the theory; use another layer.")


register = _registered.register


@functools.cache
def _discover() -> None:
    import_modules(sys.modules[__name__.rpartition(".")[0]])


def infinite_width(layer: AbstractLayer, shape: Shape, assembly: Assembly) -> list[AbstractStep]:
    """The steps of a layer at infinite width, for samples of this shape in front of it; mostly one."""
    _discover()
    made = _registered(layer, shape, assembly)
    return made if isinstance(made, list) else [made]
