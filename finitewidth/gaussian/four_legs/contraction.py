"""The matrix products behind four-leg averages conditioned on a pair of legs."""

import itertools
from dataclasses import dataclass

import numpy as np

from finitewidth.gaussian.four_legs.coefficients import term_exponents, term_factors
from finitewidth.gaussian.four_legs.families import Family, highest_order

_CACHE = 1 << 18  # numbers in the left factor of one product, small enough for a core's cache


@dataclass(frozen=True)
class LegValues:
    """Everything about one task on its grid of x."""

    weights: np.ndarray  # (x)
    first: np.ndarray  # derivatives of leg p, (order, x)
    second: np.ndarray  # derivatives of leg q, (order, x)
    row_coefficients: np.ndarray  # (i, row, x)
    column_coefficients: np.ndarray  # (i, column, x)
    row_variances: np.ndarray
    column_variances: np.ndarray
    correlations: np.ndarray  # (row, column)
    terms: int


class Contraction:
    """Which products of matrices give all arrangements of orders over (p, q, r, s).

    Term k of orders (r, s) is a product of coefficients c_(r+k) and c_(s+k): arrangements with the
    same orders on (p, q) and the same difference r - s share their matrix products.
    """

    def __init__(self, dealt: tuple[Family, ...]):
        self.top = highest_order(dealt)
        self.groups = []
        for difference, members in _grouped(dealt):
            fronts = sorted({(p, q) for p, q, _, _ in members})
            ends = sorted({(r, s) for _, _, r, s in members})
            self.groups.append((difference, fronts, {end: _with_end(members, end, fronts) for end in ends}))

    def __call__(self, legs: LegValues) -> dict[Family, np.ndarray]:
        terms = legs.terms
        powers = legs.correlations ** np.arange(terms)[:, None, None]
        sums = {}
        for difference, fronts, ends in self.groups:
            low = min(r for r, _ in ends)
            count = max(r for r, _ in ends) - low + terms
            products = self._products(legs, fronts, slice(low, low + count), difference)
            for (r, s), which in ends.items():
                weights = powers * self._weights(legs, r, s)
                values = np.einsum("krs,kfrs->frs", weights, products[r - low : r - low + terms, which])
                sums.update({(*fronts[f], r, s): value for f, value in zip(which, values, strict=True)})
        return sums

    def _weights(self, legs: LegValues, r: int, s: int) -> np.ndarray:
        of_r = legs.row_variances ** term_exponents(r, self.top, legs.terms)[1][:, None]
        of_s = legs.column_variances ** term_exponents(s, self.top, legs.terms)[1][:, None]
        return (term_factors((r, s), self.top, legs.terms)[:, None] * of_r)[:, :, None] * of_s[:, None, :]

    def _products(self, legs: LegValues, fronts, rows: slice, difference: int) -> np.ndarray:
        """sum_x w s_p s_q c_i(row) c_(i - difference)(column) for i in rows, (i, front, row, column)."""
        left = legs.row_coefficients[rows]
        right = legs.column_coefficients[rows.start - difference : rows.stop - difference]
        front = np.stack([legs.weights * legs.first[p] * legs.second[q] for p, q in fronts])
        if right.shape[1] < left.shape[1]:  # the factors of p and q go where they cost less
            return _weighted_products(right, left, front).swapaxes(2, 3)
        return _weighted_products(left, right, front)


def _weighted_products(left: np.ndarray, right: np.ndarray, front: np.ndarray) -> np.ndarray:
    """sum_x front_f(x) left_i(r, x) right_i(s, x), (i, f, r, s), in pieces of x that fit the cache."""
    terms, size, points = left.shape
    fronts = len(front)
    products = np.zeros((terms, fronts * size, right.shape[1]))
    chunk = max(64, _CACHE // (terms * fronts * size))
    for start in range(0, points, chunk):
        x = slice(start, start + chunk)
        weighted = left[:, None, :, x] * front[None, :, None, x]
        products += weighted.reshape(terms, fronts * size, -1) @ right[:, :, x].transpose(0, 2, 1)
    return products.reshape(terms, fronts, size, -1)


def _grouped(all_orders: tuple[Family, ...]):
    ordered = sorted(all_orders, key=lambda o: o[2] - o[3])
    return [(d, list(members)) for d, members in itertools.groupby(ordered, key=lambda o: o[2] - o[3])]


def _with_end(members, end, fronts) -> list[int]:
    return [fronts.index((p, q)) for p, q, r, s in members if (r, s) == end]
