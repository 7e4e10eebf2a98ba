"""300 digits of ten classes: the shift of the mean that order 1/n predicts, and that of trained networks.

    python examples/many_digits.py [--output figure.png]

Infinite width predicts no shift. The numbers are those of benchmarks/many_points/digits.py, which takes an
hour; examples/many_digits_loss.py draws its variances, losses and accuracies.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from figure_options import figure_options
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import finitewidth as fw
from finitewidth.interface.figures.look import ROLES
from finitewidth.interface.figures.parts import draw_line, draw_sampled, heading, legend_below
from finitewidth.interface.figures.saving import in_house_style

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "many_points" / "results" / "digits.json"
STEPS, GROUPS = 100, 20


def results() -> list[dict]:
    """One row for each width and number of steps."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def scatter(axes: Axes, row: dict, names: tuple[str, str], groups: int, of_what: str) -> None:
    """Measured over predicted shifts, and means of groups of them with nearly the same prediction."""
    x, y = (np.array(row["scatter"][name]) for name in names)
    look = ROLES["sampled networks"]["color"]
    style = {"color": look, "alpha": 0.25, "markersize": 4, "markeredgewidth": 0}
    axes.plot(x, y, ".", label=f"trained networks: {of_what} on a test digit", **style)
    parts = np.array_split(np.argsort(x), groups)
    middle = np.array([(x[part].mean(), y[part].mean()) for part in parts]).T
    draw_sampled(axes, *middle, None, f"trained networks: means of {x.size // groups} of them")
    ends = np.array([x.min(), x.max()])
    draw_line(axes, ends, ends, "finite width", "theory at order 1/n")
    draw_line(axes, ends, 0 * ends, "infinite width", "theory at infinite width")
    errors = [float(np.sqrt(np.mean(np.square(row["scatter"][f"{name}_error"])))) for name in names]
    label = "typical standard errors of a point"
    draw_sampled(axes, x.max(), y.min(), errors[1], label, xerr=errors[0], markersize=0)
    axes.set_xlabel("predicted shift")


@in_house_style
def draw(rows: list[dict]) -> Figure:
    """One panel for each width; the axes shrink as 1/n, so that the same law looks the same."""
    figure = Figure(figsize=(9.6, 4.2))
    points = rows[0]["points"]
    heading(figure, f"{points} training digits, {STEPS} steps: outputs on test digits, minus infinite width")
    for axes, row in zip(figure.subplots(1, len(rows)), rows, strict=True):
        scatter(axes, row, ("predicted", "measured"), GROUPS, "an output")
        reach = 18.0 / row["width"]
        axes.set(xlim=(-reach, reach / 2), ylim=(-reach, reach / 2))
        axes.set_title(f"width {row['width']}, {row['members']} networks")
    figure.axes[0].set_ylabel("shift of the mean output")
    legend_below(figure)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "many_digits", arguments)
    rows = sorted((row for row in results() if row["steps"] == STEPS), key=lambda row: row["width"])
    fw.plots.save(draw(rows), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
