"""Compiled loops of four-leg averages: a task is a pair (p, q) of legs, and entries of two further legs each.

Nothing here holds the interpreter's lock, so that tasks run side by side on all cores. Products of matrices
are those of BLAS.
"""

import math

import numpy as np

from finitewidth.core.compiled import compiled, load, product, product_sum, spread, store, total

_AT_ONCE = 256  # points of a grid whose numbers stay in a core's cache
_LANES = 16  # points that are summed side by side: twice those of a vector unit


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
def grids(steps, radius, halve, pairs):
    """Trapezoid nodes of tasks for two normal variables within a radius, one task after the other.

    Returns the first of each task (T + 1), points (X, 2), weights (X,) and the legs p and q (2, X), whose
    directions are `pairs` (T, 2, 2).
    """
    most = 0
    for t in range(len(steps)):
        sides = [max(2 * math.ceil(radius / step), 1) if step > 0 else 1 for step in steps[t]]
        most += sides[0] * sides[1]
    starts, count = np.zeros(len(steps) + 1, np.int64), 0
    points, weights, legs = np.empty((most, 2)), np.empty(most), np.empty((2, most))
    for t in range(len(steps)):
        one, share = _axis(steps[t, 0], radius, halve and steps[t, 0] > 0)
        two, other = _axis(steps[t, 1], radius, False)
        for x in one:
            for y in two:
                square = x * x + y * y
                if square <= radius * radius:
                    points[count, 0], points[count, 1] = x, y
                    weights[count] = math.exp(-square / 2) * share * other
                    for leg in range(2):
                        legs[leg, count] = pairs[t, leg, 0] * x + pairs[t, leg, 1] * y
                    count += 1
        starts[t + 1] = count
    return starts, points[:count].copy(), weights[:count].copy(), legs[:, :count].copy()


@compiled
def _polynomials(t, result):
    """Chebyshev polynomials at t (X,), even and odd degrees apart if there are two parts, (part, D, X)."""
    parts, degrees, size = result.shape
    for n in range(parts * degrees):
        now, last, before = (
            result[n % parts, n // parts],
            result[(n - 1) % parts, (n - 1) // parts],
            result[(n - 2) % parts, (n - 2) // parts],
        )
        if n < 2:
            for j in range(size):
                now[j] = t[j] if n else 1.0
        else:
            for j in range(size):
                now[j] = 2 * t[j] * last[j] - before[j]


@compiled
def _coefficients(series, degrees, units, counts, points, values):
    """The first Hermite coefficients of each leg at points, (L, I, X), from series (L, part, I, D).

    With two parts, coefficients of even number are odd functions, and the others even ones.
    """
    legs, parts, most, _ = series.shape
    size = len(points)
    t, now = np.empty(size), np.empty((most, size))
    for leg in range(legs):
        if counts[leg] == 0:
            continue
        for j in range(size):
            value = units[leg, 0] * points[j, 0] + units[leg, 1] * points[j, 1]
            t[j] = min(max(value, -1.0), 1.0)
        polynomials = np.empty((parts, degrees[leg], size))
        _polynomials(t, polynomials)
        for part in range(parts):
            few = (counts[leg] - part + parts - 1) // parts
            own = series[leg, part, :few, : degrees[leg]].copy()
            np.dot(own, polynomials[(part + 1) % parts], now[:few])
            for i in range(few):
                for j in range(size):
                    values[leg, part + parts * i, j] = now[i, j]


@compiled
def _copied(known, start, width, values):
    """Values (I, L X) at points from `start`, as (L, I, X)."""
    of_a_leg = known.shape[1] // len(values)
    for i in range(known.shape[0]):
        for leg in range(len(values)):
            for j in range(width):
                values[leg, i, j] = known[i, leg * of_a_leg + start + j]


@compiled
def _fronts(grid_weights, pair, orders, start, width, result):
    """Weights times derivatives of p and q of orders (F, 2) at points from `start`, (F, X); zero beyond."""
    for f in range(len(orders)):
        p, q = orders[f]
        for j in range(result.shape[1]):
            x = start + j
            result[f, j] = grid_weights[x] * pair[p, 0, x] * pair[q, 1, x] if j < width else 0.0


@compiled
def _counts(places, terms, top, legs):
    """How many coefficients of each leg its entries need."""
    result = np.zeros(legs, np.int64)
    for e in range(len(places)):
        for leg in places[e]:
            result[leg] = max(result[leg], top + terms[e])
    return result


@compiled
def _one_series(values, one, two, size, weights, own, count, result, place):
    """sum_i w_i c_i(r) c_i(s) at all points, from coefficients at places `one` and `two` of flat arrays."""
    for x in range(0, size, _LANES):
        a, b = spread(0.0), spread(0.0)
        for i in range(count):
            r, s, w = one + i * size + x, two + i * size + x, spread(weights[own, i])
            a = product_sum(product(load(values, r), load(values, s)), w, a)
            b = product_sum(product(load(values, r + 8), load(values, s + 8)), w, b)
        store(result, place + x, a)
        store(result, place + x + 8, b)


@compiled
def _two_series(values, one, two, size, weights, own, count, result, place):
    """The same with two rows of weights."""
    for x in range(0, size, _LANES):
        a, b, c, d = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        for i in range(count):
            r, s = one + i * size + x, two + i * size + x
            u, v = (
                product(load(values, r), load(values, s)),
                product(load(values, r + 8), load(values, s + 8)),
            )
            w = spread(weights[own, i])
            a, b = product_sum(u, w, a), product_sum(v, w, b)
            w = spread(weights[own + 1, i])
            c, d = product_sum(u, w, c), product_sum(v, w, d)
        store(result, place + x, a)
        store(result, place + x + 8, b)
        store(result, place + size + x, c)
        store(result, place + size + x + 8, d)


@compiled
def _three_series(values, one, two, size, weights, own, count, result, place):
    """The same with three rows of weights."""
    for x in range(0, size, _LANES):
        a, b, c, d, e, f = spread(0.0), spread(0.0), spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        for i in range(count):
            r, s = one + i * size + x, two + i * size + x
            u, v = (
                product(load(values, r), load(values, s)),
                product(load(values, r + 8), load(values, s + 8)),
            )
            w = spread(weights[own, i])
            a, b = product_sum(u, w, a), product_sum(v, w, b)
            w = spread(weights[own + 1, i])
            c, d = product_sum(u, w, c), product_sum(v, w, d)
            w = spread(weights[own + 2, i])
            e, f = product_sum(u, w, e), product_sum(v, w, f)
        store(result, place + x, a)
        store(result, place + x + 8, b)
        store(result, place + size + x, c)
        store(result, place + size + x + 8, d)
        store(result, place + 2 * size + x, e)
        store(result, place + 2 * size + x + 8, f)


@compiled
def _add_sums(pairs, place, fronts, members, m, last, size, out, entry):
    """Add sum_x front times the pair average at `place` to the arrangements of members from m to last."""
    while last - m >= 4:
        p, q, r, s = members[m, 1], members[m + 1, 1], members[m + 2, 1], members[m + 3, 1]
        p, q, r, s = p * size, q * size, r * size, s * size
        a, b, c, d = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        for x in range(0, size, 8):
            both = load(pairs, place + x)
            a, b = product_sum(both, load(fronts, p + x), a), product_sum(both, load(fronts, q + x), b)
            c, d = product_sum(both, load(fronts, r + x), c), product_sum(both, load(fronts, s + x), d)
        out[members[m, 0], entry] += total(a)
        out[members[m + 1, 0], entry] += total(b)
        out[members[m + 2, 0], entry] += total(c)
        out[members[m + 3, 0], entry] += total(d)
        m += 4
    while m < last:
        p = members[m, 1] * size
        a, b = spread(0.0), spread(0.0)
        for x in range(0, size, 16):
            a = product_sum(load(pairs, place + x), load(fronts, p + x), a)
            b = product_sum(load(pairs, place + x + 8), load(fronts, p + x + 8), b)
        out[members[m, 0], entry] += total(product_sum(a, spread(1.0), b))
        m += 1


@compiled
def _set_weights(ends, groups, factors, exponents, powers, one, two, correlation, terms, weights):
    """Factors of the Hermite terms of an entry besides its coefficients, (end, i).

    Term k has a factor, powers of the deviations of both legs, and the k-th power of their correlation.
    """
    for n in range(len(ends)):
        r, s, group = ends[n, 0], ends[n, 1], ends[n, 2]
        first, power = r - groups[group, 1], 1.0
        for i in range(terms + groups[group, 2]):
            weights[n, i] = 0.0
        for k in range(terms):
            of_legs = powers[one, exponents[r, k]] * powers[two, exponents[s, k]]
            weights[n, first + k] = factors[r, s, k] * power * of_legs
            power *= correlation


@compiled
def _add_entry(values, one, two, fronts, weights, terms, tables, pairs, out, entry):
    """Add the sums of one entry over the points of `values`, coefficients (L, I, X) of all legs."""
    groups, first_end, first_member, members = tables
    _, count, size = values.shape
    for g in range(len(groups)):
        difference, low, more = groups[g, 0], groups[g, 1], groups[g, 2]
        r, s = (one * count + low) * size, (two * count + low - difference) * size
        n, last, few = first_end[g], first_end[g + 1], terms + more
        while n < last:
            if last - n >= 3:
                _three_series(values, r, s, size, weights, n, few, pairs, n * size)
                n += 3
            elif last - n == 2:
                _two_series(values, r, s, size, weights, n, few, pairs, n * size)
                n += 2
            else:
                _one_series(values, r, s, size, weights, n, few, pairs, n * size)
                n += 1
    for n in range(len(first_member) - 1):
        first, last = first_member[n], first_member[n + 1]
        _add_sums(pairs, n * size, fronts, members, first, last, size, out, entry)


@compiled
def _powers(deviations, top):
    result = np.ones((deviations.size, top + 1))
    for order in range(1, top + 1):
        for leg in range(deviations.size):
            result[leg, order] = result[leg, order - 1] * deviations[leg]
    return result


@compiled
def _add_task(hermite, grid, first, last, pair, deviations, entries, tables, out):
    """Add the sums of one task over points from first to last to `out`, (arrangements, E)."""
    (series, degrees, units, known), (points, grid_weights) = hermite, grid
    (places, correlations, terms), (orders, groups, first_end, ends, first_member, members) = (
        entries,
        tables[:6],
    )
    front_orders, factors, exponents = tables[6:]
    top, X = orders[0], last - first
    counts, powers = _counts(places, terms, top, deviations.size), _powers(deviations, top)
    size = -(-X // -(-X // _AT_ONCE))
    size = -(-size // _LANES) * _LANES
    values, place = np.zeros((deviations.size, top + orders[1] + 1, size)), np.zeros((size, 2))
    fronts, pairs = np.empty((len(front_orders), size)), np.empty((len(ends), size))
    weights = np.empty((len(ends), top + orders[1]))
    for start in range(first, last, size):
        width = min(size, last - start)
        if len(series):
            for j in range(width):
                place[j, 0], place[j, 1] = points[start + j, 0], points[start + j, 1]
            _coefficients(series, degrees, units, counts, place, values)
        else:
            _copied(known, start, width, values)
        _fronts(grid_weights, pair, front_orders, start, width, fronts)
        for e in range(len(places)):
            one, two = places[e, 0], places[e, 1]
            _set_weights(
                ends, groups, factors, exponents, powers, one, two, correlations[e], terms[e], weights
            )
            sums_of = groups, first_end, first_member, members
            _add_entry(values, one, two, fronts, weights, terms[e], sums_of, pairs, out, e)


@compiled
def sums(hermite, grid, pair, entries, tables):
    """Sums of tasks over their grids for all arrangements of orders, (arrangements, E).

    `hermite` is the coefficients of the legs: series (L, part, I, D), how many D (L,) and unit directions
    (L, 2) or, if there are none, values (I, L X) of one task. `grid` is what `grids` returns, and `pair` the derivatives of legs p
    and q at its points, (top + 1, 2, X). `entries` are the first leg and the first entry of each task, the
    deviations of legs, and of entries their two legs, correlation, and number of Hermite terms.
    """
    series, degrees, units, known = hermite
    starts, points, grid_weights, _ = grid
    first_legs, first_entries, deviations, places, correlations, terms = entries
    out = np.zeros((len(tables[5]), len(places)))
    for t in range(len(starts) - 1):
        legs, own = slice(first_legs[t], first_legs[t + 1]), slice(first_entries[t], first_entries[t + 1])
        _add_task(
            (series[legs], degrees[legs], units[legs], known),
            (points, grid_weights),
            starts[t],
            starts[t + 1],
            pair,
            deviations[legs],
            (places[own], correlations[own], terms[own]),
            tables,
            out[:, own],
        )
    return out


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
