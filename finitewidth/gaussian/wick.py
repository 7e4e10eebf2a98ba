r"""Wick monomials of two preactivations, and averages of products of two legs with them.

The pair (a b) has standard normal axes x and y, $z_a = \alpha x$ and $z_b = \beta x + \delta y$, and
monomials $he_i(x)\, he_j(y)$ of degree m = i + j with normalized Hermite polynomials. For functions f and h
of two pairs, the axes of one having covariances R with those of the other,

$$\langle f h \rangle = \sum_m \sum_{i+j=m} \sum_{q+r=m} \langle f\, he_i he_j \rangle\, T_{ij,qr}(R)\,
  \langle he_q he_r\, h \rangle,$$

which sorts an average of four legs by the number m of lines between its pairs (Mehler, Wick). No kernel is
inverted: pairs of parallel samples have no second axis.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.division import quotient
from finitewidth.gaussian.hermite import weighted_hermite
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import Activation

Orders = tuple[int, int]
_PARALLEL = 1e-15  # of a variance: what rounding leaves across
_REACH = 9.0  # standard deviations
_STEPS = (1 / 4, 1 / 8, 1 / 16, 1 / 32)  # of a grid, in standard deviations
_ACCURACY = 1e-9  # of averages, relative to the largest


@functools.cache
def monomials(degree: int) -> tuple[tuple[int, int], ...]:
    """(i, j) by degree, and i ascending within each."""
    return tuple((i, m - i) for m in range(degree + 1) for i in range(m + 1))


def of_degree(degree: int) -> slice:
    """Where the monomials of one degree stand among all."""
    start = degree * (degree + 1) // 2
    return slice(start, start + degree + 1)


class Axes(NamedTuple):
    """The axes of all pairs of samples: z_a = first x and z_b = along x + across y."""

    K: np.ndarray  # (N, N)
    first: np.ndarray  # (N, N), the same along a row
    along: np.ndarray  # (N, N)
    across: np.ndarray  # (N, N)

    @classmethod
    def of(cls, K: np.ndarray) -> "Axes":
        first = np.repeat(np.sqrt(np.diagonal(K))[:, None], len(K), axis=1)
        along = quotient(K, first)
        variance = np.diagonal(K) - along**2
        across = np.sqrt(np.where(variance > _PARALLEL * np.diagonal(K), variance, 0.0))
        return cls(K, first, along, across)

    def seen_by(self, with_first: np.ndarray, with_second: np.ndarray) -> np.ndarray:
        """Covariances of x and y (2, a, b, ...) with something that has these with z_a and z_b."""
        wide = (part[(..., *[None] * (with_first.ndim - 2))] for part in self[1:])
        first, along, across = (np.broadcast_to(part, with_first.shape) for part in wide)
        x = quotient(with_first, first)
        return np.stack([x, quotient(with_second - along * x, across)])

    def between_pairs(self) -> np.ndarray:
        """Covariances of the axes of (c d) with those of (a b), (2, 2, c, d, a, b)."""
        shape = (len(self.K),) * 3
        of_a, of_b = np.broadcast_to(self.K[:, None], shape), np.broadcast_to(self.K[None], shape)
        whole = (len(self.K),) * 4
        parts = []
        for axis in np.moveaxis(self.seen_by(of_a, of_b), 3, 1):  # (sample, a, b)
            of_c, of_d = np.broadcast_to(axis[:, None], whole), np.broadcast_to(axis[None], whole)
            parts.append(self.seen_by(of_c, of_d))
        return np.stack(parts, axis=1)

    def behind_a_skip(self, gamma: float, below: "Axes") -> np.ndarray:
        """Covariances of these axes with those of the same pairs where a skip starts, (2, 2, c, d)."""
        nothing = np.zeros_like(below.first)
        x = self.seen_by(gamma * below.first, gamma * below.along)
        y = self.seen_by(nothing, gamma * below.across)
        return np.stack([x, y], axis=1)


def transported(R: np.ndarray, degree: int) -> np.ndarray:
    """T of the monomials of one degree, (new monomial, old monomial, ...), from covariances (2, 2, ...)."""
    (xx, xy), (yx, yy) = R
    powers = {(0, 0): np.ones((1, *xx.shape))}
    for i, j in monomials(degree)[1:]:
        (one, other), lower, count = ((xx, xy), (i - 1, j), i) if i else ((yx, yy), (i, j - 1), j)
        powers[i, j] = _with_a_line(powers[lower], one, other) / np.sqrt(count)
    return np.stack([powers[i, j] for i, j in monomials(degree)[of_degree(degree)]])


def _with_a_line(coefficients: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Coefficients of monomials, i ascending, times x on the first axis and y on the second."""
    degree = len(coefficients)
    roots = np.sqrt(np.arange(1, degree + 1)).reshape(-1, *[1] * x.ndim)
    result = np.zeros((degree + 1, *x.shape))
    result[1:] += roots * x * coefficients
    result[:-1] += roots[::-1] * y * coefficients
    return result


class Projections:
    """Averages of products of two legs with monomials, on a grid of even steps."""

    def __init__(self, activation: Activation, degree: int, step: float):
        self.tower, self.degree = Tower(activation, 3), degree
        reach = np.ceil(_REACH / step)
        self.points = step * np.arange(-reach, reach + 1)
        weights = step * np.exp(-(self.points**2) / 2) / np.sqrt(2 * np.pi)
        self.hermite = weighted_hermite(self.points, weights, degree + 1)
        self.chosen = tuple(np.array(monomials(degree)).T)

    def __call__(self, axes: Axes, orders: Sequence[Orders]) -> dict[Orders, np.ndarray]:
        """<s^(p)_a s^(q)_b he_i he_j> by orders (p, q), (N, N, monomial)."""
        count, x = len(axes.K), self.points
        result = {pair: np.empty((count, count, len(monomials(self.degree)))) for pair in orders}
        for a in range(count):
            first = self.tower(axes.first[a, 0] * x)
            centres = axes.along[a, :, None, None] * x[:, None]
            second = self.tower(centres + axes.across[a, :, None, None] * x) @ self.hermite.T
            for p, q in orders:
                whole = np.einsum("ix,bxj->bij", self.hermite * first[p], second[q], optimize=True)
                result[p, q][a] = whole[:, *self.chosen]
        return result


def projections(
    activation: Activation,
    axes: Axes,
    known: Mapping[Orders, np.ndarray],
    others: Sequence[Orders],
    degree: int,
) -> tuple[dict[Orders, np.ndarray], float]:
    """Averages with monomials for the orders of `known` and others, and their largest error.

    `known` are the averages themselves, those with the monomial 1: the grid is refined until it gives them.
    """
    orders = (*known, *others)
    averages, error = {}, math.inf
    for step in _STEPS:
        averages = Projections(activation, degree, step)(axes, orders)
        error = max(float(np.abs(averages[pair][..., 0] - value).max()) for pair, value in known.items())
        scale = max(float(np.abs(value).max()) for value in known.values())
        if error <= _ACCURACY * scale:
            break
    return averages, error
