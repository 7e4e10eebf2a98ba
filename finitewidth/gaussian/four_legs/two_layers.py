r"""Four-leg averages with two legs in each of two layers, whose preactivations are jointly Gaussian.

$$\langle \sigma_k^{(a)}(z^{(k)}_1)\,\sigma_k^{(b)}(z^{(k)}_2)\,
  \sigma_p^{(c)}(z^{(p)}_3)\,\sigma_p^{(d)}(z^{(p)}_4)\rangle$$

A skip connection correlates a neuron with its own past, so that such averages do not factorize. They are
conditioned on the pair of the first layer, and the legs of the second layer are taken two by two. Where both
legs of a layer are the same sample, this leg alone is the condition.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.average import Average
from finitewidth.gaussian.division import quotient
from finitewidth.gaussian.four_legs.closed_forms import closed_form, have_closed_form
from finitewidth.gaussian.four_legs.coincident import one_of_each_layer
from finitewidth.gaussian.four_legs.conditioning import PairConditioning, Task
from finitewidth.gaussian.four_legs.families import Family, Layers, arrangements, highest_order
from finitewidth.gaussian.four_legs.kinked import kinked_layers
from finitewidth.gaussian.four_legs.plans import fill_or_refuse
from finitewidth.gaussian.four_legs.slot_arrays import Filling
from finitewidth.gaussian.four_legs.tasks.batches import Batches, Job
from finitewidth.gaussian.four_legs.tasks.conditioned import Given, given_doubled, given_pairs
from finitewidth.gaussian.four_legs.tasks.placement import Scattered
from finitewidth.gaussian.four_legs.trapezoid import plane_grid
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

# layers of the legs p, q, row and column: which pair of legs is the condition
BY_LOWER: Layers = (0, 0, 1, 1)
BY_UPPER: Layers = (1, 1, 0, 0)
MIXED: Layers = (0, 1, 0, 1)


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
    count = len(K) // 2
    arrays: dict[Family, dict[int | None, np.ndarray]] = {
        family: {slot: np.empty((fixed + 1, count, count)) for slot in (0, 1)} for family in families
    }
    _fill(Filling(fixed, arrays), activations, K, tolerance)
    return {(family, slot): arrays[family][slot] for family in families for slot in (0, 1)}


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
    filling = Filling.empty(len(K) // 2, families, None)
    _fill(filling, activations, K, tolerance)
    return {family: filling.arrays[family][None] for family in families}


def _fill(filling: Filling, activations, K: np.ndarray, tolerance: float) -> None:
    """Fill all entries of the arrays of smooth activations."""
    families = tuple(filling.arrays)
    lower = Tower(activations[0], highest_order(families))
    upper = lower if activations[1] == activations[0] else Tower(activations[1], lower.highest)

    def fill(reached: float, longest: int) -> None:
        layers = TwoLayers((lower, upper), K, families, reached, filling, longest)
        layers.fill_four_legs()
        layers.fill_three_legs()
        layers.fill_two_legs()

    names = " and ".join(dict.fromkeys(repr(activation.name) for activation in activations))
    with SingleThreadedProducts():
        fill_or_refuse(fill, f"activations {names} of two layers", K, tolerance)


@dataclass
class TwoLayers:
    """Averages of two layers, written to their places."""

    towers: tuple[Tower, Tower]
    K: np.ndarray
    families: tuple[Family, ...]
    tolerance: float
    filling: Filling
    longest: int  # numbers of Hermite terms that may be needed

    def __post_init__(self):
        self.count, self.fixed = len(self.K) // 2, self.filling.fixed
        self.legs = np.arange(2 * self.count).reshape(2, -1)  # of both layers
        self._conditionings: dict[Layers, PairConditioning] = {}

    def conditioned(self, layers: Layers) -> PairConditioning:
        """Sums whose legs p, q, row and column belong to these layers."""
        if layers not in self._conditionings:
            first, second, third, fourth = (self.towers[layer] for layer in layers)
            largest = tuple(float(np.diagonal(self.K)[self.legs[layer]].max()) for layer in layers)
            dealt = arrangements(self.families, layers)
            self._conditionings[layers] = PairConditioning(
                (first, second, third, fourth), self.K, dealt, self.tolerance, largest, self.longest
            )
        return self._conditionings[layers]

    def _writer(self, layers: Layers, fixed: int = 0) -> Scattered:
        return Scattered(self.filling, self.conditioned(layers).dealt, fixed=fixed, layers=layers)

    def fill_four_legs(self) -> None:
        """Two different samples of each layer: for those of one layer, all entries of the other."""
        if self.count == 1:
            return
        # with the more similar legs as the condition, the others are less correlated: shorter series
        by_upper = self.fixed is None and self._similarity(1) > self._similarity(0)
        layers = BY_UPPER if by_upper else BY_LOWER
        conditioning = self.conditioned(layers)
        job = Job(given_pairs(conditioning, self._tasks(layers)), self._writer(layers))
        parallel = Batches(conditioning).run(job)
        self._fill_parallel([task for given in parallel for task in _one_of_each_layer(given)])

    def _tasks(self, layers: Layers) -> list[Task]:
        """Every two samples of one layer with all of the other; if one is fixed, it is the first."""
        own, others = (self.legs[layer] for layer in layers[1:3])
        pairs = itertools.combinations(own.tolist(), 2)
        if self.fixed is not None:
            pairs = ((self.fixed, leg) for leg in own.tolist()[: self.fixed])
        return [Task(p, q, others, others) for p, q in pairs]

    def _similarity(self, layer: int) -> float:
        """The mean square of the correlations in a layer."""
        K = self.K[np.ix_(self.legs[layer], self.legs[layer])]
        deviations = np.sqrt(np.diagonal(K))
        return float((quotient(K, deviations[:, None] * deviations) ** 2).mean())

    def _fill_parallel(self, tasks: list[Task]) -> None:
        if tasks:
            mixed = self.conditioned(MIXED)
            Batches(mixed).put_all(mixed.run(tasks), self._writer(MIXED))

    def fill_three_legs(self) -> None:
        """Both legs of one layer on one sample, those of the other on two."""
        below, above = self.legs
        samples = below.tolist() if self.fixed is None else [self.fixed]
        self._fill_doubled(BY_LOWER, [Task(leg, leg, above, above) for leg in samples])
        rows = columns = below
        if self.fixed is not None:
            rows, columns = below[self.fixed : self.fixed + 1], below[: self.fixed]
        self._fill_doubled(BY_UPPER, [Task(leg, leg, rows, columns) for leg in above.tolist()], fixed=2)

    def _fill_doubled(self, layers: Layers, tasks: list[Task], fixed: int = 0) -> None:
        conditioning = self.conditioned(layers)
        Batches(conditioning).fill(Job(given_doubled(conditioning, tasks), self._writer(layers, fixed)))

    def fill_two_legs(self) -> None:
        """Both legs of each layer on one sample."""
        conditioning, fixed = self.conditioned(BY_LOWER), self.fixed
        inner = plane_grid([conditioning.line_step], conditioning.steps.radius, False)
        below, above = self.legs
        below = below if fixed is None else below[fixed : fixed + 1]
        a, b = (labels.reshape(-1) for labels in np.meshgrid(below, above, indexing="ij"))
        grids = conditioning.line_grid(), inner
        values = one_of_each_layer(self.towers, self.K, self.families, (a, b), grids)
        for family, value in values.items():
            one = a if fixed is None else fixed
            self.filling.put(family, [one, one, b - self.count, b - self.count], value)


def _one_of_each_layer(given: Given) -> Iterator[Task]:
    """Entries of almost parallel legs, conditioned on one of them and on a leg of the other layer."""
    one, other = given.legs[:2].tolist()
    for third, fourth in given.legs[2 + given.places].tolist():
        (p, q), (row, column) = sorted((one, third)), sorted((other, fourth))
        yield Task(p, q, np.array([row]), np.array([column]))
