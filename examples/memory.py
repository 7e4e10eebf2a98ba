"""The memory of a neuron: tensors of residual networks with and without it, beside sampled networks.

    python examples/memory.py [--output figure.png]

Networks of three and four layers with skips are sampled at two widths and extrapolated in 1/n. Theory with
`remember=False` keeps what the usual recursion on pairs of neurons keeps.
"""

from collections.abc import Sequence

from figure_options import figure_options

import finitewidth as fw

NAMES = ("G1", "H1", "V", "D", "A", "F", "B")
WIDTHS, MEMBERS = (12, 24), 60_000
NETWORKS = {  # activation, gammas of the residual layers, C_W
    "gelu, 3 layers": ("gelu", (0.8,), 1.0),
    "gelu, 4 layers": ("gelu", (0.8, 0.8), 1.0),
    "tanh, 3 layers": ("tanh", (0.9,), 2.0),
    "tanh, 4 layers": ("tanh", (0.9, 0.9), 2.0),
}


def network(n: int, activation: str, gammas: Sequence[float], C_W: float) -> fw.Network:
    def dense(width: int) -> fw.Dense:
        return fw.Dense(width, C_b=0.1, C_W=C_W, lambda_b=0.5)

    blocks = [fw.Residual(activation, dense(n), gamma=gamma) for gamma in gammas]
    return fw.Network(1, dense(n), *blocks, activation, dense(8))


def estimates(nets: Sequence[fw.Network], theory: fw.records.Theory, members: int) -> dict[str, fw.Estimate]:
    """The limits at 1/n = 0 of the straight lines in 1/n through two widths."""
    tensors = tuple(name for name in NAMES if name not in ("G1", "H1"))
    sampled = [fw.sample_statistics(net, [[1.0]], members, key=1, tensors=tensors) for net in nets]
    limits = {}
    for name in NAMES:
        narrow, wide = (_stripped(one, theory, name) for one in sampled)
        stderr = (narrow.stderr**2 + 4 * wide.stderr**2) ** 0.5
        limits[name] = fw.Estimate(2 * wide.value - narrow.value, stderr)  # widths n and 2 n
    return limits


def _stripped(sampled: fw.records.SampledStatistics, theory: fw.records.Theory, name: str) -> fw.Estimate:
    if name not in ("G1", "H1"):
        return getattr(sampled, name)
    mean, limit = (sampled.G, theory.output.K) if name == "G1" else (sampled.H, theory.output.Theta)
    return fw.Estimate(sampled.n * (mean.value - limit), sampled.n * mean.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "memory", arguments)
    titles = list(NETWORKS)[:1] if options.quick else list(NETWORKS)
    widths, members = ((2, 4), 2000) if options.quick else (WIDTHS, MEMBERS)
    theories, without, sampled = [], [], []
    for title in titles:
        nets = [network(n, *NETWORKS[title]) for n in widths]
        theories.append(fw.solve(nets[0], [[1.0]]))
        without.append(fw.solve(nets[0], [[1.0]], method=fw.Tensors(remember=False)))
        sampled.append(estimates(nets, theories[-1], members))
    fw.plots.save(fw.plots.memory(theories, without, sampled, titles), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
