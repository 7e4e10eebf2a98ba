"""The uncertainty of predictions against trained networks: on training points, beside them and far from them.

python -m benchmarks.calibration.judged --networks 0 trains those of one half of the problems that judge
python -m benchmarks.calibration.judged --networks 1 and those of the other half python -m
benchmarks.calibration.judged writes results/judged.md

Problems are those of places.py; networks have their linearized selves as control variates. Measured means
and variances are in results/places_*.npz. Nothing that networks gave decides which problems are in the
table: those that theory refuses are left out before any network is trained, and no others.
"""

import argparse
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.calibration.places import CHOOSING, EACH, JUDGES, PLACES, TOGETHER, WIDE, problem
from benchmarks.calibration.predictions import Remainder, coverage, rms
from benchmarks.provenance import stamp

RESULTS = Path(__file__).parent / "results"
COUNT = 96  # problems that judge
KEY = 20261119
HEAD = (
    "| problems | of the | at points | outputs | within two sigma | worst, in sigma | median band / median "
    "remainder | resolved | of these within | worst | median band / median remainder |"
)


def trained(number: int) -> dict[str, np.ndarray]:
    """Means and variances of trained networks with their standard errors."""
    one = problem(number)
    fw.prepare(one.net, *one.parts).predict(one.algorithm)  # refused here, before any network
    ensemble = fw.train_ensemble(
        one.net,
        *one.parts,
        algorithm=one.algorithm,
        members=one.members,
        key=KEY + number,
        control=fw.control_variate(one.net, *one.parts, one.algorithm),
    )
    controlled = ensemble.controlled
    variance, error = (np.einsum("aiai->ai", part) for part in controlled.covariance)
    return {
        "mean": controlled.mean.value,
        "mean_stderr": controlled.mean.stderr,
        "variance": variance,
        "variance_stderr": error,
        "members": np.array([ensemble.members, ensemble.diverged]),
    }


def train_part(part: int) -> None:
    """Every second architecture, wide ones last; what is in the file is not trained again."""
    file = RESULTS / f"places_{part}.npz"
    measures = dict(np.load(file)) if file.exists() else {}
    numbers = [n for n in range(JUDGES, JUDGES + COUNT) if n // TOGETHER % 2 == part]
    for number in sorted(numbers, key=lambda number: max(problem(number).net.widths[1:-1]) >= min(WIDE)):
        start = time.process_time()
        if f"{number}_mean" in measures:
            continue
        try:
            measures |= {f"{number}_{name}": value for name, value in trained(number).items()}
        except ValueError as refusal:
            print(number, "is left out:", refusal, flush=True)
            continue
        np.savez_compressed(file, **measures)
        print(number, problem(number).net, f"{time.process_time() - start:.0f} s", flush=True)


@dataclass(frozen=True)
class Result:
    """One problem: remainders of mean and variance, the place of each output, and the verdict."""

    number: int
    words: str
    members: int
    diverged: int
    verdict: str
    decided_by: str
    place: np.ndarray
    parts: dict[str, Remainder]

    @property
    def judges(self) -> bool:
        return self.number >= JUDGES

    def at(self, name: str, place: int) -> Remainder:
        """The remainder of the mean or the variance at one of the three places."""
        part, rows = self.parts[name], self.place == place
        return Remainder(*(getattr(part, field)[rows] for field in part.__dataclass_fields__))


def result(number: int, measures: dict[str, np.ndarray]) -> Result:
    one = problem(number)
    prediction = fw.predict(one.net, *one.parts, algorithm=one.algorithm)
    unsure = {"mean": prediction.uncertainty, "variance": prediction.variance_uncertainty}
    parts = {}
    for name in unsure:
        value, stderr = measures[f"{number}_{name}"], measures[f"{number}_{name}_stderr"]
        ours, infinite = getattr(prediction, name), getattr(prediction.infinite_width, name)
        parts[name] = Remainder(value - ours, stderr, unsure[name], ours - infinite)
    members, diverged = measures[f"{number}_members"]
    names = ", ".join(one.net.activation_name.split(", "))
    steps = f"{one.algorithm.end:.3g} steps" if isinstance(one.algorithm, fw.GradientDescent) else "flow"
    words = f"{names}, widths {' '.join(map(str, one.net.widths[1:]))} | {len(one.X)} {one.data}, {steps}"
    expansion = prediction.expansion
    return Result(
        number, words, members, diverged, prediction.verdict, expansion.decided_by, one.place, parts
    )


def summary(results: list) -> list[str]:
    """One line for each half, statistic and place, and for the trusted problems alone."""
    halves = {"that choose": lambda r: not r.judges, "that judge": lambda r: r.judges}
    halves["that judge, trusted"] = lambda r: r.judges and r.verdict == "trusted"
    lines = [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    for words, belongs in halves.items():
        those = [r for r in results if belongs(r)]
        for name in ("mean", "variance") if those else ():
            lines += [line(words, name, PLACES[k], [r.at(name, k) for r in those]) for k in range(3)]
    return lines


def line(words: str, name: str, place: str, parts: list[Remainder]) -> str:
    got = coverage(parts)
    value, unsure, stderr = (
        np.concatenate([np.abs(getattr(part, field)).ravel() for part in parts])
        for field in ("value", "uncertainty", "stderr")
    )
    resolved = stderr <= unsure / 2
    whole = np.hypot(unsure, stderr)
    worst, worst_resolved = (np.max(value[rows] / scale[rows], initial=0.0) for rows, scale in (
        (whole > 0, whole), (resolved & (unsure > 0), unsure)))  # fmt: skip
    cells = [
        f"{value.size}", f"{100 * got['within']:.1f} %", f"{worst:.1f}", f"{got['ratio_with_errors']:.2f}",
        f"{resolved.sum()}", f"{100 * got['resolved_within']:.1f} %", f"{worst_resolved:.1f}",
        f"{got['resolved_ratio']:.2f}",
    ]  # fmt: skip
    return f"| {words} | {name} | {place} | " + " | ".join(cells) + " |"


def row(r: Result) -> str:
    cells = [f"{r.number} | {r.words}", f"{r.members}" + f" ({r.diverged} diverged)" * bool(r.diverged)]
    for name in ("mean", "variance"):
        for place in range(3):
            part = r.at(name, place)
            cells.append(" / ".join(f"{rms(v):.0e}" for v in (part.value, part.stderr, part.uncertainty)))
    return "| " + " | ".join([*cells, f"{r.verdict}: {r.decided_by}"]) + " |"


def report() -> str:
    measures: dict[str, np.ndarray] = {}
    for file in sorted(RESULTS.glob("places_*.npz")):
        measures |= dict(np.load(file))
    chose = [place + 100 * count for place in range(len(CHOOSING)) for count in range(EACH)]
    numbers = [*chose, *range(JUDGES, JUDGES + COUNT)]
    results = [result(number, measures) for number in numbers if f"{number}_mean" in measures]
    verdicts = Counter(r.verdict for r in results if r.judges)
    head = "| problem | network | data and training | networks | " + " | ".join(
        f"{name}, {place}" for name in ("mean", "variance") for place in PLACES
    )
    text = [
        "# Uncertainty of predictions on training points, beside them and far from them",
        "",
        f"{stamp()}. `python -m benchmarks.calibration.judged`; problems from {JUDGES} on judge.",
        "",
        *summary(results),
        "",
        f"Problems that judge: {sum(verdicts.values())}; {dict(verdicts)}.",
        "Within two sigma, the standard error of the networks in quadrature. Resolved: the standard error is",
        "at most half of the stated uncertainty; there it is left out. Below: left over / standard error /",
        "stated, root mean squares over the outputs at a place.",
        "",
        f"{head} | verdict, and what decides |",
        "|" + "---|" * 11,
        *(row(r) for r in results if r.judges),
        "",
    ]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, choices=(0, 1), help="train one half of the networks")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.networks is not None:
        return train_part(chosen.networks)
    text = report()
    (RESULTS / "judged.md").write_text(text, encoding="utf-8")
    print(text[: text.index("Below:")])


if __name__ == "__main__":
    main()
