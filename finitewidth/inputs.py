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
