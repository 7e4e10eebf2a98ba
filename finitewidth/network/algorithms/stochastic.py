"""Stochastic gradient descent: mini-batches drawn at random."""

from dataclasses import dataclass

from finitewidth.core.inputs import as_count, as_positive
from finitewidth.network.algorithms.abstract import AbstractAlgorithm


@dataclass(frozen=True)
class StochasticGradientDescent(AbstractAlgorithm):
    """Mini-batches drawn anew in each epoch. It trains real networks only.

    Args:
        learning_rate: The rate of the first step; step t has learning_rate / (1 + decay * t).
        steps: The number of updates.
        batch_size: Samples of a mini-batch.
        decay: How the rate falls.

    ```python
    fw.StochasticGradientDescent(0.1, steps=100, batch_size=2)
    ```
    """

    learning_rate: float
    steps: int
    batch_size: int
    decay: float = 0.0

    motion = "steps"

    def __post_init__(self):
        object.__setattr__(self, "learning_rate", as_positive("learning_rate", self.learning_rate))
        object.__setattr__(self, "steps", as_count("steps", self.steps, lowest=0))
        object.__setattr__(self, "batch_size", as_count("batch_size", self.batch_size, lowest=1))
        object.__setattr__(self, "decay", as_positive("decay", self.decay, or_zero=True))

    @property
    def end(self) -> float:
        return float(self.steps)

    def refusal(self, order: int) -> str | None:
        if order == 1:
            return super().refusal(order)
        return (
            "algorithm=StochasticGradientDescent draws its batches at random; give the batches themselves "
            "in fw.algorithms.Schedule, or use fw.GradientFlow(): at infinite width the end of training is "
            "the same."
        )

    def learning_rate_at(self, step, numbers):
        return numbers["learning_rate"] / (1 + numbers["decay"] * step)

    @property
    def numbers(self) -> dict[str, float]:
        return {"learning_rate": self.learning_rate, "decay": self.decay}

    @property
    def pattern(self) -> "StochasticGradientDescent":
        return StochasticGradientDescent(1.0, 0, self.batch_size)

    @property
    def mini_batch(self) -> int:
        return self.batch_size
