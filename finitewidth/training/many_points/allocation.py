"""How many tasks each stratum gets: a pilot, then rounds whose plans use the variances known so far.

Plans depend on standard deviations and fixed relative costs, never on a clock, so that results have the same
bits on any machine. The clock only tells how long the rest will take, for a budget to refuse it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.training.many_points.sampling_tasks import Stratum
from finitewidth.training.many_points.time_integrals import COSTS

PILOT = 4  # tasks in each stratum before anything is planned
_GROWTH = 3.0  # a round is at most this many times the work so far: deviations of few tasks mislead
_FLOOR = 0.02  # of the largest standard deviation, below which none is planned with: tails are heavy
_LEAST_SIGNAL = 1 / 3  # share of an estimated shift that is taken as signal at the least


@dataclass(eq=False)
class Tally:
    """Results of the tasks of one stratum: their number, sum and sum of squares."""

    count: int = 0
    sums: np.ndarray | float = 0.0  # of the contributions and, last, of all together; outputs and their mean
    squares: np.ndarray | float = 0.0
    seconds: float = 0.0

    def add(self, arrays: Mapping[str, np.ndarray]) -> None:
        parts = arrays["contributions"]
        values = np.concatenate([parts, parts.sum(axis=0, keepdims=True)])
        values = np.concatenate([values, values.mean(axis=2, keepdims=True)], axis=2)
        self.count += 1
        self.seconds += float(arrays["seconds"])
        self.sums, self.squares = self.sums + values, self.squares + values**2

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.sums) / self.count

    @property
    def variance(self) -> np.ndarray:
        """Of one task."""
        centred = np.maximum(np.asarray(self.squares) / self.count - self.mean**2, 0.0)
        return centred * self.count / (self.count - 1)

    @property
    def deviation(self) -> float:
        """The standard deviation of one task, all contributions together, rms over outputs."""
        return float(np.sqrt(self.variance[-1, :, :-1].mean()))


Tallies = dict[Stratum, Tally]


def estimate(tallies: Tallies) -> Estimate:
    """The sum over strata: the contributions and, last, all of them; outputs and, last, their mean."""
    value = np.sum([tally.mean for tally in tallies.values()], axis=0)
    variance = np.sum([tally.variance / tally.count for tally in tallies.values()], axis=0)
    return Estimate(value, np.sqrt(variance))


def accuracy(tallies: Tallies) -> float:
    """The rms standard error of the shift relative to the largest shift."""
    largest, stderr = _largest(tallies), estimate(tallies).stderr[-1, :, :-1]
    return float(np.sqrt(np.mean(stderr**2)) / largest) if largest > 0 else 0.0


def _largest(tallies: Tallies) -> float:
    """The largest shift."""
    return float(np.abs(estimate(tallies).value[-1, :, :-1]).max(initial=0.0))


def work(tallies: Tallies) -> float:
    """The cost of all tasks so far."""
    return sum(COSTS[stratum.kind] * tally.count for stratum, tally in tallies.items())


def work_for(tallies: Tallies, tolerance: float) -> float:
    """The cost of an accuracy, with the best plan, from the beginning."""
    target = tolerance * _largest(tallies)
    whole = sum(
        deviation * np.sqrt(COSTS[stratum.kind]) for stratum, deviation in _deviations(tallies).items()
    )
    return float((whole / target) ** 2) if target > 0 else 0.0


def likely_work_for(tallies: Tallies, tolerance: float) -> float:
    """The same with the noise taken out of the shift: noise makes it look larger and its accuracy cheaper."""
    value, stderr = (array[-1, :, :-1] for array in estimate(tallies))
    square = np.mean(value**2)
    share = max(1 - np.mean(stderr**2) / square, _LEAST_SIGNAL**2) if square > 0 else 1.0
    return float(work_for(tallies, tolerance) / share)


def plan(tallies: Tallies, whole: float) -> list[tuple[Stratum, int]]:
    """The tasks that are missing to a total cost, strata in proportion to deviation / sqrt(cost)."""
    deviations = _deviations(tallies)
    unit = sum(deviation * np.sqrt(COSTS[stratum.kind]) for stratum, deviation in deviations.items())
    tasks = []
    for stratum, tally in tallies.items():
        share = deviations[stratum] / np.sqrt(COSTS[stratum.kind]) / unit if unit > 0 else 0.0
        tasks += [(stratum, number) for number in range(tally.count, round(share * whole))]
    return tasks


def counts_for(tallies: Tallies, tasks: int) -> dict[Stratum, int]:
    """How a number of tasks, those that are done among them, is shared: in the proportions of `plan`."""
    wanted = {s: deviation / np.sqrt(COSTS[s.kind]) for s, deviation in _deviations(tallies).items()}
    if not any(wanted.values()):
        wanted = dict.fromkeys(tallies, 1.0)

    def shared(scale: float) -> dict[Stratum, int]:
        return {s: max(tally.count, math.floor(scale * wanted[s])) for s, tally in tallies.items()}

    low, high = 0.0, tasks / max(wanted.values()) * len(tallies)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(shared(middle).values()) <= tasks else (low, middle)
    return shared(low)


def effective_batches(tallies: Tallies) -> float:
    """How many tasks the standard error rests on: few, where few strata with few tasks make most of it."""
    parts = [(float(tally.deviation**2) / tally.count, tally.count) for tally in tallies.values()]
    squares = sum(part**2 / (count - 1) for part, count in parts)
    return sum(part for part, _ in parts) ** 2 / squares if squares > 0 else math.inf


def next_round(tallies: Tallies, tolerance: float) -> list[tuple[Stratum, int]]:
    """The tasks of the next round towards an accuracy; none where it is reached."""
    if accuracy(tallies) <= tolerance:
        return []
    done = work(tallies)
    wanted = min(max(work_for(tallies, tolerance), 1.1 * done), (1 + _GROWTH) * done)
    return plan(tallies, wanted)


def _deviations(tallies: Tallies) -> dict[Stratum, float]:
    """Standard deviations of one task, none below the floor."""
    deviations = {stratum: tally.deviation for stratum, tally in tallies.items()}
    floor = _FLOOR * max(deviations.values(), default=0.0)
    return {stratum: max(deviation, floor) for stratum, deviation in deviations.items()}
