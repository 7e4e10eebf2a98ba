"""Statistics at initialization over depth: means with their asymptotes, fluctuations as depth over width."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.critical.asymptotes import asymptotes
from finitewidth.experiment.statistics import SampledStatistics
from finitewidth.interface.figures.look import SERIES
from finitewidth.interface.figures.parts import (
    as_records,
    draw_line,
    draw_sampled,
    heading,
    legend_below,
    numbers_on_log_axis,
)
from finitewidth.interface.figures.saving import in_house_style
from finitewidth.theory.ratios import POWERS
from finitewidth.theory.records import Theory
from finitewidth.theory.tensors import TENSORS

_THEORY, _SAMPLED = "what fw.solve returns", "what fw.sample_statistics returns"
_WORDS = {
    "V": "four-point vertex",
    "D": "NTK and preactivations of two neurons,",
    "F": "NTK between neurons and preactivations,",
    "A": "NTK of two neurons,",
    "B": "NTK between neurons,",
    "P": "dNTK of one neuron and another,",
    "Q": "dNTK and preactivations,",
    "R": "first ddNTK,",
    "S": "second ddNTK,",
    "T": "second ddNTK,",
    "U": "second ddNTK,",
}
_MEANS = (("K", "G", "kernel K"), ("Theta", "H", "neural tangent kernel Θ"))
_ROUND = (1, 2, 5)


@in_house_style
def kernels_over_depth(
    theories: Theory | Sequence[Theory], sampled: Sequence[SampledStatistics] = ()
) -> Figure:
    """Kernel and NTK of each input over the layers, on log axes, with the laws that they approach.

    One column for each theory; at order 1 also at its finite width. `sampled` networks of the same kind are
    drawn as points with error bars.
    """
    theories = as_records("theories", theories, Theory, _THEORY)
    sampled = _matched(theories, sampled)
    figure = Figure(figsize=(0.6 + 2.9 * len(theories), 5.8))
    grid = figure.subplots(2, len(theories), squeeze=False, sharex=True)
    heading(figure, "signals and gradients over depth at initialization")
    for column, theory in enumerate(theories):
        laws = asymptotes(theory)
        for row, (infinite, finite, words) in enumerate(_MEANS):
            axes = grid[row, column]
            law = getattr(laws, infinite)
            _draw_mean(axes, theory, infinite, finite, law)
            for found in (s for s in sampled if s.net == theory.net):
                _draw_sampled_mean(axes, found, finite)
            _log_axes(axes, theory.depth)
            tends_to = getattr(laws, f"{infinite}_law")
            axes.set_title(f"{theory.net.activation.name}: {tends_to}")
            axes.set_ylabel(words if column == 0 else "")
            axes.set_xlabel("layer l" if row == 1 else "")
    legend_below(figure)
    return figure


@in_house_style
def fluctuations(
    theories: Theory | Sequence[Theory],
    sampled: Sequence[SampledStatistics] = (),
    tensors: Sequence[str] = ("V", "A", "B"),
) -> Figure:
    """Tensors of order 1/n over what they correct, of the first input, against depth over width.

    One row for each activation; theories of several widths fall on one line as long as order 1/n is enough.
    """
    theories = as_records("theories", theories, Theory, _THEORY)
    for name in tensors:
        if name not in TENSORS:
            raise ValueError(f"tensors must be among {', '.join(TENSORS)}, got {name!r}.")
    sampled = _matched(theories, sampled)
    names = list(dict.fromkeys(theory.net.activation.name for theory in theories))
    figure = Figure(figsize=(0.6 + 3.0 * len(tensors), 0.9 + 2.5 * len(names)))
    grid = figure.subplots(len(names), len(tensors), squeeze=False)
    heading(figure, "fluctuations of critical networks grow as depth over width")
    for row, activation in enumerate(names):
        chosen = [theory for theory in theories if theory.net.activation.name == activation]
        for axes, name in zip(grid[row], tensors, strict=True):
            for index, theory in enumerate(chosen):
                _draw_ratio(axes, theory, sampled, name, index)
            axes.set_title(f"{activation}: {_WORDS[name]}\n{_ratio(name)}")
            axes.set_xlabel("depth over width, l / n" if row == len(names) - 1 else "")
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    legend_below(figure)
    return figure


def _matched(theories: list[Theory], sampled: Sequence[SampledStatistics]) -> list[SampledStatistics]:
    found = as_records("sampled", list(sampled), SampledStatistics, _SAMPLED) if len(sampled) else []
    for one in found:
        if all(one.net != theory.net for theory in theories):
            raise ValueError(f"sampled has {one.net!r}, which no theory is of; solve the same network.")
    return found


def _draw_mean(axes: Axes, theory: Theory, infinite: str, finite: str, law: np.ndarray | None) -> None:
    l = np.arange(1, theory.depth + 1)
    layers = [theory.layer(int(index)) for index in l]
    if law is not None:
        for index, row in enumerate(law):
            draw_line(axes, l, row, "asymptote", "asymptote" if index == 0 else None)
    if theory.order:
        for index, row in enumerate(np.array([np.diag(getattr(layer, finite)) for layer in layers]).T):
            label = "finite width, K + G1/n and Θ + H1/n" if index == 0 else None
            draw_line(axes, l, np.where(row > 0, row, np.nan), "finite width", label)
    for index, row in enumerate(np.array([np.diag(getattr(layer, infinite)) for layer in layers]).T):
        draw_line(axes, l, row, "infinite width", "infinite width" if index == 0 else None)


def _draw_sampled_mean(axes: Axes, found: SampledStatistics, name: str) -> None:
    value, stderr = (np.diag(part) for part in getattr(found, name))
    label = f"sampled networks of width {found.n}, ± standard error"
    draw_sampled(axes, np.full(value.size, found.layer), value, stderr, label)


def _log_axes(axes: Axes, depth: int) -> None:
    axes.set_xscale("log")
    numbers_on_log_axis(axes.xaxis, [tick for tick in (1, 3, 10, 30, 100, 300, 1000) if tick <= depth])
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    low, high = min(low, (low * high) ** 0.5 / 3), max(high, (low * high) ** 0.5 * 3)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))))
    ticks = [digit * 10.0**decade for decade in decades for digit in _ROUND]
    inside = [tick for tick in ticks if low <= tick <= high]
    numbers_on_log_axis(axes.yaxis, inside if len(inside) <= 5 else [10.0**decade for decade in decades])
    axes.set_ylim(low, high)


def _draw_ratio(axes: Axes, theory: Theory, sampled: list[SampledStatistics], name: str, index: int) -> None:
    l = np.arange(2, theory.depth + 1)
    entry = (0, 0, 0, 0)
    layers = [theory.layer(int(number)) for number in l]
    values = [getattr(layer, name)[entry] / _scale(layer, name) for layer in layers]
    n = np.array([layer.n for layer in layers])
    label = f"theory at order 1/n, width {n[-1]}"
    more = {} if index == 0 else {"dashes": (6, 1.5 * index)}
    draw_line(axes, l / n, values, SERIES[index % len(SERIES)], label, **more)
    for found in sampled:
        if found.net == theory.net and name in found.estimates:
            scale = _scale(theory.layer(found.layer), name)
            value, stderr = (part[entry] / scale for part in found.estimates[name])
            label = f"sampled networks of width {found.n}, ± standard error"
            draw_sampled(axes, [found.layer / found.n], [value], [stderr], label, index)


def _scale(layer, name: str) -> float:
    """n K^k Theta^t of the first input, which the tensor is compared with."""
    k, theta = POWERS[name]
    return layer.n * layer.K[0, 0] ** k * layer.Theta[0, 0] ** theta


def _ratio(name: str) -> str:
    """V / n K² and the like."""
    over = {-1: "", 0: "", 1: "{}", 2: "{}²", 3: "{}³"}
    k, theta = POWERS[name]
    above = f"{name} K" if k == -1 else name
    return f"{above} / n " + " ".join(filter(None, (over[k].format("K"), over[theta].format("Θ"))))
