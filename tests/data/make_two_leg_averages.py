"""Make `two_leg_averages.json`: Gaussian averages <s^(a)(z1) s^(b)(z2)> to 30 digits.

The two preactivations are Normal(0, [[K11, K12], [K12, K22]]); every K in the table is an exact
double and the average is that of the exact doubles.  Run

    python tests/data/make_two_leg_averages.py            # write the table
    python tests/data/make_two_leg_averages.py --check    # recompute it in other ways and compare

It needs mpmath only; with gmpy2 installed too, mpmath uses it and the run is shorter (then, on one
core: 8 minutes for the table, 13 minutes for the check).

An entry is {"activation", "K": [K11, K12, K22], "orders": [a, b], "value", "scale", "digits"}.
`value` is right to `digits` decimal digits of `scale`, and is cut there (so a value far below its
scale has fewer figures, and "0.0" is zero to that accuracy).  `scale` is
sqrt(<s^(a)(z1)^2> <s^(b)(z2)^2>); for a derivative with delta functions the root mean square is
replaced by the mean of the absolute measure, sum |jump| density(kink) + <|regular part|>, and the
scale by the absolute value if that is larger.
With K11 = K22 only a >= b is stored.  With m the lowest derivative that jumps, a kinked activation
has a, b <= m, and (m+1, b), (b, m+1) with b < m in the sense of distributions.  A zero variance
puts z = 0, and only derivatives continuous at 0 are stored for that leg.

How the values are made
  closed     polynomials (Isserlis), sin, and all that is a Gaussian smoothing of derivatives of
             relu: relu itself, its relatives, perceptron, erf (variance 1/2) and gelu (variance 1).
  nested     elu, selu, hardtanh: the inner average in closed form (erfc, exp), the outer one by
             Gauss-Legendre panels graded towards every kink and its image on the other leg.
  lattice    sigmoid, tanh, softplus, swish, mish: the trapezoidal rule, which converges
             geometrically here; on a lattice in the (z1, z2) plane, on a sheared lattice when the
             legs are nearly parallel, on a line when they are parallel.
  split      the same for variances from 1000 up: s = G + r, with G of closed form (1, Phi and its
             integral) and r of short range, so that the lattice covers the range of r only.

How they are cross-checked (--check; nothing in it shares an averaging formula with the above,
and the derivatives of the piecewise and closed-form activations are written out a second time)
  panels     two-dimensional composite Gauss-Legendre over the whole plane, no split, all
             activations but sin at large variance; every regular covariance.
  ridge      nearly parallel legs: integration over z1 + z2 and z1 - z2 with panels cut at kinks;
             all but sin, erf, gelu and polynomials, whose closed forms are regular there.
  line       parallel legs and zero variances: one-dimensional composite Gauss-Legendre.
  mehler     Hermite series sum_n c^n <s^(a) h_n> <s^(b) h_n>, for |c| <= 0.7 and unit variances.
  contour    the derivatives of the activations against Cauchy's integral.
Delta functions are checked through <z1 f(z1) g(z2)> = K11 <f' g> + K12 <f g'>, which has none.
Of 8071 entries 7549 are compared (left out besides the above: three of hardtanh whose kink is
10^3 or more standard deviations away); the worst difference is 4.9e-31 of the scale, which is the
rounding of the decimals written.
"""

from __future__ import annotations

import argparse
import bisect
import functools
import json
import math
import operator
import pathlib
import time
from collections.abc import Callable, Iterable, Sequence

from mpmath import mp, mpf
from mpmath.calculus.quadrature import GaussLegendre
from mpmath.libmp import MPZ, from_man_exp, to_fixed

Covariance = tuple[float, float, float]
Orders = tuple[int, int]
Matrix = list[list[mpf]]

TABLE = pathlib.Path(__file__).with_name("two_leg_averages.json")
DIGITS = 30
BITS = 240  # of the fixed-point numbers in the long sums
REACH = mpf(13)  # standard deviations that are kept: exp(-13^2 / 2) = 2e-37
RANGE = mpf(90)  # where exp(-|z|) is dropped
HIGHEST = 5  # derivative order of the smooth activations
mp.dps = 60

SELU_ALPHA, SELU_SCALE = mpf(1.6732632423543772), mpf(1.0507009873554805)
COVARIANCES: list[Covariance] = [
    (1.0, 0.3, 1.0),
    (1.0, -0.7, 1.0),
    (0.5, 0.9, 2.0),
    (1.0, 0.99, 1.0),
    (10.0, 8.0, 10.0),
    (1.0, 1.0, 1.0),
    (1.0, -1.0, 1.0),
    (4.0, 2.0, 1.0),
    (4.0, -2.0, 1.0),
    (1.0, 1 - 1e-6, 1.0),
    (1.0, 1 - 1e-12, 1.0),
    (0.3, 0.3 * (-1 + 1e-12), 0.3),
    (2.0, 0.0, 3.0),
    (1e-12, 0.5e-12, 1e-12),
    (1e-12, 0.5e-6, 1.0),
    (1e-6, 1e-6, 1e-6),
    (100.0, 95.0, 100.0),
    (100.0, -49.5, 25.0),
    (1e4, 6e3, 1e4),
    (1e6, 9e5, 1e6),
    (1e6, 9.99e5, 1e6),
    (1e6, 1e6, 1e6),
    (0.0, 0.0, 1.0),
    (0.0, 0.0, 0.0),
]

POLYNOMIALS: dict[str, tuple[float, ...]] = {
    "linear": (0.0, 1.0),
    "monomial(3)": (0.0, 0.0, 0.0, 1.0),
    "polynomial(0.5, 1, 0, -0.25)": (0.5, 1.0, 0.0, -0.25),
}
# slopes above and below 0, and how often relu is differentiated
RAMPS: dict[str, tuple[float, float, int]] = {
    "relu": (1.0, 0.0, 0),
    "leaky_relu(0.2)": (1.0, 0.2, 0),
    "scale_invariant(1.5, -0.5)": (1.5, -0.5, 0),
    "perceptron": (1.0, 0.0, 1),
}
LATTICE = ("sigmoid", "tanh", "softplus", "swish", "swish(1.5)", "mish")
JUMP_ORDER = {
    "relu": 1,
    "leaky_relu(0.2)": 1,
    "scale_invariant(1.5, -0.5)": 1,
    "perceptron": 0,
    "elu": 2,
    "selu": 1,
    "hardtanh": 1,
}
ACTIVATIONS = (*POLYNOMIALS, *RAMPS, *LATTICE, "sin", "erf", "gelu", "elu", "selu", "hardtanh")


def parallel(k: Covariance) -> bool:
    """Whether the legs are exactly parallel or antiparallel (in exact arithmetic)."""
    return mpf(k[0]) * mpf(k[2]) == mpf(k[1]) ** 2


def density(z: mpf, variance: mpf) -> mpf:
    return mp.exp(-z * z / (2 * variance)) / mp.sqrt(2 * mp.pi * variance)


def conditional(k: Sequence[mpf]) -> tuple[mpf, mpf]:
    """beta and v such that z2 given z1 is Normal(beta z1, v)."""
    k11, k12, k22 = map(mpf, k)
    return k12 / k11, (k11 * k22 - k12 * k12) / k11


# --- closed forms ----------------------------------------------------------------------------


def moment(p: int, q: int, k11: mpf, k12: mpf, k22: mpf) -> mpf:
    """<z1^p z2^q> by Isserlis' theorem (as a polynomial in K, whatever its sign)."""
    total = mpf(0)
    for n in range(min(p, q) + 1):
        if (p - n) % 2 == 0 and (q - n) % 2 == 0:
            i, j = (p - n) // 2, (q - n) // 2
            factorials = math.factorial(n) * math.factorial(i) * math.factorial(j)
            total += k12**n * (k11 / 2) ** i * (k22 / 2) ** j / factorials
    return math.factorial(p) * math.factorial(q) * total


def _both_smooth(p: int, q: int, k: Sequence[mpf]) -> mpf:
    """<delta^(p)(u1) delta^(q)(u2)>: derivatives of the joint density at 0."""
    k11, k12, k22 = k
    det = k11 * k22 - k12 * k12
    factor = (-1) ** (p + q) / (2 * mp.pi * mp.sqrt(det))
    return factor * moment(p, q, -k22 / det, k12 / det, -k11 / det)


def _one_smooth(p: int, j: int, k: Sequence[mpf]) -> mpf:
    """<delta^(p)(u1) relu^(j)(u2)> for j = 0, 1: Taylor coefficients of density times mean."""
    beta, v = conditional(k)
    root = mp.sqrt(2 * mp.pi)
    if p == 0:
        return (mpf(1) / 2 if j else mp.sqrt(v) / root) / mp.sqrt(2 * mp.pi * k[0])
    step = [mpf(1) / 2] + [mpf(0)] * p  # of Phi(m / sqrt v) in m
    for n in range((p + 1) // 2):
        step[2 * n + 1] = (-1) ** n / (root * mp.sqrt(v) * (2 * v) ** n * math.factorial(n) * (2 * n + 1))
    mean = step if j else [mp.sqrt(v) / root] + [step[n] / (n + 1) for n in range(p)]
    total = mpf(0)
    for n in range(p + 1):
        if (p - n) % 2 == 0:
            h = (p - n) // 2
            total += mean[n] * beta**n * (-1 / (2 * k[0])) ** h / math.factorial(h)
    return (-1) ** p * math.factorial(p) * total / mp.sqrt(2 * mp.pi * k[0])


def relu_kernel(i: int, j: int, k: Sequence[mpf]) -> mpf:
    """<relu^(i)(u1) relu^(j)(u2)> for any orders, in the sense of distributions."""
    if i < j:
        return relu_kernel(j, i, (k[2], k[1], k[0]))
    if j >= 2:
        return _both_smooth(i - 2, j - 2, k)
    if i >= 2:
        return _one_smooth(i - 2, j, k)
    k11, k12, k22 = k
    if (i, j) == (1, 0):
        return (mp.sqrt(k22) + k12 / mp.sqrt(k11)) / (2 * mp.sqrt(2 * mp.pi))
    opening = mp.sqrt(k11 * k22 - k12 * k12)
    angle = mp.atan2(opening, k12)
    return (mp.pi - angle if i else opening + k12 * (mp.pi - angle)) / (2 * mp.pi)


def relu_mean(j: int, variance: mpf) -> mpf:
    """<relu^(j)(u)>."""
    if j <= 1:
        return mpf(1) / 2 if j else mp.sqrt(variance / (2 * mp.pi))
    return (-1) ** j * moment(j - 2, 0, -1 / variance, mpf(0), mpf(0)) / mp.sqrt(2 * mp.pi * variance)


def smoothed(terms1: dict, terms2: dict, k: Sequence[mpf]) -> mpf:
    """Average of two sums {order: coefficient} of relu derivatives; order None is the constant 1."""
    total = mpf(0)
    for i, c1 in terms1.items():
        for j, c2 in terms2.items():
            if i is None and j is None:
                total += c1 * c2
            elif i is None or j is None:
                total += c1 * c2 * (relu_mean(i, k[0]) if j is None else relu_mean(j, k[2]))
            else:
                total += c1 * c2 * relu_kernel(i, j, k)
    return total


def polynomial_average(name: str, a: int, b: int, k: Sequence[mpf]) -> mpf:
    c = POLYNOMIALS[name]
    total = mpf(0)
    for p in range(a, len(c)):
        for q in range(b, len(c)):
            factor = math.perm(p, a) * math.perm(q, b)
            total += factor * mpf(c[p]) * mpf(c[q]) * moment(p - a, q - b, *k)
    return total


def sin_average(a: int, b: int, k: Sequence[mpf]) -> mpf:
    quarter_turns = (1, 0, -1, 0)
    minus = mp.exp(-(k[0] + k[2] - 2 * k[1]) / 2) * quarter_turns[(a - b) % 4]
    plus = mp.exp(-(k[0] + k[2] + 2 * k[1]) / 2) * quarter_turns[(a + b) % 4]
    return (minus - plus) / 2


def ramp_average(name: str, a: int, b: int, k: Sequence[mpf]) -> mpf:
    above, below, shift = RAMPS[name]
    i, j = a + shift, b + shift
    flip1, flip2 = -mpf(below) * (-1) ** i, -mpf(below) * (-1) ** j
    same = relu_kernel(i, j, k)
    opposite = relu_kernel(i, j, (k[0], -k[1], k[2]))
    return (mpf(above) ** 2 + flip1 * flip2) * same + above * (flip1 + flip2) * opposite


def closed_average(name: str, a: int, b: int, k: Covariance) -> mpf:
    with mp.workdps(110):
        k11, k12, k22 = map(mpf, k)
        if name in POLYNOMIALS:
            return polynomial_average(name, a, b, (k11, k12, k22))
        if name in RAMPS:
            return ramp_average(name, a, b, (k11, k12, k22))
        if name == "sin":
            return sin_average(a, b, (k11, k12, k22))
        if name == "erf":  # sign smoothed with variance 1/2; sign = 2 relu' - 1
            terms = [{n + 1: 2, **({} if n else {None: -1})} for n in (a, b)]
            return smoothed(*terms, (k11 + mpf(1) / 2, k12, k22 + mpf(1) / 2))
        terms = [{n: 1, n + 2: -1} for n in (a, b)]  # gelu: relu - delta smoothed with variance 1
        value = smoothed(*terms, (k11 + 1, k12, k22 + 1))
        return value if abs(value) > mpf(10) ** -100 else mpf(0)  # gelu(0) = 0 cancels


# --- derivatives of the smooth activations ----------------------------------------------------


def _next_polynomial(c: list[int], slope: Sequence[int]) -> list[int]:
    """Coefficients of P'(x) times slope(x), that is of d/dz P(x(z)) when dx/dz = slope(x)."""
    out = [0] * (len(c) + 1)
    for n in range(1, len(c)):
        for p, s in enumerate(slope):
            if s:
                out[n - 1 + p] += n * c[n] * s
    return out


def _polynomials(slope: Sequence[int]) -> list[list[int]]:
    rows = [[0, 1]]
    for _ in range(HIGHEST):
        rows.append(_next_polynomial(rows[-1], slope))
    return [row[::-1] for row in rows]


IN_SIGMOID, IN_TANH = _polynomials((0, 1, -1)), _polynomials((1, 0, -1))


def _horner(c: Iterable[int], x: mpf) -> mpf:
    value = mpf(0)
    for term in c:
        value = value * x + term
    return value


def sigmoid_jet(z: mpf) -> list[mpf]:
    s = 1 / (1 + mp.exp(-z))
    return [_horner(c, s) for c in IN_SIGMOID]


def tanh_jet(z: mpf) -> list[mpf]:
    t = mp.tanh(z)
    return [_horner(c, t) for c in IN_TANH]


def softplus_jet(z: mpf) -> list[mpf]:
    value = mp.log1p(mp.exp(-abs(z))) + max(z, 0)
    return [value, *sigmoid_jet(z)[:HIGHEST]]


def swish_jet(z: mpf, beta: mpf) -> list[mpf]:
    s = [beta**n * d for n, d in enumerate(sigmoid_jet(beta * z))]
    return [z * s[0]] + [z * s[n] + n * s[n - 1] for n in range(1, HIGHEST + 1)]


def mish_jet(z: mpf) -> list[mpf]:
    """z (1 - 2 / D), D = 1 + (1 + e^z)^2, by the power series of 1 / D."""
    e = mp.exp(z)
    d = [(2 * e + e * e * 2**n) / math.factorial(n) + (2 if n == 0 else 0) for n in range(HIGHEST + 1)]
    r = [1 / d[0]]
    for n in range(1, HIGHEST + 1):
        r.append(-sum(d[i] * r[n - i] for i in range(1, n + 1)) / d[0])
    t = [(1 if n == 0 else 0) - 2 * math.factorial(n) * c for n, c in enumerate(r)]
    return [z * t[0]] + [z * t[n] + n * t[n - 1] for n in range(1, HIGHEST + 1)]


JETS: dict[str, Callable[[mpf], list[mpf]]] = {
    "sigmoid": sigmoid_jet,
    "tanh": tanh_jet,
    "softplus": softplus_jet,
    "swish": lambda z: swish_jet(z, mpf(1)),
    "swish(1.5)": lambda z: swish_jet(z, mpf(1.5)),
    "mish": mish_jet,
}


def long_range(name: str, order: int) -> dict[int | None, int]:
    """G of the split, in terms of relu derivatives smoothed with variance 1."""
    if name == "sigmoid" or name == "tanh":
        return {} if order else ({1: 1} if name == "sigmoid" else {1: 2, None: -1})
    return {order: 1} if order <= 1 else {}


def long_range_at(name: str, order: int, z: mpf) -> mpf:
    basis = {None: lambda: mpf(1), 1: lambda: mp.ncdf(z), 0: lambda: z * mp.ncdf(z) + mp.npdf(z)}
    return sum((c * basis[i]() for i, c in long_range(name, order).items()), mpf(0))


# --- lattice sums -----------------------------------------------------------------------------


def fixed(x: mpf) -> MPZ:
    return to_fixed(x._mpf_, BITS)


def unfixed(x: MPZ, powers: int) -> mpf:
    return mp.make_mpf(from_man_exp(MPZ(x), -BITS * powers, mp.prec))


def dot(x: Sequence[MPZ], y: Sequence[MPZ]) -> MPZ:
    return sum(map(operator.mul, x, y))


@functools.cache
def jet_columns(name: str, step: mpf, count: int, split: bool) -> list[list[MPZ]]:
    """Derivatives at step * (-count..count), as fixed-point columns by order."""
    rows = []
    for i in range(-count, count + 1):
        jet = JETS[name](i * step)
        if split:
            jet = [d - long_range_at(name, n, i * step) for n, d in enumerate(jet)]
        rows.append([fixed(d) for d in jet])
    return [list(column) for column in zip(*rows, strict=True)]


def gaussian_row(first: mpf, step: mpf, count: int, variance: mpf) -> list[MPZ]:
    """exp(-x^2 / 2 variance) at first + step * (0..count-1), by recurrence of ratios."""
    value = mp.exp(-first * first / (2 * variance))
    ratio = mp.exp(-step * (2 * first + step) / (2 * variance))
    shrink = mp.exp(-step * step / variance)
    row = []
    for _ in range(count):
        row.append(fixed(value))
        value *= ratio
        ratio *= shrink
    return row


def plane_sums(k: Covariance, steps: tuple[mpf, mpf], counts: Orders, split: bool) -> dict[str, Matrix]:
    """Trapezoidal rule in the (z1, z2) plane for all lattice activations and orders."""
    beta, v = conditional(k)
    k11, h1, h2, n2 = mpf(k[0]), steps[0], steps[1], counts[1]
    left = {name: jet_columns(name, h1, counts[0], split) for name in LATTICE}
    right = {name: jet_columns(name, h2, n2, split) for name in LATTICE}
    size = HIGHEST + 1
    sums = {name: [[MPZ(0)] * size for _ in range(size)] for name in LATTICE}
    for i in range(-counts[0], counts[0] + 1):
        mean = beta * i * h1
        low = max(-n2, int(mp.floor((mean - REACH * mp.sqrt(v)) / h2)))
        high = min(n2, int(mp.ceil((mean + REACH * mp.sqrt(v)) / h2)))
        if low > high:
            continue
        row = gaussian_row(low * h2 - mean, h2, high - low + 1, v)
        outer = fixed(mp.exp(-((i * h1) ** 2) / (2 * k11)))
        for name in LATTICE:
            inner = [dot(row, column[low + n2 : high + n2 + 1]) * outer >> 2 * BITS for column in right[name]]
            for a in range(size):
                factor = left[name][a][i + counts[0]]
                sums[name][a] = [s + factor * x for s, x in zip(sums[name][a], inner, strict=True)]
    norm = h1 * h2 / (2 * mp.pi * mp.sqrt(k11 * v))
    return {name: [[unfixed(x, 2) * norm for x in row] for row in rows] for name, rows in sums.items()}


def lattice_plane(k: Covariance) -> dict[str, Matrix]:
    det = mpf(k[0]) * k[2] - mpf(k[1]) ** 2
    widths = [mp.sqrt(det / k[2]), mp.sqrt(det / k[0])]
    steps = tuple(min(mpf(1) / 12, w / 4) for w in widths)
    counts = tuple(int(mp.ceil(REACH * mp.sqrt(x) / h)) for x, h in zip((k[0], k[2]), steps, strict=True))
    return plane_sums(k, steps, counts, split=False)


def line_rule(k11: mpf, beta: mpf, reach: mpf | None = None) -> tuple[list[mpf], list[mpf]]:
    """Nodes and weights (density included) of the trapezoidal rule on one line."""
    step = min(mpf(1) / 20 / max(1, abs(beta)), mp.sqrt(k11) * mpf("0.35"))
    count = int(mp.ceil((reach or REACH * mp.sqrt(k11)) / step))
    nodes = [i * step for i in range(-count, count + 1)]
    return nodes, [step * density(z, k11) for z in nodes]


def outer_sum(jets1: list[list[mpf]], jets2: list[list[mpf]], weights: list[mpf]) -> Matrix:
    columns1 = [[fixed(w * x) for w, x in zip(weights, c, strict=True)] for c in zip(*jets1, strict=True)]
    columns2 = [[fixed(x) for x in c] for c in zip(*jets2, strict=True)]
    return [[unfixed(dot(x, y), 2) for y in columns2] for x in columns1]


def lattice_line(k: Covariance) -> dict[str, Matrix]:
    """Parallel legs, z2 = beta z1."""
    beta = mpf(k[1]) / mpf(k[0])
    nodes, weights = line_rule(mpf(k[0]), beta)
    out = {}
    for name in LATTICE:
        jets = [JETS[name](z) for z in nodes]
        out[name] = outer_sum(jets, jets if beta == 1 else [JETS[name](beta * z) for z in nodes], weights)
    return out


def lattice_sheared(k: Covariance) -> dict[str, Matrix]:
    """Nearly parallel legs, z2 = beta z1 + sqrt(v) y, on a lattice in (z1, y)."""
    beta, v = conditional(k)
    nodes, weights = line_rule(mpf(k[0]), beta)
    step = mpf("0.35")
    count = int(mp.ceil(REACH / step))
    shifts = [
        (mp.sqrt(v) * j * step, fixed(step * density(j * step, mpf(1)))) for j in range(-count, count + 1)
    ]
    shift_weights = [w for _, w in shifts]
    out = {}
    for name in LATTICE:
        means = []
        for z in nodes:
            jets = [[fixed(x) for x in JETS[name](beta * z + y)] for y, _ in shifts]
            means.append([unfixed(dot(shift_weights, c), 2) for c in zip(*jets, strict=True)])
        out[name] = outer_sum([JETS[name](z) for z in nodes], means, weights)
    return out


def lattice_zero(k: Covariance) -> dict[str, Matrix]:
    """z1 = 0 exactly."""
    out = {}
    for name in LATTICE:
        at_zero = JETS[name](mpf(0))
        means = at_zero
        if k[2] > 0:
            nodes, weights = line_rule(mpf(k[2]), mpf(1))
            means = outer_sum([[mpf(1)]] * len(nodes), [JETS[name](z) for z in nodes], weights)[0]
        out[name] = [[x * y for y in means] for x in at_zero]
    return out


def _widened(k: Covariance) -> tuple[mpf, mpf, mpf]:
    return mpf(k[0]) + 1, mpf(k[1]), mpf(k[2]) + 1


def split_line(k: Covariance) -> dict[str, Matrix]:
    """Parallel legs of equal, large variance: <s s> = <G G> + <s s - G G>, the latter of short range."""
    nodes, weights = line_rule(mpf(k[0]), mpf(1), RANGE)
    out = {}
    for name in LATTICE:
        jets = [JETS[name](z) for z in nodes]
        tails = [[long_range_at(name, n, z) for n in range(HIGHEST + 1)] for z in nodes]
        near, far = outer_sum(jets, jets, weights), outer_sum(tails, tails, weights)
        orders = range(HIGHEST + 1)
        out[name] = [
            [
                near[a][b] - far[a][b] + smoothed(long_range(name, a), long_range(name, b), _widened(k))
                for b in orders
            ]
            for a in orders
        ]
    return out


def split_cross(name: str, k: Covariance) -> Matrix:
    """<G_a(z1) r_b(z2)>: the average of G given z2 in closed form, then the trapezoidal rule."""
    beta, v = conditional((k[2], k[1], k[0]))
    nodes, weights = line_rule(mpf(k[2]), mpf(1), RANGE)
    width = mp.sqrt(v + 1)
    given, rest = [], []
    for z in nodes:
        m = beta * z
        phi = mp.ncdf(m / width)
        basis = {None: mpf(1), 1: phi, 0: m * phi + width * mp.npdf(m / width)}
        terms = [long_range(name, n) for n in range(HIGHEST + 1)]
        given.append([sum((c * basis[i] for i, c in t.items()), mpf(0)) for t in terms])
        rest.append([d - long_range_at(name, n, z) for n, d in enumerate(JETS[name](z))])
    return outer_sum(given, rest, weights)


def split_plane(k: Covariance) -> dict[str, Matrix]:
    """Large variances (K11 = K22): <s s> = <G G> + <G r> + <r G> + <r r>."""
    step = mpf(1) / 10
    count = int(RANGE / step)
    out = plane_sums(k, (step, step), (count, count), split=True)
    for name, table in out.items():
        cross = split_cross(name, k)
        for a in range(HIGHEST + 1):
            for b in range(HIGHEST + 1):
                long = smoothed(long_range(name, a), long_range(name, b), _widened(k))
                table[a][b] += cross[a][b] + cross[b][a] + long
    return out


@functools.cache
def lattice_tables(k: Covariance) -> dict[str, Matrix]:
    if k[0] == 0:
        return lattice_zero(k)
    large = k[0] >= 1e3 and k[0] == k[2]
    if parallel(k):
        return split_line(k) if large and k[1] == k[0] else lattice_line(k)
    if k[1] ** 2 > 0.999 * k[0] * k[2] and not large:
        return lattice_sheared(k)
    return split_plane(k) if large else lattice_plane(k)


# --- piecewise activations: closed inner average, graded outer panels --------------------------

# a piece is (low, high, [(coefficient, power of z, rate)]): sums of c z^power exp(rate z)
Piece = tuple[mpf, mpf, list[tuple[mpf, int, int]]]


def pieces(name: str, order: int) -> list[Piece]:
    """The regular part of a derivative."""
    inf, zero = mp.inf, mpf(0)
    if name == "hardtanh":
        flat = [(-inf, mpf(-1), [(mpf(-1), 0, 0)]), (mpf(1), inf, [(mpf(1), 0, 0)])]
        return (
            [*(flat if order == 0 else []), (mpf(-1), mpf(1), [(mpf(1), 1 - order, 0)])] if order < 2 else []
        )
    if name in RAMPS:
        above, below, shift = RAMPS[name]
        n = order + shift
        return (
            [(zero, inf, [(mpf(above), 1 - n, 0)]), (-inf, zero, [(mpf(below), 1 - n, 0)])] if n < 2 else []
        )
    scale, alpha = (SELU_SCALE, SELU_ALPHA) if name == "selu" else (mpf(1), mpf(1))
    below = [(scale * alpha, 0, 1)] + ([(-scale * alpha, 0, 0)] if order == 0 else [])
    above = [(zero, inf, [(scale, 1 - order, 0)])] if order < 2 else []
    return [(-inf, zero, below), *above]


def deltas(name: str, order: int) -> list[tuple[mpf, mpf]]:
    """(kink, jump) of the derivative below, when this order is m + 1."""
    if order != JUMP_ORDER[name] + 1:
        return []
    if name == "hardtanh":
        return [(mpf(-1), mpf(1)), (mpf(1), mpf(-1))]
    if name in RAMPS:
        return [(mpf(0), mpf(RAMPS[name][0]) - mpf(RAMPS[name][1]))]
    return [(mpf(0), SELU_SCALE - SELU_SCALE * SELU_ALPHA if name == "selu" else mpf(-1))]


def piecewise_at(name: str, order: int, z: mpf) -> mpf:
    for low, high, terms in pieces(name, order):
        if low < z <= high:
            return sum((c * z**p * mp.exp(rate * z) for c, p, rate in terms), mpf(0))
    return mpf(0)


def _piece_mean(piece: Piece, m: mpf, v: mpf) -> mpf:
    low, high, terms = piece
    total, width = mpf(0), mp.sqrt(v)
    for c, power, rate in terms:
        mu = m + rate * v  # exp(rate z) shifts the mean
        x, y = (low - mu) / width, (high - mu) / width
        share = mp.ncdf(-x) if high == mp.inf else mp.ncdf(y) - (mp.ncdf(x) if low > -mp.inf else 0)
        if power:
            edge = (mp.npdf(x) if low > -mp.inf else 0) - (mp.npdf(y) if high < mp.inf else 0)
            share = mu * share + width * edge
        total += c * share * (mp.exp(m + v / 2) if rate else 1)
    return total


def inner_mean(name: str, order: int, m: mpf, v: mpf) -> mpf:
    """Mean of the regular part of s^(order) over Normal(m, v)."""
    if v == 0:
        return piecewise_at(name, order, m)
    return sum((_piece_mean(p, m, v) for p in pieces(name, order)), mpf(0))


@functools.cache
def legendre(degree: int) -> list[tuple[mpf, mpf]]:
    """Gauss-Legendre with 3 * 2^(degree - 1) nodes on [-1, 1]."""
    return sorted(GaussLegendre(mp).calc_nodes(degree, mp.prec))


def panel_rule(edges: Sequence[mpf], degree: int) -> list[tuple[mpf, mpf]]:
    rule = []
    for low, high in zip(edges, edges[1:], strict=False):
        middle, half = (low + high) / 2, (high - low) / 2
        rule += [(middle + half * x, half * w) for x, w in legendre(degree)]
    return rule


def graded_edges(centers: Iterable[mpf], smallest: mpf, reach: mpf) -> list[mpf]:
    """Panel edges in [-reach, reach] that double in size away from every center."""
    edges = {-reach, reach}
    for center in centers:
        offset = smallest
        edges.add(center)
        while offset < 2 * reach + abs(center):
            edges |= {center - offset, center + offset}
            offset *= 2
    return sorted(e for e in edges if abs(e) <= reach)


@functools.cache
def outer_rule(name: str, k: Covariance, degree: int) -> list[tuple[mpf, mpf]]:
    """Rule for z1, its density included, that resolves all scales of the conditional means."""
    beta, v = conditional(k)
    width = mp.sqrt(mpf(k[0]))
    kinks = [mpf(-1), mpf(0), mpf(1)] if name == "hardtanh" else [mpf(0)]
    scales = [width, mpf(1)]
    if beta:
        kinks = kinks + [x / beta for x in kinks]
        scales += [1 / abs(beta)] + ([mp.sqrt(v) / abs(beta)] if v else [])
    reach = REACH * width
    edges = graded_edges([x for x in kinks if abs(x) < reach], min(scales), reach)
    return [(z, w * density(z, mpf(k[0]))) for z, w in panel_rule(edges, degree)]


@functools.cache
def conditional_means(name: str, order: int, k: Covariance, degree: int) -> list[mpf]:
    beta, v = conditional(k)
    return [inner_mean(name, order, beta * z, v) for z, _ in outer_rule(name, k, degree)]


def nested_average(name: str, a: int, b: int, k: Covariance, degree: int = 5) -> mpf:
    if b == JUMP_ORDER[name] + 1:
        return nested_average(name, b, a, (k[2], k[1], k[0]), degree)
    if k[0] == 0:
        return piecewise_at(name, a, mpf(0)) * inner_mean(name, b, mpf(0), mpf(k[2]))
    if k[2] == 0:
        return one_leg_mean(name, a, k[0]) * piecewise_at(name, b, mpf(0))
    beta, v = conditional(k)
    total = mpf(0)
    if pieces(name, a):
        means = conditional_means(name, b, k, degree)
        for (z, w), mean in zip(outer_rule(name, k, degree), means, strict=True):
            total += w * piecewise_at(name, a, z) * mean
    for kink, jump in deltas(name, a):
        total += jump * density(kink, mpf(k[0])) * inner_mean(name, b, beta * kink, v)
    return total


def one_leg_mean(name: str, order: int, variance: float) -> mpf:
    regular = inner_mean(name, order, mpf(0), mpf(variance))
    return regular + sum(jump * density(kink, mpf(variance)) for kink, jump in deltas(name, order))


# --- the table --------------------------------------------------------------------------------


def average(name: str, a: int, b: int, k: Covariance) -> mpf:
    if name in LATTICE:
        return lattice_tables(k)[name][a][b]
    if name in JUMP_ORDER and (name not in RAMPS or k[0] == 0 or k[2] == 0):
        return nested_average(name, a, b, k)
    return closed_average(name, a, b, k)


@functools.cache
def size(name: str, order: int, variance: float) -> mpf:
    """Root mean square of a derivative, or the mean absolute measure if it has delta functions."""
    if deltas(name, order) if name in JUMP_ORDER else False:
        points = sum(abs(jump) * density(kink, mpf(variance)) for kink, jump in deltas(name, order))
        return points + abs(inner_mean(name, order, mpf(0), mpf(variance)))
    return mp.sqrt(abs(average(name, order, order, (variance, variance, variance))))


def orders_of(name: str, k: Covariance) -> list[Orders]:
    if name in JUMP_ORDER:
        m = JUMP_ORDER[name]
        orders = [(a, b) for a in range(m + 1) for b in range(m + 1)]
        orders += [o for b in range(m) for o in ((m + 1, b), (b, m + 1))]
        last = m if name == "hardtanh" else m - 1  # the last one continuous at 0
        orders = [(a, b) for a, b in orders if (k[0] or a <= last) and (k[2] or b <= last)]
    else:
        orders = [(a, b) for a in range(HIGHEST + 1) for b in range(HIGHEST + 1)]
    return sorted(o for o in orders if k[0] != k[2] or o[0] >= o[1])


def shown(value: mpf, scale: mpf) -> str:
    """Decimals down to 10^-DIGITS of the scale."""
    if scale == 0 or abs(value) < scale * mpf(10) ** (-DIGITS - 1):
        return "0.0"
    figures = DIGITS + 1 + int(mp.floor(mp.log10(abs(value)))) - int(mp.floor(mp.log10(scale)))
    return mp.nstr(value, max(1, min(DIGITS + 1, figures)))


def entry(name: str, orders: Orders, k: Covariance) -> dict:
    scale = size(name, orders[0], k[0]) * size(name, orders[1], k[2])
    value = average(name, *orders, k)
    if name in JUMP_ORDER and max(orders) > JUMP_ORDER[name]:
        scale = max(scale, abs(value))
    return {
        "activation": name,
        "K": list(k),
        "orders": list(orders),
        "value": shown(value, scale),
        "scale": mp.nstr(scale, 8),
        "digits": DIGITS,
    }


def make() -> list[dict]:
    entries = []
    for k in COVARIANCES:
        start = time.time()
        fresh = [entry(name, orders, k) for name in ACTIVATIONS for orders in orders_of(name, k)]
        entries += fresh
        print(f"{k}: {len(fresh)} entries, {time.time() - start:.1f} s", flush=True)
    return entries


def write(entries: list[dict]) -> None:
    lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
    TABLE.write_text('{"entries":[\n' + lines + "\n]}\n")


# --- cross-checks -----------------------------------------------------------------------------


def _hermite(n: int, z: mpf) -> mpf:
    """He_n(z)."""
    low, high = mpf(0), mpf(1)
    for i in range(n):
        low, high = high, z * high - i * low
    return high


def _gaussian_jet(z: mpf) -> list[mpf]:
    """Phi and its derivatives."""
    return [mp.ncdf(z)] + [(-1) ** (n - 1) * _hermite(n - 1, z) * mp.npdf(z) for n in range(1, HIGHEST + 1)]


def _gelu_jet(z: mpf) -> list[mpf]:
    phi = _gaussian_jet(z)
    return [z * phi[0]] + [z * phi[n] + n * phi[n - 1] for n in range(1, HIGHEST + 1)]


def _erf_jet(z: mpf) -> list[mpf]:
    root = mp.sqrt(2)
    phi = _gaussian_jet(root * z)
    return [mp.erf(z)] + [2 * root**n * phi[n] for n in range(1, HIGHEST + 1)]


def _polynomial_jet(c: Sequence[float], z: mpf) -> list[mpf]:
    out, c = [], list(map(mpf, c))
    for _ in range(HIGHEST + 1):
        out.append(mp.polyval(c[::-1], z))
        c = [n * x for n, x in enumerate(c)][1:] or [mpf(0)]
    return out


def _elu_column(z: mpf, alpha: mpf, scale: mpf) -> list[mpf]:
    if z > 0:
        return [scale * z, scale, mpf(0)]
    return [scale * alpha * mp.expm1(z), scale * alpha * mp.exp(z), scale * alpha * mp.exp(z)]


def _kinked_column(name: str, z: mpf) -> list[mpf]:
    """s up to its jumping derivative."""
    up = z > 0
    if name == "perceptron":
        return [mpf(up)]
    if name == "elu":
        return _elu_column(z, mpf(1), mpf(1))
    if name == "selu":
        return _elu_column(z, SELU_ALPHA, SELU_SCALE)[:2]
    if name == "hardtanh":
        return [max(mpf(-1), min(mpf(1), z)), mpf(abs(z) < 1)]
    slopes = {"relu": (1, 0), "leaky_relu(0.2)": (1, 0.2), "scale_invariant(1.5, -0.5)": (1.5, -0.5)}
    slope = mpf(slopes[name][0 if up else 1])
    return [slope * z, slope]


def check_column(name: str, z: mpf) -> list[mpf]:
    """Pointwise derivatives; for a kinked activation also z times the last one."""
    if name in JUMP_ORDER:
        column = _kinked_column(name, z)
        return [*column, z * column[-1]]
    if name in POLYNOMIALS:
        return _polynomial_jet(POLYNOMIALS[name], z)
    if name == "sin":
        return [mp.sin(z + n * mp.pi / 2) for n in range(HIGHEST + 1)]
    return {**JETS, "erf": _erf_jet, "gelu": _gelu_jet}[name](z)


def from_columns(name: str, orders: Orders, table: Matrix, k: Covariance) -> mpf:
    """The average from a table of pointwise ones, delta functions by integration by parts."""
    a, b = orders
    m = JUMP_ORDER.get(name, HIGHEST)
    if a > m:
        return (table[m + 1][b] - mpf(k[1]) * table[m][b + 1]) / mpf(k[0])
    if b > m:
        return (table[a][m + 1] - mpf(k[1]) * table[a + 1][m]) / mpf(k[2])
    return table[a][b]


def fixed_columns(name: str, nodes: Iterable[mpf]) -> list[list[MPZ]]:
    rows = [[fixed(x) for x in check_column(name, z)] for z in nodes]
    return [list(c) for c in zip(*rows, strict=True)]


def axis_rule(variance: mpf, width: mpf) -> list[tuple[mpf, mpf]]:
    """Panels for one axis of the plane: they grow with |z|, up to three conditional widths."""
    reach, cap = REACH * mp.sqrt(variance), 3 * width
    edges = [mpf(0)]
    while edges[-1] < reach:
        edges.append(edges[-1] + min(max(edges[-1], mpf(1)) / 2, cap))
    edges = sorted({*edges, mpf(1)} if reach > 1 else edges)
    return panel_rule([-e for e in edges[:0:-1]] + edges, degree=4)


def panels(k: Covariance, names: Sequence[str]) -> dict[str, Matrix]:
    """Composite Gauss-Legendre over the (z1, z2) plane."""
    beta, v = conditional(k)
    width = mp.sqrt(v)
    rule1 = axis_rule(mpf(k[0]), width * mp.sqrt(mpf(k[0]) / mpf(k[2])))
    rule2 = axis_rule(mpf(k[2]), width)
    nodes2 = [z for z, _ in rule2]
    left = {n: fixed_columns(n, [z for z, _ in rule1]) for n in names}
    right = {n: fixed_columns(n, nodes2) for n in names}
    sums = {n: [[MPZ(0)] * len(left[n]) for _ in left[n]] for n in names}
    for i, (z, w) in enumerate(rule1):
        low = bisect.bisect_left(nodes2, beta * z - REACH * width)
        high = bisect.bisect_right(nodes2, beta * z + REACH * width)
        row = [fixed(u * mp.exp(-((y - beta * z) ** 2) / (2 * v)) / width) for y, u in rule2[low:high]]
        outer = fixed(w * mp.exp(-z * z / (2 * mpf(k[0]))) / mp.sqrt(mpf(k[0])))
        for n in names:
            inner = [dot(row, c[low:high]) * outer >> 2 * BITS for c in right[n]]
            for a, column in enumerate(left[n]):
                sums[n][a] = [s + column[i] * x for s, x in zip(sums[n][a], inner, strict=True)]
    return {n: [[unfixed(x, 2) / (2 * mp.pi) for x in row] for row in t] for n, t in sums.items()}


def weighted_products(name: str, points: Sequence[tuple[mpf, mpf, mpf]]) -> Matrix:
    """Sum of weight * column(z1) * column(z2) over (z1, z2, weight)."""
    left = fixed_columns(name, [z for z, _, _ in points])
    right = fixed_columns(name, [z for _, z, _ in points])
    weights = [fixed(w) for _, _, w in points]
    scaled = [[x * w >> BITS for x, w in zip(c, weights, strict=True)] for c in left]
    return [[unfixed(dot(x, y), 2) for y in right] for x in scaled]


def ridge(k: Covariance, names: Sequence[str]) -> dict[str, Matrix]:
    """Nearly parallel legs of equal variance: z1 = u + w/2, z2 = +-(u - w/2), u and w independent."""
    sign = 1 if k[1] > 0 else -1
    var_u, var_w = (mpf(k[0]) + sign * mpf(k[1])) / 2, 2 * (mpf(k[0]) - sign * mpf(k[1]))
    end_w, end_u = 12 * mp.sqrt(var_w), REACH * mp.sqrt(var_u)
    spread = {x * s for x in (mpf("0.5"), 2, 3, 5, 8) for s in (-1, 1) if x < end_u} | {-end_u, end_u}
    points = []
    for w, weight_w in panel_rule([-end_w, mpf(0), end_w], degree=5):
        cuts = {x + s * w / 2 for x in (-1, 0, 1) for s in (-1, 1)}
        outer = weight_w * density(w, var_w)
        for u, weight_u in panel_rule(sorted(cuts | spread), degree=4):
            points.append((u + w / 2, sign * (u - w / 2), outer * weight_u * density(u, var_u)))
    return {n: weighted_products(n, points) for n in names}


def line(k: Covariance, names: Sequence[str]) -> dict[str, Matrix]:
    """Parallel legs, or z1 = 0, by panels that double in size away from 0."""
    variance = mpf(k[0] or k[2] or 1)
    width = mp.sqrt(variance)
    edges = graded_edges([mpf(0)], min(mpf(1) / 2, width), 2 ** mp.ceil(mp.log(REACH * width, 2)))
    rule = [(z, w * density(z, variance)) for z, w in panel_rule(edges, degree=5)]
    if k[0] == 0 and k[2] == 0:
        rule = [(mpf(0), mpf(1))]
    beta = mpf(k[1]) / mpf(k[0]) if k[0] else mpf(1)
    points = [(z if k[0] else mpf(0), beta * z, w) for z, w in rule]
    return {n: weighted_products(n, points) for n in names}


def mehler(k: Covariance, names: Sequence[str]) -> dict[str, Matrix]:
    """Hermite series at unit variances."""
    terms = int(mp.ceil(-36 * mp.log(10) / mp.log(abs(mpf(k[1])))))
    rule = [
        (z, w * density(z, mpf(1))) for z, w in panel_rule([mpf(i) / 2 for i in range(-40, 41)], degree=4)
    ]
    columns = {n: fixed_columns(n, [z for z, _ in rule]) for n in names}
    sums = {n: [[mpf(0)] * len(c) for _ in c] for n, c in columns.items()}
    before, now = [mpf(0)] * len(rule), [w for _, w in rule]  # orthonormal, times the weights
    for i in range(terms):
        row = [fixed(x) for x in now]
        for n in names:
            h = [unfixed(dot(row, c), 2) for c in columns[n]]
            for row_sum, x in zip(sums[n], h, strict=True):
                row_sum[:] = [s + mpf(k[1]) ** i * x * y for s, y in zip(row_sum, h, strict=True)]
        p, q = mp.sqrt(mpf(1) / (i + 1)), mp.sqrt(mpf(i) / (i + 1))
        before, now = now, [p * z * x - q * y for (z, _), x, y in zip(rule, now, before, strict=True)]
    return sums


ANALYTIC: dict[str, Callable] = {
    "sigmoid": lambda z: 1 / (1 + mp.exp(-z)),
    "tanh": mp.tanh,
    "softplus": lambda z: mp.log(1 + mp.exp(z)),
    "swish": lambda z: z / (1 + mp.exp(-z)),
    "swish(1.5)": lambda z: z / (1 + mp.exp(-1.5 * z)),
    "mish": lambda z: z * mp.tanh(mp.log(1 + mp.exp(z))),
    "erf": mp.erf,
    "gelu": lambda z: z * (1 + mp.erf(z / mp.sqrt(2))) / 2,
}


def contour() -> mpf:
    """Worst absolute error of a derivative against Cauchy's integral over a unit circle."""
    worst, count = mpf(0), 320
    turns = [mp.expjpi(mpf(2 * i) / count) for i in range(count)]
    for name, function in ANALYTIC.items():
        for z in (mpf(-3.7), mpf(-1), mpf(0), mpf(0.4), mpf(2.9)):
            values = [function(z + t) for t in turns]
            for n, derivative in enumerate(check_column(name, z)):
                total = sum(v * t**-n for v, t in zip(values, turns, strict=True))
                worst = max(worst, abs(derivative - math.factorial(n) * total / count))
    return worst


def compare(k: Covariance, method: Callable, entries: list[dict]) -> None:
    """Print the worst |difference| / scale over the entries of one covariance."""
    start = time.time()
    smooth = ("sin",) if max(k[0], k[2]) >= 100 else ()
    if method is ridge:  # these closed forms have nothing special there
        smooth = ("sin", "erf", "gelu", *POLYNOMIALS)
    names = [n for n in ACTIVATIONS if n not in smooth]
    tables = method(k, names)
    worst, done, where = mpf(0), 0, None
    for e in entries:
        scale, name, orders = mpf(e["scale"]), e["activation"], tuple(e["orders"])
        if tuple(e["K"]) != k or name not in names or 0 < scale < 1e-60:
            continue  # so small a scale means a kink out of reach of z
        error = abs(mpf(e["value"]) - from_columns(name, orders, tables[name], k)) / (scale or 1)
        done += 1
        if error > worst:
            worst, where = error, (name, orders)
    seconds = time.time() - start
    print(
        f"{method.__name__} {k}: {done} entries, {mp.nstr(worst, 2)} at {where}, {seconds:.0f} s", flush=True
    )


def check() -> None:
    entries = json.loads(TABLE.read_text())["entries"]
    print(f"contour: worst {mp.nstr(contour(), 2)}", flush=True)
    for k in COVARIANCES:
        if parallel(k):
            compare(k, line, entries)
        elif k[0] == k[2] and abs(k[1]) > 0.9999 * k[0]:
            compare(k, ridge, entries)
        else:
            compare(k, panels, entries)
        if k in ((1.0, 0.3, 1.0), (1.0, -0.7, 1.0)):
            compare(k, mehler, entries)


def main() -> None:
    parser = argparse.ArgumentParser(description="Two-leg Gaussian averages to 30 digits.")
    parser.add_argument("--check", action="store_true", help="recompute the written table in other ways")
    if parser.parse_args().check:
        check()
    else:
        write(make())


if __name__ == "__main__":
    main()
