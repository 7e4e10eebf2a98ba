"""Trained networks at order 1/n for any smooth loss: averages over replayed trainings, as a record."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike, as_positive, as_targets
from finitewidth.core.methods import Sampling
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.probabilities import one_hot
from finitewidth.network.network import Network
from finitewidth.theory.ratios import Verdict
from finitewidth.training.first_order.expansion import expansion_of
from finitewidth.training.first_order.learning_problem import of_width
from finitewidth.training.infinite.gaussian import Expansion, Truncation
from finitewidth.training.infinite.gaussian import Sampling as Errors
from finitewidth.training.infinite.spreads import Spreads
from finitewidth.training.infinite.test_loss import TestLoss
from finitewidth.training.neglected.truncation import Units, truncation_of_replay
from finitewidth.training.replay.averages import Average, Draws, average

MemberOutputs = Callable[[jax.Array], jax.Array]  # a function of the outputs (M, n_L) of one network


@shown("value", "stderr", "correction", "infinite_width")
class Expectation(NamedTuple):
    """The average of a function of trained outputs through order 1/n.

    `prediction.expectation(f)` makes it.

    ```python
    two, labels = fw.MLP((2, 64, 64, 2), "tanh"), fw.losses.one_hot([0, 1, 0], 2)
    descent = fw.GradientDescent(0.1, steps=5)
    prediction = fw.predict(
        two, X, labels, X_test, algorithm=descent, loss=fw.CrossEntropy(), method=fw.Sampling(samples=1000)
    )
    prediction.expectation(lambda z: z.max(axis=-1)).value
    ```
    """

    value: np.ndarray  # through order 1/n
    stderr: np.ndarray  # of `value`, as a number of the theory
    correction: Estimate  # of order 1/n
    infinite_width: Estimate  # the same at infinite width
    contributions: dict[str, np.ndarray]  # to the correction


@shown("mean", "stderr", "std")
@dataclass(frozen=True, eq=False)
class AtInfiniteWidth(Spreads):
    """Mean and variance of infinitely wide networks, sampled."""

    mean: Float[np.ndarray, "M n_L"]
    variance: Float[np.ndarray, "M n_L"]
    stderr: Float[np.ndarray, "M n_L"] = field(repr=False)  # of the mean
    variance_stderr: Float[np.ndarray, "M n_L"] = field(repr=False)

    order = 0
    gives_variance = True
    factors = None  # there is no covariance between outputs
    uncertainty = variance_uncertainty = 0.0  # nothing is neglected


@shown(
    "mean",
    "stderr",
    "uncertainty",
    "std",
    "correction",
    "order",
    "condition",
    "method",
    "samples",
    "algorithm",
    "loss",
    "net",
    dimensions=dict.fromkeys(("mean", "stderr", "uncertainty", "std", "variance"), "sample output"),
)
@dataclass(frozen=True, eq=False)
class ReplayedPrediction(Spreads):
    """Trained networks through order 1/n, averaged over replays from drawn initial outputs.

    `fw.predict` makes it for any loss but the squared error, and where each network draws batches of its own.

    ```python
    two, labels = fw.MLP((2, 64, 64, 2), "tanh"), fw.losses.one_hot([0, 1, 0], 2)
    descent = fw.GradientDescent(0.1, steps=5, momentum=0.5)
    prediction = fw.predict(
        two, X, labels, X_test, algorithm=descent, loss=fw.CrossEntropy(), method=fw.Sampling(samples=1000)
    )
    prediction.mean, prediction.probabilities.value, prediction.correction
    prediction.expectation(lambda z: z.max(axis=-1)).value
    ```
    """

    net: Network
    algorithm: AbstractAlgorithm  # how it is trained
    loss: AbstractLoss  # the loss
    method: Sampling  # how initial outputs were drawn
    condition: float  # of the training NTK
    error: float  # of Gaussian averages
    draws: Draws = field(repr=False)  # replayed trainings of infinitely wide networks
    index: int = field(repr=False)  # of the time among those that were recorded

    order = 1

    @functools.cached_property
    def _outputs(self) -> Average:
        return self._average(lambda z: z)

    @functools.cached_property
    def _squares(self) -> Average:
        """Of outputs about their mean at infinite width."""
        center = jnp.asarray(self._outputs.leading.value)
        return self._average(lambda z: (z - center) ** 2)

    def _average(self, function: MemberOutputs) -> Average:
        return average(self.draws, lambda z: jnp.asarray(function(z[self.index])))

    @property
    def n(self) -> int:
        """The width that the expansion is in."""
        return self.net.ladder.widths[-2]

    def with_width(self, n: int) -> "ReplayedPrediction":
        """The same where all hidden layers have width n: the draws depend on ratios of widths only."""
        other = replace(self, net=of_width(self.net, n))
        other.__dict__.update(_outputs=self._outputs, _squares=self._squares)  # which know no width
        return other

    @property
    def samples(self) -> int:
        """The number of initial outputs that were drawn."""
        return 2 * self.draws.pairs

    def expectation(self, function: MemberOutputs) -> Expectation:
        """The average of a smooth function of the outputs of a network.

        Args:
            function: It takes the outputs (M, n_L) of one network on the test inputs, in JAX arithmetic, to
                an array.

        Returns:
            Its `value` through order 1/n with `stderr`, `correction` and `infinite_width`.
        """
        return self._expectation(self._average(function))

    def _expectation(self, found: Average) -> Expectation:
        correction = Estimate(found.correction.value / self.n, found.correction.stderr / self.n)
        value = found.leading.value + correction.value
        parts = {name: part.value / self.n for name, part in found.contributions.items()}
        return Expectation(
            value, np.hypot(found.leading.stderr, correction.stderr), correction, found.leading, parts
        )

    @property
    def mean(self) -> Float[np.ndarray, "M n_L"]:
        """Mean outputs."""
        return self._expectation(self._outputs).value

    @property
    def stderr(self) -> Float[np.ndarray, "M n_L"]:
        """The standard error of the mean, which is a number of the theory."""
        return self._expectation(self._outputs).stderr

    @property
    def correction(self) -> Estimate:
        """What order 1/n adds to the mean."""
        return self._expectation(self._outputs).correction

    @property
    def contributions(self) -> dict[str, np.ndarray]:
        """Its parts, also that of the distribution of initial outputs."""
        return self._expectation(self._outputs).contributions

    @property
    def variance(self) -> Float[np.ndarray, "M n_L"]:
        """The variance of every output."""
        return self._expectation(self._squares).value

    @property
    def variance_stderr(self) -> Float[np.ndarray, "M n_L"]:
        """Its standard error as a number of the theory."""
        return self._expectation(self._squares).stderr

    @property
    def variance_contributions(self) -> dict[str, np.ndarray]:
        """The parts of the correction to the variance."""
        return self._expectation(self._squares).contributions

    @property
    def sampling(self) -> Errors:
        """Standard errors of the theory itself, in the form that other records have them."""
        mean, variance = (self._expectation(found) for found in (self._outputs, self._squares))
        errors, of_variance = (self._errors(one) for one in (mean, variance))
        return replace(errors, variance=of_variance)

    def _errors(self, found: Expectation) -> Errors:
        largest = np.abs(found.correction.value).max(initial=0.0)
        rms = float(np.sqrt(np.mean(found.correction.stderr**2)))
        own = {name: part.stderr / self.n for name, part in self._outputs.contributions.items()}
        averaged = np.sqrt(np.mean(found.stderr**2, axis=1))  # a bound: outputs share their draws
        return Errors(self.samples, rms / largest if largest else 0.0, found.stderr, averaged, own)

    @property
    def probabilities(self) -> Expectation:
        """Mean class probabilities (M, n_L)."""
        if self.loss.probabilities_in_jax(jnp.zeros((1, self.net.outputs))) is None:
            raise ValueError(f"loss={self.loss!r} knows no classes; use loss=fw.CrossEntropy().")
        return self.expectation(lambda z: cast(jax.Array, self.loss.probabilities_in_jax(z)))

    def smoothed_accuracy(self, labels: ArrayLike, *, smoothing: float = 0.25) -> Expectation:
        """The mean share of right classes, with a softmax of outputs/smoothing in place of the largest.

        Order 1/n is known for smooth functions. Compare several values of `smoothing`: where the result
        depends on it, a smaller one says more.

        Args:
            labels: Class numbers (M,) or one-hot targets (M, n_L).
            smoothing: The difference of outputs over which a decision is spread.

        Returns:
            An average over networks and test inputs, with `correction` and `infinite_width`.
        """
        smoothing = as_positive("smoothing", smoothing)
        right = np.asarray(labels)
        if right.ndim == 1:
            right = one_hot(right, self.net.outputs)
        right = jnp.asarray(as_targets(right, *self.mean.shape, name="labels", inputs="the prediction"))
        decided = lambda z: jax.nn.softmax(z / smoothing, axis=-1)  # noqa: E731
        return self.expectation(lambda z: jnp.mean(jnp.sum(right * decided(z), axis=-1)))

    @property
    def infinite_width(self) -> AtInfiniteWidth:
        """Mean and variance at order 0."""
        mean, variance = self._outputs.leading, self._squares.leading
        return AtInfiniteWidth(mean.value, variance.value, mean.stderr, variance.stderr)

    # --- what is neglected ----------------------------------------------------------------------------

    gives_variance = True
    factors = None  # there is no covariance between outputs

    @property
    def variance_uncertainty(self) -> Float[np.ndarray, "M n_L"]:
        """What order 1/n neglects in the variance, one standard deviation."""
        known = self.truncation.variance
        return np.zeros_like(self.mean) if known is None else known

    @functools.cached_property
    def truncation(self) -> Truncation:
        """One standard deviation of what is neglected, by the recipe that the squared error calibrated.

        It was not judged on training points and beside them.
        """
        return truncation_of_replay(self, float(self._units.mean))

    @property
    def _units(self) -> Units:
        """In place of targets, the size of mean outputs at infinite width."""
        at_infinity = self.infinite_width
        size = float(np.sqrt(np.mean(at_infinity.mean**2)))
        return Units(size, size**2 + float(np.mean(at_infinity.variance)))

    @functools.cached_property
    def expansion(self) -> Expansion:
        """How large corrections are, and how much is neglected behind them."""
        return expansion_of(self, self.truncation, self._units)

    @property
    def uncertainty(self) -> Float[np.ndarray, "M n_L"]:
        """What order 1/n neglects in the mean, one standard deviation."""
        return self.truncation.mean

    @property
    def verdict(self) -> Verdict:
        """Whether order 1/n can be trusted, by its uncertainty alone."""
        return self.expansion.verdict

    def test_loss(self, Y_test, *, loss: AbstractLoss | None = None) -> TestLoss:
        """Expected loss of the ensemble against the targets of the test inputs.

        Args:
            Y_test: Targets of the test inputs (M, n_L).
            loss: A loss; by default the one of training.

        Returns:
            `bias`, which is the loss of the mean outputs, `variance`, the rest, and `total`.
        """
        used = self.loss if loss is None else as_loss(loss)
        mean = jnp.asarray(self.mean)
        Y = jnp.asarray(as_targets(Y_test, *mean.shape, name="Y_test", inputs="the prediction"))
        of_samples = jax.vmap(used.value)
        found = self._average(lambda z: jnp.append(of_samples(z, Y), used.value(z, Y)))
        each = self._expectation(found)
        bias = np.asarray(of_samples(mean, Y))
        rest = each.value[:-1] - bias
        return TestLoss(float(bias.sum()), float(rest.sum()), float(each.stderr[-1]), True, bias, rest)
