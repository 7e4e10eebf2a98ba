"""Figures of learning at finite width, from records; nothing is computed here."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from finitewidth.interface.look import MATRIX, ROLES
from finitewidth.interface.saving import save_figure
from finitewidth.training.depth_and_width import ExpectedLoss
from finitewidth.training.inductive_bias import InductiveBias

_SERIES = ("finite width", "sampled networks", "further series", "one more series")
_MARKERS = "osD^v"


def save_inductive_bias(found: InductiveBias, path: str | Path) -> None:
    """How each algorithm weighs pairs of modes: one heat map each."""
    save_figure(lambda: _inductive_bias(found), path)


def save_expected_loss(found: ExpectedLoss, path: str | Path) -> None:
    """Expected loss over depth for each width, and the coefficient of depth over width."""
    save_figure(lambda: _expected_loss(found), path)


def _inductive_bias(found: InductiveBias) -> Figure:
    names = [name for name, ratio in found.ratios.items() if ratio.any()]
    columns = 3
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(9.0, 0.9 + 3.0 * rows))
    figure.suptitle(
        "what an algorithm adds to the universal projector: Z_A / Z_B for modes a, b (two-step: zero)",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    largest = max(np.abs(ratio).max() for ratio in found.ratios.values())
    colours = LinearSegmentedColormap.from_list("signed", MATRIX)
    norm = SymLogNorm(linthresh=1.0, vmin=-largest, vmax=largest)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(grid.flat, names, strict=False):
        edges = (0.5, found.eigenvalues.size + 0.5)  # modes are counted from one
        image = axes.imshow(
            found.ratios[name], cmap=colours, norm=norm, origin="lower", extent=(*edges, *edges)
        )
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("mode b, slow to fast")
        axes.set_ylabel("mode a, slow to fast")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(False)
    bar = figure.colorbar(image, ax=grid, shrink=0.8)
    bar.set_label("Z_A / Z_B")
    return figure


def _expected_loss(found: ExpectedLoss) -> Figure:
    figure = Figure(figsize=(9.0, 4.0))
    figure.suptitle("expected test loss through order 1/n", x=0.01, ha="left", fontsize=11)
    losses, slopes = figure.subplots(1, 2)
    look = ROLES["infinite width"]
    losses.plot(
        found.depths,
        found.infinite_total,
        color=look["color"],
        lw=look["linewidth"],
        dashes=look["dashes"],
        label="infinite width",
    )
    for index, width in enumerate(found.widths):
        style = dict(color=ROLES[_SERIES[index % 4]]["color"], marker=_MARKERS[index % 5])
        losses.plot(found.depths, found.total[:, index], label=f"width {width:.0f}", **style)
    losses.set_title("expected test loss")
    losses.set_xlabel("depth L")
    losses.legend()
    _draw_slopes(slopes, found)
    for axes in (losses, slopes):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _draw_slopes(axes: Axes, found: ExpectedLoss) -> None:
    parts = {
        "total": (found.coefficient, "finite width", "o"),
        "bias": (found.bias_coefficient, "further series", "D"),
        "variance": (found.variance_coefficient, "one more series", "^"),
    }
    axes.axhline(0.0, color="#000000", lw=0.8)
    for name, (values, role, marker) in parts.items():
        axes.plot(found.depths, values, color=ROLES[role]["color"], marker=marker, label=name)
    axes.set_title("coefficient of L/n; below zero finite width helps")
    axes.set_xlabel("depth L")
    axes.legend()
