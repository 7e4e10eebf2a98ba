"""Full-batch gradient descent."""

import math
from dataclasses import dataclass

import numpy as np

from finitewidth.core.inputs import as_count, as_positive
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, Force
from finitewidth.network.algorithms.clock import Clock
from finitewidth.network.algorithms.symbols import Symbols
from finitewidth.network.losses.abstract import AbstractLoss


@dataclass(frozen=True)
class GradientDescent(AbstractAlgorithm):
    """Full-batch gradient descent.

    Args:
        learning_rate: The rate of every step.
        steps: The number of updates, a whole number or infinity, which is the end of training.

    ```python
    fw.predict(net, X, Y, X_test, algorithm=fw.GradientDescent(0.1, steps=100), order=0)
    ```
    """

    learning_rate: float
    steps: float = math.inf  # a whole number, or infinity

    motion = "steps"

    def __post_init__(self):
        object.__setattr__(self, "learning_rate", as_positive("learning_rate", self.learning_rate))
        object.__setattr__(self, "steps", as_count("steps", self.steps, lowest=0, or_infinite=True))

    @property
    def end(self) -> float:
        return float(self.steps)

    def response(self, eigenvalues: np.ndarray) -> np.ndarray:
        r"""$(1 - (1 - \eta l)^t) / l$."""
        if self.is_finished:
            return super().response(eigenvalues)
        l, eta, steps = eigenvalues, self.learning_rate, self.steps
        with np.errstate(divide="ignore", invalid="ignore"):
            # through the logarithm where it exists: 1 - (1 - x)^t loses all digits of a small x
            small = -np.expm1(steps * np.log1p(-np.minimum(eta * l, 0.5)))
            decayed = np.where(eta * l < 0.5, small, 1 - (1 - eta * l) ** steps)
            return np.where(l > 0, decayed / l, eta * steps)

    def check_stable(self, largest: float, loss: AbstractLoss) -> None:
        """Refuse learning rates from 2 over the fastest rate of learning."""
        curvature = loss.largest_curvature
        if curvature is None or largest * curvature <= 0:
            return
        limit = 2 / (largest * curvature)
        if self.learning_rate >= limit:
            also = "" if loss.is_squared_error else f" times the largest curvature {curvature:g} of {loss!r}"
            raise ValueError(
                f"learning_rate={self.learning_rate:g} is not below 2 / {largest * curvature:.6g} = "
                f"{limit:g}, 2 over the largest eigenvalue of the training NTK{also}: descent diverges; "
                "lower it."
            )

    def at_time(self, time: float) -> "GradientDescent":
        return GradientDescent(self.learning_rate, time)

    def advance(self, force: Force, c: np.ndarray, duration: float) -> np.ndarray:
        for _ in range(int(duration)):
            c = c + self.learning_rate * force(c)
        return c

    @property
    def clock(self) -> Clock:
        return Clock(self.learning_rate, self.steps)

    def symbols(self, eigenvalues: np.ndarray) -> Symbols:
        return self.clock.symbols(eigenvalues)

    def learning_rate_at(self, step, numbers):
        return numbers["learning_rate"]

    @property
    def numbers(self) -> dict[str, float]:
        return {"learning_rate": self.learning_rate}

    @property
    def pattern(self) -> "GradientDescent":
        return GradientDescent(1.0)
