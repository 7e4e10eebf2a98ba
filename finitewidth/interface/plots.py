"""Figures, from records; nothing is computed here."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from finitewidth.interface.look import MATRIX, ROLES
from finitewidth.interface.results import Spread, Summary
from finitewidth.interface.saving import house_style, write_figure

_MOST_LABELS = 20
_MOST_MARKERS = 30
_LENGTHS = (3, 10, 30, 100)  # layers, contours of a phase diagram


def save_kernels(summary: Summary, directory: Path) -> None:
    """K and Theta over depth and the output's Theta, as kernels.svg and kernels.png."""
    _save(lambda: _kernels(summary), directory, "kernels", ("svg", "png"))


def save_phase_diagrams(diagrams: Sequence, directory: Path) -> None:
    """Phases and correlation lengths side by side, critical points marked, as phase_diagram.png."""
    _save(lambda: _phase_diagrams(diagrams), directory, "phase_diagram", ("png",))


def _save(draw: Callable[[], Figure], directory: Path, name: str, suffixes: tuple[str, ...]) -> None:
    with house_style():
        figure = draw()
        for suffix in suffixes:
            write_figure(figure, directory / f"{name}.{suffix}")


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


def _phase_diagrams(diagrams: Sequence) -> Figure:
    figure = Figure(figsize=(4.6 * len(diagrams) + 0.9, 4.6))
    panels = np.atleast_1d(figure.subplots(1, len(diagrams)))
    for axes, diagram in zip(panels, diagrams, strict=True):
        image = _draw_phases(axes, diagram)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.8, pad=0.02)
    ticks = [-1 / 3, -0.1, 0.0, 0.1, 1 / 3]
    bar.set_ticks(ticks, labels=["merge, 3 layers", "10", "critical", "10", "separate, 3 layers"])
    bar.ax.tick_params(length=0, which="both")
    bar.ax.set_title("nearby inputs, by\ncorrelation length", fontsize=9, pad=10)
    bar.outline.set_visible(False)
    return figure


def _draw_phases(axes: Axes, diagram):
    """Colour is the rate at which nearby inputs merge or separate: white is where depth is possible."""
    rate = np.log(diagram.chi_perp)
    colours = LinearSegmentedColormap.from_list("rate", MATRIX[::-1])
    norm = SymLogNorm(linthresh=0.02, vmin=-1, vmax=1)
    image = axes.pcolormesh(diagram.C_W, diagram.C_b, rate, cmap=colours, norm=norm, rasterized=True)
    axes.grid(False)
    levels = [-1 / length for length in _LENGTHS] + [1 / length for length in reversed(_LENGTHS)]
    lines = axes.contour(diagram.C_W, diagram.C_b, rate, levels=levels, colors="#00000055", linewidths=0.7)
    axes.clabel(lines, fmt=lambda level: f"{abs(1 / level):.0f}", fontsize=8)
    axes.contour(diagram.C_W, diagram.C_b, rate, levels=[0.0], colors="black", linewidths=1.4)
    if np.isinf(diagram.K_star).any():
        diverging = np.isinf(diagram.K_star).astype(float)
        axes.contourf(diagram.C_W, diagram.C_b, diverging, levels=[0.5, 1.5], colors="#E6E6E6")
    _name_regions(axes, diagram)
    point = diagram.point
    if point.C_W is not None:
        look = {
            "marker": "*",
            "markersize": 15,
            "color": "white",
            "markeredgecolor": "black",
            "clip_on": False,
        }
        axes.plot([point.C_W], [point.C_b], linestyle="none", label="critical point", zorder=5, **look)
        axes.legend(loc="upper left", frameon=True, framealpha=0.9, edgecolor="none")
    axes.set_title(diagram.activation.name)
    axes.set_xlabel("weight variance C_W")
    axes.set_ylabel("bias variance C_b")
    return image


def _name_regions(axes: Axes, diagram) -> None:
    """The name of each region that fills a twentieth of the picture, at its middle row."""
    words = {"ordered": "ordered", "chaotic": "chaotic", "diverging": "signals\ndiverge"}
    region = diagram.region
    for name, text in words.items():
        inside = region == name
        if inside.mean() < 0.05:
            continue
        row = int(np.median(np.nonzero(inside)[0]))
        columns = np.flatnonzero(inside[row])
        place = diagram.C_W[int(np.median(columns))], diagram.C_b[row]
        upright = 90 if columns.size < 0.2 * inside.shape[1] else 0  # a narrow region
        axes.text(*place, text, ha="center", va="center", fontsize=11, rotation=upright)
