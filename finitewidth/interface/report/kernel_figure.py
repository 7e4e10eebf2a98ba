"""The figure of `finitewidth solve` with inputs alone: kernels over depth, and those of the output layer."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from finitewidth.interface.figures.parts import draw_band, draw_line, draw_matrix, heading, whole_numbers
from finitewidth.interface.figures.saving import house_style, write_figure
from finitewidth.interface.runs.layer_summary import Spread, Summary

_MOST_LABELS = 20
_MOST_MARKERS = 30


def save_kernels(summary: Summary, directory: Path) -> None:
    """Draw K and Theta over depth and of the output layer, as kernels.svg and kernels.png in `directory`."""
    with house_style():
        figure = _kernels(summary)
        for suffix in ("svg", "png"):
            write_figure(figure, directory / f"kernels.{suffix}")


def _kernels(summary: Summary) -> Figure:
    run, network, layers = summary.run, summary.run.network, summary.layers
    figure = Figure(figsize=(8.4, 7.2))
    heading(
        figure, f"{network.activation_name}, {network.depth} layers, {len(run.inputs)} inputs, infinite width"
    )
    (kernel, ntk), (kernel_matrix, ntk_matrix) = figure.subplots(2, 2)
    _draw_depth(kernel, [layer.kernel for layer in layers])
    _draw_depth(ntk, [layer.ntk for layer in layers])
    kernel.set_title("kernel K, diagonal")
    ntk.set_title("neural tangent kernel Theta, diagonal")
    figure.legend(*kernel.get_legend_handles_labels(), loc="outside upper right", ncols=2, handlelength=2.6)
    _draw_entries(kernel_matrix, summary.output_kernel)
    _draw_entries(ntk_matrix, summary.output_ntk)
    kernel_matrix.set_title("kernel K of the output layer")
    ntk_matrix.set_title("Theta of the output layer")
    return figure


def _draw_depth(axes: Axes, spreads: list[Spread]) -> None:
    depth = range(1, len(spreads) + 1)
    smallest, largest = [s.smallest for s in spreads], [s.largest for s in spreads]
    marker = "o" if len(spreads) <= _MOST_MARKERS else ""
    draw_line(axes, depth, [s.mean for s in spreads], "infinite width", "mean over inputs", marker=marker)
    draw_band(axes, depth, smallest, largest, "infinite width", "smallest to largest")
    if min(smallest) > 0 and max(largest) > 100 * min(smallest):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.08 * max(largest) or 1.0)
    axes.set_xlabel("layer")
    axes.set_xlim(0.7, len(spreads) + 0.3)
    whole_numbers(axes.xaxis)


def _draw_entries(axes: Axes, matrix: np.ndarray) -> None:
    limit = float(np.abs(matrix).max()) or 1.0
    image = draw_matrix(axes, matrix, Normalize(-limit if matrix.min() < 0 else 0.0, limit))
    if len(matrix) <= _MOST_LABELS:
        numbers = list(range(1, len(matrix) + 1))
        axes.set_xticks(numbers)
        axes.set_yticks(numbers)
    axes.set_xlabel("input")
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.04, 0.0, 0.05, 1.0)))
    bar.outline.set_visible(False)  # type: ignore[operator]
