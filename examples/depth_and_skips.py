"""How deep can a residual network be? Fluctuations over depth for several gamma, in theory and real networks.

    python examples/depth_and_skips.py [--output figure.png]

The variance of the kernel between networks, written out in NumPy, is compared with V/(n K^2) at order 1/n and
printed as a table. The second panel has the depth at which the largest ratio reaches 0.3.
"""

from collections.abc import Sequence

import numpy as np
from figure_options import figure_options

import finitewidth as fw

WIDTH, DEPTH, MEMBERS = 64, 100, 800
LAYERS = (3, 10, 30, 100)
GAMMAS = (0.0, 0.5, 0.8, 0.95)
BATCHES = 20
Sampled = dict[float, list[tuple[int, fw.Estimate]]]


def squares(curve: fw.records.Aspect, n: int, members: int, layers: Sequence[int], seed: int) -> np.ndarray:
    """Squared preactivations of some layers of critical tanh networks, (layers, members, n)."""
    rng, kept = np.random.default_rng(seed), []
    z = rng.standard_normal((members, n))  # the first layer at an input of mean square 1
    for layer in range(1, max(layers) + 1):
        if layer > 1:
            weights = rng.standard_normal((members, n, n)) * np.sqrt(curve.C_W / n)
            z = curve.gamma * z + np.einsum("mij,mj->mi", weights, np.tanh(z))
        if layer in layers:
            kept.append(z**2)
    return np.array(kept)


def fluctuation(z_squared: np.ndarray, K: float) -> fw.Estimate:
    """V/(n K^2): the covariance of the squares of two neurons over networks, (members, n)."""
    found = []
    for part in np.array_split(z_squared, BATCHES):
        (members, n), total = part.shape, part.sum(axis=1)
        pairs = (total**2 - (part**2).sum(axis=1)) / (n * (n - 1))
        product = (total.sum() ** 2 - (total**2).sum()) / (members * (members - 1) * n**2)
        found.append((pairs.mean() - product) / K**2)
    return fw.Estimate(np.mean(found), np.std(found, ddof=1) / np.sqrt(BATCHES))


def sampled_networks(curve: fw.records.Aspect, n: int, members: int, layers: Sequence[int]):
    block = fw.Residual("tanh", fw.Dense(n), gamma=curve.gamma)
    net = fw.Network.critical(1, fw.Dense(n), *[block] * (max(layers) - 1))
    theory = fw.solve(net, [[1.0]], order=0)
    parts = [squares(curve, n, members // BATCHES, layers, seed) for seed in range(BATCHES)]
    whole = np.concatenate(parts, axis=1)
    return [
        (layer, fluctuation(part, theory.layer(layer).K.item()))
        for layer, part in zip(layers, whole, strict=True)
    ]


def table(curves: Sequence[fw.records.Aspect], sampled: Sampled, width: int) -> str:
    lines = ["| gamma | layer | V/(n K²), theory | sampled networks |", "|---|---|---|---|"]
    for curve in curves:
        for layer, estimate in sampled.get(curve.gamma, []):
            theory = curve.curve[layer - 1] / width
            value = f"{estimate.value:.3f} ± {estimate.stderr:.3f}"
            lines.append(f"| {curve.gamma:g} | {layer} | {theory:.3f} | {value} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "depth_and_skips", arguments)
    width, depth, members, layers = (
        (WIDTH, DEPTH, MEMBERS, LAYERS) if not options.quick else (8, 10, 40, (3,))
    )
    gammas = GAMMAS[1:2] if options.quick else GAMMAS
    curves = [fw.critical.aspect("tanh", depth=depth, gamma=gamma) for gamma in gammas]
    sampled = {curve.gamma: sampled_networks(curve, width, members, layers) for curve in curves}
    wide = 20 if options.quick else 1000
    over, names = np.linspace(0.0, 0.95, 20), ("tanh", "linear", "relu")[bool(options.quick) :]
    limits = [[fw.critical.aspect(name, width=wide, gamma=float(gamma)) for gamma in over] for name in names]
    fw.plots.save(fw.plots.depth_and_skips(curves, limits, sampled, width=width), options.output)
    print(table(curves, sampled, width))
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
