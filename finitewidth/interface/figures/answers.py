"""Answers on test inputs side by side: mean and spread at both orders, and of trained networks."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.interface.figures.look import ROLES
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.spreads import AtBothOrders

_MOST = 24  # answers that fit side by side; files and records have all
_SHIFT = 0.2  # between the marks of one test input
_SERIES = (
    ("infinite_width", "infinite width", "infinite width", "s", -1),
    ("finite_width", "finite width", "order 1/n", "D", 0),
    ("ensemble", "sampled networks", "trained networks", "o", 1),
)


class Answers(NamedTuple):
    """What is drawn, one entry for each output on each test input."""

    columns: dict[str, np.ndarray]  # by the names of `runs.answers.Row`; NaN for a missing number
    names: list[str]  # below each entry
    axis: str  # below all
    verdict: str | None  # of order 1/n
    below_zero: int = 0  # variances through order 1/n

    @classmethod
    def of_prediction(cls, prediction: Prediction) -> "Answers":
        """Both orders of a prediction, without targets and without networks."""
        columns = _orders(prediction)
        samples, outputs = prediction.mean.shape
        names = [str(a + 1) if outputs == 1 else f"{a + 1}, {i + 1}" for a, i in np.ndindex(samples, outputs)]
        axis = "test input" if outputs == 1 else "test input, output"
        return cls({name: part.ravel() for name, part in columns.items()}, names, axis, *judged(prediction))

    def column(self, name: str) -> np.ndarray:
        """The first numbers of a column; no bar of what is meaningless is known."""
        nothing = np.full(len(self.names), np.nan)
        if self.verdict == "meaningless" and name.startswith("finite_width_") and name != "finite_width_std":
            return nothing[:_MOST]
        return self.columns.get(name, nothing)[:_MOST]

    def errors(self, name: str) -> np.ndarray:
        """Standard error and uncertainty together; NaN where there is neither."""
        parts = [self.column(f"{name}_uncertainty"), self.column(f"{name}_stderr")]
        known = np.isfinite(parts).any(axis=0)
        return np.where(known, np.hypot(*np.nan_to_num(parts)), np.nan)


def judged(prediction: AtBothOrders) -> tuple[str | None, int]:
    """The verdict on order 1/n, and how many variances are below zero."""
    if prediction.order == 0:
        return None, 0
    return prediction.verdict, int(prediction.below_zero.sum()) if prediction.gives_variance else 0


def _orders(prediction: Prediction) -> dict[str, np.ndarray]:
    infinite = prediction.infinite_width
    columns = {"infinite_width": infinite.mean}
    if infinite.gives_variance:
        columns["infinite_width_std"] = infinite.std
    if prediction.order == 0:
        return columns
    columns |= {"finite_width": prediction.mean, "finite_width_uncertainty": prediction.uncertainty}
    columns["finite_width_stderr"] = prediction.stderr
    if prediction.gives_variance:
        std = prediction.std
        columns |= {"finite_width_std": std, "finite_width_std_uncertainty": prediction.std_uncertainty}
        columns["finite_width_std_stderr"] = prediction.variance_stderr / np.where(std > 0, 2 * std, np.nan)
    return columns


def draw_answers(answers: Answers) -> Figure:
    """Answers above; below, if there is more than infinite width, their changes at finite width."""
    moved = answers.verdict is not None or np.isfinite(answers.column("ensemble")).any()
    figure = Figure(figsize=(8.4, 6.8 if moved else 3.6))
    grid = figure.add_gridspec(2 if moved else 1, 2)
    upper = figure.add_subplot(grid[0, :])
    if moved:
        spreads = any(
            np.isfinite(answers.column(f"{name}_std")).any() for name in ("finite_width", "ensemble")
        )
        lower = figure.add_subplot(grid[1, 0] if spreads else grid[1, :])
        _draw_change(lower, answers, "", relative=False)
        if spreads:
            _draw_change(figure.add_subplot(grid[1, 1]), answers, "_std", relative=True)
    _draw_series(upper, answers)
    rest = f", the first {_MOST} of {len(answers.names)}" if len(answers.names) > _MOST else ""
    words = _words(answers)
    title = f"output on test inputs: mean, and spread (±1 std) between trained networks{rest}"
    upper.set_title(f"{title}\n{words}" if words else title)
    figure.legend(*upper.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _words(answers: Answers) -> str:
    """What the figure says of order 1/n."""
    if answers.verdict is None:
        return ""
    text = f"order 1/n is {answers.verdict}"
    if answers.verdict == "meaningless":
        text += " and has no bars"
    if answers.below_zero:
        count = f"{answers.below_zero} of {len(answers.names)}"
        text += f"; variances below zero at {count} outputs have no spread"
    elif not np.isfinite(answers.column("finite_width_std")).any():
        text += "; its spread was not computed"
    return text


def _draw_series(axes: Axes, answers: Answers) -> None:
    places = np.arange(len(answers.names[:_MOST]), dtype=float)
    targets = answers.column("target")
    if np.isfinite(targets).any():
        half = 1.6 * _SHIFT
        axes.hlines(targets, places - half, places + half, color="#999999", lw=1.4, label="target")
    for name, role, label, marker, place in _SERIES:
        values, spread = answers.column(name), answers.column(f"{name}_std")
        if name == "finite_width" and answers.verdict == "meaningless":
            label, spread = f"{label} (meaningless)", np.full_like(values, np.nan)
        if np.isfinite(values).any():
            marks = axes.errorbar(
                places + place * _SHIFT, values, spread, label=label, **_style(role, marker)
            )
            if ROLES[role]["dashes"]:
                marks[2][0].set_linestyle("--")
    axes.axhline(0.0, color="#BBBBBB", lw=0.8, zorder=0)
    _name_tests(axes, answers)


def _style(role: str, marker: str) -> dict:
    colour, width = ROLES[role]["color"], ROLES[role]["linewidth"]
    hollow = {"markerfacecolor": "white"} if role == "infinite width" else {}
    return dict(color=colour, elinewidth=width, marker=marker, markersize=6, linestyle="none", **hollow)


def _draw_change(axes: Axes, answers: Answers, of: str, *, relative: bool) -> None:
    """Order 1/n and the ensemble, both minus infinite width, which is the dashed line at zero."""
    places = np.arange(len(answers.names[:_MOST]), dtype=float)
    base = answers.column(f"infinite_width{of}")
    scale = base / 100 if relative else np.ones_like(base)
    look = ROLES["infinite width"]
    axes.axhline(0.0, color=look["color"], lw=look["linewidth"], dashes=look["dashes"])
    for name, role, _, marker, _ in _SERIES[1:]:
        shift = -_SHIFT / 2 if name == "finite_width" else _SHIFT / 2
        change = (answers.column(f"{name}{of}") - base) / scale
        axes.errorbar(places + shift, change, answers.errors(f"{name}{of}") / scale, **_style(role, marker))
    axes.set_title(f"change of the {'spread in percent' if relative else 'mean'}, ± uncertainty")
    beside_the_axis = {"va": "center", "fontsize": 8, "transform": axes.get_yaxis_transform()}
    axes.text(1.005, 0.0, "infinite\nwidth", **beside_the_axis)
    _name_tests(axes, answers)


def _name_tests(axes: Axes, answers: Answers) -> None:
    names = answers.names[:_MOST]
    half = axes.get_subplotspec().colspan.stop - axes.get_subplotspec().colspan.start == 1  # type: ignore[union-attr]
    step = 2 if half and "output" in answers.axis and len(names) > 12 else 1  # they would run into each other
    axes.set_xticks(range(0, len(names), step), names[::step], fontsize=9 if len(names) <= 12 else 7)
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.1)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(answers.axis)
