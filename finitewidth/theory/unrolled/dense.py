"""Unrolled tensors from four-leg averages: dense, or streamed one leg at a time and contracted."""

from collections.abc import Sequence

import numpy as np

from finitewidth.gaussian.four_legs.averages import four_legs, four_legs_with_fixed_leg
from finitewidth.theory.averages import FourLegs, Product
from finitewidth.theory.averages import source as source_block
from finitewidth.theory.sources import Source
from finitewidth.theory.tensors import Shape


def dense(sources: Sequence[Source], shape: Shape, count: int, tolerance: float) -> np.ndarray:
    """The tensor with its slots in printed order."""
    total = np.zeros((count,) * 4)
    for source in sources:
        families = tuple({product.family for product in source.products(shape)})
        averages = FourLegs.of(four_legs(source.activation, source.K, families, tolerance=tolerance))
        block = source_block(shape, source.features, source.moments, source.Theta, averages.values)
        total += source.weight * block
    return np.einsum(f"abcd->{shape.printed}", total)


def averages_with_fixed_leg(source: Source, fixed: int, families, tolerance: float):
    """Four-leg averages of a source layer with one sample fixed in each of the slots in turn."""
    return four_legs_with_fixed_leg(source.activation, source.K, fixed, families, tolerance=tolerance)


Requests = dict[str, tuple[Shape, dict[str, np.ndarray]]]  # tensor: its shape and a vector per label


def streamed(sources: Sequence[Source], requests: Requests, count: int, tolerance: float) -> dict[str, float]:
    """Contractions with one vector per label; at most a few arrays of size N^3 are held."""
    totals = dict.fromkeys(requests, 0.0)
    for source in sources:
        of_tensor = {name: list(source.products(shape)) for name, (shape, _) in requests.items()}
        families = tuple({product.family for listed in of_tensor.values() for product in listed})
        for fixed in range(count):
            averages = averages_with_fixed_leg(source, fixed, families, tolerance)
            for name, (shape, vectors) in requests.items():
                slices = (
                    _slice_sum(source, shape, vectors, product, fixed, averages)
                    for product in of_tensor[name]
                )
                totals[name] += source.weight * sum(slices)
        for name, (shape, vectors) in requests.items():
            totals[name] -= source.weight * _product_of_means(source, shape, vectors)
    return totals


def _product_of_means(source: Source, shape: Shape, vectors: dict[str, np.ndarray]) -> float:
    """What a covariance subtracts."""
    if not shape.centred:
        return 0.0
    rows = vectors["a"] @ source.mean(shape.row) @ vectors["b"]
    columns = vectors["c"] @ source.mean(shape.column) @ vectors["d"]
    return float(rows * columns)


def _slice_sum(source: Source, shape: Shape, vectors, product: Product, fixed: int, averages) -> float:
    """One product of terms with the last of its labels fixed: all labels that it lacks are summed first."""
    legs = product.legs
    last = max(label for _, label in legs)
    rows = product.row * np.multiply.outer(vectors["a"], vectors["b"])
    columns = product.column * np.multiply.outer(vectors["c"], vectors["d"])
    # labels without a leg carry no tie either, so their sums are taken here
    operands: list = [rows, "ab", columns, "cd"]
    for first, second in shape.ties:
        operands += [source.Theta, first + second]
    slot = max(index for index, (_, label) in enumerate(legs) if label == last)
    values = averages[product.family, slot].value
    labels = [label for index, (_, label) in enumerate(legs) if index != slot]
    operands += [values, "".join(labels)]
    return _einsum_with_fixed(operands, last, fixed)


def _einsum_with_fixed(operands: list, fixed_label: str, fixed: int) -> float:
    arrays, subscripts = [], []
    for array, labels in zip(operands[::2], operands[1::2], strict=True):
        for axis in reversed([i for i, label in enumerate(labels) if label == fixed_label]):
            array = np.take(array, fixed, axis=axis)
        arrays.append(array)
        subscripts.append(labels.replace(fixed_label, ""))
    return float(np.einsum(",".join(subscripts) + "->", *arrays, optimize="greedy"))
