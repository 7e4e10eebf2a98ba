"""A kernel matrix in panels: tasks for a cluster, and parts on disk of what memory cannot hold."""

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from finitewidth.core.checkpoint import digest
from finitewidth.core.tasks import Arrays, Runner
from finitewidth.network.network import Network
from finitewidth.theory.layers.interface import Assembly, Chain
from finitewidth.theory.pairs.block_sizes import pairs_of_sites
from finitewidth.theory.pairs.propagation import Propagation

NAME = "panels"
_WIDEST = 1024  # samples
_WORK = 1 << 31  # pairs of sites and layers of a task: some ten seconds


class Panels(NamedTuple):
    """The division of a matrix between `rows` and `columns` samples into squares of side `side`.

    Of a symmetric matrix only panels on and above the diagonal exist.
    """

    rows: int
    columns: int
    side: int
    symmetric: bool

    @classmethod
    def of(cls, net: Network, rows: int, columns: int | None) -> "Panels":
        """The division for a network; `columns` is None for a symmetric matrix. It fixes the tasks."""
        work = pairs_of_sites(Chain.of(net.layers, net.input_shape, Assembly()))
        side = max(8, min(_WIDEST, math.isqrt(_WORK // work)))
        return cls(rows, rows if columns is None else columns, side, columns is None)

    @property
    def corners(self) -> list[tuple[int, int]]:
        """The first row and column of every panel."""
        return _corners(self)

    def part(self, task: int) -> tuple[slice, slice]:
        """The rows and columns of a panel."""
        top, left = self.corners[task]
        return slice(top, min(top + self.side, self.rows)), slice(left, min(left + self.side, self.columns))


@functools.lru_cache(maxsize=8)  # every panel asks for its own
def _corners(panels: Panels) -> list[tuple[int, int]]:
    tops, lefts = (range(0, count, panels.side) for count in (panels.rows, panels.columns))
    return [(top, left) for top in tops for left in lefts if left >= top or not panels.symmetric]


class Request(NamedTuple):
    """The kernel that is asked for: between X and `other`, or X and itself, at a layer."""

    net: Network
    X: np.ndarray
    other: np.ndarray | None
    layer: int
    tolerance: float

    @property
    def panels(self) -> Panels:
        """The division of the matrix."""
        return Panels.of(self.net, self.X.shape[0], None if self.other is None else self.other.shape[0])

    def configuration(self) -> dict:
        """Everything that the kernel depends on, as plain values."""
        inputs = {"X": digest(self.X), "X_other": None if self.other is None else digest(self.other)}
        about = {"layer": self.layer, "tolerance": self.tolerance, "side": self.panels.side}
        return {"network": self.net.to_dict(), **inputs, **about}


def run_panels(running: Runner, request: Request) -> Iterator[tuple[tuple[slice, slice], Arrays]]:
    """The parts of the matrix that panels stand for, and their results, in order."""
    panels = request.panels
    work = functools.partial(_panel, request)
    results = running.results(work, len(panels.corners), name=NAME, what="kernels of pairs of inputs")
    for task, arrays in enumerate(results):
        yield panels.part(task), arrays


def _panel(request: Request, task: int) -> Arrays:
    """K and Theta of one panel, padded with zeros to the full side."""
    net, X, other, layer, tolerance = request
    panels = request.panels
    rows, columns = panels.part(task)
    second = X if other is None else other
    on_diagonal = panels.symmetric and rows == columns
    through = Propagation(net, X[rows], None if on_diagonal else second[columns], tolerance, (layer,))
    matrices, error = through.matrices()
    named = zip(("K", "Theta"), matrices[layer], strict=True)
    errors = {"error": np.asarray(error), "sampling_error": np.asarray(through.sampling_error)}
    return errors | {n: _padded(m, panels.side) for n, m in named if m is not None}


def _padded(matrix: np.ndarray, side: int) -> np.ndarray:
    return np.pad(matrix, [(0, side - size) for size in matrix.shape])


def assembled(running: Runner, request: Request) -> tuple[tuple[np.ndarray, np.ndarray | None], float, float]:
    """K and Theta, the largest error and the largest standard error of draws from the results of panels."""
    whole: Arrays = {}
    errors, panels = np.zeros(2), request.panels
    for (rows, columns), arrays in run_panels(running, request):
        own = float(arrays.pop("error")), float(arrays.pop("sampling_error", 0.0))
        errors = np.maximum(errors, own)
        for name, values in arrays.items():
            matrix = whole.setdefault(name, np.empty((panels.rows, panels.columns)))
            matrix[rows, columns] = values[: rows.stop - rows.start, : columns.stop - columns.start]
            if panels.symmetric:
                matrix[columns, rows] = matrix[rows, columns].T
    return (whole["K"], whole.get("Theta")), float(errors[0]), float(errors[1])
