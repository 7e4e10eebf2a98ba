r"""The symbols of gradient descent and gradient flow (PDLT section inf.2.3).

The whole effect of an algorithm on a prediction at order 1/n is in sums over ordered steps of the free
trajectory,

$$\eta^k \sum_{T > s_1 > \ldots > s_k} u_1^{s_1} \cdots u_k^{s_k}, \qquad u = 1 - \eta l,$$

or their integrals for gradient flow. Such a sum is a divided difference of $x^T$ at the points
$1, u_1, u_1 u_2, \ldots$ (of $e^{-T x}$ at $0, l_1, l_1 + l_2, \ldots$). The part of it that is left in
the residual of training mode e begins at $u_e$ instead of 1. The part that mode e has absorbed, over $l_e$,
is the divided difference with $u_e$ as one more point: nothing is ever divided by an eigenvalue.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from finitewidth.network.algorithms.divided_differences import exponential, power
from finitewidth.network.algorithms.symbols import Symbols, symmetrized


@dataclass(frozen=True)
class Clock:
    """How time passes: in steps of size eta, or continuously where eta is zero."""

    eta: float
    duration: float  # number of steps, or time

    def symbols(self, l: np.ndarray) -> Symbols:
        """The symbols of training by this clock at eigenvalues l of the training NTK."""
        f, f_2, f_3 = _differences_of_f(self, l)
        outputs = _ordered_symbols(self, l)
        if self.has_converged:
            return Symbols(f, f_2, f_3, outputs, None)
        return Symbols(f, f_2, f_3, outputs, functools.cache(functools.partial(_ordered_symbols, self, l)))

    def decayed(self, l: np.ndarray) -> np.ndarray:
        """What is left in the end of the residual of a mode."""
        return (1 - self.eta * l) ** int(self.duration) if self.eta else np.exp(-l * self.duration)

    def absorbed(self, l: np.ndarray) -> np.ndarray:
        """(1 - decayed) / l, without loss of digits where l is small or zero: the response f."""
        return (self.eta or 1.0) * self.difference(self.rate(l))

    def until(self, duration: float) -> "Clock":
        """The same clock stopped at another time."""
        return Clock(self.eta, duration)

    @property
    def has_converged(self) -> bool:
        """Whether training goes on for ever."""
        return math.isinf(self.duration)

    def rate(self, l):
        """The factor of a mode in one step, or the rate of its exponential decay."""
        return 1 - self.eta * l if self.eta else l

    def join(self, *rates):
        """The rate of a product of modes."""
        return functools.reduce(np.multiply if self.eta else np.add, rates)

    def ordered(self, *rates, through=None) -> np.ndarray:
        """The sum over s_1 > s_2 > ... of the product of modes; `through` is one more point, if given."""
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
        function = power if self.eta else exponential
        return function([first, *points], self.duration)[0, len(points)]


def _differences_of_f(clock: Clock, l: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """f and its divided differences as a function of the eigenvalue."""
    u = clock.rate(l)
    scale = -clock.eta if clock.eta else -1.0  # du/dl, or the sign that the exponential's difference carries
    size = clock.eta if clock.eta else 1.0
    one, two = clock.absorbed(l), clock.difference(u[:, None], u)
    three = clock.difference(u[:, None, None], u[:, None], u)
    return one, size * scale * two, size * scale**2 * three


def _ordered_symbols(clock: Clock, l: np.ndarray, e: int | None = None) -> dict[str, np.ndarray]:
    """The symbols as sums over one, two and three ordered steps; with e, the part that mode e absorbed."""
    u, eta = clock.rate(l), clock.eta
    ordered = functools.partial(clock.ordered, through=None if e is None else u[e])
    a, b, c = u[:, None, None], u[None, :, None], u[None, None, :]
    two, three = ordered(u[:, None], u), ordered(a, b, c)  # a after b after c
    same_two = late = early = same_three = 0.0
    if eta:  # steps may coincide, which has no weight in continuous time
        same_two = eta * ordered(clock.join(u[:, None], u))
        late = eta * ordered(a, clock.join(b, c))  # a after b = c
        early = eta * ordered(clock.join(a, b), c)  # a = b after c
        same_three = eta**2 * ordered(clock.join(a, b, c))
    either = three + three.transpose(0, 2, 1) + late  # a after b and c
    return {
        "A": two,
        "B": (two + two.T + same_two) / 2,
        "IA": -either / 2,
        "IB": symmetrized(-either / 2 - early / 2 - same_three / 6),
        "IIA": -three,
        "IIB": -either - three.transpose(1, 0, 2) - early,
    }
