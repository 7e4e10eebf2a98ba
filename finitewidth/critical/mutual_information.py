r"""Entropy and mutual information of a network's outputs before data, and the aspect ratio where they stop.

For one input, m outputs are Gaussian with one common random variance $\hat G$. With $G = \mathrm{E}[\hat G]$
and $v = \mathrm{Var}(\hat G)/G^2 = V/(n K^2)$ (PDLT appendix A), in nats,

$$S_m = \tfrac m2 \log(2\pi e\, G) - \tfrac{m(m+2)}{16} v^2 + \tfrac{m(m+2)(m+8)}{48} v^3,$$
$$I(m_1, m_2) = \tfrac{m_1 m_2}{8} \left[ v^2 - \tfrac{20 + 3(m_1 + m_2)}{6} v^3 \right].$$

The truncated I of all outputs is largest at $v = 4/(20 + 3 n_L)$, or depth over width
$4/((20 + 3 n_L)\nu)$ with $v = \nu L/n$. The book calls this the optimal aspect ratio. There the last term is
two thirds of the one before, and real networks show no such maximum: their mutual information grows on. So
it is the ratio beyond which order 1/n is not to be trusted.
"""

import math
from dataclasses import dataclass

import numpy as np

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_count, as_inputs
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.network import Network
from finitewidth.theory.solve import solve


@shown("reading", "G", "v", "aspect_ratio", "best_aspect_ratio", "net")
@dataclass(frozen=True)
class Information:
    """What the outputs of a network at initialization, for one input, say about each other.

    `fw.critical.information` makes it.

    ```python
    known = fw.critical.information(fw.MLP.critical((2, 64, 64, 2), "tanh"), X[0])
    known.mutual_information(), known.aspect_ratio, known.best_aspect_ratio
    ```
    """

    net: Network
    G: float  # mean variance of an output
    v: float  # relative variance of that variance between networks

    @property
    def aspect_ratio(self) -> float:
        """Depth over the width of the last hidden layer."""
        return self.net.depth / self.net.ladder.widths[-2]

    @property
    def nu(self) -> float:
        """v for each unit of depth over width."""
        return self.v / self.aspect_ratio

    @property
    def best_aspect_ratio(self) -> float:
        """Depth over width at which the truncated mutual information is largest; infinite if v vanishes."""
        return best_ratio(self.nu, self.net.outputs)

    @property
    def within_range(self) -> bool:
        """Whether the expansion of the mutual information converges: v is below 4/(20 + 3 n_L)."""
        return self.v < _largest(self.net.outputs)

    def entropy(self, outputs: int | None = None) -> float:
        """Of m outputs, by default of all, in nats."""
        m = self._checked("outputs", self.net.outputs if outputs is None else outputs)
        gaussian = m / 2 * math.log(2 * math.pi * math.e * self.G)
        return gaussian - m * (m + 2) / 16 * self.v**2 + m * (m + 2) * (m + 8) / 48 * self.v**3

    def mutual_information(self, first: int | None = None, second: int | None = None) -> float:
        """Of two groups of outputs, by default of two halves of all, in nats; it is quadratic in V."""
        one = self._checked("first", self.net.outputs // 2 if first is None else first)
        other = self._checked("second", self.net.outputs - one if second is None else second)
        if one + other > self.net.outputs:
            raise ValueError(
                f"first + second must be at most the n_L = {self.net.outputs} outputs of the network, got "
                f"{one} + {other}; choose smaller groups or more outputs."
            )
        return one * other / 8 * (self.v**2 - (20 + 3 * (one + other)) / 6 * self.v**3)

    @property
    def reading(self) -> str:
        """What the aspect ratio means, in one sentence."""
        if self.v == 0:
            return "outputs of this network know nothing of each other: their variance does not fluctuate"
        ratio, best = self.aspect_ratio, self.best_aspect_ratio
        state = "within" if self.within_range else "beyond"
        more = "" if self.within_range else "; kernels and NTKs are described further"
        return (
            f"depth over width is {ratio:.3g}, {state} the {best:.3g} up to which order 1/n describes the "
            f"mutual information of outputs (the optimal ratio of PDLT appendix A{more})"
        )

    def _checked(self, name: str, count: int) -> int:
        number = int(as_count(name, count, lowest=1))
        if number > self.net.outputs:
            raise ValueError(
                f"{name} must be at most the n_L = {self.net.outputs} outputs of the network, got {number}; "
                "choose a smaller group, or a network with more outputs."
            )
        return number


@takes_models
def information(net: Network, x: ArrayLike) -> Information:
    """Entropy and mutual information of outputs at initialization, for one input.

    Args:
        net: A network of dense layers.
        x: The input, (n_0,) or (1, n_0).

    Returns:
        A record with `entropy`, `mutual_information` and `best_aspect_ratio`.

    ```python
    fw.critical.information(fw.MLP.critical((2, 64, 64, 2), "tanh"), X[0])
    ```
    """
    if net.ladder.skips[-1] is not None:
        raise ValueError(
            "a skip ends in the output of this network, whose outputs are then no Gaussians of a common "
            "variance; add fw.Dense(outputs) behind it."
        )
    X = as_inputs(np.atleast_2d(np.asarray(x)), net.ladder.inputs, name="x")
    if len(X) != 1:
        raise ValueError(f"x must be one input of {net.ladder.inputs} numbers, got {len(X)} rows; pass one.")
    out = solve(net, X, layers=(net.depth,), tensors=("V", "D")).output
    K = out.K.item()
    if K == 0:
        raise ValueError("x must give outputs that vary, but their variance K is 0; set C_b, or change x.")
    return Information(net, out.G.item(), out.V.item() / (out.n * K**2))


def best_ratio(nu: float, outputs: int) -> float:
    """The aspect ratio of appendix A."""
    return _largest(outputs) / nu if nu > 0 else math.inf


def _largest(outputs: int) -> float:
    return 4 / (20 + 3 * outputs)
