"""What the theory asks of a kind of layer at infinite width; found by the type of the layer.

A kind of layer is known once a file of this folder registers it:

    @register
    def _(layer: Dense) -> AbstractStep: ...
"""

import abc
import functools
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from finitewidth.core.rooms import import_modules
from finitewidth.gaussian.tiles import Tile
from finitewidth.gaussian.two_legs.expectation import AbstractExpectation
from finitewidth.network.layers.abstract import AbstractLayer

TileStep = Callable[[np.ndarray, np.ndarray | None, np.ndarray, Tile], tuple[np.ndarray, float]]
"""From K, Theta, storage and tile to the kernel behind the layer and the relative error of its averages.

Theta is changed in place. The kernel may be written to the storage; weights, which end a block, do so.
"""


class Legs(NamedTuple):
    """The two sides of all pairs in front of a layer."""

    first: np.ndarray  # variances of the rows
    second: np.ndarray  # variances of the columns; the same object where rows and columns are the same
    has_ntk: bool
    largest_correlation: Callable[[], float]  # between different samples


class AbstractStep(abc.ABC):
    """One layer acting on the kernel K and the NTK Theta of pairs of samples."""

    @abc.abstractmethod
    def on_tiles(self, legs: Legs, rule: AbstractExpectation) -> TileStep:
        """Prepare what depends on single samples, and return the step of a tile."""

    @abc.abstractmethod
    def of_variances(self, variances: np.ndarray, rule: AbstractExpectation) -> np.ndarray:
        """The kernel of samples with themselves (N,), behind the layer."""


@functools.singledispatch
def _registered(layer: AbstractLayer) -> AbstractStep:
    raise ValueError(f"{layer!r} has no kernel in the theory; use another layer.")


register = _registered.register


@functools.cache
def _discover() -> None:
    import_modules(sys.modules[__name__.rpartition(".")[0]])


def infinite_width(layer: AbstractLayer) -> AbstractStep:
    """The step of a layer at infinite width."""
    _discover()
    return _registered(layer)
