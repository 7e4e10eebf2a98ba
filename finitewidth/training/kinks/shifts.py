r"""The mean shift of trained outputs by neurons that cross their kink, times $\sqrt n$.

At sample c, neurons with a value near their kink change gates when training moves it there. Each kicks the
outputs, and its NTK from then on; the rest of the training answers. The shift is an average over one neuron:
of its values at other samples, its derivatives g, its drift and the initial outputs, by Sobol points in
scrambled replicates, whose spread is the error.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from finitewidth.core.estimate import Estimate
from finitewidth.network.algorithms.clock import Clock
from finitewidth.theory.layers.dense import Means
from finitewidth.training.kinks.gates import GatedLayer
from finitewidth.training.kinks.paths import POINTS, Schedule, crossings, density_at_kink

REPLICATES = 8  # scrambled sets of points
_SIGNS = 4  # each point stands for four neurons: signs of values, and of derivatives with the drift
_NUMBERS = 1 << 22  # of the largest array of a batch
_EDGE = 1e-12  # from 0 and 1, where normal numbers are infinite


@dataclass(frozen=True, eq=False)
class KinkedTraining:
    """A training at infinite width, in samples: training inputs first, then test inputs."""

    output: Means  # K and Theta
    Y: Float[np.ndarray, "A n_L"]
    schedule: Schedule
    modes: Float[np.ndarray, "A A"]  # eigenvectors of the training NTK

    @classmethod
    def of(cls, output: Means, Y: np.ndarray, clock: Clock) -> "KinkedTraining":
        l, modes = np.linalg.eigh(output.Theta[: len(Y), : len(Y)])
        return cls(output, Y, Schedule.of(clock, l), modes)

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(self.output.K)

    @property
    def dimensions(self) -> int:
        """Numbers of one point: an offset, values, and three fields of the outputs."""
        return 1 + self.count * (1 + 3 * self.Y.shape[1])


def mean_shift(training: KinkedTraining, layer: GatedLayer, points: int, seed: tuple[int, ...]) -> Estimate:
    """The coefficient of n^(-1/2) in the mean outputs of all samples, (N, n_L), by one hidden layer."""
    total, variance = np.zeros((training.count, training.Y.shape[1])), 0.0
    for c in range(training.count):
        each = np.stack([_replicate(training, layer, c, points, (*seed, c, r)) for r in range(REPLICATES)])
        total = total + each.mean(axis=0)
        variance = variance + each.var(axis=0, ddof=1) / REPLICATES
    return Estimate(total, np.sqrt(variance))


def _replicate(
    training: KinkedTraining, layer: GatedLayer, c: int, points: int, seed: tuple[int, ...]
) -> Float[np.ndarray, "N n_L"]:
    """An average over one scrambled set of points."""
    engine = qmc.Sobol(training.dimensions, seed=np.random.default_rng(seed))  # type: ignore[call-arg]
    steps, samples = len(training.schedule.moved), training.Y.size + POINTS
    batch = 1 << max(0, int(math.log2(_NUMBERS / (_SIGNS * steps * samples))))  # a power of 2, as points are
    neurons, total = _Neurons(training, layer, c), 0.0
    for start in range(0, points, batch):
        total = total + neurons.shift(engine.random(min(batch, points - start)))
    return density_at_kink(layer.K[c, c]) / np.sqrt(layer.width) * total / (_SIGNS * points)


class _Neurons:
    """Neurons of a layer whose value at sample c is near the kink."""

    def __init__(self, training: KinkedTraining, layer: GatedLayer, c: int):
        self.training, self.layer, self.c = training, layer, c
        K = layer.K
        roots = (K - np.outer(K[c], K[c]) / K[c, c], layer.beta, layer.drift[c], training.output.K)
        self.roots = [_root(matrix) for matrix in roots]

    def shift(self, points: Float[np.ndarray, "p dimensions"]) -> Float[np.ndarray, "N n_L"]:
        """The sum over neurons of what their crossings leave in the outputs at the end."""
        training, layer, c = self.training, self.layer, self.c
        offset, z, g, drift, z0 = self._drawn(points)
        A, modes, schedule = len(training.Y), training.modes, training.schedule
        gates = np.where(z > 0, layer.slopes[1], layer.slopes[0])
        gates[:, c] = 0.0  # its own gate changes
        rate = layer.Theta[c] * gates[:, None] * g - drift  # of the value at c, by residuals of (k, b)
        residual = (z0[:, :, :A] - training.Y.T) @ modes  # (m, k, mode) at the beginning
        by_others = -np.einsum(
            "mkl,mkl,tl->mt", residual, rate[:, :, :A] @ modes, schedule.moved, optimize=True
        )
        toward = np.zeros_like(by_others)
        if c < A:
            toward = np.einsum(
                "mk,mkl,tl->mt", g[:, :, c], residual, schedule.moved * modes[c], optimize=True
            )
        own = -layer.Theta[c, c] * toward
        kicks, changed = crossings(by_others, own, layer.slopes, offset)
        return self._at_end(g, rate, kicks, toward * changed)

    def _drawn(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        """An offset, values z (m, N), and derivatives, drift and initial outputs (m, k, N) each."""
        N, k = self.training.count, self.training.Y.shape[1]
        normals = ndtri(np.clip(points, _EDGE, 1 - _EDGE))
        u = ndtr(normals[:, :1])
        z, *fields = np.split(normals[:, 1:], [N, N + k * N, N + 2 * k * N], axis=1)
        z = z @ self.roots[0].T
        g, drift, z0 = (
            field.reshape(-1, k, N) @ root.T for field, root in zip(fields, self.roots[1:], strict=True)
        )
        join = np.concatenate
        return (
            join([u, 1 - u, u, 1 - u]),
            join([z, z, -z, -z]),
            join([g, -g, g, -g]),
            join([drift, -drift, drift, -drift]),
            join([z0] * _SIGNS),
        )

    def _at_end(self, g, rate, kicks, back) -> Float[np.ndarray, "N n_L"]:
        """What training leaves of kicks in every step, of output (k, c) by `kicks` and of all by `back`."""
        training, c = self.training, self.c
        A, modes, schedule = len(training.Y), training.modes, training.schedule
        towards_modes = training.output.Theta[:, :A] @ modes
        effect = -np.einsum("mkd,m->kd", rate, back.sum(axis=1))
        effect[:, c] += g[:, :, c].T @ kicks.sum(axis=1)
        answered = -np.einsum("mkl,ml->kl", rate[:, :, :A] @ modes, back @ schedule.response)
        if c < A:
            answered += np.einsum("mk,ml->kl", g[:, :, c], kicks @ schedule.response) * modes[c]
        return effect.T - towards_modes @ answered.T


def _root(C: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    values, vectors = np.linalg.eigh((C + C.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0.0))
