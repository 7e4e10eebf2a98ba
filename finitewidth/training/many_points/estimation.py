"""An answer about a replayed training as an estimate: pilot, rounds, budget, and standard errors."""

import math
import os
from dataclasses import dataclass, field, replace

from finitewidth.core.estimate import Estimate
from finitewidth.core.tasks import HERE, Runner
from finitewidth.training.many_points.allocation import (
    PILOT,
    Tallies,
    Tally,
    accuracy,
    estimate,
    likely_work_for,
    next_round,
    plan,
    work,
    work_for,
)
from finitewidth.training.many_points.draws import Draws, Stratum, strata_of
from finitewidth.training.many_points.questions import AbstractQuestion
from finitewidth.training.many_points.scene import Scene

TOLERANCE = 0.03
BUDGET = 1800.0  # seconds
_ROUNDS = 12
_HASTY = 2  # tasks in each stratum after which a clear excess is refused
_CLEAR = 3.0  # times the budget, by an estimate that noise makes too low
_EARLIER = 4.0  # a refusal looks for a time at least this many times earlier, again and again
_MARGIN = 2.0  # by which it must be below the budget: pilots are rough
_GROWTH = 1.5  # the time of training grows as this power of what it costs, about


@dataclass(frozen=True)
class Accuracy:
    """What is asked of an estimate: its rms standard error over the largest shift, or a number of samples."""

    tolerance: float = TOLERANCE
    samples: int | None = None
    budget: float = BUDGET  # seconds; what would take longer is refused
    seed: tuple[int, ...] = (0,)


@dataclass(frozen=True, eq=False)
class Sampled:
    """n times the contributions to an answer, (M, n_L) each, their sum, and what it took."""

    contributions: dict[str, Estimate] = field(repr=False)
    total: Estimate = field(repr=False)
    averaged: Estimate = field(repr=False)  # the sum averaged over outputs, (M,)
    samples: int  # neurons
    accuracy: float  # rms standard error of the sum, over its largest entry
    seconds: float  # of all tasks, on one core each


@dataclass(eq=False)
class _Sampling:
    """Strata with what is known of them so far."""

    scene: Scene
    seed: tuple[int, ...]
    question: AbstractQuestion
    running: Runner
    name: str = "samples"
    what: str = "sampling neurons"
    tallies: Tallies = field(default_factory=dict)
    neurons: int = 0
    rounds: int = 0

    def run(self, tasks: list[tuple[Stratum, int]]) -> None:
        draws = Draws(self.scene, self.question, self.seed, tuple(tasks))
        results = self.running.results(
            draws, len(tasks), name=f"{self.name}_{self.rounds}", what=self.what, at_once=2
        )
        for (stratum, _), arrays in zip(tasks, results, strict=True):
            self.tallies.setdefault(stratum, Tally()).add(arrays)
        self.neurons += draws.neurons * len(tasks)
        self.rounds += 1

    def pilot(self, first: int = 0, until: int = PILOT) -> None:
        strata = strata_of(self.scene, self.question.kinds)
        self.run([(stratum, number) for stratum in strata for number in range(first, until)])

    @property
    def seconds_of_work(self) -> float:
        """On the clock, for one unit of cost."""
        client = self.running.client
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = min(2, cores) if client is None else max(1, sum(client.nthreads().values()))
        return sum(tally.seconds for tally in self.tallies.values()) / work(self.tallies) / workers

    def result(self) -> Sampled:
        value, error = estimate(self.tallies)
        each = [Estimate(*part) for part in zip(value[:, :, :-1], error[:, :, :-1], strict=True)]
        parts = dict(zip(self.question.names, each, strict=False))
        averaged = Estimate(value[-1, :, -1], error[-1, :, -1])
        seconds = sum(tally.seconds for tally in self.tallies.values())
        return Sampled(parts, each[-1], averaged, self.neurons, accuracy(self.tallies), seconds)


def sampled(
    scene: Scene, question: AbstractQuestion, wanted: Accuracy, running: Runner = HERE, name: str = "samples"
) -> Sampled:
    """The answer to a question, as accurate as wanted."""
    sampling = _Sampling(scene, wanted.seed, question, running, name)
    sampling.pilot(until=_HASTY)
    if wanted.samples is None and _is_hopeless(sampling, wanted):
        _check_budget(sampling, wanted, likely_work_for(sampling.tallies, wanted.tolerance))
    sampling.pilot(_HASTY)
    if wanted.samples is not None:
        whole = work(sampling.tallies) * wanted.samples / sampling.neurons
        _check_budget(sampling, wanted, whole)
        tasks = plan(sampling.tallies, whole)
        if tasks:
            sampling.run(tasks)
        return sampling.result()
    _check_budget(sampling, wanted, likely_work_for(sampling.tallies, wanted.tolerance))
    for _ in range(_ROUNDS):
        tasks = next_round(sampling.tallies, wanted.tolerance)
        if not tasks:
            break
        sampling.run(tasks)
        _check_budget(sampling, wanted, likely_work_for(sampling.tallies, wanted.tolerance))
    return sampling.result()


def _is_hopeless(sampling: _Sampling, wanted: Accuracy) -> bool:
    """Whether even noise, which makes the work look less, does not hide that the budget is far away."""
    return work_for(sampling.tallies, wanted.tolerance) * sampling.seconds_of_work > _CLEAR * wanted.budget


def _check_budget(sampling: _Sampling, wanted: Accuracy, needed: float) -> None:
    """Refuse what would take longer than the budget, with the numbers."""
    seconds = needed * sampling.seconds_of_work
    if seconds <= wanted.budget:
        return
    takes = f"needs about {seconds:.0f} s of sampling, above budget={wanted.budget:g} s"
    if wanted.samples is not None:
        fit = int(wanted.samples * wanted.budget / seconds)
        lower = f"use samples={fit}, or " if fit > sampling.neurons else ""
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


def _earlier(sampling: _Sampling, wanted: Accuracy, seconds: float) -> str:
    """A time at which the same accuracy fits the budget by a pilot of its own, with a margin."""
    scene, running = sampling.scene, Runner(sampling.running.client, progress=sampling.running.progress)
    steps = bool(scene.clock.eta)
    shortest = 1.0 if steps else 1 / float(scene.l[-1])
    excess = max(_EARLIER, (_MARGIN * seconds / wanted.budget) ** _GROWTH)
    begin = scene.replay.duration / scene.replay.unit
    until = max(begin / excess, min(shortest, begin / _EARLIER))
    while until >= shortest:
        clock = scene.clock.until(math.floor(until) if steps else float(f"{until:.4g}"))
        other = _Sampling(replace(scene, clock=clock), wanted.seed, sampling.question, running)
        other.what = "looking for an earlier time"
        other.pilot(until=_HASTY)
        needed = max(work(other.tallies), likely_work_for(other.tallies, wanted.tolerance))
        seconds = needed * other.seconds_of_work
        if seconds <= wanted.budget / _MARGIN:
            stop = f"steps={clock.duration:.0f}" if steps else f"time={clock.duration:g}"
            return f", or stop at {stop}, where about {seconds:.0f} s are enough"
        until /= _EARLIER
    return ": no earlier time fits this budget"
