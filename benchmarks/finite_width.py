"""Order-1/n predictions: time, memory, growth with the number of training points, and their own error.

    python benchmarks/finite_width.py            everything, about half an hour; leave the machine alone
    python benchmarks/finite_width.py --quick    10 and 20 training points, a check of this script

Each size runs in a process of its own. Tables are printed and, by a full run, written to
benchmarks/results/finite_width.md. Trained networks are compared in benchmarks/trained_networks.py.
"""

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # the finitewidth of this tree, installed or not
INPUT_DIMENSION, WIDTH, TESTS = 20, 128, 5
GROWTH = (10, 20, 40, 80)
LIMITS = {20: 15.0, 50: 180.0, 100: 900.0}  # seconds
MEMORY_LIMIT = 8.0  # GB, at 100 training points


def one(count: int, tolerance: float) -> dict:
    """The mean for `count` training points in this process."""
    import finitewidth as fw

    warnings.simplefilter("ignore", fw.ExpansionWarning)
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((count + TESTS, INPUT_DIMENSION)), rng.standard_normal((count, 1))
    net = fw.MLP((INPUT_DIMENSION, WIDTH, WIDTH, 1), "tanh", C_b=0.1)
    fw.predict(net, X[:3], Y[:3], X[-2:], four_leg_tolerance=tolerance)  # compile
    start = time.perf_counter()
    found = fw.predict(net, X[:count], Y, X[count:], four_leg_tolerance=tolerance, covariance=False)
    return dict(
        count=count,
        tolerance=tolerance,
        seconds=time.perf_counter() - start,
        gigabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        condition=found.condition,
        correction=(found.mean - found.infinite_width.mean).ravel().tolist(),
    )


def in_own_process(count: int, tolerance: float) -> dict:
    command = [sys.executable, __file__, "--one", str(count), str(tolerance)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr)
    return json.loads(result.stdout.splitlines()[-1])


def relative_error(coarse: dict, fine: dict) -> float:
    """The largest change with a tenth of the tolerance, relative to the largest correction."""
    a, b = np.array(coarse["correction"]), np.array(fine["correction"])
    return float(np.abs(a - b).max() / np.abs(b).max())


def report(rows: list[dict], errors: dict[int, float]) -> str:
    lines = [
        "# Order-1/n mean predictions",
        "",
        f"Written by `python benchmarks/finite_width.py` on {datetime.date.today()}: {platform.machine()}, "
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} after the run.",
        "",
        f"tanh, depth 3, width {WIDTH}, {INPUT_DIMENSION} input dimensions, {TESTS} test points, gradient "
        "flow to the end; statistics included, compilation not. Up to 64 samples tensors are dense, beyond "
        "that nothing of size N^4 is stored.",
        "",
        "| training points | tolerance | seconds | limit | peak GB | condition | own error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        limit = LIMITS.get(row["count"], "")
        error = f"{errors[row['count']]:.1e}" if row["count"] in errors else ""
        lines.append(
            f"| {row['count']} | {row['tolerance']:.0e} | {row['seconds']:.1f} | {limit} "
            f"| {row['gigabytes']:.2f} | {row['condition']:.0f} | {error} |"
        )
    growth = [row for row in rows if row["count"] in GROWTH]
    slope = np.polyfit(np.log([r["count"] for r in growth]), np.log([r["seconds"] for r in growth]), 1)[0]
    lines += [
        "",
        f"Time grows as the power {slope:.2f} of the number of training points over "
        f"{', '.join(str(r['count']) for r in growth)}. The own error is the largest change of the "
        "correction with another tolerance (1e-6, for 100 points 1e-4), relative to the largest correction.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("COUNT", "TOLERANCE"))
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(int(arguments.one[0]), float(arguments.one[1]))))
        return
    counts = (10, 20) if arguments.quick else sorted({*GROWTH, *LIMITS})
    rows, errors = [], {}
    for count in counts:
        rows.append(in_own_process(count, 1e-5))
        print(rows[-1], flush=True)
        if count in LIMITS:
            errors[count] = relative_error(rows[-1], in_own_process(count, 1e-6 if count < 100 else 1e-4))
            print(f"own error at {count}: {errors[count]:.1e}", flush=True)
    text = report(rows, errors)
    print(text)
    if not arguments.quick:
        (HERE / "results" / "finite_width.md").write_text(text)


if __name__ == "__main__":
    main()
