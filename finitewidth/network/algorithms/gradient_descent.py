"""Gradient descent: full batches or given ones, with schedules, momentum and a ridge."""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from finitewidth.network.algorithms.batches import Batches
from finitewidth.network.algorithms.clock import Clock
from finitewidth.network.algorithms.descent import AbstractDescent, first_steps
from finitewidth.network.algorithms.symbols import Symbols


@dataclass(frozen=True, repr=False)
class GradientDescent(AbstractDescent):
    """Gradient descent. The loss is a sum over samples; where others take means over a batch of b samples,
    as PyTorch does, the weight of its samples is 1/b.

    Args:
        learning_rate: The rate of every step, or one for each step.
        steps: The number of updates, a whole number or infinity, which is the end of training. It is the
            number of rates or batches where these are given.
        momentum: The share of the velocity that is left in the next step; the rate stands outside of the
            velocity, as in PyTorch.
        nesterov: Whether a step looks ahead along its velocity.
        batches: The weight of each training sample in each step (steps, N), zero outside its batch; None for
            all samples, with weight 1, in every step.
        ridge: A number a that adds a/2 times the squared distance from the initialization, in units of the
            learning rates, to the loss.

    ```python
    fw.predict(net, X, Y, X_test, algorithm=fw.GradientDescent(0.1, steps=100), order=0)
    fw.GradientDescent([0.2, 0.1], momentum=0.9, batches=[[2, 2, 0], [0, 2, 2]])  # two steps
    ```
    """

    learning_rate: Any
    steps: float = math.inf  # a whole number, or infinity
    momentum: float = 0.0
    nesterov: bool = False
    batches: Any = None
    ridge: float = 0.0

    def __post_init__(self):
        if self.batches is not None:
            batches = Batches.of(self.batches)
            object.__setattr__(self, "batches", batches)
            if self.steps == math.inf:
                object.__setattr__(self, "steps", len(batches))
        self._check(or_infinite=self.batches is None)
        if self.batches is not None and len(self.batches) != self.steps:
            raise ValueError(
                f"batches has {len(self.batches)} rows but steps={self.steps}; give one row for each step."
            )

    # --- infinite width -------------------------------------------------------------------------------

    @property
    def mixes_modes(self) -> bool:
        """Batches do: they do not commute with the training NTK."""
        return self.batches is not None

    def response(self, eigenvalues: np.ndarray) -> np.ndarray:
        r"""$(1 - (1 - \eta l)^t) / l$ for plain steps, $1/(l + a)$ at the end of training with a ridge."""
        if self.is_finished and self.ridge:
            return 1 / (eigenvalues + self.ridge)
        if self.mixes_modes:
            raise ValueError(f"algorithm={self!r} mixes modes; use its method response_matrix.")
        if self.is_finished or not self.is_plain:
            return super().response(eigenvalues)
        l, eta, steps = eigenvalues, self.learning_rate, self.steps
        with np.errstate(divide="ignore", invalid="ignore"):
            # through the logarithm where it exists: 1 - (1 - x)^t loses all digits of a small x
            small = -np.expm1(steps * np.log1p(-np.minimum(eta * l, 0.5)))
            decayed = np.where(eta * l < 0.5, small, 1 - (1 - eta * l) ** steps)
            return np.where(l > 0, decayed / l, eta * steps)

    def at_time(self, time: float) -> "GradientDescent":
        batches = self.batches
        if batches is not None:
            if not (0 <= time <= len(batches) and time == int(time)):
                raise ValueError(
                    f"times must lie between 0 and the {len(batches)} batches of {self!r}, got {time:g}."
                )
            batches = batches.until(int(time))
        return replace(self, **first_steps(self, time), batches=batches)

    # --- order 1/n ------------------------------------------------------------------------------------

    @property
    def clock(self) -> Clock | None:
        plain = self.is_plain and self.batches is None
        return Clock(self.learning_rate, self.steps) if plain else None

    @property
    def has_symbols(self) -> bool:
        return self.clock is not None

    def symbols(self, eigenvalues: np.ndarray) -> Symbols:
        clock = self.clock
        if clock is None:
            raise ValueError(
                f"algorithm={self!r} has no projector symbols; use fw.predict, which replays its steps."
            )
        return clock.symbols(eigenvalues)

    # --- real networks --------------------------------------------------------------------------------

    def check_batches(self, count: int) -> None:
        if self.batches is not None and self.batches.masks.shape[1] != count:
            raise ValueError(
                f"batches are made for {self.batches.masks.shape[1]} training samples, but X_train has "
                f"{count}; give one column for each sample."
            )

    def batch(self, step, key, numbers, count):
        if "samples" not in numbers:
            return None
        step = jnp.asarray(step).astype(jnp.int64)
        return jnp.asarray(numbers["samples"])[step].astype(jnp.int64), jnp.asarray(numbers["weights"])[step]

    @property
    def numbers(self) -> dict[str, Any]:
        return super().numbers | ({} if self.batches is None else self.batches.numbers())

    @property
    def pattern(self) -> "GradientDescent":
        return GradientDescent(**self._open(), nesterov=self.nesterov)
