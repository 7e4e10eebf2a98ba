"""A test input beside a single training input: robustness and variance (PDLT section 10.3)."""

from dataclasses import dataclass

import numpy as np

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.textbook.delta_expansion import two_inputs


@shown("robustness", "variance")
@dataclass(frozen=True, eq=False)
class Neighbour:
    """A test input beside one training input: the parts of bias and variance (PDLT 10.56-10.63)."""

    ratio: float  # Theta_{-+} / Theta_{++}
    variance: float  # of each output at the test input

    @property
    def robustness(self) -> float:
        """Theta_{-+} / Theta_{++} - 1: how the prediction changes from the training to the test input."""
        return self.ratio - 1

    def bias(self, y_train: np.ndarray, y_test: np.ndarray) -> np.ndarray:
        """m - y at the test input."""
        return self.ratio * np.asarray(y_train) - np.asarray(y_test)


def neighbour(net: Network, x_train: ArrayLike, x_test: ArrayLike) -> Neighbour:
    """Robustness and variance of the prediction at one input after training on another one alone.

    Args:
        net: The network.
        x_train: The training input (n_0,).
        x_test: The test input (n_0,).

    Returns:
        A record with `robustness` and the variance.

    ```python
    fw.textbook.neighbour(net, X[0], X_test[0]).robustness
    ```
    """
    both = kernels(net, np.stack(two_inputs(net, x_train, x_test, names=("x_train", "x_test"))))
    K, Theta = both.K, both.Theta
    if Theta is None or Theta[0, 0] <= 0:
        raise ValueError(
            "the NTK of x_train is zero and nothing is learned from it; set lambda_b or lambda_W."
        )
    ratio = float(Theta[1, 0] / Theta[0, 0])
    variance = float(K[1, 1] - 2 * ratio * K[0, 1] + ratio**2 * K[0, 0])
    return Neighbour(ratio, max(variance, 0.0))
