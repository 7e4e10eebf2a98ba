"""Compiled passes over blocks of numbers, where NumPy would need several."""

import numpy as np

from finitewidth.core.compiled import compiled, fma


@compiled
def affine(K, Theta, a, b, offset, scale, shift):
    """Theta becomes a Theta + b K + offset, and K becomes scale K + shift, (M,) each."""
    for j in range(K.size):
        value = K[j]
        Theta[j] = fma(a, Theta[j], fma(b, value, offset))
        K[j] = fma(scale, value, shift)


@compiled
def scaled_sum(total, other, factor):
    """total + factor other, in place, (M,) each."""
    for j in range(total.size):
        total[j] = fma(factor, other[j], total[j])


@compiled
def mean_products(first, second, top, left, places, result):
    """Mean products over channels, (D, P, A, B), at positions p and places[d, p].

    Samples from `top` of first (P, N, C) meet those from `left` of second (Q, C, N).
    """
    D, P, A, B = result.shape
    channels = first.shape[2]
    share, size, start = 1 / channels, np.uintp(B), np.uintp(left)
    for d in range(D):
        for p in range(P):
            q = places[d, p]
            for i in range(A):
                x = first[p, top + i, 0] * share
                for j in range(size):
                    result[d, p, i, j] = x * second[q, 0, start + j]
                for k in range(1, channels):
                    x = first[p, top + i, k] * share
                    for j in range(size):
                        result[d, p, i, j] = fma(x, second[q, k, start + j], result[d, p, i, j])


@compiled
def add_rows(values, total):
    """total (M,) plus the sum of the rows of (R, M), in place."""
    for r in range(values.shape[0]):
        for j in range(total.size):
            total[j] += values[r, j]


@compiled
def add_product(starts, columns, weights, rows, values, total):
    """Rows `rows` of total (R, M) plus a sparse matrix in compressed rows times values (P, M), in place."""
    M = np.uintp(values.shape[1])
    for r in range(rows.size):
        row = rows[r]
        for k in range(starts[r], starts[r + 1]):
            weight, column = weights[k], columns[k]
            for j in range(M):
                total[row, j] = fma(weight, values[column, j], total[row, j])


@compiled
def _add(values, start, stride, neighbours, count, width, total):
    """total[j] = sum over neighbours r of values[start + r stride + j]; up to three in registers.

    Unsigned places, which cannot count from the end, let the compiler use vector units.
    """
    size = np.uintp(width)
    x = np.uintp(start + neighbours[0] * stride)
    y = np.uintp(start + neighbours[min(1, neighbours.size - 1)] * stride)
    z = np.uintp(start + neighbours[min(2, neighbours.size - 1)] * stride)
    if count >= 3:
        for j in range(size):
            total[j] = values[x + j] + values[y + j] + values[z + j]
    elif count == 2:
        for j in range(size):
            total[j] = values[x + j] + values[y + j]
    else:
        for j in range(size):
            total[j] = values[x + j] if count else 0.0
    for k in range(3, count):
        x = np.uintp(start + neighbours[k] * stride)
        for j in range(size):
            total[j] += values[x + j]


@compiled
def convolve(K, Theta, M, first, second, weights, K_out, Theta_out):
    """Sums over neighbours along two axes, one after the other, then as `affine` with these weights.

    Arrays are (D, H, W, M), flat: D images for M pairs of samples. `first` and `second` list runs of places
    along the two axes whose neighbours move with them: first place (D, R), length (D, R), number of
    neighbours (D, R) and neighbours of the first place (D, R, most).
    """
    a, b, offset, scale, shift = weights
    D, W = first[0].shape[0], second[1][0].sum()
    H = first[1][0].sum()
    moved, other, total, slope = np.empty(W * M), np.empty(W * M), np.empty(W * M), np.empty(W * M)
    for d in range(D):
        start = d * H * W * M
        for run in range(first[0].shape[1]):
            for step in range(first[1][d, run]):
                before, count = start + step * W * M, first[2][d, run]
                _add(K, before, W * M, first[3][d, run], count, W * M, moved)
                _add(Theta, before, W * M, first[3][d, run], count, W * M, other)
                behind = start + (first[0][d, run] + step) * W * M
                for part in range(second[0].shape[1]):
                    width, count = second[1][d, part] * M, second[2][d, part]
                    _add(moved, 0, M, second[3][d, part], count, width, total)
                    _add(other, 0, M, second[3][d, part], count, width, slope)
                    out = np.uintp(behind + second[0][d, part] * M)
                    for j in range(np.uintp(width)):
                        Theta_out[out + j] = fma(a, slope[j], fma(b, total[j], offset))
                        K_out[out + j] = fma(scale, total[j], shift)


# --- tensors (N, N, N, N) between a row pair (a b) and a column pair (c d); row pairs from start to stop ---


@compiled
def add_moved(total, block, rows, columns, factor, start, stop):
    """Add `factor` R X C^T. A map (3, N, N) makes the new pair (a b) of the old (a a), (a b) and (b b)."""
    N = rows.shape[1]
    line, alone = np.empty((N, N)), np.empty(N)
    for pair in range(start, stop):
        a, b = pair // N, pair % N
        first, both, second = rows[0, a, b], rows[1, a, b], rows[2, a, b]
        x, y, z = block[a, a], block[a, b], block[b, b]
        for c in range(N):
            for d in range(N):
                line[c, d] = first * x[c, d] + both * y[c, d] + second * z[c, d]
            alone[c] = line[c, c]
        for c in range(N):
            for d in range(N):
                moved = columns[0, c, d] * alone[c] + columns[1, c, d] * line[c, d]
                total[a, b, c, d] += factor * (moved + columns[2, c, d] * alone[d])


@compiled
def add_weighted(total, values, strides, rows, columns, start, stop):
    """Add rows (a b) columns (c d) times entries of flat `values` at these strides of a, b, c and d."""
    N = rows.shape[0]
    of_c, of_d = strides[2], strides[3]
    for pair in range(start, stop):
        a, b = pair // N, pair % N
        base, weight = a * strides[0] + b * strides[1], rows[a, b]
        for c in range(N):
            place = base + c * of_c
            for d in range(N):
                total[a, b, c, d] += values[place + d * of_d] * weight * columns[c, d]


@compiled
def centre(total, rows, columns, start, stop):
    """Subtract rows (a b) columns (c d)."""
    N = rows.shape[0]
    for pair in range(start, stop):
        a, b = pair // N, pair % N
        for c in range(N):
            for d in range(N):
                total[a, b, c, d] -= rows[a, b] * columns[c, d]


@compiled
def tie_pairs(total, Theta, ties, start, stop):
    """Multiply by entries of Theta between two of a, b, c and d, which `ties` (T, 2) numbers 0 to 3."""
    N = Theta.shape[0]
    labels = np.zeros(4, dtype=np.int64)
    for pair in range(start, stop):
        labels[0], labels[1] = pair // N, pair % N
        line = total[labels[0], labels[1]]
        for t in range(len(ties)):
            one, two = min(ties[t, 0], ties[t, 1]), max(ties[t, 0], ties[t, 1])
            for c in range(N):
                labels[2] = c
                if two == 3:
                    for d in range(N):
                        line[c, d] *= Theta[labels[one], d]
                else:
                    factor = Theta[labels[one], labels[two]]
                    for d in range(N):
                        line[c, d] *= factor
