"""The uncertainty of posteriors and of the evidence against prior networks weighted by their likelihood.

python -m benchmarks.calibration.judged_posteriors --networks draws them python -m
benchmarks.calibration.judged_posteriors writes results/judged_posteriors.md

Networks are those of places.py, with relu among the activations, one to six observed points, one or two
outputs and a noise of variance 1e-3 to 1; below 0.03 at most three points are observed, since no prior
network fits more of them. Test inputs are the training points, points beside them and far ones. A problem
judges where at least FEWEST_EFFECTIVE networks count, whatever they say.
"""

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.calibration.judged import HEAD, PLACES, line
from benchmarks.calibration.places import (
    ACTIVATIONS,
    TESTS,
    TOGETHER,
    drawn_data,
    near_points,
    random_network,
)
from benchmarks.calibration.predictions import Remainder, rms
from benchmarks.provenance import stamp

RESULTS = Path(__file__).parent / "results"
FILE = RESULTS / "places_bayes.npz"
COUNT, MEMBERS, FEWEST_EFFECTIVE = 60, 60_000, 1_000
WIDTHS = (12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Problem:
    """A network as a prior, noisy observations and test inputs at three places."""

    number: int
    net: fw.MLP
    data: tuple[np.ndarray, np.ndarray, np.ndarray]
    noise: float

    @property
    def place(self) -> np.ndarray:
        return np.repeat([0, 1, 2], [len(self.data[0]), TESTS, TESTS])


def problem(number: int) -> Problem:
    of_net = np.random.default_rng([20261120, number // TOGETHER, 0])
    rng = np.random.default_rng([20261120, number, 1])
    net_of, _ = random_network(of_net, WIDTHS, (*ACTIVATIONS, "relu"))
    points, outputs, small = int(of_net.integers(1, 7)), int(of_net.integers(1, 3)), of_net.random() < 0.5
    low, high = (1e-3, 0.03) if small else (0.03, 1.0)
    points = min(points, 3) if small else points
    X, Y = drawn_data("random", int(of_net.integers(1, 7)), points + TESTS, outputs, rng)
    noise = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    tests = np.concatenate([X[:points], near_points(X[:points], rng), X[points:]])
    return Problem(number, net_of(X.shape[1], outputs), (X[:points], Y[:points], tests), noise)


def draw() -> None:
    """Weighted networks of all problems; what is in the file is not drawn again."""
    measures = dict(np.load(FILE)) if FILE.exists() else {}
    for one in (problem(number) for number in range(COUNT)):
        start = time.process_time()
        if f"{one.number}_mean" in measures:
            continue
        drawn = fw.bayes.sample(one.net, *one.data, noise=one.noise, members=MEMBERS, key=1000 + one.number)
        variance, error = (np.einsum("aiai->ai", part) for part in drawn.covariance)
        values = {"mean": drawn.mean.value, "mean_stderr": drawn.mean.stderr, "variance": variance}
        values |= {"variance_stderr": error, "effective": np.array(drawn.effective_members)}
        evidence = drawn.log_evidence
        values |= {"evidence": np.array(evidence.value), "evidence_stderr": np.array(evidence.stderr)}
        measures |= {f"{one.number}_{name}": value for name, value in values.items()}
        np.savez_compressed(FILE, **measures)
        print(one.number, one.net, f"{time.process_time() - start:.0f} s", flush=True)


@dataclass(frozen=True)
class Result:
    """One posterior with its evidence."""

    one: Problem
    effective: float
    verdict: str
    parts: dict[str, Remainder]
    evidence: Remainder
    evidence_verdict: str

    def at(self, name: str, place: int) -> Remainder:
        part, rows = self.parts[name], self.one.place == place
        return Remainder(*(getattr(part, field)[rows] for field in part.__dataclass_fields__))


def result(number: int, measures: dict[str, np.ndarray]) -> Result:
    one, seen = problem(number), {}
    for name in ("mean", "variance", "evidence"):
        seen[name] = measures[f"{number}_{name}"], measures[f"{number}_{name}_stderr"]
    posterior = fw.bayes.posterior(one.net, *one.data, noise=one.noise, order=1)
    evidence = fw.bayes.evidence(one.net, *one.data[:2], noise=one.noise, order=1, gradient=False)
    unsure = {"mean": posterior.uncertainty, "variance": posterior.variance_uncertainty}
    parts = {}
    for name in unsure:
        ours, infinite = getattr(posterior, name), getattr(posterior.infinite_width, name)
        value, stderr = seen[name]
        parts[name] = Remainder(value - ours, stderr, unsure[name], ours - infinite)
    value, stderr = (np.atleast_1d(part) for part in seen["evidence"])
    stated = (np.atleast_1d(part) for part in (evidence.uncertainty, evidence.correction))
    left = Remainder(value - evidence.value, stderr, *stated)
    effective = float(measures[f"{number}_effective"])
    return Result(one, effective, posterior.verdict, parts, left, evidence.verdict)


def row(r: Result) -> str:
    net, noise = r.one.net, f"noise {r.one.noise:.2g}"
    cells = [
        f"{r.one.number}", f"{net.activation_name}, widths {' '.join(map(str, net.widths[1:]))}",
        f"{len(r.one.data[0])} points, {noise}", f"{r.effective:.0f}",
    ]  # fmt: skip
    parts = [r.at(name, place) for name in ("mean", "variance") for place in range(3)]
    for part in (*parts, r.evidence):
        cells.append(" / ".join(f"{rms(v):.0e}" for v in (part.value, part.stderr, part.uncertainty)))
    return "| " + " | ".join([*cells, r.verdict, r.evidence_verdict]) + " |"


def summary(results: list[Result]) -> list[str]:
    lines = [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    trusted = [r for r in results if r.verdict == "trusted"]
    for words, those in (("all", results), ("trusted", trusted)):
        for name in ("mean", "variance") if those else ():
            lines += [line(words, name, PLACES[k], [r.at(name, k) for r in those]) for k in range(3)]
    lines.append(line("all", "evidence", "training", [r.evidence for r in results]))
    sure = [r.evidence for r in results if r.evidence_verdict == "trusted"]
    return [*lines, line("trusted", "evidence", "training", sure)] if sure else lines


def report() -> str:
    measures = dict(np.load(FILE))
    drawn = [number for number in range(COUNT) if f"{number}_mean" in measures]
    judge = [number for number in drawn if measures[f"{number}_effective"] >= FEWEST_EFFECTIVE]
    results = [result(number, measures) for number in judge]
    head = "| problem | network | data | effective networks | " + " | ".join(
        f"{name}, {place}" for name in ("mean", "variance") for place in PLACES
    )
    text = [
        "# Uncertainty of posteriors and of the evidence",
        "",
        f"{stamp()}. `python -m benchmarks.calibration.judged_posteriors`; {len(judge)} problems judge, "
        f"{len(drawn) - len(judge)} others have fewer than {FEWEST_EFFECTIVE} effective networks.",
        "",
        *summary(results),
        "",
        "Columns as in judged.md. Below: left over / standard error / stated.",
        "",
        f"{head} | evidence | verdict | of the evidence |",
        "|" + "---|" * 13,
        *(row(r) for r in results),
        "",
    ]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", action="store_true", help="draw the networks")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.networks:
        return draw()
    text = report()
    (RESULTS / "judged_posteriors.md").write_text(text, encoding="utf-8")
    print(text[: text.index("Below:")])


if __name__ == "__main__":
    main()
