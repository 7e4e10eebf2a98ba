"""The tensors of order 1/n as a prediction meets them: stored whole, contracted leg by leg, or sampled."""

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.tasks import Runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.clock import Clock
from finitewidth.network.network import Network
from finitewidth.theory.unrolled.unroll import Unrolled
from finitewidth.training.first_order.eigenmodes import Modes
from finitewidth.training.first_order.learning_problem import Problem
from finitewidth.training.first_order.leg_by_leg import streamed_contributions
from finitewidth.training.first_order.mean_and_covariance import Corrections, corrections, leap
from finitewidth.training.first_order.mean_terms import TERMS
from finitewidth.training.first_order.route import DENSE, Route
from finitewidth.training.many_points.estimation import (
    Accuracy,
    SampledEstimate,
    check_samples,
    estimate_by_sampling,
)
from finitewidth.training.many_points.observables import Mean, Variance
from finitewidth.training.many_points.sampled_training import FEW, SampledTraining, check_length


class AbstractTensors(abc.ABC):
    """Tensors of the output layer on some samples; they depend on ratios of widths only."""

    @property
    @abc.abstractmethod
    def give_covariance(self) -> bool:
        """Whether the covariance can be had from them."""

    @abc.abstractmethod
    def corrections(
        self,
        running: Runner,
        modes: Modes,
        algorithm: AbstractAlgorithm,
        rows: np.ndarray,
        *,
        covariance: bool,
    ) -> Corrections:
        """n times the corrections to the mean and, if wanted, to the covariance, on some of the samples."""

    def of_training(self, count: int) -> "WholeTensors | None":
        """The same of the training samples alone, the first ones, where whole tensors are at hand."""
        return None


@dataclass(frozen=True, eq=False)
class WholeTensors(AbstractTensors):
    """All tensors of four samples, by name."""

    arrays: Mapping[str, np.ndarray] = field(repr=False)  # (N, N, N, N) each, in samples

    @property
    def give_covariance(self) -> bool:
        return True

    def corrections(
        self,
        running: Runner,
        modes: Modes,
        algorithm: AbstractAlgorithm,
        rows: np.ndarray,
        *,
        covariance: bool,
    ) -> Corrections:
        symbols = algorithm.symbols(modes.l)
        return corrections(modes, self.arrays.__getitem__, symbols, covariance=covariance).at(rows)

    def of_training(self, count: int) -> "WholeTensors":
        return WholeTensors({name: array[(slice(count),) * 4] for name, array in self.arrays.items()})

    def eigenvalue_spread(self, modes: Modes, n: int) -> np.ndarray:
        """The relative variance over networks of each eigenvalue of the training NTK."""
        t, V = (slice(modes.count),) * 4, modes.vectors
        tensor = (self.arrays["A"][t] + (1 + modes.outputs) * self.arrays["B"][t]) / n
        variance = np.einsum("abcd,am,bm,cm,dm->m", tensor, V, V, V, V, optimize=True)
        return np.divide(variance, modes.l**2, out=np.zeros_like(modes.l), where=modes.l > 0)


@dataclass(frozen=True, eq=False)
class StreamedTensors(AbstractTensors):
    """Tensors that are made and contracted one leg at a time; they give the mean at the end of training."""

    net: Network
    X: np.ndarray  # (N, n_0)
    tolerance: float  # of four-leg averages
    budget: float = math.inf  # seconds

    @property
    def give_covariance(self) -> bool:
        return False

    def corrections(
        self,
        running: Runner,
        modes: Modes,
        algorithm: AbstractAlgorithm,
        rows: np.ndarray,
        *,
        covariance: bool,
    ) -> Corrections:
        _refuse_covariance(covariance)
        if not algorithm.is_finished:
            raise too_many_before_the_end(self.net, algorithm, len(self.X))
        options = {"tolerance": self.tolerance, "budget": self.budget, "running": running}
        mean = streamed_contributions(self.net, self.X, modes, algorithm, **options)
        return Corrections(mean).at(rows)


@dataclass(frozen=True, eq=False)
class SampledTensors(AbstractTensors):
    """Tensors that are never made: neurons are drawn along the training; mean and, if wanted, variance."""

    unrolled: Unrolled = field(repr=False)
    accuracy: Accuracy
    variance: bool = False  # whether it is wanted
    instead: StreamedTensors | None = None  # for algorithms that cannot be replayed, and few samples

    @property
    def give_covariance(self) -> bool:
        return False

    def corrections(
        self,
        running: Runner,
        modes: Modes,
        algorithm: AbstractAlgorithm,
        rows: np.ndarray,
        *,
        covariance: bool,
    ) -> Corrections:
        _refuse_covariance(covariance)
        clock = algorithm.clock
        few = algorithm.is_finished and modes.count <= FEW
        if self.instead is not None and (clock is None or few) and not self.variance:
            return self.instead.corrections(running, modes, algorithm, rows, covariance=False)
        if clock is None:
            raise ValueError(
                f"algorithm={algorithm!r} cannot be replayed in time; use fw.GradientFlow or "
                'fw.GradientDescent, or route="deterministic".'
            )
        if algorithm.end == 0:
            zero = np.zeros((rows.size, modes.outputs))
            return Corrections(dict.fromkeys(TERMS, zero))
        training = self._training(modes, clock)
        check_length(training)
        check_samples(training, Variance if self.variance else Mean, self.accuracy)
        estimates = estimate_by_sampling(training, Mean(rows, modes.outputs), self.accuracy, running)
        mean = {name: estimate.value for name, estimate in estimates.contributions.items()}
        spread = self._spread(running, training, modes, algorithm, rows) if self.variance else None
        return Corrections(mean, sampled=estimates, spread=spread)

    def _spread(
        self,
        running: Runner,
        training: SampledTraining,
        modes: Modes,
        algorithm: AbstractAlgorithm,
        rows: np.ndarray,
    ) -> SampledEstimate:
        """n times the correction to the variance, (M, n_L)."""
        L, t = leap(modes, algorithm.response(modes.l)), slice(modes.count)
        kept = modes.back(modes.back(L, 0), 1)[rows]
        kernel = modes.back(L @ modes.K[:, t])[rows]
        return estimate_by_sampling(
            training, Variance(rows, kept, kernel, modes.y), self.accuracy, running, "variance"
        )

    def _training(self, modes: Modes, clock: Clock) -> SampledTraining:
        in_samples = modes.back(modes.H[:, : modes.count])
        return SampledTraining(
            clock, self.unrolled, modes.l, modes.vectors, in_samples, modes.training_kernel, modes.pair,
            modes.y, modes.outputs,
        )  # fmt: skip


def check_end(problem: Problem, algorithm: AbstractAlgorithm, covariance: bool, route: Route) -> None:
    """Refuse, before any work, a finite time for which there are neither whole tensors nor samples."""
    count = problem.merged_inputs()[0].shape[0]
    if covariance or count <= DENSE or algorithm.is_finished or route.name == "sampled":
        return
    sampled = algorithm.clock is not None and not problem.net.ladder.has_skips
    if route.name == "deterministic" or not sampled:
        raise too_many_before_the_end(problem.net, algorithm, count)


def too_many_before_the_end(net: Network, algorithm: AbstractAlgorithm, count: int) -> ValueError:
    """Samples before the end of training that need whole tensors, with the remedies that work."""
    if net.ladder.has_skips:
        also = ", as neurons are drawn for dense networks only"
    elif algorithm.clock is None:
        also = f", as {algorithm!r} cannot be replayed in time"
    else:
        also = ""
    instead = "fw.predict with covariance=True where memory allows" if also else 'route="sampled"'
    return ValueError(
        f"before the end of training, order 1/n of {count} inputs needs whole tensors{also}; pass at most "
        f"{DENSE} training and test inputs, use {instead}, train to the end (time or steps infinite), or use "
        "order=0."
    )


def _refuse_covariance(covariance: bool) -> None:
    if covariance:
        raise ValueError(
            "the covariance needs whole tensors, which were not prepared; use fw.prepare(..., "
            'covariance=True, route="deterministic"), or ask for the mean alone with covariance=False.'
        )
