"""The coefficient of 1/n that theory gives for the mean of "one input", checked without its formulas.

    python -m benchmarks.extrapolation.theory_coefficient            some ten minutes of one core
    python -m benchmarks.extrapolation.theory_coefficient --quick    few networks, a check of this script

Networks, their NTK and their training are written here once more. Training whose outputs are stretched by
alpha, z_0 + alpha (z - z_0) with gradients divided by alpha, is free + c_1/alpha + c_2/alpha^2 + ..., where
`free` has a fixed NTK, c_1 is linear in the dNTK and c_2 holds the ddNTKs: two large alphas of opposite sign
give both. Three checks, bounds fixed beforehand:

1. network by network, the library's trained outputs are those of the code here (1e-10);
2. means over networks at initialization: n `free` and n (c_1 + c_2), of pairs of networks with opposite last
   layers, fitted with I_1 + I_2/n + I_3/n^2, have the contributions of theory as I_1 (3 standard errors);
3. the route of theory that samples tensors agrees with the deterministic one (3 standard errors, which are
   below 0.05, a fifth of what trained networks seemed to miss).

Results: benchmarks/extrapolation/results/theory_coefficient.md.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.extrapolation.problems import fw, problems
from benchmarks.provenance import stamp
from finitewidth.experiment.sampling import draw, member_key
from finitewidth.experiment.scaling import fall_with_width

PROBLEM = problems()[0]
X = jnp.concatenate([PROBLEM.data[0], PROBLEM.data[2]])
Y = jnp.asarray(PROBLEM.data[1][:, 0])
C_B, C_W = 0.3, 1.5
RATE, STEPS = PROBLEM.algorithm.learning_rate, PROBLEM.algorithm.steps
STRETCH = 100.0
WIDE = 2**20
KEY = 31415
MEMBERS = {
    # narrower ones diverge: the largest eigenvalue of a few NTKs times the learning rate is above 2
    "free": {32: 1_000_000, 48: 1_000_000, 64: 800_000, 96: 400_000, 128: 200_000},
    "moving": {32: 160_000, 48: 90_000, 64: 60_000, 96: 20_000, 128: 10_000},
}
CONTRIBUTIONS = {
    "free": ("ntk_mean", "ntk_fluctuation"),
    "moving": ("dntk", "ddntk_1", "ddntk_2"),
}


def drawn(key, n: int):
    keys = jax.random.split(key, 6)
    shapes = [((n, 1), C_W), ((n,), C_B), ((n, n), C_W / n), ((n,), C_B), ((n,), C_W / n), ((), C_B)]
    return tuple(
        variance**0.5 * jax.random.normal(k, shape) for k, (shape, variance) in zip(keys, shapes, strict=True)
    )


def outputs(p, inputs):
    hidden = jnp.tanh(jnp.tanh(inputs @ p[0].T + p[1]) @ p[2].T + p[3])
    return hidden @ p[4] + p[5]


def ntk(p, n: int):
    s_1 = jnp.tanh(X @ p[0].T + p[1])
    s_2 = jnp.tanh(s_1 @ p[2].T + p[3])
    d_2 = p[4] * (1 - s_2**2)
    d_1 = (d_2 @ p[2]) * (1 - s_1**2)
    return 1 + s_2 @ s_2.T / n + (d_2 @ d_2.T) * (1 + s_1 @ s_1.T / n) + (d_1 @ d_1.T) * (1 + X @ X.T)


def with_fixed_ntk(H, z):
    def step(z, _):
        return z - RATE * H[:, : len(Y)] @ (z[: len(Y)] - Y), None

    return jax.lax.scan(step, z, None, length=STEPS)[0]


def stretched(p, n: int, alpha: float):
    """Trained outputs of z_0 + alpha (z - z_0)."""
    origin, count = outputs(p, X), len(Y)
    rates = (1.0, 1.0, 1 / n, 1.0, 1 / n, 1.0)

    def step(q, _):
        z, pull = jax.vjp(lambda q: outputs(q, X[:count]), q)
        (slopes,) = pull((origin[:count] + alpha * (z - origin[:count]) - Y) / alpha)
        return tuple(a - RATE * r * b for a, b, r in zip(q, slopes, rates, strict=True)), None

    q, _ = jax.lax.scan(step, p, None, length=STEPS)
    return origin + alpha * (outputs(q, X) - origin)


def free(key, n: int):
    return with_fixed_ntk(ntk(drawn(key, n), n), jnp.zeros(len(X)))


def moving(key, n: int):
    p = drawn(key, n)
    H = ntk(p, n)

    def of(p):
        up, down = (stretched(p, n, alpha) for alpha in (STRETCH, -STRETCH))
        still = with_fixed_ntk(H, outputs(p, X))
        return STRETCH * (up - down) / 2 + STRETCH**2 * ((up + down) / 2 - still)

    return (of(p) + of((*p[:4], -p[4], -p[5]))) / 2


def averaged(part: Callable, n: int, members: int, key) -> fw.Estimate:
    run = jax.jit(lambda keys: jax.lax.map(lambda k: part(k, n), keys, batch_size=50))
    size = min(members, 20_000)
    blocks = [np.asarray(run(jax.random.split(k, size))) for k in jax.random.split(key, members // size)]
    values = np.concatenate(blocks)[:, len(Y) :]
    return fw.Estimate(values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values)))


def first_order(**options) -> fw.records.Prediction:
    return fw.predict(PROBLEM.net(WIDE), *PROBLEM.data, algorithm=PROBLEM.algorithm, **options)


def fitted(name: str, part: Callable, share: int, limit: np.ndarray) -> tuple[fw.Estimate, list[str]]:
    """I_1 of every test input, and rows of the table for the first."""
    estimates, rows = [], []
    for number, (n, members) in enumerate(MEMBERS[name].items()):
        start = time.process_time()
        key = jax.random.fold_in(jax.random.key(KEY + number), len(name) + ord(name[-1]))
        seen = averaged(part, n, members // share, key)
        estimates.append(fw.Estimate(n * (seen.value - limit), n * seen.stderr))
        value, error = (float(array[0]) for array in estimates[-1])
        rows.append(f"| {name} | {n} | {members // share} | {value:+.3f} ± {error:.3f} |")
        print(rows[-1], f"{time.process_time() - start:.0f} s", flush=True)
    fall = fall_with_width(list(MEMBERS[name]), estimates, (0, 1, 2))
    rows.append(
        f"| {name} | fit | chi square {fall.chi_square[0]:.1f} / {fall.freedom} | "
        f"{fall.coefficients[0][0]:+.3f} ± {fall.errors[0, 0][0] ** 0.5:.3f} |"
    )
    return fw.Estimate(fall.coefficients[0], np.sqrt(fall.errors[0, 0])), rows


def network_by_network(members: int = 20, n: int = 32) -> float:
    """The largest difference of outputs that the library trains and those of the code here."""
    with tempfile.TemporaryDirectory() as folder:
        ensemble = fw.train_ensemble(
            PROBLEM.net(n),
            *PROBLEM.data,
            algorithm=PROBLEM.algorithm,
            members=members,
            key=KEY,
            record=fw.Record(members=True),
            run=fw.Run(store=Path(folder) / "ensemble.zarr", progress=False),
        )
        theirs = ensemble.member_outputs()[:, -1, :, 0]
    ours = []
    for one in range(members):
        layers = draw(PROBLEM.net(n), member_key(jax.random.key(KEY), one))
        p = tuple(part for layer in layers for part in (layer.W, layer.b))
        ours.append(stretched((*p[:4], p[4][0], p[5][0]), n, 1.0))
    return float(np.abs(np.array(ours) - theirs).max())


def report(share: int) -> str:
    theory = first_order()
    limit = theory.infinite_width.mean[:, 0]
    rows, results, expected = [], [], []
    for name, (part, at_infinity) in {"free": (free, limit), "moving": (moving, 0 * limit)}.items():
        found, lines = fitted(name, part, share, at_infinity)
        rows += lines
        results.append(found)
        expected.append(WIDE * sum(theory.contributions[one][:, 0] for one in CONTRIBUTIONS[name]))
    results.append(fw.Estimate(sum(r.value for r in results), np.sqrt(sum(r.stderr**2 for r in results))))
    expected += 2 * [sum(expected)]
    sampled = first_order(method=fw.Sampling(tolerance=0.02 if share > 1 else 0.002))
    shift = sampled.mean - sampled.infinite_width.mean
    results.append(fw.Estimate(WIDE * shift[:, 0], WIDE * sampled.stderr[:, 0]))
    table = ["| part | test input | sampled | theory | pull |", "| --- | --- | --- | --- | --- |"]
    for name, found, known in zip([*CONTRIBUTIONS, "sum", "fw.Sampling"], results, expected, strict=True):
        for i, x in enumerate(PROBLEM.data[2][:, 0]):
            pull = (known[i] - found.value[i]) / found.stderr[i]
            seen = f"{found.value[i]:+.3f} ± {found.stderr[i]:.3f}"
            table.append(f"| {name} | {x:+.1f} | {seen} | {known[i]:+.3f} | {pull:+.1f} |")
    heads = ["| part | width | networks | n times it, x = -2.5 |", "| --- | --- | --- | --- |"]
    about = (
        f"Written by `python -m benchmarks.extrapolation.theory_coefficient` on {stamp()}. Coefficients of "
        "1/n of the mean. `free` and `moving` are means over networks at initialization, by code that shares "
        f"nothing with the library. Trained outputs of 20 networks of width 32 differ from those of the "
        f"library by at most {network_by_network():.1g}."
    )
    title = "# The coefficient of 1/n of the mean, one input"
    return "\n\n".join([title, about, "\n".join(table), "\n".join(heads + rows)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
    text = report(100 if quick else 1)
    print(text)
    if not quick:
        (Path(__file__).parent / "results" / "theory_coefficient.md").write_text(text)


if __name__ == "__main__":
    main()
