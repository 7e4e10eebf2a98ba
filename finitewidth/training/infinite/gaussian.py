"""A trained ensemble that is Gaussian: its mean, and its covariance in factors."""

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike
from finitewidth.core.memory import require_memory
from finitewidth.core.methods import FirstOrder as Method
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.ratios import Verdict, verdict
from finitewidth.training.infinite.spreads import Spreads
from finitewidth.training.infinite.test_loss import LossOfSample, TestLoss, gaussian_test_loss

# a matrix between output components and one between samples, whose product is a part of the covariance
Factor = tuple[Float[np.ndarray, "n_L n_L"], Float[np.ndarray, "M M"]]


@dataclass(frozen=True)
class Expansion:
    """How large the corrections of order 1/n are, and how much is neglected behind them.

    Means are measured by the largest target, variances by the largest one of a training point before
    training; those of a posterior by the standard deviation and variance of each output. Those of variances
    that were not computed are None.
    """

    depth_over_width: float  # sum of 1/n over hidden layers
    mean: float  # largest correction to the mean
    covariance: float | None  # largest correction to a variance
    # of the covariance, relative to the largest variance; it should not be negative
    lowest_eigenvalue: float | None
    mean_uncertainty: float = 0.0  # largest uncertainty of the mean
    covariance_uncertainty: float | None = 0.0  # largest uncertainty of a variance
    decided_by: str = ""  # what has the larger of the two, as "the variance on a training point"

    @property
    def size(self) -> float:
        """The largest of the relative corrections."""
        return max(self.mean, self.covariance or 0.0)

    @property
    def uncertainty(self) -> float:
        """The larger of the relative uncertainties, which alone decides the verdict."""
        return max(self.mean_uncertainty, self.covariance_uncertainty or 0.0)

    @property
    def verdict(self) -> Verdict:
        """Whether order 1/n can be trusted."""
        return verdict(self.uncertainty)


@dataclass(frozen=True, eq=False)
class Truncation:
    """What order 1/n neglects: one standard deviation, calibrated by trained networks."""

    mean: Float[np.ndarray, "M n_L"]
    variance: Float[np.ndarray, "M n_L"] | None = None  # where it was computed


@dataclass(frozen=True, eq=False)
class Sampling:
    """How numbers of the theory itself were sampled, and their standard errors."""

    samples: int  # neurons
    accuracy: float  # rms standard error of the shift, over the largest shift
    stderr: Float[np.ndarray, "M n_L"] = field(repr=False)
    averaged_stderr: Float[np.ndarray, " M"] = field(repr=False)  # of the average over outputs
    contributions: dict[str, np.ndarray] = field(repr=False)  # standard errors of each contribution
    variance: "Sampling | None" = None  # that of the variance, where it was asked for
    batches: float = math.inf  # independent batches of neurons that standard errors rest on
    note: str | None = None  # what to know about the standard errors, where batches are few


@shown(
    "mean",
    "stderr",
    "uncertainty",
    "std",
    "variance_stderr",
    "variance_uncertainty",
    "order",
    "condition",
    "method",
    "samples",
    "note",
    "algorithm",
    "net",
    dimensions=dict.fromkeys(
        ("mean", "stderr", "uncertainty", "std", "variance", "variance_stderr", "variance_uncertainty"),
        "sample output",
    ),
    figure="trained_outputs",
)
@dataclass(frozen=True, eq=False)
class Prediction(Spreads):
    """Mean and covariance of trained networks on test inputs.

    `fw.predict` makes it, and `plot` draws it.

    ```python
    prediction = fw.predict(net, X, Y, X_test)
    prediction.mean, prediction.std, prediction.uncertainty, prediction.verdict
    prediction.infinite_width.mean, prediction.contributions["dntk"]
    ```
    """

    net: Network
    algorithm: AbstractAlgorithm  # how it is trained
    order: int  # 0: infinite width
    mean: Float[np.ndarray, "M n_L"]  # over networks
    # products that add up to the covariance; None where it was not asked for
    factors: tuple[Factor, ...] | None = field(repr=False)
    condition: float  # of the training NTK, in the 1-norm where it was factorized; infinity if singular
    error: float  # of the Gaussian averages in the kernels, in units of the scale they live on
    contributions: dict[str, np.ndarray] = field(default_factory=dict, repr=False)  # of order 1/n to the mean
    variance_contributions: dict[str, np.ndarray] = field(default_factory=dict, repr=False)  # to the variance
    # the same at order 0, where this is order 1
    leading: "Prediction | None" = field(default=None, repr=False)
    coupling: Float[np.ndarray, "M n_L M n_L"] | None = field(
        default=None, repr=False
    )  # what no factor holds
    expansion: Expansion | None = None  # at order 1
    sampling: Sampling | None = None  # where order 1/n was sampled
    truncation: Truncation | None = field(default=None, repr=False)  # at order 1
    method: Method | None = None  # how order 1/n was computed; None at infinite width

    @property
    def samples(self) -> int | None:
        """The number of sampled neurons; None if nothing was sampled."""
        return None if self.sampling is None else self.sampling.samples

    @property
    def stderr(self) -> Float[np.ndarray, "M n_L"]:
        """The standard error of the mean, which is a number of the theory; zero if nothing was sampled."""
        return np.zeros_like(self.mean) if self.sampling is None else self.sampling.stderr

    @property
    def correction(self) -> Estimate:
        """What order 1/n adds to the mean; zero at infinite width."""
        return Estimate(self.mean - self.infinite_width.mean, self.stderr)

    @property
    def uncertainty(self) -> Float[np.ndarray, "M n_L"]:
        """What order 1/n neglects in the mean, one standard deviation; zero at infinite width."""
        return np.zeros_like(self.mean) if self.truncation is None else self.truncation.mean

    @property
    def variance_uncertainty(self) -> Float[np.ndarray, "M n_L"]:
        """What order 1/n neglects in the variance, one standard deviation; zero at infinite width."""
        self._require_variance()
        known = None if self.truncation is None else self.truncation.variance
        return np.zeros_like(self.mean) if known is None else known

    @property
    def verdict(self) -> Verdict:
        """Whether order 1/n can be trusted, by its uncertainty alone; infinite width neglects nothing."""
        return "trusted" if self.expansion is None else self.expansion.verdict

    @property
    def variance_stderr(self) -> Float[np.ndarray, "M n_L"]:
        """The standard error of the variance as a number of the theory; zero if it was not sampled."""
        self._require_variance()
        sampled = None if self.sampling is None else self.sampling.variance
        return np.zeros_like(self.mean) if sampled is None else sampled.stderr

    @property
    def gives_variance(self) -> bool:
        """Whether the variance was computed, with the covariance or alone."""
        return self.factors is not None or bool(self.variance_contributions)

    @property
    def covariance(self) -> Float[np.ndarray, "M n_L M n_L"]:
        """Between outputs of two samples; made from its factors whenever it is asked for."""
        factors = self._factors()
        samples, outputs = self.mean.shape
        require_memory(
            8 * (samples * outputs) ** 2,
            f"the covariance of {samples} samples and {outputs} outputs",
            "use prediction.factors, which hold it as products, or prediction.std",
        )
        shape = samples, outputs, samples, outputs
        total = np.zeros(shape) if self.coupling is None else self.coupling.copy()
        for of_outputs, of_samples in factors:
            total += np.einsum("ij,ab->aibj", of_outputs, of_samples)
        return total

    @property
    def within_samples(self) -> Float[np.ndarray, "M n_L n_L"]:
        """The covariance between outputs of the same sample."""
        samples, outputs = self.mean.shape
        total = np.zeros((samples, outputs, outputs))
        if self.coupling is not None:
            total += np.einsum("aiaj->aij", self.coupling)
        for of_outputs, of_samples in self._factors():
            total += np.multiply.outer(np.diag(of_samples), of_outputs)
        return total

    @property
    def variance(self) -> Float[np.ndarray, "M n_L"]:
        """The diagonal of the covariance, which can be sampled without the rest of it."""
        if self.factors is None and self.gives_variance:
            return self.infinite_width.variance + sum(self.variance_contributions.values())
        total = np.zeros_like(self.mean)
        if self.coupling is not None:
            total += np.einsum("aiai->ai", self.coupling)
        for of_outputs, of_samples in self._factors():
            total += np.multiply.outer(np.diag(of_samples), np.diag(of_outputs))
        return total

    @property
    def output_variance(self) -> Float[np.ndarray, " M"]:
        """The variance averaged over outputs."""
        return self.variance.mean(axis=1)

    @property
    def output_variance_stderr(self) -> Float[np.ndarray, " M"]:
        """Its standard error as a number of the theory; zero if it was not sampled."""
        sampled = None if self.sampling is None else self.sampling.variance
        return np.zeros(self.mean.shape[0]) if sampled is None else sampled.averaged_stderr

    def _require_variance(self) -> None:
        if not self.gives_variance:
            self._factors()

    def _factors(self) -> tuple[Factor, ...]:
        if self.factors is None:
            raise ValueError(
                "the covariance was not computed; predict with covariance=True, or with "
                "method=fw.Sampling(variance=True) for prediction.variance alone."
            )
        return self.factors

    @property
    def infinite_width(self) -> "Prediction":
        """The same at order 0."""
        return self if self.leading is None else self.leading

    def test_loss(self, Y_test: ArrayLike, *, loss: AbstractLoss | LossOfSample = MSE()) -> TestLoss:
        """Expected loss of the ensemble against the targets of the test inputs.

        Args:
            Y_test: Targets of the test inputs (M, n_L).
            loss: A loss such as `fw.MSE()`, or any twice-differentiable JAX function of the outputs and the
                targets of one sample.

        Returns:
            `bias`, `variance` and `total`.
        """
        return gaussian_test_loss(self, Y_test, loss)
