"""The uncertainty of posteriors against real networks weighted by their likelihood, problem by problem.

    python -m benchmarks.calibration.posterior           half an hour of one core
    python -m benchmarks.calibration.posterior --quick   three problems, a check of this script

writes benchmarks/calibration/results/posterior.md and keeps what networks gave in posterior.npz beside it.
The first problems choose the constants of posteriors (training/first_order/truncation.py), the others judge,
once; constants, problems and split were fixed before any network of those that judge was drawn. Rounds of
networks are added until their standard error is a third of the uncertainty, or MOST of them are drawn: what
is left over decides nothing.
"""

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.calibration.predictions import Remainder, coverage, fw, rms, shown
from benchmarks.calibration.problems import C_W, _data
from benchmarks.provenance import stamp

TABLE, FILE = (Path(__file__).parent / "results" / f"posterior.{kind}" for kind in ("md", "npz"))
COUNT, CHOOSE = 180, 148
ACTIVATIONS = ("tanh", "gelu", "sin", "swish", "erf", "relu")
WIDTHS = (12, 16, 24, 32, 48, 64)
ROUND, MOST = 20_000, 10
PARTS = {"outputs": "", "resolved": "resolved_"}


@dataclass(frozen=True)
class Case:
    """One posterior: a network, data and the variance of their noise."""

    number: int
    net: fw.Network
    data: tuple[np.ndarray, np.ndarray, np.ndarray]
    noise: float
    kind: str


def case(number: int) -> Case:
    rng = np.random.default_rng([20261121, number])
    name, width = str(rng.choice(ACTIVATIONS)), int(rng.choice(WIDTHS))
    depth, outputs, points = int(rng.integers(2, 5)), int(rng.integers(1, 3)), int(rng.integers(2, 7))
    kind = str(rng.choice(["random", "digits", "diabetes"]))
    X, Y = _data(kind, points + 2, outputs, rng)
    C = float(rng.uniform(0.8, 1.2)) * {**C_W, "relu": 2.0}[name]
    net = fw.MLP(
        (X.shape[1], *[width] * (depth - 1), outputs), name, C_b=float(rng.choice([0.0, 0.1])), C_W=C
    )
    noise = float(np.exp(rng.uniform(np.log(0.05), np.log(0.5))))
    return Case(number, net, (X[:points], Y[:points], X[points:]), noise, kind)


def sampled(one: Case, posterior: fw.records.Posterior, kept: dict, most: int) -> dict[str, np.ndarray]:
    """Means and variances of weighted networks, in rounds until they are precise enough."""
    rounds: list[dict[str, np.ndarray]] = []
    while len(rounds) < most:
        name = f"{one.number}_{len(rounds)}"
        if f"{name}_mean" not in kept:
            drawn = fw.bayes.sample(
                one.net,
                *one.data,
                noise=one.noise,
                members=ROUND,
                key=1000 * one.number + len(rounds),
                run=fw.Run(progress=False),
            )
            variance, error = (np.einsum("aiai->ai", part) for part in drawn.covariance)
            values = {"mean": drawn.mean.value, "mean_stderr": drawn.mean.stderr, "variance": variance}
            values |= {"variance_stderr": error, "effective": np.array(drawn.effective_members)}
            kept |= {f"{name}_{key}": value for key, value in values.items()}
        keys = ("mean", "mean_stderr", "variance", "variance_stderr", "effective")
        rounds.append({key: kept[f"{name}_{key}"] for key in keys})
        merged = _merged(rounds)
        if rms(merged["mean_stderr"]) <= rms(posterior.uncertainty) / 3 and (
            rms(merged["variance_stderr"]) <= rms(posterior.variance_uncertainty) / 3
        ):
            break
    return merged


def _drawn(number: int, kept: dict) -> int:
    """The rounds of a problem that are kept: one that chooses is not drawn again for another recipe."""
    return sum(f"{number}_{index}_mean" in kept for index in range(MOST))


def _merged(rounds: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Averages of rounds of equal size, with their standard errors."""
    merged = {name: np.mean([one[name] for one in rounds], axis=0) for name in ("mean", "variance")}
    for name in ("mean_stderr", "variance_stderr"):
        merged[name] = np.sqrt(np.sum([one[name] ** 2 for one in rounds], axis=0)) / len(rounds)
    return {
        **merged,
        "effective": np.sum([one["effective"] for one in rounds]),
        "rounds": np.array(len(rounds)),
    }


@dataclass(frozen=True)
class Result:
    one: Case
    networks: int
    effective: float
    verdict: str
    mean: Remainder
    variance: Remainder


def result(number: int, kept: dict, most: int) -> Result:
    one = case(number)
    posterior = fw.bayes.posterior(one.net, *one.data, noise=one.noise, order=1)
    seen, parts = sampled(one, posterior, kept, most), {}
    unsure = {"mean": posterior.uncertainty, "variance": posterior.variance_uncertainty}
    for name in unsure:
        ours, infinite = getattr(posterior, name), getattr(posterior.infinite_width, name)
        parts[name] = Remainder(seen[name] - ours, seen[f"{name}_stderr"], unsure[name], ours - infinite)
    return Result(one, ROUND * int(seen["rounds"]), float(seen["effective"]), posterior.verdict, **parts)


def row(r: Result) -> str:
    net = r.one.net
    cells = [
        f"{r.one.number}",
        f"{net.activation_name}, {net.depth} layers, width {net.ladder.widths[1]}",
        f"{len(r.one.data[0])} {r.one.kind}, {net.outputs} outputs, noise {r.one.noise:.2f}",
        f"{r.networks} ({r.effective:.0f})",
    ]
    return "| " + " | ".join([*cells, *shown(r.mean), *shown(r.variance), r.verdict]) + " |"


def summary(results: list[Result]) -> list[str]:
    lines = [
        "| problems | of the | outputs | within two sigma | resolved outputs | of these within two sigma "
        "| median band / median remainder of these |",
        "|---|---|---|---|---|---|---|",
    ]
    for words, judges in (("that choose", False), ("that judge", True)):
        chosen = [r for r in results if (r.one.number >= CHOOSE) == judges]
        for name in ("mean", "variance") if chosen else ():
            got = coverage([getattr(r, name) for r in chosen])
            shares = [f"{got[key]:.0f} | {100 * got[f'{of}within']:.1f} %" for key, of in PARTS.items()]
            lines.append(f"| {words} | {name} | {' | '.join(shares)} | {got['resolved_ratio']:.2f} |")
    return lines


HEAD = (
    "| problem | network | data | networks (effective) | mean: correction | left over | standard error "
    "| uncertainty | within 2 sigma | variance: correction | left over | standard error | uncertainty "
    "| within 2 sigma | verdict |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--choose", action="store_true", help="only the problems that choose")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = {} if chosen.quick or not FILE.exists() else dict(np.load(FILE))
    results = []
    judging = [] if chosen.quick or chosen.choose else range(CHOOSE, COUNT)
    for number in [*judging, *range(3 if chosen.quick else CHOOSE)]:
        start = time.process_time()
        most = 1 if chosen.quick else MOST if number >= CHOOSE else _drawn(number, kept) or MOST
        results.append(result(number, kept, most))
        if not chosen.quick:
            np.savez_compressed(FILE, **kept)
        print(f"{row(results[-1])} {time.process_time() - start:.0f} s", flush=True)
    results.sort(key=lambda r: r.one.number)
    text = [
        "# Calibration of the uncertainty of posteriors",
        "",
        f"{stamp()}. `python -m benchmarks.calibration.posterior`; problems from {CHOOSE} on judge.",
        "",
        *summary(results),
        "",
        "Within two sigma: the standard error of the networks is added in quadrature. An output is resolved",
        "if the standard error is at most half of the stated uncertainty; there it is left out. Numbers of",
        "the table are root mean squares over the outputs of a problem.",
        "",
        HEAD,
        "|" + "---|" * (HEAD.count("|") - 1),
        *(row(r) for r in results),
        "",
    ]
    print("\n".join(summary(results)))
    if not (chosen.quick or chosen.choose):
        TABLE.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
