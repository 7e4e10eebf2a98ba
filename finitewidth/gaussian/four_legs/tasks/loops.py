"""Compiled loops of four-leg averages: a task is a pair (p, q) of legs, and entries of two further legs each.

Nothing here holds the interpreter's lock, so that tasks run side by side on all cores. Products of matrices
are those of BLAS.
"""

import math

import numpy as np

from finitewidth.core.compiled import compiled

_AT_ONCE = 256  # points of a grid whose numbers stay in a core's cache
_ENTRIES = 32  # entries whose products do


# --- what a task looks like, given its pair of legs ---------------------------------------------------


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
def condition(K, legs, places, hardest):
    """Mean directions (2 + L, 2), variances (L,) and correlations of entries (E,), given the legs p and q.

    Legs are p, q and the others; an entry names two of the others. Writes the scales of the hardest legs,
    (axis, 2, 4).
    """
    directions, variances = np.empty((legs.size, 2)), np.empty(legs.size - 2)
    _condition(K, legs, directions, variances)
    for axis in range(2):
        _hardest(directions, variances, axis, hardest[axis])
    correlations = np.zeros(len(places))
    for e in range(len(places)):
        r, s = places[e]
        one, two = directions[2 + r], directions[2 + s]
        scale = math.sqrt(variances[r] * variances[s])
        if scale > 0.0:
            left = K[legs[2 + r], legs[2 + s]] - (one[0] * two[0] + one[1] * two[1])
            correlations[e] = min(max(left / scale, -1.0), 1.0)
    return directions, variances, correlations


@compiled
def terms_needed(variances, places, correlations, needed, largest):
    """The number of Hermite terms of each entry, (E,).

    `needed` has it by variance, in half powers of two below `largest`, and correlation.
    """
    terms = np.empty(len(places), np.int64)
    for e in range(len(places)):
        ratio = max(variances[places[e, 0]], variances[places[e, 1]]) / largest
        level = int(math.floor(-2 * math.log2(max(ratio, 2.0**-60)) + 1e-9))
        step = int(math.ceil((1 - math.sqrt(1 - abs(correlations[e]))) * 40 - 1e-9))
        terms[e] = needed[min(max(level, 0), needed.shape[0] - 1), min(max(step, 0), 40)]
    return terms


# --- grids and sums ------------------------------------------------------------------------------------


@compiled
def _axis(step, radius, halve):
    """Places and the weight of one axis of a grid; a step of zero drops the axis."""
    if step == 0.0:
        return np.zeros(1), 1.0
    half = math.ceil(radius / step)
    low = 0 if halve else -half
    return (np.arange(low, half) + 0.5) * step, step / math.sqrt(2 * math.pi) * (2 if halve else 1)


@compiled
def grid(first_step, second_step, radius, halve):
    """Trapezoid nodes (X, 2) and weights (X,) for two normal variables within a radius."""
    one, share = _axis(first_step, radius, halve and first_step > 0)
    two, other = _axis(second_step, radius, False)
    points, weights, count = np.empty((one.size * two.size, 2)), np.empty(one.size * two.size), 0
    for x in one:
        for y in two:
            square = x * x + y * y
            if square <= radius * radius:
                points[count, 0], points[count, 1] = x, y
                weights[count] = math.exp(-square / 2) * share * other
                count += 1
    return points[:count], weights[:count]


@compiled
def _polynomials(t, result):
    """Chebyshev polynomials (D, X) at t (X,)."""
    for n in range(len(result)):
        for j in range(t.size):
            if n < 2:
                result[n, j] = t[j] if n else 1.0
            else:
                result[n, j] = 2 * t[j] * result[n - 1, j] - result[n - 2, j]


@compiled
def _coefficients(series, units, counts, points, values):
    """The first Hermite coefficients of each leg at points, (I, L, X), from series (L, I, D)."""
    legs, count, degree = series.shape
    size = len(points)
    t, polynomials, now = np.empty(size), np.empty((degree, size)), np.empty((count, size))
    for leg in range(legs):
        few = counts[leg]
        if few == 0:
            continue
        for j in range(size):
            value = units[leg, 0] * points[j, 0] + units[leg, 1] * points[j, 1]
            t[j] = min(max(value, -1.0), 1.0)
        _polynomials(t, polynomials)
        np.dot(series[leg, :few], polynomials, now[:few])
        for i in range(few):
            for j in range(size):
                values[i, leg, j] = now[i, j]


@compiled
def _copied(known, start, width, values):
    """Values (I, L, X) at points from `start`."""
    for i in range(values.shape[0]):
        for leg in range(values.shape[1]):
            for j in range(width):
                values[i, leg, j] = known[i, leg, start + j]


@compiled
def _fronts(pair, top, orders, start, width, result):
    """Weights times derivatives of p and q of orders (F, 2) at points from `start`, (F, X); zero beyond."""
    for f in range(len(orders)):
        p, q = orders[f]
        for j in range(result.shape[1]):
            x = start + j
            result[f, j] = pair[0, x] * pair[1 + p, x] * pair[2 + top + q, x] if j < width else 0.0


@compiled
def _active(terms, count):
    """How many entries, in falling order of their numbers of terms, have more than k, for k < count."""
    result = np.zeros(count, np.int64)
    for e in range(terms.size):
        for k in range(min(terms[e], count)):
            result[k] += 1
    return result


@compiled
def _counts(places, terms, top, legs):
    """How many coefficients of each leg its entries need."""
    result = np.zeros(legs, np.int64)
    for e in range(len(places)):
        for leg in places[e]:
            result[leg] = max(result[leg], top + terms[e])
    return result


@compiled
def _add_products(values, fronts, places, group, active, products):
    """Add sum_x c_i(r) c_(i - difference)(s) front_f for the entries (r, s) that have term i, (i, E, F)."""
    difference, low, count = group[0], group[1], group[2]
    size, more = values.shape[2], count - active.size
    both, now = np.empty((_ENTRIES, size)), np.empty((_ENTRIES, len(fronts)))
    for i in range(count):
        one, two = values[low + i], values[low + i - difference]
        entries = active[max(i - more, 0)]
        for start in range(0, entries, _ENTRIES):
            width = min(_ENTRIES, entries - start)
            for e in range(width):
                r, s = places[start + e]
                for j in range(size):
                    both[e, j] = one[r, j] * two[s, j]
            np.dot(both[:width], fronts.T, now[:width])
            for e in range(width):
                for f in range(len(fronts)):
                    products[i, start + e, f] += now[e, f]


@compiled
def _term_weights(factors, powers, deviations, places, correlations, active, weights):
    """Factors of the Hermite terms of entries besides their coefficients, (k, E).

    Term k has a factor, powers of the deviations of both legs, and the k-th power of their correlation.
    """
    own, other = powers
    for e in range(len(places)):
        weights[0, e] = 1.0
    for k in range(1, active.size):
        for e in range(active[k]):
            weights[k, e] = weights[k - 1, e] * correlations[e]
    for k in range(active.size):
        for e in range(active[k]):
            of_legs = deviations[places[e, 0], own[k]] * deviations[places[e, 1], other[k]]
            weights[k, e] *= factors[k] * of_legs


@compiled
def _series(products, deviations, entries, active, tables):
    """The Hermite series of all arrangements, (arrangements, E)."""
    places, correlations, _ = entries
    orders, groups, _, members, factors, exponents = tables
    powers = np.ones((deviations.size, orders[0] + 1))
    for order in range(1, orders[0] + 1):
        for leg in range(deviations.size):
            powers[leg, order] = powers[leg, order - 1] * deviations[leg]
    weights, out = np.empty((active.size, len(places))), np.zeros((len(members), len(places)))
    last = (-1, -1)
    for n in range(len(members)):
        a, g, r, s, f = members[n]
        if (r, s) != last:
            both = exponents[r], exponents[s]
            _term_weights(factors[r, s], both, powers, places, correlations, active, weights)
            last = (r, s)
        for k in range(active.size):
            for e in range(active[k]):
                out[a, e] += weights[k, e] * products[g, r - groups[g, 1] + k, e, f]
    return out


@compiled
def sums(hermite, points, pair, deviations, entries, tables):
    """Sums over a grid for all arrangements of orders, (arrangements, E).

    `hermite` is the coefficients of the legs: series (L, I, D) in unit directions (L, 2) or, if there are
    none, values (I, L, X). `pair` is the weights and the derivatives of legs p and q at the points,
    (1 + 2 (top + 1), X). `entries` are the two legs of each, their correlation, and the number of Hermite
    terms, which falls.
    """
    series, units, known = hermite
    (places, _, terms), (orders, groups, group_fronts, _, _, _) = entries, tables
    top, X = orders[0], len(points)
    active, counts = _active(terms, orders[1]), _counts(places, terms, top, deviations.size)
    size = -(-X // -(-X // _AT_ONCE))
    values, place = np.zeros((top + orders[1], deviations.size, size)), np.zeros((size, 2))
    front = np.empty((group_fronts.shape[1], size))
    products = np.zeros((len(groups), groups[:, 2].max(), len(places), groups[:, 3].max()))
    for start in range(0, X, size):
        width = min(size, X - start)
        if len(series):
            for j in range(width):
                place[j, 0], place[j, 1] = points[start + j, 0], points[start + j, 1]
            _coefficients(series, units, counts, place, values)
        else:
            _copied(known, start, width, values)
        for g in range(len(groups)):
            own = front[: groups[g, 3]]
            _fronts(pair, top, group_fronts[g, : groups[g, 3]], start, width, own)
            _add_products(values, own, places, groups[g], active, products[g])
    return _series(products, deviations, entries, active, tables)


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
