"""Where sums of tasks go: to all their places in arrays, or first to one place for each four samples."""

import functools
import itertools
from typing import Protocol, runtime_checkable

import numpy as np

from finitewidth.core.cores import in_pieces
from finitewidth.gaussian import array_pool
from finitewidth.gaussian.four_legs.families import Family, Layers, placements
from finitewidth.gaussian.four_legs.slot_arrays import Filling

_AT_ONCE = 1 << 16  # entries of an array that are worth a task


@runtime_checkable
class Writer(Protocol):
    """Takes sums (arrangements, entries) of a task: its legs, and which two an entry has beside p and q."""

    def write(self, block: np.ndarray, legs: np.ndarray, places: np.ndarray) -> None: ...


class Scattered:
    """Writes to all places at once.

    `fixed` is which of p, q, row and column is the fixed sample, if one is. Of two layers, `layers` are those
    of p, q, row and column, and legs of the second are counted on from the number of samples. If p = q, its
    two orders can be exchanged, and one of two equal sums is written.
    """

    def __init__(
        self,
        filling: Filling,
        dealt: tuple[Family, ...],
        *,
        fixed: int = 0,
        layers: Layers | None = None,
        doubled: bool = False,
    ):
        self.count = filling.count
        self.targets = [
            (array.reshape(-1), _places(family, slot, fixed, layers, doubled, self.count, dealt))
            for family, arrays in filling.arrays.items()
            for slot, array in arrays.items()
        ]

    def write(self, block: np.ndarray, legs: np.ndarray, places: np.ndarray) -> None:
        from finitewidth.gaussian.four_legs.loops import placement as loops

        samples = legs % self.count
        for target, where in self.targets:
            loops.scatter(block, samples, places, where, target)


@functools.lru_cache(maxsize=256)
def _places(
    family: Family,
    slot: int | None,
    fixed: int,
    layers: Layers | None,
    doubled: bool,
    count: int,
    dealt: tuple[Family, ...],
) -> np.ndarray:
    """Where sums go in an array over four slots, or three: arrangement and strides of p, q, row, column."""
    slots, twice = [number for number in range(4) if number != slot], doubled and slot is None
    strides = {number: count ** (len(slots) - 1 - place) for place, number in enumerate(slots)}
    rows = [
        [dealt.index(orders), *(strides.get(place, 0) for place in places)]
        for places, orders in placements(family, layers)
        if (slot is None or places[fixed] == slot) and not (twice and places[0] > places[1])
    ]
    return np.array(rows).reshape(-1, 5)


class Packed:
    """Sums of four different samples, each set of them once, in the order a < b < c < d of `samples`.

    A set belongs to the pair (a, c), by which it is conditioned, and there to its b and d. Arrays are filled
    from here: writing all places at once, far from each other, would take several times as long.
    """

    def __init__(self, samples: np.ndarray, dealt: tuple[Family, ...]):
        count = len(samples)
        self.samples, self.dealt = samples, dealt
        self.rank = np.empty(count, dtype=int)
        self.rank[samples] = np.arange(count)
        a, c = np.triu_indices(count, 1)
        sizes = (c - a - 1) * (count - 1 - c)
        self.starts = np.zeros((count, count), dtype=int)
        self.starts[a, c] = np.cumsum(sizes) - sizes
        self.sums = array_pool.zeros((len(dealt), int(sizes.sum())))

    def write(self, block: np.ndarray, legs: np.ndarray, places: np.ndarray) -> None:
        from finitewidth.gaussian.four_legs.loops import placement as loops

        loops.pack(block, self.rank[legs], places, self.starts, self.sums)

    def fill(self, filling: Filling) -> None:
        """Fill all entries of arrays over four slots that have four different samples; once."""
        from finitewidth.gaussian.four_legs.loops import placement as loops

        for family, arrays in filling.arrays.items():
            sources, copies = _rows(family, self.dealt)
            first, second = np.triu_indices(len(self.samples), 1)
            arguments = self.sums, self.starts, self.samples, sources, copies, first, second, arrays[None]
            pairs = 1 + _AT_ONCE // len(self.samples) ** 2
            in_pieces(lambda start, stop, of=arguments: loops.unpack(*of, start, stop), len(first), pairs)
        array_pool.give_back(self.sums)


@functools.lru_cache(maxsize=64)
def _rows(family: Family, dealt: tuple[Family, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of an array over four slots: three samples u < v < w in the first slots, any in the last.

    Returns which arrangements a row has where the last sample is below u, v, w or above them, (R, 4), and in
    which orders u, v, w stand in the slots of rows that are equal, (R, C, 3).
    """
    rows: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for order in itertools.permutations(range(3)):  # the sample in each slot
        own = [family[order.index(sample)] for sample in range(3)]
        numbers = []
        for place in range(4):  # of the last sample among the others
            one, two, three, four = *own[:place], family[3], *own[place:]
            numbers.append(dealt.index((one, three, two, four)))
        rows.setdefault(tuple(numbers), []).append(order)
    return np.array([*rows]), np.array([*rows.values()])
