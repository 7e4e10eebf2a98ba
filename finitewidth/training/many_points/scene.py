"""What all samples of a problem share: modes, targets, kernels and source layers, in working precision."""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from finitewidth.network.algorithms.clock import Clock
from finitewidth.theory.unrolled.unroll import Unrolled
from finitewidth.training.many_points.moments import Replay
from finitewidth.training.many_points.source_layer import SourceLayer, kernel_root

PROBES = 16  # random columns of the roots of K and of Y Y^T + n_L K; with as many as samples they are exact
_SINGLE = 1e5  # beyond this l_max T, sums of many modes lose too many digits in single precision


@dataclass(frozen=True, eq=False)
class Scene:
    """A replayed training: its modes and times, and the source layers of the network."""

    clock: Clock
    unrolled: Unrolled
    l: np.ndarray  # eigenvalues of the training NTK, (N_A,)
    vectors: np.ndarray  # of training samples and modes, (N_A, N_A)
    rows: np.ndarray  # mean NTK between all samples and modes, (N, N_A)
    kernel: np.ndarray  # K between modes, (N_A, N_A): residuals of one output at two modes, on average
    pair: np.ndarray  # Y Y^T + n_L K between modes, (N_A, N_A): the same summed over outputs
    y: np.ndarray  # targets of modes, or other vectors whose effect is asked for, (columns, N_A)
    outputs: int  # n_L
    wires: np.ndarray | None = None  # targets of the output that each column is about, (columns, N_A)

    def __getstate__(self) -> dict:
        """What is sent to workers: the fields, from which they make the rest."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @functools.cached_property
    def replay(self) -> Replay:
        return Replay(self.clock, self.l)

    @functools.cached_property
    def real(self) -> type:
        """The precision of samples; their sums are in double precision.

        For the same key, double precision changes a task by 1e-6 to 1e-5 of its value (100 and 300 digits,
        l_max T = 1000), where tasks differ by as much as their values, and takes 1.5 times as long.
        """
        return np.float32 if self.l[-1] * self.replay.duration < _SINGLE else np.float64

    @functools.cached_property
    def layers(self) -> list[SourceLayer]:
        return [SourceLayer.of(source, self.real) for source in self.unrolled.sources]

    @property
    def count(self) -> int:
        """The number of training samples N_A."""
        return self.l.size

    @functools.cached_property
    def roots(self) -> tuple[np.ndarray, np.ndarray]:
        """Of K and of Y Y^T + n_L K between training samples."""
        first, second = (kernel_root(self.between(m)).astype(self.real) for m in (self.kernel, self.pair))
        return first, second

    def with_columns(self, y: np.ndarray, wires: np.ndarray) -> "Scene":
        """The same with other vectors and wires, and all that was made already."""
        other = dataclasses.replace(self, y=y, wires=wires)
        made = {name: value for name, value in self.__dict__.items() if name not in other.__dict__}
        other.__dict__.update(made)
        return other

    def between(self, symbol: np.ndarray) -> np.ndarray:
        """A function of modes, or of two of them, as a matrix between training samples."""
        V = self.vectors
        return (V * symbol) @ V.T if symbol.ndim == 1 else V @ symbol @ V.T

    def targets(self, symbol: np.ndarray) -> np.ndarray:
        """A function of modes on the targets, (N_A, columns)."""
        return self.vectors @ (symbol[:, None] * self.y.T)

    def wired(self, symbol: np.ndarray) -> np.ndarray:
        """A function of modes on the wires, (N_A, wires); none for the mean."""
        if self.wires is None:
            return np.empty((self.count, 0))
        return self.vectors @ (symbol[:, None] * self.wires.T)

    def joined(self, left: np.ndarray, right: np.ndarray, *, pair: bool) -> np.ndarray:
        """Left times K, or Y Y^T + n_L K, times right, between training samples."""
        inner = self.pair if pair else self.kernel
        return self.between(inner * np.outer(left, right))

    def reached(self, effect: np.ndarray, left: float) -> np.ndarray:
        """What is left of an effect (N, columns) on the outputs when training ends."""
        absorbed = self.replay.absorbed(left)
        return effect - (self.rows * absorbed) @ (self.vectors.T @ effect[: self.count])
