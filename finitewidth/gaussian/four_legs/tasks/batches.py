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
from finitewidth.gaussian.four_legs.interpolation import Table, chebyshev_series, parted, table_of_legs
from finitewidth.gaussian.four_legs.plans import SHORT, CoefficientRules, Plan
from finitewidth.gaussian.four_legs.tasks.conditioned import (
    Given,
    legs_and_places,
)
from finitewidth.gaussian.four_legs.tasks.placement import Writer
from finitewidth.gaussian.four_legs.trapezoid import Unreachable

_SIZE = 16  # tasks in a batch, of many
_RANGE = 4  # the largest deviation of a table of legs is so many times the smallest
_FEW = 500  # entries for which threads would wait for the interpreter longer than they save


class Hermite(NamedTuple):
    """Hermite coefficients of legs: series (legs, part, I, D) in unit directions, or values (I, legs X)."""

    terms: int
    series: np.ndarray
    degrees: np.ndarray  # of these D, (legs)
    units: np.ndarray  # (legs, 2)
    values: np.ndarray


class Grid(NamedTuple):
    """Grids of tasks one after the other."""

    starts: np.ndarray  # of each task, (T + 1)
    points: np.ndarray  # (X, 2)
    weights: np.ndarray  # (X)
    of_pairs: np.ndarray  # legs p and q, (2, X)


class Entries(NamedTuple):
    """Entries of tasks one after the other, and the legs that they have."""

    first_legs: np.ndarray  # of each task, (T + 1)
    starts: np.ndarray  # of each task, (T + 1)
    deviations: np.ndarray  # of legs
    places: np.ndarray  # which two legs of its task an entry has, (E, 2)
    correlations: np.ndarray
    terms: np.ndarray


class Job(NamedTuple):
    """Tasks, and where their sums go."""

    tasks: Sequence[Given]
    writer: Writer


class Batches:
    """Four-leg sums of tasks, written to their places."""

    def __init__(self, conditioning: PairConditioning):
        self.conditioning = conditioning

    def fill(self, *jobs: Job) -> None:
        """Fill all entries."""
        if any(self.run(*jobs)):
            raise Unreachable(f"it would need more than {self.conditioning.longest} Hermite terms")

    def put_all(self, results: Iterable[tuple[Task, dict[Family, np.ndarray]]], writer: Writer) -> None:
        """Write sums over rows and columns."""
        for task, sums in results:
            legs, places = legs_and_places(task)
            rows, columns = (places - [0, len(legs) - 2 - len(task.columns)]).T
            block = np.stack([sums[orders][rows, columns] for orders in self.conditioning.dealt])
            writer.write(block, legs, places)

    def run(self, *jobs: Job) -> list[Given]:
        """Fill all entries but those that no Hermite series reaches, which are returned."""
        batches, short, beyond = [], [], []
        for job in jobs:
            groups: tuple[list[Given], list[Given], list[Given]] = ([], [], beyond)
            for task in job.tasks:
                parts = (
                    (task,)
                    if task.terms <= SHORT
                    else task.by_length(self.conditioning.rules(self.conditioning.longest))
                )
                for group, part in zip(groups, parts, strict=False):
                    if len(part.places):
                        group.append(part)
            short.extend(groups[0])
            for group, shared in ((groups[0], True), (groups[1], False)):
                batches.extend((batch, job.writer, shared) for batch in _together(group))
        table = self._table(short)

        def fill(batch: tuple[list[Given], Writer, bool]) -> None:
            tasks, writer, shared = batch
            self._fill(tasks, writer, table if shared else None)

        if sum(len(task.places) for job in jobs for task in job.tasks) < _FEW:
            for batch in batches:
                fill(batch)
        else:
            list(on_all_cores(fill, batches))
        return beyond

    def _table(self, tasks: list[Given]) -> Table | None:
        """Series for the legs of all tasks, but those of small deviations, whose series are longer."""
        if not tasks:
            return None
        deviations = np.sqrt(np.concatenate([task.variances for task in tasks]))
        lengths = self._lengths(np.concatenate([task.directions[2:] for task in tasks]))
        kept = deviations > deviations.max() / _RANGE
        points = sum(len(task.variances) * self._points(task) for task in tasks)
        if not kept.any():
            return None
        tower, (rules, hardest) = self.conditioning.towers[2], self._hardest(tasks)
        length, plan = float(lengths[kept].max()), rules.plan(*hardest)
        return table_of_legs(tower, length, deviations[kept], plan, int(points))

    def _lengths(self, directions: np.ndarray) -> np.ndarray:
        """Largest means of legs on the grid."""
        return self.conditioning.steps.radius * np.sqrt((directions**2).sum(axis=1))

    def _points(self, task: Given) -> float:
        """Of the grid of a task, about."""
        sides = [2 * self.conditioning.steps.radius / step for step in task.steps if step > 0]
        return (
            float(np.prod(sides)) * (np.pi / 4 if len(sides) == 2 else 1.0) / (1 + self.conditioning.is_odd)
        )

    def _fill(self, tasks: list[Given], writer: Writer, table: Table | None) -> None:
        """Compute and write one batch."""
        hermite = self._series(tasks, table)
        if hermite is not None:
            self._sum(tasks, writer, hermite)
        else:
            rules, hardest = self._hardest(tasks)
            plan = rules.plan(*hardest)
            for task in tasks:  # values of many would need much memory
                self._sum([task], writer, plan)

    def _series(self, tasks: list[Given], table: Table | None) -> Hermite | None:
        """Hermite coefficients of rows and columns as series, or None if the grid is no longer than these."""
        tower, (rules, hardest) = self.conditioning.towers[2], self._hardest(tasks)
        directions = np.concatenate([task.directions[2:] for task in tasks])
        deviations = np.sqrt(np.concatenate([task.variances for task in tasks]))
        lengths = self._lengths(directions)
        inside = np.zeros(len(lengths), dtype=bool) if table is None else deviations >= table.low
        parts = []
        if table is not None and inside.any():
            parts.append((inside, *table.of_legs(deviations[inside], rules.need(*hardest))))
            lengths[inside] = table.length
        if not inside.all():
            few, fewest = ~inside, min(map(self._points, tasks))
            plan = rules.plan(*hardest)
            own = chebyshev_series(tower, lengths[few], deviations[few], plan, int(2 * fewest))
            if own is None:
                return None
            own = parted(own, tower.activation.is_odd)
            parts.append((few, own, np.full(len(own), own.shape[-1])))
        units = directions / np.where(lengths > 0, lengths, 1.0)[:, None]
        if len(parts) == 1:
            _, own, needed = parts[0]
            return Hermite(hardest[2], own, needed, units, np.empty((0, 0)))
        shape = [max(sizes) for sizes in zip(*(series.shape[1:] for _, series, _ in parts), strict=True)]
        series, degrees = np.zeros((len(lengths), *shape)), np.empty(len(lengths), dtype=int)
        for legs, own, needed in parts:
            series[legs, :, : own.shape[2], : own.shape[3]], degrees[legs] = own, needed
        return Hermite(hardest[2], series, degrees, units, np.empty((0, 0)))

    def _sum(self, tasks: list[Given], writer: Writer, how: Hermite | Plan) -> None:
        """Sums of tasks over their grids; of one task, if its coefficients are to be computed by a plan."""
        from finitewidth.gaussian.four_legs.loops import sums as loops

        conditioning = self.conditioning
        steps, pairs = np.array([task.steps for task in tasks]), np.stack([t.directions[:2] for t in tasks])
        grid = Grid(*loops.grids(steps, conditioning.steps.radius, conditioning.is_odd, pairs))
        hermite = self._values(tasks[0], grid.points, how) if isinstance(how, Plan) else how
        values = conditioning.towers[0](grid.of_pairs)  # (order, 2, points of all tasks)
        entries = Entries(
            np.cumsum([0, *(len(task.variances) for task in tasks)]),
            np.cumsum([0, *(len(task.places) for task in tasks)]),
            np.sqrt(np.concatenate([task.variances for task in tasks])),
            np.ascontiguousarray(np.concatenate([task.places for task in tasks])),
            np.concatenate([task.correlations for task in tasks]),
            np.concatenate([task.needed for task in tasks]),
        )
        sums = loops.sums(hermite[1:], grid, values, entries, _tables(conditioning.dealt, hermite.terms))
        for task, a, b in zip(tasks, entries.starts, entries.starts[1:], strict=False):
            block = sums[:, a:b]
            task.repair(conditioning, block)
            writer.write(block, task.legs, task.places)

    def _values(self, task: Given, points: np.ndarray, plan: Plan) -> Hermite:
        """Hermite coefficients of rows and columns where a series would be no shorter than the grid."""
        means = task.directions[2:] @ points.T
        spread = np.broadcast_to(np.sqrt(task.variances)[:, None], means.shape)
        values = coefficients(self.conditioning.towers[2], means, spread, plan.rule, plan.terms)
        return Hermite(
            plan.terms,
            np.empty((0, 0, 0, 0)),
            np.empty(0, dtype=int),
            np.empty((0, 0)),
            values.reshape(len(values), -1),
        )

    def _hardest(self, tasks: list[Given]) -> tuple[CoefficientRules, tuple[float, float, int]]:
        """The rules for tasks, and their largest variance, correlation and number of terms."""
        terms = max(task.terms for task in tasks)
        variance = max(float(task.variances.max()) for task in tasks)
        rules = self.conditioning.rules(SHORT if terms <= SHORT else self.conditioning.longest)
        return rules, (variance, max(task.correlation for task in tasks), terms)


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
    factors: np.ndarray  # of a leg, (order, k)
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
    factors = np.sqrt([term_factors((order, order), top, terms) for order in orders])
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
