r"""One input through a residual network, to any depth: the memory of a neuron in Hermite coefficients.

A neuron's noise of earlier layers, as it answers in layer l, is kept by its Hermite coefficients with the
neuron's own preactivation, $A_m = \langle a\, he_m(z/\sqrt K)\rangle$ for each feature a. A layer adds its
own, $\Psi_m$, and a skip with correlation $\rho = \gamma\sqrt{K/K'}$ multiplies them:

$$A'_m = \gamma^t \rho^m \left[ M A_m + \Theta^t \Psi_m \right], \qquad
  N' = r M N M^T + \Theta^t \langle\Psi\Psi\rangle + (M A)\Psi^T + \Psi (M A)^T, \qquad M = \gamma^2 + L,$$

with t ties of Theta, L the maps of dense layers and N the tensors without their bare terms. This is written
independently of the sum over pairs of layers, takes a time that grows as the depth, and is tested against it.
"""

from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.hermite import weighted_hermite
from finitewidth.gaussian.tower import Tower
from finitewidth.network.ladder import Ladder
from finitewidth.network.layers.activation import Activation
from finitewidth.network.network import Network
from finitewidth.theory.single import NAMES, SingleInput, grid
from finitewidth.theory.tensors import SHAPES

_TERMS = 160  # Hermite coefficients
_FEATURES = "vxfybprsu"
_TIES = np.array([0, 0, 1, 1, 2, 2, 2, 2, 3])  # factors of Theta in the tensors of each feature
_TOGETHER = _TIES[:, None] == _TIES
_PLACE = {name: place for place, name in enumerate(_FEATURES)}


def applies(net: Network) -> bool:
    """Smooth activations, and skips over one layer each."""
    skips = enumerate(net.ladder.skips)
    return net.is_smooth and all(skip is None or skip.source == layer for layer, skip in skips)


class _Now(NamedTuple):
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


class _Rule:
    """Nodes for an activation and variances up to the widest, with Hermite polynomials at them."""

    def __init__(self, activation: Activation, widest: float, tolerance: float):
        (points, weights), self.error = grid(activation, widest, tolerance)
        self.points, self.weights = np.asarray(points), np.asarray(weights)
        self.hermite = weighted_hermite(self.points, self.weights, _TERMS)
        self.tower = Tower(activation, 5)


class _Averages:
    """Averages over one preactivation of variance K: ab is <s^(a) s^(b)>, and Hermite coefficients."""

    def __init__(self, rule: "_Rule", K: float):
        self.weights, self.hermite = rule.weights, rule.hermite
        self.s = rule.tower(np.sqrt(K) * rule.points)

    def pair(self, a: int, b: int) -> float:
        return float(self.s[a] * self.s[b] @ self.weights)

    def coefficients(self, *products: tuple[float, int, int]) -> np.ndarray:
        """Of a sum of factor * s^(a) s^(b)."""
        return self.hermite @ self.values(*products)

    def values(self, *products: tuple[float, int, int]) -> np.ndarray:
        return sum(factor * self.s[a] * self.s[b] for factor, a, b in products)  # type: ignore[return-value]


def single_stream(net: Network, square: float, tolerance: float) -> SingleInput:
    """All statistics of all layers for one input with mean square component `square`."""
    bottom = net.ladder.dense[0]
    K, Theta = bottom.C_b + bottom.C_W * square, bottom.lambda_b + bottom.lambda_W * square
    nothing = np.zeros((9, 9)), np.zeros((9, _TERMS))
    first, widest = _Now(float(K), float(Theta), 0.0, 0.0, *nothing), K
    while True:  # the grids must fit the largest variance on the way
        rules = {one: _Rule(one, widest, tolerance) for one in dict.fromkeys(net.ladder.activations)}
        layers = [first]
        for layer, activation in enumerate(net.ladder.activations, start=1):
            layers.append(_next(net.ladder, layer, layers[-1], rules[activation]))
        largest = max(layer.K for layer in layers)
        if not np.isfinite(largest):
            raise ValueError("the kernel grows beyond double precision with depth; lower C_W or the depth.")
        if largest <= 1.0001 * widest:
            break
        widest = 1.01 * largest
    table = [layer.statistics() for layer in layers]
    error = max([0.0, *(rule.error for rule in rules.values())])
    return SingleInput({name: np.array([row[name] for row in table]) for name in NAMES}, error)


def _next(ladder: Ladder, layer: int, now: _Now, rule: _Rule) -> _Now:
    dense, skip = ladder.dense[layer], ladder.skips[layer]
    gamma, ratio = (skip.gamma if skip else 0.0), ladder.widths[layer] / ladder.widths[layer - 1]
    C, lW, tied = dense.C_W, dense.lambda_W, dense.C_W * now.Theta
    m = _Averages(rule, now.K)
    features = _created(m, C, lW, tied)
    created = features @ m.hermite.T
    moments = (features * m.weights) @ features.T
    means = features @ m.weights
    moments -= np.where(_TIES[:, None] + _TIES == 0, np.multiply.outer(means, means), 0.0)
    created[_TIES == 0, 0] = 0.0  # covariances
    M = gamma**2 * np.eye(9) + _maps(m, C, lW, tied)
    lifted, ties = M @ now.A, now.Theta ** _TIES[:, None]
    met = lifted @ created.T
    N = ratio * M @ now.N @ M.T + np.where(_TOGETHER, ties * moments + met + met.T, 0.0)
    K = gamma**2 * now.K + dense.C_b + C * m.pair(0, 0)
    Theta = gamma**2 * now.Theta + dense.lambda_b + lW * m.pair(0, 0) + tied * m.pair(1, 1)
    rho = gamma * np.sqrt(now.K / K) if K > 0 else 0.0
    A = np.power(gamma, _TIES)[:, None] * rho ** np.arange(_TERMS) * (lifted + ties * created)
    G1, H1 = _corrections(now, m, C, lW, gamma)
    return _Now(K, Theta, ratio * G1, ratio * H1, N, A if gamma else np.zeros_like(A))


def _created(m: _Averages, C: float, lW: float, tied: float) -> np.ndarray:
    """The features of one neuron at all nodes, (feature, node)."""
    return np.stack(
        [
            m.values((C, 0, 0)),
            m.values((lW, 0, 0), (tied, 1, 1)),
            m.values((C, 1, 0)),
            m.values((lW, 1, 0), (tied, 2, 1)),
            m.values((C, 1, 1)),
            m.values((C, 2, 0)),
            m.values((lW, 2, 0), (tied, 3, 1)),
            m.values((lW, 1, 1), (tied, 2, 2)),
            m.values((C, 2, 1)),
        ]
    )


def _maps(m: _Averages, C: float, lW: float, tied: float) -> np.ndarray:
    """How dense weights move the features, (new, old)."""
    chi, lifted = C * m.pair(1, 1), C * m.pair(2, 0)
    first = lW * m.pair(2, 0) + tied * m.pair(3, 1)
    both = lW * m.pair(1, 1) + tied * m.pair(2, 2)
    entries = {
        **{name + name: chi for name in "xybrsu"},
        **{name + name: chi + lifted for name in "vfp"},
        **{"xv": first + both, "yf": first + both, "pb": lifted, "rb": first, "rp": first + both, "sb": both},
    }
    maps = np.zeros((9, 9))
    for (new, old), value in entries.items():
        maps[_PLACE[new], _PLACE[old]] = value
    return maps


def _corrections(now: _Now, m: _Averages, C: float, lW: float, gamma: float) -> tuple[float, float]:
    """G1 and H1 of the next layer, with what the neuron's memory adds, before the ratio of widths."""
    v, x, f = (_PLACE[name] for name in "vxf")
    V, D, F = now.N[v, v], now.N[x, v], now.N[f, f]
    g, h = (m.pair(u + 2, u) + m.pair(u + 1, u + 1) for u in (0, 1))
    own = [float(now.A[v] @ m.coefficients((1, u + 2, u), (1, u + 1, u + 1))) for u in (0, 1)]
    bends = [2 * m.pair(u + 4, u) + 8 * m.pair(u + 3, u + 1) + 6 * m.pair(u + 2, u + 2) for u in (0, 1)]
    signal, bent = (now.G1 * a + V / 8 * b + c for a, b, c in zip((g, h), bends, own, strict=True))
    tied = now.A[x] @ m.coefficients((1, 1, 1)) + 4 * now.A[f] @ m.coefficients((1, 2, 1))
    gradient = m.pair(1, 1) * now.H1 + now.Theta * bent + h * (D + 2 * F) + float(tied)
    return C * signal + gamma**2 * now.G1, lW * signal + C * gradient + gamma**2 * now.H1
