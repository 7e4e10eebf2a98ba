"""Tasks of four-leg averages in batches: one plan and one evaluation of the activation for many of them.

Tasks that need about as many Hermite terms come together. What a batch is depends on the tasks only, and each
entry is written by one task: results are the same on any number of cores.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.four_legs.coefficients import coefficients, term_exponents, term_factors
from finitewidth.gaussian.four_legs.conditioning import PairConditioning, Task
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.four_legs.interpolation import chebyshev_series, series_from_table
from finitewidth.gaussian.four_legs.plans import LONG, SHORT, Plan
from finitewidth.gaussian.four_legs.tasks.given import (
    Given,
    given_doubled,
    given_pairs,
    has_entries,
    legs_and_places,
)
from finitewidth.gaussian.four_legs.tasks.writing import Writer
from finitewidth.gaussian.four_legs.trapezoid import Unreachable

_SIZE = 16  # tasks in a batch, of many
_FEW = 4000  # entries for which threads would wait for the interpreter longer than they save


class Hermite(NamedTuple):
    """Hermite coefficients of legs: series (legs, part, I, D) in unit directions, or values (I, legs, X)."""

    series: np.ndarray
    units: np.ndarray  # (legs, 2)
    values: np.ndarray


class Batches:
    """Four-leg sums of tasks, written to their places by a writer."""

    def __init__(self, conditioning: PairConditioning, writer: Writer):
        self.conditioning, self.write = conditioning, writer.write

    def fill_pairs(self, tasks: Sequence[Task]) -> None:
        """Tasks that are conditioned on two different legs."""
        self._fill_all(given_pairs(self.conditioning, [task for task in tasks if has_entries(task)]))

    def fill_doubled(self, tasks: Sequence[Task]) -> None:
        """Tasks with two legs on one sample, p = q."""
        self._fill_all(given_doubled(self.conditioning, [task for task in tasks if has_entries(task)]))

    def _fill_all(self, tasks: Sequence[Given]) -> None:
        if self.run(tasks):
            raise Unreachable(f"it would need more than {LONG} Hermite terms")

    def put_all(self, results: Iterable[tuple[Task, dict[Family, np.ndarray]]]) -> None:
        """Write sums over rows and columns."""
        for task, sums in results:
            legs, places = legs_and_places(task)
            rows, columns = (places - [0, len(legs) - 2 - len(task.columns)]).T
            self.write(np.stack([sums[orders][rows, columns] for orders in self.dealt]), legs, places)

    @property
    def dealt(self) -> tuple[Family, ...]:
        return self.conditioning.dealt

    def run(self, tasks: Sequence[Given]) -> list[Given]:
        """Fill all entries but those that no Hermite series reaches, which are returned."""
        groups: tuple[list[Given], list[Given], list[Given]] = ([], [], [])  # short, long, beyond
        for task in tasks:
            parts = (task,) if task.terms <= SHORT else task.by_length(self.conditioning.rules(LONG))
            for group, part in zip(groups, parts, strict=False):
                if len(part.places):
                    group.append(part)
        short, long, beyond = groups
        batches = [*_together(short), *_together(long)]
        if sum(len(task.places) for task in tasks) < _FEW:
            for batch in batches:
                self._fill(batch)
        else:
            list(on_all_cores(self._fill, batches))
        return beyond

    def _fill(self, tasks: list[Given]) -> None:
        """Compute and write one batch."""
        from finitewidth.gaussian.four_legs.tasks import loops

        conditioning = self.conditioning
        radius = conditioning.steps.radius
        grids = [loops.grid(*task.steps, radius, conditioning.is_odd) for task in tasks]
        plan = self._plan(tasks)
        tables = _tables(conditioning.dealt, plan.terms)
        found = self._coefficients(tasks, [points for points, _ in grids], plan)
        pairs = self._pairs(tasks, grids)
        for task, (points, _), pair, own in zip(tasks, grids, pairs, found, strict=True):
            entries = task.places, task.correlations, task.needed
            block = loops.sums(own, points, pair, np.sqrt(task.variances), entries, tables)
            task.repair(conditioning, block)
            self.write(block, task.legs, task.places)

    def _coefficients(self, tasks: list[Given], points: list[np.ndarray], plan: Plan) -> Iterator[Hermite]:
        """Hermite coefficients of rows and columns: series, or values where the grid is no longer."""
        tower, radius = self.conditioning.towers[2], self.conditioning.steps.radius
        directions = np.concatenate([task.directions[2:] for task in tasks])
        deviations = np.sqrt(np.concatenate([task.variances for task in tasks]))
        lengths = radius * np.sqrt((directions**2).sum(axis=1))
        fewest = min(map(len, points))
        series = series_from_table(tower, float(lengths.max()), deviations, plan, 2 * fewest)
        if series is None:
            series = chebyshev_series(tower, lengths, deviations, plan, 2 * fewest)
        else:
            lengths = np.full_like(lengths, lengths.max())
        units = directions / np.where(lengths > 0, lengths, 1.0)[:, None]
        if series is not None:
            series = _parted(series, tower.activation.is_odd)
        ends = np.cumsum([0, *(len(task.variances) for task in tasks)])
        for own, start, end in zip(points, ends, ends[1:], strict=False):
            legs = slice(start, end)
            if series is not None:
                yield Hermite(series[legs], units[legs], np.empty((0, 0, 0)))
                continue
            means = directions[legs] @ own.T
            spread = np.broadcast_to(deviations[legs, None], means.shape)
            values = coefficients(tower, means, spread, plan.rule, plan.terms)
            yield Hermite(np.empty((0, 0, 0, 0)), units[legs], values)

    def _plan(self, tasks: list[Given]) -> Plan:
        terms = max(task.terms for task in tasks)
        rules = self.conditioning.rules(SHORT if terms <= SHORT else LONG)
        variance = max(float(task.variances.max()) for task in tasks)
        hardest = variance, max(task.correlation for task in tasks), terms
        return Plan(rules.rule(*hardest), terms, rules.sensitivity(*hardest), rules.tolerance)

    def _pairs(self, tasks: list[Given], grids) -> list[np.ndarray]:
        """Weights and the derivatives of legs p and q on the grid of each task, (1 + 2 (top + 1), X)."""
        z = [task.directions[:2] @ points.T for task, (points, _) in zip(tasks, grids, strict=True)]
        values = self.conditioning.towers[0](np.concatenate(z, axis=1))  # (order, 2, points of all tasks)
        ends = np.cumsum([0, *(len(weights) for _, weights in grids)])
        return [
            np.concatenate([weights[None], values[:, 0, a:b], values[:, 1, a:b]])
            for (_, weights), a, b in zip(grids, ends, ends[1:], strict=False)
        ]


def _parted(series: np.ndarray, is_odd: bool) -> np.ndarray:
    """Series (legs, I, D) as (legs, 1, I, D) or, of an odd activation, without their zeros as (legs, 2, ...).

    The coefficients of a smoothed odd function are its derivatives: odd and even functions by turns.
    """
    if not is_odd:
        return series[:, None]
    legs, count, degree = series.shape
    padded = np.zeros((legs, count + count % 2, degree + degree % 2))
    padded[:, :count, :degree] = series
    return np.stack([padded[:, 0::2, 1::2], padded[:, 1::2, 0::2]], axis=1)


def _together(tasks: list[Given]) -> Iterator[list[Given]]:
    """Tasks with about as many Hermite terms, a batch of them at a time, those with most terms first."""
    ordered = sorted(tasks, key=lambda task: -task.terms)
    size = min(max(len(ordered) // 8, 4), _SIZE)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


class Tables(NamedTuple):
    """Which sums the arrangements of orders need, as `loops.sums` takes them.

    Given x, the legs r and s have an average for each two orders, an end; ends with the same difference of
    orders share products of coefficients, a group. An arrangement is an end and a front, the orders of p, q.
    """

    orders: tuple[int, int]  # the highest derivative, and the number of terms
    groups: np.ndarray  # difference r - s, lowest r, number of products beside one for each term
    first_end: np.ndarray  # of each group
    ends: np.ndarray  # r, s, group
    first_member: np.ndarray  # of each end
    members: np.ndarray  # number of an arrangement, front
    fronts: np.ndarray  # orders of p and q, (front, 2)
    factors: np.ndarray  # (r, s, k)
    exponents: np.ndarray  # of deviations, (order, k)


@functools.lru_cache(maxsize=256)
def _tables(dealt: tuple[Family, ...], terms: int) -> Tables:
    """Term k of orders (r, s) is a product of coefficients c_(r+k) and c_(s+k)."""
    top = max(max(orders) for orders in dealt)
    fronts = sorted({orders[:2] for orders in dealt})
    ends = sorted({orders[2:] for orders in dealt}, key=lambda end: (end[0] - end[1], end))
    differences = sorted({r - s for r, s in ends})
    groups = []
    for difference in differences:
        of_r = [r for r, s in ends if r - s == difference]
        groups.append((difference, min(of_r), max(of_r) - min(of_r)))
    numbered = [differences.index(r - s) for r, s in ends]
    members = [
        [(number, fronts.index(orders[:2])) for number, orders in enumerate(dealt) if orders[2:] == end]
        for end in ends
    ]
    orders = range(top + 1)
    factors = np.array([[term_factors((r, s), top, terms) for s in orders] for r in orders])
    exponents = np.array([2 * term_exponents(order, top, terms)[1] for order in orders]).astype(int)
    return Tables(
        (top, terms),
        np.array(groups),
        np.searchsorted(numbered, range(len(groups) + 1)),
        np.array([(r, s, group) for (r, s), group in zip(ends, numbered, strict=True)]),
        np.cumsum([0, *map(len, members)]),
        np.array([member for own in members for member in own]),
        np.array(fronts),
        factors,
        exponents,
    )
