"""Time of a posterior at order 1/n, beside that of V and G1 alone, and for a hundred points.

    python -m benchmarks.bayes.speed

writes `benchmarks/bayes/results/speed.md`. Times are processor times of this process, all threads,
because other work may share the machine.
"""

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

import finitewidth as fw
from benchmarks.provenance import stamp
from finitewidth.theory.vertex.fields import DENSE, fields

RESULT = Path(__file__).resolve().parent / "results" / "speed.md"
RANDOM = np.random.default_rng(0)
NET = fw.MLP.critical((10, 2000, 2000, 1), "tanh")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall seconds."""
    processor, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - processor, time.perf_counter() - wall


def vertex_alone(X: np.ndarray) -> None:
    """V, kept as averages or slice by slice, and G1."""
    nothing = np.zeros((0, len(X), len(X)))
    fields(NET, X).with_averages().vertex(NET.depth).contract(nothing, nothing)


def data(training: int, tests: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = RANDOM.normal(size=(training + tests, 10))
    Y = np.sin(X[:training, :1])
    return X[:training], Y, X[training:]


def main() -> None:
    warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
    lines = [HEAD]
    for training, tests in ((50, 10), (90, 10)):
        X, Y, X_test = data(training, tests)
        timed(lambda X=X: vertex_alone(X[:4]))  # compiles
        small = training + tests <= DENSE
        alone = timed(lambda X=X, T=X_test: vertex_alone(np.concatenate([X, T]))) if small else None
        whole = timed(lambda X=X, Y=Y, T=X_test: fw.bayes.posterior(NET, X, Y, T, noise=0.1, order=1))
        memory = psutil.Process().memory_info().rss / 1e9
        shown = (
            ("-", "-")
            if alone is None
            else (f"{alone[0]:.1f} ({alone[1]:.1f})", f"{whole[0] / alone[0]:.2f}")
        )
        took = f"{whole[0]:.1f} ({whole[1]:.1f})"
        lines.append(f"| {training} | {tests} | {shown[0]} | {took} | {shown[1]} | {memory:.1f} |")
        print(lines[-1], flush=True)
        RESULT.write_text("\n".join([*lines, ""]))


HEAD = f"""# Time of a posterior at order 1/n

Written by `benchmarks/bayes/speed.py` ({stamp()}), load average {os.getloadavg()[0]:.1f} at the start. tanh,
three layers, mean and whole covariance. Processor seconds of all threads, wall seconds in brackets.
Beyond 64 points V is never stored, and V and G1 alone would take as long.

| training points | test points | V and G1 alone, s | posterior, s | ratio | memory, GB |
|---|---|---|---|---|---|"""


if __name__ == "__main__":
    main()
