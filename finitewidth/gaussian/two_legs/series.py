r"""Two-leg averages by the Hermite (Mehler) series in the correlation.

$$\langle \sigma^{(a)}_1 \sigma^{(b)}_2 \rangle = \sum_k \alpha^{(a)}_{1k} \alpha^{(b)}_{2k} c^k, \qquad
  \alpha^{(a)}_{ik} = \langle \sigma^{(a)}(\sqrt{K_{ii}} x)\, he_k(x) \rangle$$

with normalized Hermite polynomials $he_k$ and $c$ the correlation. One table of coefficients per leg
serves all pairs. What is left out after $P$ terms is at most $|c|^P \sqrt{t_1 t_2}$, where $t_i$ is what
Parseval's identity leaves over, $\langle \sigma^{(a)2}_i \rangle - \sum_{k<P} \alpha_{ik}^2$.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.chebyshev import chebvander

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.tower import Tower
from finitewidth.gaussian.two_legs import quadrature
from finitewidth.network.activation import Activation

LONGEST = 1024
_SHORTEST = 32
_CHUNK = 32  # terms per turn of the loop: most series end in the first, which is one pass over a tile
_SMALL_TILE = 1024  # entries
_INTERPOLATED = 24  # standard deviations from which many are interpolated
_WORTH_A_POOL = 1 << 18  # evaluations
_LONGEST_UNIFORM = 256  # beyond, he_k itself asks for a grid that is no cheaper than the graded one
_ABSENT = 1e-14  # coefficients below this fraction of the largest are rounding; their product is nothing
Orders = tuple[int, int]
Parity = tuple[bool, bool]  # even, odd
_HERMITE_REACH = 12.2  # |he_k| exp(-x^2/4) is at most one, so what lies beyond is below 1e-16
_NODES = {256: 321, LONGEST: 641}  # per segment at least, by number of terms: he_k has k zeros to resolve


_STEPS = (0.4, 0.28, 0.2, 0.14, 0.1, 0.07)  # of uniform grids, in standard deviations


class Tables(NamedTuple):
    """Hermite coefficients of the legs of one side, by derivative order, and averages of single legs."""

    coefficients: dict[int, np.ndarray]  # order: (P, M)
    tails: dict[int, np.ndarray]  # order: largest relative Parseval remainder after k terms, (P + 1,)
    alone: dict[Orders, np.ndarray]  # <sigma^(a) sigma^(b)> by pair of orders, (M,)


@functools.cache
def _recursion(length: int) -> tuple[np.ndarray, np.ndarray]:
    k = np.arange(length)
    return 1 / np.sqrt(k + 1), np.sqrt(k / (k + 1))


def _hermite_sums(weighted: np.ndarray, x: np.ndarray, length: int) -> np.ndarray:
    """sum_x f(x) he_k(x) for functions `weighted` (orders, M, G) on grids x (M, G): (orders, length, M)."""
    sums = np.empty((weighted.shape[0], length, x.shape[0]))
    now, before = np.ones_like(x), np.zeros_like(x)
    for k, (up, down) in enumerate(zip(*_recursion(length), strict=True)):
        sums[:, k] = np.einsum("omg,mg->om", weighted, now)
        now, before = up * x * now - down * before, now
    return sums


def _on_own_grids(activation: Activation, sigma: np.ndarray, orders, length: int, extent: float, count: int):
    """<sigma^(a)(sigma x) he_k(x)>, (orders, length, M), where each leg has its kinks in its own places."""
    tower = Tower(activation, max(orders))
    found = np.empty((len(orders), length, sigma.size))
    for start in range(0, sigma.size, 8):  # few legs at a time stay in cache through the recursion
        part = slice(start, start + 8)
        kinks = quadrature.kinks_in_units(activation, sigma[part])
        x, weights = quadrature.gaussian_grid(kinks, extent, count)
        weighted = tower(sigma[part, None] * x)[list(orders)] * weights
        found[:, :, part] = _hermite_sums(weighted, x, length)
    return found


def _on_shared_grid(activation: Activation, sigma: np.ndarray, orders, grid: "Grid", pairs=()):
    """The same where legs can share a grid, by one matrix product; and <sigma^(a) sigma^(b)> for `pairs`."""
    tower = Tower(activation, max(orders))
    found = np.empty((len(orders), grid.hermite.shape[0], sigma.size))
    alone = {pair: np.empty(sigma.size) for pair in pairs}

    def work(part: slice) -> None:
        legs = tower(sigma[part, None] * grid.x[None, :])
        for index, order in enumerate(orders):
            found[index, :, part] = grid.hermite @ legs[order].T
        for a, b in pairs:
            alone[a, b][part] = np.einsum("mg,mg,g->m", legs[a], legs[b], grid.hermite[0])

    parts = [slice(start, start + 256) for start in range(0, sigma.size, 256)]
    if sigma.size * grid.x.size < _WORTH_A_POOL:
        for part in parts:
            work(part)
    else:
        list(on_all_cores(work, parts))
    return found, alone


def _on_interpolated_grid(
    activation: Activation, sigma: np.ndarray, orders, grid: "Grid", pairs, tolerance: float
):
    """The same for many legs, found for few standard deviations and interpolated by Chebyshev polynomials."""
    if sigma.size <= 4 * _INTERPOLATED:
        return _on_shared_grid(activation, sigma, orders, grid, pairs)
    centre, half = (sigma.max() + sigma.min()) / 2, (sigma.max() - sigma.min()) / 2
    x = np.cos(np.pi * (np.arange(_INTERPOLATED) + 0.5) / _INTERPOLATED)
    found, alone = _on_shared_grid(activation, centre + half * x, orders, grid, pairs)
    values = np.concatenate([found.reshape(-1, x.size), *(alone[pair][None] for pair in pairs)])
    transform = chebvander(x, x.size - 1) * 2 / x.size
    transform[:, 0] /= 2
    coefficients = values @ transform
    size = {a: math.sqrt(alone[a, a].min()) for a in orders}
    scale = np.concatenate(
        [np.repeat([size[a] for a in orders], found.shape[1]), [size[a] * size[b] for a, b in pairs]]
    )
    if (np.abs(coefficients[:, -4:]).max(axis=1) > tolerance * scale).any():  # a wide range, or steep
        return _on_shared_grid(activation, sigma, orders, grid, pairs)
    values = coefficients @ chebvander((sigma - centre) / max(half, 1e-300), x.size - 1).T
    count = len(orders) * found.shape[1]
    return values[:count].reshape(*found.shape[:2], -1), dict(zip(pairs, values[count:], strict=True))


class Grid(NamedTuple):
    """Nodes x (G,) and Hermite polynomials (length, G) times the weights of a unit Gaussian."""

    x: np.ndarray
    hermite: np.ndarray


@functools.lru_cache(maxsize=16)
def _graded(length: int, extent: float, count: int) -> Grid:
    """A grid that crowds at zero."""
    x, weights = quadrature.gaussian_grid(np.zeros(1), extent, count)
    return Grid(x, _weighted_hermite(x, weights, length))


@functools.lru_cache(maxsize=16)
def _uniform(length: int, extent: float, step: float) -> Grid:
    """The trapezoidal rule, which converges exponentially for a smooth function."""
    x = step * np.arange(-math.ceil(extent / step), math.ceil(extent / step) + 1)
    weights = step * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return Grid(x, _weighted_hermite(x, weights, length))


def _weighted_hermite(x: np.ndarray, weights: np.ndarray, length: int) -> np.ndarray:
    rows, now, before = [], np.ones_like(x), np.zeros_like(x)
    for up, down in zip(*_recursion(length), strict=True):
        rows.append(now * weights)
        now, before = up * x * now - down * before, now
    return np.stack(rows)


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
        found, _ = _on_shared_grid(activation, sigma, orders, _uniform(length, extent, step))
        if (np.abs(found - exact) <= tolerance * scale).all():
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
    orders = tuple(sorted({order for pair in pairs for order in pair}))
    regular = tuple(sorted({min(order, _highest_function(activation)) for order in orders}))
    squares = tuple((a, a) for a in regular)
    wanted = (*pairs, *(pair for pair in squares if pair not in pairs))
    extent = max(_HERMITE_REACH, quadrature.reach(activation, widest))
    sigma = np.sqrt(variances)
    step = None
    if activation.is_smooth and length <= _LONGEST_UNIFORM:
        step = _uniform_step(activation, widest, regular, length, tolerance)
    if step is not None:
        grid = _uniform(length + 1, extent, step)
        stacked, alone = _on_interpolated_grid(activation, sigma, regular, grid, wanted, tolerance / 10)
    else:
        nodes = max(count, next(nodes for longest, nodes in _NODES.items() if length <= longest))
        stacked = _on_graded_grids(activation, sigma, regular, length + 1, extent, nodes)
        averages = quadrature.one_leg(activation, variances, wanted, count=count).fine
        alone = dict(zip(wanted, averages, strict=True))
    found = dict(zip(regular, stacked, strict=True))
    tails = {a: _tails(found[a][:length], alone[a, a]) for a in regular}
    for order in orders:
        if order not in found:  # one beyond the jump: in the sense of distributions
            found[order] = _by_parts(found[order - 1], sigma)
    return Tables({a: found[a][:length] for a in found}, tails, alone)


def _on_graded_grids(
    activation: Activation, sigma: np.ndarray, orders, length: int, extent: float, nodes: int
):
    # where segments end at zero whatever the variance, one grid serves all legs
    if all(kink == 0.0 for kink in activation.kinks):
        return _on_shared_grid(activation, sigma, orders, _graded(length, extent, nodes))[0]
    return _on_own_grids(activation, sigma, orders, length, extent, nodes)


def _highest_function(activation: Activation) -> int:
    return int(min(activation.jump_order, 99))


def _by_parts(coefficients: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """<sigma' ... he_k> one order up: <f' he_k> = sqrt(k+1) <f he_(k+1)> / sqrt(K)."""
    up = np.sqrt(np.arange(1, coefficients.shape[0]))[:, None]
    shifted = up * coefficients[1:] / np.where(sigma == 0, 1.0, sigma)
    return np.concatenate([shifted, np.zeros((1, sigma.size))])


def _tails(coefficients: np.ndarray, squares: np.ndarray) -> np.ndarray:
    relative = coefficients**2 / np.where(squares == 0, 1.0, squares)
    left = 1 - np.concatenate([np.zeros((1, squares.size)), np.cumsum(relative, axis=0)])
    left[:, squares == 0] = 0.0
    # more than all of it is as wrong as too little: the size counts, not the sign
    return np.maximum(np.abs(left).max(axis=1, initial=0.0), 1e-16)


@functools.lru_cache(maxsize=4096)
def _widest_tails(activation: Activation, widest: float, orders: tuple[int, ...], count: int) -> np.ndarray:
    """The largest Parseval remainder after k terms for one variance, (1025,)."""
    pairs = tuple((a, a) for a in {min(order, _highest_function(activation)) for order in orders})
    one = np.asarray([widest])
    found = tables(activation, one, pairs, LONGEST, widest=widest, count=count, tolerance=0.0)
    return np.max(list(found.tails.values()), axis=0)


def length_for(
    activation: Activation,
    widest: float,
    orders: tuple[int, ...],
    *,
    correlation: float,
    tolerance: float,
    count: int,
) -> int:
    """How many terms reach the tolerance up to a correlation for the largest variance, 1024 at most."""
    tails = _widest_tails(activation, widest, orders, count)
    length = _SHORTEST
    while length < LONGEST and tails[length] * correlation**length > tolerance:
        length *= 2
    return length


def parities(rows: Tables, columns: Tables, orders: tuple[Orders, ...]) -> tuple[Parity, ...]:
    """Whether there are even and odd terms beyond the first two: often one of them is absent."""
    present = {
        side: {a: _present(table, a) for a in table.coefficients}
        for side, table in enumerate((rows, columns))
    }
    return tuple(
        (present[0][a][0] and present[1][b][0], present[0][a][1] and present[1][b][1]) for a, b in orders
    )


def _present(table: Tables, order: int) -> Parity:
    size = np.abs(table.coefficients[order]).max(axis=1, initial=0.0)
    even, odd = (size[start::2].max(initial=0.0) > _ABSENT * size.max(initial=0.0) for start in (2, 3))
    return bool(even), bool(odd)


def correlations(cross, rows, columns, *, xp=np):
    """Covariances over the standard deviations of rows and columns; 0 where one of them is 0."""
    inverse = [xp.where(sigma > 0, 1 / xp.where(sigma > 0, sigma, 1.0), 0.0) for sigma in (rows, columns)]
    return xp.clip(cross * inverse[0][:, None] * inverse[1][None, :], -1.0, 1.0)


class Side(NamedTuple):
    """The legs on one side of a tile: standard deviations (M,) and, by order, coefficients (P, M)."""

    sigma: np.ndarray
    coefficients: dict[int, np.ndarray]


class Diagonal(NamedTuple):
    """What stands on the diagonal of a tile where `there`: averages of single legs, one for each order."""

    there: bool
    values: tuple[np.ndarray, ...]


class Sums(NamedTuple):
    """Values, one for each pair of orders, the largest correlation, and the largest relative remainder."""

    values: list[np.ndarray]
    largest: float
    remainder: float


def evaluate(
    rows: Side, columns: Side, diagonal: Diagonal, cross: np.ndarray, bound, tolerance: float, orders, present
) -> Sums:
    """Sums of the series for a tile of covariances, as long as the largest of their correlations needs.

    `bound` (P + 1,) is the relative remainder after k terms at correlation one; `present` says of each pair
    of orders which parities there are.
    """
    small = cross.size <= _SMALL_TILE  # not worth a compiler
    sums = _sum_small if small else _sum_large
    values, largest, remainder = sums(rows, columns, diagonal, cross, bound, tolerance, orders, present)
    return Sums([np.asarray(value) for value in values], float(largest), float(remainder))


def _chunks(bound, largest, tolerance, xp):
    """How many chunks of terms the largest correlation needs, and the remainder."""
    total = bound.shape[0] - 1
    left = bound * largest ** np.arange(total + 1.0)
    enough = left <= tolerance
    needed = xp.where(enough.any(), xp.argmax(enough), total)
    chunks = xp.maximum(1, -(-needed // _CHUNK))
    return chunks, left[xp.minimum(chunks * _CHUNK, total)]


def _sum_small(rows, columns, diagonal, cross, bound, tolerance, orders, present):
    c = correlations(cross, rows.sigma, columns.sigma)
    if diagonal.there:
        np.fill_diagonal(c, 0.0)
    largest = np.abs(c).max(initial=0.0)
    chunks, remainder = _chunks(bound, largest, tolerance, np)
    length = int(chunks) * _CHUNK
    powers = c[None] ** np.arange(length)[:, None, None]
    values = [
        np.einsum("kr,kc,krc->rc", rows.coefficients[a][:length], columns.coefficients[b][:length], powers)
        for a, b in orders
    ]
    if diagonal.there:
        for value, alone in zip(values, diagonal.values, strict=True):
            np.fill_diagonal(value, alone)
    return values, largest, remainder


@functools.partial(jax.jit, static_argnames=("orders", "present"))
def _sum_large(rows, columns, diagonal, cross, bound, tolerance, orders, present):
    """Even and odd terms apart, each a polynomial in c^2, so that absent parities cost nothing."""
    c = correlations(cross, rows.sigma, columns.sigma, xp=jnp)
    excluded = diagonal.there & jnp.eye(*cross.shape, dtype=bool)
    c = jnp.where(excluded, 0.0, c)
    largest = jnp.abs(c).max()
    chunks, remainder = _chunks(bound, largest, tolerance, jnp)
    first, second = rows.coefficients, columns.coefficients
    square = c * c
    power = square ** (_CHUNK // 2)
    places = [(i, parity) for i in range(len(orders)) for parity in (0, 1) if present[i][parity]]

    def add_chunk(turn, sums):
        start = (chunks - 1 - turn) * _CHUNK
        return tuple(
            total * power + _horner(first[orders[i][0]], second[orders[i][1]], square, start + parity)
            for total, (i, parity) in zip(sums, places, strict=True)
        )

    sums = jax.lax.fori_loop(0, chunks, add_chunk, tuple(jnp.zeros_like(c) for _ in places))
    full = dict(zip(places, sums, strict=True))
    totals = []
    for i, (a, b) in enumerate(orders):
        even, odd = (
            full.get((i, k), first[a][k][:, None] * second[b][k][None, :])  # the first term alone
            for k in (0, 1)
        )
        totals.append(jnp.where(excluded, diagonal.values[i][:, None], even + c * odd))
    return totals, largest, remainder


def _horner(first, second, square, start):
    rows = jax.lax.dynamic_slice_in_dim(first, start, _CHUNK - 1)
    columns = jax.lax.dynamic_slice_in_dim(second, start, _CHUNK - 1)
    value = jnp.zeros_like(square)
    for k in reversed(range(0, _CHUNK, 2)):
        value = value * square + rows[k][:, None] * columns[k][None, :]
    return value
