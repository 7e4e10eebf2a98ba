r"""Four-leg averages of smooth activations, conditioned on a pair of legs.

With $z_p, z_q$ linear in $x \sim N(0, 1_2)$, the other legs have means $B_r\cdot x$, variances $v_r$
and correlations $\rho_{rs}$, and Mehler's formula gives

$$\langle s_p s_q s_r s_s\rangle = \sum_x w(x)\, s_p s_q \sum_k \rho_{rs}^k\, a_{rk}(x)\, a_{sk}(x).$$

The sum over x is a product of matrices (rows r, grid x)(grid x, columns s); no inverse of K is needed,
so that repeated, parallel and zero inputs are ordinary cases.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.division import quotient
from finitewidth.gaussian.four_legs.contraction import Contraction, LegValues
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.four_legs.interpolation import smoothed_legs
from finitewidth.gaussian.four_legs.plans import LONG, SHORT, CoefficientRules, Plan
from finitewidth.gaussian.four_legs.trapezoid import (
    Towers,
    TrapezoidSteps,
    Unreachable,
    are_odd,
    of_legs,
    plane_grid,
)

_LARGEST_GRID = 400_000  # points of a plane grid beyond which an answer would take too long


@dataclass(frozen=True)
class Task:
    """A conditioning pair (p, q), or a doubled leg p = q, and the other two legs as rows and columns."""

    p: int
    q: int
    rows: np.ndarray
    columns: np.ndarray


@dataclass(frozen=True)
class Conditioned:
    """Legs p, q, rows, columns given x: mean directions on the axes of x, variances, correlations."""

    directions: np.ndarray  # (2 + rows + columns, axes)
    variances: np.ndarray  # (rows + columns)
    correlations: np.ndarray  # (rows, columns)


def condition(K: np.ndarray, task: Task) -> Conditioned:
    """Condition on z_p, z_q through their 2 x 2 Cholesky factor, of whatever rank it is."""
    legs = np.concatenate([[task.p, task.q], task.rows, task.columns])
    diagonal = K[legs, legs]
    first = quotient(K[legs, task.p], np.sqrt(K[task.p, task.p]))
    directions = first[:, None]
    if task.p != task.q:
        remaining = np.maximum(diagonal - first**2, 0.0)
        left = remaining[1] if remaining[1] > 1e-15 * diagonal[1] else 0.0
        second = quotient(K[legs, task.q] - first * first[1], np.sqrt(left))
        # rounding errors must not push a leg beyond its own variance
        second = np.clip(second, -np.sqrt(remaining), np.sqrt(remaining))
        directions = np.stack([first, second], axis=1)
        directions = directions @ np.linalg.eigh(directions.T @ directions)[1][:, ::-1]  # principal axes
    variances = np.maximum(diagonal - (directions**2).sum(axis=1), 0.0)[2:]
    rows, columns = slice(2, 2 + len(task.rows)), slice(2 + len(task.rows), None)
    covariances = K[np.ix_(task.rows, task.columns)] - directions[rows] @ directions[columns].T
    deviations = np.sqrt(variances)
    scale = deviations[: len(task.rows), None] * deviations[len(task.rows) :]
    correlations = np.clip(quotient(covariances, scale), -1.0, 1.0)
    return Conditioned(directions, variances, correlations)


@dataclass
class PairConditioning:
    """Four-leg sums for tasks at one kernel and tolerance; legs p, q, rows and columns each have a tower."""

    towers: Towers
    K: np.ndarray
    dealt: tuple[Family, ...]  # the orders that legs p, q, rows and columns carry
    tolerance: float
    largest: tuple[float, ...] | None = None  # variances of legs p, q, rows and columns
    longest: int = LONG  # numbers of Hermite terms that may be needed
    steps: TrapezoidSteps = field(init=False)

    def __post_init__(self):
        self.is_odd = are_odd(self.towers)
        # each of cut, two axes, Hermite terms and coefficients is bounded several times over
        variances, share = np.unique(np.diagonal(self.K)), self.tolerance / 2
        largest = self.largest or (float(variances[-1]),) * 4
        self.steps = TrapezoidSteps(self.towers, self.dealt, largest, share / 2)
        self.contraction = Contraction(self.dealt)
        self._rules = {}
        self._variances, self._share = variances, share

    def rules(self, terms: int) -> CoefficientRules:
        if terms not in self._rules:
            self._rules[terms] = CoefficientRules(
                self.towers, self.dealt, self._variances, self._share, terms
            )
        return self._rules[terms]

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, dict[Family, np.ndarray]]]:
        """Sums over rows and columns for all arrangements of orders, task by task."""
        tasks = [task for task in tasks if len(task.rows) and len(task.columns)]
        if not tasks:
            return
        conditioned = [condition(self.K, task) for task in tasks]
        steps = self._grid_steps(conditioned)
        plans = [self.plan(given) for given in conditioned]

        def work(index: int) -> dict[Family, np.ndarray]:
            grid = plane_grid(steps[index], self.steps.radius, self.is_odd)
            return self.contraction(self._leg_values(tasks[index], conditioned[index], grid, plans[index]))

        for index, sums in on_all_cores(work, range(len(tasks))):
            yield tasks[index], sums

    def doubled(self, tasks: Sequence[Task]) -> list[tuple[Task, Conditioned, np.ndarray]]:
        """Tasks with two legs on one sample, p = q, given that sample, and which of their entries are hard.

        Entries whose row and column are the same sample are meaningless.
        """
        made = []
        for task in tasks:
            if len(task.rows) and len(task.columns):
                given, same = condition(self.K, task), task.rows[:, None] == task.columns
                given.correlations[same] = 0.0
                hard = self._is_hard(given)
                given.correlations[hard] = 0.0
                made.append((task, given, hard))
        return made

    def _is_hard(self, given: Conditioned) -> np.ndarray:
        """Where the Hermite series would be too long: rows and columns that are almost parallel."""
        for length in (SHORT, self.longest):
            needed = self._terms_needed(given, length)
            if needed.max() <= length:
                break
        return needed > length

    def doubled_on_plane(self, p: int, r: int, s: int):
        """Two legs on p, one on r, one on s, conditioned on (p, r): no series in s is needed."""
        given = condition(self.K, Task(p, r, np.array([s]), np.array([s])))
        step = self.steps.finest_step
        points, weights = plane_grid([step, step], self.steps.radius, self.is_odd)
        rules = self.rules(SHORT)
        variance = float(given.variances[0])
        plan = rules.plan(variance, 0.0, 1)
        towers = self.towers[0], self.towers[2]
        of_p, of_r = of_legs(towers, given.directions[:2] @ points.T).transpose(1, 0, 2)
        of_s = smoothed_legs(self.towers[3], given.directions[2:3], given.variances[:1], points, plan)[:, 0]
        return lambda orders: (
            (weights * of_p[orders[0]] * of_p[orders[1]] * of_r[orders[2]]) @ of_s[orders[3]]
        )

    def line_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """A grid for one standard normal variable that serves every product of four legs."""
        return plane_grid([self.line_step], self.steps.radius, self.is_odd)

    @property
    def line_step(self) -> float:
        return self.steps.finest_step if self.steps.scale > 0 else 0.0

    def _grid_steps(self, conditioned: list[Conditioned]) -> np.ndarray:
        return self.grid_steps(np.stack([_hardest_legs(given) for given in conditioned]))

    def grid_steps(self, legs: np.ndarray) -> np.ndarray:
        """Steps along both axes (task, axis) for the hardest legs of tasks, (task, axis, kind, leg)."""
        scales, across = legs[:, :, 0].reshape(-1, 4), legs[:, :, 1].reshape(-1, 4)
        steps = np.zeros(len(scales))
        present = np.abs(scales).max(axis=1) > 1e-12 * self.steps.scale
        if present.any():
            steps[present] = 2 * np.pi / self.steps.frequencies(scales[present], across[present])
        diameter = 2 * self.steps.radius
        points = np.prod(diameter / np.where(steps > 0, steps, diameter).reshape(-1, 2), axis=1)
        if points.max() > _LARGEST_GRID:
            raise Unreachable(f"it would need a grid of {points.max():.0f} points")
        return steps.reshape(-1, 2)

    def _leg_values(self, task: Task, given: Conditioned, grid, plan) -> LegValues:
        points, weights = grid
        size = len(task.rows)
        first, second = of_legs(self.towers[:2], given.directions[:2] @ points.T).transpose(1, 0, 2)
        rows, columns = self._smoothed(task, given, points, plan)
        return LegValues(
            weights=weights,
            first=first,
            second=second,
            row_coefficients=rows,
            column_coefficients=columns,
            row_variances=given.variances[:size],
            column_variances=given.variances[size:],
            correlations=given.correlations,
            terms=plan.terms,
        )

    def _smoothed(self, task: Task, given: Conditioned, points, plan) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients of rows and columns, computed once where they are the same legs."""
        size, (_, _, of_rows, of_columns) = len(task.rows), self.towers
        directions, variances = given.directions[2:], given.variances
        if of_rows is of_columns and task.rows is not task.columns:
            values = smoothed_legs(of_rows, directions, variances, points, plan)
            return values[:, :size], values[:, size:]
        rows = smoothed_legs(of_rows, directions[:size], variances[:size], points, plan)
        if of_rows is of_columns:
            return rows, rows
        return rows, smoothed_legs(of_columns, directions[size:], variances[size:], points, plan)

    def _terms_needed(self, given: Conditioned, length: int) -> np.ndarray:
        rows = len(given.correlations)
        return self.rules(length).terms_needed(
            given.variances[:rows], given.variances[rows:], given.correlations
        )

    def plan(self, given: Conditioned) -> Plan:
        """The rule for the coefficients and the number of terms that the hardest entry needs."""
        for length in (SHORT, self.longest):
            rules, terms = self.rules(length), int(self._terms_needed(given, length).max())
            if terms <= length:
                correlation = float(np.abs(given.correlations).max())
                variance = float(given.variances.max())
                return rules.plan(variance, correlation, terms)
        raise Unreachable(f"it would need more than {self.longest} Hermite terms")


def _hardest_legs(given: Conditioned) -> np.ndarray:
    """Scales along and deviations across each axis of p, q and the two largest others, (axis, 2, 4)."""
    variances = np.concatenate([np.zeros(2), given.variances])
    result = []
    for axis in range(2):
        along, other = given.directions[:, axis], given.directions[:, 1 - axis]
        across = np.copysign(np.sqrt(other**2 + variances), other)
        largest = 2 + np.argsort(np.abs(along[2:]), kind="stable")[-2:]
        legs = np.concatenate([[0, 1], largest])
        result.append(np.stack([along[legs], across[legs]]))
    return np.stack(result)
