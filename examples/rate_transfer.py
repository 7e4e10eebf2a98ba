"""How the best learning rate changes with width and depth, with rates by layer and with one rate for all.

    python examples/rate_transfer.py [--output figure.png]

The numbers are those of benchmarks/advice.py: digits, 80 steps, grids of a factor two.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from figure_options import figure_options

import finitewidth as fw
from finitewidth.interface.figures.look import INK, MARKERS, ROLES

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "advice.json"
BY_LAYER, ONE_RATE = "bias share 1/10", "critical"
COMMON = (8, 128)  # depth and width that all curves share; rates are relative to those of this network
SETTINGS = {
    "tanh": "tanh {}x{} digits cross-entropy sgd",
    "relu": "relu {}x{} digits cross-entropy sgd",
    "gelu": "gelu {}x{} digits cross-entropy sgd",
    "tanh, squared loss": "tanh {}x{} digits squared sgd",
    "tanh, momentum": "tanh {}x{} digits cross-entropy momentum",
}
PANELS = {  # the sizes, and the power of the depth of the law that is drawn
    "8 layers": [(8, 32), (8, 64), (8, 128), (8, 256)],
    "width 128": [(4, 128), (8, 128), (16, 128), (32, 128)],
    "depth = width/16": [(4, 64), (8, 128), (16, 256)],
}
ROLES_OF_LINES = ("finite width", "sampled networks", "further series", "one more series", "infinite width")


def best_power(entry: dict) -> int:
    """The base-two logarithm of the rate with the smallest loss at which no seed diverged."""
    losses = [math.inf if None in row else float(np.mean(np.log(row))) for row in entry["loss"]]
    return entry["powers"][int(np.argmin(losses))]


def curve(kept: dict, setting: str, method: str, sizes: list[tuple[int, int]]) -> list[float] | None:
    """Best rates over those of the common size, as powers of two; None where runs are missing."""
    entries = [kept.get(setting.format(*size), {}).get(method) for size in (COMMON, *sizes)]
    if not all(entries):
        return None
    first, *others = (best_power(entry) for entry in entries)
    return [power - first for power in others]


def panel(axes, kept: dict, method: str, sizes: list[tuple[int, int]]) -> None:
    """A line for each setting, moved apart a little where they coincide."""
    along = 1 if len({depth for depth, _ in sizes}) == 1 else 0
    x = np.log2([size[along] for size in sizes])
    for i, (name, setting) in enumerate(SETTINGS.items()):
        powers = curve(kept, setting, method, sizes)
        if powers is not None:
            y = np.array(powers) + 0.09 * (i - 2)
            color = ROLES[ROLES_OF_LINES[i]]["color"]
            axes.plot(x, y, MARKERS[i] + "-", color=color, linewidth=1.4, markersize=5, label=name)
    if along == 0:
        axes.plot(x, 3 - x, color=INK, linestyle=":", linewidth=1.2, label="1/depth")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_xticks(
        x, [str(size[along]) if along or len(sizes) == 4 else f"{size[0]} × {size[1]}" for size in sizes]
    )
    axes.set_yticks(range(-4, 4), [f"{2.0**p:g}" for p in range(-4, 4)])
    axes.set_ylim(-4.4, 3.4)


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "rate_transfer", arguments)
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    figure, axes = plt.subplots(2, 3, figsize=(8.4, 5.6), layout="constrained", sharey=True)
    for row, (method, name) in zip(axes, ((BY_LAYER, "rates by layer"), (ONE_RATE, "one rate")), strict=True):
        for one, (title, sizes) in zip(row, PANELS.items(), strict=True):
            panel(one, kept, method, sizes)
            one.set_title(f"{name}: {title}", fontsize=10)
        row[0].set_ylabel("best rate, 8 × 128 = 1")
    for one, label in zip(axes[1], ("width", "depth", "depth × width"), strict=True):
        one.set_xlabel(label)
    axes[0, 1].legend(fontsize=7, loc="lower left")
    fw.plots.save(figure, options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
