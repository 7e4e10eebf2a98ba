"""Advice against what people do already: which initialization and which learning rates train best in PyTorch.

    python -m benchmarks.advice.tuned               train what is missing of the plan, then write the tables
    python -m benchmarks.advice.tuned --minutes 20  stop after so much processor time; a later call goes on
    python -m benchmarks.advice.tuned --report      only write the tables from the runs that are kept
    python -m benchmarks.advice.tuned --untuned     train with rates of `fw.torch.recommend` and usual ones
    python -m benchmarks.advice.tuned --laws        rates of `recommend` for the runs its laws were read off

Each method is tuned over rates of a factor two: seven of them, and more at an end where the best one lies.
Runs are kept in benchmarks/advice/results/tuned.json and never repeated; the tables go to
benchmarks/advice/results/tuned.md. `plan.py` has the plan, `methods.py` the methods,
`training.py` the training, of all seeds and rates at once, and `untuned.py` what is not tuned.
"""

import argparse
import json
import time

import numpy as np
import torch

from benchmarks.advice import laws, untuned
from benchmarks.advice.methods import METHODS, Shape, drawn
from benchmarks.advice.plan import Part, centre, plan
from benchmarks.advice.report import KEPT, best, keep, report
from benchmarks.advice.training import DATA, Data, Outcome, Setting, train
from benchmarks.harness import say, write

WIDE = 3  # octaves on each side of the middle of the grid
MORE = 2  # octaves that are added at an end where the best rate lies
LARGEST = 6  # times that they are added


def measured(part: Part, method: str, data: Data) -> dict:
    """Losses and accuracies of a method on a problem, over a grid of rates that has its best rate inside."""
    problem = part.problem
    shape = Shape(problem.depth, problem.width, problem.activation, data.X.shape[1], data.classes)
    starts = [drawn(shape, seed, METHODS[method], problem.optimizer) for seed in range(part.seeds)]
    setting = Setting(problem.activation, data, problem.loss, problem.optimizer)
    middle = centre(problem, method)
    powers = list(range(middle - WIDE, middle + WIDE + 1))
    entry = _entry(powers, train(starts, [2.0**p for p in powers], setting))
    for _ in range(LARGEST):
        new = _beyond(entry)
        if not new:
            break
        entry = _joined(entry, _entry(new, train(starts, [2.0**p for p in new], setting)))
    return entry


def _beyond(entry: dict) -> list[int]:
    """Powers to add where the best rate is at an end of the grid."""
    powers, at = entry["powers"], best(entry).power
    if at == powers[0]:  # also where all diverged
        return [powers[0] - k for k in range(MORE, 0, -1)]
    if at == powers[-1]:
        return [powers[-1] + k for k in range(1, MORE + 1)]
    return []


def _entry(powers: list[int], outcome: Outcome) -> dict:
    losses = [[float(f"{x:.5g}") if np.isfinite(x) else None for x in row] for row in outcome.loss.T]
    return {"powers": powers, "loss": losses, "accuracy": outcome.accuracy.T.round(4).tolist()}


def _joined(one: dict, other: dict) -> dict:
    first, second = sorted((one, other), key=lambda e: e["powers"][0])
    return {name: first[name] + second[name] for name in first}


def run(minutes: float) -> None:
    """Train what is missing, one entry after the other, each kept as soon as it is there."""
    torch.set_num_threads(1)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    data = {name: load() for name, load in DATA.items()}
    for part in plan():
        entries = kept.setdefault(part.problem.key, {})
        for method in part.methods:
            if method in entries:
                continue
            if time.process_time() > 60 * minutes:
                return
            start = time.process_time()
            entries[method] = measured(part, method, data[part.problem.data])
            entries[method]["seconds"] = round(time.process_time() - start, 1)
            keep(KEPT, kept)
            say(f"{part.problem.key} | {method}: {best(entries[method])}, {entries[method]['seconds']} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1000.0, help="processor time after which to stop")
    parser.add_argument("--report", action="store_true", help="write the tables of what is kept")
    parser.add_argument("--laws", action="store_true", help="rates that are recommended for tuned runs")
    parser.add_argument("--untuned", action="store_true", help="train at rates that are not tuned")
    given = parser.parse_args()
    if given.laws:
        laws.run()
    elif given.untuned:
        untuned.run(given.minutes)
    elif not given.report:
        run(given.minutes)
    kept = json.loads(KEPT.read_text())
    sections = (report(kept).rstrip(), untuned.report(kept), laws.report(kept))
    write(KEPT.with_suffix(".md"), "\n\n".join(sections) + "\n")
