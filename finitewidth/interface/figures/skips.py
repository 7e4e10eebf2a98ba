"""Residual networks: what the memory of neurons adds to each tensor, and how deep they can be."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.core.estimate import Estimate
from finitewidth.critical.aspect_ratio import Aspect
from finitewidth.interface.figures.look import INK, MARKERS, PAPER, ROLES, SERIES
from finitewidth.interface.figures.parts import (
    as_records,
    draw_line,
    draw_sampled,
    heading,
    legend_below,
    numbers_on_log_axis,
)
from finitewidth.interface.figures.saving import in_house_style
from finitewidth.theory.records import Theory

_THEORY, _ASPECT = "a result of fw.solve", "a result of fw.critical.aspect"
_HIDDEN = 0.5  # relative standard errors above this hide a tensor
_LINES = (*SERIES, "infinite width")
_DEPTHS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_WITH = {
    "marker": "_",
    "markeredgewidth": 2.5,
    "color": ROLES["finite width"]["color"],
    "label": "theory with memory",
}
_WITHOUT = {"marker": "D", "markerfacecolor": PAPER, "color": INK, "label": "theory without memory"}


@in_house_style
def memory(
    theories: Theory | Sequence[Theory],
    without: Theory | Sequence[Theory],
    sampled: Sequence[Mapping[str, Estimate]],
    titles: Sequence[str],
) -> Figure:
    """Tensors of the last layer with and without memory, relative to those of sampled networks.

    There is one panel for each network, with tensors of its first input. Tensors whose standard error exceeds
    half of their value are left out.

    Args:
        theories: Results of `fw.solve`.
        without: The same with `remember=False`.
        sampled: Estimates by letter, such as `estimates` of `fw.sample_statistics`.
        titles: One for each panel.

    Returns:
        A matplotlib figure.

    ```python
    block = fw.Residual("gelu", fw.Dense(64), gamma=0.8)
    deep = fw.Network(2, fw.Dense(64), block, block, "gelu", fw.Dense(1))
    theories = [
        fw.solve(deep, X[:1], tensors=("V",), method=fw.Tensors(remember=memory)) for memory in (True, False)
    ]
    sampled = [{"V": fw.Estimate(theories[0].output.V, 0.1 * theories[0].output.V)}]  # or of real networks
    fw.plots.memory(*theories, sampled, ["gelu"])
    ```
    """
    theories = as_records("theories", theories, Theory, _THEORY)
    without = as_records("without", without, Theory, _THEORY)
    if not len(theories) == len(without) == len(sampled) == len(titles):
        counts = f"{len(theories)}, {len(without)}, {len(sampled)} and {len(titles)}"
        raise ValueError(f"theories, without, sampled and titles must be equally many, got {counts}.")
    figure = Figure(figsize=(max(4.4, 0.8 + 2.3 * len(theories)), 4.2))
    heading(figure, "tensors of order 1/n relative to those of sampled networks")
    row = figure.subplots(1, len(theories), squeeze=False, sharey=True)[0]
    names = [name for name in sampled[0] if any(_is_known(one[name]) for one in sampled)]
    for axes, theory, pairs, estimates, title in zip(row, theories, without, sampled, titles, strict=True):
        known = [place for place, name in enumerate(names) if _is_known(estimates[name])]
        values = np.array([_first(estimates[names[place]].value) for place in known])
        errors = np.abs([_first(estimates[names[place]].stderr) for place in known] / values)
        label = "sampled networks, ± standard error"
        draw_sampled(axes, known, np.ones(len(known)), errors, label, markersize=4)
        for law, look in ((pairs, _WITHOUT), (theory, _WITH)):
            ratios = [_first(getattr(law.output, names[place])) for place in known] / values
            axes.plot(known, ratios, linestyle="none", markersize=7, zorder=6, **look)
        axes.set(title=title, xlim=(-0.5, len(names) - 0.5), ylim=(0, 1.6))
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel("tensor")
    row[0].set_ylabel("relative to sampled networks")
    legend_below(figure)
    return figure


def _first(value) -> float:
    return float(np.asarray(value).flat[0])


def _is_known(estimate: Estimate) -> bool:
    return _first(estimate.stderr) < _HIDDEN * abs(_first(estimate.value))


@in_house_style
def depth_and_skips(
    curves: Sequence[Aspect],
    limits: Sequence[Sequence[Aspect]],
    sampled: Mapping[float, Sequence[tuple[int, Estimate]]] | None = None,
    *,
    width: int,
) -> Figure:
    """Fluctuations over depth for several gamma, and the depth that a width allows over gamma.

    Args:
        curves: Results of `fw.critical.aspect` for one activation, with a gamma each.
        limits: For each activation, results of `fw.critical.aspect` over gamma.
        sampled: For a gamma, layers and the estimates of V/(n K^2) there.
        width: The width at which `curves` are drawn.

    Returns:
        A matplotlib figure.

    ```python
    shapes = [fw.critical.aspect("relu", width=64, gamma=gamma) for gamma in (0.0, 0.9)]
    fw.plots.depth_and_skips(shapes, [shapes], width=64)
    ```
    """
    curves = as_records("curves", list(curves), Aspect, _ASPECT)
    for one in limits:
        as_records("limits", list(one), Aspect, _ASPECT)
    figure = Figure(figsize=(9.2, 4.6))
    first, second = figure.subplots(1, 2)
    heading(figure, "skip connections let networks of one width be deeper")
    for index, curve in enumerate(curves):
        _draw_curve(first, curve, width, index, (sampled or {}).get(curve.gamma, ()))
    allowed = curves[0].allowed
    first.axhline(allowed, color=ROLES["asymptote"]["color"], linewidth=1.2, dashes=(1.2, 1.6))
    first.annotate(f"trusted below {allowed:g}", (2, allowed * 1.07), fontsize=8)
    name = curves[0].activation.name
    first.set(xscale="log", yscale="log", xlabel="layer l", title=f"{name}, width {width}: V / n K²")
    numbers_on_log_axis(
        first.xaxis, [tick for tick in (2, 5, 10, 20, 50, 100, 200) if tick <= curves[0].depth]
    )
    first.set_ylim(bottom=0.002)
    numbers_on_log_axis(first.yaxis, [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
    for index, records in enumerate(limits):
        _draw_limit(second, records, index)
    second.set(xlabel="gamma", yscale="log", xlim=(-0.03, 1.12))
    second.set_title(f"layers up to a ratio of {allowed:g}, width {limits[0][0].width}")
    numbers_on_log_axis(second.yaxis, _DEPTHS)
    legend_below(figure)
    return figure


def _draw_limit(axes: Axes, records: Sequence[Aspect], index: int) -> None:
    gammas, depths = [one.gamma for one in records], [one.depth for one in records]
    draw_line(axes, gammas, depths, _LINES[index], marker=MARKERS[index], markersize=4)
    end = (gammas[-1], depths[-1])
    name = str(records[0].activation.name)
    axes.annotate(name, end, xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)


def _draw_curve(
    axes: Axes, curve: Aspect, width: int, index: int, sampled: Sequence[tuple[int, Estimate]]
) -> None:
    l = np.arange(2, curve.depth + 1)
    words = f"gamma = {curve.gamma:g}" if curve.gamma else "no skips"
    draw_line(axes, l, curve.curve[1:] / width, _LINES[index % len(_LINES)], words)
    if sampled:
        layers, estimates = zip(*sampled, strict=True)
        value, stderr = (np.array([_first(part) for part in parts]) for parts in zip(*estimates, strict=True))
        label = "sampled networks, ± standard error"
        draw_sampled(axes, layers, value, stderr, label, index, markersize=5)
