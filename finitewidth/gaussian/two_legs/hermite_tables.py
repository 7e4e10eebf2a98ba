r"""Hermite coefficients of the legs of a layer, and the remainder of a series that ends early.

One table of the coefficients $\alpha^{(a)}_{ik} = \langle \sigma^{(a)}(\sqrt{K_{ii}} x)\, he_k(x) \rangle$
per leg serves all pairs. The remainder after $P$ terms at correlation $c$ is at most
$|c|^P \sqrt{t_1 t_2}$ with $t_i = \langle \sigma^{(a)2}_i \rangle - \sum_{k<P} \alpha_{ik}^2$, the part of
Parseval's identity that is missing.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.division import divisor
from finitewidth.gaussian.hermite import hermite_polynomials, weighted_hermite
from finitewidth.gaussian.tower import Tower
from finitewidth.gaussian.two_legs import quadrature
from finitewidth.gaussian.two_legs.orders import Orders, as_functions, of_legs
from finitewidth.network.layers.activation import Activation

LONGEST = 1024  # terms
SHORTEST = 32
_INTERPOLATED = 24  # standard deviations from which many are interpolated
_MANY = 512  # legs
_WORTH_A_POOL = 1 << 18  # evaluations
_LONGEST_UNIFORM = 256  # beyond, he_k itself asks for a grid that is no cheaper than the graded one
_HERMITE_REACH = 12.2  # |he_k| exp(-x^2/4) is at most one, so the integrand beyond is below 1e-16
_NODES = {256: 321, LONGEST: 641}  # per segment at least, by number of terms: he_k has k zeros to resolve
_ABSENT = 1e-14  # coefficients below this fraction of the largest are rounding errors
_STEPS = (0.4, 0.28, 0.2, 0.14, 0.1, 0.07)  # of uniform grids, in standard deviations


Parity = tuple[bool, bool]  # even, odd


class Tables(NamedTuple):
    """Hermite coefficients of the legs of one side, by derivative order, and averages of single legs."""

    coefficients: dict[int, np.ndarray]  # order: (P, M)
    tails: dict[int, np.ndarray]  # order: largest relative Parseval remainder after k terms, (P + 1,)
    alone: dict[Orders, np.ndarray]  # <sigma^(a) sigma^(b)> by pair of orders, (M,)
    present: dict[int, Parity]  # order: whether there are even and odd terms beyond the first two


def _hermite_sums(weighted: np.ndarray, x: np.ndarray, length: int) -> np.ndarray:
    """sum_x f(x) he_k(x) for functions `weighted` (orders, M, G) on grids x (M, G): (orders, length, M)."""
    sums = np.empty((weighted.shape[0], length, x.shape[0]))
    for k, polynomial in enumerate(hermite_polynomials(x, length)):
        sums[:, k] = np.einsum("omg,mg->om", weighted, polynomial)
    return sums


def _on_own_grids(activation: Activation, sigma: np.ndarray, orders, length: int, extent: float, count: int):
    """<sigma^(a)(sigma x) he_k(x)>, (orders, length, M), where each leg has its kinks in its own places."""
    tower = Tower(activation, max(orders))
    coefficients = np.empty((len(orders), length, sigma.size))
    for start in range(0, sigma.size, 8):  # few legs at a time stay in cache through the recursion
        part = slice(start, start + 8)
        kinks = quadrature.kinks_in_units(activation, sigma[part])
        x, weights = quadrature.gaussian_grid(kinks, extent, count)
        weighted = tower(sigma[part, None] * x)[list(orders)] * weights
        coefficients[:, :, part] = _hermite_sums(weighted, x, length)
    return coefficients


def _on_shared_grid(activation: Activation, sigma: np.ndarray, orders, grid: "Grid", pairs=()):
    """The same where legs can share a grid, by one matrix product; and <sigma^(a) sigma^(b)> for `pairs`."""
    tower = Tower(activation, max(orders))
    coefficients = np.empty((len(orders), grid.hermite.shape[0], sigma.size))
    alone = {pair: np.empty(sigma.size) for pair in pairs}

    def work(part: slice) -> None:
        legs = tower(sigma[part, None] * grid.x[None, :])
        for index, order in enumerate(orders):
            coefficients[index, :, part] = grid.hermite @ legs[order].T
        for a, b in pairs:
            alone[a, b][part] = np.einsum("mg,mg,g->m", legs[a], legs[b], grid.hermite[0])

    parts = [slice(start, start + 256) for start in range(0, sigma.size, 256)]
    if sigma.size * grid.x.size < _WORTH_A_POOL:
        for part in parts:
            work(part)
    else:
        list(on_all_cores(work, parts))
    return coefficients, alone


def _on_interpolated_grid(
    activation: Activation, sigma: np.ndarray, orders, grid: "Grid", pairs, tolerance: float
):
    """The same for many legs: computed for few standard deviations and interpolated between them."""
    if sigma.size <= 4 * _INTERPOLATED:
        return _on_shared_grid(activation, sigma, orders, grid, pairs)
    centre, half = (sigma.max() + sigma.min()) / 2, (sigma.max() - sigma.min()) / 2
    x = np.cos(np.pi * (np.arange(_INTERPOLATED) + 0.5) / _INTERPOLATED)  # Chebyshev nodes
    nodes, alone = _on_shared_grid(activation, centre + half * x, orders, grid, pairs)
    values = np.concatenate([nodes.reshape(-1, x.size), *(alone[pair][None] for pair in pairs)])
    transform = chebvander(x, x.size - 1) * 2 / x.size
    transform[:, 0] /= 2
    series = values @ transform
    size = {a: math.sqrt(alone[a, a].min()) for a in orders}
    scale = np.concatenate(
        [np.repeat([size[a] for a in orders], nodes.shape[1]), [size[a] * size[b] for a, b in pairs]]
    )
    if (np.abs(series[:, -4:]).max(axis=1) > tolerance * scale).any():  # a wide range, or steep
        halves = [np.flatnonzero(sigma <= centre), np.flatnonzero(sigma > centre)]
        parts = [
            _on_interpolated_grid(activation, sigma[half], orders, grid, pairs, tolerance) for half in halves
        ]
        back = np.argsort(np.concatenate(halves), kind="stable")
        coefficients = np.take(np.concatenate([part[0] for part in parts], axis=-1), back, axis=-1)
        return coefficients, {pair: np.concatenate([part[1][pair] for part in parts])[back] for pair in pairs}
    values = series @ chebvander((sigma - centre) / max(half, 1e-300), x.size - 1).T
    count = len(orders) * nodes.shape[1]
    return values[:count].reshape(*nodes.shape[:2], -1), dict(zip(pairs, values[count:], strict=True))


class Grid(NamedTuple):
    """Nodes x (G,) and Hermite polynomials (length, G) times the weights of a unit Gaussian."""

    x: np.ndarray
    hermite: np.ndarray


@functools.lru_cache(maxsize=16)
def _graded(length: int, extent: float, count: int) -> Grid:
    """A grid that crowds at zero."""
    x, weights = quadrature.gaussian_grid(np.zeros(1), extent, count)
    return Grid(x, weighted_hermite(x, weights, length))


@functools.lru_cache(maxsize=16)
def _uniform(length: int, extent: float, step: float) -> Grid:
    """The trapezoidal rule, which converges exponentially for a smooth function."""
    x = step * np.arange(-math.ceil(extent / step), math.ceil(extent / step) + 1)
    weights = step * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return Grid(x, weighted_hermite(x, weights, length))


@functools.lru_cache(maxsize=4096)
def _uniform_step(
    activation: Activation, widest: float, orders, length: int, tolerance: float
) -> float | None:
    """The largest step of a uniform grid that agrees with a graded one for a wide and a narrow leg."""
    extent = max(_HERMITE_REACH, quadrature.reach(activation, widest))
    sigma = np.sqrt([widest, widest / 8])
    pairs = tuple((a, a) for a in orders)
    exact, squares = _on_shared_grid(
        activation, sigma, orders, _graded(length, extent, _NODES[LONGEST]), pairs
    )
    scale = np.sqrt(np.stack([squares[pair] for pair in pairs]))[:, None, :]
    for step in _STEPS:
        coefficients, _ = _on_shared_grid(activation, sigma, orders, _uniform(length, extent, step))
        if (np.abs(coefficients - exact) <= tolerance * scale).all():
            return step
    return None


def tables(
    activation: Activation,
    variances: np.ndarray,
    pairs: tuple[Orders, ...],
    length: int,
    *,
    widest: float,
    count: int,
    tolerance: float,
) -> Tables:
    """Hermite coefficients for every variance, with `count` nodes or more per segment of a graded grid.

    `widest` is at least the largest variance; `pairs` are the averages that are asked for.
    """
    orders = of_legs(pairs)
    regular = as_functions(activation, orders)
    squares = tuple((a, a) for a in regular)
    wanted = (*pairs, *(pair for pair in squares if pair not in pairs))
    extent = max(_HERMITE_REACH, quadrature.reach(activation, widest))
    sigma = np.sqrt(variances)
    step = None
    if activation.is_smooth and length <= _LONGEST_UNIFORM:
        step = _uniform_step(activation, widest, regular, length, tolerance)
    if step is not None:
        grid = _uniform(length + 1, extent, step)
        stacked, alone = _on_interpolated_grid(activation, sigma, regular, grid, wanted, tolerance / 2)
    else:
        nodes = max(count, next(nodes for longest, nodes in _NODES.items() if length <= longest))
        stacked = _on_graded_grids(activation, sigma, regular, length + 1, extent, nodes)
        averages = quadrature.one_sample(activation, variances, wanted, count=count).fine
        alone = dict(zip(wanted, averages, strict=True))
    coefficients = dict(zip(regular, stacked, strict=True))
    chosen = _extremes(sigma)
    tails = {a: _tails(coefficients[a][:length, chosen], alone[a, a][chosen]) for a in regular}
    for order in orders:
        if order not in coefficients:  # a delta function
            coefficients[order] = _by_parts(coefficients[order - 1], sigma)
    cut = {a: table[:length] for a, table in coefficients.items()}
    return Tables(cut, tails, alone, {a: _present(table[:, chosen]) for a, table in cut.items()})


def _extremes(sigma: np.ndarray) -> np.ndarray:
    """Of very many legs those that show their range: remainders vary smoothly with the deviation."""
    if sigma.size <= _MANY:
        return np.arange(sigma.size)
    return np.argsort(sigma, kind="stable")[np.linspace(0, sigma.size - 1, _MANY).astype(int)]


def _present(coefficients: np.ndarray) -> Parity:
    size = np.abs(coefficients).max(axis=1, initial=0.0)
    even, odd = (size[start::2].max(initial=0.0) > _ABSENT * size.max(initial=0.0) for start in (2, 3))
    return bool(even), bool(odd)


def _on_graded_grids(
    activation: Activation, sigma: np.ndarray, orders, length: int, extent: float, nodes: int
):
    # where segments end at zero whatever the variance, one grid serves all legs
    if all(kink == 0.0 for kink in activation.kinks):
        return _on_shared_grid(activation, sigma, orders, _graded(length, extent, nodes))[0]
    return _on_own_grids(activation, sigma, orders, length, extent, nodes)


def _by_parts(coefficients: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Coefficients of the derivative: <f' he_k> = sqrt(k+1) <f he_(k+1)> / sqrt(K)."""
    up = np.sqrt(np.arange(1, coefficients.shape[0]))[:, None]
    shifted = up * coefficients[1:] / divisor(sigma)
    return np.concatenate([shifted, np.zeros((1, sigma.size))])


def _tails(coefficients: np.ndarray, squares: np.ndarray) -> np.ndarray:
    relative = coefficients**2 / divisor(squares)
    left = 1 - np.concatenate([np.zeros((1, squares.size)), np.cumsum(relative, axis=0)])
    left[:, squares == 0] = 0.0
    # more than all of it is as wrong as too little: the size counts, not the sign
    return np.maximum(np.abs(left).max(axis=1, initial=0.0), 1e-16)


@functools.lru_cache(maxsize=4096)
def _widest_tails(activation: Activation, widest: float, orders: tuple[int, ...], count: int) -> np.ndarray:
    """The largest Parseval remainder after k terms for one variance, (1025,)."""
    pairs = tuple((a, a) for a in as_functions(activation, orders))
    one = np.asarray([widest])
    longest = tables(activation, one, pairs, LONGEST, widest=widest, count=count, tolerance=0.0)
    return np.max(list(longest.tails.values()), axis=0)


def length_for(
    activation: Activation,
    widest: float,
    orders: tuple[int, ...],
    *,
    correlation: float,
    tolerance: float,
    count: int,
) -> int:
    """The number of terms, at most 1024, that reach the tolerance at this correlation and variance."""
    tails = _widest_tails(activation, widest, orders, count)
    length = SHORTEST
    while length < LONGEST and tails[length] * correlation**length > tolerance:
        length *= 2
    return length
