"""Bayesian inference: the posterior beside gradient descent, and networks ranked by evidence."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.experiment.weighted import SampledPosterior
from finitewidth.interface.figures.look import PAPER, ROLES
from finitewidth.interface.figures.parts import (
    as_records,
    draw_band,
    draw_line,
    draw_sampled,
    draw_targets,
    heading,
    legend_below,
    require,
)
from finitewidth.interface.figures.saving import in_house_style
from finitewidth.training.bayes.posterior import Posterior
from finitewidth.training.bayes.ranking import Ranking
from finitewidth.training.infinite.gaussian import Prediction


class _Curves(NamedTuple):
    """Mean outputs at all test inputs, at both orders."""

    infinite: np.ndarray
    first: np.ndarray
    uncertainty: np.ndarray  # NaN, which is not drawn, where order 1/n is meaningless


@in_house_style
def posterior_and_training(
    posterior: Posterior | Sequence[Posterior],
    last_layer: Prediction | Sequence[Prediction],
    all_layers: Prediction | Sequence[Prediction],
    x: np.ndarray,
    data: tuple[np.ndarray, np.ndarray],
    sampled: SampledPosterior | None = None,
    sampled_x: np.ndarray | None = None,
) -> Figure:
    """The posterior and trained networks on one problem with one input, at both orders.

    At infinite width the posterior is what training the last layer alone leads to. At order 1/n nothing makes
    them agree, because the posterior also moves hidden layers. Each record may be a list of records for one
    block of x after another, which is cheaper for many inputs.

    Args:
        posterior: A result of `fw.bayes.posterior`.
        last_layer: The prediction for `fw.bayes.rates(net)`.
        all_layers: The prediction for the network itself.
        x: The test inputs of all three.
        data: Training inputs and targets.
        sampled: A result of `fw.bayes.sample`.
        sampled_x: Its inputs, which are among x; all by default.

    Returns:
        A matplotlib figure.

    ```python
    line, x, y = fw.MLP((1, 64, 1), "tanh"), np.array([[-1.0], [0.5]]), np.array([[0.5], [-0.5]])
    places = np.linspace(-2, 2, 4)[:, None]
    posterior = fw.bayes.posterior(line, x, y, places, noise=0.01, order=1)
    trained = [fw.predict(one, x, y, places) for one in (fw.bayes.rates(line), line)]
    fw.plots.posterior_and_training(posterior, *trained, places, (x, y))
    ```
    """
    x = np.asarray(x, dtype=float).ravel()
    posteriors = as_records("posterior", posterior, Posterior, "a result of fw.bayes.posterior")
    curves = _curves("posterior", posteriors, len(x))
    last, every = (
        _curves(name, as_records(name, given, Prediction, "a result of fw.predict"), len(x))
        for name, given in (("last_layer", last_layer), ("all_layers", all_layers))
    )
    figure = Figure(figsize=(9.6, 4.8))
    net = posteriors[0].net
    kind = f"{net.activation_name} networks of {net.depth} layers and width {net.widths[-2]}"
    heading(figure, f"{kind}: Bayes' rule and gradient descent")
    outputs, changes = figure.subplots(1, 2, width_ratios=(1.2, 1))
    std = np.concatenate([record.infinite_width.std[:, 0] for record in posteriors])
    _draw_outputs(outputs, x, curves, std, every)
    draw_targets(outputs, np.ravel(data[0]), np.asarray(data[1])[:, 0])
    _draw_changes(changes, x, curves, last, every)
    if sampled is not None:
        places = np.arange(len(x)) if sampled_x is None else _places(x, sampled_x)
        value, stderr = sampled.mean.value[:, 0] - curves.infinite[places], sampled.mean.stderr[:, 0]
        draw_sampled(changes, x[places], value, stderr, "weighted networks of the prior")
    legend_below(figure)
    return figure


def _curves(name: str, records: Sequence[Posterior | Prediction], count: int) -> _Curves:
    if any(record.order != 1 for record in records):
        raise ValueError(f"{name} is at infinite width only; use order=1.")
    infinite = np.concatenate([record.infinite_width.mean[:, 0] for record in records])
    first = np.concatenate([record.mean[:, 0] for record in records])
    if len(first) != count:
        raise ValueError(f"{name} must have the {count} test inputs x, got {len(first)}; predict at x.")
    bands = [
        np.where(record.verdict == "meaningless", np.nan, record.uncertainty[:, 0]) for record in records
    ]
    return _Curves(infinite, first, np.concatenate(bands))


def _places(x: np.ndarray, sampled_x: np.ndarray) -> np.ndarray:
    gaps = np.abs(np.ravel(sampled_x)[:, None] - x)
    if gaps.min(axis=1).max(initial=0.0) > 1e-12:
        raise ValueError("sampled_x must be inputs among x; pick every few of x, such as x[::4].")
    return gaps.argmin(axis=1)


def _draw_outputs(axes: Axes, x: np.ndarray, posterior: _Curves, std: np.ndarray, every: _Curves) -> None:
    mean = posterior.infinite
    label = "infinite width: posterior = last layer"
    draw_band(axes, x, mean - std, mean + std, "infinite width", "± standard deviation, infinite width")
    draw_line(axes, x, mean, "infinite width", label)
    draw_line(axes, x, posterior.first, "finite width", "posterior, order 1/n")
    style = {"linewidth": 1.6}
    label = "all layers trained, infinite width"
    draw_line(axes, x, every.infinite, "one more series", label, linestyle=":", **style)
    draw_line(
        axes, x, every.first, "one more series", "all layers trained, order 1/n", linestyle="-.", **style
    )
    axes.set_title("mean output")
    axes.set_xlabel("input x")


def _draw_changes(axes: Axes, x: np.ndarray, posterior: _Curves, last: _Curves, every: _Curves) -> None:
    """What order 1/n changes, each relative to its own infinite width."""
    draw_line(axes, x, np.zeros_like(x), "infinite width")
    change, unsure = posterior.first - posterior.infinite, 2 * posterior.uncertainty
    draw_band(axes, x, change - unsure, change + unsure, "finite width", "posterior, ± 2 uncertainties")
    draw_line(axes, x, change, "finite width", "posterior, order 1/n")
    label = "last layer trained, order 1/n"
    draw_line(axes, x, last.first - last.infinite, "further series", label, dashes=(3, 1.5))
    style = {"linestyle": "-.", "linewidth": 1.6}
    draw_line(axes, x, every.first - every.infinite, "one more series", **style)
    axes.set_title("mean output, minus its infinite width")
    axes.set_xlabel("input x")


@in_house_style
def evidence_of_networks(ranking: Ranking) -> Figure:
    """Log evidence of networks at infinite width and at order 1/n, the best at the top.

    A hollow mark is a value whose correction is too large to mean anything.

    Args:
        ranking: A result of `fw.bayes.rank`.

    Returns:
        A matplotlib figure.

    ```python
    networks = {"mine": net, "larger weights": net.replace(C_W=2.0)}
    fw.plots.evidence_of_networks(fw.bayes.rank(networks, X, Y, noise=0.01, order=0))
    ```
    """
    require("ranking", ranking, Ranking, "a result of fw.bayes.rank")
    rows = ranking.rows[::-1]
    height = np.arange(len(rows))
    figure = Figure(figsize=(8.0, 1.9 + 0.36 * len(rows)))
    heading(figure, f"networks ranked by one data set, noise of variance {ranking.noise:g}")
    axes = figure.subplots()
    for y, row in zip(height, rows, strict=True):
        ends = row.evidence.infinite_width.value, row.evidence.value
        axes.plot(ends, (y, y), color=ROLES["infinite width"]["color"], linewidth=0.8, alpha=0.5)
    infinite = [row.evidence.infinite_width.value for row in rows]
    marks = {"linestyle": "none", "marker": "|", "markersize": 12, "markeredgewidth": 1.6}
    axes.plot(infinite, height, color=ROLES["infinite width"]["color"], label="infinite width", **marks)
    for meaningful, fill, label in (
        (True, None, "through order 1/n"),
        (False, PAPER, "correction of one or more: meaningless"),
    ):
        chosen = [
            (row.evidence.value, y)
            for y, row in zip(height, rows, strict=True)
            if row.is_meaningful == meaningful
        ]
        if chosen:
            values, places = zip(*chosen, strict=True)
            style = {"markerfacecolor": fill, "linestyle": "none", "marker": "o", "markersize": 7}
            axes.plot(values, places, color=ROLES["finite width"]["color"], label=label, **style)
    axes.set_yticks(height, [row.name for row in rows])
    axes.set_title("log evidence of the data")
    axes.set_xlabel("log p(y), nats")
    axes.grid(axis="y", visible=False)
    legend_below(figure)
    return figure
