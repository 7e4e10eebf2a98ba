"""Extrapolation from narrow networks against ensembles at widths 64, 128 and 256, and what each costs.

    python -m benchmarks.extrapolation.widths          after problems.py; a few minutes
    python -m benchmarks.extrapolation.widths --quick  few networks, a check of this script

A full run writes results/widths.md. Fixed beforehand: pulls below 4, and training at width
256 takes at least 20 times the processor time of the extrapolation to the same error.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.extrapolation.problems import BATCH, FILE, Problem, fw, problems
from benchmarks.provenance import stamp
from benchmarks.training.trained_networks import falls

JUDGED = (64, 128, 256)
MEMBERS = 4_000
WIDE_MEMBERS = 250  # networks that tell the time of one
LARGEST_PULL, LEAST_RATIO = 4.0, 20.0
FOLLOWED = {"one input": "x = -2.5", "residuals": "its test point"}


@dataclass(frozen=True)
class Outcome:
    """One problem, extrapolated twice: the first call compiles programs, the second is judged."""

    problem: Problem
    seen: dict[int, dict]  # ensembles by width
    extrapolation: fw.records.Extrapolation
    cold: float  # processor seconds of the first call
    warm: float
    found: float  # of the first call in a later process, which finds compiled programs
    one: float  # to train one network of the largest width

    def estimate(self, width: int, name: str) -> fw.Estimate:
        return fw.Estimate(*map(np.array, self.seen[width][name]))

    def pulls(self, width: int, name: str) -> np.ndarray:
        there, seen = getattr(self.extrapolation.at(width), name), self.estimate(width, name)
        return (there.value - seen.value) / np.hypot(there.stderr, seen.stderr)

    def first_order(self, width: int) -> fw.records.Prediction:
        return self.extrapolation.at(width).prediction

    def ratio(self, name: str) -> tuple[float, float]:
        """The error at the largest width, and seconds that training takes to it."""
        width = JUDGED[-1]
        error, stderr = (
            root_mean_square(part.stderr)
            for part in (getattr(self.extrapolation.at(width), name), self.estimate(width, name))
        )
        return error, self.one * self.seen[width]["members"] * (stderr / error) ** 2


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def extrapolated(problem: Problem, members: int, key: int) -> tuple[fw.records.Extrapolation, float]:
    start = time.process_time()
    extrapolation = fw.extrapolate(
        problem.net(JUDGED[-1]),
        *problem.data,
        algorithm=problem.algorithm,
        members=members,
        key=key,
        run=fw.Run(progress=False),
    )
    return extrapolation, time.process_time() - start


def seconds_of_one(problem: Problem) -> float:
    """Processor seconds to train one network of the largest width, in batches of the fastest size."""
    net = problem.net(JUDGED[-1])
    control = fw.control_variate(net, *problem.data, problem.algorithm)

    def seconds(batch: int, key: int) -> float:
        start = time.process_time()
        fw.train_ensemble(
            net,
            *problem.data,
            algorithm=problem.algorithm,
            members=WIDE_MEMBERS,
            key=key,
            control=control,
            run=fw.Run(batch_size=batch, progress=False),
        )
        return (time.process_time() - start) / WIDE_MEMBERS

    return min(min(seconds(batch, key) for key in range(4)) for batch in (25, BATCH))


def run(problem: Problem, seen: dict[str, dict], members: int) -> Outcome:
    _, cold = extrapolated(problem, members, 0)
    calls = [extrapolated(problem, members, 1) for _ in range(3)]
    command = [
        sys.executable,
        "-m",
        "benchmarks.extrapolation.widths",
        "--only",
        problem.name,
        "--first-call",
        str(members),
    ]
    found = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
    by_width = {int(n): one for n, one in seen.items()}
    warm = min(seconds for _, seconds in calls)
    return Outcome(problem, by_width, calls[0][0], cold, warm, found, seconds_of_one(problem))


def pull_table(outcomes: list[Outcome]) -> list[str]:
    lines = [
        "| problem | width | correction of the mean | missed by order 1/n | by the extrapolation | "
        "its error | error of the ensemble | largest pull: mean | variance | of order 1/n: mean | variance |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for o in outcomes:
        for width in JUDGED:
            lines.append(f"| {o.problem.name} | {width} | {_pull_cells(o, width)} |")
    return lines


def _pull_cells(o: Outcome, width: int) -> str:
    first, seen, there = o.first_order(width), o.estimate(width, "mean"), o.extrapolation.at(width).mean
    correction = root_mean_square(first.mean - first.infinite_width.mean)
    sizes = (
        root_mean_square(part)
        for part in (first.mean - seen.value, there.value - seen.value, there.stderr, seen.stderr)
    )
    pulls = [np.abs(o.pulls(width, name)).max() for name in ("mean", "variance")]
    for name in ("mean", "variance"):
        estimate = o.estimate(width, name)
        pulls.append(np.abs((getattr(first, name) - estimate.value) / estimate.stderr).max())
    shares = " | ".join(f"{100 * size / correction:.1f} %" for size in sizes)
    return f"{correction:.5f} | {shares} | " + " | ".join(f"{pull:.1f}" for pull in pulls)


def cost_table(outcomes: list[Outcome]) -> list[str]:
    lines = [
        "| problem | widths | of the | error at width 256 | extrapolation, s | first call, s | "
        "first call of a later process, s | training to this error, s | ratio | of the first call | "
        "of a later process | chi square / freedom |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for o in outcomes:
        widths = ", ".join(map(str, o.extrapolation.widths))
        for name in ("mean", "variance"):
            error, training = o.ratio(name)
            times = (o.warm, o.cold, o.found)
            shown = " | ".join(f"{seconds:.1f}" for seconds in times)
            ratios = " | ".join(f"{training / seconds:.0f}" for seconds in times)
            chi = f"{o.extrapolation.chi_square[name].mean():.2f} / {o.extrapolation.freedom}"
            lines.append(
                f"| {o.problem.name} | {widths} | {name} | {error:.2g} | {shown} | {training:.0f} | "
                f"{ratios} | {chi} |"
            )
    return lines


def followed(o: Outcome) -> list[str]:
    """The mean of the first test input over all widths, and fits to it."""
    rows = {"infinite width": [], "order 1/n": []}
    widths, stderrs = sorted(o.seen), []
    lines = [
        "| width | networks | networks minus infinite width | minus order 1/n | n times the first | "
        "n² times the second |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for n in widths:
        seen, first = o.estimate(n, "mean"), o.first_order(n)
        gaps = [float(seen.value[0, 0] - p.mean[0, 0]) for p in (first.infinite_width, first)]
        error = float(seen.stderr[0, 0])
        stderrs.append(error)
        for row, gap in zip(rows.values(), gaps, strict=True):
            row.append(gap)
        lines.append(
            f"| {n} | {o.seen[n]['members']} | {gaps[0]:+.6f} ± {error:.6f} | {gaps[1]:+.6f} | "
            f"{n * gaps[0]:+.3f} ± {n * error:.3f} | {n**2 * gaps[1]:+.1f} ± {n**2 * error:.1f} |"
        )
    limit = o.first_order(2**20)
    predicted = 2**20 * float(limit.mean[0, 0] - limit.infinite_width.mean[0, 0])
    return [*lines, "", *falls(widths, rows, stderrs, predicted)]


def verdict(outcomes: list[Outcome]) -> str:
    pulls = [
        np.abs(o.pulls(n, name)).ravel() for o in outcomes for n in JUDGED for name in ("mean", "variance")
    ]
    every = np.concatenate(pulls)
    ratios = [o.ratio(name)[1] / o.warm for o in outcomes for name in ("mean", "variance")]
    passed = ["yes" if yes else "no" for yes in (every.max() < LARGEST_PULL, min(ratios) >= LEAST_RATIO)]
    return (
        f"{len(every)} numbers: the largest pull is {every.max():.1f} (below {LARGEST_PULL:g}: {passed[0]}), "
        f"{100 * np.mean(every < 2):.0f} percent are below 2. The smallest ratio of processor times is "
        f"{min(ratios):.0f} (at least {LEAST_RATIO:g}: {passed[1]})."
    )


def report(members: int, only: str) -> str:
    seen, outcomes = json.loads(FILE.read_text()), []
    chosen = [problem for problem in problems() if problem.name.startswith(only)]
    for problem in chosen:
        if all(str(n) in seen.get(problem.name, {}) for n in JUDGED):
            outcomes.append(run(problem, seen[problem.name], members))
            print(f"{problem.name}: {outcomes[-1].warm:.1f} s", flush=True)
    missing = [p.name for p in chosen if p.name not in {o.problem.name for o in outcomes}]
    parts = [
        "# Extrapolation from narrow networks",
        f"Written by `python -m benchmarks.extrapolation.widths` on {stamp()}: {platform.machine()}, "
        f"{os.cpu_count()} cores, {members} networks of each of the widths that an extrapolation chooses. "
        "Reference ensembles with control variates are those of `benchmarks/extrapolation/problems.py` "
        "(extrapolation.json); their keys are others. Seconds are processor seconds of this run, the least "
        "of three calls. Training at width 256 is timed in the same run, with the faster of two batch sizes, "
        "and scaled with the square of the error. The first call compiles its programs, the first call of a "
        "later process finds them.",
        verdict(outcomes) + (f" Not measured yet: {', '.join(missing)}." if missing else ""),
        "## Pulls",
        "Sizes are root mean squares over test outputs, in percent of the correction of order 1/n.",
        "\n".join(pull_table(outcomes)),
        "## Cost at width 256",
        "\n".join(cost_table(outcomes)),
    ]
    for o in outcomes:
        if o.problem.name in FOLLOWED:
            where = FOLLOWED[o.problem.name]
            parts += [f"## Orders of the mean: {o.problem.name}, {where}", "\n".join(followed(o))]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="problems whose names begin so")
    parser.add_argument("--output", default="extrapolation.md", help="file in benchmarks/results")
    parser.add_argument("--first-call", type=int, help="only the seconds of one extrapolation")
    options = parser.parse_args()
    warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
    if options.first_call:
        chosen = next(problem for problem in problems() if problem.name == options.only)
        print(extrapolated(chosen, options.first_call, 0)[1])
        return
    with tempfile.TemporaryDirectory() as programs:
        os.environ["FINITEWIDTH_PROGRAMS"] = programs  # nothing is compiled yet
        text = report(100 if options.quick else MEMBERS, options.only)
    print(text)
    if not options.quick:
        (Path(__file__).parent / "results" / options.output).write_text(text)


if __name__ == "__main__":
    main()
