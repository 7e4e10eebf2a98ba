"""300 digits of ten classes: shift of the variance, and test loss and accuracy over width.

    python examples/many_digits_loss.py [--output figure.png]

The numbers are those of benchmarks/many_points/digits.py, which takes an hour. After 1000 steps these widths
are too small for order 1/n, which the figure shows and says.
"""

from collections.abc import Sequence

import numpy as np
from figure_options import figure_options
from many_digits import STEPS, results, scatter
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import finitewidth as fw
from finitewidth.interface.figures.parts import draw_line, draw_sampled, legend_below, numbers_on_log_axis
from finitewidth.interface.figures.saving import in_house_style

VARIANCE_WIDTHS, GROUPS = (128, 256), 10
BEYOND = 0.5  # of the predicted shift of the mean: where networks move by less, order 1/n is beyond its range


def beyond_range(rows: list[dict]) -> bool:
    """Whether networks of all these widths move by less than half of what order 1/n predicts."""
    return max(row["mean"]["slope"] for row in rows) < BEYOND


def draw_order_1(axes: Axes, widths: np.ndarray, values: np.ndarray, *, beyond: bool) -> None:
    """Order 1/n over width: a thin and dotted line where it is beyond its range."""
    if not beyond:
        draw_line(axes, widths, values, "finite width", "theory at order 1/n")
        return
    label = "theory at order 1/n, beyond its range"
    draw_line(axes, widths, values, "finite width", label, linewidth=1.2, linestyle=":")


def over_width(axes: Axes, rows: list[dict], index: int) -> None:
    """Both theories and trained networks over width."""
    widths = np.array([row["width"] for row in rows])
    answers = {
        name: np.array([row["answers"][name][index] for row in rows])
        for name in ("infinite", "order_1", "measured", "measured_error")
    }
    draw_line(axes, widths, answers["infinite"], "infinite width", "theory at infinite width")
    draw_order_1(axes, widths, answers["order_1"], beyond=beyond_range(rows))
    label = "trained networks, ± standard error"
    draw_sampled(axes, widths, answers["measured"], answers["measured_error"], label)
    axes.set_xscale("log")
    numbers_on_log_axis(axes.xaxis, widths)
    axes.set_xlabel("width")


@in_house_style
def draw(rows: list[dict]) -> Figure:
    """The variance at two widths, then loss and accuracy for each number of steps."""
    stops = sorted({row["steps"] for row in rows})
    figure = Figure(figsize=(9.6, 6.6))
    grid = figure.subplots(2, 1 + len(stops))
    for axes, width in zip(grid[:, 0], VARIANCE_WIDTHS, strict=True):
        (shown,) = (row for row in rows if row["steps"] == STEPS and row["width"] == width)
        scatter(axes, shown, ("variance", "measured_variance"), GROUPS, "the variance")
        axes.set_title(f"width {width}, {STEPS} steps")
        axes.set_ylabel("shift of the variance")
    for column, steps in zip(grid.T[1:], stops, strict=True):
        chosen = sorted((row for row in rows if row["steps"] == steps), key=lambda row: row["width"])
        for index, (axes, name) in enumerate(zip(column, ("loss", "accuracy"), strict=True)):
            over_width(axes, chosen, index)
            beyond = "\norder 1/n is beyond its range" if beyond_range(chosen) else ""
            axes.set_title(f"test {name}, {steps} steps{beyond}")
    legend_below(figure)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "many_digits_loss", arguments)
    fw.plots.save(draw(results()), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
