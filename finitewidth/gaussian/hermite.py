r"""Hermite polynomials with $\langle he_j(x)\, he_k(x)\rangle = \delta_{jk}$ for x ~ N(0, 1).

Written by hand because NumPy and SciPy have the unnormalized ones only, which overflow near k = 300.
"""

import functools
from collections.abc import Iterator

import numpy as np


def hermite_polynomials(x: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """he_0(x), ..., he_(count-1)(x), one after the other."""
    now, before = np.ones_like(x), np.zeros_like(x)
    for up, down in zip(*_recursion(count), strict=True):
        yield now
        now, before = up * x * now - down * before, now


def weighted_hermite(x: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """he_k(x) times the weight of each node, (count, x)."""
    return np.stack([polynomial * weights for polynomial in hermite_polynomials(x, count)])


@functools.cache
def _recursion(count: int) -> tuple[np.ndarray, np.ndarray]:
    k = np.arange(count)
    return 1 / np.sqrt(k + 1), np.sqrt(k / (k + 1))
