"""Statistics at initialization over depth: means and their asymptotes, and fluctuations."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.critical.asymptotic_laws import asymptotes
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

_THEORY, _SAMPLED = "a result of fw.solve", "a result of fw.sample_statistics"
_WORDS = {
    "V": "four-point vertex",
    "D": "NTK and preactivations of two neurons,",
    "F": "NTK between neurons and preactivations,",
    "A": "NTKs of two neurons,",
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
    """Kernel and NTK of each input over the layers, on logarithmic axes, with their asymptotes.

    There is one column for each theory. A theory of order 1 is also drawn at its finite width.

    Args:
        theories: Results of `fw.solve`.
        sampled: Results of `fw.sample_statistics` for the same networks, drawn as points with error bars.

    Returns:
        A matplotlib figure.

    ```python
    fw.plots.kernels_over_depth(fw.solve(net, X, order=0))
    ```
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
            for statistics in (s for s in sampled if s.net == theory.net):
                _draw_sampled_mean(axes, statistics, finite)
            _log_axes(axes, theory.depth)
            tends_to = getattr(laws, f"{infinite}_law")
            axes.set_title(f"{theory.net.activation_name}: {tends_to}")
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
    """Ratios of tensors of order 1/n to the quantities that they correct, against depth over width.

    The tensors are those of the first input. There is one row for each activation. Theories of several widths
    fall on one line as long as order 1/n is enough.

    Args:
        theories: Results of `fw.solve` through order 1/n.
        sampled: Results of `fw.sample_statistics` for the same networks, drawn as points with error bars.
        tensors: Letters of the tensors.

    Returns:
        A matplotlib figure.

    ```python
    fw.plots.fluctuations(fw.solve(net, X))
    ```
    """
    theories = as_records("theories", theories, Theory, _THEORY)
    for name in tensors:
        if name not in TENSORS:
            raise ValueError(f"tensors must be among {', '.join(TENSORS)}, got {name!r}.")
    sampled = _matched(theories, sampled)
    names = list(dict.fromkeys(theory.net.activation_name for theory in theories))
    figure = Figure(figsize=(0.6 + 3.0 * len(tensors), 0.9 + 2.5 * len(names)))
    grid = figure.subplots(len(names), len(tensors), squeeze=False)
    orthogonal = any(theory.net.has_orthogonal_weights for theory in theories)
    much = "less, or not at all, with orthogonal weights" if orthogonal else "as depth over width"
    heading(figure, f"fluctuations of critical networks grow {much}")
    for row, activation in enumerate(names):
        chosen = [theory for theory in theories if theory.net.activation_name == activation]
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
    records = as_records("sampled", list(sampled), SampledStatistics, _SAMPLED) if len(sampled) else []
    for one in records:
        if all(one.net != theory.net for theory in theories):
            raise ValueError(f"sampled has {one.net!r}, for which there is no theory; solve that network.")
    return records


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


def _draw_sampled_mean(axes: Axes, statistics: SampledStatistics, name: str) -> None:
    value, stderr = (np.diag(part) for part in getattr(statistics, name))
    label = f"sampled networks of width {statistics.n}, ± standard error"
    draw_sampled(axes, np.full(value.size, statistics.layer), value, stderr, label)


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
    kind = ", orthogonal weights" if theory.net.has_orthogonal_weights else ""
    label = f"theory at order 1/n, width {n[-1]}{kind}"
    more = {} if index == 0 else {"dashes": (6, 1.5 * index)}
    draw_line(axes, l / n, values, SERIES[index % len(SERIES)], label, **more)
    for statistics in sampled:
        if statistics.net == theory.net and name in statistics.estimates:
            scale = _scale(theory.layer(statistics.layer), name)
            value, stderr = (part[entry] / scale for part in statistics.estimates[name])
            label = f"sampled networks of width {statistics.n}{kind}, ± standard error"
            draw_sampled(axes, [statistics.layer / statistics.n], [value], [stderr], label, index)


def _scale(layer, name: str) -> float:
    """n K^k Theta^t of the first input, the scale of the tensor."""
    k, theta = POWERS[name]
    return layer.n * layer.K[0, 0] ** k * layer.Theta[0, 0] ** theta


def _ratio(name: str) -> str:
    """The ratio in words, such as V / n K²."""
    over = {-1: "", 0: "", 1: "{}", 2: "{}²", 3: "{}³"}
    k, theta = POWERS[name]
    above = f"{name} K" if k == -1 else name
    return f"{above} / n " + " ".join(filter(None, (over[k].format("K"), over[theta].format("Θ"))))
