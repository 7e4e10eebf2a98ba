r"""What a neuron near its kink sees of a wide network, layer by layer.

Hidden layer l has $\sigma = s_\pm z$. With $dz_k/d\sigma_j = g_k / \sqrt{n_l}$ for each output k, one
neuron of the layer has, independently of each other and at leading order,

$$z \sim N(0, K^{(l)}), \qquad g_k \sim N(0, \beta^{(l)}), \qquad \varphi_{c,k} \sim N(0, \Phi^{(l)}_c).$$

$\varphi_c$ is the random drift of the neuron's value at sample c by other neurons of its layer, the
off-diagonal NTK of hidden neurons:

$$\beta^{(L-1)} = C_W, \quad \beta^{(l-1)} = C_W \langle\sigma'\sigma'\rangle \beta^{(l)}, \qquad
  \Phi^{(1)} = 0, \quad \Phi^{(l+1)}_{c,bb'} = \tfrac{n_{l+1}}{n_l} C_W \big[ \Theta_{cb} \Theta_{cb'}
  \beta_{bb'} \langle\sigma'^2_c \sigma'_b \sigma'_{b'}\rangle + \langle\sigma'^2_c\rangle \Phi^{(l)}_{c,bb'}
  \big].$$

In terms of the tensors, $\Phi^{(l)}_{c,bb'} = \tfrac{n_l}{n_{l-1}} B_{ccbb'}
\langle\sigma'_b\sigma'_{b'}\rangle \beta_{bb'}$.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.network.network import Network
from finitewidth.theory.layers.dense import Means
from finitewidth.theory.steps import Step, first_layer, steps


@dataclass(frozen=True, eq=False)
class GatedLayer:
    """One hidden layer, its statistics on all samples."""

    slopes: tuple[float, float]  # below and above the kink
    width: float  # n_l over n_{L-1}, the width that the expansion is in
    K: Float[np.ndarray, "N N"]
    Theta: Float[np.ndarray, "N N"]
    beta: Float[np.ndarray, "N N"]  # covariance of sqrt(n_l) dz/dsigma over samples
    drift: Float[np.ndarray, "N N N"]  # Phi for each sample c

    @property
    def has_kink(self) -> bool:
        return self.slopes[0] != self.slopes[1]


def gated_layers(net: Network, X: Float[np.ndarray, "N n0"]) -> tuple[list[GatedLayer], Means]:
    """The hidden layers of a network, and K and Theta of its output."""
    walked = list(steps(net, first_layer(net, X), net.depth, ACCURACY, bare=True))
    beta = _backwards(walked)
    drift, layers = np.zeros((len(X),) * 3), []
    for l, step in enumerate(walked):
        if l:
            drift = _next_drift(walked[l - 1], beta[l - 1], drift, net.widths[l + 1] / net.widths[l])
        width = net.widths[l + 1] / net.widths[-2]
        layers.append(GatedLayer(_slopes(step), width, step.K, step.Theta, beta[l], drift))
    return layers, walked[-1].above


def _slopes(step: Step) -> tuple[float, float]:
    assert step.activation.slopes is not None
    above, below = step.activation.slopes
    return below, above


def _backwards(walked: Sequence[Step]) -> list[np.ndarray]:
    beta: list[np.ndarray] = []
    whole = np.ones_like(walked[0].K)
    for step in reversed(walked):
        beta.insert(0, step.C_W * whole)
        whole = step.C_W * step.moments.slope.value * whole
    return beta


def _next_drift(step: Step, beta: np.ndarray, drift: np.ndarray, ratio: float) -> np.ndarray:
    """Phi of the layer behind a step, for every sample c."""
    Theta, slopes = step.Theta, step.moments.slope.value
    source = Theta[:, :, None] * Theta[:, None, :] * beta * squared_slopes(step.K, *_slopes(step))
    return ratio * step.C_W * (source + slopes.diagonal()[:, None, None] * drift)


def squared_slopes(K: Float[np.ndarray, "N N"], below: float, above: float) -> Float[np.ndarray, "N N N"]:
    r"""$\langle\sigma'^2_c \sigma'_b \sigma'_{b'}\rangle$ over c, b and b'."""
    # the slope is m + e sign(z), and an average of three signs vanishes
    m, e = (above + below) / 2, (above - below) / 2
    lengths = np.sqrt(K.diagonal())
    signs = (2 / math.pi) * np.arcsin(np.clip(K / np.outer(lengths, lengths), -1, 1))  # <sign sign>
    both = m**2 + e**2 * signs
    return (m**2 + e**2) * both[None] + 2 * m**2 * e**2 * (signs[:, :, None] + signs[:, None, :])
