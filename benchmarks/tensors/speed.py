"""Time, memory and error of all statistics through order 1/n.

    python -m benchmarks.tensors.speed            # everything, about an hour; writes results/speed.md
    python -m benchmarks.tensors.speed --only bare    # one section; the others stay as they were written
    python -m benchmarks.tensors.speed --quick    # few inputs, a minute or two; prints only

Every measurement runs in a process of its own, so that its peak memory is its own; within it a first call
at four inputs pays for compilation and tables, and is reported apart. Rates of one large matrix product and
of tanh are measured in the same run, and the operations of a solve are counted to compare with them.
"""

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.provenance import keep, stamp

RESULTS = Path(__file__).parent / "results" / "speed.md"
DIMENSION, WIDTH, DEPTH = 16, 64, 5
NAMES = ("V", "D", "A", "F", "B", "P", "Q", "R", "S", "T", "U")

# inputs, tolerance, seconds and gigabytes asked for; the largest keeps its output layer only
CASES = ((4, 1e-8, 2.0, None), (16, 1e-8, 2.0, None), (32, 1e-6, 90.0, None), (64, 1e-4, 60.0, 8.0))
QUICK_CASES = ((4, 1e-8, 2.0, None), (8, 1e-8, None, None))


def network(depth: int = DEPTH, width: int = WIDTH, outputs: int = 1) -> fw.MLP:
    return fw.MLP((DIMENSION, *[width] * (depth - 1), outputs), "tanh", C_b=0.01, C_W=1.7)


def inputs(count: int) -> np.ndarray:
    """Standard normal inputs; the first of many are the same as few."""
    return np.random.default_rng(0).standard_normal((count, DIMENSION))


def seconds(call, clock=time.perf_counter) -> float:
    start = clock()
    call()
    return clock() - start


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


# --- measurements, each in its own process -------------------------------------------------------------


def measure_solve(count: int, tolerance: float, depth: int, output_only: bool, runs: int) -> dict:
    """First call at four inputs, best of the later ones, peak memory and error against a finer solve."""
    net, X = network(depth), inputs(count)
    layers = [depth] if output_only else None
    first = seconds(lambda: fw.solve(net, X[:4], method=fw.Tensors(tolerance=tolerance)))
    best, theory = math.inf, None
    for _ in range(runs):
        theory = None  # the memory of one result at a time
        start = time.perf_counter()
        theory = fw.solve(net, X, layers=layers, method=fw.Tensors(tolerance=tolerance))
        best = min(best, time.perf_counter() - start)
    peak = peak_gigabytes()
    return {"first": first, "best": best, "peak": peak, "error": _error(theory, net, X, tolerance)}


def _error(theory, net, X, tolerance: float) -> float:
    """Largest error of a tensor in units of its largest entry, on four of the inputs."""
    exact = fw.solve(
        net, X[:4], layers=[net.depth], method=fw.Tensors(tolerance=max(tolerance / 1000, 1e-11))
    ).output
    part = (slice(4),) * 4
    return max(
        float(np.abs(theory.output.arrays[n][part] - exact.arrays[n]).max() / np.abs(exact.arrays[n]).max())
        for n in NAMES
    )


def measure_one_input(depth: int, runs: int) -> dict:
    net, X = network(depth), inputs(1)
    first = seconds(lambda: fw.solve(net, X))
    return {"first": first, "best": min(seconds(lambda: fw.solve(net, X)) for _ in range(runs))}


def measure_streamed(count: int, tolerance: float) -> dict:
    """One leg of every source layer for every tensor, and the extrapolation to all legs."""
    from finitewidth.theory.unrolled.leg_by_leg import LegSlices, Request

    fw.unroll(network(), inputs(4)).contract("R", _vectors(4), tolerance=tolerance)
    unrolled, vectors = fw.unroll(network(), inputs(count)), _vectors(count)
    per_tensor = {}
    for name in NAMES:
        request = Request(name, 0, np.einsum("b,c,d->bcd", *vectors[1:])[None])
        slices = LegSlices(unrolled, lambda request=request: [request], tolerance)
        typical = round(count * 4 ** (-1 / 3))  # a slice takes the cube of its last sample
        legs = range(typical, slices.count, count)
        per_tensor[name] = count * sum(seconds(lambda slices=slices, leg=leg: slices(leg)) for leg in legs)
    return {"seconds": per_tensor, "peak": peak_gigabytes()}


def measure_streamed_in_full(count: int, tolerance: float) -> dict:
    """Every leg: time, and error against a solve."""
    unrolled, vectors = fw.unroll(network(), inputs(count)), _vectors(count)
    exact = fw.solve(
        network(), inputs(count), layers=[DEPTH], method=fw.Tensors(tolerance=tolerance / 100)
    ).output
    found, errors = {}, {}
    for name in NAMES:
        start = time.perf_counter()
        value = unrolled.contract(name, vectors, tolerance=tolerance)
        found[name] = time.perf_counter() - start
        errors[name] = value / np.einsum("abcd,a,b,c,d", exact.arrays[name], *vectors, optimize=True) - 1
    return {"seconds": found, "errors": errors}


def measure_sampled(count: int, samples: int) -> dict:
    unrolled, vectors = fw.unroll(network(), inputs(count)), _vectors(count)
    unrolled.sample_contraction("R", vectors, samples=64)
    found = {"seconds": {}, "errors": {}}
    for name in NAMES:
        start = time.perf_counter()
        estimate = unrolled.sample_contraction(name, vectors, samples=samples)
        found["seconds"][name] = time.perf_counter() - start
        found["errors"][name] = float(estimate.stderr / abs(estimate.value))
    return {**found, "peak": peak_gigabytes()}


def _vectors(count: int) -> list[np.ndarray]:
    normal = np.random.default_rng(1).standard_normal((4, count))
    return [(1 + row / 2) / count for row in normal]


def measure_networks(count: int, width: int, batches: int, size: int) -> dict:
    """Seconds that sampling needs until each tensor is known to 1 % of its largest entry."""
    net, X = network(width=width), inputs(count)
    theory = fw.solve(net, X, layers=[DEPTH]).output

    def sampled(batches):
        members = batches * size
        return fw.sample_statistics(
            net, X, members, key=1, tensors=NAMES, run=fw.Run(batch_size=size, progress=False)
        )

    sampled(2)  # compiles
    start = time.perf_counter()
    found = sampled(batches)
    elapsed = time.perf_counter() - start
    needed = {}
    for name in NAMES:
        relative = found.estimates[name].stderr.max() / np.abs(theory.arrays[name]).max()
        needed[name] = elapsed * float(relative / 0.01) ** 2
    return {"elapsed": elapsed, "networks": batches * size, "needed": needed}


def measure_rates() -> dict:
    """Operations per second of one large product, and points per second of tanh, on all cores.

    By the clock, and by the processor time of all cores, which depends less on what else runs.
    """
    import jax
    import jax.numpy as jnp

    a, z = np.ones((2048, 2048)), jnp.linspace(-5, 5, 1 << 18)
    tanh = jax.jit(jnp.tanh)
    a @ a, tanh(z).block_until_ready()
    rates = {}
    for name, clock in (("", time.perf_counter), ("processor_", time.process_time)):
        product = min(seconds(lambda: a @ a, clock) for _ in range(5))
        point = min(seconds(lambda: _repeat(tanh, z), clock) for _ in range(5)) / (20 * z.size)
        rates |= {f"{name}flops": 2 * 2048**3 / product, f"{name}tanh": 1 / point}
    return rates | {"small": _small_products()}


def _small_products() -> float:
    """Operations per second of products of the size that four-leg averages had, on all cores."""
    from finitewidth.core.cores import SingleThreadedProducts, available

    a, b, out = np.ones((32, 256)), np.ones((256, 7)), np.empty((32, 7))

    def many():
        for _ in range(1000):
            np.dot(a, b, out=out)

    with SingleThreadedProducts():
        return available() * 1000 * 2 * 32 * 256 * 7 / min(seconds(many, time.thread_time) for _ in range(5))


def _repeat(function, z) -> None:
    for _ in range(20):
        function(z).block_until_ready()


class Counters:
    """Counts operations of the sums with two samples fixed, and points where tanh is evaluated."""

    def __enter__(self):
        from benchmarks.tensors.four_legs import operations, operations_of_fronts
        from finitewidth.gaussian.four_legs.loops import sums as loops
        from finitewidth.gaussian.tower import Tower

        self.module, self.tower, self.lock = loops, Tower, threading.Lock()
        self.plain, self.count = (loops.sums, Tower.on_block), (operations, operations_of_fronts)
        self.operations, self.earlier, self.points = 0.0, 0.0, 0.0
        loops.sums = self._sums
        Tower.on_block = lambda tower, z: self._block(tower, z)
        return self

    def __exit__(self, *_):
        self.module.sums, self.tower.on_block = self.plain

    def _sums(self, hermite, grid, pair, entries, tables):
        now, earlier = (count(grid, entries, tables) for count in self.count)
        with self.lock:
            self.operations += now
            self.earlier += earlier
        return self.plain[0](hermite, grid, pair, entries, tables)

    def _block(self, tower, z):
        with self.lock:
            self.points += z.size
        return self.plain[1](tower, z)


# points of tanh when each leg was smoothed on its own (commit 22621be); now legs share tables
EARLIER_POINTS = {4: 2.46e5, 8: math.nan, 16: 1.37e7, 32: 6.65e7, 64: 2.90e8}


def measure_bare(count: int, tolerance: float, runs: int) -> dict:
    """Sums and activations of a solve, what they would take at the rates of large ones, and what it takes."""
    net, X = network(), inputs(count)
    fw.solve(net, X[:4], method=fw.Tensors(tolerance=tolerance))

    def solve():
        fw.solve(net, X, layers=[DEPTH], method=fw.Tensors(tolerance=tolerance))

    times = []
    for _ in range(runs):
        worked = time.process_time()
        times.append((seconds(solve), time.process_time() - worked))
    with Counters() as counters:
        solve()
    rates, earlier = measure_rates(), EARLIER_POINTS[count]
    counts = {"now": (counters.operations, counters.points), "earlier": (counters.earlier, earlier)}
    bare = {
        f"{when}{name}": operations / rates[f"{name}flops"] + points / rates[f"{name}tanh"]
        for when, (operations, points) in counts.items()
        for name in ("", "processor_")
    }
    bare["small"] = counters.earlier / rates["small"] + earlier / rates["tanh"]
    counted = {"operations": counters.operations, "points": counters.points}
    best, worked = min(times)
    return {**counted, **bare, "first": times[0][0], "seconds": best, "processor": worked}


MEASURES = {
    name.removeprefix("measure_"): f for name, f in list(globals().items()) if name.startswith("measure_")
}


def measured(name: str, **arguments) -> dict:
    """The result of a measurement in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.tensors.speed", "--measure", name, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} {arguments} failed:\n{done.stderr[-3000:]}")
    print(f"{name} {arguments}: {done.stdout.strip()[:300]}", flush=True)
    return json.loads(done.stdout)


# --- the report ----------------------------------------------------------------------------------------


def solve_section(quick: bool) -> list[str]:
    lines = [
        "## All fifteen objects, tanh, depth 5",
        "",
        "First call: four inputs, with compilation and tables. Error: largest of all tensors in the output "
        "layer, in units of the tensor's largest entry, against 1/1000 of the tolerance (1e-11 at least).",
        "",
        "| inputs | tolerance | first call (s) | time (s) | target (s) | peak (GB) | error | met |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for count, tolerance, target, memory in QUICK_CASES if quick else CASES:
        last = count >= 64
        found = measured(
            "solve",
            count=count,
            tolerance=tolerance,
            depth=DEPTH,
            output_only=last,
            runs=1 if count > 16 else 3,
        )
        met = _met(found["best"], target) if memory is None or found["peak"] < memory else "no (memory)"
        note = " (output layer only)" if last else ""
        lines.append(
            f"| {count}{note} | {tolerance:.0e} | {found['first']:.2f} | {found['best']:.2f} "
            f"| {target or '-'} | {found['peak']:.2f} | {found['error']:.1e} | {met} |"
        )
    depth = 1000 if quick else 10_000
    one = measured("one_input", depth=depth, runs=3)
    lines.append(
        f"| 1 (depth {depth}) | 1e-12 | {one['first']:.2f} | {one['best']:.2f} | 1 | - | - "
        f"| {_met(one['best'], 1.0)} |"
    )
    return lines


def _met(value: float, target: float | None) -> str:
    return "-" if target is None else "yes" if value < target else "no"


def growth_section(quick: bool) -> list[str]:
    counts, depths = ((4, 8), (2, 5)) if quick else ((4, 8, 16, 32), (2, 5, 10, 20))
    by_count = [_time(count=count, depth=DEPTH) for count in counts]
    by_depth = [_time(count=8, depth=depth) for depth in depths]
    return [
        "## Growth of the cost (tolerance 1e-6)",
        "",
        f"- inputs {counts}: {_listed(by_count)} s, exponent {_exponent(counts, by_count):.2f} over all, "
        f"{_exponent(counts[-2:], by_count[-2:]):.2f} over the last two (depth {DEPTH});",
        f"- depth {depths}: {_listed(by_depth)} s, exponent {_exponent(depths, by_depth):.2f} (8 inputs); "
        "a step from layer to layer is made depth - 1 times.",
    ]


def _time(count: int, depth: int) -> float:
    runs = 1 if count > 16 else 3
    return measured("solve", count=count, tolerance=1e-6, depth=depth, output_only=True, runs=runs)["best"]


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _exponent(x, y) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def bare_section(quick: bool) -> list[str]:
    rates = measured("rates")
    lines = [
        "## Distance from the bare cost",
        "",
        f"One large float64 product: {rates['flops'] / 1e9:.0f} GFLOP/s; products of (32, 256) and (256, 7): "
        f"{rates['small'] / 1e9:.0f} GFLOP/s; tanh: {rates['tanh'] / 1e9:.2f}e9 per second, on both cores. "
        "Bare: the sums with two samples fixed and one tanh per evaluated point, at the rates of the same "
        "process: of the algorithm as it is, and of the one before (every leg smoothed on its own, every "
        "Hermite term summed with derivatives of the fixed samples by a product of matrices), which the "
        "target is about. Small: the one before with products at the rate of small ones. First: the first "
        "run at this number of inputs.",
        "",
        "| inputs | tolerance | sums (FLOP) | points | first (s) | time (s) | bare before (s) "
        "| ratio (target 10) | bare now (s) | ratio | bare small (s) | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows, processor = [], []
    for count, tolerance in ((4, 1e-8),) if quick else ((4, 1e-8), (16, 1e-8), (32, 1e-6), (64, 1e-4)):
        f = measured("bare", count=count, tolerance=tolerance, runs=2 if count == 64 else 3)
        ratios = (f"{f[name]:.3f} | {f['seconds'] / f[name]:.1f}" for name in ("earlier", "now", "small"))
        rows.append(
            f"| {count} | {tolerance:.0e} | {f['operations']:.2e} | {f['points']:.2e} | {f['first']:.2f} "
            f"| {f['seconds']:.2f} | {' | '.join(ratios)} |"
        )
        ratios = (
            f"{f[name]:.3f} | {f['processor'] / f[name]:.1f}"
            for name in ("earlierprocessor_", "nowprocessor_")
        )
        processor.append(f"| {count} | {f['processor']:.2f} | {' | '.join(ratios)} |")
    return [
        *lines,
        *rows,
        "",
        "The same by processor time of both cores:",
        "",
        "| inputs | time (s) | bare before (s) | ratio | bare now (s) | ratio |",
        "|---|---|---|---|---|---|",
        *processor,
    ]


def contraction_section(quick: bool) -> list[str]:
    count, tolerance, samples, few = (12, 1e-4, 500, 4) if quick else (100, 1e-4, 4000, 8)
    streamed = measured("streamed", count=count, tolerance=tolerance)
    whole = measured("streamed_in_full", count=few, tolerance=tolerance)
    sampled = measured("sampled", count=count, samples=samples)
    total, sampled_total = (sum(found["seconds"].values()) for found in (streamed, sampled))
    rows = [
        f"| {name} | {streamed['seconds'][name]:.0f} | {whole['errors'][name]:+.1e} "
        f"| {sampled['seconds'][name]:.2f} | {sampled['errors'][name]:.1%} |"
        for name in NAMES
    ]
    return [
        f"## Contraction with four vectors at N = {count}, nothing of size N^4 stored",
        "",
        f"Streamed at tolerance {tolerance:.0e}: extrapolated from one fixed leg of each source layer to all "
        f"{count} legs, each tensor on its own; its error is measured in full at N = {few} against a solve "
        f"with 1/100 of the tolerance. Sampled: {samples} samples of each source layer, relative standard "
        "error.",
        "",
        "| tensor | streamed (s, extrapolated) | streamed error | sampled (s) | sampled error |",
        "|---|---|---|---|---|",
        *rows,
        f"| all | {total:.0f} | | {sampled_total:.1f} | |",
        "",
        f"Peak memory: streamed {streamed['peak']:.2f} GB, sampled {sampled['peak']:.2f} GB; one tensor of "
        f"N^4 numbers would take {8 * count**4 / 1e9:.2g} GB.",
    ]


def networks_section(quick: bool) -> list[str]:
    runs, batches = (1, 10) if quick else (5, 100)
    theory = measured("solve", count=4, tolerance=1e-8, depth=DEPTH, output_only=True, runs=runs)["best"]
    lines = [
        "## Against sampling networks, N = 4, to 1 % of each tensor's largest entry",
        "",
        "Cost of sampling: time of the sample times the square of its standard error over 1 %; the tensor "
        "that needs most. Networks of finite width also carry higher orders in 1/n, which more samples do "
        "not remove.",
        "",
        "| width | networks sampled | time (s) | seconds needed | slowest tensor | theory (s) "
        "| ratio (target 100) |",
        "|---|---|---|---|---|---|---|",
    ]
    for width in (16,) if quick else (16, WIDTH):
        found = measured("networks", count=4, width=width, batches=batches, size=20)
        slowest = max(found["needed"], key=found["needed"].get)
        needed = found["needed"][slowest]
        lines.append(
            f"| {width} | {found['networks']} | {found['elapsed']:.1f} | {needed:.3g} | {slowest} "
            f"| {theory:.3f} | {needed / theory:.3g} |"
        )
    return lines


def heading() -> list[str]:
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "scipy", "jax")}
    model = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return [
        "# Statistics through order 1/n: time, memory, error",
        "",
        f"{datetime.date.today()}, {model}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f", finitewidth {fw.__version__}. Written by `python -m benchmarks.tensors.speed`; "
        f"network {network()!r}.",
    ]


SECTIONS = {
    "solve": solve_section,
    "growth": growth_section,
    "bare": bare_section,
    "contraction": contraction_section,
    "networks": networks_section,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few inputs; print and write nothing")
    parser.add_argument("--only", choices=SECTIONS, help="one section; the others stay as they were written")
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "JSON"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, arguments = options.measure
        print(json.dumps(MEASURES[name](**json.loads(arguments))))
        return
    if not options.quick and options.only is None:
        RESULTS.write_text("\n".join(heading()) + "\n")
    for name, section in SECTIONS.items():
        if options.only in (None, name):
            title, _, *lines = section(options.quick)
            text = "\n".join([stamp(), "", *lines])
            print(f"{title}\n\n{text}\n", flush=True)
            if not options.quick:
                keep(RESULTS, title.removeprefix("## "), text)


if __name__ == "__main__":
    main()
