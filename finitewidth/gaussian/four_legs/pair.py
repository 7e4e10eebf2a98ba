r"""The primitive of all four-leg averages: conditioning on a pair of legs.

With $z_p, z_q$ linear in $x \sim N(0, 1_2)$, the other legs have means $B_r\cdot x$, variances $v_r$
and correlations $\rho_{rs}$, and Mehler's formula gives

$$\langle s_p s_q s_r s_s\rangle = \sum_x w(x)\, s_p s_q \sum_k \rho_{rs}^k\, a_{rk}(x)\, a_{sk}(x).$$

The sum over x is a product of matrices (rows r, grid x)(grid x, columns s); no inverse of K is needed,
so that repeated, parallel and zero inputs are ordinary cases.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.four_legs.families import Family, arrangements, highest_order
from finitewidth.gaussian.four_legs.residual import (
    LONG,
    SHORT,
    Plan,
    ResidualRules,
    term_exponents,
    term_factors,
)
from finitewidth.gaussian.four_legs.smoothed import smoothed_legs
from finitewidth.gaussian.four_legs.steps import Steps, Unreachable
from finitewidth.gaussian.tower import Tower

_LARGEST_GRID = 400_000  # points of a plane grid beyond which an answer would take too long
_CACHE = 1 << 18  # numbers in the left factor of one product, small enough for a core's cache


@dataclass(frozen=True)
class Task:
    """A conditioning pair (p, q) (or a doubled leg, p = q) and its residual rows and columns."""

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
    first = _divide(K[legs, task.p], np.sqrt(K[task.p, task.p]))
    directions = first[:, None]
    if task.p != task.q:
        remaining = np.maximum(diagonal - first**2, 0.0)
        left = remaining[1] if remaining[1] > 1e-15 * diagonal[1] else 0.0
        second = _divide(K[legs, task.q] - first * first[1], np.sqrt(left))
        # rounding errors must not push a leg beyond its own variance
        second = np.clip(second, -np.sqrt(remaining), np.sqrt(remaining))
        directions = np.stack([first, second], axis=1)
        directions = directions @ np.linalg.eigh(directions.T @ directions)[1][:, ::-1]  # principal axes
    variances = np.maximum(diagonal - (directions**2).sum(axis=1), 0.0)[2:]
    rows, columns = slice(2, 2 + len(task.rows)), slice(2 + len(task.rows), None)
    covariances = K[np.ix_(task.rows, task.columns)] - directions[rows] @ directions[columns].T
    deviations = np.sqrt(variances)
    scale = deviations[: len(task.rows), None] * deviations[len(task.rows) :]
    correlations = np.clip(_divide(covariances, scale), -1.0, 1.0)
    return Conditioned(directions, variances, correlations)


def _divide(numerator: np.ndarray, denominator) -> np.ndarray:
    denominator = np.broadcast_to(denominator, numerator.shape)
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def plane_grid(
    steps: Sequence[float] | np.ndarray, radius: float, is_odd: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Trapezoid nodes (points, axes) and weights for x ~ N(0, 1); a step of zero drops the axis.

    The total parity of every family is even, so an odd activation needs half of the plane only.
    """
    axes, weight = [], 1.0
    halve = is_odd and steps[0] > 0
    for number, step in enumerate(steps):
        if step == 0:
            axes.append(np.zeros(1))
            continue
        half = int(np.ceil(radius / step))
        axes.append((np.arange(0 if halve and number == 0 else -half, half) + 0.5) * step)
        weight *= step / np.sqrt(2 * np.pi)
    points = np.stack([axis.reshape(-1) for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    points = points[(points**2).sum(axis=1) <= radius**2]
    return points, np.exp(-(points**2).sum(axis=1) / 2) * weight * (2 if halve else 1)


class Contraction:
    """Which products of matrices give all arrangements of orders over (p, q, r, s).

    Term k of orders (r, s) is a product of coefficients c_(r+k) and c_(s+k): arrangements with the
    same orders on (p, q) and the same difference r - s share their matrix products.
    """

    def __init__(self, families: tuple[Family, ...]):
        self.top = highest_order(families)
        self.groups = []
        for difference, members in _grouped(arrangements(families)):
            fronts = sorted({(p, q) for p, q, _, _ in members})
            ends = sorted({(r, s) for _, _, r, s in members})
            self.groups.append((difference, fronts, {end: _with_end(members, end, fronts) for end in ends}))

    def __call__(self, legs: "LegValues") -> dict[Family, np.ndarray]:
        terms = legs.terms
        powers = legs.correlations ** np.arange(terms)[:, None, None]
        sums = {}
        for difference, fronts, ends in self.groups:
            low = min(r for r, _ in ends)
            count = max(r for r, _ in ends) - low + terms
            products = self._products(legs, fronts, slice(low, low + count), difference)
            for (r, s), which in ends.items():
                weights = powers * self._weights(legs, r, s)
                values = np.einsum("krs,kfrs->frs", weights, products[r - low : r - low + terms, which])
                sums.update({(*fronts[f], r, s): value for f, value in zip(which, values, strict=True)})
        return sums

    def _weights(self, legs: "LegValues", r: int, s: int) -> np.ndarray:
        of_r = legs.row_variances ** term_exponents(r, self.top, legs.terms)[1][:, None]
        of_s = legs.column_variances ** term_exponents(s, self.top, legs.terms)[1][:, None]
        return (term_factors((r, s), self.top, legs.terms)[:, None] * of_r)[:, :, None] * of_s[:, None, :]

    def _products(self, legs: "LegValues", fronts, rows: slice, difference: int) -> np.ndarray:
        """sum_x w s_p s_q c_i(row) c_(i - difference)(column) for i in rows, (i, front, row, column)."""
        left = legs.row_coefficients[rows]
        right = legs.column_coefficients[rows.start - difference : rows.stop - difference]
        front = np.stack([legs.weights * legs.first[p] * legs.second[q] for p, q in fronts])
        if right.shape[1] < left.shape[1]:  # the factors of p and q go where they cost less
            return _weighted_products(right, left, front).swapaxes(2, 3)
        return _weighted_products(left, right, front)


def _weighted_products(left: np.ndarray, right: np.ndarray, front: np.ndarray) -> np.ndarray:
    """sum_x front_f(x) left_i(r, x) right_i(s, x), (i, f, r, s), in pieces of x that fit the cache."""
    terms, size, points = left.shape
    fronts = len(front)
    products = np.zeros((terms, fronts * size, right.shape[1]))
    chunk = max(64, _CACHE // (terms * fronts * size))
    for start in range(0, points, chunk):
        x = slice(start, start + chunk)
        weighted = left[:, None, :, x] * front[None, :, None, x]
        products += weighted.reshape(terms, fronts * size, -1) @ right[:, :, x].transpose(0, 2, 1)
    return products.reshape(terms, fronts, size, -1)


def _grouped(all_orders: tuple[Family, ...]):
    ordered = sorted(all_orders, key=lambda o: o[2] - o[3])
    return [(d, list(members)) for d, members in itertools.groupby(ordered, key=lambda o: o[2] - o[3])]


def _with_end(members, end, fronts) -> list[int]:
    return [fronts.index((p, q)) for p, q, r, s in members if (r, s) == end]


@dataclass(frozen=True)
class LegValues:
    """Everything about one task on its grid of x."""

    weights: np.ndarray  # (x)
    first: np.ndarray  # derivatives of leg p, (order, x)
    second: np.ndarray  # derivatives of leg q, (order, x)
    row_coefficients: np.ndarray  # (i, row, x)
    column_coefficients: np.ndarray  # (i, column, x)
    row_variances: np.ndarray
    column_variances: np.ndarray
    correlations: np.ndarray  # (row, column)
    terms: int


@dataclass
class PairConditioning:
    """Four-leg sums for tasks at one kernel, activation and tolerance."""

    tower: Tower
    K: np.ndarray
    families: tuple[Family, ...]
    tolerance: float
    steps: Steps = field(init=False)

    def __post_init__(self):
        self.is_odd = self.tower.activation.is_odd
        # each of cut, two axes, Hermite terms and coefficients is bounded several times over
        variances, share = np.unique(np.diagonal(self.K)), self.tolerance / 2
        self.steps = Steps(self.tower, self.families, float(variances[-1]), share / 2)
        self.contraction = Contraction(self.families)
        self._rules = {}
        self._variances, self._share = variances, share

    def rules(self, terms: int) -> ResidualRules:
        if terms not in self._rules:
            self._rules[terms] = ResidualRules(self.tower, self.families, self._variances, self._share, terms)
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

    def run_doubled(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, dict[Family, np.ndarray]]]:
        """Sums with two legs on one sample, p = q: conditioned on that sample alone.

        Entries whose row and column are the same sample are not meant to be used.
        """
        tasks = [task for task in tasks if len(task.rows) and len(task.columns)]
        conditioned = [condition(self.K, task) for task in tasks]
        same = [task.rows[:, None] == task.columns for task in tasks]
        hard = [self._is_hard(given) & ~equal for given, equal in zip(conditioned, same, strict=True)]
        for given, equal, far in zip(conditioned, same, hard, strict=True):
            given.correlations[equal | far] = 0.0
        plans = [self.plan(given) for given in conditioned]
        grid = self.line_grid()

        def work(index: int) -> dict[Family, np.ndarray]:
            sums = self.contraction(self._leg_values(tasks[index], conditioned[index], grid, plans[index]))
            for r, s in np.argwhere(hard[index]).tolist():
                replacement = self._doubled_on_plane(tasks[index], r, s)
                for orders, value in sums.items():
                    value[r, s] = replacement(orders)
            return sums

        for index, sums in on_all_cores(work, range(len(tasks))):
            yield tasks[index], sums

    def _is_hard(self, given: Conditioned) -> np.ndarray:
        """Where the Hermite series would be too long: rows and columns that are almost parallel."""
        for length in (SHORT, LONG):
            needed = self._terms_needed(given, length)
            if needed.max() <= length:
                break
        return needed > length

    def _doubled_on_plane(self, task: Task, r: int, s: int):
        """Two legs on p, one on row r, one on column s, conditioned on (p, r): no series in s is needed."""
        row, column = task.rows[r : r + 1], task.columns[s : s + 1]
        given = condition(self.K, Task(task.p, int(row[0]), column, column))
        step = self.steps.finest_step
        points, weights = plane_grid([step, step], self.steps.radius, self.is_odd)
        rules = self.rules(SHORT)
        variance = float(given.variances[0])
        plan = Plan(rules.rule(variance, 0.0, 1), 1, rules.sensitivity(variance, 0.0, 1), self._share)
        of_p, of_r = self.tower(given.directions[:2] @ points.T).transpose(1, 0, 2)
        of_s = smoothed_legs(self.tower, given.directions[2:3], given.variances[:1], points, plan)[:, 0]
        return lambda orders: (
            (weights * of_p[orders[0]] * of_p[orders[1]] * of_r[orders[2]]) @ of_s[orders[3]]
        )

    def line_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """A grid for one standard normal variable that serves every product of four legs."""
        step = self.steps.finest_step if self.steps.scale > 0 else 0.0
        return plane_grid([step], self.steps.radius, self.is_odd)

    def _grid_steps(self, conditioned: list[Conditioned]) -> np.ndarray:
        legs = np.stack([_hardest_legs(given) for given in conditioned])  # (task, axis, kind, leg)
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
        first, second = self.tower(given.directions[:2] @ points.T).transpose(1, 0, 2)
        values = smoothed_legs(self.tower, given.directions[2:], given.variances, points, plan)
        return LegValues(
            weights=weights,
            first=first,
            second=second,
            row_coefficients=values[:, :size],
            column_coefficients=values[:, size:],
            row_variances=given.variances[:size],
            column_variances=given.variances[size:],
            correlations=given.correlations,
            terms=plan.terms,
        )

    def _terms_needed(self, given: Conditioned, length: int) -> np.ndarray:
        rows = len(given.correlations)
        return self.rules(length).terms_needed(
            given.variances[:rows], given.variances[rows:], given.correlations
        )

    def plan(self, given: Conditioned) -> Plan:
        """The rule for the coefficients and the number of terms that the hardest entry needs."""
        for length in (SHORT, LONG):
            rules, terms = self.rules(length), int(self._terms_needed(given, length).max())
            if terms <= length:
                correlation = float(np.abs(given.correlations).max())
                variance = float(given.variances.max())
                rule = rules.rule(variance, correlation, terms)
                return Plan(rule, terms, rules.sensitivity(variance, correlation, terms), self._share)
        raise Unreachable(f"it would need more than {LONG} Hermite terms")


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
