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

from finitewidth.activation import Activation
from finitewidth.theory import quadrature

LONGEST = 1024
_SHORTEST = 32
_CHUNK = 8  # terms per turn of the loop: enough to keep the sums in registers
_HERMITE_REACH = 12.2  # |he_k| exp(-x^2/4) is at most one, so what lies beyond is below 1e-16
_NODES = 321  # per segment at least; resolves he_k up to k = 1024


class Tables(NamedTuple):
    """Hermite coefficients of the legs of one side, by derivative order."""

    coefficients: dict[int, np.ndarray]  # order: (P, M)
    tails: dict[int, np.ndarray]  # order: largest relative Parseval remainder after k terms, (P + 1,)


@functools.cache
def _recursion(length: int) -> tuple[np.ndarray, np.ndarray]:
    k = np.arange(length)
    return 1 / np.sqrt(k + 1), np.sqrt(k / (k + 1))


@functools.partial(jax.jit, static_argnames=("activation", "orders", "length", "count"))
def _coefficients(activation, sigma, orders, length, extent, count):
    """<sigma^(a)(sigma x) he_k(x)>, (orders, length, M), by a grid of each leg's own."""
    x, weights = quadrature.gaussian_grid(activation, sigma, extent, count)
    legs = activation.derivatives(sigma[:, None] * x, max(orders))
    weighted = jnp.stack([legs[a] * weights for a in orders])  # (orders, M, G)

    def next_polynomial(pair, factors):
        now, before = pair
        up, down = factors
        return (up * x * now - down * before, now), (weighted * now).sum(axis=-1)

    factors = tuple(jnp.asarray(f) for f in _recursion(length))
    _, sums = jax.lax.scan(next_polynomial, (jnp.ones_like(x), jnp.zeros_like(x)), factors)
    return jnp.moveaxis(sums, 0, 1)  # (orders, length, M)


@functools.partial(jax.jit, static_argnames=("activation", "orders"))
def _coefficients_on_one_grid(activation, sigma, hermite, x, orders):
    """The same where all legs can share a grid: one matrix product."""
    legs = activation.derivatives(sigma[:, None] * x[None, :], max(orders))
    return jnp.stack([jnp.matmul(hermite, legs[a].T) for a in orders])


@functools.lru_cache(maxsize=8)
def _shared_grid(length: int, extent: float, count: int):
    """Nodes x (G,) that crowd at zero, and weighted Hermite polynomials (length, G)."""
    edge = jnp.asarray(extent)
    x, weights = (np.asarray(part) for part in quadrature.graded_grid(jnp.zeros(1), -edge, edge, count))
    weights = weights * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    hermite = np.empty((length, x.size))
    now, before = np.ones_like(x), np.zeros_like(x)
    for k, (up, down) in enumerate(zip(*_recursion(length), strict=True)):
        hermite[k] = now * weights
        now, before = up * x * now - down * before, now
    return jnp.asarray(x), jnp.asarray(hermite)


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
    nodes = max(count, _NODES)
    regular = tuple(sorted({min(order, _highest_function(activation)) for order in orders}))
    extent = max(_HERMITE_REACH, quadrature.reach(activation, float(variances.max(initial=0.0))))
    sigma = np.sqrt(variances)
    padded = jnp.asarray(np.pad(sigma, (0, quadrature.padding(sigma.size)), mode="edge"))
    if all(kink == 0.0 for kink in activation.kinks):
        # zero is where segments end at every variance, so one grid serves all legs
        x, hermite = _shared_grid(length + 1, extent, nodes)
        stacked = _coefficients_on_one_grid(activation, padded, hermite, x, regular)
    else:
        stacked = _coefficients(activation, padded, regular, length + 1, extent, nodes)
    found = dict(zip(regular, np.asarray(stacked)[:, :, : sigma.size], strict=True))
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
    return np.maximum(left.max(axis=1, initial=0.0), 1e-16)


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


@functools.partial(jax.jit, static_argnames=("orders",))
def evaluate(first, second, correlation, bound, tolerance, orders):
    """Sums of the series for a tile of correlations, as long as the largest of them needs.

    `first` and `second` map a derivative order to coefficients (P, rows) and (P, columns); `bound` (P + 1,)
    is the relative remainder at correlation one. Returns values (orders, rows, columns) and the largest
    remainder over entries.
    """
    largest = jnp.abs(correlation).max()
    total = bound.size - 1
    remainder = bound * largest ** jnp.arange(total + 1, dtype=float)
    needed = jnp.where((remainder <= tolerance).any(), jnp.argmax(remainder <= tolerance), total)
    chunks = (needed + _CHUNK - 1) // _CHUNK
    power = correlation**_CHUNK

    def add_chunk(turn, sums):
        start = (chunks - 1 - turn) * _CHUNK
        return tuple(
            total * power + _horner(first[a], second[b], correlation, start)
            for total, (a, b) in zip(sums, orders, strict=True)
        )

    sums = jax.lax.fori_loop(0, chunks, add_chunk, tuple(jnp.zeros_like(correlation) for _ in orders))
    return sums, remainder[jnp.minimum(chunks * _CHUNK, total)]


def _horner(first, second, correlation, start):
    rows = jax.lax.dynamic_slice_in_dim(first, start, _CHUNK)
    columns = jax.lax.dynamic_slice_in_dim(second, start, _CHUNK)
    value = jnp.zeros_like(correlation)
    for k in reversed(range(_CHUNK)):
        value = value * correlation + rows[k][:, None] * columns[k][None, :]
    return value
