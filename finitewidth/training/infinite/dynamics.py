r"""The trained ensemble at many times, from one eigendecomposition of the training NTK.

$$\mathrm{mean}(t) = \Theta_{dA} f_t(\tilde\Theta)\, y, \qquad
  \mathrm{Cov}(t) = \delta_{ij}\, L_t K L_t^T, \qquad L_t = 1 - \Theta_{\cdot A} f_t(\tilde\Theta),$$

from the prior (0, K) at t = 0 to the closed form of PDLT (10.40), (10.41) at t = infinity.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.core.memory import require_memory
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.conditioning import check_independent, singular_error
from finitewidth.training.infinite.fitting import ntk
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.solver import Eigenbasis, Singular, condition_of, eigenbasis, mode_response


def gaussian_trajectory(
    net: Network,
    X: np.ndarray,
    Y: np.ndarray,
    X_test: np.ndarray,
    stops: Sequence[AbstractAlgorithm],
    *,
    ridge: float,
    cutoff: float,
) -> tuple[Prediction, ...]:
    """One prediction for each of several ends of one algorithm, trained on the squared error."""
    if any(stop.is_finished for stop in stops) and ridge == 0 and cutoff == 0:
        check_independent(net, X, Y)
    M, N = X_test.shape[0], X.shape[0]
    require_memory(
        8 * (6 * N**2 + 4 * M * N + (len(stops) + 4) * M**2),
        f"{len(stops)} covariances of {M} test inputs given {N} training inputs",
        "ask for fewer times or test inputs",
    )
    train, cross = kernels(net, X), kernels(net, X_test, X)
    basis = eigenbasis(ntk(train))
    stops[0].check_stable(basis.largest + ridge, MSE())
    modes = _Modes.of(basis, train.K, cross.K, ntk(cross), Y, kernels(net, X_test).K)
    condition = condition_of(basis, ridge)
    predictions = []
    for stop in stops:
        try:
            f = mode_response(basis, stop, ridge=ridge, cutoff=cutoff)
        except Singular as singular:
            raise singular_error(net, X, Y, singular.condition) from None
        factors = ((np.eye(Y.shape[1]), modes.covariance(f)),)
        predictions.append(Prediction(net, stop, 0, modes.mean(f), factors, condition, train.error))
    return tuple(predictions)


@dataclass(frozen=True, eq=False)
class _Modes:
    """Kernels and targets in the eigenbasis of the training NTK, where a time costs products only."""

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
