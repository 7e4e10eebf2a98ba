"""Digits of ten classes with mini-batches and momentum at order 1/n: time, and trained networks.

    python -m benchmarks.many_points.batches --points 300          twenty minutes on two free cores
    python -m benchmarks.many_points.batches --points 100 --quick  small and rough, a check of this script

Squared error, batches of 32 that all networks share, momentum 0.9, 100 steps at a tenth of the rate 1/l_max;
tanh, two hidden layers. The mean is sampled to 3 percent of the largest shift. Fixed before any network was
trained: measured shifts of test outputs from infinite width, with the part of the initial outputs that
training keeps as a control variate, have the slope 1 on predicted ones within four standard errors at width
256, up to the next order, of which the slope at this width may show a tenth.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.many_points.speed import digits, largest_eigenvalue, network, rms
from benchmarks.provenance import keep, stamp

RESULTS = Path(__file__).parent / "results" / "batches.md"
WIDTH = 256


def measured(points: int, *, tolerance: float, steps: int, size: int, members: int, tests: int) -> str:
    """One table of times and slopes."""
    X, Y, X_test, _ = digits(points, tests)
    net = network(WIDTH)
    drawn = fw.StochasticGradientDescent(0.1 / largest_eigenvalue(net, X), steps, size, momentum=0.9)
    algorithm = drawn.fixed(points, key=0)
    began, cpu = time.perf_counter(), time.process_time()
    method = fw.Sampling(tolerance=tolerance, budget=1e6)
    found = fw.predict(net, X, Y, X_test, algorithm=algorithm, method=method, run=fw.Run(progress=False))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    shift = found.correction
    lines = [
        f"{points} training and {tests} test digits, batches of {size}, {steps} steps, width {WIDTH}.",
        "",
        "| seconds on the clock, of CPU | neurons | standard error over the largest shift | shift, rms |",
        "| --- | --- | --- | --- |",
        f"| {took:.0f}, {cpu:.0f} | {found.samples} | {found.sampling.accuracy:.3f} "
        f"| {rms(shift.value):.3g} |",
    ]
    if members:
        control = fw.control_variate(net, X, Y, X_test, algorithm)
        ensemble = fw.train_ensemble(
            net, X, Y, X_test, algorithm=algorithm, members=members, key=1, control=control
        )
        seen = ensemble.best_mean
        x, y = shift.value, seen.value - found.infinite_width.mean
        true = np.sum(x**2) - np.sum(shift.stderr**2)  # noise of the theory flattens the line
        slope, error = np.sum(x * y) / true, np.sqrt(np.sum((x * seen.stderr) ** 2)) / true
        before, after = rms(y / seen.stderr), rms((y - x) / np.hypot(seen.stderr, shift.stderr))
        lines += [
            "",
            f"{members} networks: slope of measured on predicted shifts {slope:.2f} ± {error:.2f} (outputs "
            f"taken as independent); rms pull {before:.2f} at infinite width, {after:.2f} at order 1/n.",
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--tolerance", type=float, default=0.03)
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    options = dict(tolerance=asked.tolerance, steps=100, size=32, members=asked.members, tests=20)
    if asked.quick:
        options = dict(tolerance=0.5, steps=10, size=10, members=4, tests=5)
    text = f"{stamp()}.\n\n{measured(asked.points, **options)}"
    print(text)
    if not asked.quick:
        keep(RESULTS, f"{asked.points} digits", text)


if __name__ == "__main__":
    main()
