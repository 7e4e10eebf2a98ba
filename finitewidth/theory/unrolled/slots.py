r"""Unrolled tensors with one slot open and a dual on the other three, streamed one leg at a time.

$$\text{out}_{kd} = \sum_{xyz} X_{\ldots d \ldots x y z}\, D_{k;xyz}$$

for several tensors, open slots and duals D in one pass over the four-leg averages; duals live on the first
samples (the training set), d on all. At most a few arrays of size N^3 are held.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.tasks import HERE, Runner
from finitewidth.theory.averages import Product
from finitewidth.theory.sources import Source
from finitewidth.theory.tensors import SHAPES, Shape
from finitewidth.theory.unrolled.dense import averages_with_fixed_leg
from finitewidth.theory.unrolled.unroll import Unrolled


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
class LegSlices:
    """One task for each sample of each source layer.

    Requests, which are large, are made from `recipe` where the work is done, and are not sent.
    """

    unrolled: Unrolled
    recipe: Callable[[], list[Request]]
    tolerance: float

    @functools.cached_property
    def requests(self) -> list[Request]:
        with SingleThreadedProducts():  # the same bits here and on a cluster
            return self.recipe()

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "requests"}

    @property
    def count(self) -> int:
        return len(self.unrolled.sources) * self.unrolled.count

    def __call__(self, task: int) -> dict[str, np.ndarray]:
        layer, fixed = divmod(task, self.unrolled.count)
        source = self.unrolled.sources[layer]
        parts = leg_slice(source, fixed, self.requests, self.tolerance)
        return {str(index): part for index, part in enumerate(parts)}


def contract_slots(slices: LegSlices, running: Runner = HERE) -> list[np.ndarray]:
    """(k, N) for every request."""
    unrolled, requests = slices.unrolled, slices.requests
    totals = [np.zeros((request.dual.shape[0], unrolled.count)) for request in requests]
    results = running.results(slices, slices.count, name="legs", what="contracting legs", at_once=2)
    for parts in results:
        for index, total in enumerate(totals):
            total += parts[str(index)]
    for source in unrolled.sources:
        for total, request in zip(totals, requests, strict=True):
            total -= source.weight * _product_of_means(source, request)
    return totals


def leg_slice(source: Source, fixed: int, requests: list[Request], tolerance: float) -> list[np.ndarray]:
    """The share in every request of the quadruples whose last sample is `fixed`; such slices are independent.

    An average of four legs does not depend on the order of its samples. Each is therefore computed once, in
    the slice of its last sample, and used there in every slot that this sample can stand in.
    """
    families = {product.family for r in requests for product in source.products(r.shape)}
    until = replace(source, K=source.K[: fixed + 1, : fixed + 1])
    averages = averages_with_fixed_leg(until, fixed, tuple(sorted(families)), tolerance)
    return [source.weight * _request_slice(source, request, fixed, averages) for request in requests]


def _request_slice(source: Source, request: Request, fixed: int, averages) -> np.ndarray:
    total = np.zeros((request.dual.shape[0], source.K.shape[0]))
    opened, others = request.open_label, request.other_labels
    block = _block(source, request, opened, fixed, averages, others)
    total[:, fixed] += np.tensordot(_cut(request.dual, block.shape), block, 3)
    if fixed < request.dual.shape[1]:
        for axis, label in enumerate(others):
            block = _block(source, request, label, fixed, averages, opened + others.replace(label, ""))
            dual = _cut(np.take(request.dual, fixed, axis + 1), block.shape[1:])
            total[:, : block.shape[0]] += np.tensordot(dual, block, ([1, 2], [1, 2]))
    return total


def _block(source: Source, request: Request, label: str, fixed: int, averages, axes: str) -> np.ndarray:
    """All products of terms where `label` is the first to stand at the last sample, over the other labels."""
    whole = {
        name: source.K.shape[0] if name == request.open_label else request.dual.shape[1] for name in axes
    }
    terms = []
    for product in source.products(request.shape):
        present = {name for _, name in product.legs}
        if label in present:
            ends = {name: min(end, fixed + (name > label)) for name, end in whole.items() if name in present}
            factors = [(product.row, "ab"), (product.column, "cd"), _average(averages, product, label)]
            terms.append((whole | ends, factors))
    reach = {name: max((ends[name] for ends, _ in terms), default=0) for name in axes}
    block = np.zeros([reach[name] for name in axes])
    for ends, factors in terms:
        part = _outer([_at(array, labels, label, fixed, ends) for array, labels in factors], axes)
        block[tuple(slice(ends[name]) for name in axes)] += part
    ties = [_at(source.Theta, tie, label, fixed, reach) for tie in request.shape.ties]
    return block * _outer(ties, axes) if ties else block


def _cut(dual: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Duals (k, ...) on the first samples."""
    return dual[(slice(None), *map(slice, shape))]


def _average(averages, product: Product, label: str) -> tuple[np.ndarray, str]:
    """The average with `label` fixed in the last of its slots, and the labels of the other slots."""
    slot = max(index for index, (_, name) in enumerate(product.legs) if name == label)
    rest = "".join(name for index, (_, name) in enumerate(product.legs) if index != slot)
    return averages[product.family, slot].value, rest


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
    """The product of factors, each over some of three labels."""
    result = None
    for array, names in factors:
        order = sorted(range(len(names)), key=lambda axis: labels.index(names[axis]))
        shaped = np.transpose(array, order)
        shape = iter(shaped.shape)
        shaped = shaped.reshape([next(shape) if name in names else 1 for name in labels])
        result = shaped if result is None else result * shaped
    assert result is not None
    return result


def _product_of_means(source: Source, request: Request) -> np.ndarray:
    """The product of means that a covariance subtracts, (k, N)."""
    shape, count = request.shape, request.dual.shape[1]
    if not shape.centred:
        return np.zeros((request.dual.shape[0], source.K.shape[0]))
    pairs = [(source.mean(shape.row), "ab"), (source.mean(shape.column), "cd")]
    ends = {name: count for name in request.other_labels} | {request.open_label: source.K.shape[0]}
    cut = [_at(array, labels, "", 0, ends) for array, labels in pairs]
    subscripts = f"{cut[0][1]},{cut[1][1]},k{request.other_labels}->k{request.open_label}"
    return np.einsum(subscripts, cut[0][0], cut[1][0], request.dual, optimize="greedy")
