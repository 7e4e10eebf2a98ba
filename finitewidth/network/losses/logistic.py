"""The logistic loss of yes-or-no answers, one for each output."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logit, xlogy

from finitewidth.network.losses.abstract import AbstractLoss


@dataclass(frozen=True)
class Logistic(AbstractLoss):
    r"""$\sum \log(1 + e^z) - y z$ over samples and outputs, with targets y from 0 to 1.

    Every output answers a question of its own, with probability $1/(1 + e^{-z})$ for yes. Outputs of classes
    that exclude each other take `fw.CrossEntropy`.

    ```python
    answers = np.array([[0.0], [1.0], [1.0]])
    flow = fw.GradientFlow(1.0)
    prediction = fw.predict(net, X, answers, X_test, algorithm=flow, loss=fw.losses.Logistic(), order=0)
    prediction.probabilities.value
    ```
    """

    def value(self, z, y):
        return jnp.sum(jax.nn.softplus(z) - y * z)

    def gradient(self, z, y):
        return jax.nn.sigmoid(z) - y

    @property
    def largest_curvature(self) -> float:
        return 0.25

    def check_targets(self, Y: np.ndarray, *, name: str = "Y_train") -> None:
        if not ((Y >= 0) & (Y <= 1)).all():
            wrong = Y[(Y < 0) | (Y > 1)][0]
            raise ValueError(
                f"{name} must hold probabilities from 0 to 1 for fw.losses.Logistic, got {wrong:g}; "
                "rescale it."
            )

    def smallest(self, Y: np.ndarray) -> float:
        """The entropy of the targets."""
        return float(-np.sum(xlogy(Y, Y) + xlogy(1 - Y, 1 - Y)))

    def minimizer(self, Y: np.ndarray) -> np.ndarray:
        """The outputs whose probabilities are the targets."""
        if ((Y == 0) | (Y == 1)).any():
            raise ValueError(
                "Y_train has targets of 0 or 1, which the logistic loss pulls to infinity, and training has "
                "no end; stop at a finite time, or smooth the targets."
            )
        return logit(Y)

    def probabilities_in_jax(self, z):
        return jax.nn.sigmoid(z)
