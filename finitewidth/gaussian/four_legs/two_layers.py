r"""Four-leg averages with two legs in each of two layers, whose preactivations are jointly Gaussian.

$$\langle \sigma_k^{(a)}(z^{(k)}_1)\,\sigma_k^{(b)}(z^{(k)}_2)\,
  \sigma_p^{(c)}(z^{(p)}_3)\,\sigma_p^{(d)}(z^{(p)}_4)\rangle$$

A skip connection correlates a neuron with its own past, so that such averages do not factorize. They are
conditioned on the pair of the first layer. The legs of the second layer are rows and columns, all of them
against all. Where a row and a column are the same sample, they are one leg with a product of derivatives.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from finitewidth.core.cores import SingleThreadedProducts, on_all_cores
from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.average import Average
from finitewidth.gaussian.four_legs.closed_forms import closed_form, have_closed_form
from finitewidth.gaussian.four_legs.conditioning import Conditioned, PairConditioning, Task, condition
from finitewidth.gaussian.four_legs.contraction import LegValues
from finitewidth.gaussian.four_legs.families import Family, highest_order
from finitewidth.gaussian.four_legs.interpolation import smoothed_legs
from finitewidth.gaussian.four_legs.kinked import kinked_layers
from finitewidth.gaussian.four_legs.plans import SHORT, Plan
from finitewidth.gaussian.four_legs.trapezoid import Unreachable, plane_grid
from finitewidth.gaussian.kernel_matrix import as_positive_kernel
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import Activation

# orders of the legs (1 2 | 3 4): sources of the tensors with the row in either layer, then those of the means
SOURCES: tuple[Family, ...] = (
    *((a, a, c, c) for a in (0, 1) for c in (0, 1)),
    *((a + 1, a, c + 1, c) for a in (0, 1) for c in (0, 1)),
    *(orders for pair in ((2, 0), (3, 1), (2, 2)) for orders in ((*pair, 1, 1), (1, 1, *pair))),
)
MEANS: tuple[Family, ...] = ((0, 0, 2, 0), (0, 0, 3, 1), (0, 0, 2, 2))
TWO_LAYER_FAMILIES = SOURCES + MEANS


def four_legs_of_two_layers(
    activations: tuple[Activation, Activation],
    K: np.ndarray,
    families: Sequence[Family] = TWO_LAYER_FAMILIES,
    *,
    tolerance: float = 1e-8,
) -> dict[Family, Average]:
    """Averages (N, N, N, N), the first two slots in the first layer, the others in the second.

    `K` is the joint kernel (2 N, 2 N) of the samples in the first and then in the second layer. With kinks
    the averages are those of `kinked_layers`, to 1e-5 at best, and the error reports the accuracy reached.
    """
    require_double_precision()
    K, families = as_positive_kernel(K), tuple(families)
    if have_closed_form(activations):
        values, error = _in_closed_form(activations, K, families), 0.0
    elif not all(activation.is_smooth for activation in activations):
        values, error = kinked_layers(activations, K, families, tolerance)
    else:
        values, error = _conditioned(activations, K, families, tolerance), tolerance
    largest = {family: float(np.abs(value).max()) for family, value in values.items()}
    return {family: Average(value, error + 1e-14 * largest[family]) for family, value in values.items()}


def four_legs_of_two_layers_with_fixed_leg(
    activations: tuple[Activation, Activation],
    K: np.ndarray,
    fixed: int,
    families: Sequence[Family] = TWO_LAYER_FAMILIES,
    *,
    tolerance: float = 1e-8,
) -> dict[tuple[Family, int], np.ndarray]:
    """The same with sample `fixed` of the first layer in slot 0 or 1, and a sample up to it in the other.

    Each value is an array (fixed + 1, N, N) over the remaining slots in order; nothing larger is stored.
    """
    require_double_precision()
    K, families = as_positive_kernel(K), tuple(families)
    if have_closed_form(activations):
        return _fixed_in_closed_form(activations, K, fixed, families)
    with _reachable(activations, K, tolerance), SingleThreadedProducts():
        layers = TwoLayers.of(activations, K, families, tolerance)
        shape = (fixed + 1, layers.count, layers.count)
        values = {(family, slot): np.empty(shape) for family in families for slot in (0, 1)}
        hard: list[Entry] = []
        for task, sums, entries in layers.run_all([(p, fixed) for p in range(fixed + 1)]):
            hard += entries
            for a, b, c, d in families:
                values[(a, b, c, d), 0][task.p] = sums[b, a, c, d]
                values[(a, b, c, d), 1][task.p] = sums[a, b, c, d]
        for entry, sums in layers.run_hard(hard):
            for a, b, c, d in families:
                values[(a, b, c, d), 0][entry.p, entry.r, entry.s] = sums[b, c, a, d]
                values[(a, b, c, d), 1][entry.p, entry.r, entry.s] = sums[a, c, b, d]
        return values


def _fixed_in_closed_form(activations, K, fixed: int, families) -> dict[tuple[Family, int], np.ndarray]:
    count = len(K) // 2
    lower, upper = np.arange(fixed + 1), np.arange(count, 2 * count)
    values, (first, second) = {}, activations
    for slot in (0, 1):
        labels = list(np.ix_(lower, upper, upper))
        labels.insert(slot, np.array(fixed))
        part = closed_form((first, first, second, second), K, tuple(labels), families)
        values |= {(family, slot): part[family] for family in families}
    return values


def _in_closed_form(activations, K: np.ndarray, families) -> dict[Family, np.ndarray]:
    count = len(K) // 2
    lower, upper = np.arange(count), np.arange(count, 2 * count)
    (first, second), values = activations, {family: np.empty((count,) * 4) for family in families}
    for sample in lower:  # one sample at a time: little memory besides the result
        labels = (np.array(sample), *np.ix_(lower, upper, upper))
        part = closed_form((first, first, second, second), K, labels, families)
        for family in families:
            values[family][sample] = part[family]
    return values


def _conditioned(activations, K: np.ndarray, families, tolerance: float) -> dict[Family, np.ndarray]:
    with _reachable(activations, K, tolerance), SingleThreadedProducts():
        return _filled(TwoLayers.of(activations, K, families, tolerance), families)


@contextlib.contextmanager
def _reachable(activations, K: np.ndarray, tolerance: float) -> Iterator[None]:
    """Say what to do where a tolerance cannot be reached."""
    try:
        yield
    except Unreachable as reason:
        names = " and ".join(dict.fromkeys(repr(activation.name) for activation in activations))
        raise ValueError(
            f"tolerance {tolerance:.1e} cannot be reached for activations {names} of two layers at K with "
            f"largest diagonal entry {K.max():.3g} ({reason}); raise the tolerance, or scale the inputs "
            "or C_W down."
        ) from None


def _filled(layers: "TwoLayers", families: tuple[Family, ...]) -> dict[Family, np.ndarray]:
    values = {family: np.empty((layers.count,) * 4) for family in families}
    hard: list[Entry] = []
    for task, sums, entries in layers.run_all():
        hard += entries
        for a, b, c, d in families:
            values[a, b, c, d][task.p, task.q] = sums[a, b, c, d]
            values[a, b, c, d][task.q, task.p] = sums[b, a, c, d]
    for entry, sums in layers.run_hard(hard):
        p, q, r, s = entry
        for a, b, c, d in families:
            values[a, b, c, d][p, q, r, s] = sums[a, c, b, d]
            values[a, b, c, d][q, p, r, s] = sums[b, c, a, d]
    return values


class Entry(NamedTuple):
    """Samples p, q of the first layer and r, s of the second."""

    p: int
    q: int
    r: int
    s: int


class ProductTower(Tower):
    """Products of two derivatives of one activation at one point, for the two legs of a coincident pair."""

    def __init__(self, tower: Tower, ends: list[tuple[int, int]]):
        super().__init__(tower.activation, len(ends) - 1)
        self.tower, self.ends = tower, ends

    def on_block(self, z: np.ndarray) -> list[np.ndarray]:
        """All products at no more than `block` points."""
        derivatives = self.tower.on_block(z)
        return [derivatives[c] * derivatives[d] for c, d in self.ends]


class TwoLayers(PairConditioning):
    """Sums over all rows and columns of the second layer, for each pair of the first."""

    count: int
    families: tuple[Family, ...]

    @classmethod
    def of(cls, activations, K: np.ndarray, families: tuple[Family, ...], tolerance: float) -> "TwoLayers":
        top, count = highest_order(families), len(K) // 2
        lower = Tower(activations[0], top)
        upper = lower if activations[1] == activations[0] else Tower(activations[1], top)
        below, above = (float(np.diagonal(K)[part].max()) for part in (slice(count), slice(count, None)))
        dealt = {orders for family in families for orders in _within_pairs(family)}
        one_way = tuple(sorted(orders for orders in dealt if orders[2] >= orders[3]))
        made = cls((lower, lower, upper, upper), K, one_way, tolerance, (below, below, above, above))
        made.count, made.families = count, families
        return made

    def run_all(
        self, pairs: Iterable[tuple[int, int]] | None = None
    ) -> Iterator[tuple[Task, dict[Family, np.ndarray], list[Entry]]]:
        """Pairs p <= q, by default all: sums over rows and columns, and entries still meaningless."""
        above = np.arange(self.count, 2 * self.count)
        if pairs is None:
            pairs = itertools.combinations_with_replacement(range(self.count), 2)
        tasks = [Task(p, q, above, above) for p, q in pairs]
        conditioned = [_with_two_axes(condition(self.K, task)) for task in tasks]
        hard = []
        for given in conditioned:
            np.fill_diagonal(given.correlations, 0.0)
            hard.append(self._is_hard(given))
            given.correlations[hard[-1]] = 0.0
        steps = self._grid_steps(conditioned)
        plans = [self.plan(given) for given in conditioned]

        def work(index: int) -> dict[Family, np.ndarray]:
            task, given = tasks[index], conditioned[index]
            grid = plane_grid(steps[index], self.steps.radius, self.is_odd)
            legs = self._leg_values(task, given, grid, plans[index])
            sums = self._with_coincident(self.contraction(legs), legs, given, grid[0])
            # rows and columns are the same legs: the other half are transposes
            return sums | {(a, b, d, c): value.T for (a, b, c, d), value in sums.items() if c != d}

        for index, sums in on_all_cores(work, range(len(tasks))):
            p, q = tasks[index].p, tasks[index].q
            yield tasks[index], sums, [Entry(p, q, r, s) for r, s in np.argwhere(hard[index]).tolist()]

    def _with_coincident(self, sums, legs: LegValues, given: Conditioned, points) -> dict[Family, np.ndarray]:
        """The sums with their diagonal, where row and column are one sample, put right."""
        ends = sorted({(max(c, d), min(c, d)) for _, _, c, d in self.dealt})
        nodes, weights = plane_grid([self._inner_step], self.steps.radius, False)
        norms = np.array([self.rules(SHORT).ends[end] for end in ends])
        plan = Plan((nodes[:, 0], weights), 1, norms, self.tolerance / 4)
        directions, variances = given.directions[2 : 2 + self.count], given.variances[: self.count]
        products = ProductTower(self.towers[2], ends)
        values = dict(zip(ends, smoothed_legs(products, directions, variances, points, plan), strict=True))
        index = np.arange(self.count)
        for a, b, c, d in self.dealt:
            front = legs.weights * legs.first[a] * legs.second[b]
            sums[a, b, c, d][index, index] = values[max(c, d), min(c, d)] @ front
        return sums

    @property
    def _inner_step(self) -> float:
        return self.steps.finest_step if self.steps.scale > 0 else 0.0

    def run_hard(self, entries: list[Entry]) -> Iterator[tuple[Entry, dict[Family, float]]]:
        """Entries with almost parallel legs in the second layer: conditioned on one leg of each layer."""
        if not entries:
            return
        lower, _, upper, _ = self.towers
        both = {one for a, b, c, d in self.dealt for one in ((a, b, c, d), (a, b, d, c))}
        dealt = tuple(sorted((a, c, b, d) for a, b, c, d in both))
        mixed = PairConditioning((lower, upper, lower, upper), self.K, dealt, self.tolerance)
        shift = self.count
        tasks = [Task(p, shift + r, np.array([q]), np.array([shift + s])) for p, q, r, s in entries]
        for entry, (_, sums) in zip(entries, mixed.run(tasks), strict=True):
            yield entry, {orders: float(value[0, 0]) for orders, value in sums.items()}


def _within_pairs(family: Family) -> Iterator[Family]:
    a, b, c, d = family
    yield from ((*one, *other) for one in ((a, b), (b, a)) for other in ((c, d), (d, c)))


def _with_two_axes(given: Conditioned) -> Conditioned:
    """A doubled leg has one axis; the other has no extent."""
    missing = 2 - given.directions.shape[1]
    return Conditioned(np.pad(given.directions, ((0, 0), (0, missing))), given.variances, given.correlations)
