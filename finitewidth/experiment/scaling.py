"""As which power of the width something falls."""

from collections.abc import Sequence

import numpy as np

from finitewidth.core.estimate import Estimate


def power_of_width(widths: Sequence[int], estimates: Sequence[Estimate]) -> Estimate:
    """p of the fit of n^-p to positive numbers measured at several widths, weighted by their errors."""
    value, error = (np.array([float(part) for part in parts]) for parts in zip(*estimates, strict=True))
    if len(value) != len(widths) or len(value) < 2:
        raise ValueError(f"estimates must be one for each of two or more widths, got {len(value)}.")
    if not (np.all(value > 0) and np.all(np.isfinite(error)) and np.all(error > 0)):
        raise ValueError(f"estimates must be positive with finite errors, got {value} with {error}.")
    x, y, weight = np.log(np.asarray(widths, dtype=float)), np.log(value), (value / error) ** 2
    centred = (x - np.average(x, weights=weight)) * weight
    return Estimate(np.asarray(-np.sum(centred * y) / np.sum(centred * x)), np.sum(centred * x) ** -0.5)
