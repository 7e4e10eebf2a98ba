"""Stochastic gradient descent: mini-batches drawn at random."""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from finitewidth.core.inputs import as_count
from finitewidth.network.algorithms import batches
from finitewidth.network.algorithms.descent import AbstractDescent, first_steps
from finitewidth.network.algorithms.gradient_descent import GradientDescent


@dataclass(frozen=True, repr=False)
class StochasticGradientDescent(AbstractDescent):
    """Mini-batches drawn anew for each network. The sum over a batch of b of N samples is scaled by N/b, so
    that its mean is the full gradient.

    Args:
        learning_rate: The rate of every step, or one for each step. A mean over the batch, as PyTorch takes
            it, is a rate that is smaller by a factor of N.
        steps: The number of updates.
        batch_size: Samples of a mini-batch.
        replacement: With True samples of all batches are drawn independently. Otherwise each epoch has a new
            order of the samples, and a remainder smaller than a batch waits for the next epoch.
        momentum: As in `fw.GradientDescent`.
        nesterov: As in `fw.GradientDescent`.
        ridge: As in `fw.GradientDescent`.

    ```python
    fw.StochasticGradientDescent(0.1, steps=100, batch_size=2, momentum=0.9)
    ```
    """

    learning_rate: Any
    steps: float  # a whole number
    batch_size: int
    replacement: bool = False
    momentum: float = 0.0
    nesterov: bool = False
    ridge: float = 0.0

    draws_batches = True

    def __post_init__(self):
        self._check(or_infinite=False)
        object.__setattr__(self, "batch_size", as_count("batch_size", self.batch_size, lowest=1))
        if not isinstance(self.replacement, bool | np.bool_):
            raise ValueError(f"replacement must be True or False, got {self.replacement!r}.")

    @property
    def independent_batches(self) -> bool:
        return self.replacement

    @property
    def mixes_modes(self) -> bool:
        return True

    def response_matrix(self, Theta: np.ndarray) -> np.ndarray:
        raise ValueError(
            f"algorithm={self!r} draws its batches at random, so there is no single response; use "
            f"fw.predict, or algorithm.fixed({len(Theta)}, key=0) for batches that all networks share."
        )

    def at_time(self, time: float) -> "StochasticGradientDescent":
        return replace(self, **first_steps(self, time))

    def check_batches(self, count: int) -> None:
        if self.batch_size > count:
            raise ValueError(
                f"the mini-batch of algorithm={self!r} is {self.batch_size}, but there are {count} "
                "training inputs; make it smaller."
            )

    def batch(self, step, key, numbers, count):
        drawn = batches.with_replacement if self.replacement else batches.shuffled
        step = jnp.asarray(step).astype(jnp.int64)
        samples = drawn(self.batch_size, step, key, count)
        return samples, jnp.full(self.batch_size, count / self.batch_size)

    def fixed(self, count: int, key) -> GradientDescent:
        """Descent with batches drawn once, the same for every network.

        Args:
            count: The number of training samples.
            key: The randomness.

        Returns:
            An `fw.GradientDescent` with these batches.

        ```python
        fw.StochasticGradientDescent(0.1, steps=100, batch_size=2).fixed(6, key=0)
        ```
        """
        masks = self.masks(count, 1, key)[0]
        return GradientDescent(
            self.learning_rate, self.steps, self.momentum, self.nesterov, masks, ridge=self.ridge
        )

    @property
    def pattern(self) -> "StochasticGradientDescent":
        open_fields = {**self._open(), "steps": 0}
        return replace(self, **open_fields)
