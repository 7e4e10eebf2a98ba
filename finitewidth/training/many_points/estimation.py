"""An answer about a replayed training as an estimate: pilot, rounds, budget, and standard errors."""

import os
from dataclasses import dataclass, field, replace

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.core.tasks import HERE, Runner
from finitewidth.training.many_points.allocation import (
    PILOT,
    Tallies,
    Tally,
    accuracy,
    estimate,
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
_EARLIER = 10.0  # a refusal tells what a time this many times earlier would cost


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
    tallies: Tallies = field(default_factory=dict)
    neurons: int = 0
    rounds: int = 0

    def run(self, tasks: list[tuple[Stratum, int]]) -> None:
        draws = Draws(self.scene, self.question, self.seed, tuple(tasks))
        results = self.running.results(
            draws, len(tasks), name=f"{self.name}_{self.rounds}", what="sampling neurons", at_once=2
        )
        for (stratum, _), arrays in zip(tasks, results, strict=True):
            self.tallies.setdefault(stratum, Tally()).add(arrays)
        self.neurons += draws.neurons * len(tasks)
        self.rounds += 1

    def pilot(self) -> None:
        strata = strata_of(self.scene, self.question.kinds)
        self.run([(stratum, number) for stratum in strata for number in range(PILOT)])

    @property
    def seconds_of_work(self) -> float:
        """On the clock, for one unit of cost."""
        client = self.running.client
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = min(2, cores) if client is None else max(1, sum(client.nthreads().values()))
        return sum(tally.seconds for tally in self.tallies.values()) / work(self.tallies) / workers

    def seconds_for(self, tolerance: float) -> float:
        return work_for(self.tallies, tolerance) * self.seconds_of_work

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
    sampling.pilot()
    if wanted.samples is not None:
        whole = work(sampling.tallies) * wanted.samples / sampling.neurons
        _check_budget(sampling, wanted, whole)
        tasks = plan(sampling.tallies, whole)
        if tasks:
            sampling.run(tasks)
        return sampling.result()
    _check_budget(sampling, wanted, work_for(sampling.tallies, wanted.tolerance))
    for _ in range(_ROUNDS):
        tasks = next_round(sampling.tallies, wanted.tolerance)
        if not tasks:
            break
        sampling.run(tasks)
        _check_budget(sampling, wanted, work_for(sampling.tallies, wanted.tolerance))
    return sampling.result()


def _check_budget(sampling: _Sampling, wanted: Accuracy, needed: float) -> None:
    """Refuse what would take longer than the budget, with the numbers."""
    seconds = needed * sampling.seconds_of_work
    if seconds <= wanted.budget:
        return
    reachable = accuracy(sampling.tallies) * np.sqrt(
        work(sampling.tallies) * sampling.seconds_of_work / wanted.budget
    )
    asked = f"samples={wanted.samples}" if wanted.samples else f"tolerance={wanted.tolerance:g}"
    raise ValueError(
        f"{asked} needs about {seconds:.0f} s of sampling, above budget={wanted.budget:g} s, in which "
        f"{max(reachable, wanted.tolerance):.2g} of the largest shift can be reached; raise one of the two"
        f"{_earlier(sampling, wanted)}."
    )


def _earlier(sampling: _Sampling, wanted: Accuracy) -> str:
    """What the same accuracy would cost at a time ten times earlier."""
    scene = sampling.scene
    unit = scene.replay.unit
    earlier = scene.replay.duration / unit / _EARLIER
    clock = scene.clock.until(np.floor(earlier) if scene.clock.eta else earlier)
    if clock.duration < 1 and clock.eta:
        return ""
    other = _Sampling(replace(scene, clock=clock), wanted.seed, sampling.question, HERE)
    other.pilot()
    what, seconds = "steps" if clock.eta else "time", other.seconds_for(wanted.tolerance)
    return f", or stop at {what}={clock.duration:.4g}, where {seconds:.0f} s are enough"
