"""Averages of products of two features: the sources of the 1/n tensors, from four-leg averages."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.core.cores import in_pieces
from finitewidth.gaussian.average import Average
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.theory.layers.activation import Moments
from finitewidth.theory.layers.pair_map import Coefficient, Feature, Legs
from finitewidth.theory.tensors import Shape

_AT_ONCE = 1 << 17  # entries of a block that are worth a task
Labelled = tuple[tuple[int, str], ...]  # (derivative order, label a b c d), highest orders first


@dataclass(frozen=True)
class FourLegs:
    """Four-leg averages of one layer by derivative orders."""

    values: dict[Family, np.ndarray]
    error: float  # largest absolute error

    @classmethod
    def of(cls, averages: Mapping[Family, Average]) -> "FourLegs":
        return cls(
            {family: np.asarray(average.value) for family, average in averages.items()},
            max(float(average.error) for average in averages.values()),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays that can be sent and stored, named by their derivative orders, such as 2110."""
        named = {"".join(map(str, family)): value for family, value in self.values.items()}
        return {**named, "error": np.asarray(self.error)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "FourLegs":
        """The averages that `to_arrays` made."""
        named = {_family(name): value for name, value in arrays.items() if name != "error"}
        return cls(named, float(arrays["error"]))


def _family(name: str) -> Family:
    first, second, third, fourth = map(int, name)
    return first, second, third, fourth


class Product(NamedTuple):
    """One term of the product of a row feature and a column feature."""

    row: Coefficient
    column: Coefficient
    legs: Labelled

    @property
    def family(self) -> Family:
        first, second, third, fourth = (order for order, _ in self.legs)
        return first, second, third, fourth


def products(row: Feature, column: Feature, *, apart: bool = False) -> Iterator[Product]:
    """Every product of a row term and a column term, with its legs sorted by derivative order.

    Where row and column belong to different layers, their legs are sorted `apart`, those of the row first.
    """
    for (row_legs, first), (column_legs, second) in itertools.product(row.items(), column.items()):
        rows, columns = _labelled(row_legs, "ab"), _labelled(column_legs, "cd")
        legs = _sorted(rows) + _sorted(columns) if apart else _sorted(rows + columns)
        yield Product(first, second, legs)


def _labelled(legs: Legs, labels: str) -> list[tuple[int, str]]:
    return [(order, labels[sample]) for sample, order in legs]


def _sorted(legs: list[tuple[int, str]]) -> Labelled:
    return tuple(sorted(legs, key=lambda leg: -leg[0]))


def moment(
    row: Feature, column: Feature, averages: Mapping[Family, np.ndarray], *, apart: bool = False
) -> np.ndarray:
    """<row feature of (a b) times column feature of (c d)>, (N, N, N, N)."""
    from finitewidth.core.loops import add_weighted

    shape = next(iter(averages.values())).shape
    total = np.zeros(shape)
    for product in products(row, column, apart=apart):
        values = np.ascontiguousarray(averages[product.family])
        steps = dict.fromkeys("abcd", 0)  # a label on two legs moves along both
        for place, (_, label) in enumerate(product.legs):
            steps[label] += shape[0] ** (3 - place)
        weights = [_matrix(coefficient, shape[0]) for coefficient in (product.row, product.column)]
        strides = np.array(list(steps.values()))
        on_blocks(add_weighted, total, values.reshape(-1), strides, *weights)
    return total


def _matrix(coefficient: Coefficient, count: int) -> np.ndarray:
    return np.array(np.broadcast_to(coefficient, (count, count)), dtype=float)


def on_blocks(work: Callable, total: np.ndarray, *arguments) -> None:
    """A compiled pass over all row pairs of a block."""
    rows = total.shape[0] ** 2
    in_pieces(lambda start, stop: work(total, *arguments, start, stop), rows, 1 + _AT_ONCE // rows)


def mean(feature: Feature, moments: Moments) -> np.ndarray:
    """<feature> over pairs (N, N), for features of sigma sigma and sigma' sigma'."""
    averages = {(0, 0): moments.sigma.value, (1, 1): moments.slope.value}
    total = np.zeros_like(moments.sigma.value)
    for ((i, a), (j, b)), coefficient in feature.items():
        average = averages[a, b]
        if i == j:
            alone = np.diag(average)
            average = alone[:, None] if i == 0 else alone[None, :]
        total = total + coefficient * average
    return total


def source(
    shape: Shape,
    features: Mapping[str, Feature],
    moments: Moments,
    Theta: np.ndarray,
    averages: Mapping[Family, np.ndarray],
) -> np.ndarray:
    """The block that one layer creates of a tensor, labels in the order a b c d."""
    row, column = features[shape.row], features[shape.column]
    block = moment(row, column, averages)
    if shape.centred:
        from finitewidth.core.loops import centre

        on_blocks(centre, block, mean(row, moments), mean(column, moments))
    return tied(block, shape, Theta)


def tied(block: np.ndarray, shape: Shape, Theta: np.ndarray) -> np.ndarray:
    """The block times the factors of Theta that tie its rows to its columns, in place."""
    from finitewidth.core.loops import tie_pairs

    if shape.ties:
        numbers = np.array([["abcd".index(label) for label in pair] for pair in shape.ties])
        on_blocks(tie_pairs, block, np.ascontiguousarray(Theta), numbers)
    return block


def tie(Theta: np.ndarray, first: str, second: str) -> np.ndarray:
    """Theta between two of the labels a b c d, shaped to multiply a block."""
    shape = [Theta.shape[0] if label in (first, second) else 1 for label in "abcd"]
    return Theta.reshape(shape)  # Theta is symmetric, so the order of the labels does not matter
