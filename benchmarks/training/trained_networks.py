"""Order-1/n predictions against real trained networks: pulls, widths, algorithms, wiring.

    python -m benchmarks.training.trained_networks            everything, about twenty minutes on two cores
    python -m benchmarks.training.trained_networks --quick    few members, a check of this script

Ensembles use the infinite-width prediction as a control variate. Tables are printed and, by a full run,
written to benchmarks/training/results/trained_networks.md with the key and the date.
"""

import argparse
import os
import platform
import tempfile
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.provenance import keep, stamp
from finitewidth.experiment.scaling import fall_with_width, power_of_width

KEY = 2026
X = np.array([[1.2, -0.4, 0.3], [-0.5, 1.1, 0.8], [0.2, 0.7, -1.3], [0.6, 0.5, 0.4], [-0.8, -0.3, 0.9]])
TRAINING = 3
TARGETS = np.array([[1.0, -0.6], [-0.8, 0.9], [0.5, 0.7]])
C_W = {"tanh": 1.2, "gelu": 1.8, "sin": 1.2}
C_BODY = {"tanh": 0.6, "gelu": 0.8}  # in residual networks


@dataclass(frozen=True)
class Case:
    activation: str
    hidden: int  # hidden layers
    width: int
    outputs: int
    algorithm: fw.GradientDescent | fw.GradientFlow
    members: int
    scale: float = 1.0  # of the targets
    gamma: float | None = None  # of skips over the hidden layers behind the first

    @property
    def net(self) -> fw.Network:
        if self.gamma is not None:
            return self._residual(self.gamma)
        widths = (3, *[self.width] * self.hidden, self.outputs)
        return fw.MLP(widths, self.activation, C_b=0.1, C_W=C_W[self.activation], lambda_b=0.5)

    def _residual(self, gamma: float) -> fw.Network:
        """A stream of hidden layers, with half the rates: skips add to the NTK."""
        C_W = C_BODY[self.activation]
        shapes = [(self.width, 1.0), *[(self.width, C_W)] * (self.hidden - 1), (self.outputs, 1.0)]
        first, *bodies, last = (fw.Dense(n, 0.1, variance, 0.25, 0.5) for n, variance in shapes)
        blocks = (fw.Residual(self.activation, body, gamma=gamma) for body in bodies)
        return fw.Network(3, first, *blocks, self.activation, last)

    @property
    def data(self):
        return X[:TRAINING], self.scale * TARGETS[:, : self.outputs], X[TRAINING:]


@dataclass(frozen=True)
class Outcome:
    case: Case
    prediction: fw.records.Prediction
    ensemble: fw.records.Ensemble
    seconds: float  # of the processor, for training the ensemble


def run(case: Case) -> Outcome:
    prediction = fw.predict(case.net, *case.data, algorithm=case.algorithm)
    start = time.process_time()
    control = fw.control_variate(case.net, *case.data, case.algorithm)
    ensemble = fw.train_ensemble(
        case.net, *case.data, algorithm=case.algorithm, members=case.members, key=KEY, control=control
    )
    return Outcome(case, prediction, ensemble, time.process_time() - start)


def largest(values: np.ndarray) -> float:
    return float(np.abs(values).max())


def pull_rows(outcomes: list[Outcome]) -> list[str]:
    lines = [
        "| activation | depth | width | outputs | members | largest pull of the mean: infinite width | "
        "order 1/n | of the covariance: infinite width | order 1/n | variance saved |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for o in outcomes:
        first, leading = (
            fw.compare(o.prediction, o.ensemble),
            fw.compare(o.prediction.infinite_width, o.ensemble),
        )
        saved = o.ensemble.controlled.variance_ratio.min()
        lines.append(
            f"| {o.case.activation} | {o.case.hidden + 1} | {o.case.width} | {o.case.outputs} | "
            f"{o.case.members} | {largest(leading.pulls):.1f} | {largest(first.pulls):.1f} | "
            f"{largest(leading.covariance_pulls):.1f} | {largest(first.covariance_pulls):.1f} | "
            f"{saved:.0f} times |"
        )
    return lines


def scaling(outcomes: list[Outcome]) -> list[str]:
    """Differences from the theory at either order, over widths, for the most corrected output."""
    corrections = outcomes[0].prediction.mean - outcomes[0].prediction.infinite_width.mean
    at = np.unravel_index(np.argmax(np.abs(corrections)), corrections.shape)
    widths = [o.case.width for o in outcomes]
    rows = {"infinite width": [], "order 1/n": []}
    stderrs = []
    for o in outcomes:
        mean = o.ensemble.controlled.mean
        rows["infinite width"].append(float(mean.value[at] - o.prediction.infinite_width.mean[at]))
        rows["order 1/n"].append(float(mean.value[at] - o.prediction.mean[at]))
        stderrs.append(float(mean.stderr[at]))
    lines = ["| theory | " + " | ".join(f"width {n}" for n in widths) + " | power of the width |"]
    lines.append("| --- |" + " --- |" * (len(widths) + 1))
    for name, residuals in rows.items():
        sizes = [fw.Estimate(np.abs(r), np.asarray(s)) for r, s in zip(residuals, stderrs, strict=True)]
        power = power_of_width(widths, sizes)
        cells = " | ".join(f"{r:+.6f} +- {s:.6f}" for r, s in zip(residuals, stderrs, strict=True))
        lines.append(f"| {name} | {cells} | {-power.value:.2f} +- {power.stderr:.2f} |")
    return [*lines, "", *falls(widths, rows, stderrs, float(corrections[at]) * widths[0])]


def falls(widths: list[int], rows: dict, stderrs: list[float], predicted: float) -> list[str]:
    """Fits with the next order, and whether a difference of order 1/n remains."""
    lines = [
        "| difference from | fit | coefficients | chi square / degrees of freedom |",
        "| --- | --- | --- | --- |",
    ]
    left = [("order 1/n", orders) for orders in ((2, 3), (1, 2, 3), (2, 3, 4), (1, 2, 3, 4))]
    for name, orders in [("infinite width", (1, 2, 3)), *left]:
        fall = fall_with_width(widths, list(map(fw.Estimate, rows[name], stderrs)), orders)
        shown = " + ".join(f"a_{k}/n^{k}" for k in orders)
        values = ", ".join(
            f"a_{k} = {float(fall.coefficients[i]):+.4g} +- {float(fall.errors[i, i]) ** 0.5:.2g}"
            for i, k in enumerate(orders)
        )
        lines.append(f"| {name} | {shown} | {values} | {fall.chi_square:.1f} / {fall.freedom} |")
    return [*lines, "", f"The theory's own coefficient of 1/n is {predicted:+.5g}."]


def member_outputs(case: Case) -> np.ndarray:
    """Trained outputs of every member on the test points, (members, test points)."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "ensemble.zarr"
        ensemble = fw.train_ensemble(
            case.net,
            *case.data,
            algorithm=case.algorithm,
            members=case.members,
            key=KEY,
            record=fw.Record(members=True),
            method=fw.Stepping(tolerance=1e-6),  # of gradient flow
            run=fw.Run(store=store, progress=False),
        )
        return ensemble.member_outputs()[:, -1, TRAINING:, 0]


def algorithm_dependence(members: int, widths: tuple[int, ...]) -> list[str]:
    """Gradient flow and descent in large steps to the end of training, network by network."""
    lines = [
        f"tanh, depth 2, {members} members: descent at 70 % of its largest learning rate minus gradient "
        "flow, both to a training error of 1e-12, each network beside itself. At infinite width there is no "
        "difference.",
        "",
        "| width | test point | predicted difference | seen | significance | pull | share left |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for width in widths:
        flow = Case("tanh", 1, width, 1, fw.GradientFlow(), members)
        rate = 0.7 * fw.textbook.spectrum(flow.net, flow.data[0]).largest_learning_rate
        descent = replace(flow, algorithm=fw.GradientDescent(rate))
        means = [fw.predict(c.net, *c.data, algorithm=c.algorithm).mean[:, 0] for c in (flow, descent)]
        predicted = means[1] - means[0]
        apart = member_outputs(descent) - member_outputs(flow)
        seen, stderr = apart.mean(axis=0), apart.std(axis=0, ddof=1) / np.sqrt(members)
        for row, (p, s, e) in enumerate(zip(predicted, seen, stderr, strict=True)):
            lines.append(
                f"| {width} | {row} | {p:+.6f} | {s:+.6f} +- {e:.6f} | {abs(s) / e:.1f} | {(s - p) / e:+.1f} "
                f"| {(p - s) / p:+.2f} +- {e / abs(p):.2f} |"
            )
    return [*lines, "", "The remaining difference is of order 1/n^2."]


def wiring(outcome: Outcome) -> list[str]:
    """Covariance between two outputs of the same test point, absent at infinite width."""
    lines = ["| test point | predicted | seen | significance | pull |", "| --- | --- | --- | --- | --- |"]
    covariance = outcome.ensemble.covariance
    for row in range(len(X) - TRAINING):
        p = float(outcome.prediction.covariance[row, 0, row, 1])
        s, e = (float(part[row, 0, row, 1]) for part in covariance)
        lines.append(f"| {row} | {p:+.5f} | {s:+.5f} +- {e:.5f} | {abs(s) / e:.1f} | {(p - s) / e:+.1f} |")
    return lines


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def cost(outcomes: list[Outcome]) -> str:
    """Theory against an ensemble as accurate as the theory says it is, and how far networks are from it."""
    lines = [
        "| width | theory (s) | stated, in shifts | left over, in shifts | networks | seconds | as accurate: "
        "networks | seconds | times the theory |",
        "|" + " ---: |" * 9,
    ]
    for o in outcomes:
        start = time.process_time()
        fw.predict(o.case.net, *o.case.data, algorithm=o.case.algorithm)  # compiled by now
        theory = time.process_time() - start
        mean = o.ensemble.controlled.mean
        shift = o.prediction.mean - o.prediction.infinite_width.mean
        left, error = (rms(part) / rms(shift) for part in (mean.value - o.prediction.mean, mean.stderr))
        stated = rms(o.prediction.uncertainty) / rms(shift)
        share = (error / stated) ** 2
        lines.append(
            f"| {o.case.width} | {theory:.2f} | {stated:.3f} | {left:.3f} +- {error:.3f} | {o.case.members} "
            f"| {o.seconds:.0f} | {share * o.case.members:.0f} | {share * o.seconds:.1f} "
            f"| {share * o.seconds / theory:.0f} |"
        )
    return "\n".join(lines)


COST = (
    "tanh, depth 3, two outputs. Shift, left over, stated uncertainty and standard errors are root mean "
    "squares over test points and outputs; as accurate is an ensemble, with the control variate, whose "
    "standard error is what the theory states. Seconds are those of the processor, without compilation for "
    "the theory."
)


def report(quick: bool) -> str:
    share = 20 if quick else 1
    descent = fw.GradientDescent(0.12, 12)
    members = {16: 60_000, 24: 80_000, 32: 120_000, 64: 200_000, 128: 200_000}
    widths = [Case("tanh", 2, n, 2, descent, count // share) for n, count in members.items()]
    others = [
        Case("tanh", 1, 64, 1, descent, 16_000 // share),
        Case("gelu", 1, 64, 2, descent, 16_000 // share),
        Case("gelu", 2, 64, 2, descent, 16_000 // share),
        Case("sin", 1, 32, 2, descent, 16_000 // share),
        Case("sin", 2, 64, 1, descent, 16_000 // share),
        Case("tanh", 2, 128, 1, descent, 16_000 // share),
    ]
    sections = [
        f"# Trained networks against order-1/n predictions\n\n"
        f"Written by `python -m benchmarks.training.trained_networks` on {stamp()}, key {KEY}: "
        f"{platform.machine()}, {os.cpu_count()} cores. Three training points in three dimensions, two test "
        "points, 12 steps of descent at learning rate 0.12 (largest NTK eigenvalue times rate about 0.5).",
    ]

    def section(title: str, *parts: str) -> None:
        sections.append("\n\n".join([f"## {title}", *parts]))
        print(sections[-1], flush=True)  # kept if a later section fails

    outcomes = [run(case) for case in widths]
    section(
        "Difference of the mean from the theory, over widths",
        f"tanh, depth 3, two outputs, {', '.join(str(o.case.members) for o in outcomes)} members.",
        "\n".join(scaling(outcomes)),
        "The powers are those of a pure power law; at small widths the next order is visible, which the fits "
        "carry.",
    )
    checked = [run(case) for case in others]
    section(
        "Pulls",
        "\n".join(pull_rows([*outcomes, *checked])),
        "The difference from order 1/n is of order 1/n^2 and visible where standard errors are small.",
    )
    small = run(Case("tanh", 1, 16, 2, fw.GradientDescent(0.12, 40), 100_000 // share))
    section(
        "Wiring between two outputs",
        f"tanh, depth 2, width 16, {small.case.members} members, 40 steps:",
        "\n".join(wiring(small)),
    )
    section("Cost at equal accuracy", COST, cost(outcomes[-2:]))
    section(
        "Dependence on the algorithm",
        "\n".join(algorithm_dependence(12_000 // share, (32, 64, 128))),
    )
    return "\n\n".join(sections) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cost", action="store_true", help="times at equal accuracy alone, three minutes")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)  # narrow networks are compared on purpose
    results = Path(__file__).parent / "results" / "trained_networks.md"
    if chosen.cost:
        cases = [Case("tanh", 2, n, 2, fw.GradientDescent(0.12, 12), 20_000) for n in (64, 128)]
        table = cost([run(case) for case in cases])
        print(table)
        return keep(results, "Cost at equal accuracy", f"{stamp()}. {COST}\n\n{table}")
    text = report(chosen.quick)
    if not chosen.quick:
        results.write_text(text)


if __name__ == "__main__":
    main()
