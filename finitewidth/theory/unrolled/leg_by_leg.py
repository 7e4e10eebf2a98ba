r"""Unrolled tensors with one slot open and a dual on the other three, streamed one leg at a time.

$$\text{out}_{kd} = \sum_{xyz} X_{\ldots d \ldots x y z}\, D_{k;xyz}$$

for several tensors, open slots and duals D in one pass over the four-leg averages; duals live on the first
samples (the training set), d on all. At most a few arrays of size N^3 are held.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.tasks import HERE, Runner
from finitewidth.gaussian.four_legs.averages import four_legs_with_fixed_leg
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.four_legs.two_layers import four_legs_of_two_layers_with_fixed_leg
from finitewidth.theory.feature_products import Product, products
from finitewidth.theory.sources import Source
from finitewidth.theory.streams import Pair
from finitewidth.theory.tensors import SHAPES, Shape

if TYPE_CHECKING:
    from finitewidth.theory.unrolled.unroll import Unrolled

Averages = Mapping[
    tuple[Family, int], np.ndarray
]  # by family and slot of the fixed leg, over the other slots


class Request(NamedTuple):
    """A tensor, its open slot in printed order, and duals over the other three slots."""

    tensor: str
    slot: int
    dual: np.ndarray  # (k, M, M, M) with M samples or fewer

    @property
    def shape(self) -> Shape:
        return SHAPES[self.tensor]

    @property
    def open_label(self) -> str:
        return self.shape.printed[self.slot]

    @property
    def other_labels(self) -> str:
        return self.shape.printed.replace(self.open_label, "")


@dataclass(frozen=True)
class Part:
    """A source layer, or rows of one and columns of another layer of a stream, as a request meets them."""

    products: tuple[Product, ...]  # of row and column terms
    means: tuple[np.ndarray, np.ndarray]  # of the row feature and of the column feature, where centred
    Theta: np.ndarray
    moving: str  # the labels whose samples come one after the other: those of the lower layer

    @classmethod
    def of(cls, source: Source, shape: Shape) -> "Part":
        means = _means(shape, source, source)
        return cls(tuple(source.products(shape)), means, source.Theta, "abcd")

    @classmethod
    def across(cls, rows: Source, columns: Source, Theta: np.ndarray, shape: Shape, moving: str) -> "Part":
        """Two layers of a stream, `moving` the labels of the lower one; its legs come first."""
        terms = products(rows.features[shape.row], columns.features[shape.column], apart=True)
        kept = (term for term in terms if np.any(term.row) and np.any(term.column))
        if moving == "cd":
            kept = (term._replace(legs=term.legs[2:] + term.legs[:2]) for term in kept)
        return cls(tuple(kept), _means(shape, rows, columns), Theta, moving)


def _means(shape: Shape, rows: Source, columns: Source) -> tuple[np.ndarray, np.ndarray]:
    if not shape.centred:
        return np.zeros_like(rows.K), np.zeros_like(rows.K)
    return rows.mean(shape.row), columns.mean(shape.column)


@dataclass(frozen=True)
class LegSlices:
    """One task for each sample of each source layer, or of each two layers of a stream.

    Requests, which are large, are made from `recipe` where the work is done, and are not sent.
    """

    unrolled: "Unrolled"
    recipe: Callable[[], list[Request]]
    tolerance: float

    @functools.cached_property
    def requests(self) -> list[Request]:
        with SingleThreadedProducts():  # the same bits here and on a cluster
            return self.recipe()

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "requests"}

    @property
    def pairs(self) -> list[Pair]:
        """The source layers that are averaged together, each with itself where there are no skips."""
        if self.unrolled.streams is not None:
            return self.unrolled.streams.pairs
        return [Pair(k, k) for k in range(1, len(self.unrolled.sources) + 1)]

    @property
    def count(self) -> int:
        return len(self.pairs) * self.unrolled.count

    def __call__(self, task: int) -> dict[str, np.ndarray]:
        number, fixed = divmod(task, self.unrolled.count)
        pair = self.pairs[number]
        parts = self.parts(pair)
        families = {product.family for of_shape in parts.values() for p in of_shape for product in p.products}
        averages = self._averages(pair, fixed, tuple(sorted(families)))
        weight = self.unrolled.sources[pair.lower - 1].weight
        slices: dict[str, np.ndarray] = {}
        for index, request in enumerate(self.requests):
            shares = [_request_slice(part, request, fixed, averages) for part in parts[request.tensor]]
            slices[str(index)] = weight * np.sum(np.stack(shares), axis=0)
        return slices

    def parts(self, pair: Pair) -> dict[str, list[Part]]:
        """What a pair of source layers adds to each tensor that is asked for."""
        shapes = {request.tensor: request.shape for request in self.requests}
        lower, upper = (self.unrolled.sources[layer - 1] for layer in pair)
        if pair.lower == pair.upper:
            return {name: [Part.of(lower, shape)] for name, shape in shapes.items()}
        assert self.unrolled.streams is not None
        Theta = self.unrolled.streams.crossed(*pair)[1]
        both = ((lower, upper, "ab"), (upper, lower, "cd"))
        return {
            name: [Part.across(rows, columns, Theta, shape, moving) for rows, columns, moving in both]
            for name, shape in shapes.items()
        }

    def _averages(self, pair: Pair, fixed: int, families: tuple[Family, ...]) -> Averages:
        """Averages of four legs with the largest sample of the lower layer fixed.

        Those of one layer do not depend on the order of samples. Each is therefore computed once, in the
        slice of its last sample, and used there in every slot that this sample can stand in.
        """
        if not families:
            return {}
        if pair.lower < pair.upper:
            assert self.unrolled.streams is not None
            (first, second), K = self.unrolled.streams.legs(pair)
            return four_legs_of_two_layers_with_fixed_leg(
                (first, second), K, fixed, families, tolerance=self.tolerance
            )
        source = self.unrolled.sources[pair.lower - 1]
        K = source.K[: fixed + 1, : fixed + 1]
        averages = four_legs_with_fixed_leg(source.activation, K, fixed, families, tolerance=self.tolerance)
        return {key: np.asarray(average.value) for key, average in averages.items()}


def contract_slots(slices: LegSlices, running: Runner = HERE) -> list[np.ndarray]:
    """(k, N) for every request; the layer asked for must not be the end of a skip, which adds bare pairs."""
    unrolled, requests = slices.unrolled, slices.requests
    assert unrolled.net.ladder.skips[unrolled.layer - 1] is None
    totals = [np.zeros((request.dual.shape[0], unrolled.count)) for request in requests]
    results = running.results(slices, slices.count, name="legs", what="contracting legs", at_once=2)
    for slice_parts in results:
        for index, total in enumerate(totals):
            total += slice_parts[str(index)]
    for pair in slices.pairs:
        weight, parts = unrolled.sources[pair.lower - 1].weight, slices.parts(pair)
        for total, request in zip(totals, requests, strict=True):
            if request.shape.centred:
                total -= weight * sum(_product_of_means(part, request) for part in parts[request.tensor])
    return totals


def _request_slice(part: Part, request: Request, fixed: int, averages: Averages) -> np.ndarray:
    """The share in a request of the quadruples whose last moving sample is `fixed`."""
    total = np.zeros((request.dual.shape[0], part.Theta.shape[0]))
    opened, others = request.open_label, request.other_labels
    if opened in part.moving:
        block = _block(part, request, opened, fixed, averages, others)
        total[:, fixed] += np.einsum("kabc,abc->k", _cut(request.dual, block.shape), block)  # copies no dual
    if fixed < request.dual.shape[1]:
        for axis, label in enumerate(others):
            if label in part.moving:
                block = _block(part, request, label, fixed, averages, opened + others.replace(label, ""))
                dual = _cut(np.take(request.dual, fixed, axis + 1), block.shape[1:])
                total[:, : block.shape[0]] += np.tensordot(dual, block, ([1, 2], [1, 2]))
    return total


def _block(part: Part, request: Request, label: str, fixed: int, averages: Averages, axes: str) -> np.ndarray:
    """All products of terms where `label` is the first to stand at the last sample, over the other labels."""
    whole = {
        name: part.Theta.shape[0] if name == request.open_label else request.dual.shape[1] for name in axes
    }
    terms = []
    for product in part.products:
        present = {name for _, name in product.legs}
        if label in present:
            limited = present & set(part.moving)
            ends = {name: min(end, fixed + (name > label)) for name, end in whole.items() if name in limited}
            factors = [_average(averages, product, label), (product.row, "ab"), (product.column, "cd")]
            terms.append((whole | ends, factors))
    reach = {name: max((ends[name] for ends, _ in terms), default=0) for name in axes}
    block = np.zeros([reach[name] for name in axes])
    for ends, factors in terms:
        term = _outer([_at(array, labels, label, fixed, ends) for array, labels in factors], axes)
        block[tuple(slice(ends[name]) for name in axes)] += term
    for tie in request.shape.ties:
        block *= _over(axes, *_at(part.Theta, tie, label, fixed, reach))
    return block


def _cut(dual: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Duals (k, ...) on the first samples."""
    return dual[(slice(None), *map(slice, shape))]


def _average(averages: Averages, product: Product, label: str) -> tuple[np.ndarray, str]:
    """The average with `label` fixed in the last of its slots, and the labels of the other slots."""
    slot = max(index for index, (_, name) in enumerate(product.legs) if name == label)
    rest = "".join(name for index, (_, name) in enumerate(product.legs) if index != slot)
    return averages[product.family, slot], rest


def _at(
    array: np.ndarray, labels: str, label: str, fixed: int, ends: dict[str, int]
) -> tuple[np.ndarray, str]:
    """Repeated labels on their diagonal, `label` at its fixed value, others up to their ends."""
    distinct = "".join(dict.fromkeys(labels))
    if distinct != labels:
        array = np.einsum(f"{labels}->{distinct}", array)
    index = tuple(fixed if name == label else slice(ends[name]) for name in distinct)
    return array[index], distinct.replace(label, "")


def _outer(factors: list[tuple[np.ndarray, str]], labels: str) -> np.ndarray:
    """The product of factors, each over some of three labels; fastest with the largest one first."""
    first, *others = (_over(labels, array, names) for array, names in factors)
    result = first
    for other in others:
        whole = result is not first and np.broadcast_shapes(result.shape, other.shape) == result.shape
        result = np.multiply(result, other, out=result if whole else None)  # new memory is slow
    return result


def _over(labels: str, array: np.ndarray, names: str) -> np.ndarray:
    """An array over some of three labels, with axes for all of them."""
    order = sorted(range(len(names)), key=lambda axis: labels.index(names[axis]))
    shaped = np.transpose(array, order)
    shape = iter(shaped.shape)
    return shaped.reshape([next(shape) if name in names else 1 for name in labels])


def _product_of_means(part: Part, request: Request) -> np.ndarray:
    """The product of means that a covariance subtracts, (k, N)."""
    pairs = [(part.means[0], "ab"), (part.means[1], "cd")]
    ends = {name: request.dual.shape[1] for name in request.other_labels}
    ends[request.open_label] = part.Theta.shape[0]
    cut = [_at(array, labels, "", 0, ends) for array, labels in pairs]
    subscripts = f"{cut[0][1]},{cut[1][1]},k{request.other_labels}->k{request.open_label}"
    return np.einsum(subscripts, cut[0][0], cut[1][0], request.dual, optimize="greedy")
