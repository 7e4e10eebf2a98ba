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


# --- tensors (N, N, N, N) as matrices between row pairs (a b) and column pairs (c d), (N^2, N^2) ----------
#
# All tensors of a layer are made row pair by row pair, so that what they share is read from memory once.


@compiled
def _add_source(line, values, strides, a, b, weight, columns):
    """Add weight columns (c d) times entries of flat `values` at these strides of a, b, c and d."""
    N = np.uintp(len(columns))
    base, of_c, of_d = a * strides[0] + b * strides[1], strides[2], np.uintp(strides[3])
    for c in range(N):
        start, own, place = np.uintp(c) * N, columns[c], np.uintp(base + c * of_c)
        if of_d == 1:  # without a stride the compiler uses vector units
            for d in range(N):
                line[start + d] += values[place + d] * weight * own[d]
        else:
            for d in range(N):
                line[start + d] += values[place + d * of_d] * weight * own[d]


@compiled
def _tie(line, Theta, labels, ties):
    """Multiply by entries of Theta between two of a, b, c and d, which `ties` (T, 2) numbers 0 to 3."""
    N = np.uintp(len(Theta))
    for t in range(len(ties)):
        one, two = min(ties[t, 0], ties[t, 1]), max(ties[t, 0], ties[t, 1])
        for c in range(N):
            labels[2], start = c, np.uintp(c) * N
            of_one = Theta[labels[one]]
            if two == 3:
                for d in range(N):
                    line[start + d] *= of_one[d]
            else:
                factor = of_one[labels[two]]
                for d in range(N):
                    line[start + d] *= factor


@compiled
def _add_columns(line, moved, parts, present):
    """Add the map of column pairs: the new pair (c d) of the old (c c), (c d) and (d d)."""
    N = np.uintp(parts.shape[1])
    diagonal = np.empty(N)
    for c in range(N):
        diagonal[c] = moved[np.uintp(c) * (N + np.uintp(1))]
    for c in range(N):
        start, x, first, both, second = np.uintp(c) * N, diagonal[c], parts[0, c], parts[1, c], parts[2, c]
        if present[1]:
            for d in range(N):
                line[start + d] += both[d] * moved[start + d]
        if present[0]:
            for d in range(N):
                line[start + d] += first[d] * x
        if present[2]:
            for d in range(N):
                line[start + d] += second[d] * diagonal[d]


@compiled
def make_rows(totals, keep, averages, sources, Theta, ties, known, moves, start, stop):
    """Row pairs from start to stop of tensors `totals`, each (N^2, N^2); added to what is there if `keep`.

    `sources` are terms: starts of each tensor's terms, which of the flat averages, strides (S, 4) and
    weights of rows and columns (S, N, N). Then the ties of each tensor, starts and numbers (T, 2). `moves`
    add R X C^T: starts of each tensor's maps C, (G, 3, N, N) and which parts they have; starts of each map's
    rows, which of the tensors `known` and which of the pairs (a a), (a b), (b b) a row is, and its weight.
    """
    (first, family, strides, of_rows, of_columns), (first_tie, tied) = sources, ties
    first_map, columns, present, first_row, rows, weights = moves
    N = len(Theta)
    size = np.uintp(N * N)
    line, moved, labels, places = np.empty(size), np.empty(size), np.zeros(4, np.int64), np.empty(3, np.int64)
    for pair in range(start, stop):
        a, b = pair // N, pair % N
        labels[0], labels[1] = a, b
        places[0], places[1], places[2] = a * N + a, pair, b * N + b
        for n in range(len(totals)):
            total = totals[n][pair]
            for j in range(size):
                line[j] = total[j] if keep else 0.0
            for t in range(first[n], first[n + 1]):
                values = averages[family[t]]
                _add_source(line, values, strides[t], a, b, of_rows[t, a, b], of_columns[t])
            _tie(line, Theta, labels, tied[first_tie[n] : first_tie[n + 1]])
            for g in range(first_map[n], first_map[n + 1]):
                for j in range(size):
                    moved[j] = 0.0
                for t in range(first_row[g], first_row[g + 1]):
                    x, weight = known[rows[t, 0]][places[rows[t, 1]]], weights[t, a, b]
                    for j in range(size):
                        moved[j] += weight * x[j]
                _add_columns(line, moved, columns[g], present[g])
            for j in range(size):
                total[j] = line[j]


_TILE = 64  # rows and columns of two blocks that stay in a core's cache


@compiled
def symmetrize(matrix, start, stop):
    """The matrix plus its transposed, in place; tiles of rows from start to stop with all up to them."""
    size = len(matrix)
    for tile in range(start, stop):
        top, bottom = tile * _TILE, min((tile + 1) * _TILE, size)
        for left in range(0, top + 1, _TILE):
            for i in range(top, bottom):
                for j in range(left, min(left + _TILE, i + 1)):
                    value = matrix[i, j] + matrix[j, i]
                    matrix[i, j] = value
                    matrix[j, i] = value
