r"""The trained ensemble at many times, from one eigendecomposition of the training NTK.

$$\mathrm{mean}(t) = \Theta_{dA} f_t(\tilde\Theta)\, y, \qquad
  \mathrm{Cov}(t) = \delta_{ij}\, L_t K L_t^T, \qquad L_t = 1 - \Theta_{\cdot A} f_t(\tilde\Theta),$$

from the prior (0, K) at t = 0 to the closed form of PDLT (10.40), (10.41) at t = infinity.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.inputs import as_inputs, as_targets
from finitewidth.core.memory import require_memory
from finitewidth.network.algorithm import Algorithm, GradientFlow
from finitewidth.network.loss import MSE, CrossEntropy, Loss
from finitewidth.network.mlp import MLP
from finitewidth.theory.kernels import kernels
from finitewidth.training.first_order.problem import check_loss
from finitewidth.training.first_order.statistics import finite_width
from finitewidth.training.infinite.conditioning import check_independent, singular_error
from finitewidth.training.infinite.cross_entropy import as_probabilities, cross_entropy_path
from finitewidth.training.infinite.fitting import check_ridge, ntk, require_ntk
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.learned import at_time, check_learning_rate, is_finished
from finitewidth.training.infinite.sampled import SampledPrediction
from finitewidth.training.infinite.solver import Eigenbasis, Singular, condition_of, eigenbasis, mode_response
from finitewidth.training.textbook.generalization import TestLoss, test_loss


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A trained ensemble at several times: one prediction for each."""

    times: Float[np.ndarray, " T"]  # of gradient flow, or numbers of steps of gradient descent
    predictions: tuple[Prediction | SampledPrediction, ...] = field(repr=False)

    def __getitem__(self, index: int) -> Prediction | SampledPrediction:
        return self.predictions[index]

    def __len__(self) -> int:
        return len(self.predictions)

    @property
    def mean(self) -> Float[np.ndarray, "T M n_L"]:
        """Mean predictions at all times; estimates where the ensemble was sampled."""
        means = [p.mean if isinstance(p, Prediction) else p.mean.value for p in self.predictions]
        return np.stack(means)

    @property
    def std(self) -> Float[np.ndarray, "T M n_L"]:
        """Standard deviations at all times; estimates where the ensemble was sampled."""
        return np.stack([p.std if isinstance(p, Prediction) else p.std.value for p in self.predictions])


def trajectory(
    net: MLP,
    X_train,
    Y_train,
    X_test=None,
    *,
    times: Sequence[float] | np.ndarray,
    algorithm: Algorithm = GradientFlow(),
    loss: Loss = MSE(),
    order: int = 0,
    ridge: float = 0.0,
    cutoff: float = 0.0,
    members: int = 1000,
    key=0,
) -> Trajectory:
    """What `predict` gives at each of `times`: of gradient flow, or steps of gradient descent.

    The time that `algorithm` itself names is not used. The other arguments are those of `predict`.
    """
    if order not in (0, 1):
        raise ValueError(f"order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    require_ntk(net)
    stops = _stops(algorithm, times)
    X = as_inputs(X_train, net.widths[0], name="X_train")
    Y = as_targets(Y_train, X.shape[0], net.widths[-1])
    X_test = X if X_test is None else as_inputs(X_test, net.widths[0], name="X_test")
    chosen = np.asarray(times, dtype=np.float64)
    if order == 1:
        check_loss(loss, ridge, cutoff)
        prepared = finite_width(net, X, Y, X_test)
        return Trajectory(chosen, tuple(prepared.predict(stop) for stop in stops))
    if isinstance(loss, CrossEntropy):
        if not np.isfinite(chosen).all():
            raise ValueError("times must be finite with loss=fw.CrossEntropy(); for the end use fw.predict.")
        p = as_probabilities(Y, name="Y_train")
        path = cross_entropy_path(net, X, p, X_test, stops[0], loss, tuple(chosen), members=members, key=key)
        return Trajectory(chosen, tuple(path))
    check_ridge(ridge, cutoff)
    if any(map(is_finished, stops)) and ridge == 0 and cutoff == 0:
        check_independent(net, X, Y)
    return Trajectory(chosen, _gaussian_path(net, X, Y, X_test, stops, float(ridge), float(cutoff)))


def _stops(algorithm: Algorithm, times) -> list[Algorithm]:
    if np.ndim(times) != 1 or np.size(times) == 0:
        raise ValueError(f"times must be a row of one or more numbers, got {times!r}.")
    return [at_time(algorithm, float(time)) for time in times]


def _gaussian_path(net, X, Y, X_test, stops, ridge: float, cutoff: float) -> tuple[Prediction, ...]:
    M, N = X_test.shape[0], X.shape[0]
    require_memory(
        8 * (6 * N**2 + 4 * M * N + (len(stops) + 4) * M**2),
        f"{len(stops)} covariances of {M} test inputs given {N} training inputs",
        "ask for fewer times or test inputs",
    )
    train, cross = kernels(net, X), kernels(net, X_test, X)
    basis = eigenbasis(ntk(train))
    check_learning_rate(stops[0], basis.largest, ridge)
    modes = _Modes.of(basis, train.K, cross.K, ntk(cross), Y, kernels(net, X_test).K)
    condition = condition_of(basis, ridge)
    results = []
    for stop in stops:
        try:
            f = mode_response(basis, stop, ridge=ridge, cutoff=cutoff)
        except Singular as singular:
            raise singular_error(net, X, Y, singular.condition) from None
        factors = ((np.eye(Y.shape[1]), modes.covariance(f)),)
        results.append(Prediction(net, stop, 0, modes.mean(f), factors, condition, train.error))
    return tuple(results)


@dataclass(frozen=True, eq=False)
class _Modes:
    """Everything in the eigenbasis of the training NTK, so that a time costs products only."""

    Theta_cross: np.ndarray  # M a
    K_cross: np.ndarray  # M a
    K_train: np.ndarray  # a b
    K_test: np.ndarray
    targets: np.ndarray  # a i

    @classmethod
    def of(cls, basis: Eigenbasis, K, K_cross, Theta_cross, Y, K_test) -> "_Modes":
        V = basis.vectors
        return cls(Theta_cross @ V, K_cross @ V, V.T @ K @ V, K_test, V.T @ Y)

    def mean(self, f: np.ndarray) -> np.ndarray:
        return self.Theta_cross @ (f[:, None] * self.targets)

    def covariance(self, f: np.ndarray) -> np.ndarray:
        gain = self.Theta_cross * f
        half = gain @ (self.K_train @ (gain.T / 2) - self.K_cross.T)
        return self.K_test + half + half.T


@dataclass(frozen=True, eq=False)
class Stopping:
    """Where on a path the expected loss on held-out data is lowest."""

    index: int
    time: float
    losses: tuple[TestLoss, ...] = field(repr=False)  # one for each time of the path

    @property
    def loss(self) -> TestLoss:
        return self.losses[self.index]


def stopping_time(path: Trajectory, Y_validation, *, loss: Loss = MSE()) -> Stopping:
    """Early stopping: the time of a path whose expected loss on the path's test inputs is lowest."""
    losses = tuple(test_loss(one, Y_validation, loss=loss) for one in path.predictions)
    index = int(np.argmin([float(one.total) for one in losses]))
    return Stopping(index, float(path.times[index]), losses)
