"""The tensors of order 1/n in the forms that a prediction contracts: whole, leg by leg, or sampled."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from finitewidth.core.methods import LegByLeg, Sampling, Tensors
from finitewidth.core.tasks import Runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.clock import Clock
from finitewidth.network.network import Network
from finitewidth.theory.unrolled.unroll import Unrolled
from finitewidth.training.first_order.chosen_method import DENSE, Chosen, Method
from finitewidth.training.first_order.eigenmodes import Modes
from finitewidth.training.first_order.learning_problem import Problem
from finitewidth.training.first_order.leg_by_leg import streamed_contributions
from finitewidth.training.first_order.mean_and_covariance import Corrections, corrections, initial_output_map
from finitewidth.training.first_order.mean_terms import TERMS
from finitewidth.training.many_points.estimation import (
    TOLERANCE,
    Accuracy,
    SampledEstimate,
    check_samples,
    estimate_by_sampling,
)
from finitewidth.training.many_points.observables import Mean, Variance
from finitewidth.training.many_points.sampled_training import FEW, SampledTraining, check_length


class AbstractTensors(abc.ABC):
    """Tensors of the output layer on some samples; they depend on ratios of widths only."""

    give_covariance: ClassVar[bool] = False
    have_tasks: ClassVar[bool] = True  # that are left for a prediction
    method: Method  # how they are had

    def serving(self, algorithm: AbstractAlgorithm, count: int) -> "AbstractTensors":
        """The form that serves an algorithm and so many training inputs."""
        return self

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
    method: Tensors
    give_covariance: ClassVar[bool] = True
    have_tasks: ClassVar[bool] = False

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
        return replace(self, arrays={k: array[(slice(count),) * 4] for k, array in self.arrays.items()})

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
    method: LegByLeg  # with a tolerance

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
        assert self.method.tolerance is not None  # a method that was chosen has it
        options = {"tolerance": self.method.tolerance, "budget": self.method.budget, "running": running}
        mean = streamed_contributions(self.net, self.X, modes, algorithm, **options)
        return Corrections(mean).at(rows)


@dataclass(frozen=True, eq=False)
class SampledTensors(AbstractTensors):
    """Tensors that are never made: neurons are drawn along the training; mean and, if wanted, variance."""

    unrolled: Unrolled = field(repr=False)
    method: Sampling
    instead: StreamedTensors | None = None  # for algorithms that cannot be replayed, and few samples

    def serving(self, algorithm: AbstractAlgorithm, count: int) -> AbstractTensors:
        few = algorithm.is_finished and count <= FEW
        return self.instead if self.instead is not None and (algorithm.clock is None or few) else self

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
        if clock is None:
            raise ValueError(
                f"algorithm={algorithm!r} cannot be replayed in time; use fw.GradientFlow or "
                "fw.GradientDescent, or method=fw.LegByLeg()."
            )
        if algorithm.end == 0:
            zero = np.zeros((rows.size, modes.outputs))
            return Corrections(dict.fromkeys(TERMS, zero))
        training = self._training(modes, clock)
        check_length(training)
        check_samples(training, Variance if self.method.variance else Mean, self._accuracy)
        estimates = estimate_by_sampling(training, Mean(rows, modes.outputs), self._accuracy, running)
        mean = {name: estimate.value for name, estimate in estimates.contributions.items()}
        variance = (
            self._sampled_variance(running, training, modes, algorithm, rows)
            if self.method.variance
            else None
        )
        return Corrections(mean, sampled=estimates, sampled_variance=variance)

    def _sampled_variance(
        self,
        running: Runner,
        training: SampledTraining,
        modes: Modes,
        algorithm: AbstractAlgorithm,
        rows: np.ndarray,
    ) -> SampledEstimate:
        """n times the correction to the variance, (M, n_L)."""
        L, t = initial_output_map(modes, algorithm.response(modes.l)), slice(modes.count)
        in_samples = modes.back(modes.back(L, 0), 1)[rows]
        kernel = modes.back(L @ modes.K[:, t])[rows]
        return estimate_by_sampling(
            training, Variance(rows, in_samples, kernel, modes.y), self._accuracy, running, "variance"
        )

    @property
    def _accuracy(self) -> Accuracy:
        asked = self.method
        tolerance = TOLERANCE if asked.tolerance is None else asked.tolerance
        return Accuracy(tolerance, asked.samples, asked.budget, asked.seed)

    def _training(self, modes: Modes, clock: Clock) -> SampledTraining:
        in_samples = modes.back(modes.H[:, : modes.count])
        return SampledTraining(
            clock, self.unrolled, modes.l, modes.vectors, in_samples, modes.training_kernel,
            modes.summed_kernel, modes.y, modes.outputs,
        )  # fmt: skip


def check_end(problem: Problem, algorithm: AbstractAlgorithm, chosen: Chosen) -> None:
    """Refuse, before any work, a finite time for which there are neither whole tensors nor samples."""
    if algorithm.is_finished or isinstance(chosen.method, Tensors | Sampling):
        return
    drawn = algorithm.clock is not None and not problem.net.ladder.has_skips
    if isinstance(chosen.method, LegByLeg) or not drawn:
        raise too_many_before_the_end(problem.net, algorithm, problem.count)


def too_many_before_the_end(net: Network, algorithm: AbstractAlgorithm, count: int) -> ValueError:
    """Samples before the end of training that need whole tensors, with the remedies that work."""
    if net.ladder.has_skips:
        also = ", as neurons are drawn for dense networks only"
    elif algorithm.clock is None:
        also = f", as {algorithm!r} cannot be replayed in time"
    else:
        also = ""
    instead = "method=fw.Tensors() where memory allows" if also else "method=fw.Sampling()"
    return ValueError(
        f"before the end of training, order 1/n of {count} inputs needs whole tensors{also}; pass at most "
        f"{DENSE} training and test inputs, use {instead}, train to the end (time or steps infinite), or use "
        "order=0."
    )


def _refuse_covariance(covariance: bool) -> None:
    if covariance:
        raise ValueError(
            "the covariance needs whole tensors, which were not prepared; use fw.prepare(..., "
            "method=fw.Tensors()), or ask for the mean alone with covariance=False."
        )
