r"""Unrolled tensors with one slot open and a dual on the other three, streamed one leg at a time.

$$\text{out}_{kd} = \sum_{xyz} X_{\ldots d \ldots x y z}\, D_{k;xyz}$$

for several tensors, open slots and duals D in one pass over the four-leg averages; duals live on the first
samples (the training set), d on all. At most a few arrays of size N^3 are held.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.cores import SingleThreadedProducts
from finitewidth.tasks import HERE, Runner
from finitewidth.theory.unroll import SHAPES, Shape, Source, Unrolled, averages_with_fixed_leg
from finitewidth.theory.unrolled_dense import Labelled, family_of, mean_of_feature, products


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
    """One task for each leg of each source layer.

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
        found = leg_slice(self.unrolled, source, fixed, self.requests, self.tolerance)
        return {str(index): part for index, part in enumerate(found)}


def contract_slots(slices: LegSlices, running: Runner = HERE) -> list[np.ndarray]:
    """(k, N) for every request."""
    unrolled, requests = slices.unrolled, slices.requests
    totals = [np.zeros((request.dual.shape[0], unrolled.count)) for request in requests]
    results = running.results(slices, slices.count, name="legs", what="contracting legs", at_once=2)
    for found in results:
        for index, total in enumerate(totals):
            total += found[str(index)]
    for source in unrolled.sources:
        for total, request in zip(totals, requests, strict=True):
            total -= source.weight * _product_of_means(source, request)
    return totals


def leg_slice(
    unrolled: Unrolled, source: Source, fixed: int, requests: list[Request], tolerance: float
) -> list[np.ndarray]:
    """What one leg of one source layer adds to every request; legs are independent tasks."""
    families = {family_of(legs) for r in requests for _, _, legs in products(source, r.shape)}
    averages = averages_with_fixed_leg(unrolled, source, fixed, tuple(sorted(families)), tolerance)
    found = []
    for request in requests:
        part = np.zeros((request.dual.shape[0], unrolled.count))
        part[:, fixed] += _with_open_leg_fixed(source, request, fixed, averages)
        if fixed < request.dual.shape[1]:
            part += _with_another_leg_fixed(source, request, fixed, averages)
        found.append(source.weight * part)
    return found


def _with_open_leg_fixed(source: Source, request: Request, fixed: int, averages) -> np.ndarray:
    """Products that have a leg on the open slot: one block over the other three labels, then the duals."""
    label, others, count = request.open_label, request.other_labels, request.dual.shape[1]
    block = np.zeros((count,) * 3)
    for row, column, legs in products(source, request.shape):
        if label in {name for _, name in legs}:
            factors = [(row, "ab"), (column, "cd"), _average(averages, legs, label)]
            block += _outer([_at(array, labels, label, fixed, count) for array, labels in factors], others)
    ties = [_at(source.Theta, tie, label, fixed, count) for tie in request.shape.ties]
    if ties:
        block *= _outer(ties, others)
    return np.tensordot(request.dual, block, 3)


def _with_another_leg_fixed(source: Source, request: Request, fixed: int, averages) -> np.ndarray:
    """Products without a leg on the open slot: another label is fixed, and the open one is what is left."""
    total = np.zeros((request.dual.shape[0], source.K.shape[0]))
    count = request.dual.shape[1]
    for row, column, legs in products(source, request.shape):
        present = sorted({name for _, name in legs})
        if request.open_label in present:
            continue
        label = present[-1]
        factors = [(row, "ab"), (column, "cd"), _average(averages, legs, label)]
        factors += [(source.Theta, tie) for tie in request.shape.ties]
        operands = [
            _at(array, labels, label, fixed, count, whole=request.open_label) for array, labels in factors
        ]
        operands.append(_at(request.dual, "k" + request.other_labels, label, fixed, count, whole="k"))
        subscripts = ",".join(labels for _, labels in operands) + f"->k{request.open_label}"
        total += np.einsum(subscripts, *(array for array, _ in operands), optimize="greedy")
    return total


def _average(averages, legs: Labelled, label: str) -> tuple[np.ndarray, str]:
    """The average with `label` fixed in the last of its slots, and the labels of the other slots."""
    slot = max(index for index, (_, name) in enumerate(legs) if name == label)
    rest = "".join(name for index, (_, name) in enumerate(legs) if index != slot)
    return averages[family_of(legs), slot].value, rest


def _at(
    array: np.ndarray, labels: str, label: str, fixed: int, count: int, whole: str = ""
) -> tuple[np.ndarray, str]:
    """Repeated labels on their diagonal, `label` at its fixed value, others cut to the dual's samples."""
    distinct = "".join(dict.fromkeys(labels))
    if distinct != labels:
        array = np.einsum(f"{labels}->{distinct}", array)
    index = tuple(
        fixed if name == label else slice(None) if name in whole else slice(count) for name in distinct
    )
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
    """What a covariance subtracts, (k, N)."""
    shape, count = request.shape, request.dual.shape[1]
    if not shape.centred:
        return np.zeros((request.dual.shape[0], source.K.shape[0]))
    pairs = [(mean_of_feature(source, shape.row), "ab"), (mean_of_feature(source, shape.column), "cd")]
    cut = [_at(array, labels, "", 0, count, whole=request.open_label) for array, labels in pairs]
    subscripts = f"{cut[0][1]},{cut[1][1]},k{request.other_labels}->k{request.open_label}"
    return np.einsum(subscripts, cut[0][0], cut[1][0], request.dual, optimize="greedy")
