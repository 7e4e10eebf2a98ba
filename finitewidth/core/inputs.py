"""Checks of data and numbers, shared by all functions that take them from a user."""

import math
import numbers

import numpy as np
from jaxtyping import Float


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
            f"use fw.one_hot({name}, {width})."
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


def merge_inputs(X: np.ndarray, *, keep: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of X in the order in which they first appear, and the place of each row among them.

    The first `keep` rows all stay, even if some of them are equal.
    """
    first = np.empty(X.shape[0], dtype=int)
    for rows in _groups(X).values():
        first[rows] = rows[0]
    first[:keep] = np.arange(keep)
    distinct, places = np.unique(first, return_inverse=True)
    return X[distinct], places


def input_numbers(X: np.ndarray, other: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A number for each input of X and of `other` (X again if None), the same for equal inputs.

    It is the place where the input first stands in X followed by `other`.
    """
    first: dict[bytes, int] = {}
    everything = X if other is None else np.concatenate([X, other])
    numbers = np.array([first.setdefault((x + 0.0).tobytes(), row) for row, x in enumerate(everything)])
    return numbers[: len(X)], numbers[: len(X)] if other is None else numbers[len(X) :]


def coincident_rows(X: np.ndarray, other: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Indices of equal rows of X and `other`, as two arrays; without `other`, pairs i < j within X.

    Later rows come first. If several rows are equal and each overwrites the same entry, the first row is thus
    the one that remains.
    """
    few = np.unique(np.linspace(0, X.shape[1] - 1, 16).astype(int))  # columns that tell most rows apart
    if other is None:
        alike = [group for group in _groups(X[:, few]).values() if len(group) > 1]
        rows = columns = sorted(row for group in alike for row in group)
    else:
        seen, met = _groups(X[:, few]), _groups(other[:, few])
        both = seen.keys() & met.keys()
        rows, columns = (sorted(i for key in both for i in groups[key]) for groups in (seen, met))
    whole = _groups((X if other is None else other)[columns])
    pairs = [
        (row, columns[j])
        for row, x in zip(rows, X[rows] + 0.0, strict=True)
        for j in whole.get(x.tobytes(), ())
    ]
    chosen = [(i, j) for i, j in pairs if other is not None or i < j]
    first, second = np.asarray(chosen[::-1], dtype=int).reshape(-1, 2).T
    return first, second


def _groups(X: np.ndarray) -> dict[bytes, list[int]]:
    """Row indices, grouped by the content of the rows."""
    seen: dict[bytes, list[int]] = {}
    for row, x in enumerate(X + 0.0):  # + 0.0 turns -0.0 into 0.0
        seen.setdefault(x.tobytes(), []).append(row)
    return seen
