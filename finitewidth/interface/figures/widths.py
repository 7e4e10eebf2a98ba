"""Quantities that fall with the width: residuals of the theory at both orders, and motion of the NTK."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.core.estimate import Estimate
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.scaling import fall_with_width
from finitewidth.interface.figures.look import PAPER, ROLES
from finitewidth.interface.figures.parts import (
    as_records,
    draw_line,
    draw_sampled,
    heading,
    legend_below,
    numbers_on_log_axis,
    require,
)
from finitewidth.interface.figures.saving import in_house_style
from finitewidth.theory.records import Theory
from finitewidth.training.infinite.gaussian import Prediction

_ENSEMBLE = "a result of fw.train_ensemble"


@in_house_style
def residuals(predictions: Sequence[Prediction], ensembles: Sequence[Ensemble]) -> Figure:
    """Differences of trained networks and theory at both orders, against the width on logarithmic axes.

    The figure shows the output whose correction is largest at the first width, and the mean with a control
    variate if the ensembles have one.

    Args:
        predictions: Results of `fw.predict`, one for each width.
        ensembles: Results of `fw.train_ensemble`, one for each width.

    Returns:
        A matplotlib figure.

    ```python
    descent, networks = fw.GradientDescent(0.1, steps=5), [fw.MLP((2, n, 1), "tanh") for n in (8, 16)]
    options = dict(algorithm=descent, members=16, key=0)
    ensembles = [fw.train_ensemble(one, X, Y, X_test, **options) for one in networks]
    fw.plots.residuals([fw.predict(one, X, Y, X_test, algorithm=descent) for one in networks], ensembles)
    ```
    """
    predictions = as_records("predictions", predictions, Prediction, "a result of fw.predict")
    ensembles = as_records("ensembles", ensembles, Ensemble, _ENSEMBLE)
    widths = _widths(predictions, ensembles)
    corrections = predictions[0].mean - predictions[0].infinite_width.mean
    at = np.unravel_index(np.argmax(np.abs(corrections)), corrections.shape)
    figure = Figure(figsize=(7.6, 5.4))
    net = ensembles[0].net
    heading(figure, f"{net.activation_name} networks of {net.depth} layers, trained: residuals of the theory")
    axes = figure.subplots()
    leading = _residuals([p.infinite_width for p in predictions], ensembles, at)
    first = _residuals(predictions, ensembles, at)
    added = [abs(p.mean[at] - p.infinite_width.mean[at]) for p in predictions]
    draw_line(axes, widths, added, "infinite width", "the correction of order 1/n, which falls as 1/n")
    _draw_residuals(axes, widths, leading, "infinite width", 0)
    estimates = [Estimate(*pair) for pair in zip(*first, strict=True)]
    fall = fall_with_width(widths.astype(int).tolist(), estimates, (2, 3))
    law = np.abs([fall.at(n).value for n in widths])
    draw_line(axes, widths, law, "finite width", "a₂/n² + a₃/n³, fitted to the difference from order 1/n")
    _draw_residuals(axes, widths, first, "theory at order 1/n", 1)
    axes.set(xscale="log", yscale="log", xlabel="width n")
    axes.set_title("|mean output of trained networks minus theory|")
    numbers_on_log_axis(axes.xaxis, widths.tolist())
    # a difference below its standard error is seen as the upper end of its bar
    lowest = min(np.maximum(np.abs(one.value), one.stderr).min() for one in (leading, first))
    axes.set_ylim(bottom=max(lowest / 3, axes.get_ylim()[0]))
    legend_below(figure)
    return figure


def _widths(predictions: list[Prediction], ensembles: list[Ensemble]) -> np.ndarray:
    if len(predictions) != len(ensembles) or len(ensembles) < 2:
        raise ValueError(
            f"predictions and ensembles must be one each for two or more widths, got {len(predictions)} and "
            f"{len(ensembles)}."
        )
    for prediction, ensemble in zip(predictions, ensembles, strict=True):
        if prediction.order != 1:
            raise ValueError("predictions are at infinite width only; use fw.predict(..., order=1).")
        if prediction.net != ensemble.net or prediction.mean.shape != ensemble.mean.value.shape:
            raise ValueError(
                f"predictions and ensembles must be of the same networks and test inputs, got "
                f"{prediction.net!r} beside {ensemble.net!r}."
            )
    return np.array([float(ensemble.net.widths[-2]) for ensemble in ensembles])


def _residuals(predictions: list[Prediction], ensembles: list[Ensemble], at: tuple) -> Estimate:
    means = [e.best_mean for e in ensembles]
    gaps = [mean.value[at] - p.mean[at] for p, mean in zip(predictions, means, strict=True)]
    return Estimate(np.array(gaps), np.array([mean.stderr[at] for mean in means]))


def _draw_residuals(axes: Axes, widths: np.ndarray, residual: Estimate, words: str, index: int) -> None:
    label = f"trained networks minus {words}, ± standard error"
    fill = PAPER if index == 0 else None
    style = {"index": index, "markerfacecolor": fill, "markersize": 6}
    draw_sampled(axes, widths, np.abs(residual.value), residual.stderr, label, **style)


@in_house_style
def ntk_ellipses(
    networks: Sequence[Ensemble], ensembles: Sequence[Ensemble] = (), theory: Theory | None = None
) -> Figure:
    """The NTK of two training inputs as the ellipse {x : x^T Θ^-1 x = 1} during training, at several widths.

    Args:
        networks: Ensembles of one member with `fw.Record(ntk=True)`, one for each width.
        ensembles: Ensembles of many members, which give a panel with the motion over widths.
        theory: A result of `fw.solve` for the two inputs, which gives the frozen NTK of infinite width.

    Returns:
        A matplotlib figure.

    ```python
    descent = fw.GradientDescent(0.1, steps=20)
    options = dict(algorithm=descent, members=1, key=0, record=fw.Record(at=(0, 10), ntk=True))
    fw.plots.ntk_ellipses([fw.train_ensemble(net, X[:2], Y[:2], X_test, **options)])
    ```
    """
    networks = as_records("networks", networks, Ensemble, _ENSEMBLE)
    ensembles = as_records("ensembles", list(ensembles), Ensemble, _ENSEMBLE) if len(ensembles) else []
    kernels = [_two_by_two(network) for network in networks]
    panels = len(networks) + bool(ensembles)
    figure = Figure(figsize=(0.4 + 2.75 * panels, 4.0))
    moves = ", and how far it moves" if ensembles else ""
    heading(figure, f"the NTK of two inputs during training{moves}")
    row = figure.subplots(1, panels, squeeze=False)[0]
    reach = 1.08 * max(np.sqrt(M.max()) for recorded in kernels for M in recorded)
    frozen = None if theory is None else _frozen(theory)
    for index, (axes, network, recorded) in enumerate(zip(row, networks, kernels, strict=False)):
        _draw_ellipses(axes, recorded, network.points, frozen)
        axes.set(title=f"one network of width {network.net.widths[-2]}", aspect="equal")
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel="first input")
        axes.set_ylabel("second input" if index == 0 else "")
    if ensembles:
        _draw_motion(row[-1], ensembles)
    legend_below(figure)
    return figure


def _two_by_two(network: Ensemble) -> np.ndarray:
    """The NTK of the first output between the training inputs at every record, (records, 2, 2)."""
    if network.ntk is None or len(network.X_train) != 2:
        raise ValueError(
            f"networks must have an NTK recorded on two training inputs, got {len(network.X_train)} of them "
            f"and {'no ' if network.ntk is None else 'an '}NTK; train with record=fw.Record(ntk=True)."
        )
    return network.ntk.value[:, 0, :2, 0, :2]


def _frozen(theory: Theory) -> np.ndarray:
    require("theory", theory, Theory, "a result of fw.solve")
    if len(theory.X) != 2:
        raise ValueError(f"theory must be of the two training inputs, got {len(theory.X)}.")
    return theory.output.Theta


def _draw_ellipses(axes: Axes, recorded: np.ndarray, points: Sequence[float], frozen) -> None:
    """Lines are stronger at later times, and thicker at the first and last time."""
    strengths = np.linspace(0.3, 1.0, len(recorded))
    for index, (Theta, time, strength) in enumerate(zip(recorded, points, strengths, strict=True)):
        end = index in (0, len(recorded) - 1)
        style = {"color": ROLES["sampled networks"]["color"], "linewidth": 2.0 if end else 0.9}
        axes.plot(*_ellipse(Theta), alpha=strength, label=f"time {time:g}", **style)
    if frozen is not None:
        x, y = _ellipse(frozen)
        draw_line(axes, x, y, "infinite width", "infinite width, frozen")


def _ellipse(Theta: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(Theta)
    angle = np.linspace(0, 2 * np.pi, 200)
    return vectors @ (np.sqrt(values)[:, None] * np.array([np.cos(angle), np.sin(angle)]))


def _draw_motion(axes: Axes, ensembles: list[Ensemble]) -> None:
    widths = np.array([float(ensemble.net.widths[-2]) for ensemble in ensembles])
    if any(ensemble.ntk_movement is None for ensemble in ensembles):
        raise ValueError("ensembles have no NTK recorded; train with record=fw.Record(ntk=True).")
    moved = Estimate(*(np.array([part[-1] for part in parts]) for parts in _movements(ensembles)))
    draw_sampled(axes, widths, moved.value, moved.stderr, "trained networks, ± standard error", markersize=6)
    draw_line(axes, widths, moved.value[-1] * widths[-1] / widths, "asymptote", "1/n through the widest")
    axes.set(xscale="log", yscale="log", xlabel="width n")
    axes.set_title("relative motion of the NTK")
    numbers_on_log_axis(axes.xaxis, widths.tolist())


def _movements(ensembles: list[Ensemble]):
    return zip(*(ensemble.ntk_movement for ensemble in ensembles), strict=True)  # type: ignore[arg-type]
