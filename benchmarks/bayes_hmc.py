"""The posterior at order 1/n against Hamiltonian Monte Carlo over the parameters of real networks.

    pip install "finitewidth[hmc]" && python benchmarks/bayes_hmc.py

writes `benchmarks/results/bayes_hmc.md`. Here there are too many data for weighted samples of the prior:
almost all weight falls on a few networks. Hamiltonian Monte Carlo (NUTS of blackjax) moves towards the data instead.
Decided before any number was seen: pulls below 4 for mean and variance, errors from the spread of chains.
"""

import warnings
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from provenance import stamp

import finitewidth as fw

RESULT = Path(__file__).resolve().parent / "results" / "bayes_hmc.md"
RANDOM = np.random.default_rng(5)
NOISE, CHAINS, WARMUP, DRAWS = 0.02, 16, 300, 300
X = RANDOM.normal(size=(10, 2))
Y = np.sin(1.5 * X[:, :1]) * X[:, 1:]
X_TEST = np.array([[0.4, -0.3], [1.2, 0.8], [-0.6, 1.5]])
NET = fw.MLP((2, 64, 1), "tanh", C_b=0.2, C_W=1.5)


def standardized(theta: jax.Array) -> tuple:
    """Parameters of the network from independent standard normal numbers."""
    parameters, start = [], 0
    for below, layer in zip(NET.widths, NET.dense, strict=False):
        W = theta[start : start + below * layer.width].reshape(layer.width, below)
        start += W.size
        b = theta[start : start + layer.width]
        start += layer.width
        parameters.append((np.sqrt(layer.C_W / below) * W, np.sqrt(layer.C_b) * b))
    return tuple(parameters)


def outputs(theta: jax.Array, inputs) -> jax.Array:
    (W_1, b_1), (W_2, b_2) = standardized(theta)
    return jnp.tanh(inputs @ W_1.T + b_1) @ W_2.T + b_2


def log_density(theta: jax.Array) -> jax.Array:
    residual = outputs(theta, X) - Y
    return -jnp.sum(theta**2) / 2 - jnp.sum(residual**2) / (2 * NOISE)


@jax.jit
def chain(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Outputs at the test inputs along one chain, and the mean acceptance."""
    first, second, third = jax.random.split(key, 3)
    start = jax.random.normal(first, (NET.parameter_count,), jnp.float64)
    adapt = blackjax.window_adaptation(blackjax.nuts, log_density)
    (state, settings), _ = adapt.run(second, start, num_steps=WARMUP)
    step = blackjax.nuts(log_density, **settings).step

    def draw(state, key):
        state, info = step(key, state)
        return state, (outputs(state.position, X_TEST)[:, 0], info.acceptance_rate)

    _, (values, acceptance) = jax.lax.scan(draw, state, jax.random.split(third, DRAWS))
    return values, acceptance.mean()


def main() -> None:
    warnings.simplefilter("ignore", fw.ExpansionWarning)
    chains = [chain(key) for key in jax.random.split(jax.random.key(0), CHAINS)]
    values = np.stack([np.asarray(one[0]) for one in chains])  # (chains, draws, tests)
    means, squares = values.mean(axis=1), (values**2).mean(axis=1)
    mean = means.mean(axis=0)
    spread = squares.mean(axis=0) - mean**2
    influence = squares - 2 * mean * means
    posterior = fw.posterior(NET, X, Y, X_TEST, noise=NOISE, order=1)
    infinite = posterior.infinite_width
    weighted = fw.sample_posterior(NET, X, Y, X_TEST, members=20_000, key=0, noise=NOISE, progress=False)
    rows = []
    for name, measured, samples, first, zeroth in (
        ("mean", mean, means, posterior.mean, infinite.mean),
        ("variance", spread, influence, posterior.variance, infinite.variance),
    ):
        error = samples.std(axis=0, ddof=1) / np.sqrt(CHAINS)
        for test in range(len(X_TEST)):
            pulls = [(theory[test, 0] - measured[test]) / error[test] for theory in (zeroth, first)]
            rows.append(
                f"| {name}, test input {test + 1} | {zeroth[test, 0]:.4f} | {first[test, 0]:.4f} | "
                f"{measured[test]:.4f} ± {error[test]:.4f} | {pulls[0]:.1f} | {pulls[1]:.1f} |"
            )
    acceptance = np.mean([float(one[1]) for one in chains])
    head = HEAD.format(acceptance=acceptance, effective=weighted.effective_members, verdict=posterior.verdict)
    RESULT.write_text("\n".join([head, *rows, ""]))
    print("\n".join(rows))


HEAD = f"""# The posterior at order 1/n against Hamiltonian Monte Carlo

Written by `benchmarks/bayes_hmc.py` ({stamp()}; blackjax {blackjax.__version__}, jax {jax.__version__}).
tanh, two layers, width {NET.widths[1]}, {len(X)} training points, noise of variance {NOISE}; {CHAINS} chains of
{DRAWS} draws after {WARMUP} steps of adaptation, mean acceptance {{acceptance:.2f}}. Of 20000 weighted samples of the prior
{{effective:.0f}} would count. The verdict of the theory on itself: {{verdict}}.

| quantity | infinite width | order 1/n | chains ± error | pull of infinite width | pull of order 1/n |
|---|---|---|---|---|---|"""


if __name__ == "__main__":
    main()
