"""Compiled loops of four-leg averages: what a task looks like, given its pair (p, q) of legs."""

import math

import numpy as np

from finitewidth.core.compiled import compiled


@compiled
def _turned(first, second, directions):
    """Directions on principal axes, the longer one first."""
    a, b, c = 0.0, 0.0, 0.0
    for j in range(first.size):
        a += first[j] * first[j]
        b += first[j] * second[j]
        c += second[j] * second[j]
    angle = 0.5 * math.atan2(2 * b, a - c)
    cosine, sine = math.cos(angle), math.sin(angle)
    for j in range(first.size):
        directions[j, 0] = cosine * first[j] + sine * second[j]
        directions[j, 1] = cosine * second[j] - sine * first[j]


@compiled
def _condition(K, legs, directions, variances):
    """Mean directions of legs p, q and the others, and the variances of the others, given z_p, z_q."""
    p, q, count = legs[0], legs[1], legs.size
    first, second = np.zeros(count), np.zeros(count)
    if K[p, p] > 0:
        for j in range(count):
            first[j] = K[legs[j], p] / math.sqrt(K[p, p])
    left = K[q, q] - first[1] * first[1]
    if left > 1e-15 * K[q, q]:
        for j in range(count):
            most = math.sqrt(max(K[legs[j], legs[j]] - first[j] * first[j], 0.0))
            value = (K[legs[j], q] - first[j] * first[1]) / math.sqrt(left)
            second[j] = min(max(value, -most), most)
    _turned(first, second, directions)
    for j in range(2, count):
        length = directions[j, 0] * directions[j, 0] + directions[j, 1] * directions[j, 1]
        variances[j - 2] = max(K[legs[j], legs[j]] - length, 0.0)


@compiled
def _hardest(directions, variances, axis, result):
    """Scales along an axis and deviations across it of p, q and the two largest others, (2, 4)."""
    one, two = 2, 2
    for j in range(3, len(directions)):
        if abs(directions[j, axis]) >= abs(directions[one, axis]) or one == 2 and two == 2:
            if abs(directions[j, axis]) >= abs(directions[one, axis]):
                two, one = one, j
            else:
                two = j
        elif abs(directions[j, axis]) >= abs(directions[two, axis]):
            two = j
    for place, j in enumerate((0, 1, two, one)):
        other = directions[j, 1 - axis]
        size = math.sqrt(other * other + (0.0 if j < 2 else variances[j - 2]))
        result[0, place] = directions[j, axis]
        result[1, place] = math.copysign(size, other)


@compiled
def _correlations(K, legs, places, directions, variances, result):
    """Of entries, given the legs p and q."""
    for e in range(len(places)):
        r, s = places[e, 0], places[e, 1]
        scale = math.sqrt(variances[r] * variances[s])
        result[e] = 0.0
        if scale > 0.0:
            along = directions[2 + r, 0] * directions[2 + s, 0] + directions[2 + r, 1] * directions[2 + s, 1]
            result[e] = min(max((K[legs[2 + r], legs[2 + s]] - along) / scale, -1.0), 1.0)


@compiled
def condition(K, legs, first_legs, places, first_entries):
    """Tasks one after the other, given their legs p and q.

    Legs are p, q and the others; an entry names two of the others. Returns mean directions (legs, 2),
    variances (legs,), where those of p and q are missing, correlations of entries (E,) and the scales of the
    hardest legs, (task, axis, 2, 4).
    """
    tasks = len(first_legs) - 1
    directions, variances = np.empty((len(legs), 2)), np.empty(len(legs))
    correlations, hardest = np.empty(len(places)), np.empty((tasks, 2, 2, 4))
    for t in range(tasks):
        first, last = first_legs[t], first_legs[t + 1]
        own, along, left = legs[first:last], directions[first:last], variances[first + 2 : last]
        _condition(K, own, along, left)
        for axis in range(2):
            _hardest(along, left, axis, hardest[t, axis])
        entries = slice(first_entries[t], first_entries[t + 1])
        _correlations(K, own, places[entries], along, left, correlations[entries])
    return directions, variances, correlations, hardest


@compiled
def terms_needed(variances, places, correlations, needed, largest):
    """The number of Hermite terms of each entry, (E,).

    `needed` has it by variance, in half powers of two below `largest`, and correlation.
    """
    terms, levels = np.empty(len(places), np.int64), np.empty(len(variances), np.int64)
    for leg in range(len(variances)):
        ratio = max(variances[leg] / largest, 2.0**-60)
        level = int(math.floor(-2 * math.log2(ratio) + 1e-9))
        levels[leg] = min(max(level, 0), needed.shape[0] - 1)
    for e in range(len(places)):
        step = int(math.ceil((1 - math.sqrt(1 - abs(correlations[e]))) * 40 - 1e-9))
        level = min(levels[places[e, 0]], levels[places[e, 1]])
        terms[e] = needed[level, min(max(step, 0), 40)]
    return terms
