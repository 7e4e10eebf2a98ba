r"""One input through a residual network, to any depth: the memory of a neuron in Hermite coefficients.

A neuron's noise of earlier layers, as it answers in layer l, is kept by its Hermite coefficients with the
neuron's own preactivation, $A_m = \langle a\, he_m(z/\sqrt K)\rangle$ for each feature a. A layer adds its
own, $\Psi_m$, and a skip with correlation $\rho = \gamma\sqrt{K/K'}$ multiplies them:

$$A'_m = \gamma^t \rho^m \left[ M A_m + \Theta^t \Psi_m \right], \qquad
  N' = r M N M^T + \Theta^t \langle\Psi\Psi\rangle + (M A)\Psi^T + \Psi (M A)^T, \qquad M = \gamma^2 + L,$$

with t ties of Theta, L the maps of dense layers and N the tensors without their bare terms. This is written
independently of the sum over pairs of layers, takes a time that grows as the depth, and is tested against it.

The coefficients of smooth activations fall fast. Those of two straight lines fall as powers of m and are
known exactly; terms of the series then fall as $m^{-3/2} \rho^m$. It is cut where the rest is below the
tolerance or after 65 536 terms, more in shallow networks, and the rest is reported.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.gaussian.hermite import weighted_hermite
from finitewidth.gaussian.tower import Tower
from finitewidth.network.ladder import Ladder
from finitewidth.network.layers.activation import Activation
from finitewidth.network.network import Network
from finitewidth.theory import one_input
from finitewidth.theory.layers.dense import Means, behind_weights
from finitewidth.theory.one_input import NAMES, SingleInput
from finitewidth.theory.steps import TwoLegs, over_depth
from finitewidth.theory.tensors import SHAPES

_TERMS = 160  # Hermite coefficients of a smooth activation
_MOST_TERMS = 1 << 16, 1 << 18  # of any, in deep and in shallow networks
_FEATURES = "vxfybprsu"
_TIES = np.array([0, 0, 1, 1, 2, 2, 2, 2, 3])  # factors of Theta in the tensors of each feature
_TOGETHER = _TIES[:, None] == _TIES
_PLACE = {name: place for place, name in enumerate(_FEATURES)}


def applies(net: Network) -> bool:
    """Smooth activations and those that are two straight lines, and skips over one layer each."""
    skips = enumerate(net.ladder.skips)
    return one_input.applies(net) and all(skip is None or skip.source == layer for layer, skip in skips)


class _Layer(NamedTuple):
    """One layer: means, their corrections, tensors without bare terms, and the memory of a neuron."""

    K: float
    Theta: float
    G1: float
    H1: float
    N: np.ndarray  # (feature, feature)
    A: np.ndarray  # (feature, Hermite order)

    def statistics(self) -> dict[str, float]:
        """All statistics, with the bare terms of the tensors."""
        A, root = self.A, np.sqrt(self.K)
        bare = {0: np.sqrt(2) * self.K * A[:, 2], 1: root * A[:, 1], 2: A[:, 0], 3: 0 * A[:, 0]}
        values = {"K": self.K, "Theta": self.Theta, "G1": self.G1, "H1": self.H1}
        for name, shape in SHAPES.items():
            row, column = _PLACE[shape.row], _PLACE[shape.column]
            values[name] = float(self.N[row, column])
            ties = bare[len(shape.ties)]
            values[name] += ties[row] * (shape.column in "vfb") + ties[column] * (shape.row in "vfb")
        return values


class _Source(NamedTuple):
    """What a layer creates: features of one neuron."""

    coefficients: np.ndarray  # (feature, Hermite order)
    moments: np.ndarray  # <feature feature>
    means: np.ndarray

    def centred(self) -> "_Source":
        """The features of a kernel and an NTK as deviations from their means."""
        untied = _TIES == 0
        squares = np.where(
            np.logical_and.outer(untied, untied), np.multiply.outer(self.means, self.means), 0.0
        )
        coefficients = self.coefficients.copy()
        coefficients[untied, 0] = 0.0
        return _Source(coefficients, self.moments - squares, self.means)


class _Response(NamedTuple):
    """How the square of u = sigma or sigma' answers to the kernel, and to a neuron's own memory."""

    first: float  # <u''u> + <u'u'>
    second: float  # 2<u''''u> + 8<u'''u'> + 6<u''u''>
    own: np.ndarray  # Hermite coefficients of u''u + u'u'


class _Smooth:
    """Nodes for an activation and variances up to the widest, with Hermite polynomials at them."""

    def __init__(self, activation: Activation, widest: float, tolerance: float):
        (points, weights), self.error = one_input.grid(activation, widest, tolerance)
        self.points, self.weights = np.asarray(points), np.asarray(weights)
        self.hermite = weighted_hermite(self.points, self.weights, _TERMS)
        self.tower = Tower(activation, 5)

    def at(self, K: float, terms: int) -> "_SmoothLayer":
        return _SmoothLayer(self, K, terms)


class _SmoothLayer:
    """Averages over one preactivation of variance K: ab is <s^(a) s^(b)>, and Hermite coefficients."""

    def __init__(self, rule: _Smooth, K: float, terms: int):
        self.weights, self.hermite, self.terms = rule.weights, rule.hermite, terms
        self.s = rule.tower(np.sqrt(K) * rule.points)

    def pair(self, a: int, b: int) -> float:
        return float(self.s[a] * self.s[b] @ self.weights)

    def _coefficients(self, *products: tuple[float, int, int]) -> np.ndarray:
        """Of a sum of factor * s^(a) s^(b)."""
        return self._whole(self.hermite @ self._values(*products))

    def slope_square(self) -> np.ndarray:
        """Hermite coefficients of sigma'^2."""
        return self._coefficients((1, 1, 1))

    def _values(self, *products: tuple[float, int, int]) -> np.ndarray:
        return sum(factor * self.s[a] * self.s[b] for factor, a, b in products)  # type: ignore[return-value]

    def _whole(self, coefficients: np.ndarray) -> np.ndarray:
        """Coefficients (last axis) continued by zeros."""
        return np.pad(
            coefficients, [(0, 0)] * (coefficients.ndim - 1) + [(0, self.terms - coefficients.shape[-1])]
        )

    def created(self, C: float, lW: float, tied: float) -> _Source:
        features = np.stack(
            [
                self._values((C, 0, 0)),
                self._values((lW, 0, 0), (tied, 1, 1)),
                self._values((C, 1, 0)),
                self._values((lW, 1, 0), (tied, 2, 1)),
                self._values((C, 1, 1)),
                self._values((C, 2, 0)),
                self._values((lW, 2, 0), (tied, 3, 1)),
                self._values((lW, 1, 1), (tied, 2, 2)),
                self._values((C, 2, 1)),
            ]
        )
        coefficients = self._whole(features @ self.hermite.T)
        return _Source(coefficients, (features * self.weights) @ features.T, features @ self.weights)

    def maps(self, C: float, lW: float, tied: float) -> np.ndarray:
        """How dense weights move the features, (new, old)."""
        chi, lifted = C * self.pair(1, 1), C * self.pair(2, 0)
        first = lW * self.pair(2, 0) + tied * self.pair(3, 1)
        both = lW * self.pair(1, 1) + tied * self.pair(2, 2)
        return _matrix(
            {
                **{name + name: chi for name in "xybrsu"},
                **{name + name: chi + lifted for name in "vfp"},
                **{"xv": first + both, "yf": first + both, "pb": lifted, "rb": first, "rp": first + both},
                "sb": both,
            }
        )

    def response(self, u: int) -> _Response:
        first = self.pair(u + 2, u) + self.pair(u + 1, u + 1)
        second = 2 * self.pair(u + 4, u) + 8 * self.pair(u + 3, u + 1) + 6 * self.pair(u + 2, u + 2)
        return _Response(first, second, self._coefficients((1, u + 2, u), (1, u + 1, u + 1)))

    def slope_times_curvature(self) -> np.ndarray:
        """Hermite coefficients of sigma'' sigma'."""
        return self._coefficients((1, 2, 1))


def _matrix(entries: dict[str, float]) -> np.ndarray:
    maps = np.zeros((9, 9))
    for (new, old), value in entries.items():
        maps[_PLACE[new], _PLACE[old]] = value
    return maps


class _ScaleInvariant:
    """Two straight lines: everything follows from the Hermite coefficients of the sign of x."""

    error = 0.0

    def __init__(self, slopes: tuple[float, float]):
        plus, minus = (slope**2 for slope in slopes)
        self.even, self.odd = (plus + minus) / 2, (plus - minus) / 2

    def at(self, K: float, terms: int) -> "_ScaleInvariantLayer":
        if K == 0:
            raise ValueError(
                "the preactivations of a layer vanish, where kinked activations have no G1 and H1; give it "
                "biases (C_b) or an input that is not zero, or use a smooth activation."
            )
        return _ScaleInvariantLayer(self.even, self.odd, K, terms)


class _ScaleInvariantLayer:
    """sigma'^2 = w(x), sigma' sigma = sqrt K x w and sigma^2 = K x^2 w, where x = z / sqrt K.

    w = even + odd sgn(x). There are no features with second derivatives. Derivatives of w are those of its
    Hermite series.
    """

    def __init__(self, even: float, odd: float, K: float, terms: int):
        self.K, self.terms, self.A_2, self.A_4 = K, terms, even, even**2 + odd**2
        self.unit = _sign_coefficients(even, odd, terms)

    def pair(self, a: int, b: int) -> float:
        return {(0, 0): self.A_2 * self.K, (1, 1): self.A_2}[a, b]

    def slope_square(self) -> np.ndarray:
        return self.unit.w

    def created(self, C: float, lW: float, tied: float) -> _Source:
        weights = np.zeros((9, 3))  # of s^2, s's and s'^2
        weights[_PLACE["v"]] = C * self.K, 0, 0
        weights[_PLACE["x"]] = lW * self.K, 0, tied
        weights[_PLACE["f"]] = 0, C * np.sqrt(self.K), 0
        weights[_PLACE["b"]] = 0, 0, C
        basis = np.stack([self.unit.xxw, self.unit.xw, self.unit.w])
        moments = self.A_4 * np.array([[3.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
        return _Source(weights @ basis, weights @ moments @ weights.T, weights @ basis[:, 0])

    def maps(self, C: float, lW: float, tied: float) -> np.ndarray:
        chi = C * self.A_2
        return _matrix({**{name + name: chi for name in "xbvf"}, "xv": lW * self.A_2})

    def response(self, u: int) -> _Response:
        """<s s> = A_2 K and <s' s'> = A_2, but (sigma^2)''/2 = w and (sigma'^2)''/2 are functions of x."""
        if u == 0:
            return _Response(self.A_2, 0.0, self.unit.w)
        return _Response(0.0, 0.0, self.unit.curvature / (2 * self.K))

    def slope_times_curvature(self) -> np.ndarray:
        return self.unit.slope / (2 * np.sqrt(self.K))


class _SignCoefficients(NamedTuple):
    """Hermite coefficients of w = even + odd sgn and of what is made of it."""

    w: np.ndarray
    xw: np.ndarray
    xxw: np.ndarray
    slope: np.ndarray  # dw/dx
    curvature: np.ndarray  # its second derivative


@functools.lru_cache(maxsize=16)
def _sign_coefficients(even: float, odd: float, terms: int) -> _SignCoefficients:
    """With those of the sign of x, 2 he_(m-1)(0) phi(0) / sqrt(m)."""
    roots = np.sqrt(np.arange(1, terms + 2))
    at_zero = np.zeros(terms + 1)
    pairs = np.arange(2, terms + 1, 2)
    at_zero[::2] = np.cumprod(np.append(1.0, -np.sqrt((pairs - 1) / pairs)))  # he_m(0) of even m
    w = np.concatenate([[even], odd * math.sqrt(2 / math.pi) * at_zero / roots])

    def times_x(f: np.ndarray) -> np.ndarray:  # the last is wrong, for want of the next
        return np.append(roots * f[1:], 0.0) + np.append(0.0, roots * f[:-1])

    def derivative(f: np.ndarray) -> np.ndarray:
        return roots[: f.size - 1] * f[1:]

    slope = derivative(w)
    made = w, times_x(w), times_x(times_x(w)), slope, derivative(slope)
    return _SignCoefficients(*(part[:terms] for part in made))


def single_stream(net: Network, square: float, tolerance: float) -> SingleInput:
    """All statistics of all layers for one input with mean square component `square`."""
    with SingleThreadedProducts():
        return _solved(net, square, tolerance)


def _solved(net: Network, square: float, tolerance: float) -> SingleInput:
    ladder, terms = net.ladder, _TERMS
    first = Means(*map(float, behind_weights(ladder.dense[0], square)))
    widest = first.K
    while True:  # grids must fit the largest variance on the way, series the strongest memory
        rules = {one: _rule(one, widest, tolerance) for one in dict.fromkeys(ladder.activations)}
        layers = over_depth(ladder, first, functools.partial(_two_legs, ladder, rules, terms))
        now = _Layer(*first, 0.0, 0.0, np.zeros((9, 9)), np.zeros((9, terms)))
        table = [now.statistics()]
        for layer, (_, averages, above) in enumerate(layers, start=1):
            now = _next(ladder, layer, now, averages.details, above)
            table.append(now.statistics())
        variances = [row["K"] for row in table]
        if not np.isfinite(largest := max(variances)):
            raise ValueError("the kernel grows beyond double precision with depth; lower C_W or the depth.")
        needed, rest = (terms, 0.0) if net.is_smooth else _length(ladder, variances, terms, tolerance)
        if largest <= 1.0001 * widest and needed == terms:
            break
        widest, terms = max(widest, 1.01 * largest), needed
    error = max([0.0, *(rule.error for rule in rules.values())])
    return SingleInput({name: np.array([row[name] for row in table]) for name in NAMES}, error, rest)


def _two_legs(ladder: Ladder, rules: dict, terms: int, layer: int, K: float) -> TwoLegs:
    m = rules[ladder.activations[layer - 1]].at(K, terms)
    return TwoLegs(m.pair(0, 0), m.pair(1, 1), m)


def _rule(activation: Activation, widest: float, tolerance: float) -> "_Smooth | _ScaleInvariant":
    if activation.is_smooth:
        return _Smooth(activation, widest, tolerance)
    assert activation.slopes is not None
    return _ScaleInvariant(activation.slopes)


def _length(ladder: Ladder, variances: list[float], terms: int, tolerance: float) -> tuple[int, float]:
    """Terms that a series needs with the strongest memory, and its rest relative to its scale."""
    pairs = zip(variances[:-1], variances[1:], ladder.skips[1:], strict=True)
    rho = max(abs(skip.gamma) * math.sqrt(below / above) for below, above, skip in pairs if skip)
    most = int(np.clip((1 << 24) // len(variances), *_MOST_TERMS))
    while terms < most and _rest(rho, terms) > tolerance:
        terms = min(most, 5 * terms // 4)
    return terms, _rest(rho, terms)


def _rest(rho: float, terms: int) -> float:
    """The sum of m^(-3/2) rho^m over the terms left out, or more."""
    return rho**terms * terms**-0.5 * min(2.0, 1 / (terms * max(1 - rho, 1e-16)))


def _next(
    ladder: Ladder, layer: int, now: _Layer, m: "_SmoothLayer | _ScaleInvariantLayer", above: Means
) -> _Layer:
    dense, skip = ladder.dense[layer], ladder.skips[layer]
    gamma, ratio = (skip.gamma if skip else 0.0), ladder.widths[layer] / ladder.widths[layer - 1]
    C, lW, tied = dense.C_W, dense.lambda_W, dense.C_W * now.Theta
    created = m.created(C, lW, tied).centred()
    M = gamma**2 * np.eye(9) + m.maps(C, lW, tied)
    lifted, ties = M @ now.A, now.Theta ** _TIES[:, None]
    remembered = lifted @ created.coefficients.T
    N = ratio * M @ now.N @ M.T + np.where(_TOGETHER, ties * created.moments + remembered + remembered.T, 0.0)
    rho = gamma * np.sqrt(now.K / above.K) if above.K > 0 else 0.0
    A = np.power(gamma, _TIES)[:, None] * rho ** np.arange(m.terms) * (lifted + ties * created.coefficients)
    G1, H1 = _corrections(now, m, C, lW, gamma)
    return _Layer(*above, ratio * G1, ratio * H1, N, A if gamma else np.zeros_like(A))


def _corrections(now: _Layer, m: "_SmoothLayer | _ScaleInvariantLayer", C: float, lW: float, gamma: float):
    """G1 and H1 of the next layer, with what the neuron's memory adds, before the ratio of widths."""
    v, x, f = (_PLACE[name] for name in "vxf")
    V, D, F = now.N[v, v], now.N[x, v], now.N[f, f]
    responses = m.response(0), m.response(1)
    signal, slope = (now.G1 * r.first + V / 8 * r.second + float(now.A[v] @ r.own) for r in responses)
    tied = now.A[x] @ m.slope_square() + 4 * now.A[f] @ m.slope_times_curvature()
    tied = float(tied) + responses[1].first * (D + 2 * F)
    gradient = m.pair(1, 1) * now.H1 + now.Theta * slope + tied
    return C * signal + gamma**2 * now.G1, lW * signal + C * gradient + gamma**2 * now.H1
