"""Kernel prediction: time against a bare Gram matrix and its Cholesky factor, memory, and neural-tangents.

    python -m benchmarks.kernels.prediction            N = 4000; leave the machine alone meanwhile
    python -m benchmarks.kernels.prediction --quick    N = 500, a check of this script

Every side answers from a process of its own and runs are interleaved. The environment of neural-tangents is
that of `speed.py`. Tables are printed; a full run also writes them to results/prediction.md.
"""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness import Report, extra_memory, processor, say, shown, write
from benchmarks.kernels.prediction_peer import DIMENSION, OUTPUTS, solved
from benchmarks.kernels.speed import C_B, C_W, Case
from benchmarks.kernels.speed_peer import case_inputs, inputs
from benchmarks.peer import Side, environment, serve, versions
from benchmarks.provenance import stamp

DEPTH = 3
ACTIVATIONS = {"relu": 2.0, "erf": 2.0, "tanh": 4.0, "gelu": 4.0}  # largest ratio to the bare minimum
PEER_HAS = ("relu", "erf", "gelu")
BARE = "bare"
ROUNDS = 5


def start_ours() -> Side:
    return Side([sys.executable, "-m", "benchmarks.kernels.prediction", "--serve"])


def start_peer() -> Side:
    return Side([str(environment()), "-m", "benchmarks.kernels.prediction_peer"])


def bare_minimum(X: np.ndarray):
    """The Gram matrix and its Cholesky factor, and nothing else."""
    gram = X @ X.T
    gram.flat[:: len(gram) + 1] += 1.0  # N inputs in fewer dimensions make it singular
    return gram, solved(gram.T, X)


def serve_finitewidth() -> None:
    """Answer requests with finitewidth, or with the bare minimum."""
    import finitewidth as fw

    fit = fw.fit  # imported before anything is timed

    def prepare(activation: str, N: int, depth: int) -> Callable:
        if activation == BARE:
            return bare_minimum
        widths = (DIMENSION, *[1] * (depth - 1), OUTPUTS)
        net = fw.MLP(widths, activation, C_b=C_B, C_W=C_W, lambda_b=C_B, lambda_W=C_W)

        def call(X: np.ndarray):
            fitted = fit(net, X, X[:, :OUTPUTS])
            return fitted.K, fitted.weights

        return call

    def warm(activation: str, N: int, depth: int) -> None:
        some = min(N, 300)  # enough inputs for tiles of full size
        prepare(activation, some, depth)(inputs(some, dimension=DIMENSION))

    about = {"finitewidth": fw.__version__, **versions("jax", "jaxlib", "numpy", "scipy")}
    serve(prepare, warm, about=about, inputs=functools.partial(case_inputs, dimension=DIMENSION))


def times(case: Case, ours: Side, peer: Side | None) -> dict[str, float]:
    """The shortest times of the bare minimum, of finitewidth and of neural-tangents, which take turns."""
    say(f"time of {case}")
    sides = {"bare": (ours, case._replace(activation=BARE)), "ours": (ours, case)}
    if peer is not None:
        sides["peer"] = (peer, case)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for side, asked in sides.values():
        side.ask("run", case=asked)  # compilation, and the first touch of memory
    for turn in range(ROUNDS):
        for name, (side, asked) in sides.items():
            seconds[name] += side.ask("run", case=asked, draw=1 + turn)["seconds"]
    return {name: min(taken) for name, taken in seconds.items()}  # other work on the machine only adds time


def compare(report: Report, N: int) -> list[str]:
    """Measure the times of all activations; return the versions of the two sides."""
    rows = []
    with start_ours() as ours, start_peer() as peer:
        for activation, most in ACTIVATIONS.items():
            case = Case(activation, N, DEPTH)
            seconds = times(case, ours, peer if activation in PEER_HAS else None)
            ratio, against = seconds["ours"] / seconds["bare"], seconds.get("peer", np.nan) / seconds["ours"]
            cells = [shown(seconds.get(name, np.nan)) for name in ("bare", "ours", "peer")]
            rows.append((activation, *cells, f"{ratio:.2f}", "-" if np.isnan(against) else f"{against:.2f}"))
            report.target(f"{case}: at most {most:g} times the bare minimum", f"{ratio:.2f}", ratio <= most)
            if activation in PEER_HAS:
                report.target(f"{case}: faster than neural-tangents", f"{against:.2f} times", against > 1)
        about = [side.ask("about") for side in (ours, peer)]
    report.table(
        "Time",
        "activation | bare minimum | finitewidth | neural-tangents | finitewidth / bare | "
        "neural-tangents / finitewidth",
        rows,
        f"The shortest of {ROUNDS} interleaved runs, each with new inputs. The bare minimum is the Gram "
        "matrix of the inputs and `scipy.linalg.cho_factor` with one solve; finitewidth is `fw.fit`: K and "
        "Theta of all pairs, checks, factorization, condition number and solve; neural-tangents is its "
        "compiled kernel function for nngp and ntk and the same factorization and solve.",
    )
    return [", ".join(f"{name} {version}" for name, version in one.items()) for one in about]


def memory(report: Report, N: int) -> None:
    """Peak extra memory, each activation in a new process."""
    rows = []
    for activation in ACTIVATIONS:
        case = Case(activation, N, DEPTH)
        say(f"memory of {case}")
        with start_ours() as side:
            extra = extra_memory(case, side) / (8 * N**2)
        rows.append((activation, f"{extra:.1f}"))
        report.target(f"{case}: peak extra memory at most 6 N^2 doubles", f"{extra:.1f}", extra <= 6)
    report.table(
        "Peak extra memory in units of N^2 doubles",
        "activation | finitewidth",
        rows,
        "Peak resident memory of one `fw.fit`, its results included, minus the memory that was resident "
        "before it, in a new process that has already compiled with 300 inputs.",
    )


def measure(N: int) -> str:
    report, load = Report(), os.getloadavg()[0]
    about = compare(report, N)
    memory(report, N)
    return report.text(
        f"""# Kernel prediction at infinite width

Written by `python -m benchmarks.kernels.prediction` on {stamp()}: {processor()},
{os.cpu_count()} cores, load average {load:.1f} before the run.

- finitewidth: {about[0]}
- neural-tangents: {about[1]}

{N} training inputs, standard normal, of dimension {DIMENSION}, {OUTPUTS} outputs, depth {DEPTH}, float64,
C_W = lambda_W = {C_W}, C_b = lambda_b = {C_B:g}; end of training, without ridge.
"""
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="500 inputs; nothing is written")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve_finitewidth()
    text = measure(500 if options.quick else 4000)
    print(text)
    if not options.quick:
        write(Path(__file__).parent / "results" / "prediction.md", text)


if __name__ == "__main__":
    main()
