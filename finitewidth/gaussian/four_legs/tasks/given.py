"""Tasks of four-leg averages given their pair of legs: all that the sums need to know."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.gaussian.four_legs.conditioning import PairConditioning, Task
from finitewidth.gaussian.four_legs.plans import SHORT


@dataclass(frozen=True)
class Given:
    """Legs p, q, rows and columns of a task: mean directions, variances and correlations."""

    legs: np.ndarray  # samples, (2 + R + S)
    directions: np.ndarray  # on the axes of the grid, (2 + R + S, 2)
    variances: np.ndarray  # of rows and columns
    correlations: np.ndarray  # (R, S)
    steps: tuple[float, float]  # of the grid
    terms: int  # Hermite terms that the hardest entry needs
    hard: np.ndarray | None = None  # rows and columns that are almost parallel, (entries, 2)

    @property
    def correlation(self) -> float:
        """The largest."""
        return float(np.abs(self.correlations).max())

    def repair(self, conditioning: PairConditioning, block: np.ndarray) -> None:
        """Replace entries of sums (arrangements, R, S) for which the Hermite series would be too long."""
        if self.hard is None:
            return
        rows = len(self.correlations)
        task = Task(int(self.legs[0]), int(self.legs[1]), self.legs[2 : 2 + rows], self.legs[2 + rows :])
        for r, s in self.hard.tolist():
            replacement = conditioning.doubled_on_plane(task, r, s)
            for number, orders in enumerate(conditioning.dealt):
                block[number, r, s] = replacement(orders)


def given_pairs(conditioning: PairConditioning, tasks: Sequence[Task]) -> list[Given]:
    """Tasks with rows and columns, conditioned on two different samples."""
    from finitewidth.gaussian.four_legs.tasks import loops

    K, rules = conditioning.K, conditioning.rules(SHORT)
    samples = [np.concatenate([[task.p, task.q], task.rows, task.columns]) for task in tasks]
    hardest, terms = np.empty((len(tasks), 2, 2, 4)), []
    parts = []
    for task, own, extremes in zip(tasks, samples, hardest, strict=True):
        directions, variances, correlations = loops.condition(K, own, len(task.rows), extremes)
        parts.append((own, directions, variances, correlations))
        terms.append(loops.terms_needed(variances, correlations, rules.needed, rules.largest))
    short = np.array(terms) <= SHORT  # the others find their own grids
    steps = np.zeros((len(tasks), 2))
    if short.any():
        steps[short] = conditioning.grid_steps(hardest[short])
    return [
        Given(legs, directions, variances, correlations, (float(one), float(two)), int(count))
        for (legs, directions, variances, correlations), (one, two), count in zip(
            parts, steps, terms, strict=True
        )
    ]


def given_doubled(conditioning: PairConditioning, tasks: Sequence[Task]) -> list[Given]:
    """Tasks with two legs on one sample, p = q; entries of a sample with itself are meaningless."""
    from finitewidth.gaussian.four_legs.tasks import loops

    rules, step = conditioning.rules(SHORT), conditioning.line_step
    made = []
    for task, given, hard in conditioning.doubled(tasks):
        directions = np.concatenate([given.directions, np.zeros_like(given.directions)], axis=1)
        terms = loops.terms_needed(given.variances, given.correlations, rules.needed, rules.largest)
        legs = np.concatenate([[task.p, task.p], task.rows, task.columns])
        found = np.argwhere(hard) if hard.any() else None
        parts = directions, given.variances, given.correlations
        made.append(Given(legs, *parts, (step, 0.0), int(terms), found))
    return made
