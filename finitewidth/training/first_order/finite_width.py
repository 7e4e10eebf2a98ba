r"""The trained ensemble through order 1/n (PDLT section inf.2): what `fw.predict` gives by default.

$$m = \Theta_{\beta A} F y + \frac1n \mu, \qquad
  \mathrm{Cov} = \delta_{ij} L G L^T + \frac1n C$$

with the mean NTK $H = \Theta + H_1/n$ and the mean kernel $G = K + G_1/n$ kept whole in the leading terms.
Statistics at initialization are the costly part: they are prepared once and serve any algorithm and time.
"""

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from finitewidth.core.checkpoint import digest
from finitewidth.core.inputs import as_inputs, as_targets
from finitewidth.core.progress import Progress
from finitewidth.core.tasks import Runner, runner
from finitewidth.network.algorithm import Algorithm, GradientFlow
from finitewidth.network.algorithms.abstract import check_algorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.mlp import MLP
from finitewidth.theory.means import kernels
from finitewidth.theory.solve import solve_with
from finitewidth.training.first_order.corrections import Corrections, Modes, corrections, leap
from finitewidth.training.first_order.streamed import pair_corrections, streamed_contributions
from finitewidth.training.first_order.symbols import Symbols, fingerprint, symbols
from finitewidth.training.infinite.conditioning import largest_condition, singular_error
from finitewidth.training.infinite.gaussian import Expansion, Prediction
from finitewidth.training.infinite.learned import check_learning_rate, is_finished

DENSE = 64  # samples; beyond, tensors of N^4 numbers are avoided where only the mean is asked for
TRUSTED = 0.5  # corrections beyond this fraction of what they correct are called out
_ROUNDING = 1e-10
_NEGATIVE = 1e-6  # eigenvalues closer to zero than this may be rounding of the averages
MEANS = ("K", "Theta", "G1", "H1")
NEEDED = ("A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
_TOLERANCES = {16: 1e-8, 32: 1e-6, math.inf: 1e-5}  # of four-leg averages, by number of samples


class ExpansionWarning(UserWarning):
    """The expansion in 1/n has left its range: corrections are not small."""


@dataclass(frozen=True, eq=False)
class FiniteWidth:
    """Statistics of a network on training and test inputs, ready for any algorithm."""

    net: MLP
    X: Float[np.ndarray, "N n0"]  # training inputs first, then test inputs that are not among them
    Y: Float[np.ndarray, "N_A n_L"]
    tests: Sequence[int]  # where the test inputs are in X
    error: float  # of two-leg averages, in units of the scale they live on
    four_leg_error: float
    means: dict[str, np.ndarray] = field(repr=False)  # K, Theta, G1, H1 of the output, (N, N)
    tensors: Callable[[str], np.ndarray] = field(repr=False)  # by name, (N, N, N, N)
    streamed: float | None  # accuracy of four-leg averages where tensors are contracted leg by leg, else None

    @property
    def n(self) -> int:
        """The width n_{L-1} that the expansion is in."""
        return self.net.widths[-2]

    @functools.cached_property
    def modes(self) -> Modes:
        """Of the mean NTK at this width."""
        K, Theta, G1, H1 = self.means.values()
        return Modes.of(K, K + G1 / self.n, Theta + H1 / self.n, self.Y, self.tensors)

    @functools.cached_property
    def infinite(self) -> Modes:
        """Of the NTK at infinite width."""
        return Modes.of(self.means["K"], self.means["K"], self.means["Theta"], self.Y, self.tensors)

    def with_width(self, n: int) -> "FiniteWidth":
        """The same where all hidden layers have width n: tensors know ratios of widths only."""
        hidden = self.net.widths[1:-1]
        if len(set(hidden)) > 1:
            raise ValueError(f"widths={self.net.widths} has unequal hidden layers; prepare it anew.")
        widths = (self.net.widths[0], *[n] * len(hidden), self.net.widths[-1])
        return dataclasses.replace(self, net=self.net.replace(widths=widths))

    def with_targets(self, Y_train) -> "FiniteWidth":
        """The same for other targets."""
        return dataclasses.replace(self, Y=as_targets(Y_train, self.Y.shape[0], self.Y.shape[1]))

    def predict(
        self,
        algorithm: Algorithm = GradientFlow(),
        *,
        covariance: bool | None = None,
        client: Any = None,
        store: str | Path | None = None,
        progress: Progress = None,
    ) -> Prediction:
        """Mean and covariance of trained networks on the test inputs, or the mean alone.

        Where tensors are contracted leg by leg, legs are tasks for `client`, `store` and `progress` as in
        `fw.predict`.
        """
        X, X_test = self.X[: len(self.Y)], self.X[len(self.Y) :] if len(self.X) > len(self.Y) else None
        configuration = functools.partial(
            described, self.net, X, X_test, self.four_leg_error, bool(covariance), self.Y, algorithm
        )
        with runner(client, store, progress, kind="prediction", configuration=configuration) as running:
            return self.predict_with(running, algorithm, covariance)

    def predict_with(self, running: Runner, algorithm: Algorithm, covariance: bool | None) -> Prediction:
        """What `predict` gives, its tasks run by a runner, with a word where the expansion is not small."""
        prediction = self.predict_silently(running, algorithm, covariance)
        assert prediction.expansion is not None
        warn_of(prediction.expansion, prediction.condition)
        return prediction

    def predict_silently(self, running: Runner, algorithm: Algorithm, covariance: bool | None) -> Prediction:
        """What `predict` gives; whether it can be trusted is in its `expansion`."""
        check_finite_width(self.net, algorithm)
        covariance = self.streamed is None if covariance is None else covariance
        leading, condition = self._leading(self.infinite, algorithm)
        free, _ = self._leading(self.modes, algorithm)
        found = self._corrections(running, algorithm, covariance)
        rows = np.asarray(self.tests)
        parts = {"ntk_mean": (free.mean - leading.mean)[rows]}
        parts |= {name: part[rows] / self.n for name, part in found.mean.items()}
        infinite = self._prediction(
            0, algorithm, leading.mean[rows], leading.among, None, condition, {}, None
        )
        mean = infinite.mean + sum(parts.values())
        among, wired = None, None
        if found.own is not None and found.wired is not None:
            among = free.among + found.own / self.n
            wired = found.wired[rows][:, :, rows] / self.n
        prediction = self._prediction(1, algorithm, mean, among, wired, condition, parts, infinite)
        return dataclasses.replace(prediction, expansion=self._expansion(prediction, covariance))

    def _corrections(self, running: Runner, algorithm: Algorithm, covariance: bool) -> Corrections:
        s = self._symbols(self.modes, algorithm)
        if self.streamed is None:
            return corrections(self.modes, s, covariance=covariance)
        if covariance:
            raise ValueError(
                "the covariance needs whole tensors, which were not prepared; use fw.finite_width(..., "
                "covariance=True), or ask for the mean alone with covariance=False."
            )
        if s.absorbed is not None:
            raise ValueError(
                "at a finite time the mean at order 1/n needs whole tensors, too large for so many samples; "
                "use the end of training (time or steps infinite), or fewer inputs."
            )
        mean = streamed_contributions(
            self.net, self.X, self.modes, algorithm, tolerance=self.streamed, running=running
        )
        return Corrections(mean, None, None)

    def _leading(self, modes: Modes, algorithm: Algorithm) -> "tuple[_Leading, float]":
        s = self._symbols(modes, algorithm)
        L = leap(modes, s)
        mean = modes.back((modes.H[:, : modes.count] * s.f) @ modes.y.T)
        among = modes.back(modes.back(L @ modes.G @ L.T, 0), 1)
        return _Leading(mean, (among + among.T) / 2), _condition(modes.l)

    def _symbols(self, modes: Modes, algorithm: Algorithm) -> Symbols:
        if is_finished(algorithm):
            condition = _condition(modes.l)
            if condition > largest_condition(modes.count):
                X = self.X[: modes.count]
                raise singular_error(self.net, X, self.Y, condition, remedy="stop at a finite time")
        check_learning_rate(algorithm, float(modes.l[-1]), 0.0)
        return symbols(algorithm, modes.l)

    def _expansion(self, prediction: Prediction, covariance: bool) -> Expansion:
        depth_over_width = sum(1 / n for n in self.net.widths[1:-1])
        infinite, scale = prediction.infinite_width, np.abs(self.Y).max(initial=0.0)
        moved = np.abs(prediction.mean - infinite.mean).max(initial=0.0)
        mean = float(moved / scale) if scale > 0 else 0.0
        if not covariance:
            return Expansion(depth_over_width, mean, 0.0, 0.0)
        untrained = np.diag(self.infinite.K).max(initial=0.0)  # variances below rounding of it are zero
        largest = max(infinite.variance.max(initial=0.0), _ROUNDING * untrained)
        spread = np.abs(prediction.variance - infinite.variance).max(initial=0.0)
        eigenvalues = np.linalg.eigvalsh(prediction.covariance.reshape(prediction.mean.size, -1))
        return Expansion(depth_over_width, mean, float(spread / largest), float(eigenvalues[0] / largest))

    def _prediction(self, order, algorithm, mean, among, wired, condition, parts, infinite) -> Prediction:
        rows = np.asarray(self.tests)
        factors = None if among is None else ((np.eye(mean.shape[1]), among[np.ix_(rows, rows)]),)
        error = max(self.error, self.four_leg_error) if order else self.error
        return Prediction(self.net, algorithm, order, mean, factors, condition, error, parts, infinite, wired)


@dataclass(frozen=True)
class _Leading:
    mean: np.ndarray  # (N, n_L)
    among: np.ndarray  # (N, N)


def finite_width(
    net: MLP,
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
    configuration = functools.partial(described, net, X_train, X_test, four_leg_tolerance, covariance)
    with runner(client, store, progress, kind="statistics", configuration=configuration) as running:
        return prepare(running, net, X_train, Y_train, X_test, four_leg_tolerance, covariance)


def prepare(
    running: Runner,
    net: MLP,
    X_train,
    Y_train,
    X_test,
    four_leg_tolerance: float | None,
    covariance: bool = True,
) -> FiniteWidth:
    """What `finite_width` gives, its tasks run by a runner."""
    check_finite_width(net, GradientFlow())
    X = as_inputs(X_train, net.widths[0], name="X_train")
    Y = as_targets(Y_train, X.shape[0], net.widths[-1])
    together, tests = X, list(range(X.shape[0]))
    if X_test is not None:
        together, tests = _together(X, as_inputs(X_test, net.widths[0], name="X_test"))
    if four_leg_tolerance is None:
        four_leg_tolerance = next(tol for most, tol in _TOLERANCES.items() if together.shape[0] <= most)
    if not covariance and together.shape[0] > DENSE:
        return _streamed(running, net, together, Y, tests, four_leg_tolerance)
    theory = solve_with(
        running,
        net,
        together,
        four_leg_tolerance=four_leg_tolerance,
        layers=(net.depth,),
        tensors=NEEDED,
        remedy="ask for the mean alone (covariance=False), which never stores them, or pass fewer inputs",
    )
    out = theory.output
    means = {name: getattr(out, name) for name in MEANS}
    tensors = functools.partial(getattr, out)
    return FiniteWidth(net, together, Y, tests, theory.error, theory.four_leg_error, means, tensors, None)


def described(
    net: MLP, X_train, X_test, four_leg_tolerance, covariance: bool, Y_train=None, algorithm=None
) -> dict:
    """Everything that statistics and, with targets and an algorithm, a prediction depend on."""
    found = {
        "network": net.to_dict(),
        "X_train": digest(as_inputs(X_train, net.widths[0], name="X_train")),
        "X_test": None if X_test is None else digest(as_inputs(X_test, net.widths[0], name="X_test")),
        "four_leg_tolerance": four_leg_tolerance,
        "covariance": covariance,
    }
    if algorithm is None:
        return found
    targets = digest(as_targets(Y_train, len(X_train), net.widths[-1]))
    return {**found, "Y_train": targets, "algorithm": fingerprint(algorithm)}


def _streamed(
    running: Runner, net: MLP, X: np.ndarray, Y: np.ndarray, tests: Sequence[int], tolerance: float
) -> FiniteWidth:
    found = kernels(net, X)
    assert found.Theta is not None  # the activation is smooth
    G1, H1 = pair_corrections(net, X, tolerance, running)
    means = {"K": found.K, "Theta": found.Theta, "G1": G1, "H1": H1}
    return FiniteWidth(net, X, Y, tests, found.error, tolerance, means, _no_tensor, tolerance)


def _no_tensor(name: str) -> np.ndarray:
    raise ValueError(f"tensor {name} is contracted leg by leg and never stored.")


def _together(X: np.ndarray, X_test: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Training inputs and what is new among the test inputs, and where each test input is."""
    places = {}
    for row, x in enumerate(X + 0.0):
        places.setdefault(x.tobytes(), row)
    tests, new = [], []
    for x in X_test + 0.0:
        if x.tobytes() not in places:
            places[x.tobytes()] = X.shape[0] + len(new)
            new.append(x)
        tests.append(places[x.tobytes()])
    return np.concatenate([X, np.reshape(new, (-1, X.shape[1]))]), tests


def check_finite_width(net: MLP, algorithm: Algorithm) -> None:
    """Refuse networks and algorithms that the expansion in 1/n does not know."""
    if not net.activation.is_smooth:
        raise ValueError(
            f"activation {net.activation.name!r} has a kink, where the dNTK and ddNTKs are infinite and "
            "order 1/n does not exist; use a smooth one such as gelu, swish or tanh, or order=0."
        )
    if net.depth > 1 and min(net.widths[1:-1]) == 1:
        raise ValueError(
            f"widths={net.widths} has a hidden layer of width 1, where an expansion in 1/n means nothing; "
            "widen it, or use order=0."
        )
    check_algorithm(algorithm, order=1)


def check_first_order(loss: AbstractLoss, ridge: float, cutoff: float) -> None:
    """Refuse losses and ridges that order 1/n does not know."""
    if not loss.is_squared_error:
        raise ValueError(f"order=1 knows loss=fw.MSE() only, got {loss!r}; use order=0.")
    if ridge or cutoff:
        raise ValueError("ridge and cutoff are for order=0; at order 1 stop at a finite time instead.")


def _condition(l: np.ndarray) -> float:
    return float(l[-1] / l[0]) if l[0] > 0 else math.inf


def warn_of(expansion: Expansion, condition: float, stacklevel: int = 4) -> None:
    """Say where corrections are not small, or leave a covariance that no ensemble can have."""
    if expansion.size > TRUSTED:
        part = "mean" if expansion.mean >= expansion.covariance else "covariance"
        what = f"corrections of order 1/n to the {part} are {expansion.size:.2g} of what they correct"
        remedy = "widen the network or separate the inputs"
    elif expansion.lowest_eigenvalue < -_NEGATIVE:
        what = (
            f"the covariance through order 1/n has an eigenvalue of {expansion.lowest_eigenvalue:.2g} of the "
            "largest variance, below zero"
        )
        remedy = "widen the network"
    elif expansion.depth_over_width > TRUSTED:
        what = "the network is too narrow for its depth"
        remedy = "widen it"
    else:
        return
    warnings.warn(
        f"{what} (depth over width {expansion.depth_over_width:.2g}, condition number of the training NTK "
        f"{condition:.1e}), beyond the range of the expansion; {remedy}.",
        ExpansionWarning,
        stacklevel=stacklevel,
    )
