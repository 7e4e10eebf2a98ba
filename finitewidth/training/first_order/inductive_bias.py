r"""How an algorithm weighs pairs of eigenmodes, and the effect on predictions (PDLT section inf.2.3).

The universal projector of the dNTK is $Z_B = 1/(2 l_a l_b)$; $Z_A$ depends on the algorithm. Their
ratio has no units: $2 l_b/(l_a + l_b)$ for gradient flow, zero for the two-step update, and for gradient
descent it diverges in the fastest mode as the learning rate approaches $2/l_{max}$ (inf.171).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import TwoStep
from finitewidth.training.first_order.prepared import Prepared
from finitewidth.training.infinite.solver import largest_eigenvalue

_FRACTIONS = (0.25, 0.5, 0.75, 0.95)  # of the largest stable learning rate


@shown("eigenvalues", "largest_learning_rate", "ratios", figure="inductive_bias")
@dataclass(frozen=True, eq=False)
class InductiveBias:
    """Ratios Z_A / Z_B of fully trained algorithms in the eigenbasis of one training NTK.

    `fw.textbook.inductive_bias` makes it, and `plot` draws it.

    ```python
    bias = fw.textbook.inductive_bias(fw.prepare(net, X, Y, X_test))
    print(bias.table())
    ```
    """

    eigenvalues: Float[np.ndarray, " A"]  # ascending: slow modes first
    ratios: Mapping[str, Float[np.ndarray, "A A"]] = field(repr=False)  # Z_A / Z_B by algorithm
    corrections: Mapping[str, Float[np.ndarray, "M n_L"]] = field(repr=False)  # of order 1/n to the mean

    @property
    def largest_learning_rate(self) -> float:
        """2 / largest eigenvalue."""
        return float(2 / self.eigenvalues[-1])

    def table(self) -> str:
        """One line for each algorithm: four corners of the ratio, and the largest correction to the mean."""
        head = ("slow, slow", "slow, fast", "fast, slow", "fast, fast", "largest correction")
        lines = [" ".join([f"{'algorithm':<28}", *(f"{name:>18}" for name in head)])]
        for name, ratio in self.ratios.items():
            correction = self.corrections[name].ravel()
            largest = correction[np.argmax(np.abs(correction))]
            corners = (ratio[0, 0], ratio[0, -1], ratio[-1, 0], ratio[-1, -1], largest)
            lines.append(" ".join([f"{name:<28}", *(f"{value:18.4f}" for value in corners)]))
        return "\n".join(lines)


def inductive_bias(
    prepared: Prepared, algorithms: Mapping[str, AbstractAlgorithm] | None = None
) -> InductiveBias:
    """Compare algorithms on one problem.

    Args:
        prepared: A problem prepared by `fw.prepare`.
        algorithms: Algorithms by name. By default, all to the end of training: the two-step update, gradient
            flow, and descent up to 95 % of its largest learning rate.

    Returns:
        Ratios of projectors and corrections by algorithm, which `fw.plots.inductive_bias` draws.

    ```python
    fw.textbook.inductive_bias(fw.prepare(net, X, Y, X_test)).ratios["gradient flow"]
    ```
    """
    l = prepared.modes.l
    Theta = prepared.means.Theta[: l.size, : l.size]
    limit = 2 / max(float(l[-1]), largest_eigenvalue(Theta))  # descent is refused beyond at either order
    chosen = _default(limit) if algorithms is None else dict(algorithms)
    ratios, corrections = {}, {}
    for name, algorithm in chosen.items():
        prediction = prepared.predict(algorithm, covariance=False)
        Z = algorithm.symbols(l).outputs
        ratios[name] = Z["A"] / Z["B"]
        corrections[name] = prediction.mean - prediction.infinite_width.mean
    return InductiveBias(l, ratios, corrections)


def _default(limit: float) -> dict[str, AbstractAlgorithm]:
    algorithms: dict[str, AbstractAlgorithm] = {"two-step": TwoStep(), "gradient flow": GradientFlow()}
    for fraction in _FRACTIONS:
        name = f"descent, {fraction:.0%} of limit"
        algorithms[name] = GradientDescent(fraction * limit)
    return algorithms
