"""Targets of classification: class probabilities, and the outputs that stand for them."""

import numpy as np
from jaxtyping import Float

from finitewidth.core.inputs import ArrayLike


def one_hot(labels: ArrayLike, classes: int, *, smoothing: float = 0.0) -> Float[np.ndarray, "N classes"]:
    """Labels 0, 1, ... as probabilities: 1 - smoothing for the label, the rest shared by the others.

    Args:
        labels: Numbers (N,) below `classes`.
        classes: The number of classes.
        smoothing: The probability that the other classes share.

    Returns:
        An array (N, classes).

    ```python
    fw.losses.one_hot([0, 2], 3)
    ```
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"labels must be whole numbers in one row, got {labels.dtype} of shape {labels.shape}."
        )
    if not (isinstance(classes, int | np.integer) and classes >= 2):
        raise ValueError(f"classes must be a whole number of at least 2, got {classes!r}.")
    if labels.size and not (0 <= labels.min() and labels.max() < classes):
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise ValueError(f"labels must lie between 0 and {classes - 1}, got {wrong}; raise classes.")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing must lie between 0 and 1, got {smoothing!r}.")
    probabilities = np.full((labels.size, int(classes)), smoothing / (classes - 1))
    probabilities[np.arange(labels.size), labels] = 1 - smoothing
    return probabilities


def outputs_of(probabilities: ArrayLike, *, temperature: float = 1.0) -> Float[np.ndarray, "N n_L"]:
    """Outputs y with softmax(y / temperature) = p and mean zero over components.

    A common shift of all components would give the same probabilities.

    Args:
        probabilities: Numbers that sum to one along the last axis.
        temperature: The temperature of the softmax.

    Returns:
        An array of the same shape.

    ```python
    fw.losses.outputs_of(fw.losses.one_hot([0, 1], 2, smoothing=0.1))
    ```
    """
    p = as_probabilities(probabilities, name="probabilities")
    if (p <= 0).any():
        row = int(np.argmax((p <= 0).any(axis=1)))
        raise ValueError(
            f"row {row} of probabilities has an entry of zero, which puts its output at minus infinity; "
            "use fw.losses.one_hot(labels, classes, smoothing=0.1), or stop training early."
        )
    logs = temperature * np.log(p)
    return logs - logs.mean(axis=1, keepdims=True)


def as_probabilities(Y, *, name: str) -> Float[np.ndarray, "N classes"]:
    """Rows of class probabilities."""
    p = np.asarray(Y, dtype=np.float64)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"{name} must have one column for each of two or more classes, got shape {p.shape}.")
    wrong = (p < 0).any(axis=1) | ~(np.abs(p.sum(axis=1) - 1) <= 1e-9)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{name} must hold probabilities, but row {row} sums to {p[row].sum():.6g} with smallest entry "
            f"{p[row].min():.6g}; use fw.losses.one_hot(labels, classes, smoothing=...)."
        )
    return p
