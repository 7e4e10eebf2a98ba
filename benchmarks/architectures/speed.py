"""Kernels of networks with convolutions, pools and skips against neural-tangents 0.6.5: time, memory, limits.

    python -m benchmarks.architectures.speed          everything; leave the machine and 10 GB alone meanwhile
    python -m benchmarks.architectures.speed --quick  small images and few inputs, a check of this script

Each side answers from a process of its own and their runs are interleaved; the environment of neural-tangents
is that of `kernels/speed.py`. Tables are printed; a full run also writes them to
results/speed.md. A full run that was stopped goes on where it was, at the same commit.
"""

import argparse
import functools
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.architectures.networks import C_B, C_W, site_pairs
from benchmarks.architectures.plan import Plan, Row, full_plan, quick_plan
from benchmarks.architectures.speed_peer import inputs
from benchmarks.harness import Kept, Report, extra_memory, median, processor, relative, say, shown, write
from benchmarks.kernels.speed import bare_minimum
from benchmarks.peer import Side, environment, serve, versions
from benchmarks.provenance import commit, stamp

ALLOWED = 64 * 2**20  # bytes beyond the matrices


# --- the two sides ----------------------------------------------------------------------------------


def start_ours() -> Side:
    return Side([sys.executable, "-m", "benchmarks.architectures.speed", "--serve"])


def start_peer() -> Side:
    return Side([str(environment()), "-m", "benchmarks.architectures.speed_peer"])


def serve_finitewidth() -> None:
    """Answer requests with finitewidth."""
    import jax
    import jax.numpy as jnp

    import finitewidth as fw

    kernels = fw.kernels  # imported before anything is timed
    jax.jit(jnp.sin)(1.0)  # the first compilation of any process takes 70 MB, which are not ours

    def built(text: str) -> fw.Network:
        if '"user"' not in text:
            return fw.Network.from_dict(json.loads(text))
        user, name = (
            fw.Activation(lambda z: z * jnp.exp(-z * z / 2)),
            fw.Network(1, fw.Dense(1), "tanh", fw.Dense(1)),
        )
        net = fw.Network.from_dict(json.loads(text.replace('"user"', '"tanh"')))
        return with_activation(net, name.layers[1], user)

    def with_activation(thing, old, new):
        layers = [new if layer == old else layer for layer in thing.layers]
        layers = [with_activation(one, old, new) if isinstance(one, fw.Residual) else one for one in layers]
        return thing.replace(layers=layers)

    def prepare(text: str, N: int) -> Callable:
        net = built(text)

        def call(X: np.ndarray):
            found = kernels(net, X)
            return found.K, found.Theta

        return call

    def warm(text: str, N: int) -> None:
        some = min(N, 40)
        prepare(text, some)(inputs((text, some), 0))

    about = {"finitewidth": fw.__version__, **versions("jax", "jaxlib", "numpy", "scipy")}
    serve(prepare, warm, about, inputs=inputs)


# --- what is measured -------------------------------------------------------------------------------


class Seen(NamedTuple):
    """Medians of interleaved runs, and of one run of both sides the largest differences."""

    seconds: list[float]  # ours, and the peer's
    processor: list[float]
    K: float = math.nan
    Theta: float = math.nan

    @property
    def ratio(self) -> float:
        return self.seconds[1] / self.seconds[0]


def measured(row: Row, ours: Side, peer: Side | None, kept: Kept) -> Seen:
    """The sides take turns, every run with new inputs; compilation is done before."""
    return Seen(*kept(f"time of {row.name} {row.case} {peer is None}", lambda: _measure(row, ours, peer)))


def _measure(row: Row, ours: Side, peer: Side | None) -> Seen:
    say(f"time of {row}")
    sides = [ours, peer] if peer else [ours]
    found, first = [], []
    with tempfile.TemporaryDirectory() as folder:
        for side in sides:
            path = str(Path(folder) / "kernels.npz")
            side.ask("warm", case=row.case)
            first.append(side.ask("run", case=row.case, save=path)["seconds"][0])
            with np.load(path) as arrays:
                found.append((arrays["K"], arrays["Theta"]))
    seconds: list[list[float]] = [[] for _ in sides]
    busy: list[list[float]] = [[] for _ in sides]
    for turn in range(9 if max(first) < 2 else 5 if max(first) < 10 else 2):  # the slower side decides
        for place, side in enumerate(sides):
            answer = side.ask("run", case=row.case, draw=1 + turn)
            seconds[place] += answer["seconds"]
            busy[place] += answer["processor seconds"]
    differ = [relative(*pair) for pair in zip(*reversed(found), strict=True)] if peer else []
    return Seen([median(one) for one in seconds], [median(one) for one in busy], *differ)


Times = dict[Row, Seen]


def against_peer(report: Report, plan: Plan, ours: Side, peer: Side, kept: Kept) -> Times:
    """Times and agreement of both sides."""
    times, rows = {}, []
    for row in plan.both:
        seen = times[row] = measured(row, ours, peer, kept)
        per_work = seen.processor[1] / seen.processor[0]
        cells = [shown(one) for one in seen.seconds]
        rows.append(
            (
                row.name,
                row.N,
                *cells,
                f"{seen.ratio:.3g}",
                f"{per_work:.3g}",
                f"{seen.K:.0e}",
                f"{seen.Theta:.0e}",
            )
        )
        if row.target:
            text = f"{row}: at least {row.target:g} times faster"
            report.target(text, f"{seen.ratio:.3g}", seen.ratio >= row.target)
    worst = max(max(seen.K, seen.Theta) for seen in times.values())
    report.target("K and Theta of the two sides agree to 1e-6", f"{worst:.0e}", worst <= 1e-6)
    report.table(
        "Time",
        "network | N | finitewidth | neural-tangents | ratio | of processor times | difference of K | "
        "of Theta",
        rows,
        'Medians of interleaved runs, each with new inputs; relu, filters 3x3, padding "same". The second '
        "ratio compares the time that all cores worked. Differences are the largest over all pairs, in units "
        "of the square root of the product of the two diagonal entries.",
    )
    return times


def alone(report: Report, plan: Plan, ours: Side, kept: Kept) -> Times:
    """finitewidth with activations of which neural-tangents has no kernel."""
    times = {row: measured(row, ours, None, kept) for row in plan.alone}
    rows = [(row.name, row.N, shown(seen.seconds[0])) for row, seen in times.items()]
    note = "Medians; 5 convolutions where there is no MLP. `user` is z exp(-z^2/2)."
    report.table("Other activations, finitewidth alone", "network | N | finitewidth", rows, note)
    return times


def growth(report: Report, plan: Plan, ours: Side, kept: Kept) -> None:
    """Exponents of time ~ size^p."""
    rows = []
    for name, (expected, cases) in plan.growth.items():
        seen = {size: measured(row, ours, None, kept).seconds[0] for size, row in cases}
        power = np.polyfit(np.log(list(seen)), np.log(list(seen.values())), 1)[0]
        listed = ", ".join(f"{size}: {shown(taken)}" for size, taken in seen.items())
        rows.append((name, listed, f"{power:.2f}", expected))
    report.table(
        "Growth",
        "with | times | exponent | of the number of pairs of sites",
        rows,
        "finitewidth, 5 convolutions, relu; P is the number of positions.",
    )


def limits(report: Report, times: Times) -> None:
    """Time over that of the bare minimum of arithmetic."""
    N, depth = 500, 20
    unit = bare_minimum(N, depth) / ((depth - 1) * N * (N + 1) / 2)
    rows = []
    for row, seen in times.items():
        bare = unit * site_pairs(row.network) * row.N * (row.N + 1) / 2
        rows.append((row.name, row.N, shown(seen.seconds[0]), shown(bare), f"{seen.seconds[0] / bare:.3g}"))
    report.table(
        "The physical limit",
        "network | N | finitewidth | bare minimum | ratio",
        rows,
        f"The bare minimum is {1e9 * unit:.2f} ns, measured in this run, for every pair of samples and pair "
        "of positions that the output depends on, in every activation: one square root, one arctangent (a "
        "division and 13 multiply-adds) and ten more multiply-adds, compiled by the same JAX, on all cores, "
        "on tiles that stay in the cache. It has no filters and no edges. finitewidth's own loops do this "
        "arithmetic faster than XLA does, so that ratios below one are possible.",
    )


def _memory_of(row: Row) -> list[int]:
    """Of the first call, of a compiled call, and of one of the peer."""
    say(f"memory of {row}")
    with start_ours() as side:
        cold = extra_memory(row.case, side, warm=False)
    with start_ours() as side:
        warm = extra_memory(row.case, side)
    with start_peer() as side:
        return [cold, warm, extra_memory(row.case, side)]


def memory(report: Report, plan: Plan, kept: Kept) -> None:
    """Peak extra memory, each in new processes."""
    rows = []
    for row in plan.memory:
        cold, warm, peer = kept(f"memory of {row.case}", functools.partial(_memory_of, row))
        allowed = 48 * row.N**2 + ALLOWED
        rows.append((row.name, row.N, *(f"{bytes / 2**20:.0f} MB" for bytes in (cold, warm, peer, allowed))))
        text = f"{row}: peak extra memory at most 6 N^2 doubles and 64 MB"
        report.target(text, f"{warm / 2**20:.0f} of {allowed / 2**20:.0f} MB", warm <= allowed)
    report.table(
        "Peak extra memory",
        "network | N | finitewidth, first call | finitewidth, compiled | neural-tangents, compiled | allowed",
        rows,
        "Peak resident memory of one call, its results included, minus the memory that was resident before "
        "it: in a new process that has imported finitewidth and compiled one sine (first call: the compilers "
        "themselves count), or that has compiled the network (finitewidth: with at most 40 inputs). The "
        "compiled call is judged, as it is for neural-tangents: the rest is paid once, whatever the number "
        "of inputs.",
    )


def _first_call_of(row: Row) -> list[float]:
    say(f"first call of {row}")
    seen = []
    for start in (start_ours, start_peer):
        with start() as side:
            answer = side.ask("run", case=row.case)
            seen.append(answer["preparation"] + answer["seconds"][0])
    return seen


def first_calls(report: Report, plan: Plan, kept: Kept) -> None:
    """Seconds from the network to its first kernels, in new processes."""
    rows = []
    for row in plan.memory:
        seen = kept(f"first call of {row.case}", functools.partial(_first_call_of, row))
        rows.append((row.name, row.N, *map(shown, seen)))
    note = (
        "Construction of the network, compilation and one calculation, in a new process; finitewidth finds "
        "the loops that an earlier process compiled."
    )
    report.table("First call", "network | N | finitewidth | neural-tangents", rows, note)


# --- the run ----------------------------------------------------------------------------------------


def opening(ours: Side, peer: Side, load: float) -> str:
    """What was run, when and where."""
    about = [
        ", ".join(f"{name} {version}" for name, version in side.ask("about").items()) for side in (ours, peer)
    ]
    return f"""# Kernels of other architectures against neural-tangents 0.6.5

Written by `python -m benchmarks.architectures.speed` on {stamp()}: {processor()}, {os.cpu_count()} cores,
load average {load:.1f} before the run.

- finitewidth: {about[0]}
- neural-tangents: {about[1]}; compiled as a whole by `jax.jit`

K and Theta at the output, float64, standard normal inputs, lambda_W = C_W and lambda_b = C_b = {C_B:g};
C_W = {C_W:g}, in the bodies of the residual MLP 0.4 with gamma = 0.9.
A ratio is the time of neural-tangents over that of finitewidth.
"""


def measure(plan: Plan, kept: Kept) -> str:
    """All tables as one text."""
    report, load = Report(), os.getloadavg()[0]
    with start_ours() as ours:
        with start_peer() as peer:
            head = opening(ours, peer, load)
            times = against_peer(report, plan, ours, peer, kept)
        times |= alone(report, plan, ours, kept)
        growth(report, plan, ours, kept)
    limits(report, times)
    memory(report, plan, kept)
    first_calls(report, plan, kept)
    return report.text(head)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small cases only; nothing is written")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve_finitewidth()
    kept = Kept("architectures-quick" if options.quick else "architectures", commit())
    text = measure(quick_plan() if options.quick else full_plan(), kept)
    print(text)
    if not options.quick:
        write(Path(__file__).parent / "results" / "speed.md", text)
    kept.forget()


if __name__ == "__main__":
    main()
