"""Parts of figures: lines, bands, points, heat maps and legends in the house style."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

from finitewidth.interface.figures.look import INK, MARKERS, MATRIX, ROLES, SHADE

_ENTRY, _LETTER = 0.8, 0.08  # inches: the width of an entry of a legend, and of each letter in its label


def require(name: str, value: Any, kind: type | tuple[type, ...], remedy: str) -> None:
    """Refuse anything but the kind of record that a figure draws."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {remedy}, got {type(value).__name__}.")


def as_records(name: str, given: Any, kind: type, remedy: str) -> list:
    """One record or several, as a list of at least one."""
    records = [given] if isinstance(given, kind) else given
    if not isinstance(records, list | tuple) or not records:
        raise ValueError(f"{name} must be {remedy}, or several of them in a list, got {given!r}.")
    for record in records:
        require(name, record, kind, remedy)
    return list(records)


def heading(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left", fontsize=11)


def draw_line(axes: Axes, x, y, role: str, label: str | None = None, **more: Any) -> None:
    """A line in the look of its role, with changes given by `more`."""
    look = ROLES[role]
    style = {"color": look["color"], "linewidth": look["linewidth"], "label": label, **more}
    if look["dashes"] is not None:
        style = {"dashes": look["dashes"], **style}
    axes.plot(x, y, **style)


def draw_band(axes: Axes, x, low, high, role: str, label: str | None = None) -> None:
    """The filled space between two lines, without an edge."""
    axes.fill_between(x, low, high, linewidth=0, label=label, **ROLES[f"{role}, band"])


def draw_sampled(axes: Axes, x, value, stderr, label: str | None = None, index: int = 0, **more: Any) -> None:
    """Points with error bars of one standard error, without caps and on top of everything."""
    look = ROLES["sampled networks"]
    style = {"color": look["color"], "elinewidth": look["linewidth"], "capsize": 0, "zorder": 5, **more}
    marker = MARKERS[index % len(MARKERS)]
    axes.errorbar(x, value, yerr=stderr, linestyle="none", marker=marker, label=label, **style)


def draw_targets(axes: Axes, x, y) -> None:
    """The training data."""
    axes.plot(x, y, linestyle="none", marker="X", markersize=8, color=INK, zorder=6, label="training data")


def draw_matrix(axes: Axes, matrix: np.ndarray, norm: Normalize, *, upward: bool = False) -> AxesImage:
    """A heat map with rows and columns counted from one; white is zero, or `norm.vmin` if that is above."""
    signed = norm.vmin is not None and norm.vmin < 0
    colours = LinearSegmentedColormap.from_list("entries", MATRIX if signed else MATRIX[1:])
    end = len(matrix) + 0.5
    image = axes.imshow(
        matrix,
        cmap=colours,
        norm=norm,
        origin="lower" if upward else "upper",
        extent=(0.5, end, 0.5, end) if upward else (0.5, end, end, 0.5),
        interpolation="nearest",
    )
    axes.grid(False)
    axes.spines[:].set(visible=True, color=SHADE)  # so that a matrix of zeros is seen too
    axes.tick_params(length=0)
    return image


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers only, as for layers."""
    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def numbers_on_log_axis(axis: Axis, values: Sequence[float]) -> None:
    """Ticks at these numbers, written out and not as powers of ten, as for layers and widths."""
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())


def legend_below(figure: Figure) -> None:
    """One legend for all panels, below the data; a label that several panels share is shown once."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    widest = _ENTRY + _LETTER * max(len(label) for label in handles)
    columns = max(1, int(figure.get_figwidth() / widest))
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower left", ncols=columns, handlelength=2.8
    )
