"""All four-leg averages of a smooth activation: conditioning pairs, and the place of each result."""

import functools
import itertools

import numpy as np

from finitewidth.gaussian.four_legs.coincident import one_sample, two_samples
from finitewidth.gaussian.four_legs.conditioning import PairConditioning, Task
from finitewidth.gaussian.four_legs.distinct import similar_together
from finitewidth.gaussian.four_legs.families import Family, placements
from finitewidth.gaussian.four_legs.filling import Filling
from finitewidth.gaussian.four_legs.tasks.batches import Batches
from finitewidth.gaussian.four_legs.tasks.given import given_doubled, given_pairs
from finitewidth.gaussian.four_legs.trapezoid import plane_grid


def fill_smooth(filling: Filling, conditioning: PairConditioning, families: tuple[Family, ...]) -> None:
    """Fill all entries of the arrays of a smooth activation."""
    _fill_four_distinct(filling, conditioning, families)
    _fill_three_distinct(filling, conditioning, families)  # each step overwrites entries that belong to it
    _fill_two_distinct(filling, conditioning, families)
    values = one_sample(conditioning.towers[0], conditioning.K, families, conditioning.line_grid())
    for family, value in values.items():
        for sample in range(len(value)) if filling.fixed is None else [filling.fixed]:
            filling.put(family, [sample] * 4, value[sample])


def _fill_four_distinct(filling: Filling, conditioning: PairConditioning, families) -> None:
    """Samples a < b < c < d are conditioned on (a, c), so that the rows and columns (b, d) fill a rectangle.

    With a fixed sample f and a < b < c, they are conditioned on (f, b). Samples are counted in an order that
    keeps similar ones together.
    """
    fixed, samples = filling.fixed, similar_together(conditioning.K)
    if fixed is None:
        pairs = itertools.combinations(range(len(samples)), 2)
        tasks = [
            Task(int(samples[a]), int(samples[c]), samples[a + 1 : c], samples[c + 1 :]) for a, c in pairs
        ]
    else:
        samples = samples[samples != fixed]
        tasks = [Task(fixed, int(b), samples[:n], samples[n + 1 :]) for n, b in enumerate(samples)]
    tasks = [task for task in tasks if len(task.rows) and len(task.columns)]
    left = Batches(filling, conditioning).run(given_pairs(conditioning, tasks))
    for task, sums in conditioning.run([tasks[number] for number in left]):
        labels = (task.p, task.q, task.rows[:, None], task.columns)
        for family in families:
            for _, held, orders in _ways(family):
                filling.put(family, [labels[leg] for leg in held], sums[orders])


@functools.cache
def _ways(family: Family) -> list[tuple[bool, tuple[int, ...], Family]]:
    """For every placement: is s before r, which of (p, q, r, s) each slot holds, and their orders."""
    return [
        (places[2] > places[3], tuple(places.index(slot) for slot in range(4)), orders)
        for places, orders in placements(family)
    ]


def _fill_three_distinct(filling: Filling, conditioning: PairConditioning, families) -> None:
    """Two slots on one sample, the others on two further ones: conditioned on the doubled sample alone."""
    count, fixed = len(conditioning.K), filling.fixed
    everyone = np.arange(count)
    rows = [everyone] * count if fixed is None else [everyone[fixed:]] * fixed + [everyone]
    tasks = [Task(a, a, rows[a], everyone) for a in range(count if count > 2 else 0)]
    parts = [tasks] if fixed is None else [tasks[:fixed], tasks[fixed:]]  # the fixed sample is the row, or p
    left = []
    for part, place in zip(parts, (0,) if fixed is None else (2, 0), strict=True):
        batches = Batches(filling, conditioning, place)
        left += [part[number] for number in batches.run(given_doubled(conditioning, part))]
    for task, sums in conditioning.run_doubled(left):
        one_row = fixed is not None and task.p != fixed
        labels = (task.p, task.p, fixed if one_row else slice(None), slice(None))
        for family in families:
            for flipped, held, orders in _ways(family):
                block = sums[orders][0] if one_row else sums[orders].T if flipped else sums[orders]
                filling.put(family, [labels[leg] for leg in held], block)


def _fill_two_distinct(filling: Filling, conditioning: PairConditioning, families) -> None:
    fixed = filling.fixed
    inner = plane_grid([conditioning.steps.finest_step], conditioning.steps.radius, False)
    if fixed is None:
        a, b = np.triu_indices(len(conditioning.K), 1)
    else:
        a, b = np.full(fixed, fixed), np.arange(fixed)
    averages = two_samples(
        conditioning.towers[0], conditioning.K, families, (a, b), (conditioning.line_grid(), inner)
    )
    for (family, slots), (forward, backward) in averages.items():
        one = a if fixed is None else fixed
        filling.put(family, [one if slot in slots else b for slot in range(4)], forward)
        filling.put(family, [b if slot in slots else one for slot in range(4)], backward)
