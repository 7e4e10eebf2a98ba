r"""The search for kernels K* > 0 at which both susceptibilities can be one, over twenty decades of K.

$\chi_\parallel = \chi_\perp$ means $\langle\sigma\sigma''\rangle_{K^*} = 0$. Then
$C_W = 1/\langle\sigma'\sigma'\rangle$ makes both one and $C_b = K^* - C_W \langle\sigma\sigma\rangle$ makes
$K^*$ a fixed point, if it is not negative (PDLT section 5.3.4).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from finitewidth.gaussian.tower import Tower
from finitewidth.gaussian.two_legs.leg_table import LegTable
from finitewidth.gaussian.two_legs.one_leg import leg_averages
from finitewidth.network.layers.activation import Activation


class CriticalPoint(NamedTuple):
    """A kernel K* > 0 with the initialization that makes it a fixed point with both susceptibilities one."""

    K: float
    C_b: float
    C_W: float


class Search(NamedTuple):
    """The critical points with K* > 0, and whether others are excluded."""

    points: tuple[CriticalPoint, ...]  # by increasing K
    impossible: tuple[CriticalPoint, ...]  # C_b would be negative
    lowest: float
    highest: float  # of the variances that were searched
    sign: int  # of <sigma sigma''> if it is the same for every K, else 0
    certain: bool


def search(activation: Activation, table: LegTable) -> Search:
    """All critical points with K* > 0."""
    definite = sign_for_every_variance(activation)
    roots, confirmed = ([], True) if definite else _roots(activation, table)
    candidates = [_point_at(activation, K) for K in roots]
    return Search(
        points=tuple(point for point in candidates if point.C_b >= 0),
        impossible=tuple(point for point in candidates if point.C_b < 0),
        lowest=float(table.K[0]),
        highest=float(table.K[-1]),
        sign=definite or _sign_on_grid(table),
        certain=bool(definite) or (table.complete and confirmed),
    )


def sign_for_every_variance(activation: Activation) -> int:
    """The sign of <sigma sigma''> if its integrand has one sign at every |z| and so at all K; 0 if not known.

    A centred Gaussian sees only the even part, f(z) + f(-z) with f = sigma sigma'', and at a kink
    the delta function of weight sigma times the jump of sigma'.
    """
    z = np.geomspace(1e-7, 1e7, 4001)  # 36 standard deviations at any K that is searched
    s, _, second = Tower(activation, 2)(np.stack([z, -z]))
    with np.errstate(over="ignore", invalid="ignore"):
        parts = s * second
        even, size = parts.sum(axis=0), np.abs(parts).sum(axis=0)
    finite = np.isfinite(even)
    if not finite[z < 30].all():
        return 0
    signs = np.where(np.abs(even) <= 1e-11 * size, 0.0, np.sign(even))[finite]
    distinct = {int(sign) for sign in (*signs, *_kink_signs(activation))} - {0}
    return distinct.pop() if len(distinct) == 1 else 0


def _kink_signs(activation: Activation) -> list[float]:
    if activation.jump_order > 1:
        return []
    kinks = np.asarray(activation.kinks)
    apart = 1e-9 * np.maximum(1.0, np.abs(kinks))
    (left, right) = (Tower(activation, 2)(kinks + side * apart) for side in (-1, 1))
    weight = (left[0] + right[0]) / 2 * (right[1] - left[1])
    tiny = 1e-7 * (np.abs(left[1]) + np.abs(right[1])) * np.maximum(1.0, np.abs(left[0]))
    return list(np.where(np.abs(weight) <= tiny, 0.0, np.sign(weight)))


def _signs(table: LegTable) -> np.ndarray:
    """Signs of <sigma sigma''> on the grid; 0 where rounding and quadrature hide it."""
    _, slope, curvature, error = table.averages
    return np.where(np.abs(curvature) <= 10 * error * (slope + np.abs(curvature)), 0.0, np.sign(curvature))


def _sign_on_grid(table: LegTable) -> int:
    distinct = set(_signs(table)) - {0.0}
    return int(distinct.pop()) if len(distinct) == 1 else 0


def _roots(activation: Activation, table: LegTable) -> tuple[list[float], bool]:
    """The roots by increasing K, and whether each change of sign was confirmed by its root."""
    signs = _signs(table)
    resolved = np.flatnonzero(signs)

    def curvature(log_K: float) -> float:
        averages = leg_averages(activation, np.exp([log_K]))
        return float(averages.curvature[0] / averages.slope[0])

    grid: list[float] = np.log(table.K).tolist()
    roots, confirmed = [], True
    for low, high in zip(resolved[:-1], resolved[1:], strict=True):
        if signs[low] == signs[high]:
            continue
        if np.sign(curvature(float(grid[low]))) == np.sign(curvature(float(grid[high]))):
            confirmed = False  # averages on the grid were not accurate
        else:
            roots.append(bracketed_root(curvature, grid[low], grid[high]))
    for low, high in _dips(table, signs):
        sign, ends = signs[low], (grid[low], grid[high])
        turn = _minimum(lambda u, sign=sign: sign * curvature(u), *ends)
        if sign * curvature(turn) < 0:  # two roots between neighbours of the grid
            roots += [bracketed_root(curvature, ends[0], turn), bracketed_root(curvature, turn, ends[1])]
    return sorted(float(np.exp(root)) for root in roots), confirmed


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    return float(minimize_scalar(function, bounds=(low, high), method="bounded").x)  # type: ignore[union-attr]


def bracketed_root(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero, to rounding, of a function that changes sign between `low` and `high`."""
    return float(brentq(function, low, high, xtol=1e-13 * (high - low), rtol=1e-14))  # type: ignore[arg-type]


def _dips(table: LegTable, signs: np.ndarray) -> list[tuple[int, int]]:
    """Intervals of the grid where <sigma sigma''> has a minimum close to zero.

    A smooth function with two zeros between neighbours of the grid is there at most half as large as further
    out.
    """
    size = np.abs(table.averages.curvature / table.averages.slope)
    inner = (size[1:-1] <= size[:-2]) & (size[1:-1] <= size[2:])
    inner &= size[1:-1] < 0.5 * np.maximum(size[:-2], size[2:])
    same = (signs[1:-1] == signs[:-2]) & (signs[1:-1] == signs[2:]) & (signs[1:-1] != 0)
    return [(int(i), int(i) + 2) for i in np.flatnonzero(inner & same)]


def _point_at(activation: Activation, K: float) -> CriticalPoint:
    averages = leg_averages(activation, np.asarray([K]))
    C_W = float(1 / averages.slope[0])
    C_b = float(K - C_W * averages.square[0])
    return CriticalPoint(K, 0.0 if abs(C_b) < 1e-13 * K else C_b, C_W)


def other_fixed_point(activation: Activation, point: CriticalPoint) -> float | None:
    """The nearest further solution of K = C_b + C_W <sigma^2>, or None.

    The critical point is a double root, so the equation is divided by (K - K*)^2 before signs are compared.
    """

    def divided(K: np.ndarray) -> np.ndarray:
        image = point.C_b + point.C_W * leg_averages(activation, K).square
        return (image - K) / (K - point.K) ** 2 * point.K

    crossings = []
    for direction in (-1, 1):
        steps = np.geomspace(1e-3, 8.0, 241)
        K = point.K * np.exp(direction * steps)
        try:
            values = divided(K)
        except ValueError:  # the averages overflow on the way up
            continue
        turns = np.flatnonzero(np.sign(values[:-1]) != np.sign(values[1:]))
        if turns.size:
            ends = sorted(K[[turns[0], turns[0] + 1]])
            crossings.append(bracketed_root(lambda k: float(divided(np.asarray([k]))[0]), *ends))
    return min(crossings, key=lambda K: abs(np.log(K / point.K)), default=None)
