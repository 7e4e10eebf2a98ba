"""Bayesian inference: the posterior beside gradient descent, and networks ranked by evidence."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.experiment.weighted import SampledPosterior
from finitewidth.interface.figures.look import PAPER, ROLES
from finitewidth.interface.figures.parts import (
    draw_band,
    draw_line,
    draw_sampled,
    draw_targets,
    heading,
    legend_below,
    require,
)
from finitewidth.interface.figures.saving import in_house_style
from finitewidth.training.bayes.choice import Ranking
from finitewidth.training.bayes.posterior import Posterior
from finitewidth.training.infinite.gaussian import Prediction


@in_house_style
def posterior_and_training(
    posterior: Posterior,
    last_layer: Prediction,
    all_layers: Prediction,
    x: np.ndarray,
    data: tuple[np.ndarray, np.ndarray],
    sampled: SampledPosterior | None = None,
) -> Figure:
    """The posterior and trained networks on one problem with one input, at both orders.

    `last_layer` is the prediction for `fw.bayesian_rates(net)` and `all_layers` that for the network itself,
    at the test inputs x; `data` are training inputs and targets. At infinite width the first two agree. At
    order 1/n nothing makes them agree, because the posterior also moves hidden layers.
    """
    require("posterior", posterior, Posterior, "a result of fw.posterior")
    for name, prediction in (("last_layer", last_layer), ("all_layers", all_layers)):
        require(name, prediction, Prediction, "a result of fw.predict")
        if prediction.order != 1 or prediction.mean.shape != posterior.mean.shape:
            raise ValueError(f"{name} must be at order 1 and have the test inputs of the posterior.")
    if posterior.order != 1:
        raise ValueError("posterior is at infinite width only; use fw.posterior(..., order=1).")
    x = np.asarray(x, dtype=float).ravel()
    figure = Figure(figsize=(9.6, 4.6))
    net = posterior.net
    kind = f"{net.activation_name} networks of {net.depth} layers and width {net.widths[-2]}"
    heading(figure, f"{kind}: Bayes' rule and gradient descent")
    outputs, changes = figure.subplots(1, 2, width_ratios=(1.2, 1))
    _draw_outputs(outputs, x, posterior, all_layers)
    draw_targets(outputs, np.ravel(data[0]), np.asarray(data[1])[:, 0])
    _draw_changes(changes, x, posterior, last_layer, sampled)
    legend_below(figure)
    return figure


def _draw_outputs(axes: Axes, x: np.ndarray, posterior: Posterior, all_layers: Prediction) -> None:
    infinite = posterior.infinite_width
    mean, std = infinite.mean[:, 0], infinite.std[:, 0]
    label = "infinite width: posterior = last layer"
    draw_band(axes, x, mean - std, mean + std, "infinite width", "± standard deviation, infinite width")
    draw_line(axes, x, mean, "infinite width", label)
    draw_line(axes, x, posterior.mean[:, 0], "finite width", "posterior, order 1/n")
    style = {"linestyle": "-.", "linewidth": 1.6}
    draw_line(axes, x, all_layers.mean[:, 0], "one more series", "all layers trained, order 1/n", **style)
    axes.set_title("mean output")
    axes.set_xlabel("input x")


def _draw_changes(
    axes: Axes, x: np.ndarray, posterior: Posterior, last_layer: Prediction, sampled: SampledPosterior | None
) -> None:
    infinite = posterior.infinite_width.mean[:, 0]
    draw_line(axes, x, np.zeros_like(x), "infinite width")
    draw_line(axes, x, posterior.mean[:, 0] - infinite, "finite width", "posterior, order 1/n")
    own = last_layer.mean[:, 0] - last_layer.infinite_width.mean[:, 0]
    draw_line(axes, x, own, "further series", "last layer trained, order 1/n", dashes=(3, 1.5))
    if sampled is not None:
        value, stderr = sampled.mean.value[:, 0] - infinite, sampled.mean.stderr[:, 0]
        draw_sampled(axes, x, value, stderr, "weighted networks of the prior")
    axes.set_title("mean output, minus infinite width")
    axes.set_xlabel("input x")


@in_house_style
def evidence_of_networks(ranking: Ranking) -> Figure:
    """Log evidence of networks at infinite width and at order 1/n, the best at the top.

    A hollow mark is a value whose correction is too large to mean anything.
    """
    require("ranking", ranking, Ranking, "a result of fw.rank_by_evidence")
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
