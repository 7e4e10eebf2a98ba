r"""The laws that the kernel and the NTK of an input approach in deep critical networks (PDLT 5.2, 5.3, 9.4).

| class | kernel | NTK, with the learning rates of `MLP.critical` |
|---|---|---|
| scale-invariant | $K^{(1)}$ | $(\lambda_b + \lambda_W K/C_W)\, l/L$ |
| K* = 0 | $\kappa\, l^{-p_0}$ | $(\lambda_b + \lambda_W \kappa/C_W)\, (L/l)^{p_\perp - 1}$ |
| half-stable | $K^*$ | $(\lambda_b + \lambda_W (K^* - C_b)/C_W)\, l/L$ |

with $\kappa = (-q\alpha)^{-1/q}$, $p_0 = 1/q$ where the kernel map is $K(1 + \alpha K^q + \ldots)$: for
smooth activations $K \to 1/((-a_1) l)$. Corrections at K* = 0 are of relative order $\log l / l$. All layers
have the same activation.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.critical.activations.classification import Criticality
from finitewidth.critical.activations.susceptibilities import CRITICAL
from finitewidth.critical.initialization import critical_points, is_critical
from finitewidth.critical.tuning import equivalent_rates
from finitewidth.network.network import Network
from finitewidth.theory.records import Theory


@shown("K_law", "Theta_law", "K", "Theta", dimensions={"K": "sample layer", "Theta": "sample layer"})
@dataclass(frozen=True, eq=False)
class Asymptotes:
    """Laws at layers 1 to L for every input, each with its words; None where no law is known.

    `fw.critical.asymptotes` makes it.

    ```python
    laws = fw.critical.asymptotes(fw.solve(fw.MLP.critical((2, *[64] * 9, 1), "tanh"), X, order=0))
    laws.K_law, laws.K[:, -1]
    ```
    """

    K: Float[np.ndarray, "N L"] | None = field(repr=False)  # the law of the kernel
    Theta: Float[np.ndarray, "N L"] | None = field(repr=False)  # the law of the NTK
    K_law: str  # in words
    Theta_law: str  # in words


def asymptotes(theory: Theory) -> Asymptotes:
    """Laws that the diagonals of K and Theta of a critical network approach with depth.

    Networks off criticality and networks of different activations have none; the words say so.

    Args:
        theory: A result of `fw.solve`.

    Returns:
        Arrays (N, depth), and the laws in words.

    ```python
    theory = fw.solve(fw.MLP.critical((2, *[64] * 9, 1), "tanh"), X, order=0)
    fw.critical.asymptotes(theory).K_law
    ```
    """
    net = theory.net
    if len(set(net.activations)) > 1:
        return _no_law("known for one activation only")
    if not is_critical(net):
        return _no_law("not at criticality")
    point = critical_points(net)[0]
    first = np.diag(theory.layer(1).K)
    kernel = _kernel_law(point, first, net.depth)
    if kernel is None:
        return Asymptotes(None, None, "slower than any power", "unknown")
    K, law, squares = kernel
    rates = _common_rates(net, point)
    if rates is None:
        return Asymptotes(K, None, law, "learning rates differ from those of MLP.critical")
    rise = 1 - point.exponents.get("p_perp", 0.0)
    l = np.arange(1, net.depth + 1.0)
    Theta = np.multiply.outer(rates[0] + rates[1] * squares, (l / net.depth) ** rise)
    return Asymptotes(K, Theta, law, _power(rise))


def _no_law(reason: str) -> Asymptotes:
    return Asymptotes(None, None, reason, reason)


def _kernel_law(
    point: Criticality, first: np.ndarray, depth: int
) -> tuple[np.ndarray, str, np.ndarray] | None:
    """K of each input and layer, the law in words, and <sigma^2> up to powers of l; None if no power law."""
    l, C_W = np.arange(1, depth + 1.0), point.C_W
    assert C_W is not None and point.C_b is not None  # a critical network has them
    if point.universality_class == "scale-invariant":
        return np.multiply.outer(first, np.ones_like(l)), "constant", first / C_W
    if point.universality_class == "half-stable":
        assert point.K_star is not None
        squares = np.full(first.size, (point.K_star - point.C_b) / C_W)
        return np.full((first.size, l.size), point.K_star), "constant, K*", squares
    kappa = _amplitude(point)
    if kappa is None:
        return None
    K = np.tile(kappa * l ** -point.exponents["p_0"], (first.size, 1))
    return K, _power(-point.exponents["p_0"]), np.full(first.size, kappa / C_W)


def _amplitude(point: Criticality) -> float | None:
    """kappa of K -> kappa l^-p_0."""
    constants = point.constants
    if "a_1" in constants:
        return -1 / constants["a_1"]
    if "alpha" not in constants:
        return None  # linear around zero
    q = constants["power"]
    return float((-q * constants["alpha"]) ** (-1 / q))


def _common_rates(net: Network, point: Criticality) -> tuple[float, float] | None:
    """lambda_b and lambda_W as given to MLP.critical, or None where the layers' shares differ from its."""
    even = (np.full(net.depth, 1 / net.depth),) * 2  # of a signal that starts at K*
    shares = even if point.universality_class == "half-stable" else equivalent_rates(net, 1.0)
    rates = (np.asarray(net.lambda_b) / shares[0], np.asarray(net.lambda_W) / shares[1])
    if any(np.ptp(rate) > CRITICAL * rate.max() for rate in rates):
        return None
    return float(rates[0][0]), float(rates[1][0])


def _power(exponent: float) -> str:
    if abs(exponent) < 1e-12:
        return "constant"
    power = {1.0: "l", -1.0: "1/l"}.get(exponent, f"l^{exponent:.4g}")
    return f"{'grows' if exponent > 0 else 'falls'} as {power}"
