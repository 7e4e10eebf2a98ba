"""Compiled loops of four-leg averages: a task is a pair (p, q) of legs, and the others as rows and columns.

Nothing here holds the interpreter's lock, so that tasks run side by side on all cores. Products of matrices
are those of BLAS.
"""

import math

import numpy as np

from finitewidth.core.compiled import compiled

_AT_ONCE = 256  # points of a grid whose numbers stay in a core's cache


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
    """Mean directions of legs p, q, rows, columns and the variances of rows and columns, given z_p, z_q."""
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
def condition(K, legs, rows, hardest):
    """Mean directions (legs, 2), and variances and correlations (R, S) of rows and columns, given p and q.

    Writes the scales of the hardest legs, (axis, 2, 4).
    """
    directions, variances = np.empty((legs.size, 2)), np.empty(legs.size - 2)
    _condition(K, legs, directions, variances)
    for axis in range(2):
        _hardest(directions, variances, axis, hardest[axis])
    correlations = np.zeros((rows, legs.size - 2 - rows))
    for r in range(rows):
        for s in range(correlations.shape[1]):
            i, j = 2 + r, 2 + rows + s
            scale = math.sqrt(variances[i - 2] * variances[j - 2])
            mean = directions[i, 0] * directions[j, 0] + directions[i, 1] * directions[j, 1]
            if scale > 0.0:
                correlations[r, s] = min(max((K[legs[i], legs[j]] - mean) / scale, -1.0), 1.0)
    return directions, variances, correlations


@compiled
def terms_needed(variances, correlations, needed, largest):
    """The number of Hermite terms of the hardest entry.

    `needed` has it by variance, in half powers of two below `largest`, and correlation.
    """
    rows, most = correlations.shape[0], 0
    for r in range(rows):
        for s in range(correlations.shape[1]):
            ratio = max(variances[r], variances[rows + s]) / largest
            level = int(math.floor(-2 * math.log2(max(ratio, 2.0**-60)) + 1e-9))
            step = int(math.ceil((1 - math.sqrt(1 - abs(correlations[r, s]))) * 40 - 1e-9))
            most = max(most, needed[min(max(level, 0), needed.shape[0] - 1), min(max(step, 0), 40)])
    return most


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
def _coefficients(series, units, points, values):
    """Hermite coefficients of all legs at points, (I, legs, X), from series (legs, I, D)."""
    legs, count, degree = series.shape
    size = len(points)
    t, polynomials, now = np.empty(size), np.empty((degree, size)), np.empty((count, size))
    for leg in range(legs):
        for j in range(size):
            value = units[leg, 0] * points[j, 0] + units[leg, 1] * points[j, 1]
            t[j] = min(max(value, -1.0), 1.0)
        _polynomials(t, polynomials)
        np.dot(series[leg], polynomials, now)
        for i in range(now.shape[0]):
            for j in range(size):
                values[i, leg, j] = now[i, j]


@compiled
def _copied(known, start, width, values):
    """Values (I, legs, X) at points from `start`."""
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
def _add_products(values, fronts, rows, group, products):
    """Add sum_x front_f c_i(row) c_(i - difference)(column), (i, f r, s).

    The factors of p and q go where there are fewer legs; products are then (i, f s, r).
    """
    difference, low, count = group[0], group[1], group[2]
    legs, size = values.shape[1], values.shape[2]
    swapped = legs - rows < rows
    small = legs - rows if swapped else rows
    weighted, now = np.empty((len(fronts) * small, size)), np.empty((len(fronts) * small, legs - small))
    for i in range(count):
        one, two = values[low + i, :rows], values[low + i - difference, rows:]
        left, right = (two, one) if swapped else (one, two)
        for f in range(len(fronts)):
            for r in range(small):
                for j in range(size):
                    weighted[f * small + r, j] = left[r, j] * fronts[f, j]
        np.dot(weighted, right.T, now)
        for r in range(now.shape[0]):
            for j in range(now.shape[1]):
                products[i, r, j] += now[r, j]


@compiled
def _add_terms(products, factors, powers, deviations, correlations, out):
    """out (R, S) plus the Hermite series with products (k, R, S), or (k, S, R) if there are fewer columns.

    Term k has a factor, and powers of the deviations of row and column, (k,) each.
    """
    rows, columns = out.shape
    own, other = powers
    for k in range(factors.size):
        for r in range(rows):
            scale = factors[k] * deviations[r] ** own[k]
            for s in range(columns):
                value = products[k, s, r] if columns < rows else products[k, r, s]
                power = deviations[rows + s] ** other[k] * correlations[r, s] ** k
                out[r, s] += scale * power * value


@compiled
def sums(hermite, points, pair, deviations, correlations, tables):
    """Sums over a grid for all arrangements of orders, (arrangements, R, S).

    `hermite` is the coefficients of rows and columns: series (legs, I, D) in unit directions (legs, 2) or, if
    there are none, values (I, legs, X). `pair` is the weights and the derivatives of legs p and q at the
    points, (1 + 2 (top + 1), X).
    """
    series, units, known = hermite
    orders, groups, group_fronts, members, factors, exponents = tables
    (top, terms), (rows, columns), X = orders, correlations.shape, len(points)
    size = -(-X // -(-X // _AT_ONCE))
    small, large = min(rows, columns), max(rows, columns)
    found = np.zeros((len(groups), groups[:, 2].max(), groups[:, 3].max() * small, large))
    values, place = np.zeros((top + terms, rows + columns, size)), np.zeros((size, 2))
    front = np.empty((group_fronts.shape[1], size))
    for start in range(0, X, size):
        width = min(size, X - start)
        if len(series):
            for j in range(width):
                place[j, 0], place[j, 1] = points[start + j, 0], points[start + j, 1]
            _coefficients(series, units, place, values)
        else:
            _copied(known, start, width, values)
        for g in range(len(groups)):
            own = front[: groups[g, 3]]
            _fronts(pair, top, group_fronts[g, : groups[g, 3]], start, width, own)
            _add_products(values, own, rows, groups[g], found[g])
    out = np.zeros((len(members), rows, columns))
    for a in range(len(members)):
        g, r, s, f = members[a]
        products = found[g, r - groups[g, 1] :, f * small : (f + 1) * small]
        powers = exponents[r], exponents[s]
        _add_terms(products, factors[r, s], powers, deviations, correlations, out[a])
    return out


@compiled
def scatter(block, legs, count, placements, target):
    """Write sums (arrangements, R, S) to all their places in a flat array.

    A placement is the number of an arrangement and the strides of p, q, rows and columns; `count` of the legs
    are rows.
    """
    p, q, rows, columns = legs[0], legs[1], legs[2 : 2 + count], legs[2 + count :]
    for n in range(len(placements)):
        a, of_p, of_q, of_r, of_s = placements[n]
        base = p * of_p + q * of_q
        if of_s <= of_r:
            for i in range(rows.size):
                for j in range(columns.size):
                    target[base + rows[i] * of_r + columns[j] * of_s] = block[a, i, j]
        else:
            for j in range(columns.size):
                for i in range(rows.size):
                    target[base + rows[i] * of_r + columns[j] * of_s] = block[a, i, j]
