"""Time to classify every named activation, and to draw a phase diagram of 200 x 200 points.

    python -m benchmarks.kernels.criticality

Each classification is the first of its activation in the process: it compiles the derivatives and computes
the table of averages. One activation is classified before the clock starts, so that loading the library and
starting the compiler, which happen once, are not counted. Writes benchmarks/kernels/results/criticality.md.
"""

import os
import platform
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import finitewidth as fw

RESULTS = Path(__file__).parent / "results" / "criticality.md"
LIMITS = {"classification": 1.0, "phase diagram": 5.0}  # seconds
USERS = {
    "z exp(-z^2)": lambda z: z * jnp.exp(-z * z),
    "tanh z + 0.3 z^2": lambda z: jnp.tanh(z) + 0.3 * z * z,
    "sinh z": lambda z: jnp.sinh(z),
    "z + sin(z)/10": lambda z: z + 0.1 * jnp.sin(z),
}
SKIPPED = ("scale_invariant", "polynomial", "silu")  # need parameters, or are another's name


def timed(call):
    """The result, the elapsed seconds and the processor's seconds."""
    start, processor = time.perf_counter(), time.process_time()
    result = call()
    return result, (time.perf_counter() - start, time.process_time() - processor)


def classifications() -> list[str]:
    fw.criticality("polynomial(0, 1, 0.1, -0.5)")
    rows = []
    for name in (name for name in fw.activations() if name not in SKIPPED):
        point, seconds = timed(lambda name=name: fw.criticality(name))
        rows.append(row(name, point.universality_class, seconds, LIMITS["classification"]))
    for name, function in USERS.items():
        point, seconds = timed(lambda function=function: fw.criticality(function))
        rows.append(row(f"user's {name}", point.universality_class, seconds, LIMITS["classification"]))
    return rows


def diagrams() -> list[str]:
    C_b, C_W = np.linspace(0.0, 0.5, 200), np.linspace(0.1, 3.0, 200)
    rows = []
    for name in ("tanh", "relu", "gelu", "swish(1.1)", "sin"):
        _, seconds = timed(lambda name=name: fw.critical.phase_diagram(name, C_b, C_W))
        rows.append(row(name, "200 x 200", seconds, LIMITS["phase diagram"]))
    return rows


def row(name: str, what: str, seconds: tuple[float, float], limit: float) -> str:
    clock, processor = seconds
    print(f"{name:24s} {what:16s} {clock:6.2f} s, processor {processor:.2f} s")
    return f"| {name} | {what} | {clock:.2f} | {processor:.2f} | {clock / limit:.2f} |"


def main() -> None:
    head = "|---|---|---|---|---|"
    lines = [
        "# Criticality: time",
        "",
        f"Written by `benchmarks/kernels/criticality.py` on {os.cpu_count()} cores ({platform.machine()}), "
        "one process. Times are those of the first call for an activation, which compiles derivatives and "
        "computes averages",
        "over twenty decades of K. A user's function is also checked and searched for kinks. The last column "
        "is the time",
        "divided by our limit: one second for a classification, five for a diagram. If other work ran at the "
        "same time,",
        "the processor's seconds are more reliable than the elapsed ones.",
        "",
        "| activation | class | seconds | processor | of the limit |",
        head,
        *classifications(),
        "",
        "| activation | grid | seconds | processor | of the limit |",
        head,
        *diagrams(),
        "",
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
