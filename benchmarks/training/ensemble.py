"""Ensembles of real networks: time against bare matrix products, loops and other methods, and memory.

    python -m benchmarks.training.ensemble                    # some minutes; writes results/ensemble.md
    python -m benchmarks.training.ensemble --only few_inputs  # one section; the others stay as they are
    python -m benchmarks.training.ensemble --quick            # small; prints and writes nothing

Every ratio is between times measured alternately in one run.
"""

import argparse
import functools
import importlib.metadata
import itertools
import json
import os
import platform
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from helpers import autodiff_derivatives as derivatives

import finitewidth as fw
from benchmarks.provenance import keep, stamp
from finitewidth.core.tasks import in_any_order
from finitewidth.experiment import directions
from finitewidth.experiment.ensemble.batch import group_size, in_groups
from finitewidth.experiment.ensemble.descent import Descent, moved, pulled_back
from finitewidth.experiment.ensemble.plan import Plan
from finitewidth.experiment.ensemble.trainer import Members
from finitewidth.experiment.sampling import draw, draw_members, outputs, rates

RESULTS = Path(__file__).parent / "results" / "ensemble.md"
KEY = jax.random.key(0)


def alternately(functions: dict, runs: int) -> dict[str, float]:
    """The shortest time of each function, after one call that compiles, runs of all interleaved."""
    for function in functions.values():
        jax.block_until_ready(function())
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(runs):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def data(count: int, dimension: int) -> tuple[jax.Array, jax.Array]:
    random = np.random.default_rng(0)
    return jnp.asarray(random.standard_normal((count, dimension))), jnp.asarray(
        random.standard_normal((count, 1))
    )


def network(width: int, depth: int = 4, dimension: int = 64) -> fw.MLP:
    return fw.MLP((dimension, *[width] * (depth - 1), 1), "tanh", C_b=0.0, C_W=1.0)


# --- training ---------------------------------------------------------------------------------------


def plan_of(net: fw.MLP, count: int, steps: int) -> Plan:
    """Full-batch descent on so many inputs."""
    return Plan(
        net,
        fw.GradientDescent(1e-3, steps),
        fw.MSE(),
        train_count=count,
        points=(float(steps),),
        training_error=None,
        tolerance=1e-8,
        max_steps=1,
        ntk=False,
        kernels=False,
        control=None,
        controls_covariance=False,
        floor=0.0,
    )


def trainer(net: fw.MLP, X, Y, members: int, steps: int):
    """Full-batch descent of all members, as train_ensemble does it."""
    plan = plan_of(net, len(X), steps)

    def observe(parameters):
        return {"loss": jax.vmap(lambda p: plan.loss.value(outputs(net, p, X), Y))(parameters)}

    def run(parameters, numbers):
        batch = Members(parameters, jnp.arange(members), jnp.full(members, 1e9))

        def train(group):
            return Descent().train(Descent().pattern(plan), numbers, X, Y, group, observe)

        return in_groups(train, batch, group_size(plan, len(X))).records["loss"]

    compiled = jax.jit(run)
    return lambda parameters: compiled(parameters, plan.numbers)


def products(net: fw.MLP, count: int, members: int, steps: int):
    """The matrix products of those steps and nothing else, each fed by the one before."""
    random = np.random.default_rng(1)
    sizes = list(zip(net.widths, net.widths[1:], strict=False))
    Ws = [jnp.asarray(random.standard_normal((members, n, m)) / m) for m, n in sizes]
    incoming = [jnp.asarray(random.standard_normal((members, count, m))) for m, _ in sizes]

    def one_step(_, state):
        Ws, incoming = state
        forward = [jnp.einsum("mai,mji->maj", s, W) for s, W in zip(incoming, Ws, strict=True)]
        gradients = [jnp.einsum("maj,mai->mji", z, s) for z, s in zip(forward, incoming, strict=True)]
        back = [jnp.einsum("maj,mji->mai", z, W) for z, W in zip(forward[1:], Ws[1:], strict=True)]
        return gradients, [incoming[0], *back]

    return jax.jit(lambda Ws, incoming: jax.lax.fori_loop(0, steps, one_step, (Ws, incoming))[0]), (
        Ws,
        incoming,
    )


def training_section(quick: bool) -> list[str]:
    lines = [
        "## A training step against its own bare matrix products",
        "",
        "Full-batch descent of a tanh network of four layers on 100 inputs of dimension 64; time of one step "
        "of all members together. The bare products are the same batched products in one compiled loop, "
        "chained.",
        "",
        "| width | members at once | step (ms) | bare products (ms) | ratio (target 1.5) | Gflop/s |",
        "|---|---|---|---|---|---|",
    ]
    for width, members in ((64, 4),) if quick else ((128, 16), (256, 8), (512, 4)):
        net, steps = network(width), 4 if quick else 20
        X, Y = data(100, 64)
        parameters = draw_members(net, KEY, jnp.arange(members, dtype=jnp.uint32))
        train = trainer(net, X, Y, members, steps)
        bare, arguments = products(net, 100, members, steps)
        found = alternately(
            {
                "train": functools.partial(train, parameters),
                "bare": functools.partial(bare, *arguments),
            },
            runs=2 if quick else 7,
        )
        flops = (
            2
            * 100
            * members
            * sum(
                (3 if l else 2) * m * n
                for l, (m, n) in enumerate(zip(net.widths, net.widths[1:], strict=False))
            )
        )
        step, product = found["train"] / steps, found["bare"] / steps
        lines.append(
            f"| {width} | {members} | {1e3 * step:.2f} | {1e3 * product:.2f} | {step / product:.2f} "
            f"| {flops / step / 1e9:.1f} |"
        )
    return lines


def few_inputs_section(quick: bool) -> list[str]:
    """Steps on few inputs against one pass over the weights, and against the products of the step."""
    lines = [
        "## Few inputs: a training step against one pass over the weights",
        "",
        "Full-batch descent of tanh networks of four layers on inputs of dimension 16, as many as have "
        "256 MB of weights; times of one step of one member, with both cores at work. A pass reads and "
        "writes all weights once. The ensemble lies in main memory, from where the first pass takes it. "
        "Training takes a group of members from there to the end of their training, so that they stay in "
        "the cache of a core; the second pass and the bare products are of such groups. A step does six "
        f"operations for each weight and input: a large product runs at {_large_product(quick):.0f} Gflop/s.",
        "",
        "| inputs | width | members | step (us) | pass, memory (us) | step / pass (target 3) | met "
        "| pass, cache (us) | step / pass | bare products (us) | step / products | Gflop/s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    total, steps = (8e6, 8) if quick else (256e6, 48)
    for count, width in ((3, 64),) if quick else tuple(itertools.product((3, 10, 20), (64, 128, 256))):
        net, (X, Y) = network(width, dimension=16), data(count, 16)
        one = sum(leaf.size for leaf in jax.tree.leaves(draw(net, KEY)))
        members = 8 * round(total / 8 / one / 8)
        found = _few_inputs(net, X, Y, members, steps, runs=2 if quick else 3)
        step, memory, cache, bare = (1e6 * found[name] for name in ("train", "memory", "cache", "bare"))
        ratio = step / memory
        lines.append(
            f"| {count} | {width} | {members} | {step:.1f} | {memory:.1f} | {ratio:.2f} "
            f"| {'yes' if ratio <= 3 else 'NO'} | {cache:.2f} | {step / cache:.1f} | {bare:.1f} "
            f"| {step / bare:.2f} | {6e-3 * count * one / step:.0f} |"
        )
    return lines


def _few_inputs(net: fw.MLP, X, Y, members: int, steps: int, runs: int) -> dict[str, float]:
    """Seconds of one step of one member, two halves of the members at once; a quarter of them is trained."""
    halves = [draw_members(net, KEY, part) for part in jnp.split(jnp.arange(members, dtype=jnp.uint32), 2)]
    in_cache = group_size(plan_of(net, len(X), steps), len(X))
    groups = [jax.tree.map(lambda leaf: leaf[:in_cache], half) for half in halves]
    trained = [jax.tree.map(lambda leaf: leaf[: members // 8], half) for half in halves]
    train = trainer(net, X, Y, members // 8, steps)
    bare, arguments = products(net, len(X), in_cache, steps)
    few, many = steps // 8, 8 * steps  # passes from memory are long, those in the cache are short

    threads = ThreadPoolExecutor(2)

    def both(function, parts):
        return list(threads.map(lambda part: jax.block_until_ready(function(part)), parts))

    found = alternately(
        {
            "train": lambda: both(train, trained),
            "memory": lambda: both(lambda half: passes(half, few), halves),
            "cache": lambda: both(lambda group: passes(group, many), groups),
            "bare": lambda: both(lambda group: bare(*group), [arguments, arguments]),
        },
        runs,
    )
    taken = {
        "train": steps * (members // 4), "memory": few * members, "cache": many * 2 * in_cache,
        "bare": steps * 2 * in_cache,
    }  # fmt: skip
    return {name: time / taken[name] for name, time in found.items()}


def _large_product(quick: bool) -> float:
    """Gflop/s of a product of large matrices."""
    size = 256 if quick else 1536
    A = jnp.ones((size, size))
    product = jax.jit(lambda A: A @ A)
    return 2e-9 * size**3 / alternately({"product": lambda: product(A)}, runs=5)["product"]


@functools.partial(jax.jit, static_argnums=1)
def passes(parameters, steps: int):
    """All weights read and written once a step."""
    return jax.lax.fori_loop(
        0, steps, lambda _, now: jax.tree.map(lambda leaf: 0.999 * leaf + 1e-3, now), parameters
    )


def narrow_section(quick: bool) -> list[str]:
    width, members, steps = 16, 50 if quick else 1000, 20 if quick else 100
    net = network(width, depth=3, dimension=4)
    X, Y = data(10, 4)
    numbers = jnp.arange(members, dtype=jnp.uint32)
    parameters = draw_members(net, KEY, numbers)
    size = -(-members // 16)  # train_ensemble makes sixteen batches
    trained = trainer(net, X, Y, size, steps)
    first = jax.tree.map(lambda leaf: leaf[:size], parameters)

    def together():
        batches = list(range(16))
        return list(in_any_order(lambda _: trained(first).block_until_ready(), batches, at_once=2))

    @jax.jit
    def one_step(p):
        return moved(net, p, pulled_back(net, p, X, lambda z: (None, fw.MSE().gradient(z, Y)))[1], 1e-3)

    few = max(2, members // 50)  # the loop is timed over a part of the members

    def loop():
        for m in range(few):
            p = jax.tree.map(lambda leaf, m=m: leaf[m], parameters)
            for _ in range(steps):
                p = one_step(p)
            jax.block_until_ready(p)

    whole = trainer(net, X, Y, 1, steps)

    def compiled_loop():
        for m in range(few):
            whole(jax.tree.map(lambda leaf, m=m: leaf[m : m + 1], parameters)).block_until_ready()

    found = alternately(
        {"together": together, "loop": loop, "compiled": compiled_loop},
        runs=2 if quick else 11,
    )
    loop_time, compiled = found["loop"] * members / few, found["compiled"] * members / few
    return [
        "## Narrow networks against a Python loop over members",
        "",
        f"{members} members of width {width}, three layers, 10 inputs, {steps} steps, in 16 batches. The "
        f"loops are timed over {few} members and scaled; each step of the first is compiled, in the second "
        "all steps of a member are.",
        "",
        "| compiled batches (s) | loop over members and steps (s) | ratio (target 20) "
        "| loop over members only (s) | ratio |",
        "|---|---|---|---|---|",
        f"| {found['together']:.3f} | {loop_time:.2f} | {loop_time / found['together']:.0f} | {compiled:.2f} "
        f"| {compiled / found['together']:.1f} |",
    ]


# --- derivatives ------------------------------------------------------------------------------------


def jacobian_contraction(net: fw.MLP, parameters, X):
    """The NTK as the product of the whole Jacobian with itself."""
    jacobian = jax.jacrev(lambda p: outputs(net, p, X).T.reshape(-1))(parameters)
    total = 0.0
    for (b, W), (rate_b, rate_W) in zip(jacobian, rates(net), strict=True):
        flat = W.reshape(len(W), -1)
        total = total + rate_b * b @ b.T + rate_W * flat @ flat.T
    return total


def products_with_vectors(net: fw.MLP, parameters, X):
    """The NTK column by column: a Jacobian-vector product of a vector-Jacobian product."""
    return derivatives.ntk(net, parameters, X)


def ntk_section(quick: bool) -> list[str]:
    width, count = (32, 8) if quick else (256, 50)
    net = fw.MLP((64, *[width] * 4, 1), "tanh")
    X, parameters = data(count, 64)[0], draw(net, KEY)
    methods = {
        "this library (directions.ntk)": directions.ntk,
        "direct Jacobian contraction": jacobian_contraction,
        "NTK-vector products": products_with_vectors,
    }
    compiled = {
        name: functools.partial(jax.jit(functools.partial(f, net)), parameters, X)
        for name, f in methods.items()
    }
    found = alternately(compiled, runs=3 if quick else 15)
    reference = np.asarray(compiled["direct Jacobian contraction"]())
    ours = np.asarray(compiled["this library (directions.ntk)"]()).reshape(count, count)
    fastest = min(found.values())
    lines = [
        f"## NTK of one network, width {width}, five layers, {count} inputs",
        "",
        f"Largest difference between methods: {np.max(np.abs(ours - reference)) / np.max(reference):.0e} of "
        "the largest entry. Structured derivatives of a multilayer perceptron (Novak, Sohl-Dickstein and "
        "Schoenholz 2022) are the first method: the gradient of a weight matrix is an outer product and "
        "is never formed.",
        "",
        "| method | time (ms) | over the fastest (target 1.2 for the first) |",
        "|---|---|---|",
    ]
    return lines + [f"| {name} | {1e3 * t:.2f} | {t / fastest:.2f} |" for name, t in found.items()]


def differentials_section(quick: bool) -> list[str]:
    width, count = (16, 2) if quick else (128, 4)
    net = fw.MLP((64, width, width, 1), "tanh")
    X, parameters = data(count, 64)[0], draw(net, KEY)
    methods = {
        "all, by directions (directions.differentials)": lambda p, x: directions.differentials(net, p, x),
        "ddNTK_I, automatic differentiation": lambda p, x: derivatives.ddntk_1(net, p, x),
        "ddNTK_II, automatic differentiation": lambda p, x: derivatives.ddntk_2(net, p, x),
    }
    found = alternately(
        {name: functools.partial(jax.jit(f), parameters, X) for name, f in methods.items()}, runs=3
    )
    return [
        f"## dNTK and ddNTKs of one network, width {width}, three layers, {count} inputs",
        "",
        "After compilation; the target is one second.",
        "",
        "| what | time (ms) |",
        "|---|---|",
        *(f"| {name} | {1e3 * t:.2f} |" for name, t in found.items()),
    ]


# --- memory -----------------------------------------------------------------------------------------


def measure_memory(members: int) -> float:
    """Peak resident memory in MB of a process that trains `members` networks in batches of 50."""
    X, Y = data(20, 8)
    net = network(32, depth=3, dimension=8)
    fw.train_ensemble(
        net,
        X[:10],
        Y[:10],
        X[10:],
        algorithm=fw.GradientDescent(1e-3, 10),
        members=members,
        key=0,
        run=fw.Run(batch_size=50),
    )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def memory_section(quick: bool) -> list[str]:
    sizes = (100, 500) if quick else (100, 1000, 20000)
    rows = []
    for members in sizes:
        out = subprocess.run(
            [sys.executable, "-m", "benchmarks.training.ensemble", "--measure-memory", str(members)],
            capture_output=True,
            text=True,
            check=True,
        )
        rows.append(f"| {members} | {json.loads(out.stdout):.0f} |")
    return [
        "## Memory against the number of members",
        "",
        "Peak resident memory of a process that trains networks of width 32 in batches of 50.",
        "",
        "| members | peak (MB) |",
        "|---|---|",
        *rows,
    ]


def heading() -> list[str]:
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "jax", "diffrax")}
    model = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return [
        "# Ensembles of real networks: time and memory",
        "",
        f"{model}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f", finitewidth {fw.__version__}, double precision. Written by "
        "`python -m benchmarks.training.ensemble`; shortest of several runs, those of different methods "
        "interleaved.",
    ]


SECTIONS = {
    "training": training_section,
    "few_inputs": few_inputs_section,
    "narrow": narrow_section,
    "ntk": ntk_section,
    "differentials": differentials_section,
    "memory": memory_section,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small; print and write nothing")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--measure-memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_memory:
        print(json.dumps(measure_memory(options.measure_memory)))
        return
    if not options.quick and not RESULTS.exists():
        RESULTS.write_text("\n".join(heading()) + "\n")
    for name in options.only:
        title, *lines = SECTIONS[name](options.quick)
        print("\n".join([title, *lines]), "\n", flush=True)
        if not options.quick:
            keep(RESULTS, title.removeprefix("## "), "\n".join([stamp(), *lines]))


if __name__ == "__main__":
    main()
