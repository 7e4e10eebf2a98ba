"""The cross-entropy of class probabilities."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.core.inputs import as_positive
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.losses.probabilities import as_probabilities, outputs_of


@dataclass(frozen=True)
class CrossEntropy(AbstractLoss):
    r"""$-\sum y \log \mathrm{softmax}(z/T)$ over samples and classes, with soft targets $y$ that sum to one.

    Args:
        temperature: $T$.

    ```python
    soft = fw.losses.one_hot([0, 1, 0], 2, smoothing=0.1)
    two = fw.MLP((2, 64, 64, 2), "tanh")
    fw.predict(two, X, soft, X_test, loss=fw.CrossEntropy(), order=0).mean
    ```
    """

    temperature: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "temperature", as_positive("temperature", self.temperature))

    def value(self, z, y):
        return -jnp.sum(y * jax.nn.log_softmax(z / self.temperature))

    def gradient(self, z, y):
        return (jax.nn.softmax(z / self.temperature) - y) / self.temperature

    @property
    def largest_curvature(self) -> float:
        """1/(2 T^2): the covariance matrix of a one-hot vector has no eigenvalue above 1/2."""
        return 1 / (2 * self.temperature**2)

    def check_targets(self, Y: np.ndarray, *, name: str = "Y_train") -> None:
        as_probabilities(Y, name=name)

    def smallest(self, Y: np.ndarray) -> float:
        """The entropy of the targets."""
        positive = Y[Y > 0]
        return float(-np.sum(positive * np.log(positive)))

    def minimizer(self, Y: np.ndarray) -> np.ndarray:
        """T log y, with mean zero over components."""
        if (Y == 0).any():
            raise ValueError(
                "Y_train has probabilities of zero (one-hot labels): the cross-entropy pulls outputs to "
                "infinity and training has no end; stop at a finite time, or use "
                "fw.losses.one_hot(..., smoothing=0.1)."
            )
        return outputs_of(Y, temperature=self.temperature)

    def unmoved(self, outputs: int) -> np.ndarray:
        """The mean over components, since probabilities sum to one."""
        return np.full((outputs, outputs), 1 / outputs)

    def probabilities_in_jax(self, z):
        return jax.nn.softmax(z / self.temperature, axis=-1)
