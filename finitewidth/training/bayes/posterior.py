"""The posterior of networks given noisy observations of their outputs, which `fw.bayes.posterior` returns."""

import dataclasses
import functools
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike
from finitewidth.core.memory import require_memory
from finitewidth.core.methods import Tensors
from finitewidth.core.run import Run, runner
from finitewidth.core.tasks import Runner
from finitewidth.network.algorithms.newton import Newton
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.network import Network
from finitewidth.theory.ratios import Verdict
from finitewidth.theory.vertex.fields import Fields
from finitewidth.training.bayes.bayesian_problem import BayesianProblem, checked, tolerance_of
from finitewidth.training.bayes.conditioned_prior import ConditionedPrior
from finitewidth.training.bayes.hidden_layers import HiddenLayer, hidden_layer
from finitewidth.training.bayes.posterior_corrections import Corrections, Cumulants, corrections
from finitewidth.training.first_order.expansion import Wording, judged_posterior, warn_of
from finitewidth.training.infinite.bayes import infinite_posterior, trained_for
from finitewidth.training.infinite.gaussian import Expansion, Factor, Prediction
from finitewidth.training.neglected.places import places_of
from finitewidth.training.neglected.posteriors import posterior_truncation

WORDING = Wording(
    "the posterior standard deviation",
    "the posterior variance",
    "training kernel",
    "widen the network, use fewer data, or take a prior and a noise that fit the scale of the data",
)


@shown(
    "mean",
    "uncertainty",
    "std",
    "variance_uncertainty",
    "order",
    "noise",
    "condition",
    "net",
    dimensions=dict.fromkeys(
        ("mean", "uncertainty", "std", "variance", "variance_uncertainty"), "sample output"
    ),
)
@dataclass(frozen=True, eq=False)
class Posterior:
    """Mean and covariance of the outputs at the test inputs, given noisy observations.

    `fw.bayes.posterior` makes it.

    ```python
    posterior = fw.bayes.posterior(net, X, Y, X_test, noise=0.1)
    posterior.mean, posterior.std, posterior.verdict, posterior.layer(2)
    ```
    """

    prediction: Prediction  # the same numbers as a prediction
    noise: float  # variance of the observations
    covariance_contributions: dict[str, np.ndarray] = field(default_factory=dict, repr=False)  # (M, M), 1/n
    log_evidence_correction: float | None = None  # Q/n
    cumulants: Cumulants | None = field(default=None, repr=False)  # divided by n, where asked for
    given: ConditionedPrior | None = field(
        default=None, repr=False
    )  # what the hidden layers know of the data
    fields: Fields | None = field(default=None, repr=False)  # statistics of the hidden layers

    @property
    def net(self) -> Network:
        return self.prediction.net

    @property
    def order(self) -> int:
        return self.prediction.order

    @property
    def mean(self) -> Float[np.ndarray, "M n_L"]:
        return self.prediction.mean

    @property
    def covariance(self) -> Float[np.ndarray, "M n_L M n_L"]:
        """Between outputs of two samples, without the noise of new observations."""
        return self.prediction.covariance

    @property
    def variance(self) -> Float[np.ndarray, "M n_L"]:
        return self.prediction.variance

    @property
    def std(self) -> Float[np.ndarray, "M n_L"]:
        """Standard deviations of the outputs themselves; NaN where the variance is below zero."""
        return self.prediction.std

    @property
    def observed_std(self) -> Float[np.ndarray, "M n_L"]:
        """Standard deviations of new noisy observations; NaN where their variance is below zero."""
        observed = self.variance + self.noise
        nothing = self.prediction.below_zero & (observed < 0)
        return np.where(nothing, np.nan, np.sqrt(np.maximum(observed, 0.0)))

    @property
    def within_samples(self) -> Float[np.ndarray, "M n_L n_L"]:
        """The covariance between outputs of the same sample."""
        return self.prediction.within_samples

    @property
    def factors(self) -> tuple[Factor, ...] | None:
        return self.prediction.factors

    @property
    def coupling(self) -> Float[np.ndarray, "M n_L M n_L"] | None:
        """The covariance that data create, also between different outputs; none at infinite width."""
        return self.prediction.coupling

    @property
    def contributions(self) -> dict[str, np.ndarray]:
        """Of order 1/n to the mean: the shift of the mean kernel, and V with and without the data."""
        return self.prediction.contributions

    @property
    def expansion(self) -> Expansion | None:
        return self.prediction.expansion

    @property
    def condition(self) -> float:
        return self.prediction.condition

    @property
    def infinite_width(self) -> Prediction:
        """The same at order 0."""
        return self.prediction.infinite_width

    @property
    def uncertainty(self) -> Float[np.ndarray, "M n_L"]:
        """What order 1/n neglects in the mean, one standard deviation; zero at infinite width."""
        return self.prediction.uncertainty

    @property
    def variance_uncertainty(self) -> Float[np.ndarray, "M n_L"]:
        """What order 1/n neglects in the variance, one standard deviation; zero at infinite width."""
        return self.prediction.variance_uncertainty

    @property
    def verdict(self) -> Verdict:
        """Whether order 1/n can be trusted, by its uncertainty alone, measured by the posterior itself.

        That is the largest uncertainty of a mean in units of the standard deviation of that output, or of a
        variance in units of that variance, whichever is larger.
        """
        return self.prediction.verdict

    @property
    def skewness(self) -> Float[np.ndarray, "M n_L"]:
        """Third cumulant of each output over the power 3/2 of its infinite-width variance."""
        third = self._cumulants().third
        return _relative(3 * np.einsum("bbbi->bi", third), self.infinite_width.variance**1.5)

    @property
    def excess_kurtosis(self) -> Float[np.ndarray, "M n_L"]:
        """Fourth cumulant of each output over the square of its infinite-width variance."""
        fourth = np.einsum("bbbb->b", self._cumulants().fourth)
        return _relative(3 * fourth[:, None], self.infinite_width.variance**2)

    def layer(self, index: int) -> HiddenLayer:
        """Layer `index` given the data, on the training inputs and then on the test inputs."""
        if self.given is None or self.fields is None:
            raise ValueError("at infinite width hidden layers do not learn from data; use order=1.")
        return hidden_layer(self.fields, self.given, index)

    def _cumulants(self) -> Cumulants:
        if self.cumulants is None:
            raise ValueError("cumulants were not computed; use fw.bayes.posterior(..., cumulants=True).")
        return self.cumulants


@takes_models
def posterior(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike | None = None,
    *,
    noise: float = 0.0,
    order: int = 1,
    cumulants: bool = False,
    method: Tensors | None = None,
    run: Run | None = None,
) -> Posterior:
    """The distribution of outputs given noisy observations.

    At infinite width the prior is Gaussian and every layer is known. At order 1 networks have dense layers,
    activations (also with kinks) and residual blocks of smooth ones; hidden layers learn from the data
    (`layer`), outputs are coupled (`coupling`), and the distribution is not Gaussian. Beyond 64 inputs
    nothing of size N^4 is stored.

    Args:
        net: The network.
        X_train: Training inputs (N, n_0).
        Y_train: Observed targets (N, n_L).
        X_test: Test inputs (M, n_0); the training inputs by default.
        noise: The variance of the observations.
        order: 0 is infinite width, 1 is through order 1/n.
        cumulants: Whether to compute `skewness` and `excess_kurtosis`, at order 1.
        method: The accuracy of four-leg averages at order 1, an `fw.Tensors`.
        run: Store, cluster and progress of order 1, an `fw.Run`; tasks are averages of four sigmas.

    Returns:
        `mean`, `std` and `covariance` on the test inputs.

    ```python
    fw.bayes.posterior(net, X, Y, X_test, noise=0.1).mean
    ```
    """
    if checked(order, method, run) == 0:
        if cumulants:
            raise ValueError("cumulants=True is for order=1; at infinite width the posterior is Gaussian.")
        return Posterior(infinite_posterior(net, X_train, Y_train, X_test, noise=noise), float(noise))
    problem = BayesianProblem.of(net, X_train, Y_train, X_test, noise, tolerance_of(method))
    configuration = functools.partial(_described, problem, cumulants)
    with runner(run, kind="posterior", configuration=configuration) as running:
        conditioned = _first_order(running, problem, cumulants)
    assert conditioned.expansion is not None
    warn_of(conditioned.expansion, conditioned.condition, wording=WORDING)
    return conditioned


def _described(problem: BayesianProblem, cumulants: bool) -> dict:
    return {**problem.described(), "cumulants": cumulants}


def _first_order(running: Runner, problem: BayesianProblem, cumulants: bool) -> Posterior:
    fields, given = problem.prepared(running)
    _require_memory(given, cumulants)
    corrected = corrections(given, fields.vertex(problem.net.depth), cumulants=cumulants, running=running)
    n = problem.net.ladder.widths[-2]
    prediction = _prediction(problem, given, corrected, max(fields.error, fields.tolerance))
    untrained = float(np.diag(given.K).max(initial=0.0))
    T, a, K = given.T, given.a, given.K
    left_open, fitted = (np.einsum("ab,ac,cb->b", part, K, part, optimize=True) for part in (T, a))
    change, points = corrected.change / n, len(given.train)
    neglected = posterior_truncation(prediction, change, points, np.maximum(left_open, 0.0), fitted)
    places = places_of(K, given.train, given.tests)
    prediction = judged_posterior(prediction, neglected, untrained, places)
    third_and_fourth = corrected.cumulants
    if third_and_fourth is not None:
        third_and_fourth = Cumulants(third_and_fourth.third / n, third_and_fourth.fourth / n)
    return Posterior(
        prediction,
        problem.noise,
        {name: part / n for name, part in corrected.own.items()},
        corrected.log_density / n,
        third_and_fourth,
        given,
        fields,
    )


def _prediction(
    problem: BayesianProblem, given: ConditionedPrior, corrected: Corrections, error: float
) -> Prediction:
    n, one = problem.net.ladder.widths[-2], np.eye(given.outputs)
    infinite = Prediction(
        trained_for(problem.net), Newton(), 0, given.mean, ((one, given.covariance),), given.condition, error
    )
    parts = {name: part / n for name, part in corrected.mean.items()}
    shape, coupling = infinite.mean.shape, corrected.coupling / n
    spread = {k: np.broadcast_to(np.diag(part)[:, None] / n, shape) for k, part in corrected.own.items()}
    spread["coupling"] = np.einsum("aiai->ai", coupling)
    return dataclasses.replace(
        infinite,
        order=1,
        mean=infinite.mean + sum(parts.values()),
        factors=((one, given.covariance + sum(corrected.own.values()) / n),),
        contributions=parts,
        variance_contributions=spread,
        leading=infinite,
        coupling=coupling,
    )


def _require_memory(given: ConditionedPrior, cumulants: bool) -> None:
    tests, outputs, N = given.tests.size, given.outputs, len(given.K)
    matrices = tests * (outputs + tests * cumulants)
    require_memory(
        8 * (4 * matrices * N**2 + 3 * (tests * outputs) ** 2),
        f"a posterior of {tests} test inputs and {outputs} outputs at order 1/n",
        "pass fewer test inputs at a time",
    )


def _relative(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Values over a scale; zero where the data determine the output."""
    return np.divide(values, scale, out=np.zeros_like(scale), where=scale > 0)
