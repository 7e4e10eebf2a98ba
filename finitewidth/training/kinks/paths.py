r"""Neurons that move along a training near their kink, and how their gates change.

With x the distance of a neuron's value from its kink times $\sqrt{n_l}$, one step moves it by
$V = \mathrm{drift} + \mathrm{gate}(x)\, \mathrm{own}$: by other parameters, and by its own gate. Within a
step of gradient descent the output follows the path of $\sigma$, while gradients use the gates at its
beginning; for gradient flow steps are short.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from finitewidth.network.algorithms.clock import Clock

POINTS = 16  # of the grid over x, which is shifted at random: sums over it are unbiased
_STEPS = 240  # of gradient flow
_FIRST = 0.05  # of the shortest time scale: its first step
_END = 35.0  # time scales of the slowest mode after which nothing moves


@dataclass(frozen=True, eq=False)
class Schedule:
    """Steps of a training at infinite width, for each mode of the training NTK."""

    moved: Float[np.ndarray, "T A"]  # integral of the residual over a step, of residuals that begin at one
    response: Float[np.ndarray, "T A"]  # f of the time that is left behind a step
    absorbed: Float[np.ndarray, " A"]  # f of the whole training

    @classmethod
    def of(cls, clock: Clock, l: np.ndarray) -> "Schedule":
        """For eigenvalues l of the training NTK."""
        if not clock.eta:
            return cls._flow(clock, l)
        steps = np.arange(int(clock.duration))
        begin = (1 - clock.eta * l) ** steps[:, None]
        left = np.stack([clock.until(float(t)).absorbed(l) for t in steps[::-1]])
        return cls(clock.eta * begin, left, clock.absorbed(l))

    @classmethod
    def _flow(cls, clock: Clock, l: np.ndarray) -> "Schedule":
        """Steps that are equal at first and then grow with the time that has passed."""
        duration = min(clock.duration, _END / l[0])
        scale = _FIRST / l[-1] * _STEPS / 4
        times = np.expm1(np.linspace(0, np.log1p(duration / scale), _STEPS + 1)) * scale
        spent = np.stack([clock.until(t).absorbed(l) for t in times])
        left = np.stack([clock.until(duration - t).absorbed(l) for t in (times[1:] + times[:-1]) / 2])
        return cls(np.diff(spent, axis=0), left, spent[-1])


def crossings(
    drift: Float[np.ndarray, "m T"],
    own: Float[np.ndarray, "m T"],
    slopes: tuple[float, float],
    offset: Float[np.ndarray, "m 1"],
) -> tuple[Float[np.ndarray, "m T"], Float[np.ndarray, "m T"]]:
    """Integrals over the beginning x of a neuron, in each step.

    Of the change of sigma(x) beyond that with the first gate, and of the gate beyond the first.
    """
    below, above = slopes
    speeds = np.maximum(np.abs(drift + below * own), np.abs(drift + above * own))
    reach = 1.0001 * speeds.sum(axis=1, keepdims=True) + np.finfo(float).tiny
    x = reach * (2 * (np.arange(POINTS) + offset) / POINTS - 1)
    first = before = _gate(x, slopes)
    signal, kicks, gates = before * x, np.empty_like(drift), np.empty_like(drift)
    for t in range(drift.shape[1]):
        by_others, by_itself = drift[:, t, None], own[:, t, None]
        gates[:, t] = (before - first).sum(axis=1)
        x = x + by_others + before * by_itself
        before = _gate(x, slopes)
        after = before * x
        kicks[:, t] = (after - signal - first * (by_others + first * by_itself)).sum(axis=1)
        signal = after
    spacing = 2 * reach / POINTS
    return kicks * spacing, gates * spacing


def _gate(x: np.ndarray, slopes: tuple[float, float]) -> np.ndarray:
    return np.where(x > 0, slopes[1], slopes[0])


def density_at_kink(variance: float) -> float:
    """Of neurons over their value, at zero."""
    return 1 / math.sqrt(2 * math.pi * variance)
