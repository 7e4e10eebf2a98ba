"""Why a training kernel cannot be inverted, in one sentence with the number and the remedy."""

import numpy as np

from finitewidth.core.inputs import input_numbers
from finitewidth.network.network import Network

REMEDY = "pass ridge=, or cutoff= for the limit of a vanishing ridge, or stop at a finite time"


def largest_condition(size: int) -> float:
    """1e14, or less where rounding errors of that many samples already look like an eigenvalue."""
    return min(1e14, 1 / (size * np.finfo(float).eps))


def singular_error(
    net: Network,
    X: np.ndarray,
    Y: np.ndarray,
    condition: float,
    *,
    what: str = "training NTK",
    remedy: str = REMEDY,
) -> ValueError:
    """The error that names repeated or parallel inputs, or else only the condition number."""
    reason = dependent_inputs(net, X, Y)
    if reason is None:
        reason = "inputs are too similar, or too many for the features of the network; drop some"
    head = f"the {what} has condition number {condition:.1e}, above {largest_condition(X.shape[0]):.0e}"
    return ValueError(f"{head}: {reason}, or {remedy}.")


def check_independent(
    net: Network, X: np.ndarray, Y: np.ndarray, *, what: str = "training NTK", remedy: str = REMEDY
) -> None:
    """Refuse inputs whose kernel is singular for a known reason, however rounding may hide it."""
    reason = dependent_inputs(net, X, Y)
    if reason is not None:
        raise ValueError(f"the {what} is singular (condition number inf): {reason}, or {remedy}.")


def dependent_inputs(net: Network, X: np.ndarray, Y: np.ndarray) -> str | None:
    """Equal, zero or parallel inputs that make the kernel singular, and what to do about them; or None."""
    X = X.reshape(X.shape[0], -1)
    pair = equal_rows(X)
    if pair is not None:
        i, j = pair
        if np.array_equal(Y[i], Y[j]):
            return f"rows {i} and {j} of X_train are equal; drop one"
        gap = float(np.max(np.abs(Y[i] - Y[j])))
        return (
            f"rows {i} and {j} of X_train are equal but their targets differ by {gap:.3g}, so no network "
            "fits both; average them"
        )
    pair = _parallel_rows(net, X)
    if pair is None:
        return None
    i, j = pair
    if i == j:
        return f"row {i} of X_train is zero and the network has no biases; drop it, set C_b or lambda_b"
    return (
        f"rows {i} and {j} of X_train are parallel and without biases the outputs there are proportional; "
        "drop one, set C_b or lambda_b"
    )


def equal_rows(X: np.ndarray) -> tuple[int, int] | None:
    """The first row that repeats an earlier one, and that one."""
    numbers = input_numbers(X)[0]
    repeats = np.flatnonzero(numbers != np.arange(len(X)))
    return (int(numbers[repeats[0]]), int(repeats[0])) if repeats.size else None


def _parallel_rows(net: Network, X: np.ndarray) -> tuple[int, int] | None:
    """Rows on one line through the origin, or at it, where without biases outputs scale with inputs."""
    if not net.is_homogeneous:
        return None
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    if (norms == 0).any():
        at = int(np.argmin(norms))
        return at, at
    unit = X / norms
    if net.is_linear:  # opposite inputs too
        largest = np.take_along_axis(unit, np.argmax(np.abs(unit), axis=1)[:, None], axis=1)
        unit = unit * np.sign(largest)
    coarse = (np.round(1e9 * unit + shift) for shift in (0.0, 0.5))  # a pair may straddle one grid, not two
    return next((pair for pair in map(equal_rows, coarse) if pair is not None), None)
