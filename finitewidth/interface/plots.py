"""Figures, from records; nothing is computed here."""

from importlib.resources import as_file, files
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from finitewidth.interface.look import MATRIX, ROLES
from finitewidth.interface.results import Spread, Summary

_MOST_LABELS = 20
_MOST_MARKERS = 30


def save_kernels(summary: Summary, directory: Path) -> None:
    """K and Theta over depth and the output's Theta, as kernels.svg and kernels.png."""
    with as_file(files("finitewidth.interface") / "finitewidth.mplstyle") as style:
        rules = matplotlib.rc_params_from_file(style, use_default_template=False)
    with matplotlib.rc_context(rules):
        figure = _kernels(summary)
        for suffix in ("svg", "png"):
            # no date inside: the same run writes the same bytes
            metadata = {"Date": None} if suffix == "svg" else {}
            figure.savefig(directory / f"kernels.{suffix}", metadata=metadata)


def _kernels(summary: Summary) -> Figure:
    run, network, layers = summary.run, summary.run.network, summary.layers
    figure = Figure(figsize=(8.4, 7.2))
    figure.suptitle(
        f"{network.activation.name}, {network.depth} layers, {len(run.inputs)} inputs, infinite width",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    (kernel, ntk), (kernel_matrix, ntk_matrix) = figure.subplots(2, 2)
    _draw_depth(kernel, [layer.kernel for layer in layers])
    _draw_depth(ntk, [layer.ntk for layer in layers])
    kernel.set_title("kernel K, diagonal")
    ntk.set_title("neural tangent kernel Theta, diagonal")
    figure.legend(*kernel.get_legend_handles_labels(), loc="outside upper right", ncols=2, handlelength=2.6)
    _draw_matrix(kernel_matrix, summary.output_kernel, run.labels)
    _draw_matrix(ntk_matrix, summary.output_ntk, run.labels)
    kernel_matrix.set_title("kernel K of the output layer")
    ntk_matrix.set_title("Theta of the output layer")
    return figure


def _draw_depth(axes: Axes, spreads: list[Spread]) -> None:
    depth = range(1, len(spreads) + 1)
    smallest, largest = [s.smallest for s in spreads], [s.largest for s in spreads]
    look, band = ROLES["infinite width"], ROLES["infinite width, band"]
    marker = "o" if len(spreads) <= _MOST_MARKERS else ""
    mean = [s.mean for s in spreads]
    axes.plot(depth, mean, color=look["color"], lw=look["linewidth"], label="mean over inputs", marker=marker)
    axes.lines[0].set_dashes(look["dashes"])
    axes.fill_between(depth, smallest, largest, lw=0, label="smallest to largest", **band)
    if min(smallest) > 0 and max(largest) > 100 * min(smallest):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.08 * max(largest) or 1.0)
    axes.set_xlabel("layer")
    axes.set_xlim(0.7, len(spreads) + 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _draw_matrix(axes: Axes, matrix: np.ndarray, labels: tuple[str, ...] | None) -> None:
    limit = float(np.abs(matrix).max()) or 1.0
    signed = matrix.min() < 0
    colours = LinearSegmentedColormap.from_list("entries", MATRIX if signed else MATRIX[1:])
    lowest = -limit if signed else 0.0  # white is zero in both
    count = len(matrix)
    edges = (0.5, count + 0.5, count + 0.5, 0.5)  # inputs are numbered from 1
    image = axes.imshow(matrix, cmap=colours, vmin=lowest, vmax=limit, extent=edges, interpolation="nearest")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if count <= _MOST_LABELS:
        numbers = list(range(1, count + 1))
        shown = labels or [str(number) for number in numbers]
        axes.set_xticks(numbers, shown)
        axes.set_yticks(numbers, shown)
    axes.set_xlabel("digit" if labels else "input")
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.04, 0.0, 0.05, 1.0)))
    bar.outline.set_visible(False)
