"""Checks of data and numbers, shared by all functions that take them from a user."""

import math
import numbers
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as ArrayLike  # arrays of any library, nested lists of numbers
else:
    ArrayLike = Any  # at run time `as_inputs` says in a sentence what is wrong


def as_inputs(X, shape: int | tuple[int, ...], *, name: str = "X") -> Float[np.ndarray, "N ..."]:
    """Inputs as a finite float64 array, samples along its first axis; float32 and integers are promoted.

    `shape` is that of one sample.
    """
    array = _as_rectangle(X, name)
    _require_real(array, name)
    if isinstance(shape, tuple) and len(shape) > 1:
        if array.ndim != 1 + len(shape) or array.shape[1:] != shape:
            wanted = ", ".join(map(str, shape))
            raise ValueError(
                f"{name} must have shape (samples, {wanted}), got {array.shape}; use "
                f"{name}.reshape(-1, {wanted}), channels last, or change input_shape."
            )
        if array.shape[0] == 0:
            raise ValueError(f"{name} has no samples; pass at least one.")
        return _as_finite(array, name)
    width = int(np.prod(shape))
    if array.ndim != 2:
        raise ValueError(
            f"{name} must have shape (samples, {width}), got {array.shape}; use {name}.reshape(-1, {width})."
        )
    if array.shape[0] == 0:
        raise ValueError(f"{name} has no samples; pass at least one row.")
    if array.shape[1] != width:
        raise ValueError(
            f"{name} has {array.shape[1]} columns but the network takes n_0 = {width} inputs; "
            "change widths[0] or the data."
        )
    return _as_finite(array, name)


def as_targets(
    Y, count: int, width: int, *, name: str = "Y_train", inputs: str = "X_train"
) -> Float[np.ndarray, "N n_L"]:
    """Targets as a finite float64 matrix: one row for each of `count` samples, one column for each output."""
    array = _as_rectangle(Y, name)
    if array.ndim == 1 and width > 1 and np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name} holds integer labels, but targets are vectors of n_L = {width} numbers; "
            f"use fw.losses.one_hot({name}, {width})."
        )
    _require_real(array, name)
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(
            f"{name} must have shape ({count}, {width}), one column for each of n_L = {width} outputs, "
            f"got {array.shape}; reshape it or change widths[-1]."
        )
    if array.shape[0] != count:
        raise ValueError(
            f"{name} has {array.shape[0]} rows but {inputs} has {count} samples; give one row for each."
        )
    return _as_finite(array, name)


def _as_rectangle(data, name: str) -> np.ndarray:
    if callable(getattr(data, "detach", None)):  # a tensor of PyTorch, perhaps with gradients, on any device
        data = data.detach().cpu()
        data = data.double() if data.is_floating_point() else data
    try:
        return np.asarray(data)
    except ValueError:  # rows of different lengths
        raise ValueError(f"{name} must be a rectangular array, one row for each sample.") from None


def _require_real(array: np.ndarray, name: str) -> None:
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float64.")


def _as_finite(array: np.ndarray, name: str) -> np.ndarray:
    array = np.ascontiguousarray(array, dtype=np.float64)
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).reshape(len(array), -1).all(axis=1)))
        raise ValueError(f"{name} has NaN or infinity in row {row}; remove or repair that sample.")
    return array


def as_number(value) -> float:
    """A real number as a float; NaN, which fails every comparison, for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.nan


def as_positive(name: str, value, *, or_zero: bool = False, or_infinite: bool = False) -> float:
    """A positive number, or also zero or infinity where these make sense."""
    number = as_number(value)
    if (number > 0 or (or_zero and number == 0)) and (or_infinite or math.isfinite(number)):
        return number
    wanted = "zero or a positive number" if or_zero else "a positive number"
    raise ValueError(f"{name} must be {wanted}{', or infinity' * or_infinite}, got {value!r}.")


def as_count(name: str, value, *, lowest: int, or_infinite: bool = False) -> int | float:
    """A whole number of at least `lowest`, or infinity if `or_infinite`."""
    number = as_number(value)
    if or_infinite and number == math.inf:
        return math.inf
    if math.isfinite(number) and number == int(number) and number >= lowest:
        return int(number)
    wanted = f"a whole number of at least {lowest}{', or infinity' * or_infinite}"
    raise ValueError(f"{name} must be {wanted}, got {value!r}.")


def reason(error: BaseException) -> str:
    """The first line of what an error of other code says, without its last point, for a sentence of ours."""
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else "no reason given"


def merge_inputs(X: np.ndarray, *, keep: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of X in the order in which they first appear, and the place of each row among them.

    The first `keep` rows all stay, even if some of them are equal.
    """
    first = input_numbers(X)[0]
    first[:keep] = np.arange(keep)
    distinct, places = np.unique(first, return_inverse=True)
    return X[distinct], places


def input_numbers(X: np.ndarray, other: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A number for each input of X and of `other` (X again if None), the same for equal inputs.

    It is the place where the input first stands in X followed by `other`.
    """
    everything = X if other is None else np.concatenate([X, other])
    numbers = np.arange(len(everything))
    sums = everything.reshape(len(everything), -1).sum(axis=1)
    if np.unique(sums).size < len(everything):  # otherwise all inputs differ
        first: dict[bytes, int] = {}
        signless = enumerate(everything + 0.0)  # -0.0 becomes 0.0
        numbers = np.array([first.setdefault(x.tobytes(), row) for row, x in signless], dtype=int)
    return numbers[: len(X)], numbers[: len(X)] if other is None else numbers[len(X) :]
