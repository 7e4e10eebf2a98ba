r"""The trained ensemble through order 1/n (PDLT section inf.2), which `fw.predict` gives by default.

$$m = \Theta_{\beta A} F y + \frac1n \mu, \qquad
  \mathrm{Cov} = \delta_{ij} L G L^T + \frac1n C$$

with the mean NTK $H = \Theta + H_1/n$ and the mean kernel $G = K + G_1/n$ kept whole in the leading terms.
Statistics at initialization are the costly part: they are prepared once and serve any algorithm and time.
"""

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from finitewidth.core.inputs import as_targets
from finitewidth.core.progress import Progress
from finitewidth.core.tasks import Runner, runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, check_algorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.symbols import Symbols
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.theory.solve import solve_with
from finitewidth.training.first_order.corrections import leap
from finitewidth.training.first_order.expansion import expansion_of, warn_of
from finitewidth.training.first_order.modes import Modes
from finitewidth.training.first_order.problem import Problem
from finitewidth.training.first_order.streamed import pair_corrections
from finitewidth.training.first_order.tensors import AbstractTensors, StreamedTensors, WholeTensors
from finitewidth.training.infinite.conditioning import largest_condition, singular_error
from finitewidth.training.infinite.gaussian import Prediction

DENSE = 64  # samples; beyond, tensors of N^4 numbers are avoided where only the mean is asked for
NEEDED = ("A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
_REMEDY = "ask for the mean alone (covariance=False), which never stores them, or pass fewer inputs"
_TOLERANCES = {16: 1e-8, 32: 1e-6, math.inf: 1e-5}  # of four-leg averages, by number of samples


class Means(NamedTuple):
    """Mean kernel and NTK of the output at infinite width, and the coefficients of their 1/n corrections."""

    K: Float[np.ndarray, "N N"]
    Theta: Float[np.ndarray, "N N"]
    G1: Float[np.ndarray, "N N"]
    H1: Float[np.ndarray, "N N"]


class _Free(NamedTuple):
    """The prediction of a frozen NTK on all samples."""

    mean: np.ndarray  # (N, n_L)
    among: np.ndarray  # covariance of each output, (N, N)


@dataclass(frozen=True, eq=False)
class FiniteWidth:
    """Statistics of a network on training and test inputs, ready for any algorithm."""

    net: Network
    X: Float[np.ndarray, "N n0"]  # training inputs first, then test inputs that are not among them
    Y: Float[np.ndarray, "N_A n_L"]
    tests: Int[np.ndarray, " M"]  # the place of each test input in X
    error: float  # of two-leg averages, in units of the scale they live on
    four_leg_error: float
    means: Means = field(repr=False)
    tensors: AbstractTensors = field(repr=False)

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

    def with_width(self, n: int) -> "FiniteWidth":
        """The same where all hidden layers have width n: tensors depend on ratios of widths only."""
        widths = self.net.ladder.widths
        n_0, *hidden, n_L = widths
        if len(set(hidden)) > 1:
            raise ValueError(
                f"widths={widths} has unequal hidden layers, whose ratios another width would "
                "change; prepare the other network with fw.finite_width."
            )
        return dataclasses.replace(self, net=self.net.with_widths((n_0, *[n] * len(hidden), n_L)))

    def with_targets(self, Y_train) -> "FiniteWidth":
        """The same for other targets."""
        return dataclasses.replace(self, Y=as_targets(Y_train, self.Y.shape[0], self.Y.shape[1]))

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
        configuration = functools.partial(self._described, bool(covariance), algorithm)
        with runner(client, store, progress, kind="prediction", configuration=configuration) as running:
            prediction = self.predict_with(running, algorithm, covariance)
        return _with_warning(prediction, stacklevel=4)

    def _described(self, covariance: bool, algorithm: AbstractAlgorithm) -> dict:
        count = len(self.Y)
        problem = Problem(self.net, self.X[:count], self.Y, self.X[count:] if len(self.X) > count else None)
        return problem.described(self.four_leg_error, covariance, algorithm)

    def predict_with(
        self, running: Runner, algorithm: AbstractAlgorithm, covariance: bool | None
    ) -> Prediction:
        """The result of `predict`, its tasks run by a runner, without a warning; see its `expansion`."""
        covariance = self.tensors.give_covariance if covariance is None else covariance
        infinite = self._infinite_prediction(algorithm)
        s = self._symbols(self.modes, algorithm)
        free, rows = _free(self.modes, s), self.tests
        corrected = self.tensors.corrections(running, self.modes, algorithm, s, covariance=covariance)
        parts = {"ntk_mean": free.mean[rows] - infinite.mean}
        parts |= {name: part[rows] / self.n for name, part in corrected.mean.items()}
        factors, wired = None, None
        if corrected.own is not None and corrected.wired is not None:
            factors = self._factors(free.among + corrected.own / self.n)
            wired = corrected.wired[rows][:, :, rows] / self.n
        prediction = dataclasses.replace(
            infinite,
            order=1,
            mean=infinite.mean + sum(parts.values()),
            factors=factors,
            error=max(self.error, self.four_leg_error),
            contributions=parts,
            leading=infinite,
            wired=wired,
        )
        untrained = float(np.diag(self.infinite.K).max(initial=0.0))
        return dataclasses.replace(prediction, expansion=expansion_of(prediction, self.Y, untrained))

    def _infinite_prediction(self, algorithm: AbstractAlgorithm) -> Prediction:
        modes = self.infinite
        free = _free(modes, self._symbols(modes, algorithm))
        factors, condition = self._factors(free.among), _condition(modes.l)
        return Prediction(self.net, algorithm, 0, free.mean[self.tests], factors, condition, self.error)

    def _factors(self, among: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray]]:
        return ((np.eye(self.Y.shape[1]), among[np.ix_(self.tests, self.tests)]),)

    def _symbols(self, modes: Modes, algorithm: AbstractAlgorithm) -> Symbols:
        if algorithm.is_finished:
            condition = _condition(modes.l)
            if condition > largest_condition(modes.count):
                X = self.X[: modes.count]
                raise singular_error(self.net, X, self.Y, condition, remedy="stop at a finite time")
        algorithm.check_stable(float(modes.l[-1]), MSE())
        return algorithm.symbols(modes.l)


def _free(modes: Modes, s: Symbols) -> _Free:
    L = leap(modes, s)
    mean = modes.back((modes.H[:, : modes.count] * s.f) @ modes.y.T)
    among = modes.back(modes.back(L @ modes.G @ L.T, 0), 1)
    return _Free(mean, (among + among.T) / 2)


def _condition(l: np.ndarray) -> float:
    return float(l[-1] / l[0]) if l[0] > 0 else math.inf


def _with_warning(prediction: Prediction, stacklevel: int) -> Prediction:
    """The same prediction, after a warning where its corrections are not small."""
    assert prediction.expansion is not None  # predictions of order 1 have it
    warn_of(prediction.expansion, prediction.condition, stacklevel=stacklevel)
    return prediction


# --- preparing statistics ----------------------------------------------------------------------------


def finite_width(
    net: Network,
    X_train,
    Y_train,
    X_test=None,
    *,
    four_leg_tolerance: float | None = None,
    covariance: bool = True,
    client: Any = None,
    store: str | Path | None = None,
    progress: Progress = None,
) -> FiniteWidth:
    """Prepare statistics through order 1/n once, to ask about many algorithms and times.

    Without the covariance, more than 64 samples are contracted leg by leg and nothing of size N^4 is stored.
    `four_leg_tolerance` is the accuracy of four-leg averages; inverses of the training NTK amplify their
    errors 20 to 1000 times. By default it is 1e-8 for up to 16 samples, 1e-6 up to 32, and 1e-5 beyond.
    `client`, `store` and `progress` as in `predict`.
    """
    problem = Problem.of(net, X_train, Y_train, X_test)
    configuration = functools.partial(problem.described, four_leg_tolerance, covariance)
    with runner(client, store, progress, kind="statistics", configuration=configuration) as running:
        return prepare(running, problem, four_leg_tolerance, covariance=covariance)


def predict_first_order(
    net: Network,
    X_train,
    Y_train,
    X_test=None,
    *,
    algorithm: AbstractAlgorithm = GradientFlow(),
    four_leg_tolerance: float | None = None,
    covariance: bool = True,
    client: Any = None,
    store: str | Path | None = None,
    progress: Progress = None,
) -> Prediction:
    """`fw.predict` at order 1: statistics and prediction as one run."""
    check_algorithm(algorithm, order=1)
    problem = Problem.of(net, X_train, Y_train, X_test)
    configuration = functools.partial(problem.described, four_leg_tolerance, covariance, algorithm)
    with runner(client, store, progress, kind="prediction", configuration=configuration) as running:
        prepared = prepare(running, problem, four_leg_tolerance, covariance=covariance)
        prediction = prepared.predict_with(running, algorithm, covariance)
    return _with_warning(prediction, stacklevel=5)  # behind `fw.predict`, which calls this


def prepare(
    running: Runner, problem: Problem, four_leg_tolerance: float | None = None, *, covariance: bool = True
) -> FiniteWidth:
    """The result of `finite_width` for a checked problem, its tasks run by a runner."""
    X, tests = problem.merged_inputs()
    if four_leg_tolerance is None:
        four_leg_tolerance = next(tol for most, tol in _TOLERANCES.items() if X.shape[0] <= most)
    build = _streamed if X.shape[0] > DENSE and not covariance else _whole
    return build(running, problem, X, tests, four_leg_tolerance)


def _whole(
    running: Runner, problem: Problem, X: np.ndarray, tests: np.ndarray, tolerance: float
) -> FiniteWidth:
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
    return FiniteWidth(problem.net, X, problem.Y, tests, theory.error, theory.four_leg_error, means, tensors)


def _streamed(
    running: Runner, problem: Problem, X: np.ndarray, tests: np.ndarray, tolerance: float
) -> FiniteWidth:
    pair = kernels(problem.net, X)
    assert pair.Theta is not None  # the activation is smooth
    means = Means(pair.K, pair.Theta, *pair_corrections(problem.net, X, tolerance, running))
    tensors = StreamedTensors(problem.net, X, tolerance)
    return FiniteWidth(problem.net, X, problem.Y, tests, pair.error, tolerance, means, tensors)
