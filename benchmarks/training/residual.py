"""Residual networks at order 1/n: trained ensembles against the theory, and what the theory costs.

    python -m benchmarks.training.residual                 everything, about ten minutes of two cores
    python -m benchmarks.training.residual --only trained  one section; the others stay as they were written
    python -m benchmarks.training.residual --quick         small sizes, a check of this script; prints only

Sections: trained, falls, gammas, speed, means, growth. Tables go to results/residual.md. Times are
those of a clock and, in brackets, of the processor over all cores, which depends less on what else runs.
"""

import argparse
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import finitewidth as fw
from benchmarks.harness import processor, say
from benchmarks.provenance import stamp
from benchmarks.training.trained_networks import Case, Outcome, largest, pull_rows, run, scaling
from finitewidth.experiment.scaling import fall_with_width
from finitewidth.training.first_order import prepared

RESULTS = Path(__file__).parent / "results" / "residual.md"
DESCENT = fw.GradientDescent(0.2, 16)


class Seconds(NamedTuple):
    """Of a clock, and of the processor over all cores."""

    clock: float
    cores: float

    def __str__(self) -> str:
        return f"{self.clock:.3g} s ({self.cores:.3g} s)"


def timed(work: Callable[[], object]) -> Seconds:
    clock, cores = time.perf_counter(), time.process_time()
    work()
    return Seconds(time.perf_counter() - clock, time.process_time() - cores)


def table(header: str, rows: Iterable[tuple]) -> str:
    names = header.split(" | ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


# --- trained ensembles --------------------------------------------------------------------------------


def ensembles(cases: list[Case]) -> list[Outcome]:
    outcomes = []
    for case in cases:
        outcomes.append(run(case))
        say(f"{case.activation}, gamma {case.gamma}, width {case.width}: {outcomes[-1].seconds:.0f} s")
    return outcomes


def with_gammas(outcomes: list[Outcome]) -> str:
    """The table of pulls with a column for gamma."""
    head, line, *rows = pull_rows(outcomes)
    head = head.replace("| activation |", "| activation | gamma |")
    pairs = zip(outcomes, rows, strict=True)
    rows = [re.sub(r"^\| (\w+) \|", rf"| \1 | {o.case.gamma} |", row) for o, row in pairs]
    return "\n".join([head, f"| --- {line}", *rows])


def trained(quick: bool) -> str:
    """How the difference from the theory falls with the width."""
    share = 20 if quick else 1
    members = {32: 40_000, 64: 16_000, 128: 6_000}
    seen = ensembles(
        [Case("gelu", 3, n, 1, DESCENT, count // share, gamma=0.8) for n, count in members.items()]
    )
    return "\n\n".join(
        [
            "A dense layer, two residual layers and a dense output; three training and two test points, 16 "
            "steps of descent. Ensembles use the infinite-width prediction as a control variate.",
            with_gammas(seen),
            "Difference of the mean from the theory, at the output that is corrected most:",
            "\n".join(scaling(seen)),
            resolution(seen),
            missed_by_pairs(seen[0]),
        ]
    )


FALLS = """n times the difference between trained networks and order 1/n, for every mean and covariance of
the two test points. If the theory is right it vanishes at 1/n = 0: **left** is the constant of a fit with
terms 1/n and 1/n² to it, which must be within 4 standard errors of zero (fixed beforehand). **theory** is the
theory's own coefficient of 1/n. Trained as above, {members} networks of widths {widths}."""


def falls(quick: bool) -> str:
    """What order 1/n leaves over, extrapolated to infinite width."""
    members = dict.fromkeys((16, 24, 32), 120_000) | {64: 80_000}
    members = {n: count // (200 if quick else 1) for n, count in members.items()}
    rows = []
    for activation, gamma in (("gelu", 0.8), ("tanh", 0.8), ("tanh", 1.0)):
        cases = [Case(activation, 3, n, 1, DESCENT, count, gamma=gamma) for n, count in members.items()]
        rows += [(activation, gamma, *row) for row in left_over(ensembles(cases))]
    header = ["activation", "gamma", "entry", "theory", *(f"n = {n}" for n in members), "left", "pull"]
    intro = FALLS.format(
        members=", ".join(map(str, members.values())), widths=", ".join(str(n) for n in members)
    )
    return "\n\n".join([intro, table(" | ".join(header), rows)])


def left_over(outcomes: list[Outcome]) -> Iterable[tuple]:
    """A row for each mean and covariance of the first output."""
    widths = [o.case.width for o in outcomes]
    for name, where in (("mean", (0, 0)), ("mean", (1, 0))):
        yield _left_over(
            f"{name}, point {where[0] + 1}", widths, [_difference(o, name, where) for o in outcomes]
        )
    for one, other in ((0, 0), (1, 1), (0, 1)):
        where = (one, 0, other, 0)
        rows = [_difference(o, "covariance", where) for o in outcomes]
        yield _left_over(f"covariance, points {one + 1} and {other + 1}", widths, rows)


class Difference(NamedTuple):
    """n times the theory's correction, and n times what is left over, with its standard error."""

    theory: float
    left: float
    stderr: float


def _difference(outcome: Outcome, name: str, where: tuple[int, ...]) -> Difference:
    theory, n = outcome.prediction, outcome.case.width
    seen = getattr(outcome.ensemble.controlled, name)
    first, leading = (getattr(p, name)[where] for p in (theory, theory.infinite_width))
    return Difference(
        float(n * (first - leading)), float(n * (seen.value[where] - first)), float(n * seen.stderr[where])
    )


def _left_over(name: str, widths: list[int], rows: list[Difference]) -> tuple:
    left = [fw.Estimate(np.asarray(r.left), np.asarray(r.stderr)) for r in rows]
    fall = fall_with_width(widths, left, (0, 1, 2))
    constant, error = float(fall.coefficients[0]), float(fall.errors[0, 0]) ** 0.5
    cells = [f"{r.left:+.3f} ± {r.stderr:.3f}" for r in rows]
    return (
        name,
        f"{rows[-1].theory:+.3f}",
        *cells,
        f"{constant:+.3f} ± {error:.3f}",
        f"{constant / error:+.1f}",
    )


def gammas(quick: bool) -> str:
    """Pulls at both orders."""
    cases = [("gelu", 0.5), ("gelu", 1.0), ("tanh", 0.5), ("tanh", 0.8), ("tanh", 1.0)]
    members = 300 if quick else 8000
    return with_gammas(ensembles([Case(a, 3, 32, 1, DESCENT, members, gamma=g) for a, g in cases]))


def resolution(outcomes: list[Outcome]) -> str:
    """Whether the ensembles can see what order 1/n leaves out."""
    pulls = [largest(fw.compare(o.prediction, o.ensemble).pulls) for o in outcomes]
    if min(pulls) > 2:
        return "Differences from order 1/n are resolved at every width."
    return (
        "Differences from order 1/n are not resolved at every width (largest pulls "
        f"{', '.join(f'{pull:.1f}' for pull in pulls)}), so that these ensembles do not determine their "
        "power of the width: they agree with 1/n^2 and do not show it."
    )


def missed_by_pairs(outcome: Outcome) -> str:
    """The same ensemble against a theory that leaves out the memory of neurons."""
    case = outcome.case
    pairs = _without_memory(lambda: fw.predict(case.net, *case.data, algorithm=case.algorithm))
    full, without = (fw.compare(p, outcome.ensemble) for p in (outcome.prediction, pairs))
    return (
        f"At width {case.width} a theory without the memory of neurons (`remember=False`) has largest pulls "
        f"of {largest(without.pulls):.1f} (mean) and {largest(without.covariance_pulls):.1f} (covariance) "
        f"instead of {largest(full.pulls):.1f} and {largest(full.covariance_pulls):.1f}."
    )


def _without_memory(work: Callable):
    """Statistics of training with pairs alone, which the library does not offer."""
    real = prepared.solve_with
    prepared.solve_with = lambda *args, **options: real(*args, **options, remember=False)
    try:
        return work()
    finally:
        prepared.solve_with = real


# --- time ---------------------------------------------------------------------------------------------


def stream(layers: int, activation: str = "gelu", gamma: float = 0.7, C_W: float = 0.9, skips: bool = True):
    """A dense layer, residual layers and a dense output; or the same layers without skips."""
    first, body, last = (fw.Dense(n, 0.1, C, 0.5, 0.7) for n, C in ((256, 0.9), (256, C_W), (1, 0.9)))
    middle = [fw.Residual(activation, body, gamma=gamma) if skips else (activation, body)] * layers
    flat = (one for part in middle for one in (part if isinstance(part, tuple) else (part,)))
    return fw.Network(6, first, *flat, activation, last)


def samples(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 6))


def solving(net: fw.Network, count: int, **options) -> Callable[[], object]:
    return lambda: fw.solve(net, samples(count), layers=(net.depth,), **options)


def speed(quick: bool) -> str:
    count = 4 if quick else 16
    solving(stream(4), 3)(), solving(stream(4, skips=False), 3)()  # compilation
    alone = timed(solving(stream(1000, gamma=0.9, C_W=0.3), 1))
    say(f"one input, 1000 layers: {alone}")
    dense, residual = (
        timed(solving(stream(4, skips=skips), count, method=fw.Tensors(tolerance=1e-6)))
        for skips in (False, True)
    )
    allowed = 4 * dense.cores * 15 / 5
    what = f"{count} inputs, gelu, 4 residual layers, 1e-6"
    target = f"4 times dense ({dense}) times 15 pairs over 5 layers: ({allowed:.3g} s)"
    rows = [
        (what, residual, target, verdict(residual, 12 * dense.clock, allowed)),
        ("one input, 1000 residual layers", alone, "5 s", verdict(alone, 5, 5)),
    ]
    return f"{load()}\n\n{table('what | seen | target | verdict', rows)}"


def means(quick: bool) -> str:
    """The trained mean of twenty points, without the covariance."""
    count = 5 if quick else 20
    solving(stream(4), 3)()  # compilation
    inputs = samples(count + 5)
    data = inputs[:count], np.sin(inputs[:count, :1]), inputs[count:]
    mean = timed(lambda: fw.predict(stream(4), *data, covariance=False, run=fw.Run(progress=False)))
    what, target = (
        f"{count} training points, 4 residual layers, gelu",
        "60 s of a clock; two cores have (120 s)",
    )
    row = (what, mean, target, verdict(mean, 60, 120))
    return f"{load()}\n\n{table('what | seen | target | verdict', [row])}"


def load() -> str:
    """How many others wanted the cores."""
    return f"Load of the machine {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores."


def verdict(seen: Seconds, allowed: float, cores: float) -> str:
    """By the clock, and by the processor: what an idle machine would take is not measured on a busy one."""
    words = ("met" if met else "MISSED" for met in (seen.clock <= allowed, seen.cores <= cores))
    return "clock {}, processor {}".format(*words)


# --- growth -------------------------------------------------------------------------------------------


def power(sizes: list[int], times: list[Seconds]) -> float:
    return float(np.polyfit(np.log(sizes), np.log([t.cores for t in times]), 1)[0])


def growth(quick: bool) -> str:
    """The exact form against the local one, over inputs and over depth."""
    depths = (2, 4) if quick else (2, 4, 8)
    counts = (2, 3) if quick else (3, 6, 9)
    kinds = {"exact": True, "8 lines": 8}
    parts = []
    for title, sizes, of in (
        ("4 inputs, residual layers", depths, lambda size: (stream(size), 4)),
        ("4 residual layers, inputs", counts, lambda size: (stream(4), size)),
    ):
        rows = []
        for kind, memory in kinds.items():
            solving(stream(2), 3, method=fw.Tensors(remember=memory))()  # compilation
            times = []
            for size in sizes:
                net, count = of(size)
                times.append(timed(solving(net, count, method=fw.Tensors(tolerance=1e-6, remember=memory))))
                say(f"{title} {size}, {kind}: {times[-1]}")
            rows.append((kind, *times, f"{power(list(sizes), times):.2f}"))
        parts.append(table(f"{title} | {' | '.join(map(str, sizes))} | power", rows))
    return "\n\n".join([*parts, errors(quick), deep(quick)])


def errors(quick: bool) -> str:
    """Truncation against the exact form."""
    net, count = stream(2 if quick else 4), 3
    exact, rows = solving(net, count)(), []
    for lines in (2, 4, 6, 8, 10):
        found = solving(net, count, method=fw.Tensors(remember=lines))()
        apart = {
            name: largest(getattr(found.output, name) - getattr(exact.output, name))
            / largest(getattr(exact.output, name))
            for name in ("V", "D", "A", "F", "B", "U", "G1", "H1")
        }
        rows.append((lines, f"{found.memory_error:.1e}", *(f"{value:.1e}" for value in apart.values())))
    return f"Error of a number of lines, relative to the largest entry, {count} inputs:\n\n" + table(
        "lines | reported | V | D | A | F | B | U | G1 | H1", rows
    )


def deep(quick: bool) -> str:
    rows = []
    for activation in ("gelu", "tanh"):
        net = stream(8 if quick else 48, activation, gamma=0.9, C_W=0.3)
        work = solving(net, 4, method=fw.Tensors(remember=8))
        seconds, theory = timed(work), work()
        rows.append((activation, net.depth, 4, seconds, f"{theory.memory_error:.1e}"))
    return "Deep streams, 8 lines:\n\n" + table("activation | layers | inputs | time | reported error", rows)


SECTIONS = {
    "trained": ("Trained ensembles over widths", trained),
    "falls": ("What order 1/n leaves over", falls),
    "gammas": ("Trained ensembles over skips", gammas),
    "speed": ("Speed", speed),
    "means": ("Trained mean", means),
    "growth": ("Exact and local form", growth),
}


def written() -> dict[str, str]:
    """The sections of earlier runs by title."""
    if not RESULTS.exists():
        return {}
    parts = RESULTS.read_text().split("\n## ")[1:]
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1].strip() for part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=SECTIONS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
    for name, (title, make) in SECTIONS.items():
        if options.only in (None, name):
            text = f"{stamp()}, {processor()}\n\n{make(options.quick)}"
            print(f"## {title}\n\n{text}\n", flush=True)
            if not options.quick:
                keep(title, text)


def keep(title: str, text: str) -> None:
    """Write one section beside those that are there."""
    sections = {**written(), title: text}
    body = [f"## {name}\n\n{sections[name]}" for name, _ in SECTIONS.values() if name in sections]
    opening = "# Residual networks at order 1/n\n\nWritten by `python -m benchmarks.training.residual`."
    RESULTS.write_text("\n\n".join([opening, *body]) + "\n")


if __name__ == "__main__":
    main()
