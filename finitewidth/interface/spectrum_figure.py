"""A figure of the spectrum of the training NTK, from its record."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finitewidth.interface.look import ROLES
from finitewidth.interface.saving import save_figure
from finitewidth.training.spectrum import Spectrum


def save_spectrum(spectrum: Spectrum, path: str | Path) -> None:
    """Eigenvalues and time scales of learning, as the file type that `path` ends in (.svg, .png, .pdf)."""
    save_figure(lambda: _draw(spectrum), path)


def _draw(spectrum: Spectrum) -> Figure:
    net = spectrum.net
    figure = Figure(figsize=(8.4, 3.8))
    figure.suptitle(
        f"training NTK, {net.activation.name}, {net.depth} layers, {spectrum.eigenvalues.size} inputs: "
        f"condition {spectrum.condition:.2g}, learning rate below {spectrum.largest_learning_rate:.3g}",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    eigenvalues, times = figure.subplots(1, 2)
    rank = np.arange(1, spectrum.eigenvalues.size + 1)
    positive = spectrum.eigenvalues[::-1] > 0
    _draw_line(eigenvalues, rank[positive], spectrum.eigenvalues[::-1][positive])
    eigenvalues.set_title("eigenvalue of mode")
    _draw_line(times, rank[positive], spectrum.time_scales[::-1][positive])
    times.set_title("time scale of learning, 1 / eigenvalue")
    return figure


def _draw_line(axes: Axes, rank: np.ndarray, values: np.ndarray) -> None:
    look = ROLES["infinite width"]
    marker = "o" if rank.size <= 30 else ""
    axes.plot(rank, values, color=look["color"], lw=look["linewidth"], marker=marker)
    axes.set_yscale("log")
    axes.set_xlabel("mode, from the fastest")
