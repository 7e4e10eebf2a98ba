"""Phases and correlation lengths over the two variances of an initialization, or over skips."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap, SymLogNorm
from matplotlib.figure import Figure

from finitewidth.critical.phases import PhaseDiagram
from finitewidth.interface.figures.look import INK, MATRIX, PAPER, SHADE
from finitewidth.interface.figures.parts import as_records, heading, legend_below
from finitewidth.interface.figures.saving import in_house_style

_LENGTHS = (3, 10, 30, 100)  # layers, contours
_REGIONS = {"ordered": "ordered", "chaotic": "chaotic", "diverging": "signals\ndiverge"}


@in_house_style
def phase_diagrams(diagrams: PhaseDiagram | Sequence[PhaseDiagram]) -> Figure:
    """The regions in which nearby inputs merge and in which they separate, with the critical points.

    Args:
        diagrams: Results of `fw.critical.phase_diagram`, one for each panel.

    Returns:
        A matplotlib figure.

    ```python
    fw.plots.phase_diagrams(fw.critical.phase_diagram("tanh", [0.0, 0.1], [0.8, 1.0, 1.2]))
    ```
    """
    diagrams = as_records("diagrams", diagrams, PhaseDiagram, "a result of fw.critical.phase_diagram")
    figure = Figure(figsize=(4.6 * len(diagrams) + 0.9, 4.8))
    heading(figure, "which initializations allow depth")
    panels = np.atleast_1d(figure.subplots(1, len(diagrams)))
    meshes = [_draw_phases(axes, diagram) for axes, diagram in zip(panels, diagrams, strict=True)]
    bar = figure.colorbar(meshes[-1], ax=list(panels), shrink=0.8, pad=0.02)
    ticks = [-1 / 3, -0.1, 0.0, 0.1, 1 / 3]
    bar.set_ticks(ticks, labels=["merge, 3 layers", "10", "critical", "10", "separate, 3 layers"])
    bar.ax.tick_params(length=0, which="both")
    bar.ax.set_title("nearby inputs, by\ncorrelation length", fontsize=9, pad=10)
    bar.outline.set_visible(False)  # type: ignore[operator]
    if any(diagram.critical_line[0].size for diagram in diagrams):
        legend_below(figure)
    return figure


def _draw_phases(axes: Axes, diagram: PhaseDiagram) -> QuadMesh:
    """Colour shows how fast nearby inputs merge or separate; networks can be deep where it is white."""
    rate, rows = np.log(diagram.chi_perp), _rows(diagram)
    colours = LinearSegmentedColormap.from_list("rate", MATRIX[::-1])
    norm = SymLogNorm(linthresh=0.02, vmin=-1, vmax=1)
    mesh = axes.pcolormesh(diagram.C_W, rows, rate, cmap=colours, norm=norm, rasterized=True)
    axes.grid(False)
    levels = [-1 / length for length in _LENGTHS] + [1 / length for length in reversed(_LENGTHS)]
    lines = axes.contour(diagram.C_W, rows, rate, levels=levels, colors=INK, linewidths=0.7, alpha=0.35)
    axes.clabel(lines, fmt=lambda level: f"{abs(1 / level):.0f}", fontsize=8)
    if diagram.critical_line[0].size < 2:  # a line is drawn where it is known to be
        axes.contour(diagram.C_W, rows, rate, levels=[0.0], colors=INK, linewidths=1.4)
    if np.isinf(diagram.K_star).any():
        diverging = np.isinf(diagram.K_star).astype(float)
        axes.contourf(diagram.C_W, rows, diverging, levels=[0.5, 1.5], colors=SHADE)
    _name_regions(axes, diagram)
    _mark_critical(axes, diagram)
    axes.set_title(_title(diagram))
    axes.set_xlabel("weight variance C_W")
    axes.set_ylabel("skip gamma" if diagram.over_gamma else "bias variance C_b")
    return mesh


def _rows(diagram: PhaseDiagram) -> np.ndarray:
    return diagram.gamma if diagram.over_gamma else diagram.C_b


def _title(diagram: PhaseDiagram) -> str:
    name = str(diagram.activation.name)
    if diagram.over_gamma:
        return f"{name}, residual" if diagram.C_b[0] == 0 else f"{name}, residual, C_b = {diagram.C_b[0]:g}"
    return name if diagram.gamma[0] == 0 else f"{name}, gamma = {diagram.gamma[0]:g}"


def _mark_critical(axes: Axes, diagram: PhaseDiagram) -> None:
    C_W, rows = diagram.critical_line
    if C_W.size == 1:
        star = {"marker": "*", "markersize": 15, "color": PAPER, "markeredgecolor": INK, "clip_on": False}
        axes.plot(C_W, rows, linestyle="none", label="critical point", zorder=5, **star)  # type: ignore[arg-type]
    elif C_W.size:
        shown = (C_W >= diagram.C_W[0]) & (C_W <= diagram.C_W[-1])
        axes.plot(C_W[shown], rows[shown], color=INK, linewidth=2.2, label="critical", zorder=5)


def _name_regions(axes: Axes, diagram: PhaseDiagram) -> None:
    """Write its name into every region that fills a twentieth of the picture, at its middle row."""
    region = diagram.region
    for name, text in _REGIONS.items():
        inside = region == name
        if inside.mean() < 0.05:
            continue
        row = int(np.median(np.nonzero(inside)[0]))
        columns = np.flatnonzero(inside[row])
        place = diagram.C_W[int(np.median(columns))], _rows(diagram)[row]
        upright = 90 if columns.size < 0.2 * inside.shape[1] else 0  # a narrow region
        axes.text(*place, text, ha="center", va="center", fontsize=11, rotation=upright)
