"""Members in batches: a fixed partition that depends on the request alone, never on who works on it."""

import math
from dataclasses import dataclass

import numpy as np

from finitewidth.core.inputs import as_count
from finitewidth.core.run import Run

MEMORY_BUDGET = 1e9  # bytes that a batch may take unless the caller says otherwise; a CPU works on two
AT_ONCE = 2  # small matrix products fill one core, and two batches at a time fill two


@dataclass(frozen=True)
class Partition:
    """Members 0, 1, 2, ... in batches of one size; the last is filled up with members that do not count."""

    members: int
    batch_size: int

    @property
    def batches(self) -> int:
        return math.ceil(self.members / self.batch_size)

    def numbers(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of a batch's members, and weight 1 for those that count."""
        numbers_ = np.arange(batch * self.batch_size, (batch + 1) * self.batch_size)
        return numbers_.astype(np.uint32), (numbers_ < self.members).astype(np.float64)

    def size(self, batch: int) -> int:
        """How many members of a batch count."""
        return min(self.batch_size, self.members - batch * self.batch_size)


def partition(members: int, run: Run, *, of_one: float, least_batches: int, lowest: int = 1) -> Partition:
    """Batches of the size that the run asks for, or as large as its memory holds at `of_one` bytes a member.

    Without a size there are at least `least_batches` batches, where there are members for them.
    """
    members = int(as_count("members", members, lowest=1))
    if members > 2**32:
        raise ValueError(f"members must be at most 2^32, got {members}; use several keys.")
    if run.batch_size is not None:
        size = int(as_count("batch_size", run.batch_size, lowest=lowest))
        return Partition(members, min(size, max(members, lowest)))
    memory = MEMORY_BUDGET if run.memory is None else run.memory
    fits = int(memory // of_one)
    if fits < lowest:
        raise ValueError(
            f"memory of {memory / 1e9:.3g} GB is too little: {lowest} member(s) at once need "
            f"{lowest * of_one / 1e9:.3g} GB; raise memory, or use fewer inputs or a narrower network."
        )
    return Partition(members, max(lowest, min(fits, math.ceil(members / least_batches))))
