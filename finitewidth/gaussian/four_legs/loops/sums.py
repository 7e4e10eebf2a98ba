"""Compiled loops of four-leg averages: a task is a pair (p, q) of legs, and entries of two further legs each.

Nothing here holds the interpreter's lock, so that tasks run side by side on all cores. Products of matrices
are those of BLAS.
"""

import math

import numpy as np

from finitewidth.core.compiled import compiled, load, product, product_sum, spread, store, total

_AT_ONCE = 256  # points of a grid whose numbers stay in a core's cache
_LANES = 16  # points that are summed side by side: twice those of a vector unit


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
def _of_legs(factors, exponents, deviations):
    """What legs add to the weight of term k if they have this order, (leg, order, k)."""
    orders, terms = factors.shape
    result = np.empty((deviations.size, orders, terms))
    for leg in range(deviations.size):
        for order in range(orders):
            for k in range(terms):
                power = factors[order, k]
                for _ in range(exponents[order, k]):
                    power *= deviations[leg]
                result[leg, order, k] = power
    return result


@compiled
def _set_weights(ends, groups, of_one, of_two, powers, terms, weights):
    """Factors of the Hermite terms of an entry besides its coefficients, (end, i).

    Term k has one of each leg, and the k-th power of their correlation.
    """
    for n in range(len(ends)):
        r, s, group = ends[n, 0], ends[n, 1], ends[n, 2]
        first, own, one, two = r - groups[group, 1], weights[n], of_one[r], of_two[s]
        for i in range(first):
            own[i] = 0.0
        for k in range(terms):
            own[first + k] = powers[k] * one[k] * two[k]
        for i in range(first + terms, terms + groups[group, 2]):
            own[i] = 0.0


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
def _add_task(hermite, grid, first, last, pair, deviations, entries, tables, out):
    """Add the sums of one task over points from first to last to `out`, (arrangements, E)."""
    (series, degrees, units, known), (points, grid_weights) = hermite, grid
    (places, correlations, terms), (orders, groups, first_end, ends, first_member, members) = (
        entries,
        tables[:6],
    )
    front_orders, factors, exponents = tables[6:]
    top, X = orders[0], last - first
    counts, of_legs = _counts(places, terms, top, deviations.size), _of_legs(factors, exponents, deviations)
    size = -(-X // -(-X // _AT_ONCE))
    size = -(-size // _LANES) * _LANES
    values, place = np.zeros((deviations.size, top + orders[1], size)), np.zeros((size, 2))
    fronts, pairs = np.empty((len(front_orders), size)), np.empty((len(ends), size))
    weights, powers = np.empty((len(ends), top + orders[1])), np.ones(orders[1])
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
            for k in range(1, terms[e]):
                powers[k] = powers[k - 1] * correlations[e]
            _set_weights(ends, groups, of_legs[one], of_legs[two], powers, terms[e], weights)
            sums_of = groups, first_end, first_member, members
            _add_entry(values, one, two, fronts, weights, terms[e], sums_of, pairs, out, e)


@compiled
def sums(hermite, grid, pair, entries, tables):
    """Sums of tasks over their grids for all arrangements of orders, (arrangements, E).

    `hermite` is the coefficients of the legs: series (L, part, I, D), how many D (L,) and unit directions
    (L, 2) or, if there are none, values (I, L X) of one task. `grid` is what `grids` returns, and `pair` the
    derivatives of legs p and q at its points, (top + 1, 2, X). `entries` are the first leg and the first
    entry of each task, the deviations of legs, and of entries their two legs, correlation, and number of
    Hermite terms.
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
