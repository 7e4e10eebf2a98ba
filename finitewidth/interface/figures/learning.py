"""Trained networks as functions of their input, and the modes in which they learn."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.core.estimate import Estimate
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.interface.figures.answers import Answers, draw_answers
from finitewidth.interface.figures.look import ROLES
from finitewidth.interface.figures.parts import (
    as_records,
    draw_band,
    draw_line,
    draw_sampled,
    draw_targets,
    heading,
    legend_below,
    numbers_on_log_axis,
    require,
    whole_numbers,
)
from finitewidth.interface.figures.saving import in_house_style
from finitewidth.theory.ratios import Verdict
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.learning_curves import LearningCurve
from finitewidth.training.infinite.spectrum import Spectrum
from finitewidth.training.textbook.starpolation import Starpolation


@in_house_style
def trained_outputs(
    prediction: Prediction, ensemble: Ensemble | None = None, members: np.ndarray | None = None
) -> Figure:
    """Mean and standard deviation of trained networks with one input, at both orders, beside an ensemble.

    Bands of order 1/n are drawn unless it is meaningless, and where its variance is not below zero. Two
    further panels show the change of mean and variance at finite width, with standard errors. Without an
    ensemble, the test inputs stand side by side and may have any dimension.

    Args:
        prediction: A result of `fw.predict`, beside an ensemble for inputs with one component.
        ensemble: The result of `fw.train_ensemble` for the same problem.
        members: Outputs of some networks at the test inputs, (members, N_test), drawn as thin lines.

    Returns:
        A matplotlib figure.

    ```python
    line, x, y = fw.MLP((1, 16, 1), "tanh"), np.array([[-1.0], [0.5]]), np.array([[0.5], [-0.5]])
    descent, places = fw.GradientDescent(0.1, steps=5), np.linspace(-2, 2, 5)[:, None]
    prediction = fw.predict(line, x, y, places, algorithm=descent)
    ensemble = fw.train_ensemble(
        line, x, y, places, algorithm=descent, members=16, key=0
    )
    fw.plots.trained_outputs(prediction, ensemble)
    ```
    """
    require("prediction", prediction, Prediction, "a result of fw.predict")
    if ensemble is None:
        return draw_answers(Answers.of_prediction(prediction))
    require("ensemble", ensemble, Ensemble, "a result of fw.train_ensemble")
    _check_one_dimensional(prediction, ensemble)
    order = np.argsort(ensemble.X_test[:, 0], kind="stable")
    x = ensemble.X_test[order, 0]
    figure = Figure(figsize=(9.4, 4.6))
    net = ensemble.net
    kind = f"{net.activation_name} networks of {net.depth} layers and width {net.widths[-2]}, trained"
    heading(figure, f"{kind}: order 1/n is {prediction.verdict}")
    panels = figure.subplot_mosaic([["outputs", "mean"], ["outputs", "variance"]], width_ratios=(1.35, 1))
    _draw_outputs(panels["outputs"], x, order, prediction, ensemble, members)
    infinite = prediction.infinite_width
    mean = ensemble.best_mean
    variance = Estimate(*(np.einsum("aiai->ai", part) for part in ensemble.covariance))
    known = np.where(prediction.below_zero, np.nan, prediction.variance)  # the others are not drawn
    unsure = (
        np.hypot(prediction.uncertainty, prediction.stderr),
        np.hypot(prediction.variance_uncertainty, prediction.variance_stderr),
    )
    for name, finite, error, leading, estimate in (
        ("mean", prediction.mean, unsure[0], infinite.mean, mean),
        ("variance", known, unsure[1], infinite.variance, variance),
    ):
        parts = (part[order, 0] for part in (finite, error, leading, *estimate))
        _draw_change(panels[name], x, prediction.verdict, *parts)
        panels[name].set_title(f"{name} of the output, minus infinite width")
    panels["variance"].set_xlabel("input x")
    legend_below(figure)
    return figure


def _check_one_dimensional(prediction: Prediction, ensemble: Ensemble) -> None:
    if ensemble.X_test.shape[1] != 1:
        raise ValueError(
            f"ensemble has inputs of dimension {ensemble.X_test.shape[1]}, and this figure draws functions "
            "of one input; train on inputs of shape (N, 1)."
        )
    if prediction.mean.shape != ensemble.mean.value.shape:
        raise ValueError(
            f"the prediction has {prediction.mean.shape} test outputs but the ensemble "
            f"{ensemble.mean.value.shape}; use the same X_test for both."
        )
    if prediction.order != 1:
        raise ValueError("prediction is at infinite width only; use fw.predict(..., order=1).")


def _draw_outputs(
    axes: Axes, x: np.ndarray, order: np.ndarray, prediction: Prediction, ensemble: Ensemble, members
) -> None:
    orders = {"infinite width": prediction.infinite_width, "finite width": prediction}
    words = {"infinite width": "infinite width", "finite width": "theory at order 1/n"}
    for role, at_order in orders.items():
        mean, label = at_order.mean[order, 0], f"{words[role]}, mean"
        if at_order.verdict == "meaningless":
            label = f"{label} (meaningless)"
        else:
            std = at_order.std[order, 0]
            draw_band(axes, x, mean - std, mean + std, role, f"{words[role]}, ± standard deviation")
        draw_line(axes, x, mean, role, label)
    if members is not None:
        for index, row in enumerate(np.asarray(members)):
            label = "trained networks" if index == 0 else None
            look = ROLES["sampled networks"]["color"]
            axes.plot(x, row[order], color=look, linewidth=0.7, alpha=0.35, label=label)
    mean, stderr = (part[order, 0] for part in ensemble.mean)
    draw_sampled(axes, x, mean, stderr, "trained networks, ± standard error", markersize=3)
    draw_targets(axes, ensemble.X_train[:, 0], ensemble.Y_train[:, 0])
    axes.set_title("output z(x)")
    axes.set_xlabel("input x")


def _draw_change(axes: Axes, x, verdict: Verdict, finite, unsure, infinite, value, stderr) -> None:
    draw_line(axes, x, np.zeros_like(x), "infinite width")
    if verdict != "meaningless":
        change = finite - infinite
        label = "change by order 1/n, ± 2 uncertainties"
        draw_band(axes, x, change - 2 * unsure, change + 2 * unsure, "finite width", label)
    draw_line(axes, x, finite - infinite, "finite width")
    draw_sampled(axes, x, value - infinite, stderr, markersize=3)


@in_house_style
def starpolation(lines: Starpolation | Sequence[Starpolation]) -> Figure:
    """Mean ± standard deviation between and beyond two training inputs, one panel for each network.

    Args:
        lines: Results of `fw.textbook.starpolate`.

    Returns:
        A matplotlib figure.

    ```python
    fw.plots.starpolation(fw.textbook.starpolate(net, X[0], X[1], Y[0], Y[1], s=[-1.0, 0.5, 2.0]))
    ```
    """
    lines = as_records("lines", lines, Starpolation, "a result of fw.textbook.starpolate")
    columns = min(len(lines), 4)
    rows = -(-len(lines) // columns)
    figure = Figure(figsize=(0.6 + 2.4 * columns, 1.2 + 2.5 * rows))
    heading(figure, "star-polation: trained on two inputs, tested on the line through them")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(lines) :]:
        axes.set_visible(False)
    for axes, one in zip(grid.flat, lines, strict=False):
        mean, std = one.mean[:, 0], np.sqrt(one.variance)
        draw_line(axes, one.s, one.linear[:, 0], "asymptote", "straight line through the targets")
        draw_band(axes, one.s, mean - std, mean + std, "infinite width", "± standard deviation")
        draw_line(axes, one.s, mean, "infinite width", "mean at infinite width")
        draw_targets(axes, [1.0, 0.0], one.targets[:, 0])
        net = one.prediction.net
        axes.set_title(f"{net.activation_name}, {net.depth} layers")
    for axes in grid[-1]:
        axes.set_xlabel("place on the line, s")
    for axes in grid[:, 0]:
        axes.set_ylabel("output z(s)")
    legend_below(figure)
    return figure


@in_house_style
def spectrum(modes: Spectrum) -> Figure:
    """Eigenvalues of the training NTK and the time scales of learning, mode by mode.

    Args:
        modes: A result of `fw.textbook.spectrum`.

    Returns:
        A matplotlib figure.

    ```python
    fw.plots.spectrum(fw.textbook.spectrum(net, X))
    ```
    """
    require("modes", modes, Spectrum, "a result of fw.textbook.spectrum")
    net = modes.net
    figure = Figure(figsize=(8.4, 3.8))
    heading(
        figure,
        f"training NTK, {net.activation_name}, {net.depth} layers, {modes.eigenvalues.size} inputs: "
        f"condition {modes.condition:.2g}, learning rate below {modes.largest_learning_rate:.3g}",
    )
    eigenvalues, times = figure.subplots(1, 2)
    rank = np.arange(1, modes.eigenvalues.size + 1)
    positive = modes.eigenvalues[::-1] > 0
    style = {"color": ROLES["infinite width"]["color"], "markersize": 4 if rank.size <= 30 else 2.5}
    for axes, values, words in (
        (eigenvalues, modes.eigenvalues, "eigenvalue of Θ"),
        (times, modes.time_scales, "time scale of learning, 1 / eigenvalue"),
    ):
        axes.plot(rank[positive], values[::-1][positive], linestyle="none", marker="o", **style)
        axes.set_yscale("log")
        axes.set_title(words)
        axes.set_xlabel("mode, from the fastest")
        whole_numbers(axes.xaxis)
    return figure


@in_house_style
def learning_curve(curve: LearningCurve, networks: Sequence[tuple[int, Estimate]] = ()) -> Figure:
    """Errors over the number of training points: expected, of random subsets, and of real networks.

    Args:
        curve: A result of `fw.learning_curve`.
        networks: Numbers of training points, each with the measured test error of trained networks.

    Returns:
        A matplotlib figure.

    ```python
    fw.plots.learning_curve(fw.learning_curve(net, X, Y, sizes=(1, 2), noise=0.1))
    ```
    """
    require("curve", curve, LearningCurve, "a result of fw.learning_curve")
    figure = Figure(figsize=(7.2, 4.4))
    heading(figure, f"learning curve of {curve.net.activation_name} networks, ridge {curve.noise:g}")
    axes = figure.subplots()
    draw_line(axes, curve.sizes, curve.test, "finite width", "expected test error")
    if curve.noise:
        draw_line(axes, curve.sizes, curve.train, "asymptote", "expected training error")
    if curve.measured_test is not None:
        label = "kernel prediction from random subsets, ± standard error"
        draw_sampled(axes, curve.sizes, *curve.measured_test, label)
    if len(networks):
        sizes, errors = zip(*networks, strict=True)
        value, stderr = (np.array([float(part) for part in parts]) for parts in zip(*errors, strict=True))
        draw_sampled(axes, sizes, value, stderr, "trained networks, ± standard error", 1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    numbers_on_log_axis(axes.xaxis, curve.sizes)
    axes.set_title("mean squared error of the mean over networks")
    axes.set_xlabel("training points N")
    legend_below(figure)
    return figure
