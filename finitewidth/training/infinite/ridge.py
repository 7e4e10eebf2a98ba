r"""How large a ridge should be: leave-one-out and generalized cross-validation in closed form.

With $G = \tilde\Theta + a$ a network trained on all samples but i has the residual
$(G^{-1}y)_i / (G^{-1})_{ii}$ there; nothing is trained again. Generalized cross-validation puts the mean of
the diagonal in its place. Both stay finite as $a \to 0^+$.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_inputs, as_targets
from finitewidth.network.network import Network
from finitewidth.theory.kernels import Kernels, kernels
from finitewidth.training.infinite.conditioning import check_independent, largest_condition, singular_error
from finitewidth.training.infinite.fitting import ntk, require_ntk
from finitewidth.training.infinite.solver import Eigenbasis, condition_of, eigenbasis


@shown(
    "best_leave_one_out",
    "best_generalized",
    "ridges",
    "leave_one_out",
    dimensions=dict.fromkeys(("ridges", "leave_one_out", "generalized"), "ridge"),
)
@dataclass(frozen=True, eq=False)
class RidgePath:
    """Mean squared errors, per sample and output, that cross-validation expects at several ridges."""

    ridges: Float[np.ndarray, " R"]
    leave_one_out: Float[np.ndarray, " R"]
    generalized: Float[np.ndarray, " R"]
    best_leave_one_out: float  # the ridge with the lowest error, refined between those listed
    best_generalized: float
    basis: Eigenbasis = field(repr=False)


def choose_ridge(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    *,
    ridges: Sequence[float] | np.ndarray | None = None,
) -> RidgePath:
    """Cross-validation errors over ridges.

    Args:
        net: The network.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        ridges: The ridges to try; by default from 1e-12 to 1 times the largest eigenvalue.

    Returns:
        Both errors for each ridge, with `best_leave_one_out` and `best_generalized`.

    ```python
    fw.choose_ridge(net, X, Y).best_leave_one_out
    ```
    """
    require_ntk(net)
    X = as_inputs(X_train, net.input_shape, name="X_train")
    Y = as_targets(Y_train, X.shape[0], net.outputs)
    return ridge_path(net, X, Y, kernels(net, X), ridges)


def ridge_path(
    net: Network,
    X: np.ndarray,
    Y: np.ndarray,
    train: Kernels,
    ridges: Sequence[float] | np.ndarray | None = None,
) -> RidgePath:
    """The result of `choose_ridge` for checked data with its kernels, whose NTK is overwritten."""
    if X.shape[0] < 2:
        raise ValueError("X_train has one sample, and leaving it out leaves none; pass two or more.")
    basis = eigenbasis(ntk(train))
    if basis.largest == 0:
        raise ValueError("the training NTK is zero and nothing is learned; set lambda_b or lambda_W.")
    chosen = _ridges(ridges, basis)
    if chosen.min() == 0:
        check_independent(net, X, Y)
    condition = condition_of(basis, float(chosen.min()))
    if not condition <= largest_condition(X.shape[0]):
        raise singular_error(net, X, Y, condition)
    modes = basis.vectors.T @ Y
    both = np.asarray([_errors(basis, modes, float(a)) for a in chosen])
    best = [_refined(basis, modes, chosen, both[:, k], k) for k in (0, 1)]
    return RidgePath(chosen, both[:, 0], both[:, 1], best[0], best[1], basis)


def _ridges(ridges, basis: Eigenbasis) -> np.ndarray:
    if ridges is None:
        return basis.largest * np.logspace(-12, 0, 49)
    chosen = np.asarray(ridges, dtype=np.float64)
    if chosen.ndim != 1 or chosen.size == 0 or not (np.isfinite(chosen).all() and (chosen >= 0).all()):
        raise ValueError(f"ridges must be a row of numbers, zero or positive, got {ridges!r}.")
    return chosen


def _errors(basis: Eigenbasis, modes: np.ndarray, ridge: float) -> tuple[float, float]:
    inverse = 1 / (basis.values + ridge)
    residual = basis.vectors @ (inverse[:, None] * modes)  # G^-1 y
    diagonal = (basis.vectors**2) @ inverse
    leave_one_out = np.mean((residual / diagonal[:, None]) ** 2)
    generalized = np.mean(residual**2) / np.mean(inverse) ** 2
    return float(leave_one_out), float(generalized)


def _refined(basis: Eigenbasis, modes, ridges: np.ndarray, errors: np.ndarray, which: int) -> float:
    """The lowest point between the neighbours of the best ridge listed, where they are positive."""
    order = np.argsort(ridges)
    sorted_ridges, at = ridges[order], int(np.argmin(errors[order]))
    best = float(sorted_ridges[at])
    low, high = sorted_ridges[max(at - 1, 0)], sorted_ridges[min(at + 1, len(order) - 1)]
    if low <= 0 or high <= low:
        return best
    lowest: Any = minimize_scalar(
        lambda log: _errors(basis, modes, float(np.exp(log)))[which],
        bounds=(float(np.log(low)), float(np.log(high))),
        method="bounded",
    )
    return float(np.exp(lowest.x)) if lowest.fun < errors[order][at] else best
