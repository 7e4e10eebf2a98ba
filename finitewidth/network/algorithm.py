"""How a network is trained, as values; what that does to predictions is known in `training`.

Every update is theta -= learning_rate * lambda * dL/dtheta with rates lambda_b for biases and
lambda_W / n_{l-1} for weights, and the loss L is a sum over samples.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from finitewidth.core.inputs import as_count, as_number


@dataclass(frozen=True)
class GradientFlow:
    r"""Gradient descent with infinitely small steps, $d\theta/dt = -\lambda\, dL/d\theta$, until `time`."""

    time: float = math.inf

    def __post_init__(self):
        object.__setattr__(self, "time", _positive("time", self.time, or_zero=True, or_infinite=True))


@dataclass(frozen=True)
class GradientDescent:
    """Full-batch gradient descent: `steps` updates with one `learning_rate`; infinitely many at the end."""

    learning_rate: float
    steps: float = math.inf  # a whole number, or infinity

    def __post_init__(self):
        object.__setattr__(self, "learning_rate", _positive("learning_rate", self.learning_rate))
        object.__setattr__(self, "steps", as_count("steps", self.steps, lowest=0, or_infinite=True))


@dataclass(frozen=True)
class StochasticGradientDescent:
    """Mini-batches drawn anew in each epoch, with learning_rate / (1 + decay * step) at step 0, 1, 2, ..."""

    learning_rate: float
    steps: int
    batch_size: int
    decay: float = 0.0

    def __post_init__(self):
        object.__setattr__(self, "learning_rate", _positive("learning_rate", self.learning_rate))
        object.__setattr__(self, "steps", as_count("steps", self.steps, lowest=0))
        object.__setattr__(self, "batch_size", as_count("batch_size", self.batch_size, lowest=1))
        object.__setattr__(self, "decay", _positive("decay", self.decay, or_zero=True))


@dataclass(frozen=True)
class Newton:
    """One step of the second-order update that trains an infinitely wide network fully (PDLT 10.27)."""


@dataclass(frozen=True)
class TwoStep:
    """Two second-order updates that train a network of finite width fully (PDLT section inf.2.2)."""


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    r"""Any sequence of first- and second-order updates (PDLT 10.19), one entry of `updates` for each step.

    $$d\theta_\mu = -\sum_{\nu, \alpha_1, \alpha_2} \lambda_{\mu\nu}\, \frac{dz_{\alpha_1}}{d\theta_\nu}\,
      (\eta\kappa)_{\alpha_1\alpha_2}\, (z - y)_{\alpha_2}$$

    An entry is $\eta\kappa$: a learning rate, or one rate for each training sample (zeros leave samples out,
    which is a mini-batch), or a matrix (a learning rate times a Newton tensor).
    """

    updates: tuple[np.ndarray, ...]

    def __init__(self, updates: Iterable):
        object.__setattr__(self, "updates", tuple(_update(step, u) for step, u in enumerate(updates)))

    def __repr__(self) -> str:
        return f"Schedule({len(self.updates)} updates)"


def _universal_two(l_a, l_b):
    return 1 / (2 * l_a * l_b)


def _universal_three(l_a, l_b, l_c):
    return -1 / (6 * l_a * l_b * l_c)


def _nothing(*eigenvalues):
    return 0.0 * sum(eigenvalues)


@dataclass(frozen=True)
class Projectors:
    """An algorithm of one's own that trains fully, by its projectors (PDLT inf.142-inf.147).

    Each is a function of eigenvalues of the training NTK, given as arrays that broadcast. Z_B and Z_IB are
    the same for every algorithm; what is left out stays as in the two-step solution.
    """

    Z_A: Callable = _nothing
    Z_B: Callable = _universal_two
    Z_IA: Callable = _nothing
    Z_IB: Callable = _universal_three
    Z_IIA: Callable = _nothing
    Z_IIB: Callable = _nothing


Algorithm = (
    GradientFlow | GradientDescent | StochasticGradientDescent | Newton | TwoStep | Schedule | Projectors
)


def _update(step: int, value) -> np.ndarray:
    try:
        update = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"updates must be numbers or arrays, got {value!r} for step {step}.") from None
    square = update.ndim < 2 or (update.ndim == 2 and update.shape[0] == update.shape[1])
    if not square or not np.isfinite(update).all():
        raise ValueError(
            f"update {step} must be a finite number, one for each training sample, or a square matrix over "
            f"them, got an array of shape {update.shape}."
        )
    return update


def _positive(name: str, value, *, or_zero: bool = False, or_infinite: bool = False) -> float:
    number = as_number(value)
    if (number > 0 or (or_zero and number == 0)) and (or_infinite or math.isfinite(number)):
        return number
    wanted = "zero or a positive number" if or_zero else "a positive number"
    raise ValueError(f"{name} must be {wanted}{', or infinity' * or_infinite}, got {value!r}.")
