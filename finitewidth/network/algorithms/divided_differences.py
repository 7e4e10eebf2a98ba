"""Divided differences of powers and exponentials, many at once and without loss of digits.

The divided differences of a function at given points are entries of that function of a bidiagonal matrix,
with the points on the diagonal and ones beside it. The matrix function is evaluated by repeated squaring.
Small and equal points lose no digits, where quotients of differences lose all.
"""

import math

import numpy as np

Triangle = dict[tuple[int, int], np.ndarray]  # entries of upper triangular matrices, one array per place
_SMALL = 0.5  # argument of the exponential below which its Taylor series is short
_TERMS = 16


def _product(left: Triangle, right: Triangle, size: int) -> Triangle:
    return {
        (i, j): sum(left[i, m] * right[m, j] for m in range(i, j + 1))  # type: ignore[misc]
        for i in range(size)
        for j in range(i, size)
    }


def power(points: list[np.ndarray], exponent: float) -> Triangle:
    """The bidiagonal matrix with `points` on its diagonal and ones beside it, to a whole power."""
    size = len(points)
    one, zero = np.ones_like(points[0]), np.zeros_like(points[0])
    result = {(i, j): one if i == j else zero for i in range(size) for j in range(i, size)}
    base = {
        (i, j): points[i] if i == j else one if j == i + 1 else zero
        for i in range(size)
        for j in range(i, size)
    }
    remaining = int(exponent)
    while remaining:
        if remaining % 2:
            result = _product(result, base, size)
        remaining //= 2
        if remaining:
            base = _product(base, base, size)
    return result


def exponential(points: list[np.ndarray], time: float) -> Triangle:
    """exp(-time B) for the bidiagonal matrix B with minus ones beside the diagonal.

    With this sign all entries are positive and squaring loses nothing.
    """
    size = len(points)
    largest = max(float(np.max(np.abs(x), initial=0.0)) for x in points) * time
    halvings = max(0, math.ceil(math.log2(max(largest, time, 1e-300) / _SMALL)))
    step = time / 2.0**halvings
    one, zero = np.ones_like(points[0]), np.zeros_like(points[0])
    base = {
        (i, j): -step * points[i] if i == j else step * one if j == i + 1 else zero
        for i in range(size)
        for j in range(i, size)
    }
    result = {(i, j): one if i == j else zero for i in range(size) for j in range(i, size)}
    for k in range(_TERMS, 0, -1):  # Horner
        result = {place: value / k for place, value in _product(base, result, size).items()}
        for i in range(size):
            result[i, i] = result[i, i] + 1
    for halving in range(halvings, 0, -1):
        result = _product(result, result, size)
        for i in range(size):  # their rounding errors would double with each squaring
            result[i, i] = np.exp(-time / 2.0 ** (halving - 1) * points[i])
    return result
