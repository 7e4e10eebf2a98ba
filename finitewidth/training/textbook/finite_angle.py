r"""Kernel and NTK of two inputs of equal norm in a scale-invariant network, at any depth, from their angles.

$$K = K_d \begin{pmatrix} 1 & \cos\psi \\ \cos\psi & 1 \end{pmatrix}, \qquad
  \Theta = \Theta_d \begin{pmatrix} 1 & \cos\zeta \\ \cos\zeta & 1 \end{pmatrix}$$

with the recursions of PDLT (10.83)-(10.89). At criticality, with learning rates in proportion to 1/L,
$\cos\zeta \to 1/4$ for every nonlinear member of the class (10.93), so that the robustness tends to -3/4
and the variance to 9/16 of the kernel (10.94), (10.95).
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike
from finitewidth.network.layers.activation import Activation
from finitewidth.network.network import Network
from finitewidth.theory.checks import require_dense
from finitewidth.theory.layers.dense import behind_weights
from finitewidth.theory.steps import TwoLegs, over_depth
from finitewidth.training.textbook.delta_expansion import two_inputs


@shown(
    "robustness",
    "variance",
    "K_d",
    "psi",
    "Theta_d",
    "cos_zeta",
    dimensions=dict.fromkeys(("K_d", "psi", "Theta_d", "cos_zeta", "robustness", "variance"), "layer"),
)
@dataclass(frozen=True, eq=False)
class FiniteAngle:
    """Diagonal entries and angles at every layer."""

    K_d: Float[np.ndarray, " L"]
    psi: Float[np.ndarray, " L"]  # angle of the kernel
    Theta_d: Float[np.ndarray, " L"]
    cos_zeta: Float[np.ndarray, " L"]  # cosine of the angle of the NTK

    @property
    def robustness(self) -> Float[np.ndarray, " L"]:
        """Theta_{-+}/Theta_{++} - 1, (10.94)."""
        return self.cos_zeta - 1

    @property
    def variance(self) -> Float[np.ndarray, " L"]:
        """Of a network trained on one of the inputs at the other, (10.95)."""
        return self.K_d * (1 - 2 * self.cos_zeta * np.cos(self.psi) + self.cos_zeta**2)


def finite_angle(net: Network, x_plus: ArrayLike, x_minus: ArrayLike) -> FiniteAngle:
    """Kernel and NTK of two inputs of equal norm, at every layer of a scale-invariant network.

    Args:
        net: A network with a scale-invariant activation, such as relu.
        x_plus: One input (n_0,).
        x_minus: The other input (n_0,).

    Returns:
        One number for each layer and quantity.

    ```python
    fw.textbook.finite_angle(fw.MLP.critical((2, 64, 64, 1), "relu"), [1.0, 0.0], [0.0, 1.0]).Theta_d
    ```
    """
    require_dense(net, what="finite_angle", instead="use fw.textbook.neighbour, which takes any network")
    for activation in net.activations:
        if activation.slopes is None:
            raise ValueError(
                f"activation {activation.name!r} is not scale-invariant; use fw.textbook.neighbour."
            )
    plus, minus = two_inputs(net, x_plus, x_minus)
    norms = float(plus @ plus), float(minus @ minus)
    if not math.isclose(*norms, rel_tol=1e-9):
        raise ValueError(
            f"x_plus and x_minus must have equal norms, got squares {norms[0]:.6g} and {norms[1]:.6g}; "
            "rescale one, or use fw.textbook.neighbour."
        )
    A_2, rho = np.asarray([_moments(activation) for activation in net.activations]).reshape(-1, 2).T
    return _through_layers(net, norms[0], float(plus @ minus), A_2, rho)


def _moments(activation: Activation) -> tuple[float, float]:
    """A_2 and rho of (10.83)-(10.89)."""
    assert activation.slopes is not None
    plus, minus = activation.slopes
    A_2 = (plus**2 + minus**2) / 2
    return A_2, (plus - minus) ** 2 / (math.pi * 2 * A_2) if A_2 else 0.0


def _through_layers(
    net: Network, square: float, product: float, A_2: np.ndarray, rho: np.ndarray
) -> FiniteAngle:
    """The recursion, entries (++) and (+-); A_2 and rho have one entry for each hidden layer."""
    first = behind_weights(net.dense[0], np.array([square, product]) / net.widths[0])

    def averages(layer: int, K: np.ndarray) -> TwoLegs:
        psi, share = _angle(*K), rho[layer - 1]
        cosine = math.cos(psi) + share * (math.sin(psi) - psi * math.cos(psi))
        slope = A_2[layer - 1] * np.array([1.0, 1 - share * psi])
        return TwoLegs(A_2[layer - 1] * K[0] * np.array([1.0, cosine]), slope)

    means = [first, *(above for _, _, above in over_depth(net.ladder, first, averages))]
    rows = [(K[0], _angle(*K), t[0], t[1] / t[0] if t[0] else 1.0) for K, t in means]
    return FiniteAngle(*np.asarray(rows).T)


def _angle(K: float, K_off: float) -> float:
    return math.acos(min(max(K_off / K, -1.0), 1.0)) if K else 0.0
