r"""The kernel map next to K = 0, where sigma(0) = 0: its first correction decides the fate of deep networks.

At $C_b = 0$, $C_W = 1/A_2$ with $A_2$ the mean of $\sigma'(0^\pm)^2$,

$$K' = K\,(1 + \alpha K^q + \ldots), \qquad \chi_\perp = 1 + \beta K^q + \ldots$$

A smooth activation has q = 1, $\alpha = a_1$, $\beta = b_1$ (PDLT section 5.3.3); one whose first or
second derivative jumps at zero has q = 1/2. For $\alpha < 0$ the kernel falls as
$K \to (-q\alpha l)^{-1/q}$, so that $p_0 = 1/q$ and $p_\perp = \beta/(q\alpha)$, for q = 1 $b_1/a_1$.
"""

import math
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.two_legs.leg_table import LegTable
from finitewidth.gaussian.two_legs.one_leg import Origin

_FLAT = 6.0  # a power beyond this is taken for a function that is linear around zero
_VISIBLE = 1e-9  # corrections well above the error of the averages


class Onset(NamedTuple):
    """The first correction to the kernel map at K = 0.

    `power` is infinite where sigma is linear around zero.
    """

    A_2: float
    power: float  # q
    alpha: float  # sign only, where power is infinite
    beta: float
    numerical: bool  # from averages at small K, not from derivatives at zero

    @property
    def p_0(self) -> float:
        """K falls as l^-p_0."""
        return 1 / self.power

    @property
    def p_perp(self) -> float:
        """A small separation of directions falls as l^-p_perp."""
        return 0.0 if math.isinf(self.power) else self.beta / (self.power * self.alpha)


def onset(zero: Origin, table: LegTable) -> Onset:
    """The first correction that does not vanish."""
    A_2 = zero.slope
    (r1, r2, r3), (l1, l2, l3) = zero.right[1:4], zero.left[1:4]
    odd_part = math.sqrt(2 / math.pi) * (r1 * r2 - l1 * l2) / A_2
    scale = (abs(r1 * r2) + abs(l1 * l2)) / A_2
    if abs(odd_part) > 1e-10 * scale:
        return Onset(A_2, 0.5, odd_part, odd_part, numerical=False)
    a_1 = (r1 * r3 / 2 + 3 / 8 * r2**2 + l1 * l3 / 2 + 3 / 8 * l2**2) / A_2
    b_1 = (r1 * r3 + r2**2 + l1 * l3 + l2**2) / (2 * A_2)
    scale = (abs(r1 * r3) + r2**2 + abs(l1 * l3) + l2**2) / A_2
    if abs(a_1) > 1e-10 * scale:
        return Onset(A_2, 1.0, a_1, b_1, numerical=False)
    return _from_averages(A_2, table)


def _from_averages(A_2: float, table: LegTable) -> Onset:
    correction = table.averages.square / (A_2 * table.K) - 1
    visible = np.flatnonzero(np.abs(correction) > np.maximum(_VISIBLE, 100 * table.averages.error))
    if visible.size < 2:
        return Onset(A_2, math.inf, 0.0, 0.0, numerical=True)
    first = int(visible[0])
    second = min(first + 8, int(visible[-1]))  # a quarter of a decade further
    power = float(np.log(correction[second] / correction[first]) / np.log(table.K[second] / table.K[first]))
    half_steps = round(2 * power) / 2
    power = half_steps if abs(power - half_steps) < 0.02 * half_steps else power
    alpha = float(correction[first] / table.K[first] ** power)
    beta = float((table.averages.slope[first] / A_2 - 1) / table.K[first] ** power)
    if power > _FLAT:
        return Onset(A_2, math.inf, math.copysign(1.0, alpha), 0.0, numerical=True)
    return Onset(A_2, power, alpha, beta, numerical=True)
