"""Outputs of narrow networks are not Gaussian: the four-point vertex V says how much.

    python examples/four_point_vertex.py [--output figure.png]

Outputs of many untrained networks on one input, as a histogram. At infinite width they are Gaussian. At order
1/n the density is that Gaussian times 1 + (3 V / n K^2) He_4 / 24, where He_4 is the fourth Hermite
polynomial: more outputs near zero, fewer at one standard deviation, more far out.
"""

from collections.abc import Sequence

import jax
import numpy as np
from figure_options import figure_options
from matplotlib.figure import Figure

import finitewidth as fw
from finitewidth.interface.figures.look import ROLES
from finitewidth.interface.figures.parts import draw_line, draw_sampled, legend_below
from finitewidth.interface.figures.saving import in_house_style

X = np.array([[1.0, -1.0]])
WIDTH, DEPTH, MEMBERS = 40, 3, 50_000
BINS = np.linspace(-4, 4, 41)


def sampled_outputs(net: fw.Network, members: int) -> np.ndarray:
    """The output of each of `members` untrained networks."""
    x = jax.numpy.asarray(X)

    @jax.jit
    def some(keys):
        return jax.vmap(lambda key: fw.empirical.apply(net, fw.empirical.initialize(net, key), x)[0, 0])(keys)

    keys = jax.random.split(jax.random.key(0), members)
    return np.concatenate([some(part) for part in np.array_split(keys, max(1, members // 20_000))])


@in_house_style
def draw(theory: fw.records.Theory, outputs: np.ndarray) -> Figure:
    """The histogram beside both densities, and the ratio of each to the Gaussian."""
    output = theory.output
    z = np.linspace(-4, 4, 201)  # in standard deviations
    gauss = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    kurtosis = 3 * output.V.item() / (output.n * output.K.item() ** 2)
    first = gauss * (1 + kurtosis * (z**4 - 6 * z**2 + 3) / 24)
    counts, _ = np.histogram(outputs / np.sqrt(output.G.item()), BINS)
    middle, size = (BINS[1:] + BINS[:-1]) / 2, BINS[1] - BINS[0]
    density, stderr = (part / (outputs.size * size) for part in (counts, np.sqrt(counts)))
    figure = Figure(figsize=(8.6, 3.9))
    densities, ratios = figure.subplots(1, 2)
    look = ROLES["sampled networks"]["color"]
    densities.bar(middle, density, size, color=look, alpha=0.3, label=f"{outputs.size:,} networks")
    for axes, scale in ((densities, 1.0), (ratios, gauss)):
        draw_line(axes, z, gauss / scale, "infinite width", "infinite width: Gaussian")
        draw_line(axes, z, first / scale, "finite width", "order 1/n, with V")
        axes.set_xlabel("output, in standard deviations")
    expected = np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi)
    draw_sampled(ratios, middle, density / expected, stderr / expected, "networks, ± standard error")
    densities.set_title("density of the output")
    ratios.set_title("density over the Gaussian")
    ratios.set(xlim=(-3.2, 3.2), ylim=(0.75, 1.75))
    legend_below(figure)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "four_point_vertex", arguments)
    net = fw.MLP.critical((2, *[WIDTH] * (DEPTH - 1), 1), "relu")
    theory = fw.solve(net, X, tensors=("V",))
    fw.plots.save(draw(theory, sampled_outputs(net, 2000 if options.quick else MEMBERS)), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
