"""Unrolled tensors from four-leg averages: dense, or streamed one leg at a time and contracted."""

import itertools
from collections.abc import Iterator

import numpy as np

from finitewidth.theory.unrolled.unroll import (
    Leg,
    Shape,
    Source,
    Unrolled,
    averages_by_layer,
    averages_with_fixed_leg,
)

Labelled = tuple[tuple[int, str], ...]  # (derivative order, block label), highest orders first


def dense(unrolled: Unrolled, shape: Shape, tolerance: float) -> np.ndarray:
    """The tensor with its slots in printed order."""
    count = unrolled.count
    total = np.zeros((count,) * 4)
    for source in unrolled.sources:
        families = {family_of(legs) for _, _, legs in products(source, shape)}
        averages = averages_by_layer(unrolled, source, tuple(families), tolerance)
        block = np.zeros_like(total)
        for row, column, legs in products(source, shape):
            labels = "".join(label for _, label in legs)
            present = "".join(sorted(set(labels)))
            average = np.einsum(f"{labels}->{present}", averages[family_of(legs)].value)
            average = average.reshape([count if label in present else 1 for label in "abcd"])
            block += row[:, :, None, None] * column[None, None] * average
        if shape.centred:
            block -= np.multiply.outer(
                mean_of_feature(source, shape.row), mean_of_feature(source, shape.column)
            )
        for first, second in shape.ties:
            block *= _tie(source.Theta, first, second)
        total += source.weight * block
    return np.einsum(f"abcd->{shape.printed}", total)


Requests = dict[str, tuple[Shape, dict[str, np.ndarray]]]  # tensor: its shape and a vector per label


def streamed(unrolled: Unrolled, requests: Requests, tolerance: float) -> dict[str, float]:
    """Contractions with one vector per label; at most a few arrays of size N^3 are held."""
    totals = dict.fromkeys(requests, 0.0)
    for source in unrolled.sources:
        of_tensor = {name: list(products(source, shape)) for name, (shape, _) in requests.items()}
        families = tuple({family_of(legs) for listed in of_tensor.values() for _, _, legs in listed})
        for fixed in range(unrolled.count):
            averages = averages_with_fixed_leg(unrolled, source, fixed, families, tolerance)
            for name, (shape, vectors) in requests.items():
                slices = (
                    _slice_sum(source, shape, vectors, row, column, legs, fixed, averages)
                    for row, column, legs in of_tensor[name]
                )
                totals[name] += source.weight * sum(slices)
        for name, (shape, vectors) in requests.items():
            totals[name] -= source.weight * _product_of_means(source, shape, vectors)
    return totals


def _product_of_means(source: Source, shape: Shape, vectors: dict[str, np.ndarray]) -> float:
    """What a covariance subtracts."""
    if not shape.centred:
        return 0.0
    rows = vectors["a"] @ mean_of_feature(source, shape.row) @ vectors["b"]
    columns = vectors["c"] @ mean_of_feature(source, shape.column) @ vectors["d"]
    return float(rows * columns)


def _slice_sum(source, shape, vectors, row, column, legs: Labelled, fixed: int, averages) -> float:
    """One product of terms with the last of its labels fixed: all labels that it lacks are summed first."""
    present = sorted({label for _, label in legs})
    last = present[-1]
    rows = row * np.multiply.outer(vectors["a"], vectors["b"])
    columns = column * np.multiply.outer(vectors["c"], vectors["d"])
    # labels without a leg carry no tie either, so their sums are taken here
    operands: list = [rows, "ab", columns, "cd"]
    for first, second in shape.ties:
        operands += [source.Theta, first + second]
    slot = max(index for index, (_, label) in enumerate(legs) if label == last)
    values = averages[family_of(legs), slot].value
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


def products(source: Source, shape: Shape) -> Iterator[tuple[np.ndarray, np.ndarray, Labelled]]:
    """Every product of a row term and a column term, with its legs sorted by derivative order."""
    for (row, row_legs), (column, column_legs) in itertools.product(
        source.feature(shape.row), source.feature(shape.column)
    ):
        legs = [*_labelled(row_legs, "ab"), *_labelled(column_legs, "cd")]
        yield row, column, tuple(sorted(legs, key=lambda leg: -leg[0]))


def _labelled(legs: tuple[Leg, Leg], labels: str) -> list[tuple[int, str]]:
    return [(order, labels[which]) for which, order in legs]


def family_of(legs: Labelled) -> tuple[int, int, int, int]:
    first, second, third, fourth = (order for order, _ in legs)
    return first, second, third, fourth


def _tie(Theta: np.ndarray, first: str, second: str) -> np.ndarray:
    """Theta between two of the labels a b c d, shaped to multiply a block."""
    axes = sorted(["abcd".index(first), "abcd".index(second)])
    shape = [1, 1, 1, 1]
    for axis in axes:
        shape[axis] = Theta.shape[0]
    return Theta.reshape(shape)  # Theta is symmetric, so the order of the labels does not matter


def mean_of_feature(source: Source, feature: str) -> np.ndarray:
    """<feature> over pairs (N, N), from two-leg averages kept with the source."""
    total = np.zeros_like(source.K)
    for matrix, legs in source.feature(feature):
        (i, a), (j, b) = legs
        average = source.pairs[f"<{a}{b}>"]
        value = (
            average
            if (i, j) == (0, 1)
            else np.diag(average)[:, None]
            if i == 0
            else np.diag(average)[None, :]
        )
        total = total + matrix * value
    return total
