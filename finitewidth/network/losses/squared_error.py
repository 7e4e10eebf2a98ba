"""The squared error."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from finitewidth.network.losses.abstract import AbstractLoss


@dataclass(frozen=True)
class MSE(AbstractLoss):
    r"""$\frac12 \sum (z - y)^2$ over samples and outputs.

    ```python
    fw.predict(net, X, Y, X_test, loss=fw.MSE(), order=0).mean
    ```
    """

    def value(self, z, y):
        return 0.5 * jnp.sum((z - y) ** 2)

    def gradient(self, z, y):
        return z - y

    @property
    def largest_curvature(self) -> float:
        return 1.0

    @property
    def is_squared_error(self) -> bool:
        return True

    def minimizer(self, Y: np.ndarray) -> np.ndarray:
        return Y
