r"""Two-leg averages by the Hermite (Mehler) series in the correlation.

$$\langle \sigma^{(a)}_1 \sigma^{(b)}_2 \rangle = \sum_k \alpha^{(a)}_{1k} \alpha^{(b)}_{2k} c^k, \qquad
  \alpha^{(a)}_{ik} = \langle \sigma^{(a)}(\sqrt{K_{ii}} x)\, he_k(x) \rangle$$

with normalized Hermite polynomials $he_k$ and $c$ the correlation. One table of coefficients per leg
serves all pairs. What is left out after $P$ terms is at most $|c|^P \sqrt{t_1 t_2}$, where $t_i$ is what
Parseval's identity leaves over, $\langle \sigma^{(a)2}_i \rangle - \sum_{k<P} \alpha_{ik}^2$.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.activation import Activation
from finitewidth.theory import quadrature
from finitewidth.theory.tower import Tower
from finitewidth.theory.workers import on_all_cores

LONGEST = 1024
_SHORTEST = 32
_CHUNK = 8  # terms per turn of the loop: enough to keep the sums in registers
_SMALL_TILE = 1024  # entries
_HERMITE_REACH = 12.2  # |he_k| exp(-x^2/4) is at most one, so what lies beyond is below 1e-16
_NODES = {256: 321, LONGEST: 641}  # per segment at least, by number of terms: he_k has k zeros to resolve


class Tables(NamedTuple):
    """Hermite coefficients of the legs of one side, by derivative order."""

    coefficients: dict[int, np.ndarray]  # order: (P, M)
    tails: dict[int, np.ndarray]  # order: largest relative Parseval remainder after k terms, (P + 1,)


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


def _on_one_grid(activation: Activation, sigma: np.ndarray, orders, length: int, extent: float, count: int):
    """The same where all legs can share a grid: one matrix product."""
    x, hermite = _shared_grid(length, extent, count)
    tower = Tower(activation, max(orders))
    found = np.empty((len(orders), length, sigma.size))

    def work(part: slice) -> None:
        legs = tower(sigma[part, None] * x[None, :])
        for index, order in enumerate(orders):
            found[index, :, part] = hermite @ legs[order].T

    parts = [slice(start, start + 256) for start in range(0, sigma.size, 256)]
    if len(parts) == 1:  # not worth a pool
        work(parts[0])
    else:
        list(on_all_cores(work, parts))
    return found


@functools.lru_cache(maxsize=8)
def _shared_grid(length: int, extent: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes x (G,) that crowd at zero, and weighted Hermite polynomials (length, G)."""
    x, weights = quadrature.gaussian_grid(np.zeros(1), extent, count)
    return x, np.stack(_weighted_hermite(x, weights, length))


def _weighted_hermite(x: np.ndarray, weights: np.ndarray, length: int) -> list[np.ndarray]:
    rows, now, before = [], np.ones_like(x), np.zeros_like(x)
    for up, down in zip(*_recursion(length), strict=True):
        rows.append(now * weights)
        now, before = up * x * now - down * before, now
    return rows


def tables(
    activation: Activation,
    variances: np.ndarray,
    orders: tuple[int, ...],
    length: int,
    count: int,
    squares: dict[int, np.ndarray] | None = None,
) -> Tables:
    """Hermite coefficients of sigma^(order) for every variance, with `count` nodes or more per segment.

    `squares` are the averages <(sigma^(order))^2> where they are known already.
    """
    nodes = max(count, next(nodes for longest, nodes in _NODES.items() if length <= longest))
    regular = tuple(sorted({min(order, _highest_function(activation)) for order in orders}))
    extent = max(_HERMITE_REACH, quadrature.reach(activation, float(variances.max(initial=0.0))))
    sigma = np.sqrt(variances)
    # where segments end at zero whatever the variance, one grid serves all legs
    compute = _on_one_grid if all(kink == 0.0 for kink in activation.kinks) else _on_own_grids
    stacked = compute(activation, sigma, regular, length + 1, extent, nodes)
    found = dict(zip(regular, stacked, strict=True))
    if squares is None:
        averages = quadrature.one_leg(activation, variances, tuple((a, a) for a in regular), count=count)
        squares = dict(zip(regular, averages.fine, strict=True))
    tails = {a: _tails(found[a][:length], squares[a]) for a in regular}
    for order in orders:
        if order not in found:  # one beyond the jump: in the sense of distributions
            found[order] = _by_parts(found[order - 1], sigma)
    return Tables({a: found[a][:length] for a in found}, tails)


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
    found = tables(activation, np.asarray([widest]), orders, LONGEST, count)
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


def evaluate(first, second, correlation, bound, tolerance: float, orders):
    """Sums of the series for a tile of correlations, as long as the largest of them needs.

    `first` and `second` map a derivative order to coefficients (P, rows) and (P, columns); `bound` (P + 1,)
    is the relative remainder at correlation one. Returns values, one for each order, and the largest
    remainder over entries.
    """
    total = bound.size - 1
    remainder = bound * np.abs(correlation).max(initial=0.0) ** np.arange(total + 1)
    enough = remainder <= tolerance
    needed = int(np.argmax(enough)) if enough.any() else total
    chunks = max(1, -(-needed // _CHUNK))
    left = float(remainder[min(chunks * _CHUNK, total)])
    if correlation.size <= _SMALL_TILE:  # not worth a compiler
        return _sum_small(first, second, correlation, chunks * _CHUNK, orders), left
    return _sum_large(first, second, correlation, chunks, orders), left


def _sum_small(first, second, correlation, length: int, orders) -> list[np.ndarray]:
    powers = correlation[None] ** np.arange(length)[:, None, None]
    return [np.einsum("kr,kc,krc->rc", first[a][:length], second[b][:length], powers) for a, b in orders]


@functools.partial(jax.jit, static_argnames=("orders",))
def _sum_large(first, second, correlation, chunks, orders):
    power = correlation**_CHUNK

    def add_chunk(turn, sums):
        start = (chunks - 1 - turn) * _CHUNK
        return tuple(
            total * power + _horner(first[a], second[b], correlation, start)
            for total, (a, b) in zip(sums, orders, strict=True)
        )

    return jax.lax.fori_loop(0, chunks, add_chunk, tuple(jnp.zeros_like(correlation) for _ in orders))


def _horner(first, second, correlation, start):
    rows = jax.lax.dynamic_slice_in_dim(first, start, _CHUNK)
    columns = jax.lax.dynamic_slice_in_dim(second, start, _CHUNK)
    value = jnp.zeros_like(correlation)
    for k in reversed(range(_CHUNK)):
        value = value * correlation + rows[k][:, None] * columns[k][None, :]
    return value
