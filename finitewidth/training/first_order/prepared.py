r"""The trained ensemble through order 1/n (PDLT section inf.2), which `fw.predict` gives by default.

$$m = \Theta_{\beta A} F y + \frac1n \mu, \qquad
  \mathrm{Cov} = \delta_{ij} L G L^T + \frac1n C$$

with the mean NTK $H = \Theta + H_1/n$ and the mean kernel $G = K + G_1/n$ kept whole in the leading terms.
Statistics at initialization are the costly part: they are prepared once and serve any algorithm and time.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from finitewidth.core.checkpoint import digest
from finitewidth.core.display.progress import Progress
from finitewidth.core.display.records import shown
from finitewidth.core.inputs import as_targets
from finitewidth.core.memory import require_memory
from finitewidth.core.tasks import HERE, Runner, runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, check_algorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.theory.solve import solve_with
from finitewidth.theory.unrolled.pair_corrections import pair_corrections
from finitewidth.theory.unrolled.unroll import unroll
from finitewidth.training.first_order.eigenmodes import Modes
from finitewidth.training.first_order.expansion import judged, warn_of
from finitewidth.training.first_order.learning_problem import Problem
from finitewidth.training.first_order.mean_and_covariance import free_prediction
from finitewidth.training.first_order.pairs_with_skips import grouped_corrections
from finitewidth.training.first_order.route import AUTOMATIC, DENSE, Route, RouteName
from finitewidth.training.first_order.standard_errors import sampling_of, variance_parts
from finitewidth.training.first_order.tensor_forms import (
    AbstractTensors,
    SampledTensors,
    StreamedTensors,
    WholeTensors,
    check_end,
)
from finitewidth.training.infinite.conditioning import largest_condition, singular_error
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.neglected.along_training import Sizes, stops
from finitewidth.training.neglected.laggards import TrainingModes
from finitewidth.training.neglected.places import places_of
from finitewidth.training.neglected.truncation import SPREAD_OF_NTK, Along, depth_over_width, truncation_of

NEEDED = ("A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
_REMEDY = (
    "ask for the mean alone (covariance=False), which never stores them, for the variance of each output of "
    "a dense network with variance=True, or pass at most {fit} inputs"
)
_MATRICES = 60  # of size N^2 for each layer, at most
_TOLERANCES = {16: 1e-8, 32: 1e-6, math.inf: 1e-5}  # of four-leg averages, by number of samples


class Means(NamedTuple):
    """Mean kernel and NTK of the output at infinite width, and the coefficients of their 1/n corrections."""

    K: Float[np.ndarray, "N N"]
    Theta: Float[np.ndarray, "N N"]
    G1: Float[np.ndarray, "N N"]
    H1: Float[np.ndarray, "N N"]


@shown("n", "X", "Y", "error", "four_leg_error", "route", "net")
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
    route: Route = AUTOMATIC  # how order 1/n is computed

    @property
    def n(self) -> int:
        """The width n_{L-1} that the expansion is in."""
        return self.net.ladder.widths[-2]

    @functools.cached_property
    def modes(self) -> Modes:
        """Eigenmodes of the mean training NTK at this width."""
        K, Theta, G1, H1 = self.means
        return Modes.of(K, K + G1 / self.n, Theta + H1 / self.n, self.Y)

    @functools.cached_property
    def infinite(self) -> Modes:
        """Eigenmodes of the training NTK at infinite width."""
        return Modes.of(self.means.K, self.means.K, self.means.Theta, self.Y)

    def with_width(self, n: int) -> "Prepared":
        """The same where all hidden layers have width n: tensors depend on ratios of widths only."""
        widths = self.net.ladder.widths
        n_0, *hidden, n_L = widths
        if len(set(hidden)) > 1:
            raise ValueError(
                f"widths={widths} has unequal hidden layers, whose ratios another width would "
                "change; prepare the other network with fw.prepare."
            )
        return replace(self, net=self.net.with_widths((n_0, *[n] * len(hidden), n_L)))

    def with_targets(self, Y_train) -> "Prepared":
        """The same for other targets."""
        return replace(self, Y=as_targets(Y_train, self.Y.shape[0], self.Y.shape[1]))

    def predict(
        self,
        algorithm: AbstractAlgorithm = GradientFlow(),
        *,
        covariance: bool | None = None,
        client: Any = None,
        store: str | Path | None = None,
        progress: Progress = None,
    ) -> Prediction:
        """Mean and covariance of trained networks on the test inputs, or the mean alone.

        By default the covariance is given where whole tensors were prepared. Where tensors are contracted leg
        by leg, legs are tasks for `client`, `store` and `progress` as in `fw.predict`.
        """
        check_algorithm(algorithm, order=1)
        configuration = functools.partial(self._described, covariance, algorithm)
        with runner(client, store, progress, kind="prediction", configuration=configuration) as running:
            prediction = self.predict_with(running, algorithm, covariance)
        return _with_warning(prediction, stacklevel=4)

    def _described(self, covariance: bool | None, algorithm: AbstractAlgorithm) -> dict:
        count = len(self.Y)
        problem = Problem(self.net, self.X[:count], self.Y, self.X[count:] if len(self.X) > count else None)
        return problem.described(self.four_leg_error, bool(covariance), self.route, algorithm)

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
        covariance = self.tensors.give_covariance if covariance is None else covariance
        infinite = self._infinite_prediction(algorithm)
        free, rows = free_prediction(self.modes, self._response(self.modes, algorithm)), self.tests
        corrected = self.tensors.corrections(running, self.modes, algorithm, rows, covariance=covariance)
        parts = {"ntk_mean": free.mean[rows] - infinite.mean}
        parts |= {name: part / self.n for name, part in corrected.mean.items()}
        factors, wired, spread = None, None, {}
        if corrected.own is not None and corrected.wired is not None:
            factors = self._factors(free.among[np.ix_(rows, rows)] + corrected.own / self.n)
            wired = corrected.wired / self.n
        varied = variance_parts(corrected)
        if varied is not None:
            spread = {"mean_kernels": np.diag(free.among)[rows][:, None] - infinite.variance}
            spread |= {name: part / self.n for name, part in varied.items()}
        return replace(
            infinite,
            order=1,
            mean=infinite.mean + sum(parts.values()),
            factors=factors,
            error=max(self.error, self.four_leg_error),
            contributions=parts,
            variance_contributions=spread,
            leading=infinite,
            wired=wired,
            sampling=sampling_of(corrected, self.n),
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
        modes = self.infinite
        free = free_prediction(modes, self._response(modes, algorithm))
        factors = self._factors(free.among[np.ix_(self.tests, self.tests)])
        return Prediction(
            self.net, algorithm, 0, free.mean[self.tests], factors, _condition(modes.l), self.error
        )

    def _factors(self, among: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray]]:
        return ((np.eye(self.Y.shape[1]), among),)

    def _response(self, modes: Modes, algorithm: AbstractAlgorithm) -> np.ndarray:
        """f at the eigenvalues of the modes."""
        if algorithm.is_finished:
            condition = _condition(modes.l)
            if condition > largest_condition(modes.count):
                X = self.X[: modes.count]
                raise singular_error(self.net, X, self.Y, condition, remedy="stop at a finite time")
        algorithm.check_stable(float(modes.l[-1]), MSE())
        return algorithm.response(modes.l)


def _condition(l: np.ndarray) -> float:
    return float(l[-1] / l[0]) if l[0] > 0 else math.inf


def _with_warning(prediction: Prediction, stacklevel: int) -> Prediction:
    """The same prediction, after a warning where it is not to be trusted."""
    assert prediction.expansion is not None  # predictions of order 1 have it
    warn_of(prediction.expansion, prediction.condition, stacklevel=stacklevel)
    return prediction


# --- preparing statistics ----------------------------------------------------------------------------


@takes_models
def prepare(
    net: Network,
    X_train,
    Y_train,
    X_test=None,
    *,
    four_leg_tolerance: float | None = None,
    covariance: bool | None = None,
    route: RouteName | None = None,
    tolerance: float | None = None,
    samples: int | None = None,
    budget: float | None = None,
    variance: bool = False,
    key=0,
    client: Any = None,
    store: str | Path | None = None,
    progress: Progress = None,
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
        four_leg_tolerance: The accuracy of four-leg averages of the deterministic route; inverses of the
            training NTK amplify their errors 20 to 1000 times. By default 1e-8 for up to 16 samples, 1e-6 up
            to 32, and 1e-5 beyond.
        covariance: With True tensors are whole at any number of samples that fits into memory.
        route: "deterministic" or "sampled"; chosen by the number of samples by default.
        tolerance: The accuracy of sampling, as in `predict`.
        samples: The number of samples, as in `predict`.
        budget: The longest time of sampling in seconds, as in `predict`.
        variance: Whether to sample the variance too, as in `predict`.
        key: The randomness of sampling.
        client: A Dask client, as in `predict`.
        store: Where finished tasks are kept, as in `predict`.
        progress: A progress bar, as in `predict`.

    Returns:
        Statistics whose `predict` takes any algorithm.

    ```python
    prepared = fw.prepare(net, X, Y, X_test)
    prepared.predict(fw.GradientFlow(2.0)).mean, prepared.predict(fw.GradientDescent(0.1, 20)).mean
    ```
    """
    problem = Problem.of(net, X_train, Y_train, X_test)
    way = Route.of(route, tolerance=tolerance, samples=samples, budget=budget, variance=variance, key=key)
    covariance = _gives_covariance(problem, covariance, way)
    configuration = functools.partial(problem.described, four_leg_tolerance, covariance, way)
    with runner(client, store, progress, kind="statistics", configuration=configuration) as running:
        return prepare_with(running, problem, four_leg_tolerance, covariance=covariance, route=way)


def predict_first_order(
    net: Network,
    X_train,
    Y_train,
    X_test=None,
    *,
    algorithm: AbstractAlgorithm = GradientFlow(),
    four_leg_tolerance: float | None = None,
    covariance: bool | None = None,
    route: Route = AUTOMATIC,
    client: Any = None,
    store: str | Path | None = None,
    progress: Progress = None,
) -> Prediction:
    """`fw.predict` at order 1: statistics and prediction as one run."""
    check_algorithm(algorithm, order=1)
    problem = Problem.of(net, X_train, Y_train, X_test)
    covariance = _gives_covariance(problem, covariance, route)
    check_end(problem, algorithm, covariance, route)
    configuration = functools.partial(problem.described, four_leg_tolerance, covariance, route, algorithm)
    with runner(client, store, progress, kind="prediction", configuration=configuration) as running:
        prepared = prepare_with(running, problem, four_leg_tolerance, covariance=covariance, route=route)
        prediction = prepared.predict_with(running, algorithm, covariance)
    return _with_warning(prediction, stacklevel=6)  # behind `fw.predict` and its reader of models


def predict_at_times(
    problem: Problem,
    stops: Sequence[AbstractAlgorithm],
    route: Route,
    *,
    client: Any = None,
    store: str | Path | None = None,
    progress: Progress = None,
) -> tuple[Prediction, ...]:
    """`fw.trajectory` at order 1: statistics once, and a prediction for each stop, as one run."""
    for stop in stops:
        check_algorithm(stop, order=1)
        check_end(problem, stop, False, route)

    def configuration() -> dict:
        described = problem.described(None, None, route)
        return {**described, "Y_train": digest(problem.Y), "stops": [stop.fingerprint() for stop in stops]}

    with runner(client, store, progress, kind="trajectory", configuration=configuration) as running:
        prepared = prepare_with(running, problem, route=route)
        predictions = [
            prepared.predict_with(replace(running, prefix=f"stop_{index}_"), stop, None)
            for index, stop in enumerate(stops)
        ]
    return tuple(_with_warning(prediction, stacklevel=6) for prediction in predictions)


def prepare_with(
    running: Runner,
    problem: Problem,
    four_leg_tolerance: float | None = None,
    *,
    covariance: bool | None = None,
    route: Route = AUTOMATIC,
) -> Prepared:
    """The result of `prepare` for a checked problem, its tasks run by a runner."""
    X, tests = problem.merged_inputs()
    if four_leg_tolerance is None:
        four_leg_tolerance = next(tol for most, tol in _TOLERANCES.items() if X.shape[0] <= most)
    covariance = _gives_covariance(problem, covariance, route)
    whole = covariance or X.shape[0] <= DENSE
    build = _whole if whole and route.name != "sampled" else _in_parts
    return replace(build(running, problem, X, tests, four_leg_tolerance, route), route=route)


def _gives_covariance(problem: Problem, covariance: bool | None, route: Route) -> bool:
    """Whether the covariance is wanted: by default where whole tensors are."""
    if route.name == "sampled":
        route.check_sampled(problem.net.ladder.has_skips, covariance)
        return False
    return problem.merged_inputs()[0].shape[0] <= DENSE if covariance is None else covariance


def _whole(
    running: Runner, problem: Problem, X: np.ndarray, tests: np.ndarray, tolerance: float, route: Route
) -> Prepared:
    theory = solve_with(
        running,
        problem.net,
        X,
        four_leg_tolerance=tolerance,
        layers=(problem.net.depth,),
        tensors=NEEDED,
        remedy=_REMEDY,
    )
    arrays = theory.output.arrays
    means = Means(*(arrays[name] for name in Means._fields))
    tensors = WholeTensors({name: arrays[name] for name in NEEDED})
    return Prepared(problem.net, X, problem.Y, tests, theory.error, theory.four_leg_error, means, tensors)


def _in_parts(
    running: Runner, problem: Problem, X: np.ndarray, tests: np.ndarray, tolerance: float, route: Route
) -> Prepared:
    """Tensors leg by leg, or in samples."""
    net = problem.net
    require_memory(
        8 * _MATRICES * net.depth * X.shape[0] ** 2,
        f"order 1/n for {X.shape[0]} inputs",
        "pass at most {fit} inputs, training and test together",
        count=X.shape[0],
        power=2,
    )
    route.check_variance(net.ladder.has_skips)
    pair = kernels(net, X)
    assert pair.Theta is not None  # the activation is smooth
    streamed = StreamedTensors(net, X, tolerance, route.accuracy.budget)
    if net.ladder.has_skips:
        means = Means(pair.K, pair.Theta, *grouped_corrections(net, X, tolerance, running))
        return Prepared(net, X, problem.Y, tests, pair.error, tolerance, means, streamed)
    corrected = pair_corrections(net, X)
    means = Means(pair.K, pair.Theta, corrected.G1, corrected.H1)
    if route.name == "deterministic":
        return Prepared(net, X, problem.Y, tests, pair.error, tolerance, means, streamed)
    instead = None if route.name == "sampled" else streamed
    tensors = SampledTensors(unroll(net, X), route.accuracy, route.variance, instead)
    return Prepared(net, X, problem.Y, tests, pair.error, corrected.error, means, tensors)
