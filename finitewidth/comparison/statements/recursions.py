"""The recursions for one input as the sources print them, for tanh, by Gauss-Hermite averages.

Derivatives with respect to the kernel are averages with polynomials of z, d<f>/dK = <f (z^2 - K)> / 2 K^2.
The library differentiates the activation instead, so that the two ways share only the equations.
"""

import numpy as np

from finitewidth.comparison.statements.problems import hermite
from finitewidth.network.network import Network

NAMES = ("K", "Theta", "G1", "H1", "V", "D", "A", "F", "B", "P", "Q", "R", "S", "T", "U")


class _Averages:
    """Averages over one Gaussian number of variance K of products of tanh and its derivatives."""

    def __init__(self, K: float):
        x, self.weights = hermite(160)
        self.K, self.z = K, np.sqrt(K) * x
        t = np.tanh(self.z)
        u = 1 - t**2
        self.s = (t, u, -2 * t * u, -2 * u * (1 - 3 * t**2))

    def __call__(self, *orders: int, polynomial=1.0) -> float:
        product = np.prod([self.s[order] for order in orders], axis=0)
        return float(self.weights @ (product * polynomial))

    def by_kernel(self, *orders: int) -> tuple[float, float]:
        """First and second derivative with respect to K."""
        z, K = self.z, self.K
        first = self(*orders, polynomial=z**2 - K) / (2 * K**2)
        return first, self(*orders, polynomial=z**4 - 6 * K * z**2 + 3 * K**2) / (4 * K**4)


def single_input(net: Network, square: float) -> dict[str, np.ndarray]:
    """Every statistic at every layer, for equal widths and an input with mean square component `square`."""
    now: dict[str, float] = {name: 0.0 for name in NAMES}  # noqa: C420  (of any string)
    now |= {"K": net.C_b[0] + net.C_W[0] * square, "Theta": net.lambda_b[0] + net.lambda_W[0] * square}
    layers = [now]
    for l in range(1, net.depth):
        now = _next(now, net.C_b[l], net.C_W[l], net.lambda_b[l], net.lambda_W[l])
        layers.append(now)
    return {name: np.array([layer[name] for layer in layers]) for name in NAMES}


def _next(old: dict[str, float], C_b: float, C: float, lb: float, lW: float) -> dict[str, float]:
    """The statistics of the next layer."""
    m = _Averages(old["K"])
    Th, V, D, F, B, P, Q = (old[name] for name in ("Theta", "V", "D", "F", "B", "P", "Q"))
    (g, g2), (h, h2) = m.by_kernel(0, 0), m.by_kernel(1, 1)
    chi, X, x = C * m(1, 1), lW * m(0, 0) + C * Th * m(1, 1), lW * g + C * Th * h
    shift = g * old["G1"] + g2 * V / 2  # <ss> at the mean kernel and its fluctuation
    slope_shift = h * old["G1"] + h2 * V / 2
    XX = lW**2 * m(0, 0, 0, 0) + 2 * lW * C * Th * m(1, 1, 0, 0) + (C * Th) ** 2 * m(1, 1, 1, 1)
    YY = lW**2 * m(1, 1, 0, 0) + 2 * lW * C * Th * m(2, 1, 1, 0) + (C * Th) ** 2 * m(2, 2, 1, 1)
    leading = lW * m(2, 0) + C * Th * m(3, 1)
    return {
        "K": C_b + C * m(0, 0),
        "Theta": lb + X,
        "G1": C * shift,
        "H1": lW * shift + chi * old["H1"] + C * Th * slope_shift + C * h * (D + 2 * F),
        "V": C**2 * (m(0, 0, 0, 0) - m(0, 0) ** 2 + g**2 * V),
        "D": C * (lW * m(0, 0, 0, 0) + C * Th * m(1, 1, 0, 0) - X * m(0, 0) + x * g * V + chi * g * D),
        "A": XX - X**2 + x**2 * V + 2 * chi * x * D + chi**2 * old["A"],
        "F": C**2 * (m(1, 1, 0, 0) * Th + g**2 * F),
        "B": C**2 * m(1, 1, 1, 1) * Th**2 + chi**2 * B,
        "P": C**2 * m(2, 1, 1, 0) * Th**2 + chi * C * (m(2, 0) * B + g * P),
        "Q": C * (lW * m(1, 1, 0, 0) + C * Th * m(2, 1, 1, 0)) * Th + C * x * g * F + C * chi * g * Q,
        # (inf.14)-(inf.17)
        "R": chi**2 * old["R"]
        + lW * C * m(2, 1, 1, 0) * Th**2
        + C**2 * m(3, 1, 1, 1) * Th**3
        + chi * leading * (B + P)
        + chi * (lW * m(1, 1) + C * Th * m(2, 2)) * P,
        "S": chi**2 * old["S"]
        + C * lW * m(1, 1, 1, 1) * Th**2
        + C**2 * m(2, 2, 1, 1) * Th**3
        + chi * (lW * m(1, 1) + C * Th * m(2, 2)) * B,
        "T": chi**2 * old["T"] + YY * Th + x**2 * F + 2 * chi * x * Q,
        "U": chi**2 * old["U"] + C**2 * m(2, 2, 1, 1) * Th**3,
    }
