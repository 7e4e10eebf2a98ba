r"""What the kernel and the NTK of an input tend to in deep critical networks (PDLT 5.2, 5.3, 9.4).

| class | kernel | NTK, with the learning rates of `MLP.critical` |
|---|---|---|
| scale-invariant | $K^{(1)}$ | $(\lambda_b + \lambda_W K/C_W)\, l/L$ |
| K* = 0 | $\kappa\, l^{-p_0}$ | $(\lambda_b + \lambda_W \kappa/C_W)\, (L/l)^{p_\perp - 1}$ |
| half-stable | $K^*$ | $(\lambda_b + \lambda_W (K^* - C_b)/C_W)\, l/L$ |

with $\kappa = (-q\alpha)^{-1/q}$, $p_0 = 1/q$ where the kernel map is $K(1 + \alpha K^q + \ldots)$: for
smooth activations $K \to 1/((-a_1) l)$. Corrections at K* = 0 are of relative order $\log l / l$.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.critical.classification import Criticality, criticality
from finitewidth.critical.tuning import equivalent_rates
from finitewidth.network.mlp import MLP
from finitewidth.theory.records import Theory

_SAME = 1e-6  # initialization and learning rates are those of the critical network to this accuracy


@dataclass(frozen=True, eq=False)
class Asymptotes:
    """Laws at layers 1 to L for every input, each with its words; None where no law is known."""

    K: Float[np.ndarray, "N L"] | None = field(repr=False)
    Theta: Float[np.ndarray, "N L"] | None = field(repr=False)
    K_law: str
    Theta_law: str


def asymptotes(theory: Theory) -> Asymptotes:
    """Laws that the diagonals of K and Theta of a critical network approach with depth."""
    net, point = theory.net, criticality(theory.net.activation)
    C_W = point.C_W or math.nan  # None where there is no critical point, which has no law
    if not _is_critical(net, point):
        return Asymptotes(None, None, "not at criticality", "not at criticality")
    first = np.diag(theory.layer(1).K)
    l = np.arange(1, net.depth + 1.0)
    match point.universality_class:
        case "scale-invariant":
            K, law = np.multiply.outer(first, np.ones_like(l)), "constant"
            squares = first / C_W
        case "half-stable":
            K, law = np.full((first.size, l.size), point.K_star), "constant, K*"
            squares = np.full(first.size, (point.K_star - point.C_b) / C_W)  # type: ignore[operator]
        case _:
            kappa = _amplitude(point)
            if kappa is None:
                return Asymptotes(None, None, "slower than any power", "unknown")
            K = np.tile(kappa * l ** -point.exponents["p_0"], (first.size, 1))
            law, squares = _power(-point.exponents["p_0"]), np.full(first.size, kappa / C_W)
    rates = _common_rates(net, point)
    if rates is None:
        return Asymptotes(K, None, law, "learning rates differ from those of MLP.critical")
    rise = 1 - point.exponents.get("p_perp", 0.0)
    Theta = np.multiply.outer(rates[0] + rates[1] * squares, (l / net.depth) ** rise)
    return Asymptotes(K, Theta, law, _power(rise))


def _is_critical(net: MLP, point: Criticality) -> bool:
    """Above the first layer, whose kernel is that of the inputs."""
    if point.C_b is None or point.C_W is None or point.universality_class == "unstable":
        return False
    return np.allclose(net.C_b[1:], point.C_b, rtol=_SAME, atol=1e-12) and np.allclose(
        net.C_W[1:], point.C_W, rtol=_SAME, atol=0
    )


def _amplitude(point: Criticality) -> float | None:
    """kappa of K -> kappa l^-p_0."""
    constants = point.constants
    if "a_1" in constants:
        return -1 / constants["a_1"]
    if "alpha" not in constants:
        return None  # linear around zero
    q = constants["power"]
    return float((-q * constants["alpha"]) ** (-1 / q))


def _common_rates(net: MLP, point: Criticality) -> tuple[float, float] | None:
    """lambda_b and lambda_W before the layers' shares, or None where shares are others."""
    even = (np.full(net.depth, 1 / net.depth),) * 2  # of a signal that starts at K*
    shares = even if point.universality_class == "half-stable" else equivalent_rates(point, net, 1.0)
    rates = (np.asarray(net.lambda_b) / shares[0], np.asarray(net.lambda_W) / shares[1])
    if any(np.ptp(rate) > _SAME * rate.max() for rate in rates):
        return None
    return float(rates[0][0]), float(rates[1][0])


def _power(exponent: float) -> str:
    if abs(exponent) < 1e-12:
        return "constant"
    power = {1.0: "l", -1.0: "1/l"}.get(exponent, f"l^{exponent:.4g}")
    return f"{'grows' if exponent > 0 else 'falls'} as {power}"
