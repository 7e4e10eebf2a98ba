"""Cross-entropy, batches, momentum and schedules at order 1/n against real trained networks.

    python -m benchmarks.training.any_training            three problems, ten minutes of one core
    python -m benchmarks.training.any_training --quick    few members, a check of this script
    python -m benchmarks.training.any_training --speed    time of theory and of networks as accurate

Fixed before any network was trained: n (measured - infinite width) is fitted at the widths of a problem by
a_1 + a_2/n + a_3/n^2, entry by entry, for mean outputs, variances and losses at the end of training. A pull
is (a_1 of the fit - a_1 of theory) over the standard errors of both. Asked for are an rms of the pulls of
mean outputs of at most 1.5 in every problem, and none above 4. Ensembles have the odd part of training at
infinite width as a control variate.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.provenance import keep, stamp
from finitewidth.core.estimate import Estimate
from finitewidth.experiment.scaling import fall_with_width

KEY = 34
RESULTS = Path(__file__).parent / "results" / "any_training.md"
X = np.array(
    [
        [1.2, -0.4, 0.3],
        [-0.5, 1.1, 0.8],
        [0.2, 0.7, -1.3],
        [-0.9, -0.8, 0.4],
        [0.6, 0.5, 0.4],
        [-0.8, 0.3, 0.9],
    ]
)
LABELS = [0, 1, 2, 0]
ORDERS = (1, 2, 3)
MASKS = np.array(
    [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]], dtype=float
)


@dataclass(frozen=True)
class Problem:
    name: str
    net: fw.MLP
    smoothing: float
    algorithm: fw.GradientDescent
    widths: tuple[int, ...]
    members: int
    samples: int

    @property
    def data(self):
        return X[:4], fw.losses.one_hot(LABELS, 3, smoothing=self.smoothing), X

    def at(self, n: int) -> fw.MLP:
        return self.net.with_widths((3, n, n, 3))


PROBLEMS = (
    Problem(
        "batches of two, momentum 0.8, a falling rate; tanh, one-hot labels",
        fw.MLP((3, 64, 64, 3), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5),
        0.0,
        fw.GradientDescent([0.15] * 4 + [0.05] * 2, momentum=0.8, batches=MASKS),
        (24, 32, 48, 64),
        30_000,
        6_000,
    ),
    Problem(
        "all samples in ten steps; gelu, smoothed labels",
        fw.MLP((3, 64, 64, 3), "gelu", C_b=0.1, C_W=1.8, lambda_b=0.5),
        0.2,
        fw.GradientDescent([0.2] * 10),
        (24, 32, 48, 64),
        30_000,
        6_000,
    ),
    Problem(
        "three steps from a large kernel, Nesterov 0.5, batches of two; gelu, one-hot labels",
        fw.MLP((3, 64, 64, 3), "gelu", C_b=0.5, C_W=3.0, lambda_b=0.5),
        0.0,
        fw.GradientDescent([0.1] * 3, momentum=0.5, nesterov=True, batches=MASKS[:3]),
        (24, 32, 48, 64),
        60_000,
        10_000,
    ),
)


def measured(problem: Problem, n: int, members: int) -> dict[str, Estimate]:
    """Mean outputs, variances and losses of an ensemble."""
    net, loss = problem.at(n), fw.CrossEntropy()
    control = fw.control_variate(net, *problem.data, problem.algorithm, loss)
    ensemble = fw.train_ensemble(
        net,
        *problem.data,
        algorithm=problem.algorithm,
        members=members,
        key=KEY + n,
        loss=loss,
        control=control,
    )
    assert ensemble.diverged == 0
    variance = Estimate(*(np.einsum("aiai->ai", part) for part in ensemble.covariance))
    final = Estimate(*(np.asarray(part[-1]) for part in ensemble.loss))
    return {"mean outputs": ensemble.controlled.mean, "variances": variance, "training loss": final}


def predicted(
    problem: Problem, samples: int
) -> tuple[dict[str, tuple[Estimate, Estimate]], dict[str, np.ndarray]]:
    """n times the correction and the value at infinite width, and n times parts of the mean's correction."""
    net = problem.net
    theory = fw.predict(
        net,
        *problem.data,
        algorithm=problem.algorithm,
        loss=fw.CrossEntropy(),
        method=fw.Sampling(samples=samples),
    )
    Y, n = problem.data[1], net.widths[-2]
    center = theory.infinite_width.mean
    functions = {
        "mean outputs": lambda z: z,
        "variances": lambda z: (z - center) ** 2,
        "training loss": lambda z: fw.CrossEntropy().value(z[:4], Y),
    }
    found = {name: theory.expectation(function) for name, function in functions.items()}
    scaled = {
        name: (Estimate(n * one.correction.value, n * one.correction.stderr), one.infinite_width)
        for name, one in found.items()
    }
    parts = {k: n * v for k, v in theory.contributions.items()}
    return scaled, parts


def judged(problem: Problem, members: int, samples: int) -> str:
    began = time.perf_counter()
    theory, parts = predicted(problem, samples)
    seconds = time.perf_counter() - began
    seen = {n: measured(problem, n, members) for n in problem.widths}
    lines = [
        f"Widths {', '.join(map(str, problem.widths))}, {members} members each, {samples} samples of theory "
        f"({seconds:.0f} s).",
        "",
        "| quantity | a_1 of theory, rms, largest | rms error of the fit, of theory | rms pull | largest |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, (a1, limit) in theory.items():
        gaps = [
            Estimate(seen[n][name].value - limit.value, np.hypot(seen[n][name].stderr, limit.stderr))
            for n in seen
        ]
        fall = fall_with_width(problem.widths, gaps, ORDERS)
        error = np.sqrt(fall.errors[0, 0])
        pulls = (fall.coefficients[0] - a1.value) / np.hypot(error, a1.stderr)
        rms = lambda x: float(np.sqrt(np.mean(np.square(x))))  # noqa: E731
        lines.append(
            f"| {name} | {rms(a1.value):.3g}, {np.abs(a1.value).max():.3g} | {rms(error):.2g}, "
            f"{rms(a1.stderr):.2g} | {rms(pulls):.2f} | {np.abs(pulls).max():.2f} |"
        )
    share = ", ".join(f"{name} {np.sqrt(np.mean(part**2)):.2g}" for name, part in parts.items())
    return "\n".join([*lines, "", f"Contributions to a_1 of mean outputs, rms: {share}."])


def speed(tolerance: float, members: int) -> str:
    """Eight inputs, three classes, 24 steps: seconds of theory, and of networks as accurate."""
    random = np.random.default_rng(8)
    X, X_test, labels = random.normal(size=(6, 4)), random.normal(size=(2, 4)), [0, 1, 2, 0, 1, 2]
    Y, loss = fw.losses.one_hot(labels, 3), fw.CrossEntropy()
    descent = fw.GradientDescent([0.1] * 16 + [0.05] * 8, momentum=0.5)
    net = fw.MLP((4, 64, 64, 3), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
    options = dict(algorithm=descent, loss=loss)
    began, cpu = time.perf_counter(), time.process_time()
    method = fw.Sampling(tolerance=tolerance, budget=1e6)
    found = fw.predict(net, X, Y, X_test, method=method, **options)
    error = float(np.sqrt(np.mean(found.correction.stderr**2)))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    lines = [
        f"Theory: {took:.0f} s on the clock, {cpu:.0f} s of CPU with compilation, {found.samples} samples, "
        f"standard error {error / np.abs(found.correction.value).max():.4f} of the largest correction.",
        "",
        "| width | networks as accurate | their seconds of CPU | ratio to theory |",
        "| --- | --- | --- | --- |",
    ]
    for n in (64, 256):
        wide = net.with_widths((4, n, n, 3))
        control = fw.control_variate(wide, X, Y, X_test, descent, loss)

        def train(count, wide=wide, control=control):
            start = time.process_time()
            ensemble = fw.train_ensemble(
                wide,
                X,
                Y,
                X_test,
                members=count,
                key=0,
                control=control,
                run=fw.Run(batch_size=16),
                **options,
            )
            return time.process_time() - start, ensemble

        train(32)  # compiles
        seconds, ensemble = train(members)
        spread = np.sqrt(np.mean(ensemble.best_mean.stderr**2) * members)
        needed = (spread / (error * 64 / n)) ** 2
        whole = needed * seconds / members
        lines.append(f"| {n} | {needed:.2g} | {whole:.2g} | {whole / cpu:.2g} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", type=int, help="the number of one problem")
    parser.add_argument("--speed", action="store_true")
    asked = parser.parse_args()
    if asked.speed:
        text = f"{stamp()}.\n\n{speed(0.1, 64) if asked.quick else speed(0.005, 400)}"
        print(text)
        if not asked.quick:
            keep(RESULTS, "speed: eight inputs, three classes, 24 steps", text)
        return
    for number, problem in enumerate(PROBLEMS):
        if asked.only is not None and number != asked.only:
            continue
        members, samples = (400, 2000) if asked.quick else (problem.members, problem.samples)
        text = f"{stamp()}.\n\n{judged(problem, members, samples)}"
        print(f"## {problem.name}\n\n{text}\n", flush=True)
        if not asked.quick:
            keep(RESULTS, problem.name, text)


if __name__ == "__main__":
    main()
