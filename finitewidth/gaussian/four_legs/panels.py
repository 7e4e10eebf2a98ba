r"""Nested integrals of products of legs with kinks, on panels that end where a leg meets a kink.

The distinct legs are $z = L x$ with a pivoted Cholesky factor. All variables but the last are integrated on
nested Gauss-Legendre panels that end where a leg, or the crossing of two legs, meets a kink. The last leg is
averaged beforehand over its variance given the others. Hence the integrand is analytic on every panel,
whatever the rank of K.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import get_lapack_funcs

from finitewidth.gaussian.tower import Tower
from finitewidth.gaussian.two_legs.quadrature import breakpoints

_NODES = ((4, 6), (6, 9), (9, 13))  # coarse and fine numbers of nodes on a panel
_REACH = 8.0  # standard deviations; products of eight factors z have 1e-9 of their average beyond
_ACCURACY_OF_TWO = 1e-10  # of one or two legs, which take little time
_AT_ONCE = 1 << 13  # points whose products of derivatives fit into a core's cache
_LEAST = 1e-14  # weight of a point that counts
_LONGEST = 2.0  # length of a panel over which a normal density is smooth

(_dpstrf,) = get_lapack_funcs(("pstrf",), dtype=np.float64)  # Cholesky factorization with pivots
_gauss_legendre = functools.cache(np.polynomial.legendre.leggauss)

Z = -1  # in a key, a factor z
Key = tuple[tuple[int, ...], ...]  # for every leg, the orders of the derivatives that sit on it


class Sums(NamedTuple):
    """What is asked of one set of legs: sums of averages, each with a coefficient for every key."""

    keys: list[Key]
    coefficients: np.ndarray  # (sum, key)

    @classmethod
    def of(cls, terms: Sequence[Mapping[Key, float]]) -> "Sums":
        keys = sorted({key for one in terms for key in one})
        places = {key: place for place, key in enumerate(keys)}
        coefficients = np.zeros((len(terms), len(keys)))
        for row, one in enumerate(terms):
            for key, coefficient in one.items():
                coefficients[row, places[key]] += coefficient
        return cls(keys, coefficients)


class LegTower(Tower):
    """The derivatives of an activation and, at the end, z itself."""

    def __call__(self, z: np.ndarray) -> np.ndarray:
        return np.concatenate([super().__call__(z), np.asarray(z, dtype=float)[None]])


def integrate(
    towers: Sequence[LegTower], K: np.ndarray, sums: Sums, accuracy: float
) -> tuple[np.ndarray, float]:
    """The sums for legs with kernel K, a tower for each leg, and an estimate of their error."""
    order, factor = _pivoted_cholesky(K)
    keys = [tuple(key[leg] for leg in order) for key in sums.keys]
    problem = _Problem([towers[leg] for leg in order], factor, keys)
    accuracy = accuracy if len(K) > 2 else min(accuracy, _ACCURACY_OF_TWO)
    values, error = np.zeros(len(sums.coefficients)), math.inf
    for coarse, fine in _NODES:
        rough, values = (sums.coefficients @ problem.integrate(nodes) for nodes in (coarse, fine))
        error = float(np.abs(values - rough).max())
        if error <= accuracy:
            break
    return values, error


def _kinks(tower: Tower) -> tuple[float, ...]:
    """Where panels end: none for straight lines, zero for other smooth activations."""
    slopes = tower.activation.slopes
    return () if slopes is not None and slopes[0] == slopes[1] else breakpoints(tower.activation)


def _pivoted_cholesky(K: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The legs, each time the one with the largest variance given those before, and L with K = L L^T."""
    variances = np.diagonal(K)
    smallest = variances[variances > 0].min(initial=np.finfo(float).max)
    factor, order, rank, _ = _dpstrf(K, lower=1, tol=1e-13 * smallest)
    factor = np.tril(factor)
    factor[:, rank:] = 0.0  # columns that LAPACK has not factorized
    return (order - 1).tolist(), factor


@dataclass(frozen=True)
class Plane:
    """Points with direction . x = offset, where the integrand changes over a distance `width`."""

    direction: np.ndarray
    offset: float
    width: float


class _Problem:
    """Nested integrals over x for one factor L, shared by all distributions of derivative orders."""

    def __init__(self, towers: list[LegTower], factor: np.ndarray, keys: list[Key]):
        self.towers, self.factor, self.legs = towers, factor, len(factor)
        self.planes = _planes_by_level(factor, [_kinks(tower) for tower in towers])
        self.fronts = sorted({key[:-1] for key in keys})  # orders on all legs but the last
        self.ends = sorted({key[-1] for key in keys})
        self.places = tuple(np.transpose([(self.fronts.index(k[:-1]), self.ends.index(k[-1])) for k in keys]))
        self.last = self._smoothed_last()

    def integrate(self, nodes: int) -> np.ndarray:
        """One value for every key."""
        levels = self.legs - 1
        if levels == 0:
            return self.last(np.zeros(1))[0][self.places[1]]
        total = np.zeros((len(self.fronts), len(self.ends)))
        outer = self._extend(np.zeros((1, 0)), np.ones(1), 0, nodes)
        for begin in range(0, len(outer[1]), 16):  # some outer points at a time: little memory
            x, weights = (part[begin : begin + 16] for part in outer)
            for level in range(1, levels):
                x, weights = self._extend(x, weights, level, nodes)
            for point in range(0, len(weights), _AT_ONCE):
                part = slice(point, point + _AT_ONCE)
                total += self._sum(x[part], weights[part])
        return total[self.places]

    def _sum(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(front, end)."""
        z = x @ self.factor[:, : x.shape[1]].T
        values = self._on_legs(z)
        products: dict[Key, np.ndarray] = {(): weights}
        for front in self.fronts:
            for size in range(1, self.legs):
                if front[:size] not in products:
                    product = products[front[: size - 1]]
                    for order in front[size - 1]:
                        product = product * values[size - 1][order]
                    products[front[:size]] = product
        return np.stack([products[front] for front in self.fronts]) @ self.last(z[:, -1])

    def _on_legs(self, z: np.ndarray) -> dict[int, np.ndarray]:
        """Derivatives (order, point) of every leg but the last; those of one tower in one call."""
        values = {}
        for tower in dict.fromkeys(self.towers[:-1]):
            legs = [leg for leg in range(self.legs - 1) if self.towers[leg] is tower]
            together = tower(z[:, legs].T)
            values |= {leg: together[:, place] for place, leg in enumerate(legs)}
        return values

    def _extend(self, x: np.ndarray, weights: np.ndarray, level: int, nodes: int):
        """Add one variable, integrated on panels that depend on the variables before."""
        if self.factor[level, level] == 0:  # nothing is left open: the leg is known already
            return np.concatenate([x, np.zeros((len(x), 1))], axis=1), weights
        if len(x) == 0:  # all points so far are too far out to count
            return np.zeros((0, level + 1)), weights
        edges = self._edges(x, level)
        abscissas, parts = _gauss_legendre(nodes)
        lengths = np.diff(edges, axis=1)[:, :, None]
        y = (edges[:, :-1, None] + lengths * (abscissas + 1) / 2).reshape(len(x), -1)
        new = (lengths * parts / 2).reshape(len(x), -1) * np.exp(-(y**2) / 2) / np.sqrt(2 * np.pi)
        total = weights[:, None] * new
        keep = total > _LEAST
        rows = np.nonzero(keep)[0]
        return np.concatenate([x[rows], y[keep][:, None]], axis=1), total[keep]

    def _edges(self, x: np.ndarray, level: int) -> np.ndarray:
        regular = np.arange(-_REACH, _REACH + 0.1, _LONGEST)
        edges = [np.broadcast_to(regular, (len(x), regular.size))]
        for plane in self.planes[level]:
            slope = plane.direction[level]
            centre = (plane.offset - x @ plane.direction[:level]) / slope
            width = plane.width / abs(slope)
            spread = np.array([0.0]) if width < 1e-9 else np.array([-4.0, -1.5, 0.0, 1.5, 4.0]) * width
            if width < _LONGEST / 2:
                edges.append(np.clip(centre[:, None] + spread, -_REACH, _REACH))
        edges = np.concatenate(edges, axis=1)
        return np.unique(edges)[None, :] if len(x) == 1 else np.sort(edges, axis=1)

    def _smoothed_last(self) -> Callable[[np.ndarray], np.ndarray]:
        """Products of derivatives on the last leg, averaged given the others: (point, end) of its mean."""
        deviation, tower = abs(self.factor[-1, -1]), self.towers[-1]
        kinks = _kinks(tower) or (0.0,)

        def raw(z: np.ndarray) -> np.ndarray:
            values = tower(z)
            return np.stack([values[list(orders)].prod(axis=0) for orders in self.ends], axis=-1)

        if deviation < 1e-7:
            return raw
        g, w = _gauss_legendre(24)

        def averaged(mean: np.ndarray) -> np.ndarray:
            cuts = [np.clip((kink - mean) / deviation, -8.0, 8.0) for kink in kinks]
            fixed = [np.full_like(mean, end) for end in (-8.0, 0.0, 8.0)]
            ends = np.sort(np.stack([*fixed, *cuts]), axis=0)
            half = np.diff(ends, axis=0)[..., None] / 2
            y = ends[:-1, :, None] + half * (g + 1)
            weights = np.exp(-(y**2) / 2) * w * half / np.sqrt(2 * np.pi)
            return np.einsum("imye,imy->me", raw(mean[:, None] + deviation * y), weights)

        if self.legs == 1:
            return averaged
        reach = (_REACH + 1) * float(np.abs(self.factor[-1, :-1]).sum()) + 1e-9
        near = np.sinh(np.linspace(-6, 6, 481)) / np.sinh(6) * 2 * reach
        near = np.concatenate([near * 1.0, np.linspace(-12, 12, 481) * deviation])
        grid = np.concatenate([kink + near for kink in kinks] + [[-reach, reach]])
        grid = np.unique(np.round(grid[np.abs(grid) <= reach], 12))
        return CubicSpline(grid, averaged(grid)) if grid.size > 3 else averaged


def _planes_by_level(factor: np.ndarray, kinks: list[tuple[float, ...]]) -> list[list[Plane]]:
    """Where, at every level of the nested integral, the integrand in that variable changes fast.

    These are the planes on which the mean of a leg, given the variables so far, meets a kink, and
    the projections of the lines in which two planes of the next level cross.
    """
    legs = len(factor)
    levels: list[list[Plane]] = [[] for _ in range(legs)]
    for level in reversed(range(legs - 1)):
        for leg in range(level, legs):
            direction = factor[leg, : level + 1]
            width = float(np.sqrt((factor[leg, level + 1 :] ** 2).sum()))
            levels[level] += [Plane(direction, kink, width) for kink in kinks[leg]]
        if level + 1 < legs - 1:
            levels[level] += _crossings(levels[level + 1], level + 1)
        levels[level] = [plane for plane in levels[level] if abs(plane.direction[level]) > 1e-9]
    return levels


def _crossings(planes: list[Plane], level: int) -> list[Plane]:
    crossings = []
    for one, other in itertools.combinations(planes, 2):
        slopes = one.direction[level], other.direction[level]
        direction = one.direction[:level] / slopes[0] - other.direction[:level] / slopes[1]
        offset = one.offset / slopes[0] - other.offset / slopes[1]
        width = one.width / abs(slopes[0]) + other.width / abs(slopes[1])
        crossings.append(Plane(direction, offset, width))
    return crossings
