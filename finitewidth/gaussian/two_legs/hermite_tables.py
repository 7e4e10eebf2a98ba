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
from finitewidth.gaussian import array_pool
from finitewidth.gaussian.division import divisor
from finitewidth.gaussian.hermite import hermite_polynomials, weighted_hermite
from finitewidth.gaussian.tower import Tower
from finitewidth.gaussian.two_legs import quadrature
from finitewidth.gaussian.two_legs.orders import Orders, as_functions, of_legs
from finitewidth.network.layers.activation import Activation

LONGEST = 1024  # terms
SHORTEST = 32
_INTERPOLATED = 32  # standard deviations from which many are interpolated
_AT_ONCE = 128  # legs: their coefficients stay in cache on the way to the table
_WORTH_A_POOL = 1 << 18  # evaluations
_LONGEST_UNIFORM = 256  # beyond, he_k itself asks for a grid that is no cheaper than the graded one
_HERMITE_REACH = 12.2  # |he_k| exp(-x^2/4) is at most one, so the integrand beyond is below 1e-16
_NODES = {256: 321, LONGEST: 641}  # per segment at least, by number of terms: he_k has k zeros to resolve
_ABSENT = 1e-14  # coefficients below this fraction of the largest are rounding errors
_ROUNDING = 4e-16  # terms of an interpolation below this fraction of the scale are rounding errors
_EQUAL = 1e-12  # relative range of standard deviations that is not divided any further
_STEPS = (0.4, 0.28, 0.2, 0.14, 0.1, 0.07)  # of uniform grids, in standard deviations


Parity = tuple[bool, bool]  # even, odd


class Tables(NamedTuple):
    """Hermite coefficients of the legs of one side, by derivative order, and averages of single legs."""

    coefficients: dict[int, np.ndarray]  # order: (P, M)
    roots: dict[int, np.ndarray]  # order: of relative Parseval remainders after 0, 8, ... terms, (., M)
    tails: dict[int, np.ndarray]  # order: the largest of them for all legs
    diagonal: dict[Orders, np.ndarray]  # <sigma^(a) sigma^(b)> by pair of orders, (M,)
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
    diagonal = {pair: np.empty(sigma.size) for pair in pairs}

    def work(part: slice) -> None:
        legs = tower(sigma[part, None] * grid.x[None, :])
        for index, order in enumerate(orders):
            coefficients[index, :, part] = grid.hermite @ legs[order].T
        for a, b in pairs:
            diagonal[a, b][part] = np.einsum("mg,mg,g->m", legs[a], legs[b], grid.hermite[0])

    parts = [slice(start, start + 256) for start in range(0, sigma.size, 256)]
    if sigma.size * grid.x.size < _WORTH_A_POOL:
        for part in parts:
            work(part)
    else:
        list(on_all_cores(work, parts))
    return coefficients, diagonal


def _on_interpolated_grid(
    activation: Activation, sigma: np.ndarray, orders, grid: "Grid", pairs, tolerance: float
):
    """The same for many legs: computed for few standard deviations and interpolated between them."""
    if sigma.size <= 4 * _INTERPOLATED:
        return _on_shared_grid(activation, sigma, orders, grid, pairs)
    length = grid.hermite.shape[0]
    values = array_pool.piece((len(orders) * length + len(pairs), sigma.size))
    left: list[np.ndarray | slice] = [slice(None)]
    while left:
        chosen = left.pop()
        some = sigma[chosen]
        if some.size <= 4 * _INTERPOLATED:
            coefficients, diagonal = _on_shared_grid(activation, some, orders, grid, pairs)
            values[:, chosen] = _stacked(coefficients, diagonal, pairs)
            continue
        fit = _fit(activation, some, orders, grid, pairs, tolerance)
        if fit is not None:
            fit.into(values, chosen, some)
            continue
        places, centre = np.arange(sigma.size)[chosen], (some.max() + some.min()) / 2
        left += [places[some <= centre], places[some > centre]]
    count = len(orders) * length
    coefficients = values[:count].reshape(len(orders), length, -1)
    return coefficients, dict(zip(pairs, values[count:], strict=True))


def _stacked(coefficients: np.ndarray, diagonal: dict, pairs) -> np.ndarray:
    return np.concatenate(
        [coefficients.reshape(-1, coefficients.shape[-1]), *(diagonal[pair][None] for pair in pairs)]
    )


class Fit(NamedTuple):
    """Chebyshev series (values, terms) between two standard deviations."""

    series: np.ndarray
    centre: float
    half: float

    def into(self, values: np.ndarray, chosen: np.ndarray | slice, sigma: np.ndarray) -> None:
        """Write the sums of the series for some standard deviations to the `chosen` columns of `values`."""
        polynomials = chebvander((sigma - self.centre) / max(self.half, 1e-300), self.series.shape[1] - 1).T
        for start in range(0, sigma.size, _AT_ONCE):
            part = slice(start, min(start + _AT_ONCE, sigma.size))
            places = part if isinstance(chosen, slice) else chosen[part]
            values[:, places] = self.series @ polynomials[:, part]


@functools.cache
def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev nodes, and the matrix that turns values at them into series."""
    x = np.cos(np.pi * (np.arange(_INTERPOLATED) + 0.5) / _INTERPOLATED)
    transform = chebvander(x, x.size - 1) * 2 / x.size
    transform[:, 0] /= 2
    return x, transform


def _fit(activation: Activation, sigma: np.ndarray, orders, grid: "Grid", pairs, tolerance) -> Fit | None:
    """Interpolation between the least and the largest of standard deviations; None if it is too coarse."""
    centre, half = (sigma.max() + sigma.min()) / 2, (sigma.max() - sigma.min()) / 2
    x, transform = _nodes()
    nodes, diagonal = _on_shared_grid(activation, centre + half * x, orders, grid, pairs)
    size = {a: math.sqrt(diagonal[a, a].min()) for a in orders}
    scale = np.concatenate(
        [np.repeat([size[a] for a in orders], nodes.shape[1]), [size[a] * size[b] for a, b in pairs]]
    )
    series = _stacked(nodes, diagonal, pairs) @ transform
    terms = np.abs(series) / divisor(scale)[:, None]
    is_wide = half > _EQUAL * centre  # or all that is left is rounding
    if is_wide and (terms[:, -4:] > tolerance).any():  # a wide range, or steep
        return None
    last = np.flatnonzero((terms > _ROUNDING).any(axis=0)).max(initial=0)
    return Fit(np.ascontiguousarray(series[:, : last + 1]), float(centre), float(half))


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
        grid = _uniform(length, extent, step)
        coefficients, diagonal = _on_shared_grid(activation, sigma, orders, grid, pairs)
        close = (np.abs(coefficients - exact) <= tolerance * scale).all()
        # the square of a function oscillates faster than the function, so that it may need a smaller step
        if close and all((np.abs(diagonal[p] - squares[p]) <= tolerance * squares[p]).all() for p in pairs):
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
    from finitewidth.gaussian.two_legs.series_loops import remainders

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
        stacked, diagonal = _on_interpolated_grid(activation, sigma, regular, grid, wanted, tolerance / 2)
    else:
        nodes = max(count, next(nodes for longest, nodes in _NODES.items() if length <= longest))
        stacked = _on_graded_grids(activation, sigma, regular, length + 1, extent, nodes, tolerance / 2)
        averages = quadrature.one_sample(activation, variances, wanted, count=count).fine
        diagonal = dict(zip(wanted, averages, strict=True))
    coefficients = dict(zip(regular, stacked, strict=True))
    roots, present = {}, {}
    for a in regular:
        roots[a], sizes = remainders(coefficients[a][:length], diagonal[a, a])
        present[a] = _present(sizes)
    for order in orders:
        if order not in coefficients:  # a delta function
            coefficients[order] = _by_parts(coefficients[order - 1], sigma)
            present[order] = _present(np.abs(coefficients[order][:length]).max(axis=1, initial=0.0))
    cut = {a: table[:length] for a, table in coefficients.items()}
    tails = {a: values.max(axis=1, initial=0.0) for a, values in roots.items()}
    return Tables(cut, roots, tails, diagonal, present)


def diagonal_averages(
    activation: Activation,
    variances: np.ndarray,
    pairs: tuple[Orders, ...],
    *,
    widest: float,
    count: int,
    tolerance: float,
) -> dict[Orders, np.ndarray]:
    """The averages of single legs that `tables` has, without coefficients."""
    regular = as_functions(activation, of_legs(pairs))
    step = None
    if activation.is_smooth:
        step = _uniform_step(activation, widest, regular, SHORTEST, tolerance)
    if step is None:
        averages = quadrature.one_sample(activation, variances, pairs, count=count).fine
        return dict(zip(pairs, averages, strict=True))
    wanted = tuple(dict.fromkeys((*pairs, *((a, a) for a in regular))))
    grid = _uniform(1, max(_HERMITE_REACH, quadrature.reach(activation, widest)), step)
    sigma = np.sqrt(variances)
    averages = _on_interpolated_grid(activation, sigma, regular, grid, wanted, tolerance / 2)[1]
    return {pair: averages[pair] for pair in pairs}


def _present(size: np.ndarray) -> Parity:
    """From the largest size of each coefficient."""
    even, odd = (size[start::2].max(initial=0.0) > _ABSENT * size.max(initial=0.0) for start in (2, 3))
    return bool(even), bool(odd)


def _on_graded_grids(
    activation: Activation, sigma: np.ndarray, orders, length: int, extent: float, nodes: int, tolerance
):
    # where segments end at zero whatever the variance, one grid serves all legs
    if all(kink == 0.0 for kink in activation.kinks):
        grid, squares = _graded(length, extent, nodes), tuple((a, a) for a in orders)
        return _on_interpolated_grid(activation, sigma, orders, grid, squares, tolerance)[0]
    return _on_own_grids(activation, sigma, orders, length, extent, nodes)


def _by_parts(coefficients: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Coefficients of the derivative: <f' he_k> = sqrt(k+1) <f he_(k+1)> / sqrt(K)."""
    up = np.sqrt(np.arange(1, coefficients.shape[0]))[:, None]
    shifted = up * coefficients[1:] / divisor(sigma)
    return np.concatenate([shifted, np.zeros((1, sigma.size))])


@functools.lru_cache(maxsize=4096)
def widest_tails(activation: Activation, widest: float, orders: tuple[int, ...], count: int) -> np.ndarray:
    """The largest Parseval remainder after 0, 8, ... terms for one variance, (129,)."""
    pairs = tuple((a, a) for a in as_functions(activation, orders))
    one = np.asarray([widest])
    longest = tables(activation, one, pairs, LONGEST, widest=widest, count=count, tolerance=0.0)
    return np.max(list(longest.tails.values()), axis=0) ** 2


def length_for(tails: np.ndarray, correlation: float, tolerance: float) -> int:
    """The number of terms, at most 1024, that reach the tolerance, from the remainders `widest_tails`."""
    from finitewidth.gaussian.two_legs.series_loops import GROUP

    length = SHORTEST
    while length < LONGEST and tails[length // GROUP] * correlation**length > tolerance:
        length *= 2
    return length
