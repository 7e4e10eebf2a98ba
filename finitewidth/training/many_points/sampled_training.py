"""What all samples of a problem share: modes, targets, kernels and source layers, in working precision.

A training can be too long for samples: bins of time grow as log(l_max T), and the last of them are found from
differences of times, whose rounding is 1e-16 l_max T of the shortest scale. Factors of a mode after many
steps lose 1e-16 for each step.
"""

import dataclasses
import functools
import math
from dataclasses import dataclass

import numpy as np

from finitewidth.network.algorithms.clock import Clock
from finitewidth.theory.unrolled.unroll import Unrolled
from finitewidth.training.many_points.source_layer import SourceLayer, kernel_root
from finitewidth.training.many_points.time_integrals import Replay

PROBES = 16  # random columns of the roots of K and of Y Y^T + n_L K; with as many as samples they are exact
_SINGLE = 1e5  # beyond this l_max T, sums of many modes lose too many digits in single precision
LONGEST = 1e8  # l_max T; seven digits of the shortest scale are left
MOST_STEPS = 10**9  # seven digits are left
QUICK = 1000.0  # l_max T at which hundreds of samples take minutes
FEW = 100  # training samples up to which the end of training is contracted leg by leg
_ENDED = 40.0  # l_min T beyond which no digit tells a time from the end of training


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

    @property
    def l_max_T(self) -> float:
        """How far training goes, in units of the shortest time scale."""
        return float(self.l[-1]) * self.replay.duration

    @functools.cached_property
    def real(self) -> type:
        """The precision of samples; their sums are in double precision.

        For the same key, double precision changes a task by 1e-6 to 1e-5 of its value (100 and 300 digits,
        l_max T = 1000), where tasks differ by as much as their values, and takes 1.5 times as long.
        """
        return np.float32 if self.l_max_T < _SINGLE else np.float64

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


# --- how long a training can be ----------------------------------------------------------------------


def check_reach(scene: Scene) -> None:
    """Refuse a training that is too long for bins of time, with the numbers."""
    clock, l_max, l_min = scene.clock, float(scene.l[-1]), float(scene.l[0])
    reached = scene.l_max_T
    if reached > LONGEST:
        raise ValueError(
            f"{_too_long(scene, reached)}, above {LONGEST:g}, up to which samples of neurons follow it; stop "
            f"at {_stop(scene, QUICK / l_max)} (l_max T = {QUICK:g})"
            f"{_end(scene, l_min * scene.replay.duration)}, or use order=0."
        )
    if clock.eta and not clock.has_converged and clock.duration > MOST_STEPS:
        raise ValueError(
            f"steps={clock.duration:.4g} are more than {MOST_STEPS:.0e}, behind which the rounding of single "
            "steps adds up; use gradient flow of the same time, "
            f"fw.GradientFlow({clock.duration * clock.eta:.6g})."
        )


def _too_long(scene: Scene, reached: float) -> str:
    clock = scene.clock
    if clock.has_converged:
        condition = f"where the training NTK has condition {scene.l[-1] / scene.l[0]:.2g}"
        return f"the end of training, {condition}, is at l_max T = {reached:.2g}"
    end = f"steps={clock.duration:.4g}" if clock.eta else f"time={clock.duration:.4g}"
    return f"{end} is l_max T = {reached:.2g} for the largest eigenvalue of the training NTK"


def _stop(scene: Scene, time: float) -> str:
    eta = scene.clock.eta
    return f"steps={max(1, math.floor(time / eta))}" if eta else f"time={time:.4g}"


def _end(scene: Scene, least: float) -> str:
    """The end of training itself, where it is reached and has a way of its own."""
    if least < _ENDED and not scene.clock.has_converged or scene.count > FEW:
        return ""
    if scene.clock.has_converged:
        return ", use method=fw.LegByLeg()"
    name = "steps" if scene.clock.eta else "time"
    return f", ask for the end of training ({name}=math.inf, method=fw.LegByLeg()), which is reached here"
