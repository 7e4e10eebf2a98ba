r"""Two-leg averages by the Hermite (Mehler) series in the correlation.

$$\langle \sigma^{(a)}_1 \sigma^{(b)}_2 \rangle = \sum_k \alpha^{(a)}_{1k} \alpha^{(b)}_{2k} c^k, \qquad
  \alpha^{(a)}_{ik} = \langle \sigma^{(a)}(\sqrt{K_{ii}} x)\, he_k(x) \rangle$$

with normalized Hermite polynomials $he_k$ and $c$ the correlation. This file sums the series for a block
of pairs; the coefficients of its legs come from `hermite_tables`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.gaussian.two_legs.hermite_tables import Parity, Tables
from finitewidth.gaussian.two_legs.orders import Orders

_CHUNK = 32  # terms per turn of the loop: most series end in the first, which is one pass over a tile
_SMALL_BLOCK = 1024  # entries


def parities(rows: Tables, columns: Tables, orders: tuple[Orders, ...]) -> tuple[Parity, ...]:
    """Whether there are even and odd terms beyond the first two: often one of them is absent."""
    first, second = rows.present, columns.present
    return tuple((first[a][0] and second[b][0], first[a][1] and second[b][1]) for a, b in orders)


def correlations(cross, rows, columns, *, xp=np):
    """Covariances over the standard deviations of rows and columns; 0 where one of them is 0."""
    inverse = [xp.where(sigma > 0, 1 / xp.where(sigma > 0, sigma, 1.0), 0.0) for sigma in (rows, columns)]
    return xp.clip(cross * inverse[0] * inverse[1], -1.0, 1.0)


def largest_correlation(cross: np.ndarray, rows, columns, same: np.ndarray | None) -> float:
    """The largest |correlation|, except of pairs of a leg with itself; `rows`, `columns` are deviations."""
    c = correlations(cross, rows, columns)
    if same is not None:
        c = np.where(same, 0.0, c)
    return float(max(c.max(initial=0.0), -c.min(initial=0.0)))


class Side(NamedTuple):
    """The legs on one side of a block of pairs, as arrays that broadcast against its covariances."""

    sigma: np.ndarray
    coefficients: dict[int, np.ndarray]  # by order; terms of the series along the first axis


class Same(NamedTuple):
    """Pairs of a leg with itself, marked, and their averages, one array for each pair of orders."""

    marked: np.ndarray | None
    values: tuple[np.ndarray, ...]


class Sums(NamedTuple):
    """Values, one for each pair of orders, the largest correlation, and the largest relative remainder."""

    values: list[np.ndarray]
    largest: float
    remainder: float


def evaluate(
    rows: Side, columns: Side, same: Same, cross: np.ndarray, bound, tolerance: float, orders, present
) -> Sums:
    """Sums of the series for a block of covariances, as long as the largest of their correlations needs.

    `bound` (P + 1,) is the relative remainder after k terms at correlation one; `present` lists the parities
    of the terms of each pair of orders.
    """
    small = cross.size <= _SMALL_BLOCK  # compiling would take longer than it saves
    sums = _sum_small if small else _sum_large
    values, largest, remainder = sums(rows, columns, same, cross, bound, tolerance, orders, present)
    return Sums([np.asarray(value) for value in values], float(largest), float(remainder))


def _chunks(bound, largest, tolerance, xp):
    """The number of chunks of terms that the largest correlation needs, and the remainder after them."""
    total = bound.shape[0] - 1
    left = bound * largest ** np.arange(total + 1.0)
    enough = left <= tolerance
    needed = xp.where(enough.any(), xp.argmax(enough), total)
    chunks = xp.maximum(1, -(-needed // _CHUNK))
    return chunks, left[xp.minimum(chunks * _CHUNK, total)]


def _sum_small(rows, columns, same, cross, bound, tolerance, orders, present):
    c = correlations(cross, rows.sigma, columns.sigma)
    if same.marked is not None:
        c = np.where(same.marked, 0.0, c)
    largest = np.abs(c).max(initial=0.0)
    chunks, remainder = _chunks(bound, largest, tolerance, np)
    length = int(chunks) * _CHUNK
    powers = c[None] ** np.arange(length).reshape(-1, *[1] * c.ndim)
    values = [
        np.sum(rows.coefficients[a][:length] * columns.coefficients[b][:length] * powers, axis=0)
        for a, b in orders
    ]
    if same.marked is not None:
        values = [np.where(same.marked, alone, v) for v, alone in zip(values, same.values, strict=True)]
    return values, largest, remainder


@functools.partial(jax.jit, static_argnames=("orders", "present"))
def _sum_large(rows, columns, same, cross, bound, tolerance, orders, present):
    """Even and odd terms apart, each a polynomial in c^2, so that absent parities cost nothing."""
    c = correlations(cross, rows.sigma, columns.sigma, xp=jnp)
    if same.marked is not None:
        c = jnp.where(same.marked, 0.0, c)
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
        even, odd = (full.get((i, k), first[a][k] * second[b][k]) for k in (0, 1))  # the first term alone
        total = even + c * odd
        totals.append(total if same.marked is None else jnp.where(same.marked, same.values[i], total))
    return totals, largest, remainder


def _horner(first, second, square, start):
    rows = jax.lax.dynamic_slice_in_dim(first, start, _CHUNK - 1)
    columns = jax.lax.dynamic_slice_in_dim(second, start, _CHUNK - 1)
    value = jnp.zeros_like(square)
    for k in reversed(range(0, _CHUNK, 2)):
        value = value * square + rows[k] * columns[k]
    return value
