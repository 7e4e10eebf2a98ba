"""Every network has a neural tangent kernel of its own: how much they differ, at three widths.

    python examples/ntk_fluctuation.py [--output figure.png]

The NTK of one input for many untrained networks, as histograms. The tensors A and B give their standard
deviation, the root of (A + 2 B) / n, and H1 / n gives the shift of their mean. Both vanish at infinite width.
"""

from collections.abc import Sequence

import jax
import numpy as np
from figure_options import figure_options
from matplotlib.figure import Figure

import finitewidth as fw
from finitewidth.experiment.sampling import rates
from finitewidth.interface.figures.look import ROLES
from finitewidth.interface.figures.parts import draw_band, draw_line, legend_below
from finitewidth.interface.figures.saving import in_house_style

X = np.array([[1.0, -1.0]])
WIDTHS, MEMBERS = (16, 64, 256), 4000


def network(width: int) -> fw.MLP:
    return fw.MLP.critical((2, width, width, width, 1), "tanh")


def sampled_ntks(net: fw.Network, members: int) -> np.ndarray:
    """The NTK of each of `members` untrained networks on the input."""
    x, scales = jax.numpy.asarray(X), rates(net)

    @jax.jit
    def of_one(key):
        slopes = jax.grad(lambda theta: fw.empirical.apply(net, theta, x)[0, 0])(
            fw.empirical.initialize(net, key)
        )
        parts = jax.tree.map(lambda rate, slope: rate * jax.numpy.sum(slope**2), scales, slopes)
        return sum(jax.tree.leaves(parts))

    return np.asarray(jax.lax.map(of_one, jax.random.split(jax.random.key(0), members), batch_size=100))


@in_house_style
def draw(theories: Sequence[fw.records.Theory], samples: Sequence[np.ndarray]) -> Figure:
    """One histogram for each width; the band is the predicted mean ± standard deviation."""
    figure = Figure(figsize=(0.8 + 2.8 * len(theories), 3.7))
    grid = figure.subplots(1, len(theories), squeeze=False, sharex=True)[0]
    for axes, theory, ntks in zip(grid, theories, samples, strict=True):
        output = theory.output
        look = ROLES["sampled networks"]["color"]
        axes.hist(ntks, 25, density=True, color=look, alpha=0.45, label="sampled networks")
        top = axes.get_ylim()[1]
        mean, std = output.H.item(), np.sqrt((output.A.item() + 2 * output.B.item()) / output.n)
        draw_band(
            axes, [mean - std, mean + std], 0, top, "finite width", "order 1/n: mean ± standard deviation"
        )
        draw_line(axes, [mean, mean], [0, top], "finite width")
        draw_line(axes, [output.Theta.item()] * 2, [0, top], "infinite width", "infinite width")
        axes.set(xlabel="NTK of the input", xlim=(0, 4), ylim=(0, top), yticks=[])
        axes.set_title(f"width {output.n}: std {std:.2f}, sampled {ntks.std(ddof=1):.2f}")
    legend_below(figure)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "ntk_fluctuation", arguments)
    nets = [network(width) for width in ((8,) if options.quick else WIDTHS)]
    theories = [fw.solve(net, X, tensors=("A", "B")) for net in nets]
    samples = [sampled_ntks(net, 100 if options.quick else MEMBERS) for net in nets]
    fw.plots.save(draw(theories, samples), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
