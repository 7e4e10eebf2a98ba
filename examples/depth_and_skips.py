"""How deep can a residual network be? Fluctuations over depth for several gamma, in theory and real networks.

    python examples/depth_and_skips.py [--output figure.png]

The variance of the kernel between sampled networks is compared with V/(n K^2) at order 1/n, and printed as a
table. The second panel has the depth at which the largest ratio reaches 0.3.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from figure_options import figure_options

import finitewidth as fw

WIDTH, DEPTH, MEMBERS = 64, 100, 400
LAYERS = (10, 100)
GAMMAS = (0.0, 0.5, 0.8, 0.95)


def network(activation: str, depth: int, n: int, gamma: float) -> fw.Network:
    """Critical layers with skips, all of width n."""
    block = fw.Residual(activation, fw.Dense(n), gamma=gamma)
    return fw.Network.critical(1, fw.Dense(n), *[block] * (depth - 1))


def fluctuation(net: fw.Network, members: int, batches: int = 20) -> fw.Estimate:
    """V/(n K^2) of the last layer: the covariance of the squares of two neurons over networks."""
    n, K = net.outputs, fw.kernels(net, [[1.0]]).K.item()
    draw = jax.jit(jax.vmap(lambda key: fw.apply(net, fw.initialize(net, key), jnp.ones((1, 1)))[0]))
    found = []
    for keys in jax.random.split(jax.random.key(0), (batches, members // batches)):
        squares = np.asarray(draw(keys)) ** 2
        total = squares.sum(axis=1)
        pairs = (total**2 - (squares**2).sum(axis=1)) / (n * (n - 1))
        product = (total.sum() ** 2 - (total**2).sum()) / (len(total) * (len(total) - 1) * n**2)
        found.append((pairs.mean() - product) / K**2)
    return fw.Estimate(np.mean(found), np.std(found, ddof=1) / np.sqrt(batches))


def table(
    curves: Sequence[fw.Aspect], sampled: dict[float, list[tuple[int, fw.Estimate]]], width: int
) -> str:
    lines = ["| gamma | layer | V/(n K²), theory | sampled networks |", "|---|---|---|---|"]
    for curve in curves:
        for layer, estimate in sampled.get(curve.gamma, []):
            theory = curve.curve[layer - 1] / width
            lines.append(
                f"| {curve.gamma:g} | {layer} | {theory:.3f} | {estimate.value:.3f} ± {estimate.stderr:.3f} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "depth_and_skips", arguments)
    width, depth, members, layers = (
        (WIDTH, DEPTH, MEMBERS, LAYERS) if not options.quick else (8, 10, 40, (3,))
    )
    gammas = GAMMAS[1:2] if options.quick else GAMMAS
    curves = [fw.aspect("tanh", depth=depth, gamma=gamma) for gamma in gammas]
    sampled = {
        gamma: [(layer, fluctuation(network("tanh", layer, width, gamma), members)) for layer in layers]
        for gamma in gammas
    }
    over = np.linspace(0.0, 0.95, 20)
    names = ("linear", "relu") if options.quick else ("linear", "tanh", "relu")
    limits = [[fw.aspect(name, width=width, gamma=float(gamma)) for gamma in over] for name in names]
    fw.plots.save(fw.plots.depth_and_skips(curves, limits, sampled, width=width), options.output)
    print(table(curves, sampled, width))
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
