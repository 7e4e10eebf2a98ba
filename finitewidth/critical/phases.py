r"""The phase diagram of an activation: initializations at which deep networks are ordered or chaotic.

For each (C_b, C_W) the kernel of one input flows to a fixed point
$K^* = C_b + C_W\langle\sigma\sigma\rangle_{K^*}$. There $\chi_\perp < 1$ means that nearby inputs merge
(ordered), $\chi_\perp > 1$ that they separate (chaotic), and both susceptibilities set correlation lengths
$\xi = 1/|\log\chi|$ in layers (PDLT section 5.3; Poole et al., 2016).

A residual network $z' = \gamma z + b + W \sigma(z)$ has the fixed points of the dense network at
$(C_b, C_W)/(1 - \gamma^2)$, and susceptibilities $\gamma^2 + C_W \langle\ldots\rangle$.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike
from finitewidth.core.precision import require_double_precision
from finitewidth.critical.activations.classification import Criticality, criticality
from finitewidth.critical.activations.susceptibilities import CRITICAL
from finitewidth.gaussian.two_legs.leg_table import LegTable, leg_table
from finitewidth.network.layers.activation import Activation, as_activation

REGIONS = ("ordered", "critical", "chaotic", "diverging")
_BISECTIONS = 40
_ITERATIONS = 200


@shown(
    "activation",
    "C_b",
    "C_W",
    "gamma",
    "K_star",
    "chi_parallel",
    "chi_perp",
    dimensions={
        "C_b": "C_b",
        "C_W": "C_W",
        "gamma": "gamma",
        "K_star": "row C_W",
        "chi_parallel": "row C_W",
        "chi_perp": "row C_W",
    },
    figure="phase_diagrams",
)
@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """Fixed points over a grid, axes (C_b, C_W); infinite K_star and NaN susceptibilities where K diverges.

    Where `gamma` has several values they take the place of C_b: the axes are (gamma, C_W). The fixed point is
    the one that a kernel of `start` flows to; where there are several, another start may lead to another.
    `fw.critical.phase_diagram` makes it, and `plot` draws it.

    ```python
    diagram = fw.critical.phase_diagram("tanh", [0.0, 0.1], [0.8, 1.0, 1.2])
    diagram.region, diagram.correlation_length_perp, diagram.critical_line
    ```
    """

    activation: Activation  # the activation
    C_b: Float[np.ndarray, " B"]  # variances of biases
    C_W: Float[np.ndarray, " W"]  # variances of weights times fan-in
    start: float  # kernel of the first layer
    K_star: Float[np.ndarray, "R W"]  # R is B, or the number of gammas
    chi_parallel: Float[np.ndarray, "R W"]  # parallel susceptibility at the fixed point
    chi_perp: Float[np.ndarray, "R W"]  # perpendicular susceptibility at the fixed point
    fixed_points: np.ndarray = field(repr=False)  # their number at each initialization, (R, W)
    point: Criticality = field(repr=False)  # the critical point of the activation without a skip
    gamma: Float[np.ndarray, " G"] = field(default_factory=lambda: np.zeros(1))  # of the skip, 0 without one

    @property
    def over_gamma(self) -> bool:
        """Whether rows are values of gamma, not of C_b."""
        return self.gamma.size > 1

    @property
    def critical_line(self) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
        r"""C_W and the row's C_b or gamma where the network is critical: a line, a point or nothing.

        With skips C_b and C_W are $1 - \gamma^2$ times those of the activation.
        """
        C_b, C_W, kept = self.point.C_b, self.point.C_W, 1 - self.gamma**2
        if C_b is None or C_W is None:
            return np.empty(0), np.empty(0)
        if not self.over_gamma:
            return C_W * kept, C_b * kept
        if C_b == 0 and self.C_b[0] == 0:
            gamma = self.gamma[self.gamma <= 1]
            return C_W * (1 - gamma**2), gamma
        share = self.C_b / C_b if C_b > 0 else np.full(1, np.inf)
        share = share[(share > 0) & (share <= 1)]
        return C_W * share, np.sqrt(1 - share)

    @property
    def correlation_length_parallel(self) -> Float[np.ndarray, "R W"]:
        """Layers over which differences of norm fall by e; infinite at criticality."""
        return _length(self.chi_parallel)

    @property
    def correlation_length_perp(self) -> Float[np.ndarray, "R W"]:
        """Layers over which small differences of direction fall or grow by e; infinite at criticality."""
        return _length(self.chi_perp)

    @property
    def region(self) -> np.ndarray:
        """One of REGIONS for each point of the grid."""
        chi = np.where(np.isnan(self.chi_perp), np.inf, self.chi_perp)
        ordered, critical = chi < 1 - CRITICAL, np.abs(chi - 1) <= CRITICAL
        names = np.select(
            [np.isinf(self.K_star), ordered, critical], ["diverging", "ordered", "critical"], "chaotic"
        )
        return names


def phase_diagram(
    activation: str | Activation | Callable,
    C_b: ArrayLike,
    C_W: ArrayLike,
    *,
    start: float = 1.0,
    gamma: ArrayLike = 0.0,
) -> PhaseDiagram:
    r"""Fixed point, susceptibilities and correlation lengths over a grid of initializations.

    Args:
        activation: A name, an `fw.Activation` or a function.
        C_b: Variances of biases, the first axis of the grid.
        C_W: Variances of weights times their fan-in, the second axis.
        start: The kernel of the first layer.
        gamma: The factor of the skip of residual networks, $z' = \gamma z + b + W \sigma(z)$. Several values
            make it an axis in the place of `C_b`, which is then one number.

    Returns:
        Arrays of shape (C_b, C_W).

    ```python
    diagram = fw.critical.phase_diagram("tanh", [0.0, 0.1], [0.8, 1.0, 1.2])
    diagram.chi_perp, diagram.region
    ```
    """
    require_double_precision()
    activation = as_activation(activation)
    biases, weights, skips = _as_axis("C_b", C_b), _as_axis("C_W", C_W), _as_axis("gamma", gamma)
    if biases.size > 1 and skips.size > 1:
        raise ValueError(
            f"C_b and gamma cannot both be axes, got {biases.size} and {skips.size} values; give one number "
            "for one of them."
        )
    if not (np.isfinite(start) and start > 0):
        raise ValueError(f"start must be a finite variance above 0, got {start!r}.")
    point = criticality(activation)
    table = leg_table(activation)
    rows = [_rows(table, biases, weights, float(skip), float(start)) for skip in skips]
    parts = (np.concatenate(part) for part in zip(*rows, strict=True))
    K, parallel, perpendicular, count = parts
    return PhaseDiagram(
        activation, biases, weights, float(start), K, parallel, perpendicular, count, point, skips
    )


def _rows(table: LegTable, C_b: np.ndarray, C_W: np.ndarray, gamma: float, start: float):
    """K*, both susceptibilities and the number of fixed points for one gamma, (B, W) each."""
    K, count = _with_skip(table, C_b, C_W, gamma**2, start)
    averages = table(np.where(np.isinf(K), np.nan, K))
    return K, gamma**2 + C_W * averages.growth, gamma**2 + C_W * averages.slope, count


def _with_skip(table: LegTable, C_b: np.ndarray, C_W: np.ndarray, gamma2: float, start: float):
    """K* and the number of fixed points with a skip that keeps a share gamma^2 of K."""
    if gamma2 < 1:
        return _fixed_points(table, C_b / (1 - gamma2), C_W / (1 - gamma2), start, gamma2)
    unchanged = (C_b[:, None] == 0) & (C_W == 0) & (gamma2 == 1)  # only then nothing is added to K
    return np.where(unchanged, start, np.inf), np.zeros(unchanged.shape, dtype=int)


class FixedPoint(NamedTuple):
    """The end of a deep network's kernel; infinite K and NaN susceptibilities if it grows without end."""

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
    table: LegTable, C_b: np.ndarray, C_W: np.ndarray, start: float, gamma2: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """K* of a kernel that begins at `start`, and the number of fixed points, (B, W) each.

    `gamma2` is the share of K that a skip keeps in each step.
    """
    K, count = np.full((C_b.size, C_W.size), start), np.empty((C_b.size, C_W.size), dtype=int)
    if (table.averages.growth < 0).any():  # then a kernel may jump over fixed points: iterate first
        for _ in range(_ITERATIONS):
            image = np.nan_to_num(C_b[:, None] + C_W * table(K).square, nan=table.K[-1])
            K = gamma2 * K + (1 - gamma2) * image if gamma2 else image
    low, high = np.empty(K.shape), np.empty(K.shape)
    turns = _turning_points(table, C_W)
    for column, weight in enumerate(C_W):
        cells = _flow(table, turns[column], C_b, float(weight), K[:, column])
        low[:, column], high[:, column], count[:, column] = cells
    return _bisected(table, low, high, C_b[:, None], C_W), count


def _turning_points(table: LegTable, C_W: np.ndarray) -> list[np.ndarray]:
    """For each C_W the K at which chi_parallel passes one: between them F(K) - K is monotone."""
    excess = C_W[:, None] * table.averages.growth - 1
    rows, cells = np.nonzero(np.sign(excess[:, :-1]) * np.sign(excess[:, 1:]) < 0)
    low, high = np.log(table.K[cells]), np.log(table.K[cells + 1])
    rising = excess[rows, cells] < 0
    for _ in range(30):
        middle = (low + high) / 2
        before = (C_W[rows] * table(np.exp(middle)).growth < 1) == rising
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    return [np.exp(low[rows == row]) for row in range(C_W.size)]


def _flow(
    table: LegTable, turns: np.ndarray, C_b: np.ndarray, C_W: float, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds on the K at which the kernel ends, for one C_W and every C_b, and the number of fixed points.

    Where the map increases, a growing kernel goes up to the next fixed point above it, and a falling one goes
    down to the next below. No cell of the grid holds two, since the turning points are among its nodes.
    """
    positive = np.sort(np.concatenate([table.K, turns]))
    grid = np.concatenate([[0.0], positive])
    square = np.concatenate([[table.at_zero], table(positive).square])
    drift = C_b[:, None] + C_W * square - grid  # F(K) - K, (B, M)
    rows, cells = np.arange(C_b.size), np.arange(grid.size - 1)
    here = np.clip(np.searchsorted(grid, start), 1, grid.size - 1)
    upwards = drift[rows, here] > 0
    changes = np.sign(drift[:, :-1]) * np.sign(drift[:, 1:]) <= 0
    zero_is_fixed = drift[:, 0] == 0
    changes[:, 0] &= ~zero_is_fixed  # counted apart
    above = np.where(changes & (cells >= here[:, None]), cells, grid.size).min(axis=1)
    below = np.where(changes & (cells < here[:, None]), cells, -1).max(axis=1)
    cell = np.where(upwards, above, below)
    inside = np.clip(cell, 0, grid.size - 2)
    low = np.where(cell >= grid.size, np.inf, np.where(cell < 0, 0.0, grid[inside]))
    high = np.where(cell >= grid.size, np.inf, np.where(cell < 0, 0.0, grid[inside + 1]))
    return low, high, changes.sum(axis=1) + zero_is_fixed


def _bisected(
    table: LegTable, low: np.ndarray, high: np.ndarray, C_b: np.ndarray, C_W: np.ndarray
) -> np.ndarray:
    """The one zero of F(K) - K between `low` and `high`, by bisection."""
    known = np.isfinite(high) & (high > 0)
    left, right = np.where(known, low, 1.0), np.where(known, high, 1.0)
    sign = np.sign(C_b + C_W * table(left).square - left)
    for _ in range(_BISECTIONS):
        middle = (left + right) / 2
        same = np.sign(C_b + C_W * table(middle).square - middle) == sign
        left, right = np.where(same, middle, left), np.where(same, right, middle)
    return np.where(known, (left + right) / 2, high)


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
        kind = "a variance" if name.startswith("C") else "the size of a skip"
        raise ValueError(f"{name} must be finite and at least 0, got {axis[bad][0]}; it is {kind}.")
    return axis
