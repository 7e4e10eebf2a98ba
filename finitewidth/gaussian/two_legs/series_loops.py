"""Compiled sums of the Hermite series for blocks of pairs (D, P, A, B).

Legs p of the rows meet legs places[d, p] of the columns. Deviations are (P, n) and (Q, m), coefficients
(terms, P, n) and (terms, Q, m); the first samples of the block are those at `starts`. Unsigned places, which
cannot count from the end, let the compiler use vector units.
"""

import math

import numpy as np

from finitewidth.core.compiled import compiled, fma

GROUP = 8  # terms that are added in one pass: four even or four odd ones
_LEAST = 1e-16  # of a remainder: less cannot be told from rounding


@compiled
def _largest(values):
    """The largest of numbers that are not negative, by comparing halves; they are overwritten."""
    size = values.size
    while size > 1:
        half = (size + 1) // 2
        for j in range(np.uintp(size - half)):
            other = values[np.uintp(half) + j]
            values[j] = other if other > values[j] else values[j]
        size = half
    return values[0] if size else 0.0


@compiled
def correlations(cross, rows, columns, starts, places, c, largest):
    """Correlations c from covariances and inverse deviations; the largest |c| of each row (D, P, A)."""
    D, P, A, B = cross.shape
    sizes, left = np.empty(B), np.uintp(starts[1])
    for d in range(D):
        for p in range(P):
            q = places[d, p]
            for i in range(A):
                of_row = rows[p, starts[0] + i]
                for j in range(np.uintp(B)):
                    value = cross[d, p, i, j] * of_row * columns[q, left + j]
                    value = 1.0 if value > 1.0 else value
                    value = -1.0 if value < -1.0 else value
                    c[d, p, i, j] = value
                    sizes[j] = abs(value)
                largest[d, p, i] = _largest(sizes)


@compiled
def remainders(coefficients, squares):
    """Parseval remainders of legs (M,) with coefficients (T, M) and mean squares (M,).

    First their roots in units of the square, after every GROUP terms, (T / GROUP + 1, M). Then the largest
    size of each coefficient, (T,). More than all of it is as wrong as too little: the size of a remainder
    counts, not its sign.
    """
    T, M = coefficients.shape
    roots, sizes = np.empty((T // GROUP + 1, M)), np.zeros(T)
    left, most, inverse = np.empty(M), np.empty(M), np.empty(M)
    for j in range(M):
        left[j] = 0.0 if squares[j] == 0.0 else 1.0
        inverse[j] = 0.0 if squares[j] == 0.0 else 1 / squares[j]
    for k in range(T + 1):
        if k % GROUP == 0:
            for j in range(M):
                size = abs(left[j])
                roots[k // GROUP, j] = math.sqrt(size if size > _LEAST else _LEAST)
        if k < T:
            for j in range(M):
                value = coefficients[k, j]
                left[j] -= value * value * inverse[j]
                most[j] = abs(value)
            sizes[k] = _largest(most)
    return roots, sizes


@compiled
def largest_correlations(cross, rows, columns, starts, places, largest):
    """The largest |c| of each row (D, P, A), from covariances and inverse deviations; the largest of all."""
    D, P, A, B = cross.shape
    sizes, left, most = np.empty(B), np.uintp(starts[1]), 0.0
    for d in range(D):
        for p in range(P):
            q = places[d, p]
            for i in range(A):
                row = cross[d, p, i]
                for j in range(np.uintp(B)):
                    sizes[j] = abs(row[j] * columns[q, left + j])
                size = _largest(sizes) * rows[p, starts[0] + i]
                largest[d, p, i] = 1.0 if size > 1.0 else size
                most = max(most, largest[d, p, i])
    return most


@compiled
def _length(largest, rows, columns, p, i, tolerance, rounding):
    """The number of terms for one row that leaves no more than the tolerance, and the remainder.

    Remainders at correlation one after every GROUP terms are at most the products of `rows` (orders, n, P, N)
    and `columns` (orders, n). Where they have reached `rounding`, more terms add nothing.
    """
    power, longest = largest**GROUP, columns.shape[1] - 1
    groups, scale, left = 0, 1.0, np.inf
    while groups < longest:
        groups += 1
        scale *= power
        bound = 0.0
        for o in range(rows.shape[0]):
            bound = max(bound, rows[o, groups, p, i] * columns[o, groups])
        left = bound * scale
        if left <= tolerance or bound <= rounding:
            break
    return groups * GROUP, left


@compiled
def lengths(largest, rows, columns, start, tolerance, rounding, terms):
    """The number of terms for each row (D, P, A), see `_length`; the worst remainder."""
    worst = 0.0
    for d in range(largest.shape[0]):
        for p in range(largest.shape[1]):
            for i in range(largest.shape[2]):
                size = largest[d, p, i]
                terms[d, p, i], left = _length(size, rows, columns, p, start + i, tolerance, rounding)
                worst = max(worst, left)
    return worst


@compiled
def _polynomial(first, second, p, i, q, left, start, count, square, value):
    """sum_k a_k b_k s^k over every second term from `start`, for one row of pairs."""
    value[:] = 0.0
    k = start + count - GROUP
    while k >= start:
        a, b, c, d = first[k, p, i], first[k + 2, p, i], first[k + 4, p, i], first[k + 6, p, i]
        x, y, z, w = second[k, q], second[k + 2, q], second[k + 4, q], second[k + 6, q]
        for j in range(np.uintp(value.size)):
            s = square[j]
            high = fma(fma(value[j], s, d * w[left + j]), s, c * z[left + j])
            value[j] = fma(fma(high, s, b * y[left + j]), s, a * x[left + j])
        k -= GROUP


@compiled
def _row(c, square, first, second, p, i, q, left, count, present, parts):
    """sum_k a_k b_k c^k for one row of pairs into parts[0]; parts[1] is overwritten.

    Where even or odd terms beyond the first two are not `present`, only the first of them is taken.
    """
    for parity in range(2):
        part = parts[parity]
        if present[parity]:
            _polynomial(first, second, p, i, q, left, parity, count, square, part)
        else:
            for j in range(np.uintp(part.size)):
                part[j] = first[parity, p, i] * second[parity, q, left + j]
    even, odd = parts[0], parts[1]
    for j in range(np.uintp(c.size)):
        even[j] = fma(c[j], odd[j], even[j])


@compiled
def summed(c, first, second, starts, places, terms, present, out):
    """sum_k a_k b_k c^k into `out`."""
    D, P, A, B = c.shape
    square, parts, left = np.empty(B), np.empty((2, B)), np.uintp(starts[1])
    for d in range(D):
        for p in range(P):
            for i in range(A):
                row, leg = c[d, p, i], starts[0] + i
                for j in range(B):
                    square[j] = row[j] * row[j]
                _row(row, square, first, second, p, leg, places[d, p], left, terms[d, p, i], present, parts)
                out[d, p, i] = parts[0]


@compiled
def advanced(K, Theta, legs, largest, bounds, enough, starts, places, averages):
    """<sigma sigma>_K and Theta <sigma' sigma'>_K in place, row by row; the worst remainder.

    `legs` are the inverse deviations of rows and columns. Each of the two averages has coefficients of rows
    and of columns and which terms are present. `Theta` may be empty. Correlations of one row stay in cache.
    """
    D, P, A, B = K.shape
    (rows, columns), (start, left), worst = legs, (starts[0], np.uintp(starts[1])), 0.0
    c, square, parts = np.empty(B), np.empty(B), np.empty((2, B))
    (first, second, present), (first_slope, second_slope, present_slope) = averages
    for d in range(D):
        for p in range(P):
            q = places[d, p]
            for i in range(A):
                row, leg = K[d, p, i], start + i
                size = largest[d, p, i]
                count, left_out = _length(size, bounds[0], bounds[1], p, leg, enough[0], enough[1])
                worst = max(worst, left_out)
                of_row = rows[p, leg]
                for j in range(np.uintp(B)):
                    value = row[j] * of_row * columns[q, left + j]
                    value = 1.0 if value > 1.0 else value
                    value = -1.0 if value < -1.0 else value
                    c[j] = value
                    square[j] = value * value
                _row(c, square, first, second, p, leg, q, left, count, present, parts)
                row[:] = parts[0]
                if Theta.size:
                    _row(c, square, first_slope, second_slope, p, leg, q, left, count, present_slope, parts)
                    result, factor = Theta[d, p, i], parts[0]
                    for j in range(np.uintp(B)):
                        result[j] *= factor[j]
    return worst
