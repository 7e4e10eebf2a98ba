r"""Networks trained on all samples but one, in closed form: the best ridge, and the noise of targets.

With $G = \tilde\Theta + a$ the residual of such a network on the sample left out is
$(G^{-1} y)_i / (G^{-1})_{ii}$, with a variance over initializations of
$(G^{-1} K G^{-1})_{ii} / (G^{-1})_{ii}^2$. The part of the mean squared residual that this variance does not
explain is noise of the targets. Before the end of training $1 - \tilde\Theta F$ stands in place of $G^{-1}$,
which is an approximation then.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.fitting import Fitted, ntk, require_ntk
from finitewidth.training.infinite.ridge import ridge_path
from finitewidth.training.infinite.solver import FullMatrix, ModeMatrix, condition_of

_SMALLEST = 1e-9  # below this a share of the residual is rounding


class ExtrapolationWarning(UserWarning):
    """Standard deviations are asked for at inputs much farther from the training inputs than these are apart.

    ```python
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", fw.warnings.ExtrapolationWarning)  # stop at it
    ```
    """


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Residuals on each sample of networks trained on all others."""

    residuals: Float[np.ndarray, "N n_L"]  # target minus mean prediction
    variances: Float[np.ndarray, " N"]  # of the prediction, over networks; all outputs share it

    @property
    def noise(self) -> Float[np.ndarray, " n_L"]:
        """The variance of targets, by output, that networks do not explain."""
        return np.maximum(np.mean(self.residuals**2, axis=0) - np.mean(self.variances), 0.0)


def fit_by_leave_one_out(
    net: Network, X: np.ndarray, Y: np.ndarray, algorithm: AbstractAlgorithm
) -> tuple[Fitted, float]:
    """Networks trained to the end with the ridge that leave-one-out prefers, and that ridge."""
    if not algorithm.is_finished or algorithm.mixes_modes:
        raise ValueError(
            f'ridge="loo" needs networks trained to the end, got algorithm={algorithm!r}; pass ridge=0.0, '
            "because training that stops early needs no ridge."
        )
    require_ntk(net)
    train = kernels(net, X)
    path = ridge_path(net, X, Y, train)
    ridge, basis = path.best_leave_one_out, path.basis
    algorithm.check_stable(basis.largest + ridge, MSE())
    F = ModeMatrix(basis.vectors, 1 / (basis.values + ridge), condition_of(basis, ridge))
    return Fitted(net, algorithm, X, train.K, F.apply(Y), F, train.error), ridge


def left_out(fitted: Fitted, Y: Float[np.ndarray, "N n_L"]) -> LeftOut:
    """Residuals on each sample of networks fitted to the targets Y of all others."""
    residual = fitted.response.apply(np.eye(len(fitted.X)))
    if not fitted.algorithm.is_finished or isinstance(fitted.response, FullMatrix):
        residual = np.eye(len(fitted.X)) - ntk(kernels(fitted.net, fitted.X)) @ residual
        if np.diagonal(residual).min() < _SMALLEST:
            raise ValueError(
                f"networks trained by {fitted.algorithm!r} fit their data so well that nothing can be said "
                "about samples left out; stop earlier, or pass noise and temperature as numbers."
            )
    diagonal = np.diagonal(residual)[:, None]
    variances = np.einsum("ij,ij->i", residual @ fitted.K, residual) / diagonal[:, 0] ** 2
    return LeftOut(residual @ Y / diagonal, variances)
