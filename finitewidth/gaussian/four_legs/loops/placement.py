"""Compiled loops of four-leg averages: from sums of tasks to all their places in arrays."""

import numpy as np

from finitewidth.core.compiled import compiled


@compiled
def scatter(block, samples, places, placements, target):
    """Write sums (arrangements, E) to all their places in a flat array.

    A placement is the number of an arrangement and the strides of p, q and the two legs of an entry.
    """
    for n in range(len(placements)):
        a, of_p, of_q, of_r, of_s = placements[n]
        base = samples[0] * of_p + samples[1] * of_q
        for e in range(len(places)):
            r, s = samples[2 + places[e, 0]], samples[2 + places[e, 1]]
            target[base + r * of_r + s * of_s] = block[a, e]


@compiled
def pack(block, ranks, places, starts, sums):
    """Write sums (arrangements, E) of one pair (a, c) to the places of (b, d), counted by their ranks."""
    a, c, above = ranks[0], ranks[1], len(starts) - 1 - ranks[1]
    for n in range(len(block)):
        for e in range(len(places)):
            b, d = ranks[2 + places[e, 0]], ranks[2 + places[e, 1]]
            sums[n, starts[a, c] + (b - a - 1) * above + d - c - 1] = block[n, e]


@compiled
def _row(sums, starts, numbers, u, v, w, row):
    """Entries with u < v < w and any other sample, (N,)."""
    last = len(starts) - 1
    for x in range(u):
        row[x] = sums[numbers[0], starts[x, v] + (u - x - 1) * (last - v) + w - v - 1]
    for x in range(u + 1, v):
        row[x] = sums[numbers[1], starts[u, v] + (x - u - 1) * (last - v) + w - v - 1]
    for x in range(v + 1, w):
        row[x] = sums[numbers[2], starts[u, x] + (v - u - 1) * (last - x) + w - x - 1]
    for x in range(w + 1, last + 1):
        row[x] = sums[numbers[3], starts[u, w] + (v - u - 1) * (last - w) + x - w - 1]


@compiled
def unpack(sums, starts, samples, sources, copies, first, second, target, begin, end):
    """Write rows of an array (N, N, N, N): pairs u < v from begin to end, every w beyond, any other sample.

    `sources` (R, 4) and `copies` (R, C, 3) say which arrangements and which orders of u, v, w they have.
    """
    count = len(samples)
    row, three = np.zeros(count), np.empty(3, np.int64)
    for pair in range(begin, end):
        u, v = first[pair], second[pair]
        for w in range(v + 1, count):
            three[0], three[1], three[2] = samples[u], samples[v], samples[w]
            for n in range(len(sources)):
                _row(sums, starts, sources[n], u, v, w, row)
                for m in range(copies.shape[1]):
                    order = copies[n, m]
                    line = target[three[order[0]], three[order[1]], three[order[2]]]
                    for x in range(count):
                        if x != u and x != v and x != w:
                            line[samples[x]] = row[x]
