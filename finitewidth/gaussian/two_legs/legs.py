"""The legs of many pairs: their variances, and whatever a rule computes once for each leg."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from finitewidth.gaussian.two_legs.orders import Orders
from finitewidth.network.layers.activation import Activation


@dataclass(frozen=True, eq=False)
class Legs:
    """Legs with the given variances, for averages of the given orders of derivatives."""

    activation: Activation
    orders: tuple[Orders, ...]
    variances: np.ndarray
    rounding: float = dataclasses.field(default=0.0, kw_only=True)

    def with_rounding(self, rounding: float) -> "Legs":
        """Legs that count as parallel where 1 - correlation^2 is no larger: equal but for rounding."""
        return dataclasses.replace(self, rounding=rounding)


@dataclass(frozen=True)
class Side:
    """One side of a block of pairs: which legs stand where.

    `select` takes an array whose last axes are those of the legs' variances to one that broadcasts against
    the covariances of the pairs.
    """

    legs: Any
    select: Callable[[np.ndarray], np.ndarray]

    @property
    def variances(self) -> np.ndarray:
        return self.select(self.legs.variances)


def rows(legs: Any, part: slice = slice(None)) -> Side:
    """Some legs along the rows of a matrix of pairs."""
    return Side(legs, lambda values: values[..., part, None])


def columns(legs: Any, part: slice = slice(None)) -> Side:
    """Some legs along the columns of a matrix of pairs."""
    return Side(legs, lambda values: values[..., None, part])
