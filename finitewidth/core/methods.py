"""How something is computed, as a value: a call says what is wanted, its `method` how it is had.

Methods are frozen values that check themselves. Where a function is given none it chooses, and its record
says which was used.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import jax
import numpy as np

from finitewidth.core.inputs import as_count, as_number, as_positive
from finitewidth.core.keys import as_key

BUDGET = 1800.0  # seconds
SHARE = 0.03  # of the largest shift: the standard error of a sampled mean
FEWEST = 1000  # neurons that say something about their own standard error
MOST_LINES = 20  # between a neuron of a residual network and its past


class AbstractMethod:
    """A way to compute something."""


@dataclass(frozen=True)
class Tensors(AbstractMethod):
    """Whole tensors of four samples, deterministic: the mean and the covariance, in memory that grows as N^4.

    Args:
        tolerance: The absolute accuracy of four-leg averages. By default `fw.solve` takes 1e-8, or 1e-5 with
            kinks, and training 1e-8 for up to 16 inputs, 1e-6 up to 32, and 1e-5 beyond: inverses of the
            training NTK amplify these errors 20 to 1000 times.
        kernel_tolerance: The accuracy of two-leg averages, relative to the scale that each lives on.
        remember: How much a neuron of a residual network remembers of its past through skip connections.
            True keeps all of it. With 8, or another number, two layers are correlated by at most so many
            lines (degrees of Wick monomials): a series whose truncation error is `memory_error` of the
            theory, in a time that grows as the depth and not faster than its square. False leaves out what
            is remembered beyond pairs, which is exact where skip connections are read linearly, and
            otherwise off by 10 to 200 percent.

    ```python
    fw.predict(net, X, Y, X_test, method=fw.Tensors(tolerance=1e-9)).covariance
    ```
    """

    tolerance: float | None = None
    kernel_tolerance: float = 1e-12
    remember: bool | int = True

    def __post_init__(self):
        _check_accuracy("tolerance", self.tolerance)
        _check_accuracy("kernel_tolerance", self.kernel_tolerance)
        if isinstance(self.remember, bool | np.bool_):
            return
        if not isinstance(self.remember, int | np.integer) or not 2 <= self.remember <= MOST_LINES:
            raise ValueError(
                f"remember must be True, False or a number of lines from 2 to {MOST_LINES}, got "
                f"{self.remember!r}."
            )


@dataclass(frozen=True)
class LegByLeg(AbstractMethod):
    """Tensors made and contracted one leg at a time, deterministic: the mean at the end of training.

    Nothing of size N^4 is stored, so that hundreds of inputs are reached.

    Args:
        tolerance: The absolute accuracy of four-leg averages, as in `fw.Tensors`.
        budget: What would take longer than so many seconds is refused after a pilot, with the numbers.

    ```python
    fw.predict(net, X, Y, X_test, method=fw.LegByLeg(budget=600)).mean
    ```
    """

    tolerance: float | None = None
    budget: float = BUDGET

    def __post_init__(self):
        _check_accuracy("tolerance", self.tolerance)
        object.__setattr__(self, "budget", _as_budget(self.budget))


@dataclass(frozen=True)
class Sampling(AbstractMethod):
    """Neurons of dense networks drawn along the training, at a cost of N^2 each: the mean, and the variance.

    Standard errors are 10 to 20 percent too small where a few rare neurons matter. The time grows with the
    learning rate times the number of steps, hardly with the number of points.

    Args:
        tolerance: The standard error of the mean, over the largest shift, rms over the outputs; 0.03 by
            default.
        samples: A number of neurons, instead of a tolerance.
        budget: What would take longer than so many seconds is refused after a pilot, with the numbers.
        variance: Whether to sample the variance of every output on each test input too, to the same accuracy.
            It takes longer than the mean.
        key: The randomness of everything that is drawn: a number or a key of JAX.

    ```python
    flow = fw.GradientFlow(0.5)
    fw.predict(net, X, Y, X_test, algorithm=flow, method=fw.Sampling(samples=2000, key=1)).stderr
    ```
    """

    tolerance: float | None = None
    samples: int | None = None
    budget: float = BUDGET
    variance: bool = False
    key: Any = 0

    def __post_init__(self):
        if self.samples is not None and self.tolerance is not None:
            raise ValueError(
                f"give tolerance={self.tolerance!r} or samples={self.samples!r}, not both; "
                "one sets the other."
            )
        if self.samples is None:
            share = SHARE if self.tolerance is None else self.tolerance
            object.__setattr__(self, "tolerance", as_positive("tolerance", share))
        else:
            object.__setattr__(self, "samples", int(as_count("samples", self.samples, lowest=FEWEST)))
        object.__setattr__(self, "budget", _as_budget(self.budget))
        if not isinstance(self.variance, bool | np.bool_):
            raise ValueError(f"variance must be True or False, got {self.variance!r}.")
        object.__setattr__(self, "key", _plain_key(self.key))

    @property
    def seed(self) -> tuple[int, ...]:
        """The raw data of the key."""
        return _raw(self.key)


@dataclass(frozen=True)
class FunctionSpace(AbstractMethod):
    """Infinitely wide networks drawn as functions and trained one by one, where they are not Gaussian.

    Args:
        members: How many networks are drawn.
        key: The randomness of the draws: a number or a key of JAX.

    ```python
    one_hot = fw.losses.one_hot([0, 1, 0], 2)
    two, flow, entropy = fw.MLP((2, 64, 64, 2), "tanh"), fw.GradientFlow(2.0), fw.CrossEntropy()
    drawn = fw.FunctionSpace(members=20)
    fw.predict(two, X, one_hot, X_test, algorithm=flow, loss=entropy, order=0, method=drawn).mean
    ```
    """

    members: int = 1000
    key: Any = 0

    def __post_init__(self):
        object.__setattr__(self, "members", int(as_count("members", self.members, lowest=2)))
        object.__setattr__(self, "key", _plain_key(self.key))

    @property
    def raw_key(self) -> np.ndarray:
        """The raw data of the key, from which JAX makes it again."""
        return np.asarray(_raw(self.key), dtype=np.uint32)


FirstOrder = Tensors | LegByLeg | Sampling  # the methods of training at order 1/n

_Method = TypeVar("_Method", bound=AbstractMethod)


def as_method(method: Any, kinds: tuple[type[_Method], ...], *, where: str) -> _Method | None:
    """A method as a user gave it; kinds that have no meaning here are refused, `where` says why."""
    if method is None or isinstance(method, kinds):
        return method
    known = " and ".join(f"fw.{kind.__name__}" for kind in kinds)
    given = f"fw.{method!r}" if isinstance(method, AbstractMethod) else repr(method)
    remedy = f"use {known}, or None, which chooses" if kinds else "leave it out"
    raise ValueError(f"method={given} has no meaning {where}; {remedy}.")


def only(method: AbstractMethod, acting: Collection[str], where: str, remedy: str = "leave it out") -> None:
    """Refuse a method of which something else than the named parts differs from its default."""
    for field in fields(method):  # type: ignore[arg-type]
        value = getattr(method, field.name)
        if field.name not in acting and value != field.default:
            raise ValueError(f"method has {field.name}={value!r}, which does nothing {where}; {remedy}.")


def _check_accuracy(name: str, value: Any) -> None:
    if value is not None and not 0 < as_number(value) < 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}.")


def _as_budget(budget: Any) -> float:
    return float(as_positive("budget", budget, or_infinite=True))


def _plain_key(key: Any) -> int | tuple[int, ...]:
    """A number, or the raw data of a key of JAX, so that methods compare by their values."""
    raw = _raw(key)
    return int(key) if isinstance(key, int | np.integer) else raw


def _raw(key: Any) -> tuple[int, ...]:
    data = np.asarray(key, dtype=np.uint32) if isinstance(key, tuple) else key
    return tuple(int(part) for part in jax.random.key_data(as_key(data)).ravel())
