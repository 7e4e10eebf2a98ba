"""Order 1/n for data sets: speed and accuracy of the sampled route, and its agreement with whole tensors.

    python -m benchmarks.many_points.speed              speeds and agreement, about an hour on two free cores
    python -m benchmarks.many_points.speed --only mean  one section (speed, pairs, mean, variance)
    python -m benchmarks.many_points.speed --quick      few points, a check of this script

Every case runs in a process of its own. Tables are printed and, by full runs, written to
benchmarks/many_points/results/speed.md. Real networks on digits are in benchmarks/many_points/digits.py.

Speeds: depth 3, ten classes, tanh, width 256; time to a standard error of 3 percent of the largest shift, rms
over six test digits and ten outputs, statistics included. Agreement: pulls of every contribution to the mean,
and for few samples to the variance, against the deterministic route.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.provenance import keep, stamp

RESULTS = Path(__file__).parent / "results"
TESTS = 6
# training points, l_max T (infinite: the end of training), seconds allowed
SPEEDS = ((100, 1e3, 60), (300, 1e2, 90), (300, 1e3, 360), (1000, 1e2, 1200), (100, np.inf, 120))
QUICK_SPEEDS = ((20, 30.0, 60),)
COMPARED = 4  # test points
REACHES = (100.0, 1000.0)  # l_max T at which both routes are compared
AGREEMENT = {100.0: (8, 20, 52, 64), 1000.0: (8, 20, 52)}  # numbers of samples, tests among them
VARIANCES = dict.fromkeys(REACHES, (8, 20))  # the same for the variance
PAIRS = ((100, None), (300, 20.0), (1000, None))  # inputs whose G1 and H1 are made, seconds allowed


def digits(points: int, tests: int):
    """Training inputs and targets, test inputs and targets: one-hot rows minus 0.1."""
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    X = (X - X.mean()) / X.std()
    order = np.random.default_rng(4242).permutation(len(X))[: points + tests]
    X, Y = X[order], np.eye(10)[labels[order]] - 0.1
    return X[:points], Y[:points], X[points:], Y[points:]


def network(width: int = 256):
    import finitewidth as fw

    return fw.MLP.critical((64, width, width, 10), "tanh")


def largest_eigenvalue(net, X: np.ndarray) -> float:
    import finitewidth as fw

    return float(np.linalg.eigvalsh(fw.kernels(net, X).Theta)[-1])


def rms(v) -> float:
    return float(np.sqrt(np.mean(np.square(v))))


# --- speeds -------------------------------------------------------------------------------------------


def speed(points: int, reach: float, allowed: float) -> dict:
    """Time, accuracy and memory of one prediction."""
    import finitewidth as fw

    X, Y, X_test, _ = digits(points, TESTS)
    net = network()
    algorithm = fw.GradientFlow(reach / largest_eigenvalue(net, X))
    started, processor = time.perf_counter(), time.process_time()
    p = fw.predict(net, X, Y, X_test, algorithm=algorithm, method=fw.Sampling(budget=1e5))
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    assert p.sampling is not None
    n = net.ladder.widths[-2]
    shift = n * (p.mean - p.infinite_width.mean - p.contributions["ntk_mean"])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "points": points, "reach": reach, "allowed": allowed, "seconds": seconds, "processor": processor,
        "samples": p.sampling.samples, "largest": float(np.abs(shift).max()), "stderr": n * rms(p.stderr),
        "accuracy": p.sampling.accuracy, "memory": memory,
    }  # fmt: skip


def speed_table(rows: list[dict]) -> str:
    lines = [
        "| training points | l_max T | seconds | allowed | processor seconds | neurons | largest n x shift "
        "| standard error | of the largest | GB |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['points']} | {row['reach']:g} | {row['seconds']:.0f} | {row['allowed']:.0f} | "
            f"{row['processor']:.0f} | {row['samples']} | {row['largest']:.2f} | {row['stderr']:.2f} | "
            f"{row['accuracy']:.3f} | {row['memory']:.1f} |"
        )
    return "\n".join(lines)


# --- G1 and H1 of all pairs ---------------------------------------------------------------------------


def pairs(points: int, allowed: float | None) -> dict:
    """Time of G1 and H1 of all pairs, and their distance from the recursion of all tensors at six inputs."""
    import finitewidth as fw
    from finitewidth.theory.unrolled.pair_corrections import pair_corrections

    X, net = digits(points, 0)[0], network()
    few = pair_corrections(net, X[:6])  # compiles too
    layer = fw.solve(net, X[:6], method=fw.Tensors(kernel_tolerance=1e-10)).layer(net.depth)
    differences = [
        float(np.abs(a - b).max() / np.abs(b).max()) for a, b in ((few.G1, layer.G1), (few.H1, layer.H1))
    ]
    started, processor = time.perf_counter(), time.process_time()
    pair_corrections(net, X)
    return {
        "points": points, "allowed": allowed, "seconds": time.perf_counter() - started,
        "processor": time.process_time() - processor, "differences": differences,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }  # fmt: skip


def pairs_table(rows: list[dict]) -> str:
    lines = [
        "| inputs | seconds | allowed | processor seconds | difference of G1 at six inputs | of H1 | GB |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        allowed = "" if row["allowed"] is None else f"{row['allowed']:.0f}"
        differences = " | ".join(f"{one:.0e}" for one in row["differences"])
        lines.append(
            f"| {row['points']} | {row['seconds']:.2f} | {allowed} | {row['processor']:.2f} | "
            f"{differences} | {row['memory']:.1f} |"
        )
    return "\n".join(lines)


# --- agreement with whole tensors ---------------------------------------------------------------------


def both_methods(points: int, reach: float, tolerance: float, **sampled):
    """Predictions by whole tensors and by samples, for flow and for descent, by name."""
    import finitewidth as fw

    X, Y, X_test, _ = digits(points - COMPARED, COMPARED)
    net = network()
    top = largest_eigenvalue(net, X)
    covariance = sampled.get("variance", False)
    whole = fw.prepare(net, X, Y, X_test, covariance=covariance, method=fw.Tensors(tolerance))
    drawn = fw.prepare(net, X, Y, X_test, method=fw.Sampling(budget=1e5, **sampled))
    algorithms = {"flow": fw.GradientFlow(reach / top), "descent": fw.GradientDescent(1 / top, round(reach))}
    for name, algorithm in algorithms.items():
        yield name, whole.predict(algorithm, covariance=covariance), drawn.predict(algorithm)


def agreement(points: int, samples: int, reach: float) -> dict:
    """Pulls of every contribution to the mean, for flow and for descent."""
    result: dict = {"points": points}
    for name, exact, estimate in both_methods(points, reach, 1e-5, samples=samples):
        for part, error in estimate.sampling.contributions.items():
            result[f"{name} {part}"] = pulls(estimate.contributions[part], error, exact.contributions[part])
    return result


def variance(points: int, samples: int, reach: float) -> dict:
    """Pulls of every contribution to the variance of every output."""
    result: dict = {"points": points}
    for name, exact, estimate in both_methods(points, reach, 1e-6, samples=samples, variance=True):
        for part, error in estimate.sampling.variance.contributions.items():
            value, true = (p.variance_contributions[part] for p in (estimate, exact))
            result[f"{name} {part}"] = pulls(value, error, true)
    return result


def pulls(value: np.ndarray, error: np.ndarray, exact: np.ndarray) -> list[float]:
    """Of a contribution: rms and largest, and the standard error in units of the largest value."""
    each = (value - exact) / error
    return [rms(each), float(np.abs(each).max()), rms(error) / float(np.abs(exact).max())]


def agreement_table(rows: list[dict]) -> str:
    lines = [
        "| samples | training | contribution | pulls, rms | largest | standard error of the largest value |",
        "|---:|---|---|---:|---:|---:|",
    ]
    for row in rows:
        for name, value in row.items():
            if name != "points":
                training, part = name.split()
                cells = f"{value[0]:.2f} | {value[1]:.2f} | {value[2]:.3f}"
                lines.append(f"| {row['points']} | {training} | {part} | {cells} |")
    return "\n".join(lines)


# --- cases in processes of their own ------------------------------------------------------------------


def in_process(case: str, *arguments) -> dict:
    command = [sys.executable, "-m", "benchmarks.many_points.speed", "--case", case, json.dumps(arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    result = json.loads(done.stdout.splitlines()[-1])
    print(result, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=SECTIONS, help="one section; the others stay as they were written")
    parser.add_argument("--speeds", type=int, default=len(SPEEDS), help="how many of the cases of speed")
    parser.add_argument("--reach", type=float, nargs="*", default=REACHES, help="l_max T of the agreement")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.case:
        warnings.simplefilter("ignore")
        call = {"speed": speed, "pairs": pairs, "agreement": agreement, "variance": variance}[chosen.case[0]]
        print(json.dumps(call(*json.loads(chosen.case[1]))))
        return
    for name, section in SECTIONS.items():
        if chosen.only in (None, name):
            for title, text in section(chosen):
                print(f"## {title}\n\n{text}\n", flush=True)
                if not chosen.quick:
                    keep(RESULTS / "speed.md", title, f"{stamp()}\n\n{text}")


def speed_section(chosen):
    speeds = QUICK_SPEEDS if chosen.quick else SPEEDS[: chosen.speeds]
    yield "Speed", speed_table([in_process("speed", *case) for case in speeds])


def pairs_section(chosen):
    sizes = ((20, None),) if chosen.quick else PAIRS
    yield "G1 and H1 of all pairs", pairs_table([in_process("pairs", *case) for case in sizes])


def mean_section(chosen):
    yield from _agreement_section(chosen, "agreement", "Mean: sampled against deterministic", AGREEMENT)


def variance_section(chosen):
    yield from _agreement_section(chosen, "variance", "Variance of every output", VARIANCES)


def _agreement_section(chosen, case: str, title: str, sizes: dict[float, tuple[int, ...]]):
    samples = 20_000 if chosen.quick else 200_000
    for reach in chosen.reach:
        counts = (8,) if chosen.quick else sizes[reach]
        rows = [in_process(case, count, samples, reach) for count in counts]
        intro = f"{samples} neurons, {COMPARED} test digits; descent: {reach:g} steps of 1 / l_max."
        yield f"{title}, l_max T = {reach:g}", f"{intro}\n\n{agreement_table(rows)}"


SECTIONS = {
    "speed": speed_section,
    "pairs": pairs_section,
    "mean": mean_section,
    "variance": variance_section,
}


if __name__ == "__main__":
    main()
