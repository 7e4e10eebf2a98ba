"""Signals and gradients that are lost on the way through the layers, from curves over depth."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.core.display.numbers import number
from finitewidth.critical.activations.susceptibilities import CRITICAL

LOST = 1e3  # a mean square that changed by this factor, exponentially, is lost: a definition


@dataclass(frozen=True)
class Finding:
    """One thing that goes wrong, the layer where it begins, and the number behind it."""

    what: str  # "signal", "gradient", "nearby inputs", "positions"
    how: str  # "explodes", "vanishes", "separate", "merge"
    layer: int
    factor: float  # the largest change on the way
    correlation_length: float
    activation: str = ""  # next to that layer, in networks of different activations

    def __str__(self) -> str:
        backwards = self.what == "gradient"
        side = f" ({'before' if backwards else 'after'} {self.activation})" if self.activation else ""
        place = f"in layer {self.layer}{side} and below" if backwards else f"from layer {self.layer}{side} on"
        size = (
            f"by a factor {number(self.factor, 2)}"
            if math.isfinite(self.factor)
            else "beyond double precision"
        )
        length = (
            f"; correlation length {self.correlation_length:.3g} layers"
            if self.correlation_length < 1 / CRITICAL
            else ""
        )
        subject = self.what if self.what in ("nearby inputs", "positions") else f"the {self.what}"
        return f"{subject} {self.how} {place} ({size}{length})"


def losses(
    signal: np.ndarray,
    nearby: np.ndarray,
    gradient: np.ndarray,
    lengths: tuple[float, float, float],
    activations: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """Everything that is lost on the way, from three curves over the layers and their correlation lengths.

    Signals and separations of nearby inputs are relative to the first layer's, gradients to the output's.
    `activations` names the activation on each hidden layer, for networks in which they differ.
    """
    depth = len(signal)
    forwards = _lost("signal", ("explodes", "vanishes"), signal, lengths[0], depth)
    forwards += _lost("nearby inputs", ("separate", "merge"), nearby, lengths[1], depth)
    backwards = [
        dataclasses.replace(finding, layer=depth + 1 - finding.layer)
        for finding in _lost("gradient", ("explodes", "vanishes"), gradient[::-1], lengths[2], depth)
    ]
    if not activations:
        return (*forwards, *backwards)
    before, after = ("", *activations), (*activations, "")  # of each layer
    return (
        *(dataclasses.replace(finding, activation=before[finding.layer - 1]) for finding in forwards),
        *(dataclasses.replace(finding, activation=after[finding.layer - 1]) for finding in backwards),
    )


def merging(what: str, separation: np.ndarray, length: float) -> list[Finding]:
    """The loss of a separation over the layers, if it is exponential."""
    return _lost(what, ("separate", "merge"), separation, length, len(separation))


def _lost(what: str, hows: tuple[str, str], curve: np.ndarray, length: float, depth: int) -> list[Finding]:
    """A change by more than the factor LOST that is exponential: its length is below half the depth."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.log(np.where(np.isnan(curve), np.inf, curve))
    beyond = np.flatnonzero(np.abs(size) > math.log(LOST))
    if not beyond.size or 2 * length > depth:
        return []
    how = hows[0] if size[beyond[0]] > 0 else hows[1]
    worst = int(np.argmax(np.abs(size)))
    return [Finding(what, how, int(beyond[0]) + 1, float(curve[worst]), length)]
