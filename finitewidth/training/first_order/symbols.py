r"""Algorithm projectors as symbols of NTK eigenvalues (PDLT section inf.2.3).

All that an algorithm does to a prediction at order 1/n is in sums over ordered steps of the free trajectory,

$$\eta^k \sum_{T > s_1 > \ldots > s_k} u_1^{s_1} \cdots u_k^{s_k}, \qquad u = 1 - \eta l,$$

or their integrals for gradient flow. Such a sum is a divided difference of $x^T$ at the points
$1, u_1, u_1 u_2, \ldots$ (of $e^{-T x}$ at $0, l_1, l_1 + l_2, \ldots$). What the training set feels of it
in mode e begins at $u_e$ instead of 1, and what it has lost of it, over $l_e$, is the divided difference with
$u_e$ as one more point: so nothing is ever divided by an eigenvalue. Divided differences are entries of
a function of a bidiagonal matrix, evaluated here by repeated squaring: small and degenerate eigenvalues lose
no digits, where quotients of differences lose all.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from finitewidth.core.checkpoint import digest
from finitewidth.network.algorithm import Algorithm, GradientDescent, GradientFlow, Projectors, TwoStep

Triangle = dict[tuple[int, int], np.ndarray]  # entries of upper triangular matrices, one array per place
_SMALL = 0.5  # argument of the exponential below which its Taylor series is short
_TERMS = 16


@dataclass(frozen=True)
class Symbols:
    """What an algorithm does to eigenmodes a, b, c of the training NTK, at order 1/n.

    Names follow (inf.142)-(inf.147), symmetrized over legs that the differentials do not tell apart.
    """

    f: np.ndarray  # (1 - u^T) / l, which multiplies the residual, (a)
    f_2: np.ndarray  # divided differences of f as a function of l, (a b)
    f_3: np.ndarray  # (a b c)
    outputs: dict[str, np.ndarray]  # A, B: (a b); IA, IB, IIA, IIB: (a b c)
    absorbed: (
        Callable[[int], dict[str, np.ndarray]] | None
    )  # e: the same over l_e, less what is left of it in
    # the training residual of mode e; None where nothing is left of it


def fingerprint(algorithm: Algorithm) -> str:
    """An algorithm in a configuration; functions are known by what they make of some eigenvalues."""
    if not isinstance(algorithm, Projectors):
        return repr(algorithm)
    with np.errstate(all="ignore"):
        found = symbols(algorithm, np.geomspace(0.01, 100.0, 7)).outputs
    return "Projectors " + digest(np.concatenate([value.ravel() for value in found.values()]))


def symbols(algorithm: Algorithm, eigenvalues: np.ndarray) -> Symbols:
    """The symbols of an algorithm at the eigenvalues of the training NTK."""
    if isinstance(algorithm, GradientFlow | GradientDescent):
        clock = _clock(algorithm)
        names = ("f", "f_2", "f_3")
        differences = dict(zip(names, _differences_of_f(clock, eigenvalues), strict=True))
        outputs = _ordered_symbols(clock, eigenvalues)
        absorbed = functools.cache(functools.partial(_ordered_symbols, clock, eigenvalues))
        return Symbols(**differences, outputs=outputs, absorbed=None if clock.has_converged else absorbed)
    if isinstance(algorithm, TwoStep):
        return _converged(Projectors(), eigenvalues)
    if isinstance(algorithm, Projectors):
        return _converged(algorithm, eigenvalues)
    raise ValueError(
        f"algorithm {algorithm!r} has no symbols at order 1/n; use GradientFlow, GradientDescent, TwoStep "
        "or Projectors."
    )


def _converged(algorithm: Projectors, l: np.ndarray) -> Symbols:
    f_2, f_3 = -1 / np.multiply.outer(l, l), 1 / np.multiply.outer(np.multiply.outer(l, l), l)
    a, b, c = l[:, None, None], l[None, :, None], l[None, None, :]
    two = {
        name: np.broadcast_to(getattr(algorithm, f"Z_{name}")(a[..., 0], b[..., 0]), f_2.shape)
        for name in "AB"
    }
    three = {
        name: np.broadcast_to(getattr(algorithm, f"Z_{name}")(a, b, c), f_3.shape)
        for name in ("IA", "IB", "IIA", "IIB")
    }
    two["B"] = (two["B"] + two["B"].T) / 2
    three["IB"] = _symmetrized(three["IB"])
    three["IA"] = (three["IA"] + three["IA"].transpose(0, 2, 1)) / 2
    return Symbols(1 / l, f_2, f_3, two | three, None)


# --- ordered sums over steps -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Clock:
    """How time passes: steps of size eta, or continuously where eta is zero."""

    eta: float
    duration: float  # number of steps, or time

    @property
    def has_converged(self) -> bool:
        return math.isinf(self.duration)

    def rate(self, l):
        """By what a mode is multiplied in a step, or the rate of its exponential decay."""
        return 1 - self.eta * l if self.eta else l

    def join(self, *rates):
        """The rate of a product of modes."""
        return functools.reduce(np.multiply if self.eta else np.add, rates)

    def ordered(self, *rates, through=None) -> np.ndarray:
        """Sum over s_1 > s_2 > ... of the product of modes, by way of one more point where it is given."""
        joined = [self.join(*rates[: k + 1]) for k in range(len(rates))]
        points = joined if through is None else [through, *joined]
        difference = self.difference(*points)
        if not self.eta:
            return difference
        head = functools.reduce(np.multiply, joined[:-1], 1.0)
        return self.eta ** len(points) * head * difference

    def difference(self, *points) -> np.ndarray:
        """The divided difference at 1 and k points of x^T, or at 0 and k points of (-1)^k e^(-T x)."""
        points = np.broadcast_arrays(*points)
        if self.has_converged:
            return 1 / functools.reduce(np.multiply, [1 - x if self.eta else x for x in points])
        first = np.full_like(points[0], 1.0 if self.eta else 0.0)
        function = _power if self.eta else _exponential
        return function([first, *points], self.duration)[0, len(points)]


def _clock(algorithm: GradientFlow | GradientDescent) -> _Clock:
    if isinstance(algorithm, GradientFlow):
        return _Clock(0.0, algorithm.time)
    return _Clock(algorithm.learning_rate, algorithm.steps)


def _differences_of_f(clock: _Clock, l: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    u = clock.rate(l)
    scale = -clock.eta if clock.eta else -1.0  # du/dl, or the sign that the exponential's difference carries
    size = clock.eta if clock.eta else 1.0
    one, two = clock.difference(u), clock.difference(u[:, None], u)
    three = clock.difference(u[:, None, None], u[:, None], u)
    return size * one, size * scale * two, size * scale**2 * three


def _ordered_symbols(clock: _Clock, l: np.ndarray, e: int | None = None) -> dict[str, np.ndarray]:
    """The symbols as sums over one, two and three ordered steps; with e, what mode e has absorbed of them."""
    u, eta = clock.rate(l), clock.eta
    ordered = functools.partial(clock.ordered, through=None if e is None else u[e])
    a, b, c = u[:, None, None], u[None, :, None], u[None, None, :]
    two, three = ordered(u[:, None], u), ordered(a, b, c)  # a after b after c
    same_two = late = early = same_three = 0.0
    if eta:  # steps may coincide; nothing coincides in continuous time
        same_two = eta * ordered(clock.join(u[:, None], u))
        late = eta * ordered(a, clock.join(b, c))  # a after b = c
        early = eta * ordered(clock.join(a, b), c)  # a = b after c
        same_three = eta**2 * ordered(clock.join(a, b, c))
    either = three + three.transpose(0, 2, 1) + late  # a after b and c
    return {
        "A": two,
        "B": (two + two.T + same_two) / 2,
        "IA": -either / 2,
        "IB": _symmetrized(-either / 2 - early / 2 - same_three / 6),
        "IIA": -three,
        "IIB": -either - three.transpose(1, 0, 2) - early,
    }


def _symmetrized(symbol: np.ndarray) -> np.ndarray:
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    return sum(symbol.transpose(order) for order in orders) / 6  # type: ignore[return-value]


# --- functions of bidiagonal matrices, one for each entry of the arrays -------------------------------


def _product(left: Triangle, right: Triangle, size: int) -> Triangle:
    return {
        (i, j): sum(left[i, m] * right[m, j] for m in range(i, j + 1))  # type: ignore[misc]
        for i in range(size)
        for j in range(i, size)
    }


def _power(points: list[np.ndarray], exponent: float) -> Triangle:
    """The bidiagonal matrix with `points` on its diagonal and ones beside it, to a whole power."""
    size = len(points)
    one, zero = np.ones_like(points[0]), np.zeros_like(points[0])
    result = {(i, j): one if i == j else zero for i in range(size) for j in range(i, size)}
    base = {
        (i, j): points[i] if i == j else one if j == i + 1 else zero
        for i in range(size)
        for j in range(i, size)
    }
    remaining = int(exponent)
    while remaining:
        if remaining % 2:
            result = _product(result, base, size)
        remaining //= 2
        if remaining:
            base = _product(base, base, size)
    return result


def _exponential(points: list[np.ndarray], time: float) -> Triangle:
    """exp(-time B) for the bidiagonal matrix B with ones beside the diagonal taken as minus ones.

    Then all entries are positive and squaring loses nothing.
    """
    size = len(points)
    largest = max(float(np.max(np.abs(x), initial=0.0)) for x in points) * time
    halvings = max(0, math.ceil(math.log2(max(largest, time, 1e-300) / _SMALL)))
    step = time / 2.0**halvings
    one, zero = np.ones_like(points[0]), np.zeros_like(points[0])
    base = {
        (i, j): -step * points[i] if i == j else step * one if j == i + 1 else zero
        for i in range(size)
        for j in range(i, size)
    }
    result = {(i, j): one if i == j else zero for i in range(size) for j in range(i, size)}
    for k in range(_TERMS, 0, -1):  # Horner
        result = {place: value / k for place, value in _product(base, result, size).items()}
        for i in range(size):
            result[i, i] = result[i, i] + 1
    for halving in range(halvings, 0, -1):
        result = _product(result, result, size)
        for i in range(size):  # rounding would double with each squaring
            result[i, i] = np.exp(-time / 2.0 ** (halving - 1) * points[i])
    return result
