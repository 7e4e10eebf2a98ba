r"""Four-leg averages of activations with kinks, for one set of samples at a time.

The distinct samples of a quadruple are $z = L x$ with a pivoted Cholesky factor. All variables but
the last are integrated on nested Gauss-Legendre panels that end where a leg, or the crossing of two
legs, meets a kink. The last leg is averaged beforehand over its variance given the others. Hence the
integrand is analytic on every panel, whatever the rank of K.
"""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import get_lapack_funcs

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.four_legs.filling import Filling
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import Activation

ACCURACY = 1e-5  # reached by panels in reasonable time; a tighter tolerance is treated as this one
_NODES = ((4, 6), (6, 9), (9, 13))  # coarse and fine numbers of nodes on a panel
_REACH = 6.0
_LONGEST = 2.0  # length of a panel over which a normal density is smooth

(_dpstrf,) = get_lapack_funcs(("pstrf",), dtype=np.float64)  # Cholesky factorization with pivots
_gauss_legendre = functools.cache(np.polynomial.legendre.leggauss)

Key = tuple[tuple[int, ...], ...]  # for every leg, the orders of the derivatives that sit on it


def check_orders(activation: Activation, families: tuple[Family, ...]) -> None:
    """Refuse derivatives that are delta functions."""
    for family in families:
        if max(family) > activation.jump_order:
            raise ValueError(
                f"families contains {family}, but derivative {max(family)} of activation "
                f"{activation.name!r} is a delta function at its kink (order {activation.jump_order} jumps "
                "there), so the average does not exist; leave the family out or use a smooth activation "
                "such as 'gelu' or 'tanh'."
            )


def fill_kinked(filling: Filling, tower: Tower, K: np.ndarray, tolerance: float) -> float:
    """Fill the arrays and return an estimate of the largest error."""
    families = tuple(filling.arrays)
    sets = [
        samples
        for size in range(1, 5)
        for samples in itertools.combinations(range(len(K)), size)
        if filling.fixed is None or filling.fixed in samples
    ]
    largest = 0.0
    keys = {size: sorted({key for _, _, key in _assignments(families, size)}) for size in range(1, 5)}

    def work(samples: tuple[int, ...]):
        return _averages(tower, K[np.ix_(samples, samples)], keys[len(samples)], max(tolerance, ACCURACY))

    for samples, (values, error) in on_all_cores(work, sets):
        largest = max(largest, error)
        for family, legs, key in _assignments(families, len(samples)):
            filling.put(family, [samples[leg] for leg in legs], values[key])
    return largest


def _assignments(families: tuple[Family, ...], size: int) -> Iterator[tuple[Family, tuple[int, ...], Key]]:
    """Every way to put all of `size` samples into the four slots of a family."""
    for family in families:
        for legs in itertools.product(range(size), repeat=4):
            if len(set(legs)) == size:
                on_leg = [[family[slot] for slot in range(4) if legs[slot] == leg] for leg in range(size)]
                yield family, legs, tuple(tuple(sorted(orders)) for orders in on_leg)


def _averages(
    tower: Tower, K: np.ndarray, keys: list[Key], accuracy: float
) -> tuple[dict[Key, float], float]:
    """Averages of products of legs for one set of distinct samples, and an estimate of their error."""
    order, factor = _pivoted_cholesky(K)
    problem = _Problem(tower, factor, [tuple(key[leg] for leg in order) for key in keys])
    for coarse, fine in _NODES:
        rough, values = problem.integrate(coarse), problem.integrate(fine)
        error = float(np.abs(values - rough).max())
        if error <= accuracy:
            break
    return dict(zip(keys, values, strict=True)), error


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

    def __init__(self, tower: Tower, factor: np.ndarray, keys: list[Key]):
        self.tower, self.factor, self.keys = tower, factor, keys
        self.legs = len(factor)
        self.kinks = tower.activation.kinks
        self.planes = _planes_by_level(factor, self.kinks)
        self.last = {key[-1]: self._smoothed(key[-1]) for key in keys}

    def integrate(self, nodes: int) -> np.ndarray:
        """One value for every key."""
        total = np.zeros(len(self.keys))
        levels = self.legs - 1
        start = np.zeros((1, 0)), np.ones(1)
        if levels == 0:
            return np.array([float(self.last[key[0]](np.zeros(1))[0]) for key in self.keys])
        outer = self._extend(*start, 0, nodes)
        for begin in range(0, len(outer[1]), 16):  # some outer points at a time: little memory
            x, weights = (part[begin : begin + 16] for part in outer)
            for level in range(1, levels):
                x, weights = self._extend(x, weights, level, nodes)
            total += self._sum(x, weights)
        return total

    def _sum(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        z = x @ self.factor[:, : x.shape[1]].T
        values = self.tower(z[:, :-1].T)  # (order, leg, point)
        last = {orders: function(z[:, -1]) for orders, function in self.last.items()}
        sums = []
        for key in self.keys:
            product = weights * last[key[-1]]
            for leg, orders in enumerate(key[:-1]):
                for order in orders:
                    product = product * values[order, leg]
            sums.append(product.sum())
        return np.array(sums)

    def _extend(self, x: np.ndarray, weights: np.ndarray, level: int, nodes: int):
        """Add one variable, integrated on panels that depend on the variables before."""
        if self.factor[level, level] == 0:  # nothing is left open: the leg is known already
            return np.concatenate([x, np.zeros((len(x), 1))], axis=1), weights
        edges = self._edges(x, level)
        abscissas, parts = _gauss_legendre(nodes)
        lengths = np.diff(edges, axis=1)[:, :, None]
        y = (edges[:, :-1, None] + lengths * (abscissas + 1) / 2).reshape(len(x), -1)
        new = (lengths * parts / 2).reshape(len(x), -1) * np.exp(-(y**2) / 2) / np.sqrt(2 * np.pi)
        total = weights[:, None] * new
        keep = total > 1e-12
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

    def _smoothed(self, orders: tuple[int, ...]):
        """The product of derivatives on the last leg, averaged given the others: a function of its mean."""
        deviation = abs(self.factor[-1, -1])

        def raw(z):
            return self.tower(z)[list(orders)].prod(axis=0)

        if deviation < 1e-7:
            return raw
        g, w = _gauss_legendre(24)

        def averaged(mean: np.ndarray) -> np.ndarray:
            cuts = [np.clip((kink - mean) / deviation, -8.0, 8.0) for kink in self.kinks]
            fixed = [np.full_like(mean, end) for end in (-8.0, 0.0, 8.0)]
            ends = np.sort(np.stack([*fixed, *cuts]), axis=0)
            half = np.diff(ends, axis=0)[..., None] / 2
            y = ends[:-1, :, None] + half * (g + 1)
            values = raw(mean[:, None] + deviation * y) * np.exp(-(y**2) / 2) * w * half
            return values.sum(axis=(0, 2)) / np.sqrt(2 * np.pi)

        if self.legs == 1:
            return averaged
        reach = (_REACH + 1) * float(np.abs(self.factor[-1, :-1]).sum()) + 1e-9
        near = np.sinh(np.linspace(-6, 6, 481)) / np.sinh(6) * 2 * reach
        near = np.concatenate([near * 1.0, np.linspace(-12, 12, 481) * deviation])
        grid = np.concatenate([kink + near for kink in self.kinks] + [[-reach, reach]])
        grid = np.unique(np.round(grid[np.abs(grid) <= reach], 12))
        return CubicSpline(grid, averaged(grid)) if grid.size > 3 else averaged


def _planes_by_level(factor: np.ndarray, kinks: tuple[float, ...]) -> list[list[Plane]]:
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
            levels[level] += [Plane(direction, kink, width) for kink in kinks]
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
