"""Order 1/n for hundreds of points on the squared error, with batches and momentum: neurons along steps.

The contractions are those of flow and descent (`training/many_points`); only the factors of a time differ,
which are matrices between training samples here (`steps.py`).
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from finitewidth.core.methods import Sampling
from finitewidth.core.tasks import Runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.clock import Clock
from finitewidth.network.network import Network
from finitewidth.theory.kernels import Kernels
from finitewidth.theory.unrolled.pair_corrections import pair_corrections
from finitewidth.theory.unrolled.unroll import unroll
from finitewidth.training.infinite.fitting import ntk
from finitewidth.training.many_points.estimation import (
    TOLERANCE,
    Accuracy,
    SampledEstimate,
    check_samples,
    estimate_by_sampling,
)
from finitewidth.training.many_points.ntk_fluctuation import Fluctuation
from finitewidth.training.many_points.observables import MEAN, Contraction, Mean
from finitewidth.training.many_points.ordered_terms import OrderedMatrices, OrderedTerms
from finitewidth.training.many_points.sampled_training import SampledTraining
from finitewidth.training.many_points.second_ddntk import SecondDdNTK
from finitewidth.training.many_points.symmetric_terms import SymmetricTerms
from finitewidth.training.replay.steps import KINDS, StepNode, Steps


@dataclass(frozen=True, eq=False, kw_only=True)
class SteppedTraining(SampledTraining):
    """A training with batches and momentum: its modes are the training samples themselves."""

    algorithm: AbstractAlgorithm

    @classmethod
    def of(
        cls, net: Network, X: np.ndarray, Y: np.ndarray, algorithm: AbstractAlgorithm, both: Kernels
    ) -> tuple["SteppedTraining", np.ndarray, float]:
        """Training on the first samples of X with these kernels, H1 of the NTK, and errors of averages."""
        corrected, count = pair_corrections(net, X), len(Y)
        Theta, K = ntk(both)[:, :count], both.K[:count, :count]
        training = cls(
            Clock(1.0, algorithm.end),
            unroll(net, X),
            np.linalg.eigvalsh(Theta[:count]),
            np.eye(count),
            Theta,
            K,
            Y @ Y.T + Y.shape[1] * K,
            Y.T,
            Y.shape[1],
            algorithm=algorithm,
        )
        return training, corrected.H1[:, :count], max(both.error, corrected.error)

    @functools.cached_property
    def replay(self) -> Steps:  # type: ignore[override]
        return Steps(self.algorithm, self.ntk[: self.count], float(self.l[-1]))

    @property
    def l_max_T(self) -> float:
        return float(self.l[-1] * self.replay.weights[-1].sum() * self.replay.masks.mean())

    def until(self, clock: Clock) -> "SteppedTraining":
        return replace(self, clock=clock, algorithm=self.algorithm.at_time(clock.duration))

    def in_samples(self, symbol: np.ndarray) -> np.ndarray:
        return np.diag(symbol) if symbol.ndim == 1 else symbol

    def targets(self, symbol: np.ndarray) -> np.ndarray:
        return self.in_samples(symbol) @ self.y.T

    def residual_kernel(self, left: np.ndarray, right: np.ndarray, *, summed: bool) -> np.ndarray:
        return left @ (self.summed_kernel if summed else self.kernel) @ right.T

    def at_last(self, effect: np.ndarray, node: StepNode) -> np.ndarray:
        """What is left of an effect (N, columns) on the outputs at the end."""
        assert node.shares is not None
        return node.kept * effect - self.ntk @ self.replay.absorbed(effect[: self.count], node.shares)


class MeanOfSteps(Mean):
    """The mean of all outputs on some rows of the samples, as sums over one or two steps."""

    kinds = KINDS

    def contraction(self, training, matrices, averages, node, kind, generator) -> Contraction:
        parts, means, path = _parts(training, matrices, averages, node, kind)

        def at_end(effect: np.ndarray) -> np.ndarray:
            return -training.at_last(effect, cast(StepNode, node))[self.rows]

        return Contraction(training, parts, means, at_end, path)


def _parts(training, matrices, averages, node, kind) -> tuple[tuple, dict, OrderedMatrices | None]:
    if kind == "fluctuation":
        fluctuation = Fluctuation(training, matrices, averages, node)
        return (fluctuation,), fluctuation.means, None
    if kind == "symmetric":
        symmetric = SymmetricTerms(training, matrices, averages, node)
        return (symmetric,), symmetric.means, None
    path = OrderedMatrices(training, matrices, averages, node)
    if kind == "ordered":
        return (OrderedTerms(path),), path.means, path
    later = kind == "nested"
    return (SecondDdNTK(path, has_IIA=later, has_IIB=not later),), path.means, path


def sampled_mean(
    training: SteppedTraining, H1: np.ndarray, rows: np.ndarray, method: Sampling, running: Runner
) -> tuple[Mapping[str, np.ndarray], SampledEstimate]:
    """n times the corrections of mean outputs on some rows, by contribution, and what was sampled of them."""
    tolerance = TOLERANCE if method.tolerance is None else method.tolerance
    wanted = Accuracy(tolerance, method.samples, method.budget, method.seed)
    check_samples(training, MeanOfSteps, wanted)
    sampled = estimate_by_sampling(training, MeanOfSteps(rows, training.outputs), wanted, running)
    by_mean = training.replay.through(training.ntk, H1, training.y.T)[rows]
    parts = {name: sampled.contributions[name].value for name in MEAN}
    return {"ntk_mean": by_mean} | parts, sampled
