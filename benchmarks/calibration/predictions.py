"""The uncertainty that predictions state against what real networks leave over, problem by problem.

    python -m benchmarks.calibration.predictions

reads the networks of networks.py and writes results/predictions.md. Problems below
JUDGES (problems.py) have chosen form and constants of training/first_order/truncation.py, the
others judge them.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.calibration.networks import AGAIN, FILE
from benchmarks.calibration.problems import COUNT, JUDGES, Case, case, fresh_cases
from benchmarks.provenance import stamp

TABLE = Path(__file__).parent / "results" / "predictions.md"
HALVES = {"choose": False, "judge": True}


@dataclass(frozen=True)
class Remainder:
    """What networks leave over of a prediction, output by output."""

    value: np.ndarray
    stderr: np.ndarray
    uncertainty: np.ndarray
    correction: np.ndarray

    @property
    def within(self) -> np.ndarray:
        """Whether two standard deviations hold it, the standard error added in quadrature."""
        return np.abs(self.value) <= 2 * np.hypot(self.uncertainty, self.stderr)

    @property
    def resolved(self) -> np.ndarray:
        """Whether networks are precise enough to judge without it."""
        return self.stderr <= self.uncertainty / 2


@dataclass(frozen=True)
class Result:
    """One problem with its mean and its variance."""

    one: Case
    members: int
    verdict: str
    mean: Remainder
    variance: Remainder
    alone: Remainder  # the mean as it is stated where no variance is computed


def merged(measures, number: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Value and standard error of both rounds together, weighted by their numbers of networks."""
    rounds = [key for key in (f"{number}", f"{number}{AGAIN}") if f"{key}_{name}" in measures]
    weights = np.array([float(measures[f"{key}_members"][0]) for key in rounds])
    weights /= weights.sum()
    value = sum(w * measures[f"{key}_{name}"] for w, key in zip(weights, rounds, strict=True))
    parts = [w * measures[f"{key}_{name}_stderr"] for w, key in zip(weights, rounds, strict=True)]
    return value, np.sqrt(sum(part**2 for part in parts))


def result(measures, one: Case) -> Result:
    number = one.number
    prepared = fw.prepare(one.net, *one.problem)
    prediction = prepared.predict(one.algorithm)
    alone = prepared.predict(one.algorithm, covariance=False)
    infinite, remainders = prediction.infinite_width, {}
    for name, of, unsure in (
        ("mean", "mean", prediction.uncertainty),
        ("variance", "variance", prediction.variance_uncertainty),
        ("alone", "mean", alone.uncertainty),
    ):
        value, stderr = merged(measures, number, of)
        ours = getattr(prediction, of)
        remainders[name] = Remainder(value - ours, stderr, unsure, ours - getattr(infinite, of))
    counts = [measures.get(f"{number}{suffix}_members", (0,))[0] for suffix in ("", AGAIN)]
    return Result(one, int(sum(counts)), prediction.verdict, **remainders)


def coverage(remainders: list[Remainder]) -> dict[str, float]:
    """The two numbers that are asked for, over all outputs and over those that networks resolve."""

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(one, name).ravel() for one in remainders])

    value, unsure, stderr = np.abs(joined("value")), joined("uncertainty"), joined("stderr")
    within, clear = joined("within"), joined("resolved")
    return {
        "outputs": float(value.size),
        "within": float(within.mean()),
        "ratio": float(2 * np.median(unsure) / np.median(value)),
        "ratio_with_errors": float(2 * np.median(np.hypot(unsure, stderr)) / np.median(value)),
        "resolved": float(clear.sum()),
        "resolved_within": float((value <= 2 * unsure)[clear].mean()),
        "resolved_ratio": float(2 * np.median(unsure[clear]) / np.median(value[clear])),
    }


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def row(one: Result) -> str:
    net, how = one.one.net, one.one.algorithm
    algorithm = f"descent, {how.steps} steps" if isinstance(how, fw.GradientDescent) else "flow"
    cells = [
        f"{one.one.number}",
        f"{net.activation_name}, {net.depth} layers, width {net.ladder.widths[1]}",
        f"{len(one.one.X_train)} {one.one.data}, {net.outputs} outputs, {algorithm}",
        f"{one.members}",
    ]
    return "| " + " | ".join([*cells, *shown(one.mean), *shown(one.variance), one.verdict]) + " |"


def shown(part: Remainder) -> list[str]:
    """Root mean squares over the outputs, and how many of them lie within two sigma."""
    sizes = (part.correction, part.value, part.stderr, part.uncertainty)
    return [*(f"{rms(values):.1e}" for values in sizes), f"{part.within.sum()} of {part.within.size}"]


def summary(results: list[Result]) -> list[str]:
    lines = [
        "| problems | of the | outputs | within two sigma | median band / median remainder "
        "| with standard errors | resolved outputs | of these within two sigma "
        "| median band / median remainder |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for half, judges in HALVES.items():
        those = [one for one in results if one.one.judges == judges]
        for name, words in (("mean", "mean"), ("variance", "variance"), ("alone", "mean alone")) * bool(
            those
        ):
            got = coverage([getattr(one, name) for one in those])
            numbers = [
                f"{got['outputs']:.0f}",
                f"{100 * got['within']:.1f} %",
                f"{got['ratio']:.2f}",
                f"{got['ratio_with_errors']:.2f}",
                f"{got['resolved']:.0f}",
                f"{100 * got['resolved_within']:.1f} %",
                f"{got['resolved_ratio']:.2f}",
            ]
            lines.append(f"| that {half} | {words} | " + " | ".join(numbers) + " |")
    return lines


def main() -> None:
    warnings.simplefilter("ignore")
    measures = dict(np.load(FILE))
    cases = [*map(case, range(COUNT)), *fresh_cases()]
    text = report([result(measures, one) for one in cases if f"{one.number}_mean" in measures])
    TABLE.write_text(text, encoding="utf-8")
    print(text)


def report(results: list[Result]) -> str:
    head = (
        "| problem | network | data and training | networks | mean: correction | left over | standard error "
        "| uncertainty | within 2 sigma | variance: correction | left over | standard error | uncertainty "
        "| within 2 sigma | verdict |"
    )
    text = [
        "# Calibration of the uncertainty of predictions",
        "",
        f"{stamp()}. `python -m benchmarks.calibration.predictions`; networks by `networks.py`.",
        "",
        *summary(results),
        "",
        "Within two sigma: the standard error of the networks is added in quadrature. An output is resolved",
        "if the standard error is at most half of the stated uncertainty; there it is left out. Numbers of",
        "the table are root mean squares over the outputs of a problem. Problems with",
        f"numbers below {JUDGES} chose the recipe.",
        "",
        head,
        "|" + "---|" * (head.count("|") - 1),
        *(row(one) for one in results),
        "",
    ]
    return "\n".join(text)


if __name__ == "__main__":
    main()
