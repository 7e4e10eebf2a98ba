"""The legs of many pairs: their variances, and whatever a rule computes once for each leg."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from finitewidth.gaussian.two_legs.orders import Orders
from finitewidth.network.layers.activation import Activation


@dataclass(frozen=True, eq=False)
class Legs:
    """Legs with the given variances, for averages of the given orders of derivatives."""

    numbers_each: ClassVar[int] = 1  # that are kept for a leg

    activation: Activation
    orders: tuple[Orders, ...]
    variances: np.ndarray
    rounding: float = dataclasses.field(default=0.0, kw_only=True)

    def with_rounding(self, rounding: float) -> "Legs":
        """Legs that count as parallel where 1 - correlation^2 is no larger: equal but for rounding."""
        return dataclasses.replace(self, rounding=rounding)


@dataclass(frozen=True)
class Side:
    """One side of a block of pairs (D, P, A, B): which legs, out of (Q, n), stand where.

    D and P count pairs of positions of the samples A along rows and B along columns. Legs along rows are
    listed by A; legs along columns by B, or by A too where samples are paired with themselves and B is one.
    """

    legs: Any
    samples: slice = dataclasses.field(default_factory=lambda: slice(None))
    places: np.ndarray | None = None  # the position of the leg for each D and P, if it is not P itself
    along_columns: bool = False

    def select(self, values: np.ndarray) -> np.ndarray:
        """From an array whose last axes are those of the legs to one that broadcasts against the pairs."""
        chosen = values[..., self.samples]
        chosen = chosen[..., None, :, :] if self.places is None else chosen[..., self.places, :]
        return chosen[..., None, :] if self.along_columns else chosen[..., None]

    @property
    def variances(self) -> np.ndarray:
        return self.select(self.legs.variances)

    @property
    def start(self) -> int:
        """The first of the samples."""
        return self.samples.start or 0

    def places_of(self, shape: tuple[int, ...]) -> np.ndarray:
        """The position of the leg for each D and P of pairs of this shape."""
        if self.places is None:
            return np.broadcast_to(np.arange(shape[1]), shape[:2]).copy()
        return self.places
