"""300 digits of ten classes: predicted and measured shifts of mean and variance, and the loss over width.

    python examples/many_digits.py [--output figure.png]

The numbers are those of benchmarks/digits.py, which takes an hour.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from figure_options import figure_options

import finitewidth as fw
from finitewidth.interface.figures.look import INK, MARKERS, ROLES, SERIES

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "digits.json"
STEPS = 100  # of the scatter


def scatter(axes, rows: list[dict], names: tuple[str, str, str, str], title: str, part: str) -> None:
    """n times the measured shift over the predicted one; perfect agreement is the diagonal."""
    lowest, highest, sizes = 0.0, 0.0, []
    for row, role, marker in reversed(list(zip(rows, SERIES, MARKERS, strict=False))):
        n, shown, slope = row["width"], row["scatter"], row[part]
        x, x_error, y, y_error = (n * np.array(shown[name]) for name in names)
        label = f"width {n}: slope {slope['slope']:.2f} ± {slope['slope_error']:.2f}"
        color = ROLES[role]["color"]
        kept = slice(None, None, 1 + x.size // 250)  # every fifth of a thousand outputs: a file for a page
        axes.plot(x[kept], y[kept], marker, markersize=3, color=color, markeredgewidth=0, label=label)
        lowest, highest = min(lowest, x.min()), max(highest, x.max())
        sizes.append((0.72 + 0.1 * SERIES.index(role), np.median(x_error), np.median(y_error), color))
    ends = np.array([lowest, highest])
    axes.plot(ends, ends, color=INK, linewidth=1.2, label="predicted = measured")
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    axes.set_ylim(bottom, top + 0.45 * (top - bottom))  # room for the legend
    for place, x_error, y_error, color in sizes:  # typical standard errors, in a corner
        at = left + place * (right - left), bottom + 0.28 * (top - bottom)
        axes.errorbar(*at, y_error, x_error, color=color, capsize=2, linewidth=1.2)
    axes.text(0.82, 0.03, "standard errors", transform=axes.transAxes, ha="center", fontsize=8)
    axes.set(xlabel="n × shift, predicted", ylabel="n × shift, trained networks")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, loc="upper left")


def over_width(axes, rows: list[dict], index: int, name: str) -> None:
    """Both theories and trained networks over width, for each number of steps."""
    stops = sorted({row["steps"] for row in rows})
    for steps, role, marker in zip(stops, SERIES, MARKERS, strict=False):
        chosen = sorted((row for row in rows if row["steps"] == steps), key=lambda row: row["width"])
        widths = np.array([row["width"] for row in chosen])
        answers = [row["answers"] for row in chosen]
        color = ROLES[role]["color"]
        infinite, order_1, measured, error = (
            np.array([one[key][index] for one in answers])
            for key in ("infinite", "order_1", "measured", "measured_error")
        )
        axes.plot(widths, infinite, color=color, linestyle="--", linewidth=1.2)
        axes.plot(widths, order_1, color=color, linewidth=1.8)
        axes.errorbar(
            widths, measured, error, fmt=marker, color=color, capsize=3, label=f"{steps} steps, networks"
        )
    axes.plot([], [], color=INK, linestyle="--", label="infinite width")
    axes.plot([], [], color=INK, label="order 1/n")
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, [str(n) for n in widths])
    axes.set(xlabel="width n", ylabel=name)
    axes.legend(fontsize=8)


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "many_digits", arguments)
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    early = [row for row in rows if row["steps"] == STEPS]
    figure, axes = plt.subplots(2, 2, figsize=(7.4, 6.5), layout="constrained")
    of_mean = ("predicted", "predicted_error", "measured", "measured_error")
    of_variance = ("variance", "variance_error", "measured_variance", "measured_variance_error")
    title = f"{{}} on 100 test digits, {STEPS} steps"
    scatter(axes[0, 0], early, of_mean, title.format("Mean"), "mean")
    scatter(axes[0, 1], early, of_variance, title.format("Variance"), "variance")
    over_width(axes[1, 0], rows, 0, "expected test loss of one digit")
    over_width(axes[1, 1], rows, 1, "expected accuracy")
    fw.plots.save(figure, options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
