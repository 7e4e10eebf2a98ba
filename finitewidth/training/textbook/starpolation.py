r"""Interpolation and extrapolation along the line through two training inputs (PDLT section 10.3.2).

The test input is $x_s = s x_+ + (1 - s) x_-$: between the two for s in [0, 1], beyond them otherwise. For
nearby inputs of equal norm and targets that differ little

$$m_s = s y_+ + (1-s) y_- - s (1-s) \frac{\delta\delta\Theta_{[0]}}{\Theta_{00}} (y_+ + y_-) + O(\delta^3),$$

which is (10.115) with its factor 4 corrected to 1. The variance vanishes as $\delta^4$.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_targets
from finitewidth.network.network import Network
from finitewidth.training.infinite.fitting import fit
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.textbook.delta_expansion import DeltaExpansion, delta_expansion, two_inputs


@shown(
    "s",
    "mean",
    "variance",
    dimensions={"s": "s", "mean": "s output", "variance": "s", "linear": "s output"},
    figure="starpolation",
)
@dataclass(frozen=True, eq=False)
class Starpolation:
    """The trained ensemble on the line through two training inputs."""

    s: Float[np.ndarray, " S"]
    prediction: Prediction = field(repr=False)  # exact at infinite width, at every s
    linear: Float[np.ndarray, "S n_L"] = field(repr=False)  # s y_+ + (1 - s) y_-
    targets: Float[np.ndarray, "2 n_L"] = field(repr=False)  # y_+, y_-
    expansion: DeltaExpansion | None = field(repr=False)  # None for kinked activations

    @property
    def mean(self) -> Float[np.ndarray, "S n_L"]:
        return self.prediction.mean

    @property
    def variance(self) -> Float[np.ndarray, " S"]:
        """Of each output."""
        return np.maximum(self.prediction.variance[:, 0], 0.0)

    @property
    def curvature(self) -> float:
        """The second-order part of Theta_[0] over Theta_00: how far nearby predictions are from a line."""
        return float(self._require_expansion().curvature[-1])

    @property
    def expanded_mean(self) -> Float[np.ndarray, "S n_L"]:
        """The mean for nearby inputs of equal norm and nearly equal targets."""
        expansion = self._require_expansion()
        if abs(expansion.Theta1[-1]) > 1e-9 * abs(expansion.Theta00[-1]):
            raise ValueError(
                "the expansion of the mean is for inputs of equal norm, which x_plus and x_minus have not; "
                "use .mean, which is exact."
            )
        curved = self.curvature * (self.s * (1 - self.s))[:, None] * self.targets.sum(axis=0)
        return self.linear - curved

    def _require_expansion(self) -> DeltaExpansion:
        if self.expansion is None:
            raise ValueError(
                "a kinked activation has no expansion in the distance of two inputs, and only dense layers "
                "have one; use .mean."
            )
        return self.expansion


def starpolate(
    net: Network, x_plus: ArrayLike, x_minus: ArrayLike, y_plus: ArrayLike, y_minus: ArrayLike, s: ArrayLike
) -> Starpolation:
    """Train on two inputs and predict at s x_plus + (1 - s) x_minus for every s.

    Args:
        net: The network.
        x_plus: One input (n_0,).
        x_minus: The other input (n_0,).
        y_plus: Its target (n_L,).
        y_minus: The other target (n_L,).
        s: Places on the line through both inputs: 1 at `x_plus`, 0 at `x_minus`.

    Returns:
        `mean`, `variance` and the straight line `linear` at every s.

    ```python
    fw.textbook.starpolate(net, X[0], X[1], Y[0], Y[1], s=[-1.0, 0.5, 2.0]).mean
    ```
    """
    plus, minus = two_inputs(net, x_plus, x_minus)
    s = np.atleast_1d(np.asarray(s, dtype=np.float64))
    if s.ndim != 1 or not np.isfinite(s).all():
        raise ValueError(f"s must be a finite number or a row of them, got shape {s.shape}.")
    given = (("y_plus", y_plus), ("y_minus", y_minus))
    outputs = net.outputs
    targets = np.concatenate([as_targets(np.atleast_2d(y), 1, outputs, name=n, inputs="x") for n, y in given])
    along = s.reshape(-1, *[1] * plus.ndim)
    line = along * plus + (1 - along) * minus
    fitted = fit(net, np.stack([plus, minus]), targets)
    linear = s[:, None] * targets[0] + (1 - s)[:, None] * targets[1]
    expansion = delta_expansion(net, plus, minus) if net.is_smooth and net.not_dense is None else None
    return Starpolation(s, fitted.predict(line), linear, targets, expansion)
