"""The tensors of order 1/n as a prediction meets them: stored whole, or contracted leg by leg."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.tasks import Runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.symbols import Symbols
from finitewidth.network.network import Network
from finitewidth.training.first_order.corrections import Corrections, corrections
from finitewidth.training.first_order.modes import Modes
from finitewidth.training.first_order.streamed import streamed_contributions


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
        symbols: Symbols,
        *,
        covariance: bool,
    ) -> Corrections:
        """n times the corrections to the mean and, if wanted, to the covariance.

        `symbols` are those of the algorithm at the eigenvalues of the modes.
        """


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
        symbols: Symbols,
        *,
        covariance: bool,
    ) -> Corrections:
        return corrections(modes, self.arrays.__getitem__, symbols, covariance=covariance)


@dataclass(frozen=True, eq=False)
class StreamedTensors(AbstractTensors):
    """Tensors that are made and contracted one leg at a time; they give the mean at the end of training."""

    net: Network
    X: np.ndarray  # (N, n_0)
    tolerance: float  # of four-leg averages

    @property
    def give_covariance(self) -> bool:
        return False

    def corrections(
        self,
        running: Runner,
        modes: Modes,
        algorithm: AbstractAlgorithm,
        symbols: Symbols,
        *,
        covariance: bool,
    ) -> Corrections:
        if covariance:
            raise ValueError(
                "the covariance needs whole tensors, which were not prepared; use fw.finite_width(..., "
                "covariance=True), or ask for the mean alone with covariance=False."
            )
        if symbols.absorbed is not None:
            raise ValueError(
                "at a finite time the mean at order 1/n needs whole tensors, too large for so many samples; "
                "use the end of training (time or steps infinite), or fewer inputs."
            )
        mean = streamed_contributions(
            self.net, self.X, modes, algorithm, tolerance=self.tolerance, running=running
        )
        return Corrections(mean)
