r"""Steps along gradients, present and past: whatever is linear in them with weights of its own.

$$\theta(t) - \theta(0) = -\sum_{s<t} w(t, s)\, \lambda\, g(s), \qquad
  g(s) = \sum_a m_a(s)\, \frac{dz_a}{d\theta} \frac{dL}{dz_a}$$

The weights w are never formed. A sum over past steps is an accumulator: the pair of what has been summed and
its velocity, stepped as a parameter is. Theory accumulates coefficients of gradients in this way, real
networks the gradients themselves.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from finitewidth.core.inputs import as_count, as_number, as_positive
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss


class AbstractDescent(AbstractAlgorithm):
    """Descent with a schedule of learning rates, momentum, and a ridge towards the initialization."""

    learning_rate: Any  # a number, or a tuple with one for each step
    steps: float
    momentum: float
    nesterov: bool
    ridge: float

    motion = "steps"

    def _check(self, *, or_infinite: bool) -> None:
        """Bring the fields that all descents share into their form."""
        rates, steps = self.learning_rate, self.steps
        if callable(rates):
            raise ValueError(
                "learning_rate must be a number or one for each step, got a function: where a rate depends "
                "on the loss, steps are not linear in gradients; give the rates themselves."
            )
        if np.ndim(rates):
            rates = _schedule(rates)
            steps = len(rates) if steps is None or steps == math.inf else steps
            if steps != len(rates):
                raise ValueError(
                    f"learning_rate has {len(rates)} entries but steps={steps!r}; give one for each step."
                )
        else:
            rates = as_positive("learning_rate", rates)
        momentum = as_number(self.momentum)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be a number from 0 to below 1, got {self.momentum!r}.")
        if self.nesterov and not momentum:
            raise ValueError("nesterov=True has no meaning without momentum; give momentum=0.9, say.")
        checked = {
            "learning_rate": rates,
            "steps": as_count("steps", steps, lowest=0, or_infinite=or_infinite),
            "momentum": momentum,
            "nesterov": bool(self.nesterov),
            "ridge": as_positive("ridge", self.ridge, or_zero=True),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def end(self) -> float:
        return float(self.steps)

    @property
    def is_plain(self) -> bool:
        """Whether every step is the same multiple of the present gradient."""
        return not (self.memory or isinstance(self.learning_rate, tuple))

    def check_stable(self, largest: float, loss: AbstractLoss) -> None:
        """Refuse a learning rate beyond which the fastest mode grows; schedules of rates may begin above."""
        curvature = loss.largest_curvature
        if curvature is None or largest * curvature <= 0 or isinstance(self.learning_rate, tuple):
            return
        beta, rate = self.momentum, largest * curvature + self.ridge
        factor = 2 * (1 + beta) / (1 + 2 * beta) if self.nesterov else 2 * (1 + beta)
        limit = factor / rate
        if self.learning_rate >= limit:
            also = "" if loss.is_squared_error else f" times the largest curvature {curvature:g} of {loss!r}"
            also += f" plus ridge={self.ridge:g}" if self.ridge else ""
            with_momentum = f" with momentum={beta:g}" if beta else ""
            raise ValueError(
                f"learning_rate={self.learning_rate:g} is not below {factor:.6g} / {rate:.6g} = "
                f"{limit:g}, {factor:.3g} over the largest eigenvalue of the training NTK{also}"
                f"{with_momentum}: descent diverges; lower it."
            )

    def learning_rate_at(self, step, numbers):
        rate = numbers["learning_rate"]
        if np.ndim(rate) == 0:
            return rate
        return rate[step.astype(np.int64)]

    @property
    def memory(self) -> int:
        """A velocity, where past gradients or the distance from the beginning act."""
        return 1 if self.momentum or self.ridge else 0

    def accumulate(self, state, x, step, numbers):
        """The rate stands outside the velocity, as in PyTorch: v <- momentum v + x, sum <- sum + rate v."""
        if not self.memory:
            return super().accumulate(state, x, step, numbers)
        total, velocity = state
        x = x - numbers["ridge"] * total
        velocity = numbers["momentum"] * velocity + x
        moved = x + numbers["momentum"] * velocity if self.nesterov else velocity
        return total + self.learning_rate_at(step, numbers) * moved, velocity

    @property
    def numbers(self) -> dict[str, Any]:
        rate = self.learning_rate
        rate = np.asarray(rate) if isinstance(rate, tuple) else rate
        return {"learning_rate": rate, "momentum": self.momentum, "ridge": self.ridge}

    def _open(self) -> dict[str, Any]:
        """The fields in `numbers` replaced by values that stand for all of them."""
        return {"learning_rate": 1.0, "momentum": 0.5 if self.memory else 0.0, "ridge": 0.0}

    def __repr__(self) -> str:
        """Learning rate and steps, and what is not left at its default."""
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if field.name in ("learning_rate", "steps") or getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def first_steps(algorithm: AbstractDescent, time: float) -> dict[str, Any]:
    """Learning rate and steps of a descent that stops at another time."""
    rates = algorithm.learning_rate
    if isinstance(rates, tuple):
        if not (0 <= time <= len(rates) and time == int(time)):
            raise ValueError(f"times must lie within the {len(rates)} steps of {algorithm!r}, got {time:g}.")
        rates = rates[: int(time)]
    return {"learning_rate": rates, "steps": time}


def _schedule(rates) -> tuple[float, ...]:
    schedule = tuple(as_number(rate) for rate in rates)
    if not all(0 <= rate < math.inf for rate in schedule):
        raise ValueError(f"learning_rate must be zero or positive at every step, got {rates!r}.")
    return schedule
