"""How many samples each stratum gets: a pilot, then rounds whose plans use all that is known so far.

Plans depend on spreads and on fixed relative costs, never on a clock, so that results have the same bits on
any machine. The clock only tells what the rest will take, and refuses it where that is above the budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from finitewidth.training.many_points.draws import Stratum
from finitewidth.training.many_points.moments import COSTS

PILOT = 4  # tasks in each stratum before anything is planned
_GROWTH = 3.0  # a round is at most this many times the work before it: spreads of few tasks mislead
_FLOOR = 0.02  # of the largest spread, below which none is believed: spreads are heavy-tailed


@dataclass(eq=False)
class Tally:
    """Results of the tasks of one stratum: number, sum and sum of squares, by contribution and in total."""

    count: int = 0
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    squares: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, arrays: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
        values = {name: array[rows] for name, array in arrays.items() if name != "seconds"}
        values["total"] = np.sum(list(values.values()), axis=0)
        self.count += 1
        self.seconds += float(arrays["seconds"])
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.squares[name] = self.squares.get(name, 0.0) + value**2

    def variance(self, name: str) -> np.ndarray:
        """Of one task."""
        mean = self.sums[name] / self.count
        return np.maximum(self.squares[name] / self.count - mean**2, 0.0) * self.count / (self.count - 1)

    @property
    def spread(self) -> float:
        """The standard deviation of one task, rms over outputs."""
        return float(np.sqrt(self.variance("total").mean()))


Tallies = dict[Stratum, Tally]


def estimate(tallies: Tallies, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The sum over strata of a contribution, and its standard error."""
    own = [tally for tally in tallies.values() if name in tally.sums]
    value = np.sum([tally.sums[name] / tally.count for tally in own], axis=0)
    variance = np.sum([tally.variance(name) / tally.count for tally in own], axis=0)
    return value, np.sqrt(variance)


def accuracy(tallies: Tallies) -> float:
    """The rms standard error of the shift relative to the largest shift."""
    value, stderr = estimate(tallies, "total")
    largest = np.abs(value).max(initial=0.0)
    return float(np.sqrt(np.mean(stderr**2)) / largest) if largest > 0 else 0.0


def work(tallies: Tallies) -> float:
    """What has been done, in units of cost."""
    return sum(COSTS[stratum.kind] * tally.count for stratum, tally in tallies.items())


def work_for(tallies: Tallies, tolerance: float) -> float:
    """The whole work for an accuracy, with the best plan."""
    value, _ = estimate(tallies, "total")
    target = tolerance * np.abs(value).max(initial=0.0)
    whole = sum(spread * np.sqrt(COSTS[stratum.kind]) for stratum, spread in _believed(tallies).items())
    return float((whole / target) ** 2) if target > 0 else 0.0


def plan(tallies: Tallies, whole: float) -> list[tuple[Stratum, int]]:
    """The tasks that a whole amount of work still lacks, strata in proportion to spread / sqrt(cost)."""
    spreads = _believed(tallies)
    unit = sum(spread * np.sqrt(COSTS[stratum.kind]) for stratum, spread in spreads.items())
    tasks = []
    for stratum, tally in tallies.items():
        share = spreads[stratum] / np.sqrt(COSTS[stratum.kind]) / unit if unit > 0 else 0.0
        tasks += [(stratum, number) for number in range(tally.count, round(share * whole))]
    return tasks


def next_round(tallies: Tallies, tolerance: float) -> list[tuple[Stratum, int]]:
    """The tasks of the next round towards an accuracy; none where it is reached."""
    if accuracy(tallies) <= tolerance:
        return []
    done = work(tallies)
    wanted = min(max(work_for(tallies, tolerance), 1.1 * done), (1 + _GROWTH) * done)
    return plan(tallies, wanted)


def _believed(tallies: Tallies) -> dict[Stratum, float]:
    spreads = {stratum: tally.spread for stratum, tally in tallies.items()}
    floor = _FLOOR * max(spreads.values(), default=0.0)
    return {stratum: max(spread, floor) for stratum, spread in spreads.items()}
