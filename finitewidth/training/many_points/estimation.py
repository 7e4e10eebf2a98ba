"""An estimate of an observable by sampling: pilot, rounds, budget, and standard errors."""

import functools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.display.durations import spoken
from finitewidth.core.estimate import Estimate
from finitewidth.core.tasks import HERE, Runner
from finitewidth.training.many_points.allocation import (
    PILOT,
    Tallies,
    Tally,
    accuracy,
    counts_for,
    effective_batches,
    estimate,
    likely_work_for,
    next_round,
    work,
    work_for,
)
from finitewidth.training.many_points.observables import AbstractObservable
from finitewidth.training.many_points.sampled_training import SampledTraining
from finitewidth.training.many_points.sampling_tasks import SamplingTasks, Stratum, strata_of
from finitewidth.training.many_points.time_integrals import COSTS

TOLERANCE = 0.03
BUDGET = 1800.0  # seconds
_ROUNDS = 12
_FEWEST_NEURONS = 4  # of a task, where few are asked for
_SHORT_PILOT = 2  # tasks in each stratum after which a clear excess is refused
_CLEAR_EXCESS = 3.0  # times the budget, by an estimate that noise makes too low
_TIMED_TASKS = 24  # tasks of a pilot after which its whole time is known within a factor of two
_EARLIER = 4.0  # a refusal looks for a time at least this many times earlier, again and again
_MARGIN = 2.0  # by which the cost at that time must be below the budget: pilots are rough
_GROWTH = 1.5  # the time of training grows as this power of the cost, about


@dataclass(frozen=True)
class Accuracy:
    """What is asked of an estimate: its rms standard error over the largest shift, or a number of samples."""

    tolerance: float = TOLERANCE
    samples: int | None = None
    budget: float = BUDGET  # seconds; what would take longer is refused
    seed: tuple[int, ...] = (0,)


@dataclass(frozen=True, eq=False)
class SampledEstimate:
    """n times the contributions to an observable, (M, n_L) each, their sum, and the cost."""

    contributions: dict[str, Estimate] = field(repr=False)
    total: Estimate = field(repr=False)
    averaged: Estimate = field(repr=False)  # the sum averaged over outputs, (M,)
    samples: int  # neurons
    accuracy: float  # rms standard error of the sum, over its largest entry
    seconds: float  # of all tasks, on one core each
    batches: float  # tasks that the standard error rests on


class _TooLongError(Exception):
    """A pilot that takes longer than the budget by itself, with its seconds on the clock."""

    def __init__(self, seconds: float):
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(eq=False)
class _PilotTimer:
    """The time of a pilot while it runs; the first task, which fills the caches, is not counted."""

    tasks: list[tuple[Stratum, int]]
    cost: float  # of the whole pilot
    workers: int
    budget: float  # seconds on the clock, for the whole pilot
    share: float  # of the budget, for these tasks
    seen: int = 0
    seconds: float = 0.0
    done: float = 0.0  # in units of cost

    def __call__(self, task: int, arrays: Mapping[str, np.ndarray]) -> None:
        self.seen += 1
        if self.seen == 1:
            return
        self.seconds += float(arrays["seconds"]) / self.workers
        self.done += COSTS[self.tasks[task][0].kind]
        whole = self.cost * self.seconds / self.done
        clear = self.seen > _TIMED_TASKS and whole > 2 * self.budget
        if clear or self.seconds > self.share * self.budget:
            raise _TooLongError(max(whole, self.seconds))


@dataclass(eq=False)
class _Sampling:
    """The strata of an observable, with the sums over their tasks so far."""

    training: SampledTraining
    seed: tuple[int, ...]
    observable: AbstractObservable
    running: Runner
    name: str = "samples"
    what: str = "sampling neurons"
    most: int | None = None  # neurons of a task
    tallies: Tallies = field(default_factory=dict)
    neurons: int = 0
    rounds: int = 0

    def run(self, tasks: list[tuple[Stratum, int]], timer: _PilotTimer | None = None) -> None:
        draws = SamplingTasks(self.training, self.observable, self.seed, tuple(tasks), self.most)
        seen = timer or (lambda task, arrays: None)
        results = self.running.results(
            draws, len(tasks), name=f"{self.name}_{self.rounds}", what=self.what, at_once=2, seen=seen
        )
        for (stratum, _), arrays in zip(tasks, results, strict=True):
            self.tallies.setdefault(stratum, Tally()).add(arrays)
        self.neurons += draws.neurons * len(tasks)
        self.rounds += 1

    @functools.cached_property
    def strata(self) -> list[Stratum]:
        return strata_of(self.training, self.observable.kinds)

    def pilot(self, first: int = 0, until: int = PILOT, budget: float = math.inf) -> None:
        """Tasks of every stratum; a pilot of PILOT tasks that is longer than the budget is ended."""
        tasks = [(stratum, number) for stratum in self.strata for number in range(first, until)]
        self.run(tasks, _PilotTimer(tasks, self.cost_of_pilot, self.workers, budget, (until - first) / PILOT))

    @property
    def cost_of_pilot(self) -> float:
        return PILOT * sum(COSTS[stratum.kind] for stratum in self.strata)

    @property
    def workers(self) -> int:
        client = self.running.client
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(2, cores) if client is None else max(1, sum(client.nthreads().values()))

    @property
    def seconds(self) -> float:
        """Of all tasks, on one core each."""
        return sum(tally.seconds for tally in self.tallies.values())

    @property
    def seconds_of_work(self) -> float:
        """On the clock, for one unit of cost."""
        return self.seconds / work(self.tallies) / self.workers

    def result(self) -> SampledEstimate:
        value, error = estimate(self.tallies)
        each = [Estimate(*part) for part in zip(value[:, :, :-1], error[:, :, :-1], strict=True)]
        parts = dict(zip(self.observable.names, each, strict=False))
        averaged = Estimate(value[-1, :, -1], error[-1, :, -1])
        batches = effective_batches(self.tallies)
        return SampledEstimate(
            parts, each[-1], averaged, self.neurons, accuracy(self.tallies), self.seconds, batches
        )


def estimate_by_sampling(
    training: SampledTraining,
    observable: AbstractObservable,
    wanted: Accuracy,
    running: Runner = HERE,
    name: str = "samples",
) -> SampledEstimate:
    """n times an observable, as accurate as wanted."""
    sampling = _Sampling(training, wanted.seed, observable, running, name)
    if wanted.samples is not None:
        return _with_samples(sampling, wanted, wanted.samples)
    try:
        sampling.pilot(until=_SHORT_PILOT, budget=wanted.budget)
        if _is_hopeless(sampling, wanted):
            _check_budget(sampling, wanted, likely_work_for(sampling.tallies, wanted.tolerance))
        sampling.pilot(_SHORT_PILOT, budget=wanted.budget)
    except _TooLongError as pilot:
        raise ValueError(_refusal_of_pilot(sampling, wanted, pilot.seconds)) from None
    _check_budget(sampling, wanted, likely_work_for(sampling.tallies, wanted.tolerance))
    for _ in range(_ROUNDS):
        tasks = next_round(sampling.tallies, wanted.tolerance)
        if not tasks:
            break
        sampling.run(tasks)
        _check_budget(sampling, wanted, likely_work_for(sampling.tallies, wanted.tolerance))
    return sampling.result()


def _with_samples(sampling: _Sampling, wanted: Accuracy, samples: int) -> SampledEstimate:
    """The estimate from a number of neurons, half of them in a pilot where they are few."""
    strata = len(sampling.strata)
    sampling.most = max(_FEWEST_NEURONS, samples // (2 * PILOT * strata))
    tasks = samples // SamplingTasks(sampling.training, sampling.observable, (), (), sampling.most).neurons
    try:
        sampling.pilot(until=min(PILOT, tasks // strata), budget=wanted.budget)
    except _TooLongError as pilot:
        raise ValueError(_refusal_of_pilot(sampling, wanted, pilot.seconds)) from None
    counts, done = counts_for(sampling.tallies, tasks), sampling.tallies
    _check_budget(sampling, wanted, sum(COSTS[stratum.kind] * count for stratum, count in counts.items()))
    rest = [(stratum, number) for stratum in done for number in range(done[stratum].count, counts[stratum])]
    if rest:
        sampling.run(rest)
    return sampling.result()


def check_samples(training: SampledTraining, observable: type[AbstractObservable], wanted: Accuracy) -> None:
    """Refuse a number of neurons that gives no standard error: two tasks in each stratum are the least."""
    strata = len(strata_of(training, observable.kinds))
    least = _SHORT_PILOT * _FEWEST_NEURONS * strata
    if wanted.samples is not None and wanted.samples < least:
        raise ValueError(
            f"samples={wanted.samples} are too few for a standard error: two batches of {_FEWEST_NEURONS} "
            f"neurons in each of {strata} bins of layers, contractions and time are the least; use "
            f"samples={least} or more, or tolerance=."
        )


def _is_hopeless(sampling: _Sampling, wanted: Accuracy) -> bool:
    """Whether even noise, which makes the work look less, does not hide that the budget is far away."""
    return (
        work_for(sampling.tallies, wanted.tolerance) * sampling.seconds_of_work
        > _CLEAR_EXCESS * wanted.budget
    )


def _check_budget(sampling: _Sampling, wanted: Accuracy, needed: float) -> None:
    """Refuse what would take longer than the budget, with the numbers."""
    seconds = needed * sampling.seconds_of_work
    if seconds <= wanted.budget:
        return
    takes = f"needs {spoken(seconds)} of sampling, above budget={wanted.budget:g} s"
    if wanted.samples is not None:
        fit = int(wanted.samples * wanted.budget / seconds)
        lower = (
            f"use samples={fit}, or " if fit >= _SHORT_PILOT * _FEWEST_NEURONS * len(sampling.strata) else ""
        )
        raise ValueError(f"samples={wanted.samples} {takes}; {lower}raise the budget.")
    reachable = _rounded_up(wanted.tolerance * math.sqrt(seconds / wanted.budget))
    reached = f"{reachable:g} of the largest shift can be reached" if reachable < 1 else "no digit is reached"
    raise ValueError(
        f"tolerance={wanted.tolerance:g} {takes}, in which {reached}; raise one of the two"
        f"{_earlier(sampling, wanted, seconds)}."
    )


def _rounded_up(x: float) -> float:
    """To two digits."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return math.ceil(x / unit) * unit


def _refusal_of_pilot(sampling: _Sampling, wanted: Accuracy, seconds: float) -> str:
    count, l_max_T = PILOT * len(sampling.strata), sampling.training.l_max_T
    return (
        f"the pilot alone, {count} tasks in bins of time up to l_max T = {l_max_T:.2g}, needs "
        f"{spoken(seconds)}, above budget={wanted.budget:g} s; raise the budget"
        f"{_earlier(sampling, wanted, seconds, pilot=seconds)}."
    )


def _earlier(sampling: _Sampling, wanted: Accuracy, seconds: float, pilot: float | None = None) -> str:
    """A time at which the same accuracy fits the budget by a pilot of its own, with a margin.

    `pilot` is the time of the whole pilot that was ended; pilots that would be too long are not begun.
    """
    training, running = sampling.training, Runner(sampling.running.client, progress=sampling.running.progress)
    steps, fits = bool(training.clock.eta), wanted.budget / _MARGIN
    unit = sampling.seconds_of_work if pilot is None else pilot / sampling.cost_of_pilot
    shortest = 1.0 if steps else 1 / float(training.l[-1])
    begin = late = training.replay.duration / training.replay.unit
    until = max(begin / _excess(seconds, wanted), min(shortest, begin / _EARLIER))
    remaining = wanted.budget  # for pilots at earlier times
    while until >= shortest:
        clock = training.clock.until(math.floor(until) if steps else float(f"{until:.4g}"))
        other = _Sampling(training.until(clock), wanted.seed, sampling.observable, running)
        other.what = "looking for an earlier time"
        seconds = unit * other.cost_of_pilot * _SHORT_PILOT / PILOT
        if seconds <= fits:
            try:
                other.pilot(until=_SHORT_PILOT, budget=remaining * PILOT / _SHORT_PILOT)
            except _TooLongError:
                return f", or stop before {_named(late, steps)}, which is too late still"
            remaining -= other.seconds / other.workers
            seconds = _needed(other, wanted) * other.seconds_of_work
        if seconds <= fits:
            return f", or stop at {_named(clock.duration, steps)}, where about {seconds:.0f} s are enough"
        late, until = clock.duration, until / _excess(seconds, wanted)
    return ": no earlier time fits this budget"


def _excess(seconds: float, wanted: Accuracy) -> float:
    """How many times earlier the budget is likely to do."""
    return max(_EARLIER, (_MARGIN * seconds / wanted.budget) ** _GROWTH)


def _named(until: float, steps: bool) -> str:
    return f"steps={until:.0f}" if steps else f"time={until:.4g}"


def _needed(sampling: _Sampling, wanted: Accuracy) -> float:
    """The work that is wanted, by a short pilot, which is part of it."""
    done = work(sampling.tallies)
    if wanted.samples is not None:
        return done * max(1.0, wanted.samples / sampling.neurons)
    return max(done, likely_work_for(sampling.tallies, wanted.tolerance))
