"""Infinite-width kernels against neural-tangents 0.6.5: time, accuracy, memory, compilation.

    python -m benchmarks.kernels.speed            everything; leave the machine alone meanwhile
    python -m benchmarks.kernels.speed --quick    100 inputs and depth 5, a check of this script

Each side answers from a process of its own and their runs are interleaved. neural-tangents cannot be imported
with a current JAX: it gets an environment of its own in the directory for temporary files, made at the first
run and kept. Tables are printed and, by a full run, written to benchmarks/kernels/results/speed.md.
"""

import argparse
import functools
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Report, Timing, extra_memory, median, processor, relative, say, shown, write
from benchmarks.kernels.speed_peer import BIAS_STD, DEGREE, INPUT_DIMENSION, WEIGHT_STD, case_inputs, inputs
from benchmarks.peer import Side, environment, serve, versions
from benchmarks.provenance import stamp

C_W, C_B = WEIGHT_STD**2, BIAS_STD**2
CLOSED = ("relu", "erf", "gelu")
NUMERICAL = ("tanh", "swish", "user")
CORNER = 6  # inputs whose kernels are compared with the reference


class Case(NamedTuple):
    """One calculation of K and Theta at the output layer."""

    activation: str
    N: int
    depth: int  # layers with parameters

    def __str__(self) -> str:
        return f"{self.activation}, N = {self.N}, depth {self.depth}"


class Plan(NamedTuple):
    """Which cases are run."""

    closed: tuple[Case, ...]
    numerical: tuple[Case, ...]
    own: tuple[Case, ...]  # finitewidth alone: out of reach of a numerical layer, or for the growth with N
    compiled: tuple[Case, ...]
    largest: tuple[Case, ...]  # memory, and the ratio to the bare minimum


def full_plan() -> Plan:
    sizes, depths = (100, 500, 2000), (5, 20)
    own = [Case(a, 1000, 20) for a in CLOSED]
    own += [
        Case(a, N, depth) for a in NUMERICAL for N, depth in ((100, 20), (1000, 20), (2000, 5), (2000, 20))
    ]
    return Plan(
        closed=tuple(Case(a, N, depth) for a in CLOSED for N in sizes for depth in depths),
        numerical=(*(Case(a, 500, 5) for a in NUMERICAL), Case("tanh", 500, 20)),
        own=tuple(own),
        compiled=tuple(Case(a, 500, 20) for a in (*CLOSED, *NUMERICAL)),
        largest=tuple(Case(a, 2000, 20) for a in (*CLOSED, *NUMERICAL)),
    )


def quick_plan() -> Plan:
    closed, tanh = tuple(Case(a, 100, 5) for a in CLOSED), (Case("tanh", 100, 5),)
    return Plan(
        closed, tanh, own=(Case("tanh", 200, 5),), compiled=closed[:1] + tanh, largest=closed[:1] + tanh
    )


# --- the two sides ----------------------------------------------------------------------------------


def start_ours() -> Side:
    return Side([sys.executable, "-m", "benchmarks.kernels.speed", "--serve"])


def start_peer() -> Side:
    return Side([str(environment()), "-m", "benchmarks.kernels.speed_peer"])


def serve_finitewidth() -> None:
    """Answer requests with finitewidth."""
    import jax.numpy as jnp

    import finitewidth as fw

    kernels = fw.kernels  # imported before anything is timed

    def prepare(activation: str, N: int, depth: int) -> Callable:
        chosen = fw.Activation(lambda z: z * jnp.exp(-z * z / 2)) if activation == "user" else activation
        widths = (INPUT_DIMENSION, *[1] * depth)
        net = fw.MLP(widths, chosen, C_b=C_B, C_W=C_W, lambda_b=C_B, lambda_W=C_W)

        def call(X: np.ndarray):
            found = kernels(net, X)
            return found.K, found.Theta

        return call

    def warm(activation: str, N: int, depth: int) -> None:
        some = min(N, 300)  # enough inputs for tiles of full size
        prepare(activation, some, depth)(inputs(some))

    about = {"finitewidth": fw.__version__, **versions("jax", "jaxlib", "numpy", "scipy")}
    serve(prepare, warm, about, inputs=case_inputs)


# --- what is measured -------------------------------------------------------------------------------


def timing(case: Case, ours: Side, peer: Side | None) -> Timing:
    """The sides take turns, every run with new inputs; compilation is done before."""
    say(f"time of {case}")
    both = [side for side in (ours, peer) if side]
    ours.ask("run", case=case)
    if peer:
        peer.ask("warm", case=case)
        if case.activation in CLOSED:  # a numerical layer takes so long that a first run makes no difference
            peer.ask("run", case=case)
    rounds, repeats = _effort(case, alone=peer is None)
    times: list[list[float]] = [[] for _ in both]
    for turn in range(rounds):
        for seen, side, times_in_turn in zip(times, both, repeats, strict=False):
            draw = 1 + turn * times_in_turn
            seen += side.ask("run", case=case, repeats=times_in_turn, draw=draw)["seconds"]
    medians = [median(seen) for seen in times]
    return Timing(medians[0], medians[1] if peer else math.nan)


def _effort(case: Case, *, alone: bool) -> tuple[int, tuple[int, int]]:
    """Rounds, and runs of ours and of the peer per round: its numerical layer is too slow for many."""
    if case.activation in NUMERICAL and not alone:
        return (2 if case.depth <= 5 else 1), (5, 1)
    return (9, (3, 3)) if case.N <= 500 else (7, (1, 1))


def differences(case: Case, ours: Side, peer: Side) -> tuple[float, float]:
    """Of K and of Theta between the two sides, over all pairs."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, side in (("ours", ours), ("peer", peer)):
            path = Path(folder) / f"{name}.npz"
            side.ask("run", case=case, save=str(path))
            with np.load(path) as arrays:
                found[name] = {letter: arrays[letter] for letter in ("K", "Theta")}
    K, Theta = (relative(found["peer"][letter], found["ours"][letter]) for letter in ("K", "Theta"))
    return K, Theta


def compile_seconds(case: Case, side: Side) -> float:
    """The time of the first call in a new process minus the median of later ones."""
    first = side.ask("run", case=case)
    later = side.ask("run", case=case, repeats=5, draw=1)["seconds"]
    return first["preparation"] + first["seconds"][0] - median(later)


# --- the bare minimum -------------------------------------------------------------------------------


def bare_minimum(N: int, depth: int) -> float:
    """Median seconds for the least arithmetic that K and Theta of N(N+1)/2 pairs need.

    Tiles stay in a core's cache for all layers, all cores work, and nothing else is read or written.
    """
    import jax

    import finitewidth  # noqa: F401  # switches JAX to double precision

    side, pairs = 256, N * (N + 1) / 2
    tile = np.random.default_rng(0).uniform(0.1, 0.9, (side, side))
    compiled = jax.jit(functools.partial(_bare_layers, depth - 1)).lower(tile).compile()
    count = max(math.ceil(pairs / side**2), 2 * (os.cpu_count() or 1))
    times = []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for _ in range(6):
            start = time.perf_counter()
            list(pool.map(lambda _: compiled(tile).block_until_ready(), range(count)))
            times.append(time.perf_counter() - start)
    return median(times[1:]) * pairs / (count * side**2)


def _bare_layers(layers: int, K):
    """A square root, an arctangent (one division, 13 multiply-adds) and ten multiply-adds per layer."""
    import jax
    import jax.numpy as jnp

    def layer(_, state):
        K, Theta = state
        root = jnp.sqrt(1 - K * K)
        ratio = K / (1 + root)
        square, angle = ratio * ratio, jnp.zeros_like(K)
        for k in range(12, -1, -1):
            angle = angle * square + (-1) ** k / (2 * k + 1)
        slope = 0.25 + ratio * angle * 0.3
        mean = 0.3 * root + K * slope
        K = 0.1 + 0.5 * mean
        return K, K + 0.9 * Theta * slope

    return sum(jax.lax.fori_loop(0, layers, layer, (K, K)))


# --- the reference ----------------------------------------------------------------------------------


def _swish_slope(z):
    s = 1 / (1 + np.exp(-z))
    return s + z * s * (1 - s)


FUNCTIONS = {
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "swish": (lambda z: z / (1 + np.exp(-z)), _swish_slope),
    "user": (lambda z: z * np.exp(-z * z / 2), lambda z: (1 - z * z) * np.exp(-z * z / 2)),
}


def reference(activation: str, depth: int, step: float) -> dict[str, np.ndarray]:
    """K and Theta of the first inputs by numpy alone: layer by layer, in extended precision."""
    wide = np.longdouble
    X = inputs(CORNER).astype(wide)
    K = wide(C_B) + wide(C_W) * (X @ X.T) / INPUT_DIMENSION
    Theta = K  # lambda_W = C_W and lambda_b = C_b
    for _ in range(depth - 1):
        mean, slope = (_averages(function, K, step) for function in FUNCTIONS[activation])
        K = wide(C_B) + wide(C_W) * mean
        Theta = K + wide(C_W) * Theta * slope
    return {"K": K, "Theta": Theta}


def _averages(function: Callable, K: np.ndarray, step: float) -> np.ndarray:
    """<f(z_1) f(z_2)> for all pairs, by the trapezoidal rule, which converges geometrically here."""
    half = round(11 / step)
    x = np.arange(-half, half + 1).astype(np.longdouble) * step
    weights = np.exp(-x * x / 2)
    weights /= weights.sum()
    sigma, values = np.sqrt(np.diag(K)), np.empty_like(K)
    for i in range(len(K)):
        for j in range(i, len(K)):
            c = K[i, j] / (sigma[i] * sigma[j]) if i != j else np.longdouble(1)
            second = function(sigma[j] * (c * x[:, None] + np.sqrt(1 - c * c) * x[None, :]))
            values[i, j] = values[j, i] = (weights * function(sigma[i] * x)) @ (second @ weights)
    return values


class Errors(NamedTuple):
    """Largest errors among the first inputs."""

    K: float
    Theta: float


class Accuracy(NamedTuple):
    """Errors of the two sides; of the reference, its change with the step."""

    ours: Errors
    peer: Errors
    reference: Errors

    @property
    def gain(self) -> float:
        """How many times more accurate finitewidth is, in K or in Theta, whichever gains less."""
        return min(peer / ours for peer, ours in zip(self.peer, self.ours, strict=True))


def accuracy(case: Case, ours: Side, peer: Side) -> Accuracy:
    say(f"accuracy of {case}")
    exact = reference(case.activation, case.depth, step=0.1)
    coarse = reference(case.activation, case.depth, step=0.125)
    few = case._replace(N=CORNER)  # a pair's average by the numerical layer needs no other input
    found = [side.ask("run", case=one, corner=CORNER) for side, one in ((ours, case), (peer, few))]
    seen = [Errors(*(relative(one[name], exact[name]) for name in exact)) for one in (*found, coarse)]
    return Accuracy(*seen)


# --- tables -----------------------------------------------------------------------------------------


Times = dict[Case, Timing]

_UNITS = "in units of the square root of the product of the two diagonal entries"
_NUMERICAL_NOTE = (
    f"`user` is z exp(-z^2/2). Errors are the largest of K and of Theta among the first {CORNER} of the N "
    f"inputs, {_UNITS}, against a reference that uses neither side: the trapezoidal rule in two variables, "
    "layer by layer, in numpy's extended precision (machine epsilon "
    f"{np.finfo(np.longdouble).eps:.0e}). The error of the reference is its change when the step goes from "
    "0.1 to 0.125. Of neural-tangents at depth 20 there is a single run."
)


def closed_forms(report: Report, plan: Plan, ours: Side, peer: Side) -> Times:
    """Times and agreement where both sides have closed forms."""
    times, rows, worst = {}, [], 0.0
    for case in plan.closed:
        seen = times[case] = timing(case, ours, peer)
        K, Theta = differences(case, ours, peer)
        worst = max(worst, K, Theta)
        rows.append((*case, *seen.cells(), f"{K:.0e}", f"{Theta:.0e}"))
        if case.N < 2000 or case.depth < 20:
            report.target(f"{case}: at least as fast", f"{seen.ratio:.2f}", seen.ratio >= 1)
        else:
            report.target(f"{case}: at least 1.5 times faster", f"{seen.ratio:.2f}", seen.ratio >= 1.5)
    report.target("closed forms: K and Theta of the two sides agree to 1e-6", f"{worst:.0e}", worst <= 1e-6)
    report.table(
        "Closed forms",
        "activation | N | depth | finitewidth | neural-tangents | ratio | difference of K | of Theta",
        rows,
        "Medians of interleaved runs, each with new inputs. Differences are the largest over all pairs, "
        f"{_UNITS}.",
    )
    return times


def numerical_layers(report: Report, plan: Plan, ours: Side, peer: Side) -> Times:
    """Times and errors where neural-tangents integrates numerically."""
    times, rows = {}, []
    for case in plan.numerical:
        seen, errors = timing(case, ours, peer), accuracy(case, ours, peer)
        times[case] = seen
        rows.append((*case, *seen.cells(), *(f"{one.K:.1e}, {one.Theta:.1e}" for one in errors)))
        if case.N >= 500:
            report.target(f"{case}: at least 100 times faster", f"{seen.ratio:.0f}", seen.ratio >= 100)
        gained = errors.gain
        report.target(f"{case}: at least 1e6 times more accurate", f"{gained:.0e}", gained >= 1e6)
    report.table(
        f"Numerical layers of degree {DEGREE}",
        "activation | N | depth | finitewidth | neural-tangents | ratio | errors of finitewidth | "
        "of neural-tangents | of the reference",
        rows,
        _NUMERICAL_NOTE,
    )
    return times


def alone(report: Report, plan: Plan, ours: Side) -> Times:
    """finitewidth where neural-tangents is not run."""
    times = {case: timing(case, ours, None) for case in plan.own}
    rows = [(*case, shown(seen.ours)) for case, seen in times.items()]
    report.table("finitewidth alone", "activation | N | depth | finitewidth", rows, "Medians.")
    return times


def growth(report: Report, times: Times) -> None:
    """Exponents of time ~ N^p."""
    rows = []
    for activation in (*CLOSED, *NUMERICAL):
        seen = {
            c.N: t.ours
            for c, t in times.items()
            if c.activation == activation and c.depth == 20 and c.N >= 500
        }
        if len(seen) >= 3:
            power = np.polyfit(np.log(list(seen)), np.log(list(seen.values())), 1)[0]
            rows.append((activation, ", ".join(str(N) for N in sorted(seen)), f"{power:.2f}"))
    if rows:
        report.table(
            "Growth with N",
            "activation | N | exponent",
            rows,
            "finitewidth at depth 20; the matrices have N^2 entries.",
        )


def limits(report: Report, plan: Plan, times: Times) -> None:
    """Time over that of the bare minimum of arithmetic."""
    rows = []
    for case in plan.largest:
        say(f"bare minimum of {case}")
        bare = bare_minimum(case.N, case.depth)
        ratio = times[case].ours / bare
        rows.append((*case, shown(times[case].ours), shown(bare), f"{ratio:.1f}"))
        if case.N >= 2000:
            report.target(f"{case}: within 5 times the bare minimum", f"{ratio:.1f}", ratio <= 5)
    report.table(
        "The physical limit",
        "activation | N | depth | finitewidth | bare minimum | ratio",
        rows,
        "The bare minimum is one square root, one arctangent (a division and 13 multiply-adds) and ten "
        "more multiply-adds for every pair and layer, compiled by the same JAX, on all cores, on tiles that "
        "stay in the cache. finitewidth's own loops do this arithmetic faster than XLA does, so that ratios "
        "below one are possible.",
    )


def memory(report: Report, plan: Plan) -> None:
    """Peak extra memory, each case in new processes."""
    rows = []
    for case in plan.largest:
        say(f"memory of {case}")
        with start_ours() as side:
            ours = extra_memory(case, side) / (8 * case.N**2)
        peer = math.nan
        if case.activation in CLOSED:
            with start_peer() as side:
                peer = extra_memory(case, side) / (8 * case.N**2)
        rows.append((*case, f"{ours:.1f}", "-" if math.isnan(peer) else f"{peer:.1f}"))
        if case.N >= 2000:
            report.target(f"{case}: peak extra memory at most 6 N^2 doubles", f"{ours:.1f}", ours <= 6)
    report.table(
        "Peak extra memory in units of N^2 doubles",
        "activation | N | depth | finitewidth | neural-tangents",
        rows,
        "Peak resident memory of one call, its two results included, minus the memory that was resident "
        "before it, in a new process that has already compiled (finitewidth: with 300 inputs).",
    )


def compilation(report: Report, plan: Plan) -> None:
    """Compile times, each case in a new process."""
    rows = []
    for case in plan.compiled:
        say(f"compilation of {case}")
        with start_ours() as side:
            ours = compile_seconds(case, side)
        peer = math.nan
        if case.activation in CLOSED:
            with start_peer() as side:
                peer = compile_seconds(case, side)
        rows.append((*case, shown(ours), shown(peer)))
        report.target(f"{case}: compilation under 3 s", shown(ours), ours < 3)
    report.table(
        "Compilation",
        "activation | N | depth | finitewidth | neural-tangents",
        rows,
        "First call in a new process, including the construction of the network, minus the median of later "
        "calls.",
    )


# --- the run ----------------------------------------------------------------------------------------


def opening(ours: Side, peer: Side, load: float) -> str:
    """What was run, when and where."""
    about = [
        ", ".join(f"{name} {version}" for name, version in side.ask("about").items()) for side in (ours, peer)
    ]
    return f"""# Infinite-width kernels against neural-tangents 0.6.5

Written by `python -m benchmarks.kernels.speed` on {stamp()}: {processor()}, {os.cpu_count()} cores,
load average {load:.1f} before the run.

- finitewidth: {about[0]}
- neural-tangents: {about[1]}; compiled as a whole by `jax.jit`

K and Theta at the output layer, float64, standard normal inputs of dimension {INPUT_DIMENSION},
C_W = lambda_W = {C_W}, C_b = lambda_b = {C_B:g}; depth counts layers with parameters.
A ratio is the time of neural-tangents over that of finitewidth.
"""


def measure(plan: Plan) -> str:
    """All tables as one text."""
    report, load = Report(), os.getloadavg()[0]
    with start_ours() as ours, start_peer() as peer:
        head = opening(ours, peer, load)
        times = closed_forms(report, plan, ours, peer)
        times |= numerical_layers(report, plan, ours, peer)
        times |= alone(report, plan, ours)
    growth(report, times)
    limits(report, plan, times)
    memory(report, plan)
    compilation(report, plan)
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
    text = measure(quick_plan() if options.quick else full_plan())
    print(text)
    if not options.quick:
        write(Path(__file__).parent / "results" / "speed.md", text)


if __name__ == "__main__":
    main()
