"""Residual networks with kinked activations at order 1/n against sampled networks, extrapolated in 1/n.

    python -m benchmarks.tensors.sampled_kinks [members]

writes `benchmarks/tensors/results/sampled_kinks.md`. The sampler is that of the tests and knows no theory.
"""

import sys
import time
from pathlib import Path

import numpy as np
from helpers.sampled_networks import extrapolated
from helpers.sampled_streams import stream_statistics

import finitewidth as fw
from finitewidth.core.estimate import Estimate

X = np.array([[1.0, 0.5], [-0.3, 1.2]])
WIDTHS = (16, 32, 64)
NAMES = ("G1", "H1", "V", "D", "A", "F", "B")


def dense(n: int, C_W: float) -> fw.Dense:
    return fw.Dense(n, 0.1, C_W, 0.5, 0.8)


def network(n: int, *blocks, last: str = "relu") -> fw.Network:
    return fw.Network(2, dense(n, 1.2), *blocks, last, dense(1, 1.3))


def three_layers(n):
    return network(n, fw.Residual("relu", dense(n, 0.9), gamma=0.8))


def four_layers(n):
    return network(n, *[fw.Residual("relu", dense(n, 0.9), gamma=0.8)] * 2)


def leaky(n):
    blocks = [fw.Residual("leaky_relu(0.3)", dense(n, 0.8), gamma=gamma) for gamma in (0.9, 0.6)]
    return network(n, *blocks, last="leaky_relu(0.3)")


def body_of_two(n):
    return network(n, fw.Residual("relu", dense(2 * n, 1.4), "relu", dense(n, 0.8), gamma=0.8))


def mixed(n):
    blocks = fw.Residual("gelu", dense(n, 0.9), gamma=0.7), fw.Residual("relu", dense(n, 0.9), gamma=-0.8)
    return network(n, *blocks, last="hardtanh")


CASES = {
    "relu, three layers, gamma 0.8": three_layers,
    "relu, four layers, gamma 0.8": four_layers,
    "leaky_relu(0.3), four layers, gamma 0.9 and 0.6": leaky,
    "relu, body of two layers, the first twice as wide, gamma 0.8": body_of_two,
    "gelu, relu and hardtanh, four layers, gamma 0.7 and -0.8": mixed,
}


def measured(make, members: int) -> dict[str, Estimate]:
    """Every statistic at 1/n = 0."""
    infinite = fw.solve(make(16), X, order=0).output
    means = {"G1": ("G", infinite.K), "H1": ("H", infinite.Theta)}
    sampled = [stream_statistics(make(n), X, members, seed=n) for n in WIDTHS]
    found = {}
    for name in NAMES:
        key, value = means.get(name, (name, 0.0))
        scales = WIDTHS if name in means else (1,) * len(WIDTHS)
        estimates = [
            Estimate(scale * (one[key].value - value), scale * one[key].stderr)
            for scale, one in zip(scales, sampled, strict=True)
        ]
        found[name] = extrapolated(WIDTHS, estimates)
    return found


def rows(title: str, make, members: int) -> list[str]:
    start = time.perf_counter()
    theory = [fw.solve(make(16), X, method=fw.Tensors(remember=memory)).output for memory in (True, False)]
    seconds = time.perf_counter() - start
    found, lines = measured(make, members), []
    for name in NAMES:
        estimate, (exact, paired) = found[name], (getattr(one, name) for one in theory)
        pulls, without = (np.abs(one - estimate.value) / estimate.stderr for one in (exact, paired))
        largest = np.abs(exact).max()
        lines.append(
            f"| {title} | {name} | {largest:.4g} | {100 * estimate.stderr.max() / largest:.1f} % "
            f"| {pulls.max():.1f} | {without.max():.1f} |"
        )
    print("\n".join(lines), f"\n({seconds:.0f} s for the theory)", flush=True)
    return lines


def main() -> None:
    members = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    table = [line for title, make in CASES.items() for line in rows(title, make, members)]
    text = f"""# Residual networks with kinks: theory against sampled networks

Made by `benchmarks/tensors/sampled_kinks.py`. Two inputs, layers counted with the readout, {members:,}
networks at each of the widths {", ".join(map(str, WIDTHS))}, extrapolated to 1/n = 0 by a parabola in 1/n.
Pulls are the largest of all entries; below 4 was asked for. The last column is `remember=False`, which leaves
out what a neuron remembers beyond pairs.

| network | statistic | largest entry | standard error | largest pull | pull without memory |
|---|---|---|---|---|---|
""" + "\n".join(table)
    (Path(__file__).parent / "results" / "sampled_kinks.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
