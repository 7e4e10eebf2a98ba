"""Checks of data that every entry to the library shares."""

import numpy as np
from jaxtyping import Float


def as_inputs(X, width: int, *, name: str = "X") -> Float[np.ndarray, "N n0"]:
    """Inputs as a finite float64 matrix with one row for each sample; float32 and integers are promoted."""
    try:
        array = np.asarray(X)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array, one row for each sample.") from None
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float64.")
    if array.ndim != 2:
        raise ValueError(
            f"{name} must have shape (samples, {width}), got {array.shape}; use {name}.reshape(-1, {width})."
        )
    array = np.ascontiguousarray(array, dtype=np.float64)
    if array.shape[0] == 0:
        raise ValueError(f"{name} has no samples; pass at least one row.")
    if array.shape[1] != width:
        raise ValueError(
            f"{name} has {array.shape[1]} columns but the network takes n_0 = {width} inputs; "
            "change widths[0] or the data."
        )
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise ValueError(f"{name} has NaN or infinity in row {row}; remove or repair that sample.")
    return array


def as_targets(
    Y, count: int, width: int, *, name: str = "Y_train", inputs: str = "X_train"
) -> Float[np.ndarray, "N n_L"]:
    """Targets as a finite float64 matrix: one row for each of `count` samples, one column for each output."""
    try:
        array = np.asarray(Y)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array, one row for each sample.") from None
    if array.ndim == 1 and width > 1 and np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name} holds integer labels, but targets are vectors of n_L = {width} numbers; "
            f"use fw.one_hot({name}, {width})."
        )
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float64.")
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(
            f"{name} must have shape ({count}, {width}), one column for each of n_L = {width} outputs, "
            f"got {array.shape}; reshape it or change widths[-1]."
        )
    if array.shape[0] != count:
        raise ValueError(
            f"{name} has {array.shape[0]} rows but {inputs} has {count} samples; give one row for each."
        )
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise ValueError(f"{name} has NaN or infinity in row {row}; remove or repair that sample.")
    return np.ascontiguousarray(array, dtype=np.float64)
