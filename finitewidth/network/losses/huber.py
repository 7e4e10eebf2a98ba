"""A loss that is quadratic near the target and linear far from it."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from finitewidth.core.inputs import as_positive
from finitewidth.network.losses.abstract import AbstractLoss


@dataclass(frozen=True)
class Huber(AbstractLoss):
    r"""$\sum \delta^2 \big(\sqrt{1 + (z - y)^2/\delta^2} - 1\big)$, quadratic near y and linear far from it.

    It is smooth where Huber's own loss has a corner in its slope, so that order 1/n exists.

    Args:
        delta: $\delta$, the distance from the target beyond which it is linear.

    ```python
    fw.predict(net, X, Y, X_test, loss=fw.losses.Huber(0.5), order=0).mean
    ```
    """

    delta: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "delta", as_positive("delta", self.delta))

    def value(self, z, y):
        return self.delta**2 * jnp.sum(jnp.sqrt(1 + ((z - y) / self.delta) ** 2) - 1)

    def gradient(self, z, y):
        return (z - y) / jnp.sqrt(1 + ((z - y) / self.delta) ** 2)

    @property
    def largest_curvature(self) -> float:
        return 1.0

    def minimizer(self, Y: np.ndarray) -> np.ndarray:
        return Y
