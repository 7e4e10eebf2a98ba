"""Order-1/n predictions: time, memory, growth with the number of training points, and their own error.

    python -m benchmarks.training.finite_width          everything, half an hour; leave the machine alone
    python -m benchmarks.training.finite_width --quick  10 and 20 training points, a check of this script

Each size runs in a process of its own. Tables are printed and, by a full run, written to
results/finite_width.md. Trained networks are compared in trained_networks.py.
"""

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.provenance import keep, stamp

RESULTS = Path(__file__).parent / "results" / "finite_width.md"
AT_EQUAL_ACCURACY = "Against an ensemble of equal accuracy"
INPUT_DIMENSION, WIDTH, TESTS = 20, 128, 5
GROWTH = (10, 20, 40, 80)
LIMITS = {20: 15.0, 50: 180.0, 100: 900.0}  # seconds
MEMORY_LIMIT = 8.0  # GB, at 100 training points
ERROR_LIMIT = 0.05  # of the correction, for condition numbers up to 1e3
AGAINST = 1e-4  # tolerance in the comparison with ensembles
TRAINED = 1e-5  # loss at which real networks end their training; it is about ten at the start
CHEAPER = 100  # times less processor time than an ensemble of equal accuracy
SINGLE = 40  # networks that the plain loop in single precision trains at once


def problem(count: int, width: int = WIDTH):
    """A network, training data and test inputs."""
    import finitewidth as fw

    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((count + TESTS, INPUT_DIMENSION)), rng.standard_normal((count, 1))
    net = fw.MLP((INPUT_DIMENSION, width, width, 1), "tanh", C_b=0.1)
    return net, X[:count], Y, X[count:]


def one(count: int, tolerance: float) -> dict:
    """The mean for `count` training points in this process."""
    import finitewidth as fw

    net, X, Y, X_test = problem(count)
    fw.predict(net, X[:3], Y[:3], X_test[:2], method=fw.Tensors(tolerance))  # compile
    start = time.perf_counter()
    found = fw.predict(net, X, Y, X_test, method=fw.LegByLeg(tolerance))
    return dict(
        count=count,
        tolerance=tolerance,
        seconds=time.perf_counter() - start,
        gigabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        condition=found.condition,
        correction=(found.mean - found.infinite_width.mean).ravel().tolist(),
    )


def rms(values) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def cost(count: int, members: int, steps: float, width: int) -> dict:
    """Processor time of the theory, and of ensembles that are as accurate as the theory says it is."""
    import finitewidth as fw

    net, X, Y, X_test = problem(count, width)
    # a large learning rate is the cheapest way to train real networks
    algorithm = fw.GradientDescent(0.5 * fw.textbook.spectrum(net, X).largest_learning_rate, steps)
    method = fw.LegByLeg(AGAINST) if math.isinf(steps) else fw.Tensors(AGAINST)
    options: dict = dict(algorithm=algorithm, method=method)
    fw.predict(net, X[:3], Y[:3], X_test[:2], **options)  # compile
    start = time.process_time()
    found = fw.predict(net, X, Y, X_test, **options)
    theory = time.process_time() - start
    control = fw.control_variate(net, X, Y, X_test, algorithm)
    run = fw.Run(batch_size=members // 4, progress=False)
    options = dict(algorithm=algorithm, control=control, run=run)
    if math.isinf(steps):
        options["method"] = fw.Stepping(training_error=TRAINED)
    fw.train_ensemble(net, X, Y, X_test, members=members // 4, key=1, **options)  # compile
    start = time.process_time()
    ensemble = fw.train_ensemble(net, X, Y, X_test, members=members, key=0, **options)
    training = time.process_time() - start
    shift = found.mean - found.infinite_width.mean
    measured = ensemble.controlled.mean.value - found.infinite_width.mean
    error = ensemble.controlled.mean.stderr
    stated, needed = rms(found.uncertainty), members * (rms(error) / rms(found.uncertainty)) ** 2
    saved = float(ensemble.controlled.variance_ratio.min())
    each = single_precision(net, X, Y, algorithm.learning_rate, steps)
    return dict(
        count=count,
        members=members,
        steps=steps,
        width=width,
        theory=theory,
        saved=saved,
        shift=rms(shift),
        stated=stated,
        verdict=found.verdict,
        share=float(np.sum(measured * shift) / np.sum(shift**2)),
        share_error=float(np.sqrt(np.sum((error * shift) ** 2)) / np.sum(shift**2)),
        needed=needed,
        seconds=training / members * needed,
        ratio=training / members * needed / theory,
        single=each * needed,
        single_ratio=each * needed / theory,
    )


def single_precision(net, X: np.ndarray, Y: np.ndarray, rate: float, steps: float) -> float:
    """Processor seconds for one network in a plain loop with numbers of 32 bits, as fast as JAX makes it."""
    import jax
    import jax.numpy as jnp

    inputs, targets = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)
    shapes, rates, scales = [], [], []
    for layer, (fan_in, fan_out) in enumerate(zip(net.widths[:-1], net.widths[1:], strict=True)):
        shapes += [(fan_in, fan_out), (fan_out,)]
        rates += [rate * net.lambda_W[layer] / fan_in, rate * net.lambda_b[layer]]
        scales += [(net.C_W[layer] / fan_in) ** 0.5, net.C_b[layer] ** 0.5]

    def loss(parameters):
        z = inputs
        for layer in range(0, len(parameters), 2):
            z = (jnp.tanh(z) if layer else z) @ parameters[layer] + parameters[layer + 1]
        return jnp.sum((z - targets) ** 2) / 2

    def train(key):
        drawn = jax.random.split(key, len(shapes))
        start = [
            scale * jax.random.normal(k, shape, jnp.float32)
            for k, shape, scale in zip(drawn, shapes, scales, strict=True)
        ]

        def step(state):
            parameters, count, _ = state
            value, slopes = jax.value_and_grad(loss)(parameters)
            moved = [w - jnp.float32(r) * g for w, r, g in zip(parameters, rates, slopes, strict=True)]
            return moved, count + 1, value

        def unfinished(state):
            return (state[2] > TRAINED) if math.isinf(steps) else (state[1] < steps)

        return jax.lax.while_loop(unfinished, step, (start, 0, jnp.float32(jnp.inf)))[2]

    trained = jax.jit(jax.vmap(train))
    jax.block_until_ready(trained(jax.random.split(jax.random.key(1), SINGLE)))  # compile
    start = time.process_time()
    jax.block_until_ready(trained(jax.random.split(jax.random.key(0), SINGLE)))
    return (time.process_time() - start) / SINGLE


def in_own_process(*arguments) -> dict:
    command = [sys.executable, "-m", "benchmarks.training.finite_width", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr)
    found = json.loads(result.stdout.splitlines()[-1])
    print(found, flush=True)
    return found


def relative_error(row: dict) -> float:
    """The largest change of the correction with another tolerance, relative to the largest correction."""
    other = 1e-6 if row["count"] < 100 else 1e-4
    a = np.array(row["correction"])
    b = np.array(in_own_process("--one", row["count"], other)["correction"])
    return float(np.abs(a - b).max() / np.abs(a).max())


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def targets(rows: list[dict], against: list[dict]) -> list[str]:
    lines = ["| target | seen | verdict |", "| --- | --- | --- |"]
    for row in rows:
        if row["count"] in LIMITS:
            limit, seen = LIMITS[row["count"]], row["seconds"]
            what = f"{row['count']} training points in {limit:.0f} s"
            lines.append(f"| {what} | {seen:.1f} s | {verdict(seen < limit)} |")
        if row["count"] == 100:
            seen = row["gigabytes"]
            what = f"{row['count']} training points in {MEMORY_LIMIT:.0f} GB"
            lines.append(f"| {what} | {seen:.1f} GB | {verdict(seen < MEMORY_LIMIT)} |")
        if "error" in row:
            seen = row["error"]
            lines.append(
                f"| own error at {row['count']} points, condition {row['condition']:.0f}: at most "
                f"{ERROR_LIMIT:.0%} of the correction | {seen:.1e} | {verdict(seen <= ERROR_LIMIT)} |"
            )
    return lines + met_against(against)


def met_against(against: list[dict]) -> list[str]:
    lines = []
    for one in against:
        seen = min(one["ratio"], one["single_ratio"])
        what = f"{one['count']} points, {duration(one)}: {CHEAPER} times cheaper than ensembles as accurate"
        lines.append(f"| {what} | {seen:.1f} | {verdict(seen >= CHEAPER)} |")
    return lines


def duration(one: dict) -> str:
    end = "to the end of training" if math.isinf(one["steps"]) else f"{one['steps']:.0f} steps"
    return f"width {one['width']}, {end}"


def comparison(against: list[dict]) -> list[str]:
    return [
        f"{against[0]['count']} training points, descent at half the largest learning rate, averages good to "
        f"{AGAINST:g}. Networks trained to the end stop at a loss of {TRAINED:g}. Means have the "
        "infinite-width prediction as a control variate. Stated is what order 1/n says that it neglects, one "
        "standard deviation; shift and stated are root mean squares over the test points. Measured is the "
        "shift of real networks along the predicted one (test points taken as independent). Needed is the "
        "number of networks whose standard error is as large as what is stated. The last two columns are "
        "for a plain loop with numbers of 32 bits, the control variate taken as free. All seconds are "
        "processor seconds.",
        "",
        "| | theory (s) | shift | stated, in shifts | measured, in shifts | verdict | variance saved "
        "| networks needed | seconds | times the theory | 32 bits, seconds | times the theory |",
        "|" + " --- |" * 12,
        *(
            f"| {duration(one)} | {one['theory']:.1f} | {one['shift']:.2e} "
            f"| {one['stated'] / one['shift']:.2f} | {one['share']:.2f} +- {one['share_error']:.2f} "
            f"({one['members']} networks) | {one['verdict']} "
            f"| {one['saved']:.1f} times | {one['needed']:.0f} | {one['seconds']:.1f} | {one['ratio']:.1f} "
            f"| {one['single']:.1f} | {one['single_ratio']:.1f} |"
            for one in against
        ),
        "",
    ]


def report(rows: list[dict], against: list[dict]) -> str:
    lines = [
        "# Order-1/n mean predictions",
        "",
        f"Written by `python -m benchmarks.training.finite_width` on {stamp()}: {platform.machine()}, "
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} after the run.",
        "",
        f"tanh, depth 3, width {WIDTH}, {INPUT_DIMENSION} input dimensions, {TESTS} test points, "
        "standard normal inputs and targets, gradient flow to the end; statistics included, compilation "
        "not. Up to 64 samples tensors are dense, beyond that nothing of size N^4 is stored.",
        "",
        *targets(rows, against),
        "",
        "| training points | tolerance | seconds | peak GB | condition | own error |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        error = f"{row['error']:.1e}" if "error" in row else ""
        lines.append(
            f"| {row['count']} | {row['tolerance']:.0e} | {row['seconds']:.1f} "
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
        f"## {AT_EQUAL_ACCURACY}",
        "",
        *comparison(against),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("COUNT", "TOLERANCE"))
    parser.add_argument("--against", action="store_true", help="the comparison with ensembles alone")
    parser.add_argument("--cost", nargs=4, type=float, metavar=("COUNT", "MEMBERS", "STEPS", "WIDTH"))
    arguments = parser.parse_args()
    if arguments.one:
        count, tolerance = arguments.one
        print(json.dumps(one(int(count), float(tolerance))))
        return
    if arguments.cost:
        count, members, steps, width = arguments.cost
        print(json.dumps(cost(int(count), int(members), steps, int(width))))
        return
    share = 20 if arguments.quick else 1
    cases = [(800, 100.0, 128), (200, math.inf, 128), (400, 100.0, 256), (100, math.inf, 256)]
    against = [in_own_process("--cost", 20, max(n // share, 4), *rest) for n, *rest in cases]
    if arguments.against:
        met = ["| target | seen | verdict |", "| --- | --- | --- |", *met_against(against)]
        text = "\n".join([f"{stamp()}.", "", *met, "", *comparison(against)])
        print(text)
        return keep(RESULTS, AT_EQUAL_ACCURACY, text)
    counts = (10, 20) if arguments.quick else sorted({*GROWTH, *LIMITS})
    rows = [in_own_process("--one", count, 1e-5) for count in counts]
    for row in rows:
        if row["count"] in LIMITS:
            row["error"] = relative_error(row)
    text = report(rows, against)
    print(text)
    if not arguments.quick:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
