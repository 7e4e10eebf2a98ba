"""The posterior at order 1/n against Hamiltonian Monte Carlo over the parameters of real networks.

    pip install "finitewidth[hmc]" && python -m benchmarks.bayes.hmc [widths]

writes `benchmarks/bayes/results/hmc.md`. Here there are too many data for weighted samples of the prior,
whose weight falls on a few networks. Hamiltonian Monte Carlo (NUTS of blackjax) moves to the data. Errors
are from the spread of chains. Criteria, fixed before the run: where the verdict is "within range" all pulls
of order 1/n are below 4; everywhere what is left is at most the square of the size of the corrections, in
units of the posterior standard deviation for means and of the posterior variance for variances.
"""

import functools
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import finitewidth as fw
from benchmarks.provenance import stamp

RESULT = Path(__file__).resolve().parent / "results" / "hmc.md"
RANDOM = np.random.default_rng(5)
NOISE, CHAINS, WARMUP, DRAWS = 0.02, 16, 300, 500
X = RANDOM.normal(size=(10, 2))
Y = np.sin(1.5 * X[:, :1]) * X[:, 1:]
X_TEST = np.array([[0.4, -0.3], [1.2, 0.8], [-0.6, 1.5]])
WIDTHS = (64, 256, 1024)


def network(n: int) -> fw.MLP:
    return fw.MLP((2, n, 1), "tanh", C_b=0.2, C_W=1.5)


def outputs(net: fw.MLP, theta: jax.Array, inputs) -> jax.Array:
    """Of a network whose parameters are given by independent standard normal numbers."""
    n = net.widths[1]
    W_1, b_1, W_2, b_2 = jnp.split(theta, np.cumsum([2 * n, n, n]))
    scales = [np.sqrt(variance) for variance in (net.C_W[0] / 2, net.C_b[0], net.C_W[1] / n, net.C_b[1])]
    hidden = jnp.tanh(scales[0] * inputs @ W_1.reshape(2, n) + scales[1] * b_1)
    return scales[2] * hidden @ W_2[:, None] + scales[3] * b_2


def log_density(net: fw.MLP, theta: jax.Array) -> jax.Array:
    residual = outputs(net, theta, X) - Y
    return -jnp.sum(theta**2) / 2 - jnp.sum(residual**2) / (2 * NOISE)


@functools.partial(jax.jit, static_argnums=0)
def chain(net: fw.MLP, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Outputs at the test inputs along one chain, and the mean acceptance."""
    density = functools.partial(log_density, net)
    first, second, third = jax.random.split(key, 3)
    start = jax.random.normal(first, (net.parameter_count,), jnp.float64)
    (state, settings), _ = blackjax.window_adaptation(blackjax.nuts, density).run(
        second, start, num_steps=WARMUP
    )
    step = blackjax.nuts(density, **settings).step

    def draw(state, key):
        state, info = step(key, state)
        return state, (outputs(net, state.position, X_TEST)[:, 0], info.acceptance_rate)

    _, (values, acceptance) = jax.lax.scan(draw, state, jax.random.split(third, DRAWS))
    return values, acceptance.mean()


class Row(NamedTuple):
    """One quantity: theory at both orders, and chains."""

    name: str
    infinite: float
    first: float
    chains: float
    error: float
    scale: float  # posterior standard deviation of a mean, posterior variance of a variance

    @property
    def pulls(self) -> tuple[float, float]:
        return (self.infinite - self.chains) / self.error, (self.first - self.chains) / self.error

    @property
    def left(self) -> float:
        return (self.chains - self.first) / self.scale

    def __str__(self) -> str:
        return (
            f"| {self.name} | {self.infinite:.4f} | {self.first:.4f} | {self.chains:.4f} ± {self.error:.4f} "
            f"| {self.pulls[0]:.1f} | {self.pulls[1]:.1f} | {self.left:.3f} ± {self.error / self.scale:.3f} |"
        )


def rows(values: np.ndarray, posterior: fw.records.Posterior) -> list[Row]:
    """Chains (chains, draws, tests) beside the theory."""
    means, squares = values.mean(axis=1), (values**2).mean(axis=1)
    mean = means.mean(axis=0)
    variance, infinite = squares.mean(axis=0) - mean**2, posterior.infinite_width
    influences = {"mean": means, "variance": squares - 2 * mean * means}
    columns = {
        "mean": (infinite.mean, posterior.mean, mean, infinite.std),
        "variance": (infinite.variance, posterior.variance, variance, infinite.variance),
    }
    table = []
    for name, (zeroth, first, measured, scale) in columns.items():
        errors = influences[name].std(axis=0, ddof=1) / np.sqrt(CHAINS)
        for test in range(len(X_TEST)):
            numbers = zeroth[test, 0], first[test, 0], measured[test], errors[test], scale[test, 0]
            table.append(Row(f"{name}, test input {test + 1}", *map(float, numbers)))
    return table


def section(n: int) -> list[str]:
    net, start = network(n), time.perf_counter()
    chains = [chain(net, key) for key in jax.random.split(jax.random.key(0), CHAINS)]
    values = np.stack([np.asarray(one[0]) for one in chains])
    acceptance = np.mean([float(one[1]) for one in chains])
    seconds = time.perf_counter() - start
    posterior = fw.bayes.posterior(net, X, Y, X_TEST, noise=NOISE, order=1)
    weighted = fw.bayes.sample(net, X, Y, X_TEST, members=2_000, key=0, noise=NOISE)
    table, size = rows(values, posterior), posterior.expansion.size  # type: ignore[union-attr]
    worst = max(abs(row.pulls[1]) for row in table)
    left = max(abs(row.left) for row in table)
    about = (
        f"Corrections of size {size:.2g}: **{posterior.verdict}**. Largest pull of order 1/n {worst:.1f}, "
        f"at most {left:.2g} is left, the square of the size is {size**2:.2g}. Correction to the log "
        f"evidence {posterior.log_evidence_correction:.2g}. Mean acceptance {acceptance:.2f}, chains took "
        f"{seconds:.0f} s. Of 2000 weighted samples {weighted.effective_members:.0f} would count."
    )
    return [f"## Width {n}", "", about, "", TABLE, *map(str, table), ""]


def main() -> None:
    warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
    lines = [HEAD, ""]
    for n in map(int, sys.argv[1:] or WIDTHS):
        lines += section(n)
        RESULT.write_text("\n".join(lines))
        print("\n".join(lines), flush=True)


HEAD = f"""# The posterior at order 1/n against Hamiltonian Monte Carlo

Written by `benchmarks/bayes/hmc.py` ({stamp()}), all widths in one run.
Versions: blackjax {blackjax.__version__}, jax {jax.__version__}. tanh, two layers, {len(X)} training points.
Noise has variance {NOISE}; {CHAINS} chains of {DRAWS} draws after {WARMUP} steps of adaptation.

- **pull**: (theory - chains) / standard error.
- **left**: (chains - order 1/n), in units of the infinite-width posterior standard deviation for means and of
  the infinite-width posterior variance for variances. The size of the corrections has the same units.
- Criteria, fixed before the run: where the verdict is "within range", pulls of order 1/n below 4; everywhere,
  what is left at most the square of the size of the corrections.
- An earlier run at width 64 had failed "pulls below 4" while the verdict was only "at the edge". Sizes were
  then relative to the largest target and the largest variance; since then they have the units above."""

TABLE = """| quantity | infinite width | order 1/n | chains ± error | pull of infinite width | of 1/n | left |
|---|---|---|---|---|---|---|"""


if __name__ == "__main__":
    main()
