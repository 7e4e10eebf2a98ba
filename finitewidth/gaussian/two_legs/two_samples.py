r"""Averages of four legs that stand on two samples, for all pairs of samples at once.

Legs on one sample are a function of its preactivation alone, so that for instance
$\langle \sigma_1^3 \sigma_2 \rangle$ is a two-leg average of $\sigma^3$ and $\sigma$. With the Hermite
coefficients of both functions it is a power series in the correlation,

$$\langle u_1 v_2 \rangle = \sum_k u_k(K_{11})\, v_k(K_{22})\, c^k, \qquad
  c = K_{12} / \sqrt{K_{11} K_{22}},$$

whose remainder after P terms is at most $|c|^P$ times what Parseval's identity lacks of the two functions.
"""

import math
from typing import NamedTuple

import numpy as np

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.hermite import weighted_hermite
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import Activation

_LENGTHS = (32, 64, 128, 256, 512, 1024)  # terms
_REACH = 12.2  # standard deviations, beyond which nothing is left of a Gaussian
_STEPS = {512: 0.05, 1024: 0.025}  # of the trapezoidal rule, by number of terms that it resolves
_ROWS = 32  # samples whose pairs stay in cache
ACCURATE = 1e-9  # relative error from which no more terms are tried


class TwoSamples(NamedTuple):
    """Averages over ordered pairs of samples, (N, N) each."""

    cube_one: np.ndarray  # <s_1^3 s_2>
    squares: np.ndarray  # <s_1^2 s_2^2>
    sloped_square: np.ndarray  # <s'_1 s_1^2 s'_2>
    sloped_pair: np.ndarray  # <s'_1 s_1 s'_2 s_2>
    error: float  # largest, relative to the norms of the two functions


_PAIRS = (("cube", "one"), ("square", "square"), ("sloped square", "slope"), ("sloped", "sloped"))


def two_samples(activation: Activation, K: np.ndarray) -> TwoSamples:
    """The averages under a kernel (N, N)."""
    result = _series(activation, K, _LENGTHS[0])
    for length in _LENGTHS[1:]:
        if result.error <= ACCURATE:
            break
        result = _series(activation, K, length)
    return result


def _series(activation: Activation, K: np.ndarray, length: int) -> TwoSamples:
    step = next(step for longest, step in _STEPS.items() if length <= longest)
    x = step * np.arange(-round(_REACH / step), round(_REACH / step) + 1)
    weights = step * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    deviations = np.sqrt(np.diag(K))
    functions = _functions(activation, deviations[:, None] * x)
    hermite = weighted_hermite(x, weights, length)
    tables = {name: hermite @ values.T for name, values in functions.items()}  # (P, N)
    norms = {name: (values**2) @ weights for name, values in functions.items()}
    coarse = {name: 2 * (values[:, ::2] ** 2) @ weights[::2] for name, values in functions.items()}
    error = max(np.abs(_ratio(coarse[name] - norms[name], norms[name])).max() for name in norms)
    c = np.clip(_ratio(K, np.outer(deviations, deviations)), -1.0, 1.0)
    np.fill_diagonal(c, 0.0)
    averages = []
    for first, second in _PAIRS:
        whole = _summed(tables[first], tables[second], c)
        np.fill_diagonal(whole, (functions[first] * functions[second]) @ weights)
        averages.append(whole)
        error = max(error, _remainder(tables, norms, first, second, c))
    cube_one, squares, sloped_square, sloped_pair = averages
    return TwoSamples(cube_one, squares, sloped_square, sloped_pair, float(error))


def _functions(activation: Activation, z: np.ndarray) -> dict[str, np.ndarray]:
    sigma, slope = Tower(activation, 1)(z)
    return {
        "one": sigma,
        "square": sigma**2,
        "cube": sigma**3,
        "slope": slope,
        "sloped": slope * sigma,
        "sloped square": slope * sigma**2,
    }


def _remainder(tables, norms, first: str, second: str, c: np.ndarray) -> float:
    """The bound on what the series lacks, relative to the norms."""
    missing = [
        np.sqrt(np.maximum(_ratio(norms[name] - (tables[name] ** 2).sum(axis=0), norms[name]), 0.0))
        for name in (first, second)
    ]
    length = tables[first].shape[0]
    return float((np.abs(c) ** length * np.outer(*missing)).max(initial=0.0))


def _summed(first: np.ndarray, second: np.ndarray, c: np.ndarray) -> np.ndarray:
    """sum_k u_k(i) v_k(j) c_ij^k by Horner's rule, a few rows at a time."""
    result = np.zeros_like(c)
    present = [bool(first[k].any() and second[k].any()) for k in range(first.shape[0])]

    def work(start: int) -> None:
        rows = slice(start, start + _ROWS)
        total, correlation = result[rows], c[rows]
        for k in range(first.shape[0] - 1, -1, -1):
            total *= correlation
            if present[k]:
                total += first[k, rows, None] * second[k]

    list(on_all_cores(work, range(0, c.shape[0], _ROWS)))
    return result


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, and zero where b vanishes: functions without variation."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)
