"""The rates of `fw.torch.recommend` beside the best ones, of the runs that its laws were read off."""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.advice.methods import METHODS, Shape, drawn
from benchmarks.advice.plan import BY_LAYER, Problem, plan
from benchmarks.advice.report import GUESSING, at, best, keep, worth
from benchmarks.advice.training import DATA
from benchmarks.advice.untuned import advice_for, unit
from benchmarks.harness import markdown, say

LAWS = Path(__file__).parent / "results" / "laws.json"


def networks() -> Iterator[tuple[Problem, str]]:
    """Transfers and deep networks, with the method whose rates are recommended."""
    for part in plan():
        if part.section in ("transfer", "deep"):
            plain = BY_LAYER if part.problem.loss == "squared" else "critical"
            yield from ((part.problem, m) for m in (plain, "critical skips") if m in part.methods)


def run() -> None:
    """The recommended rate of one seed of each network, in the units of the runs."""
    torch.set_num_threads(1)
    rates: dict = {}
    data = DATA["digits"]()
    for problem, method in networks():
        shape = Shape(problem.depth, problem.width, problem.activation, data.X.shape[1], data.classes)
        start = drawn(shape, 0, METHODS[method], problem.optimizer)
        advice = advice_for(start, problem, data)[1]
        rate = float(f"{advice.learning_rate * unit(problem, data.classes):.4g}")
        rates.setdefault(problem.key, {})[method] = rate
        say(f"{problem.key} | {method}: {rate}")
        keep(LAWS, rates)


OPENING = """## The laws of recommended rates

What `fw.torch.recommend` gives for the runs that its laws were read off, beside the best rate of the grid.
**loss** is that at the recommended rate, from the grid by interpolation, over the best."""


def report(tuned: dict) -> str:
    """A summary for each setting, and every network."""
    rates = json.loads(LAWS.read_text()) if LAWS.exists() else {}
    rows: dict[tuple, list[tuple]] = {}
    lines = []
    for problem, method in networks():
        entry, rate = tuned.get(problem.key, {}).get(method), rates.get(problem.key, {}).get(method)
        if entry and rate and math.isfinite(best(entry).loss):
            octaves, ratio = math.log2(rate) - (best(entry).power or 0), _loss(entry, rate, problem)
            kind = "deep" if problem.depth > 32 else "transfer"
            name = f"{problem.activation}, {problem.loss}, {problem.optimizer}"
            rows.setdefault((kind, name, method), []).append((octaves, ratio))
            cells = (f"{rate:.3g}", f"{2.0 ** (best(entry).power or 0):.3g}", f"{ratio:.2f}")
            lines.append((problem.key, method, *cells))
    summary = markdown("networks | setting | method | number | octaves off | loss | largest", _means(rows))
    return "\n\n".join([OPENING, summary, markdown("problem | method | recommended | best | loss", lines)])


def _means(rows: dict[tuple, list[tuple]]) -> list[tuple]:
    lines = []
    for key, found in rows.items():
        octaves, ratios = np.array(found).T
        mean = f"{octaves.mean():+.1f} ± {octaves.std():.1f}"
        lines.append((*key, len(found), mean, f"{np.exp(np.log(ratios).mean()):.2f}", f"{ratios.max():.2f}"))
    return lines


def _loss(entry: dict, rate: float, problem: Problem) -> float:
    """The loss at a rate over the best one; beyond the grid that at its end."""
    losses: Iterable[float] = (min(at(entry, power)[0], GUESSING[problem.loss]) for power in entry["powers"])
    return float(
        np.exp(np.interp(math.log2(rate), entry["powers"], np.log(list(losses)))) / worth(entry, problem)
    )
