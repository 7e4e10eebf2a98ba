"""A training that is replayed in samples: its modes, targets, kernels and source layers.

A training can be too long for samples: bins of time grow as log(l_max T), and the last of them are
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

PROBES = 16  # random columns of the roots of K and of Y Y^T + n_L K; as many as samples are exact
_SINGLE = 1e5  # beyond this l_max T, sums of many modes lose too many digits in single precision
LONGEST = 1e8  # l_max T; seven digits of the shortest scale are left
MOST_STEPS = 10**9  # seven digits are left
QUICK = 1000.0  # l_max T at which hundreds of samples take minutes
FEW = 100  # training samples up to which the end of training is contracted leg by leg
_ENDED = 40.0  # l_min T beyond which no digit tells a time from the end of training


@dataclass(frozen=True, eq=False)
class SampledTraining:
    """A training of which samples are taken: modes of the training NTK, targets, and the source layers.

    The residuals of one output at two modes have the second moment K + y_i y_i^T, and Y Y^T + n_L K summed
    over outputs.
    """

    clock: Clock
    unrolled: Unrolled
    l: np.ndarray  # eigenvalues of the training NTK, (N_A,)
    vectors: np.ndarray  # of training samples and modes, (N_A, N_A)
    ntk: np.ndarray  # mean NTK between all samples and modes, (N, N_A)
    kernel: np.ndarray  # K between modes, (N_A, N_A)
    summed_kernel: np.ndarray  # Y Y^T + n_L K between modes, (N_A, N_A)
    y: np.ndarray  # targets in modes, or other vectors whose effect is asked for, (columns, N_A)
    outputs: int  # n_L
    own_y: np.ndarray | None = None  # targets of the output that each column is about, (columns, N_A)

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
    def dtype(self) -> type:
        """The precision of samples; their sums are in double precision.

        For the same key, double precision changes a task by 1e-6 to 1e-5 of its value (100 and 300 digits,
        l_max T = 1000), where tasks differ by as much as their values, and takes 1.5 times as long.
        """
        return np.float32 if self.l_max_T < _SINGLE else np.float64

    @functools.cached_property
    def layers(self) -> list[SourceLayer]:
        return [SourceLayer.of(source, self.dtype) for source in self.unrolled.sources]

    @property
    def count(self) -> int:
        """The number of training samples N_A."""
        return self.l.size

    @functools.cached_property
    def kernel_roots(self) -> tuple[np.ndarray, np.ndarray]:
        """Roots of K and of Y Y^T + n_L K between training samples."""
        kernels = (self.in_samples(m) for m in (self.kernel, self.summed_kernel))
        first, second = (kernel_root(m).astype(self.dtype) for m in kernels)
        return first, second

    def with_columns(self, y: np.ndarray, own_y: np.ndarray) -> "SampledTraining":
        """The same with other vectors and targets of their outputs; what is cached stays."""
        other = dataclasses.replace(self, y=y, own_y=own_y)
        cached = {name: value for name, value in self.__dict__.items() if name not in other.__dict__}
        other.__dict__.update(cached)
        return other

    def until(self, clock: Clock) -> "SampledTraining":
        """The same with another end."""
        return dataclasses.replace(self, clock=clock)

    def in_samples(self, symbol: np.ndarray) -> np.ndarray:
        """A function of modes, or of two of them, as a matrix between training samples."""
        V = self.vectors
        return (V * symbol) @ V.T if symbol.ndim == 1 else V @ symbol @ V.T

    def targets(self, symbol: np.ndarray) -> np.ndarray:
        """A function of modes on the targets, (N_A, columns)."""
        return self.vectors @ (symbol[:, None] * self.y.T)

    def own_targets(self, symbol: np.ndarray) -> np.ndarray:
        """A function of modes on the targets of each column's output, (N_A, columns); none for the mean."""
        if self.own_y is None:
            return np.empty((self.count, 0))
        return self.vectors @ (symbol[:, None] * self.own_y.T)

    def residual_kernel(self, left: np.ndarray, right: np.ndarray, *, summed: bool) -> np.ndarray:
        """Left times K, or Y Y^T + n_L K, times right, between training samples."""
        inner = self.summed_kernel if summed else self.kernel
        return self.in_samples(inner * np.outer(left, right))

    def at_end(self, effect: np.ndarray, remaining: float) -> np.ndarray:
        """What is left of an effect (N, columns) on the outputs when training ends, a time later."""
        absorbed = self.replay.absorbed(remaining)
        return effect - (self.ntk * absorbed) @ (self.vectors.T @ effect[: self.count])


# --- how long a training can be ----------------------------------------------------------------------


def check_length(training: SampledTraining) -> None:
    """Refuse a training that is too long for bins of time, with the numbers."""
    clock, l_max, l_min = training.clock, float(training.l[-1]), float(training.l[0])
    reached = training.l_max_T
    if reached > LONGEST:
        raise ValueError(
            f"{_too_long(training, reached)}, above {LONGEST:g}, up to which samples of neurons follow it; "
            f"stop at {_stop(training, QUICK / l_max)} (l_max T = {QUICK:g})"
            f"{_end(training, l_min * training.replay.duration)}, or use order=0."
        )
    if clock.eta and not clock.has_converged and clock.duration > MOST_STEPS:
        raise ValueError(
            f"steps={clock.duration:.4g} are more than {MOST_STEPS:.0e}, behind which the rounding of single "
            "steps adds up; use gradient flow of the same time, "
            f"fw.GradientFlow({clock.duration * clock.eta:.6g})."
        )


def _too_long(training: SampledTraining, reached: float) -> str:
    clock = training.clock
    if clock.has_converged:
        condition = f"where the training NTK has condition {training.l[-1] / training.l[0]:.2g}"
        return f"the end of training, {condition}, is at l_max T = {reached:.2g}"
    end = f"steps={clock.duration:.4g}" if clock.eta else f"time={clock.duration:.4g}"
    return f"{end} is l_max T = {reached:.2g} for the largest eigenvalue of the training NTK"


def _stop(training: SampledTraining, time: float) -> str:
    eta = training.clock.eta
    return f"steps={max(1, math.floor(time / eta))}" if eta else f"time={time:.4g}"


def _end(training: SampledTraining, least: float) -> str:
    """Advice to ask for the end of training itself, where it is reached and another method computes it."""
    if least < _ENDED and not training.clock.has_converged or training.count > FEW:
        return ""
    if training.clock.has_converged:
        return ", use method=fw.LegByLeg()"
    name = "steps" if training.clock.eta else "time"
    return f", ask for the end of training ({name}=math.inf, method=fw.LegByLeg()), which is reached here"
