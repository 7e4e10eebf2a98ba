r"""The phase diagram of an activation: where deep networks forget and where they are chaotic.

For each (C_b, C_W) the kernel of one input flows to a fixed point
$K^* = C_b + C_W\langle\sigma\sigma\rangle_{K^*}$. There $\chi_\perp < 1$ means that nearby inputs merge
(ordered), $\chi_\perp > 1$ that they separate (chaotic), and both susceptibilities set correlation lengths
$\xi = 1/|\log\chi|$ in layers (PDLT section 5.3; Poole et al., 2016).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from finitewidth.activation import Activation, as_activation
from finitewidth.precision import require_double_precision
from finitewidth.theory.criticality import Criticality, criticality
from finitewidth.theory.leg_table import LegTable, leg_table

REGIONS = ("ordered", "critical", "chaotic", "diverging")
_CRITICAL = 1e-6  # chi_perp this close to one counts as critical
_NEWTON_STEPS = 6
_FOLLOWED = 200  # layers


@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """Fixed points over a grid, axes (C_b, C_W); infinite K_star and NaN susceptibilities where K diverges.

    The fixed point is the one that a kernel of `start` flows to: where there are several, another start may
    find another.
    """

    activation: Activation
    C_b: Float[np.ndarray, " B"]
    C_W: Float[np.ndarray, " W"]
    start: float
    K_star: Float[np.ndarray, "B W"]
    chi_parallel: Float[np.ndarray, "B W"]
    chi_perp: Float[np.ndarray, "B W"]
    fixed_points: np.ndarray = field(repr=False)  # how many the kernel map has, (B, W)
    point: Criticality = field(repr=False)  # the critical point to be marked

    @property
    def correlation_length_parallel(self) -> Float[np.ndarray, "B W"]:
        """Layers over which differences of norm fall by e; infinite at criticality."""
        return _length(self.chi_parallel)

    @property
    def correlation_length_perp(self) -> Float[np.ndarray, "B W"]:
        """Layers over which small differences of direction fall or grow by e; infinite at criticality."""
        return _length(self.chi_perp)

    @property
    def region(self) -> np.ndarray:
        """One of REGIONS for each point of the grid."""
        chi = np.where(np.isnan(self.chi_perp), np.inf, self.chi_perp)
        ordered, critical = chi < 1 - _CRITICAL, np.abs(chi - 1) <= _CRITICAL
        names = np.select(
            [np.isinf(self.K_star), ordered, critical], ["diverging", "ordered", "critical"], "chaotic"
        )
        return names


def phase_diagram(
    activation: str | Activation | Callable,
    C_b,
    C_W,
    *,
    start: float = 1.0,
) -> PhaseDiagram:
    """Fixed point, susceptibilities and correlation lengths over a grid of initializations.

    `C_b` and `C_W` are the axes of the grid. `start` is the kernel of the first layer.
    """
    require_double_precision()
    activation = as_activation(activation)
    biases, weights = _as_axis("C_b", C_b), _as_axis("C_W", C_W)
    if not (np.isfinite(start) and start > 0):
        raise ValueError(f"start must be a finite variance above 0, got {start!r}.")
    point = criticality(activation)
    table = leg_table(activation)
    K, count = _fixed_points(table, biases, weights, float(start))
    averages = table(np.where(np.isinf(K), np.nan, K))
    chi = weights * averages.growth, weights * averages.slope
    return PhaseDiagram(activation, biases, weights, float(start), K, *chi, count, point)


class FixedPoint(NamedTuple):
    """Where the kernel of a deep network ends; infinite K and NaN susceptibilities if nowhere."""

    K: float
    parallel: float
    perpendicular: float


def fixed_point(activation: Activation, C_b: float, C_W: float, start: float) -> FixedPoint:
    """The fixed point that a kernel of `start` flows to, at one initialization."""
    table = leg_table(activation)
    K = _fixed_points(table, np.asarray([C_b]), np.asarray([C_W]), start)[0].item()
    averages = table(np.asarray([np.nan if np.isinf(K) else K]))
    return FixedPoint(K, C_W * float(averages.growth[0]), C_W * float(averages.slope[0]))


def _fixed_points(
    table: LegTable, C_b: np.ndarray, C_W: np.ndarray, start: float
) -> tuple[np.ndarray, np.ndarray]:
    """K* of a kernel that begins at `start`, and the number of fixed points, (B, W) each."""
    K, count = np.full((C_b.size, C_W.size), start), np.empty((C_b.size, C_W.size), dtype=int)
    if (table.averages.growth < 0).any():  # then a kernel may jump over fixed points: follow it
        for _ in range(_FOLLOWED):
            K = np.nan_to_num(C_b[:, None] + C_W * table(K).square, nan=table.K[-1])
    for column, weight in enumerate(C_W):
        K[:, column], count[:, column] = _flow(table, C_b, weight, K[:, column])
    return _refined(table, K, C_b[:, None], C_W), count


def _flow(table: LegTable, C_b: np.ndarray, C_W: float, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the kernel goes from `start`, and the number of fixed points, for one C_W and every C_b.

    Where the map increases, a kernel that grows goes up to the next fixed point and one that falls goes down
    to it.
    """
    grid = np.concatenate([[0.0], table.K])
    square = np.concatenate([[table.at_zero], table.averages.square])
    drift = C_b[:, None] + C_W * square - grid  # F(K) - K, (B, M)
    rows = np.arange(C_b.size)
    here = np.clip(np.searchsorted(grid, start), 1, grid.size - 1)
    upwards = drift[rows, here] > 0
    changes = np.sign(drift[:, :-1]) * np.sign(drift[:, 1:]) <= 0
    changes[:, 0] &= C_b + C_W * table.at_zero > 0  # zero itself is counted apart
    cells = np.arange(grid.size - 1)
    above = np.where(changes & (cells >= here[:, None]), cells, grid.size).min(axis=1)
    below = np.where(changes & (cells < here[:, None]), cells, -1).max(axis=1)
    cell = np.where(upwards, above, below)
    inside = np.clip(cell, 0, grid.size - 2)
    left, right = drift[rows, inside], drift[rows, inside + 1]
    share = left / np.where(left == right, 1.0, left - right)
    K = grid[inside] + np.clip(share, 0.0, 1.0) * (grid[inside + 1] - grid[inside])
    K = np.where(cell >= grid.size, np.inf, np.where(cell < 0, 0.0, K))
    at_zero = (C_b + C_W * table.at_zero == 0).astype(int)
    return K, changes.sum(axis=1) + at_zero


def _refined(table: LegTable, K: np.ndarray, C_b: np.ndarray, C_W: np.ndarray) -> np.ndarray:
    """Newton's steps from the interpolated crossing, kept within a grid cell of it."""
    moving = np.isfinite(K) & (K > 0)
    first = np.where(moving, K, 1.0)
    best = first
    for _ in range(_NEWTON_STEPS):
        averages = table(best)
        slope = C_W * averages.growth - 1
        step = (C_b + C_W * averages.square - best) / np.where(np.abs(slope) < 1e-12, np.inf, slope)
        best = np.clip(best - step, first / 1.06, first * 1.06)
    return np.where(moving, best, K)


def _length(chi: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 / np.abs(np.log(np.abs(chi)))


def _as_axis(name: str, values) -> np.ndarray:
    try:
        axis = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers, got {values!r}.") from None
    if axis.ndim != 1 or axis.size == 0:
        raise ValueError(f"{name} must be one axis of the grid, got shape {axis.shape}; use np.linspace.")
    bad = ~(np.isfinite(axis) & (axis >= 0))
    if bad.any():
        raise ValueError(f"{name} must be finite and at least 0, got {axis[bad][0]}; it is a variance.")
    return axis
