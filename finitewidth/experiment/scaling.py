"""As which powers of the width something falls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from finitewidth.core.estimate import Estimate

ROUNDING = 1e-13  # of the largest number: estimates are not known better
SMALLEST = 1e-100  # where all numbers are zero
NEGLIGIBLE = 1e-3  # of the smallest standard error


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


@dataclass(frozen=True, eq=False)
class Fall:
    """A sum of a_k / n^k fitted to numbers measured at several widths, entry by entry."""

    orders: tuple[float, ...]
    coefficients: np.ndarray  # (orders, ...)
    errors: np.ndarray  # covariance of the coefficients, (orders, orders, ...)
    chi_square: np.ndarray
    freedom: int

    def at(self, n: float) -> Estimate:
        """The value at another width; its error is larger by the root of chi square where the fit is bad."""
        powers = np.array([float(n) ** -k for k in self.orders])
        value = np.einsum("k,k...->...", powers, self.coefficients)
        square = np.einsum("k,l,kl...->...", powers, powers, self.errors)
        stretch = np.maximum(self.chi_square / self.freedom, 1.0) if self.freedom else 1.0
        return Estimate(value, np.sqrt(square * stretch))


def fall_with_width(
    widths: Sequence[int],
    estimates: Sequence[Estimate],
    orders: Sequence[float],
    expected: Mapping[Any, np.ndarray] | None = None,
) -> Fall:
    """Weighted least squares of sum_k a_k / n^k over the given orders k.

    Orders of `expected` are fitted too, but their coefficients are known beforehand to be zero up to the
    standard deviation given for each: they widen the errors, and take no degree of freedom.
    """
    expected = expected or {}
    if len(widths) != len(estimates) or len(widths) < len(orders):
        raise ValueError(
            f"estimates must be one for each width, as many as orders or more, got {len(estimates)} of them, "
            f"{len(widths)} widths and {len(orders)} orders."
        )
    value, stderr = (np.stack([np.asarray(part) for part in parts]) for parts in zip(*estimates, strict=True))
    every = (*orders, *expected)
    powers = np.array([[float(n) ** -k for k in every] for n in widths])  # (widths, orders)
    scale = powers.max(axis=0)  # columns of one size, so that normal equations keep their digits
    weight = 1 / np.maximum(stderr, ROUNDING * np.abs(value).max() + SMALLEST) ** 2
    known = _known_beforehand(len(orders), scale, expected, weight)
    normal = np.einsum("wk,wl,w...->...kl", powers / scale, powers / scale, weight)
    normal = normal + np.einsum("kl,k...->...kl", np.eye(len(every)), known)
    inverse = np.moveaxis(np.linalg.inv(normal), (-2, -1), (0, 1))
    against = np.einsum("wk,w...->k...", powers / scale, weight * value)
    scaled = np.einsum("kl...,l...->k...", inverse, against)
    left = value - np.einsum("wk,k...->w...", powers / scale, scaled)
    shape = (-1, *[1] * (value.ndim - 1))
    return Fall(
        every,
        scaled / scale.reshape(shape),
        inverse / np.multiply.outer(scale, scale).reshape(*2 * (len(scale),), *shape[1:]),
        np.asarray(np.sum(weight * left**2, axis=0) + np.sum(known * scaled**2, axis=0)),
        len(widths) - len(orders),
    )


def _known_beforehand(free: int, scale: np.ndarray, expected: Mapping[float, np.ndarray], weight: np.ndarray):
    """Inverse variances of scaled coefficients, (orders, ...): none for free orders."""
    finest = NEGLIGIBLE / np.sqrt(weight.max(axis=0))
    sizes = [np.maximum(size * s, finest) for size, s in zip(expected.values(), scale[free:], strict=True)]
    return np.stack([np.zeros(weight.shape[1:])] * free + [size**-2.0 for size in sizes])
