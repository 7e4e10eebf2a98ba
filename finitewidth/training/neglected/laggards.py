r"""Networks that learn late: what they leave on training points, in all orders behind 1/n.

In mode a of the training NTK one network has the eigenvalue $l_a (1 + x)$, where

$$s_a^2 = \mathrm{Var}\, x = \frac{A_{(aa)(aa)} + (1 + n_L) B_{aaaa}}{n\, l_a^2} .$$

Its residual is multiplied by $u(l_a (1 + x))$, with $u(l) = (1 - \eta l)^T$ or $e^{-lT}$. Order 1/n is the
average through second order in x. It vanishes with u as training goes on, but the average itself is made by
the few networks whose NTK is small, for which u is not small yet: order $1/n^2$ is larger by $(s\,
lT)^2/4$, and no expansion knows what is left in the end. So the average is taken over a Gamma distribution
of 1 + x, which is what sums of n positive contributions have: for gradient flow $\mathrm{E}\, u = (1 + s^2
lT)^{-1/s^2}$. Minus order 1/n, it is the remainder on the training set. Fluctuations also carry a residual
from one mode to another, which is why half of the targets are spread evenly over modes. Other samples take
over what is left on the training set through the response $\Theta_{dA} \tilde\Theta^{-1}$, as beside a
training point they must.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtr

from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.clock import Clock

_NODES = np.linspace(-6.0, 6.0, 241)  # quantiles, in standard deviations of a normal distribution
_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()
_LEAST = 1e-8  # relative variance of an eigenvalue; quantiles of a narrower distribution are rounding


class TrainingModes(NamedTuple):
    """The training set in modes of its NTK, and how all samples that are asked about follow it."""

    l: np.ndarray  # eigenvalues (N_A,)
    spread: np.ndarray  # their relative variance over networks (N_A,)
    kernel: np.ndarray  # variance at initialization (N_A,)
    y: np.ndarray  # targets (N_A, n_L)
    response: np.ndarray  # Theta_dA / Theta_AA in modes (M, N_A)
    follow: np.ndarray  # the sum of its squares (M, 1)


class Leftover(NamedTuple):
    """What is left of some modes in all orders behind 1/n, per unit of what they began with."""

    mean: np.ndarray  # per target
    kernel: np.ndarray  # of the variance, per variance at initialization
    targets: np.ndarray  # of the variance, per squared target


class Behind(NamedTuple):
    """What lies behind order 1/n in mean and variance, (M, n_L) each."""

    mean: np.ndarray
    variance: np.ndarray


def left_by_laggards(modes: TrainingModes, algorithm: AbstractAlgorithm) -> Behind:
    """What networks that learn late leave on the samples that are asked about."""
    left = leftover(*_decay(algorithm, modes.l), modes.spread)
    squares = (modes.y**2 + np.mean(modes.y**2, axis=0)) / 2
    weights = modes.response**2
    mean = weights @ (left.mean[:, None] ** 2 * squares)
    variance = weights @ ((left.kernel * modes.kernel)[:, None] + left.targets[:, None] * squares)
    return Behind(np.sqrt(mean), variance)


def _decay(algorithm: AbstractAlgorithm, l: np.ndarray) -> tuple[Clock, np.ndarray]:
    """A clock and rates by which the residual of each mode decays as with the algorithm."""
    clock = algorithm.clock
    if clock is not None:
        return clock, np.maximum(l, 0.0)
    left = np.abs(1 - np.maximum(l, 0.0) * algorithm.response(l))
    return Clock(0.0, 1.0), -np.log(np.clip(left, 1e-300, 1.0))


def leftover(clock: Clock, l: np.ndarray, spread: np.ndarray) -> Leftover:
    """Averages of u and of u^2 over networks minus their parts through order 1/n, mode by mode."""
    if clock.has_converged:
        return Leftover(*(np.zeros_like(l) for _ in Leftover._fields))
    s2 = np.maximum(spread, _LEAST)[:, None]
    scale = gammaincinv(1 / s2, ndtr(_NODES)) * s2
    if clock.eta:  # networks beyond the edge of convergence stay on it
        scale = np.minimum(scale, 2 / np.maximum(clock.eta * l, 1e-300)[:, None])
    u = clock.decayed(l[:, None] * scale)
    first, second = u @ _WEIGHTS, u**2 @ _WEIGHTS
    u, slope, curvature = _derivatives(clock, l)
    of_mean = first - u - spread * curvature / 2
    of_square = second - u**2 - spread * (slope**2 + u * curvature)
    return Leftover(abs(of_mean), abs(of_square), abs(second - first**2 - spread * slope**2))


def _derivatives(clock: Clock, l: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """u, l u' and l^2 u''."""
    T, eta = clock.duration, clock.eta
    u = clock.decayed(l)
    if not eta:
        return u, -l * T * u, (l * T) ** 2 * u
    first = clock.until(max(T - 1, 0)).decayed(l)
    second = clock.until(max(T - 2, 0)).decayed(l)
    return u, -T * eta * l * first, T * (T - 1) * (eta * l) ** 2 * second
