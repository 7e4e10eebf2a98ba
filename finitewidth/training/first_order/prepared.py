r"""The trained ensemble through order 1/n (PDLT section inf.2), which `fw.predict` gives by default.

$$m = \Theta_{\beta A} F y + \frac1n \mu, \qquad
  \mathrm{Cov} = \delta_{ij} L G L^T + \frac1n C$$

with the mean NTK $H = \Theta + H_1/n$ and the mean kernel $G = K + G_1/n$ kept whole in the leading terms.
Statistics at initialization are the costly part: they are prepared once and serve any algorithm and time.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from finitewidth.core.checkpoint import digest
from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_targets
from finitewidth.core.memory import require_memory
from finitewidth.core.methods import FirstOrder as Method
from finitewidth.core.methods import LegByLeg, Sampling, Tensors
from finitewidth.core.run import Run, as_run, runner
from finitewidth.core.tasks import HERE, Runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, check_algorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.kernels import Kernels, kernels
from finitewidth.theory.solve import solve_with
from finitewidth.theory.unrolled.pair_corrections import pair_corrections
from finitewidth.theory.unrolled.unroll import unroll
from finitewidth.training.first_order.chosen_method import Chosen
from finitewidth.training.first_order.eigenmodes import Modes
from finitewidth.training.first_order.expansion import judged, warn_of
from finitewidth.training.first_order.learning_problem import Problem, of_width
from finitewidth.training.first_order.mean_and_covariance import free_prediction
from finitewidth.training.first_order.pairs_with_skips import grouped_corrections
from finitewidth.training.first_order.standard_errors import sampling_of, variance_parts
from finitewidth.training.first_order.tensor_forms import (
    AbstractTensors,
    SampledTensors,
    StreamedTensors,
    WholeTensors,
    check_end,
)
from finitewidth.training.infinite.conditioning import largest_condition, singular_error
from finitewidth.training.infinite.fitting import fit_kernels
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.neglected.along_training import Sizes, stops
from finitewidth.training.neglected.laggards import TrainingModes
from finitewidth.training.neglected.places import places_of
from finitewidth.training.neglected.truncation import SPREAD_OF_NTK, Along, depth_over_width, truncation_of

NEEDED = ("A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
_REMEDY = (
    "ask for the mean alone (covariance=False and no method), which never stores them, for the variance of "
    "each output of a dense network with method=fw.Sampling(variance=True), or pass at most {fit} inputs"
)
_STOP = "stop at a finite time"
_MATRICES = 60  # of size N^2 for each layer, at most


class Means(NamedTuple):
    """Mean kernel and NTK of the output at infinite width, and the coefficients of their 1/n corrections."""

    K: Float[np.ndarray, "N N"]
    Theta: Float[np.ndarray, "N N"]
    G1: Float[np.ndarray, "N N"]
    H1: Float[np.ndarray, "N N"]


@shown("n", "X", "Y", "error", "four_leg_error", "method", "net")
@dataclass(frozen=True, eq=False)
class Prepared:
    """Statistics of a network on training and test inputs, ready for any algorithm.

    `fw.prepare` makes it.

    ```python
    prepared = fw.prepare(net, X, Y, X_test)
    prepared.predict(fw.GradientFlow(2.0)).mean, prepared.with_width(128).predict().mean
    ```
    """

    net: Network
    X: Float[np.ndarray, "N n0"]  # training inputs first, then test inputs that are not among them
    Y: Float[np.ndarray, "N_A n_L"]  # targets of the training inputs
    tests: Int[np.ndarray, " M"]  # the place of each test input in X
    error: float  # of two-leg averages, in units of the scale they live on
    four_leg_error: float  # largest absolute error of a four-leg average
    means: Means = field(repr=False)  # K, Theta, G1 and H1
    # tensors of order 1/n, whole or in a form that contracts them
    tensors: AbstractTensors = field(repr=False)
    method: Method | None  # how order 1/n is computed; None where that depends on the algorithm
    covariance: bool = False  # whether predictions have it by themselves

    @property
    def n(self) -> int:
        """The width n_{L-1} that the expansion is in."""
        return self.net.ladder.widths[-2]

    @functools.cached_property
    def modes(self) -> Modes:
        """Eigenmodes of the mean training NTK at this width."""
        K, Theta, G1, H1 = self.means
        return Modes.of(K, K + G1 / self.n, Theta + H1 / self.n, self.Y)

    def with_width(self, n: int) -> "Prepared":
        """The same where all hidden layers have width n: tensors depend on ratios of widths only."""
        net = of_width(self.net, n)
        if net.has_orthogonal_weights:
            self.net.ladder.require_isometries_of(net.ladder)
        return replace(self, net=net)

    def with_targets(self, Y_train: ArrayLike) -> "Prepared":
        """The same for other targets."""
        return replace(self, Y=as_targets(Y_train, self.Y.shape[0], self.Y.shape[1]))

    def predict(
        self,
        algorithm: AbstractAlgorithm = GradientFlow(),
        *,
        covariance: bool | None = None,
        run: Run | None = None,
    ) -> Prediction:
        """Mean and covariance of trained networks on the test inputs, or the mean alone.

        By default the covariance is given where it was prepared. Legs that are contracted one by
        one, and neurons that are drawn, are tasks for an `fw.Run`; whole tensors have no tasks left.
        """
        check_algorithm(algorithm, order=1)
        run = as_run(run, tasks=self.tensors.have_tasks)
        configuration = functools.partial(self._described, covariance, algorithm)
        with runner(run, kind="prediction", configuration=configuration) as running:
            prediction = self.predict_with(running, algorithm, covariance)
        return _with_warning(prediction)

    def _described(self, covariance: bool | None, algorithm: AbstractAlgorithm) -> dict:
        count = len(self.Y)
        problem = Problem(self.net, self.X[:count], self.Y, self.X[count:] if len(self.X) > count else None)
        chosen = Chosen(self.method, bool(covariance), self.four_leg_error)
        return problem.described(chosen, algorithm) | {"four_leg_error": self.four_leg_error}

    def predict_with(
        self, running: Runner, algorithm: AbstractAlgorithm, covariance: bool | None
    ) -> Prediction:
        """The result of `predict`, its tasks run by a runner, without a warning; see its `expansion`."""
        prediction = self._expanded(running, algorithm, covariance)
        count = len(self.Y)
        neglected = truncation_of(prediction, self._training_modes, self._along(algorithm))
        places = places_of(self.means.Theta, np.arange(count), self.tests)
        untrained = float(np.diag(self.means.K)[:count].max(initial=0.0))
        return judged(prediction, neglected, self.Y, untrained, places)

    def _expanded(self, running: Runner, algorithm: AbstractAlgorithm, covariance: bool | None) -> Prediction:
        """The prediction without what it neglects."""
        covariance = self.covariance if covariance is None else covariance
        infinite, tensors = self._infinite_prediction(algorithm), self.tensors.serving(algorithm, len(self.Y))
        free, rows = free_prediction(self.modes, self._response(algorithm)), self.tests
        corrected = tensors.corrections(running, self.modes, algorithm, rows, covariance=covariance)
        parts = {"ntk_mean": free.mean[rows] - infinite.mean}
        parts |= {name: part / self.n for name, part in corrected.mean.items()}
        factors, coupling, of_variance = None, None, {}
        if corrected.own is not None and corrected.coupling is not None:
            of_samples = free.covariance[np.ix_(rows, rows)] + corrected.own / self.n
            factors = ((np.eye(self.Y.shape[1]), of_samples),)
            coupling = corrected.coupling / self.n
        varied = variance_parts(corrected)
        if varied is not None:
            of_variance = {"mean_kernels": np.diag(free.covariance)[rows][:, None] - infinite.variance}
            of_variance |= {name: part / self.n for name, part in varied.items()}
        return replace(
            infinite,
            order=1,
            mean=infinite.mean + sum(parts.values()),
            factors=factors,
            error=max(self.error, self.four_leg_error),
            contributions=parts,
            variance_contributions=of_variance,
            leading=infinite,
            coupling=coupling,
            sampling=sampling_of(corrected, self.n),
            method=tensors.method,
        )

    @functools.cached_property
    def _training_modes(self) -> TrainingModes:
        """What networks that learn late are made of."""
        modes, response = self.modes, self.modes.response[self.tests]
        whole = self.tensors.of_training(modes.count)
        if whole is None:
            spread = np.full(modes.count, SPREAD_OF_NTK * depth_over_width(self.net))
        else:
            spread = whole.eigenvalue_spread(modes, self.n)
        follow = np.sum(response**2, axis=1, keepdims=True)
        return TrainingModes(modes.l, spread, np.diag(modes.training_kernel), modes.y.T, response, follow)

    @functools.cached_property
    def _on_training(self) -> "Prepared | None":
        """The same of the training points alone, where whole tensors are at hand."""
        count = len(self.Y)
        whole = self.tensors.of_training(count)
        if whole is None:
            return None
        means = Means(*(matrix[:count, :count] for matrix in self.means))
        return replace(self, X=self.X[:count], tests=np.arange(count), means=means, tensors=whole)

    @functools.cached_property
    def _sizes(self) -> dict[str, Sizes]:
        """Those that are known of corrections on training points, by the stop of training."""
        return {}

    def _along(self, algorithm: AbstractAlgorithm) -> Along | None:
        """How large corrections on the training points are on the way of the algorithm."""
        training = self._on_training
        if training is None:
            return None
        for stop in (on_the_way := [*stops(algorithm, self.modes.l), algorithm]):
            if repr(stop) not in self._sizes:
                one = training._expanded(HERE, stop, True)
                self._sizes[repr(stop)] = Sizes.of(one.contributions, one.variance_contributions)
        return Along.of([self._sizes[repr(stop)] for stop in on_the_way])

    def _infinite_prediction(self, algorithm: AbstractAlgorithm) -> Prediction:
        """The prediction at order 0, from the same kernels."""
        K, Theta, count, tests = self.means.K, self.means.Theta, len(self.Y), self.tests
        train, cross = (
            Kernels(self.net, self.net.depth, K[rows, :count].copy(), Theta[rows, :count].copy(), self.error)
            for rows in (slice(count), tests)
        )
        fitted = fit_kernels(train, self.X[:count], self.Y, algorithm, MSE(), remedy=_STOP)
        return fitted.conditioned(cross, K[np.ix_(tests, tests)])

    def _response(self, algorithm: AbstractAlgorithm) -> np.ndarray:
        """f at the eigenvalues of the mean training NTK."""
        l = self.modes.l
        if algorithm.is_finished:
            condition = float(l[-1] / l[0]) if l[0] > 0 else np.inf
            if condition > largest_condition(l.size):
                raise singular_error(self.net, self.X[: l.size], self.Y, condition, remedy=_STOP)
        algorithm.check_stable(float(l[-1]), MSE())
        return algorithm.response(l)


def _with_warning(prediction: Prediction) -> Prediction:
    """The same prediction, after a warning where it is not to be trusted."""
    assert prediction.expansion is not None  # predictions of order 1 have it
    warn_of(prediction.expansion, prediction.condition)
    return prediction


# --- preparing statistics ----------------------------------------------------------------------------


@takes_models
def prepare(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike | None = None,
    *,
    covariance: bool | None = None,
    method: Method | None = None,
    run: Run | None = None,
) -> Prepared:
    """Prepare statistics through order 1/n once, to ask about many algorithms and times.

    Up to 64 samples have whole tensors, which give mean and covariance. More samples have the mean alone:
    gradient flow and descent stopped at a finite time are sampled, and so is the end of training of more than
    100 inputs; the rest is contracted leg by leg, and nothing of size N^4 is stored.

    Args:
        net: A network of dense layers, smooth activations and residual blocks of them.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0); the training inputs by default.
        covariance: With True tensors are whole at any number of samples that fits into memory; with False
            predictions leave the covariance out unless they are asked for it.
        method: `fw.Tensors`, `fw.LegByLeg` or `fw.Sampling`; None chooses by the number of samples.
        run: Where finished tasks are kept, and who computes them; only whole tensors, and networks with skip
            connections, have long work before the algorithm is known.

    Returns:
        Statistics whose `predict` takes any algorithm.

    ```python
    prepared = fw.prepare(net, X, Y, X_test)
    prepared.predict(fw.GradientFlow(2.0)).mean, prepared.predict(fw.GradientDescent(0.1, 20)).mean
    ```
    """
    problem = Problem.of(net, X_train, Y_train, X_test)
    chosen = problem.choose(method, covariance)
    described = functools.partial(problem.described, chosen)
    run = as_run(run, tasks=net.ladder.has_skips or isinstance(chosen.method, Tensors))
    with runner(run, kind="statistics", configuration=described) as running:
        return prepare_with(running, problem, chosen)


def predict_first_order(
    problem: Problem, algorithm: AbstractAlgorithm, chosen: Chosen, run: Run | None
) -> Prediction:
    """`fw.predict` at order 1: statistics and prediction as one run."""
    check_algorithm(algorithm, order=1)
    check_end(problem, algorithm, chosen)
    described = functools.partial(problem.described, chosen, algorithm)
    with runner(run, kind="prediction", configuration=described) as running:
        prepared = prepare_with(running, problem, chosen)
        prediction = prepared.predict_with(running, algorithm, chosen.covariance)
    return _with_warning(prediction)


def predict_at_times(
    problem: Problem, stops: Sequence[AbstractAlgorithm], chosen: Chosen, run: Run | None
) -> tuple[Prediction, ...]:
    """`fw.trajectory` at order 1: statistics once, and a prediction for each stop, as one run."""
    for stop in stops:
        check_algorithm(stop, order=1)
        check_end(problem, stop, chosen)

    def described() -> dict:
        ends = [stop.fingerprint() for stop in stops]
        return {**problem.described(chosen), "Y_train": digest(problem.Y), "stops": ends}

    with runner(run, kind="trajectory", configuration=described) as running:
        prepared = prepare_with(running, problem, chosen)
        predictions = [
            prepared.predict_with(replace(running, prefix=f"stop_{index}_"), stop, None)
            for index, stop in enumerate(stops)
        ]
    return tuple(_with_warning(prediction) for prediction in predictions)


def prepare_with(running: Runner, problem: Problem, chosen: Chosen) -> Prepared:
    """The result of `prepare` for a checked problem, its tasks run by a runner."""
    if isinstance(chosen.method, Tensors):
        return _whole(running, problem, chosen.method, chosen.covariance)
    return _in_parts(running, problem, chosen)


def _whole(running: Runner, problem: Problem, method: Tensors, covariance: bool) -> Prepared:
    X, tests = problem.merged
    theory = solve_with(
        running,
        problem.net,
        X,
        tolerance=method.kernel_tolerance,
        four_leg_tolerance=method.tolerance,
        layers=(problem.net.depth,),
        tensors=NEEDED,
        remember=method.remember,
        remedy=_REMEDY,
    )
    arrays = theory.output.arrays
    means = Means(*(arrays[name] for name in Means._fields))
    tensors = WholeTensors({name: arrays[name] for name in NEEDED}, method)
    errors = theory.error, theory.four_leg_error
    return Prepared(problem.net, X, problem.Y, tests, *errors, means, tensors, method, covariance)


def _in_parts(running: Runner, problem: Problem, chosen: Chosen) -> Prepared:
    """Tensors leg by leg, or in samples."""
    (X, tests), net, tolerance = problem.merged, problem.net, chosen.tolerance
    require_memory(
        8 * _MATRICES * net.depth * X.shape[0] ** 2,
        f"order 1/n for {X.shape[0]} inputs",
        "pass at most {fit} inputs, training and test together",
        count=X.shape[0],
        power=2,
    )
    pair = kernels(net, X)
    assert pair.Theta is not None  # the activation is smooth
    leg_by_leg = chosen.method if isinstance(chosen.method, LegByLeg) else LegByLeg(tolerance)
    streamed = StreamedTensors(net, X, leg_by_leg)
    if net.ladder.has_skips:
        means = Means(pair.K, pair.Theta, *grouped_corrections(net, X, tolerance, running))
        return Prepared(net, X, problem.Y, tests, pair.error, tolerance, means, streamed, leg_by_leg)
    corrected = pair_corrections(net, X)
    means = Means(pair.K, pair.Theta, corrected.G1, corrected.H1)
    if isinstance(chosen.method, LegByLeg):
        return Prepared(net, X, problem.Y, tests, pair.error, tolerance, means, streamed, leg_by_leg)
    if isinstance(chosen.method, Sampling):
        tensors = SampledTensors(unroll(net, X), chosen.method)
    else:
        tensors = SampledTensors(unroll(net, X), Sampling(), instead=streamed)
    return Prepared(net, X, problem.Y, tests, pair.error, corrected.error, means, tensors, chosen.method)
