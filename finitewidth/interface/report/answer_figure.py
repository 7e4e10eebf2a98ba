"""The figure of `finitewidth solve`: answers of trained networks, predicted at both orders and measured."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.interface.figures.look import ROLES
from finitewidth.interface.figures.saving import house_style, write_figure
from finitewidth.interface.runs.answers import Row

_MOST = 24  # answers that fit side by side; the store and --json have all
_SHIFT = 0.2  # between the marks of one test input


def save_answers(answers: list[Row], *paths: Path) -> None:
    """Draw mean and spread at every test input and the change at finite width, as the types of `paths`."""
    with house_style():
        figure = _draw(answers)
        for path in paths:
            write_figure(figure, path)


def _draw(answers: list[Row]) -> Figure:
    """Answers above; below, if there is more than infinite width, their changes at finite width."""
    shown = answers[:_MOST]
    moved = any(row.finite_width is not None or row.ensemble is not None for row in shown)
    figure = Figure(figsize=(8.4, 6.8 if moved else 3.6))
    grid = figure.add_gridspec(2 if moved else 1, 2)
    upper = figure.add_subplot(grid[0, :])
    if moved:
        spreads = any(row.finite_width_std is not None or row.ensemble_std is not None for row in shown)
        _draw_change(figure.add_subplot(grid[1, 0] if spreads else grid[1, :]), shown, "", relative=False)
        if spreads:
            _draw_change(figure.add_subplot(grid[1, 1]), shown, "_std", relative=True)
    _draw_answers(upper, shown)
    rest = f", the first {_MOST} of {len(answers)}" if len(answers) > _MOST else ""
    upper.set_title(f"output on test inputs: mean, and spread (±1 std) between trained networks{rest}")
    figure.legend(*upper.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _column(shown: list[Row], name: str) -> np.ndarray:
    """The numbers of one column; NaN, which is not drawn, for a missing number."""
    return np.array([np.nan if getattr(row, name) is None else getattr(row, name) for row in shown])


def _draw_answers(axes: Axes, shown: list[Row]) -> None:
    places = np.arange(len(shown), dtype=float)
    targets = _column(shown, "target")
    if np.isfinite(targets).any():
        half = 1.6 * _SHIFT
        axes.hlines(targets, places - half, places + half, color="#999999", lw=1.4, label="target")
    series = (
        ("infinite_width", "infinite width", "infinite width", "s", -1),
        ("finite_width", "finite width", "order 1/n", "D", 0),
        ("ensemble", "sampled networks", "trained networks", "o", 1),
    )
    for name, role, label, marker, place in series:
        values, spread = _column(shown, name), _column(shown, f"{name}_std")
        if np.isfinite(values).any():
            marks = axes.errorbar(
                places + place * _SHIFT, values, spread, label=label, **_style(role, marker)
            )
            if ROLES[role]["dashes"]:
                marks[2][0].set_linestyle("--")
    axes.axhline(0.0, color="#BBBBBB", lw=0.8, zorder=0)
    _name_tests(axes, shown)


def _style(role: str, marker: str) -> dict:
    colour, width = ROLES[role]["color"], ROLES[role]["linewidth"]
    hollow = {"markerfacecolor": "white"} if role == "infinite width" else {}
    return dict(color=colour, elinewidth=width, marker=marker, markersize=6, linestyle="none", **hollow)


def _draw_change(axes: Axes, shown: list[Row], of: str, *, relative: bool) -> None:
    """Order 1/n and the ensemble, both minus infinite width, which is the dashed line at zero."""
    places = np.arange(len(shown), dtype=float)
    base = _column(shown, f"infinite_width{of}")
    scale = base / 100 if relative else np.ones_like(base)
    look = ROLES["infinite width"]
    axes.axhline(0.0, color=look["color"], lw=look["linewidth"], dashes=look["dashes"])
    finite = (_column(shown, f"finite_width{of}") - base) / scale
    measured = (_column(shown, f"ensemble{of}") - base) / scale
    unsure = _column(shown, f"finite_width{of}_uncertainty") / scale
    error = _column(shown, f"ensemble{of}_stderr") / scale
    axes.errorbar(places - _SHIFT / 2, finite, unsure, **_style("finite width", "D"))
    axes.errorbar(places + _SHIFT / 2, measured, error, **_style("sampled networks", "o"))
    axes.set_title(f"change of the {'spread in percent' if relative else 'mean'}, ± uncertainty")
    beside_the_axis = {"va": "center", "fontsize": 8, "transform": axes.get_yaxis_transform()}
    axes.text(1.005, 0.0, "infinite\nwidth", **beside_the_axis)
    _name_tests(axes, shown)


def _name_tests(axes: Axes, shown: list[Row]) -> None:
    several = any(row.output > 1 for row in shown)
    names = [f"{row.test}, {row.output}" if several else str(row.test) for row in shown]
    if any(row.label for row in shown):
        names = [f"{name}\n({row.label})" for name, row in zip(names, shown, strict=True)]
    half = axes.get_subplotspec().colspan.stop - axes.get_subplotspec().colspan.start == 1  # type: ignore[union-attr]
    step = 2 if half and several and len(shown) > 12 else 1  # names that would run into each other
    axes.set_xticks(range(0, len(shown), step), names[::step], fontsize=9 if len(shown) <= 12 else 7)
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.1)
    axes.set_xlim(-0.6, len(shown) - 0.4)
    axes.grid(visible=False, axis="x")
    words = "test input, output" if several else "test input"
    axes.set_xlabel(f"{words} (digit)" if any(row.label for row in shown) else words)
