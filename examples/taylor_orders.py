"""What dNTK and ddNTK are: curvature and third derivative of an output along a step of training.

    python examples/taylor_orders.py [--output figure.png]

The parameters of one network move along the gradient of its loss, by ever longer steps. The straight line
knows the NTK alone, which is infinite width. The figure shows what is left beyond that line: the parabola
adds the dNTK, the cubic the first ddNTK.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from figure_options import figure_options
from matplotlib.figure import Figure

import finitewidth as fw
from finitewidth.experiment.sampling import rates
from finitewidth.interface.figures.parts import draw_line, heading, legend_below
from finitewidth.interface.figures.saving import in_house_style

X, Y = jnp.array([[1.2, -0.4], [-0.5, 1.1]]), jnp.array([[1.5], [-1.0]])
TEST = jnp.array([[1.0, 0.6]])
WIDTHS = (16, 64, 256)
MODELS = {
    1: ("infinite width", "straight line: NTK alone"),
    2: ("further series", "parabola: NTK and dNTK"),
    3: ("finite width", "cubic: NTK, dNTK and first ddNTK"),
    0: ("sampled networks", "the network itself"),
}


def beyond_the_line(width: int, steps: np.ndarray) -> dict[int, np.ndarray]:
    """Test outputs of the network (0) and of its Taylor models, minus the linear one, after each step.

    Steps are in units of the change that the linear model makes.
    """
    net = fw.MLP((2, width, width, 1), "tanh", C_b=0.1, C_W=1.5)
    start = fw.empirical.initialize(net, 3)
    gradient = jax.grad(lambda theta: jnp.sum((fw.empirical.apply(net, theta, X) - Y) ** 2) / 2)(start)
    direction = jax.tree.map(lambda rate, part: -rate * part, rates(net), gradient)
    models = {
        k: fw.empirical.taylor(net, start, k) if k else lambda theta, x: fw.empirical.apply(net, theta, x)
        for k in MODELS
    }
    _, slope = jax.jvp(lambda theta: fw.empirical.apply(net, theta, TEST)[0, 0], (start,), (direction,))

    def at(model):
        def one(step):
            theta = jax.tree.map(lambda part, way: part + step / jnp.abs(slope) * way, start, direction)
            return model(theta, TEST)[0, 0]

        return np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(steps)))

    values = {k: at(model) for k, model in models.items()}
    return {k: value - values[1] for k, value in values.items()}


@in_house_style
def draw(widths: Sequence[int], steps: np.ndarray) -> Figure:
    """One panel for each width."""
    figure = Figure(figsize=(0.8 + 2.8 * len(widths), 3.9))
    heading(figure, "a test output along one step of training, minus its linear model")
    grid = figure.subplots(1, len(widths), squeeze=False, sharey=True)[0]
    for axes, width in zip(grid, widths, strict=True):
        values = beyond_the_line(width, steps)
        for k, (role, label) in MODELS.items():
            more = {"marker": "o", "markevery": max(1, len(steps) // 8), "linewidth": 0.8} if k == 0 else {}
            draw_line(axes, steps, values[k], role, label, **more)
        axes.set_title(f"width {width}")
        axes.set_xlabel("change by the linear model")
    grid[0].set_ylabel("output minus linear model")
    legend_below(figure)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "taylor_orders", arguments)
    widths, count = ((4,), 9) if options.quick else (WIDTHS, 65)
    fw.plots.save(draw(widths, np.linspace(0, 3, count)), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
