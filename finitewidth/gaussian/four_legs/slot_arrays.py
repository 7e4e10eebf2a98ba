"""Arrays of four-leg averages over four slots, or over three slots when one holds a fixed sample."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.gaussian import array_pool
from finitewidth.gaussian.four_legs.families import Family


@dataclass(frozen=True)
class Filling:
    """Arrays over the four slots or, if a sample is fixed, over three of them.

    Labels are always given for four slots; a fixed slot takes only labels that name the fixed sample.
    """

    fixed: int | None
    arrays: dict[Family, dict[int | None, np.ndarray]]  # by family and fixed slot

    @classmethod
    def empty(cls, count: int, families: tuple[Family, ...], fixed: int | None) -> "Filling":
        shape = (count,) * (4 if fixed is None else 3)
        slots = {family: [None] if fixed is None else _distinct_slots(family) for family in families}
        arrays = {family: {slot: array_pool.zeros(shape) for slot in own} for family, own in slots.items()}
        return cls(fixed, arrays)

    @property
    def count(self) -> int:
        """The number of samples."""
        return next(array.shape[-1] for arrays in self.arrays.values() for array in arrays.values())

    def put(self, family: Family, labels: Sequence, block: np.ndarray | float) -> None:
        for slot, array in self.arrays[family].items():
            if slot is None:
                array[tuple(labels)] = block
            elif isinstance(labels[slot], int) and labels[slot] == self.fixed:
                array[(*labels[:slot], *labels[slot + 1 :])] = block


def _distinct_slots(family: Family) -> list[int]:
    """The first slot of every derivative order; slots of equal order give equal arrays."""
    return sorted({family.index(order) for order in family})
