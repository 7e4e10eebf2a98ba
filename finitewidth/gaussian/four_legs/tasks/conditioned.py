"""Tasks of four-leg averages given their pair of legs: all that the sums need to know."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from finitewidth.gaussian.four_legs.conditioning import PairConditioning, Task
from finitewidth.gaussian.four_legs.plans import SHORT, CoefficientRules


@dataclass(frozen=True)
class Given:
    """Legs p, q and others: mean directions and variances; and the entries, with two of the others each."""

    legs: np.ndarray  # rows of the kernel, (2 + L)
    directions: np.ndarray  # on the axes of the grid, (2 + L, 2)
    variances: np.ndarray  # of the others, (L)
    places: np.ndarray  # which two of the others an entry has, (E, 2)
    correlations: np.ndarray  # (E)
    needed: np.ndarray  # Hermite terms, (E)
    steps: tuple[float, float] = (0.0, 0.0)  # of the grid
    hard: np.ndarray | None = None  # whether an entry's legs are almost parallel, (E)

    @functools.cached_property
    def terms(self) -> int:
        """Hermite terms of the hardest entry."""
        return int(self.needed.max())

    @functools.cached_property
    def correlation(self) -> float:
        """The largest."""
        return float(np.abs(self.correlations).max())

    def only(self, kept: np.ndarray) -> "Given":
        """Some of the entries, and the legs that they have."""
        others, places = np.unique(self.places[kept], return_inverse=True)
        legs = np.concatenate([[0, 1], 2 + others])
        return Given(
            self.legs[legs],
            self.directions[legs],
            self.variances[others],
            places.reshape(-1, 2),
            self.correlations[kept],
            self.needed[kept],
            self.steps,
            None if self.hard is None else self.hard[kept],
        )

    def by_length(self, rules: CoefficientRules) -> tuple["Given", "Given", "Given"]:
        """The entries with short series, those with long ones, and those that are beyond these rules."""
        long = self.only(self.needed > SHORT)
        needed = _terms_needed(rules, long.variances, long.places, long.correlations)
        long = replace(long, needed=needed)
        return (
            self.only(self.needed <= SHORT),
            long.only(long.needed <= rules.terms),
            long.only(long.needed > rules.terms),
        )

    def repair(self, conditioning: PairConditioning, block: np.ndarray) -> None:
        """Replace those of sums (arrangements, E) for which the Hermite series would be too long."""
        if self.hard is None:
            return
        for entry in np.flatnonzero(self.hard).tolist():
            legs = (int(self.legs[0]), *self.legs[2 + self.places[entry]].tolist())
            replacement = conditioning.doubled_on_plane(*legs)
            block[:, entry] = [replacement(orders) for orders in conditioning.dealt]


def _has_entries(task: Task) -> bool:
    """Whether some row and column differ."""
    return bool(
        len(task.rows) > 1 if task.rows is task.columns else np.any(task.rows[:, None] != task.columns)
    )


def legs_and_places(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """All legs of a task, and entries of a row and a column that differ; once where rows are columns."""
    rows, columns = task.rows, task.columns
    if rows is columns:
        return np.array([task.p, task.q, *rows]), _once(len(rows))
    places = np.argwhere(rows[:, None] != columns) + np.array([0, len(rows)])
    return np.concatenate([[task.p, task.q], rows, columns]), places


@functools.lru_cache(maxsize=8)
def _once(count: int) -> np.ndarray:
    return np.stack(np.triu_indices(count, 1), axis=1)


def given_pairs(conditioning: PairConditioning, tasks: Sequence[Task]) -> list[Given]:
    """Tasks that have entries, conditioned on two different legs."""
    made, hardest = _conditioned(conditioning, tasks)
    steps = conditioning.grid_steps(hardest).tolist() if made else []
    rules = conditioning.rules(SHORT)
    return [
        Given(*parts, needed=_terms_needed(rules, *parts[2:]), steps=(one, two))
        for parts, (one, two) in zip(made, steps, strict=True)
    ]


def given_doubled(conditioning: PairConditioning, tasks: Sequence[Task]) -> list[Given]:
    """Tasks that have entries, with two legs on one sample, p = q.

    Where the Hermite series would be too long, rows and columns are almost parallel: such entries are hard.
    """
    made, rules = [], conditioning.rules(SHORT)
    for parts in _conditioned(conditioning, tasks)[0]:
        needed, hard = _terms_needed(rules, *parts[2:]), None
        if needed.max() > SHORT:
            longest = conditioning.longest
            hard = _terms_needed(conditioning.rules(longest), *parts[2:]) > longest
            parts[4][hard] = 0.0
            needed = _terms_needed(rules, *parts[2:])
        made.append(Given(*parts, needed=needed, steps=(conditioning.line_step, 0.0), hard=hard))
    return made


def _conditioned(conditioning: PairConditioning, tasks: Sequence[Task]) -> tuple[list[tuple], np.ndarray]:
    """Legs, directions, variances, places and correlations of tasks that have entries, and hardest legs."""
    from finitewidth.gaussian.four_legs.loops import conditions as loops

    parts = [legs_and_places(task) for task in tasks if _has_entries(task)]
    if not parts:
        return [], np.empty((0, 2, 2, 4))
    legs, places = (np.ascontiguousarray(np.concatenate(one)) for one in zip(*parts, strict=True))
    of_legs, of_entries = (np.cumsum([0, *map(len, one)]) for one in zip(*parts, strict=True))
    directions, variances, correlations, hardest = loops.condition(
        conditioning.K, legs, of_legs, places, of_entries
    )
    bounds = zip(
        of_legs.tolist(), of_legs[1:].tolist(), of_entries.tolist(), of_entries[1:].tolist(), strict=False
    )
    made = [
        (legs[a:b], directions[a:b], variances[a + 2 : b], places[c:d], correlations[c:d])
        for a, b, c, d in bounds
    ]
    return made, hardest


def _terms_needed(rules: CoefficientRules, variances, places, correlations) -> np.ndarray:
    from finitewidth.gaussian.four_legs.loops import conditions as loops

    return loops.terms_needed(variances, places, correlations, rules.needed, rules.largest)
