"""All four-leg averages of a smooth activation: conditioning pairs, and the place of each result."""

import itertools

import numpy as np

from finitewidth.gaussian.four_legs.coincident import one_sample, two_samples
from finitewidth.gaussian.four_legs.conditioning import PairConditioning, Task
from finitewidth.gaussian.four_legs.distinct import similar_together
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.four_legs.slot_arrays import Filling
from finitewidth.gaussian.four_legs.tasks.batches import Batches, Job
from finitewidth.gaussian.four_legs.tasks.conditioned import given_doubled, given_pairs
from finitewidth.gaussian.four_legs.tasks.placement import Packed, Scattered
from finitewidth.gaussian.four_legs.trapezoid import plane_grid


def fill_smooth(filling: Filling, conditioning: PairConditioning, families: tuple[Family, ...]) -> None:
    """Fill all entries of the arrays of a smooth activation."""
    four, three = _four_distinct(filling, conditioning), _three_distinct(filling, conditioning)
    Batches(conditioning).fill(four, *three)
    if isinstance(four.writer, Packed):
        four.writer.fill(filling)
    _fill_two_distinct(filling, conditioning, families)  # overwrites what tasks of three have of these
    values = one_sample(conditioning.towers[0], conditioning.K, families, conditioning.line_grid())
    for family, value in values.items():
        for sample in range(len(value)) if filling.fixed is None else [filling.fixed]:
            filling.put(family, [sample] * 4, value[sample])


def _four_distinct(filling: Filling, conditioning: PairConditioning) -> Job:
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
        return Job(given_pairs(conditioning, tasks), Packed(samples, conditioning.dealt))
    samples = samples[samples != fixed]
    tasks = [Task(fixed, int(b), samples[:n], samples[n + 1 :]) for n, b in enumerate(samples)]
    return Job(given_pairs(conditioning, tasks), Scattered(filling, conditioning.dealt))


def _three_distinct(filling: Filling, conditioning: PairConditioning) -> list[Job]:
    """Two slots on one sample, the others on two further ones: conditioned on the doubled sample alone."""
    count, fixed = len(conditioning.K), filling.fixed
    tasks = []
    for a in range(count if count > 2 else 0):
        others = np.delete(np.arange(count), a)
        rows = others if fixed is None or a == fixed else np.array([fixed])
        tasks.append(Task(a, a, rows, others))
    parts = [tasks] if fixed is None else [tasks[:fixed], tasks[fixed:]]  # the fixed sample is the row, or p
    return [
        Job(
            given_doubled(conditioning, part),
            Scattered(filling, conditioning.dealt, fixed=place, doubled=True),
        )
        for part, place in zip(parts, (0,) if fixed is None else (2, 0), strict=True)
    ]


def _fill_two_distinct(filling: Filling, conditioning: PairConditioning, families) -> None:
    fixed = filling.fixed
    inner = plane_grid([conditioning.steps.finest_step], conditioning.steps.radius, False)
    if fixed is None:
        a, b = np.triu_indices(len(conditioning.K), 1)
    else:
        a, b = np.full(fixed, fixed), np.arange(fixed)
    values, numbers = two_samples(
        conditioning.towers[0], conditioning.K, families, (a, b), (conditioning.line_grid(), inner)
    )
    if fixed is None:
        _put_pairs(filling, values, numbers, a, b)
        return
    for (family, slots), number in numbers.items():
        forward, backward = values[number]
        filling.put(family, [fixed if slot in slots else b for slot in range(4)], forward)
        filling.put(family, [b if slot in slots else fixed for slot in range(4)], backward)


def _put_pairs(filling: Filling, values: np.ndarray, numbers: dict, a: np.ndarray, b: np.ndarray) -> None:
    """Write averages of pairs of samples to arrays over four slots."""
    from finitewidth.gaussian.four_legs.loops import lines

    strides = filling.count ** np.arange(3, -1, -1)
    for family, arrays in filling.arrays.items():
        places = {slots: number for (own, slots), number in numbers.items() if own == family}
        of_a = np.array([sum(strides[slot] for slot in slots) for slots in places])
        both = np.stack([of_a, strides.sum() - of_a], axis=1)
        target = arrays[None].reshape(-1)
        lines.put_pairs(values, np.array([*places.values()]), both, a, b, target)
