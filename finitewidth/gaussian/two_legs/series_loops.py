"""Compiled sums of the Hermite series for blocks of pairs (D, P, A, B).

Legs p of the rows meet legs places[d, p] of the columns. Deviations are (P, n) and (Q, m), coefficients
(terms, P, n) and (terms, Q, m); the first samples of the block are those at `starts`. Unsigned places, which
cannot count from the end, let the compiler use vector units.
"""

import numpy as np

from finitewidth.core.compiled import compiled, fma

GROUP = 8  # terms that are added in one pass: four even or four odd ones


@compiled
def correlations(cross, rows, columns, starts, places, c, largest):
    """Correlations c from covariances and inverse deviations; the largest |c| for each place (D, P)."""
    D, P, A, B = cross.shape
    most, left = np.empty(B), np.uintp(starts[1])
    for d in range(D):
        for p in range(P):
            q = places[d, p]
            most[:] = 0.0
            for i in range(A):
                of_row = rows[p, starts[0] + i]
                for j in range(np.uintp(B)):
                    value = cross[d, p, i, j] * of_row * columns[q, left + j]
                    value = 1.0 if value > 1.0 else value
                    value = -1.0 if value < -1.0 else value
                    c[d, p, i, j] = value
                    size = abs(value)
                    most[j] = size if size > most[j] else most[j]
            largest[d, p] = most.max()


@compiled
def lengths(largest, bound, tolerance, rounding, terms):
    """The number of terms for each place that leaves no more than the tolerance; the largest remainder.

    `bound` (T + 1,) is the remainder after k terms at correlation one; where it has reached `rounding`, more
    terms add nothing.
    """
    longest, worst = bound.size - 1, 0.0
    for d in range(largest.shape[0]):
        for p in range(largest.shape[1]):
            power = largest[d, p] ** GROUP
            count, left = GROUP, bound[GROUP] * power
            scale = power
            while left > tolerance and bound[count] > rounding and count < longest:
                count += GROUP
                scale *= power
                left = bound[count] * scale
            terms[d, p] = count
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
def summed(c, first, second, starts, places, terms, present, factor, out):
    """sum_k a_k b_k c^k into `out`, or onto it as a factor.

    Where even or odd terms beyond the first two are not `present`, only the first of them is taken.
    """
    D, P, A, B = c.shape
    square, parts, left = np.empty(B), np.empty((2, B)), np.uintp(starts[1])
    for d in range(D):
        for p in range(P):
            q, count = places[d, p], terms[d, p]
            for i in range(A):
                row, result, leg = c[d, p, i], out[d, p, i], starts[0] + i
                for j in range(B):
                    square[j] = row[j] * row[j]
                for parity in range(2):
                    part = parts[parity]
                    if present[parity]:
                        _polynomial(first, second, p, leg, q, left, parity, count, square, part)
                    else:
                        for j in range(np.uintp(B)):
                            part[j] = first[parity, p, leg] * second[parity, q, left + j]
                for j in range(B):
                    value = fma(row[j], parts[1, j], parts[0, j])
                    result[j] = result[j] * value if factor else value
