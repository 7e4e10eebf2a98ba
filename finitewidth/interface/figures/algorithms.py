"""Effects of algorithm, depth and width on predictions: heat maps of projectors, expected losses."""

import numpy as np
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure

from finitewidth.interface.figures.look import INK, MARKERS, SERIES
from finitewidth.interface.figures.parts import (
    draw_line,
    draw_matrix,
    heading,
    legend_below,
    require,
    whole_numbers,
)
from finitewidth.interface.figures.saving import in_house_style
from finitewidth.training.depth_and_width import ExpectedLoss
from finitewidth.training.first_order.inductive_bias import InductiveBias

_TICKS = (-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100)


@in_house_style
def inductive_bias(bias: InductiveBias) -> Figure:
    """The weight that each algorithm gives to pairs of modes: one heat map of Z_A / Z_B for each.

    Args:
        bias: A result of `fw.textbook.inductive_bias`.

    Returns:
        A matplotlib figure.

    ```python
    fw.plots.inductive_bias(fw.textbook.inductive_bias(fw.prepare(net, X, Y, X_test)))
    ```
    """
    require("bias", bias, InductiveBias, "a result of fw.textbook.inductive_bias")
    names = [name for name, ratio in bias.ratios.items() if ratio.any()]
    if not names:
        raise ValueError("bias has only algorithms whose projector Z_A is zero; add GradientFlow().")
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(0.8 + 2.9 * columns, 0.7 + 2.7 * rows))
    heading(figure, "what an algorithm adds to the universal projector (two-step update: nothing)")
    largest = max(np.abs(ratio).max() for ratio in bias.ratios.values())
    norm = SymLogNorm(linthresh=1.0, vmin=-largest, vmax=largest)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    image = None
    for axes, name in zip(grid.flat, names, strict=False):
        image = draw_matrix(axes, bias.ratios[name], norm, upward=True)
        axes.set_title(name)
        axes.set_xlabel("mode b, slow to fast")
        axes.set_ylabel("mode a, slow to fast")
        whole_numbers(axes.xaxis)
        whole_numbers(axes.yaxis)
    assert image is not None  # there are names
    bar = figure.colorbar(image, ax=grid, shrink=0.8)
    bar.set_label("ratio of projectors, Z_A / Z_B")
    ticks = [tick for tick in _TICKS if abs(tick) <= largest]
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)  # type: ignore[operator]
    return figure


@in_house_style
def expected_loss(expected: ExpectedLoss) -> Figure:
    """Expected test loss over depth for each width, and the coefficient of depth over width.

    Args:
        expected: A result of `fw.expected_loss`.

    Returns:
        A matplotlib figure.

    ```python
    losses = fw.expected_loss(net, X, Y, X_test, Y_test, depths=(2, 3), widths=(256, 512))
    fw.plots.expected_loss(losses)
    ```
    """
    require("expected", expected, ExpectedLoss, "a result of fw.expected_loss")
    figure = Figure(figsize=(9.0, 4.6))
    heading(figure, "expected test loss through order 1/n")
    losses, slopes = figure.subplots(1, 2)
    draw_line(losses, expected.depths, expected.infinite_total, "infinite width", "infinite width")
    for index, width in enumerate(expected.widths):
        role, marker = SERIES[index % len(SERIES)], MARKERS[index % len(MARKERS)]
        draw_line(
            losses, expected.depths, expected.total[:, index], role, f"width {width:.0f}", marker=marker
        )
    losses.set_title("expected test loss")
    parts = (expected.coefficient, expected.bias_coefficient, expected.variance_coefficient)
    slopes.axhline(0.0, color=INK, lw=0.8)
    names = ("total", "from the bias", "from the variance")
    for index, (name, values) in enumerate(zip(names, parts, strict=True)):
        draw_line(slopes, expected.depths, values, SERIES[index], name, marker=MARKERS[2 + index])
    slopes.set_title("coefficient of L/n: finite width helps below zero")
    for axes in (losses, slopes):
        axes.set_xlabel("depth L")
        whole_numbers(axes.xaxis)
    legend_below(figure)
    return figure
