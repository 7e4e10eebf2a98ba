"""What all samples of a problem share: modes, targets, kernels and source layers, in working precision."""

import functools
from dataclasses import dataclass

import numpy as np

from finitewidth.network.algorithms.clock import Clock
from finitewidth.theory.unrolled.unroll import Unrolled
from finitewidth.training.first_order.modes import Modes
from finitewidth.training.many_points.moments import Replay
from finitewidth.training.many_points.source_layer import SourceLayer, kernel_root

PROBES = 16  # random columns of the roots of K and of Y Y^T + n_L K; with as many as samples they are exact
_SINGLE = 1e5  # beyond this l_max T, sums of many modes lose too many digits in single precision


@dataclass(frozen=True, eq=False)
class Scene:
    """A replayed training: its modes and times, and the source layers of the network."""

    modes: Modes
    clock: Clock
    unrolled: Unrolled

    @functools.cached_property
    def replay(self) -> Replay:
        return Replay(self.clock, self.modes.l)

    @functools.cached_property
    def real(self) -> type:
        """The precision of samples. Their sums are in double precision, and noise is far above rounding."""
        return np.float32 if self.modes.l[-1] * self.replay.duration < _SINGLE else np.float64

    @functools.cached_property
    def layers(self) -> list[SourceLayer]:
        return [SourceLayer.of(source, self.real) for source in self.unrolled.sources]

    @property
    def count(self) -> int:
        """The number of training samples N_A."""
        return self.modes.count

    @property
    def outputs(self) -> int:
        return self.modes.outputs

    @functools.cached_property
    def roots(self) -> tuple[np.ndarray, np.ndarray]:
        """Of K and of Y Y^T + n_L K between training samples."""
        V = self.modes.vectors
        matrices = self.modes.training_kernel, self.modes.pair
        first, second = (kernel_root(V @ m @ V.T).astype(self.real) for m in matrices)
        return first, second

    @functools.cached_property
    def _rows(self) -> np.ndarray:
        """H between all samples and training modes, (N, N_A)."""
        return self.modes.back(self.modes.H[:, : self.count])

    def between(self, symbol: np.ndarray) -> np.ndarray:
        """A function of modes, or of two of them, as a matrix between training samples."""
        V = self.modes.vectors
        return (V * symbol) @ V.T if symbol.ndim == 1 else V @ symbol @ V.T

    def targets(self, symbol: np.ndarray) -> np.ndarray:
        """A function of modes on the targets, (N_A, n_L)."""
        return self.modes.vectors @ (symbol[:, None] * self.modes.y.T)

    def joined(self, left: np.ndarray, right: np.ndarray, *, pair: bool) -> np.ndarray:
        """Left times K, or Y Y^T + n_L K, times right, between training samples."""
        inner = self.modes.pair if pair else self.modes.training_kernel
        return self.between(inner * np.outer(left, right))

    def reached(self, effect: np.ndarray, left: float) -> np.ndarray:
        """What is left of an effect (N, n_L) on the outputs when training ends."""
        absorbed = self.replay.absorbed(left)
        return effect - (self._rows * absorbed) @ (self.modes.vectors.T @ effect[: self.count])
