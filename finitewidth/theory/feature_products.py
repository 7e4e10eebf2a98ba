"""Averages of products of two features: the sources of the 1/n tensors, from four-leg averages."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.average import Average
from finitewidth.gaussian.four_legs.averages import remember_averages
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.theory.features import OF_GAINS
from finitewidth.theory.layers.activation import Moments
from finitewidth.theory.layers.blocks import Recipe, Term, make_blocks
from finitewidth.theory.layers.pair_map import Coefficient, Feature, Legs
from finitewidth.theory.tensors import Shape

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
        """Arrays for a store, named by their derivative orders, such as 2110."""
        named = {"".join(map(str, family)): value for family, value in self.values.items()}
        return {**named, "error": np.asarray(self.error)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "FourLegs":
        """The averages that `to_arrays` made."""
        values = {tuple(map(int, name)): value for name, value in arrays.items() if name != "error"}
        return cls(values, float(arrays["error"]))  # type: ignore[arg-type]


def remember(most_bytes: float) -> None:
    """From now on keep the newest four-leg averages, for programs that ask about many similar networks."""
    remember_averages(most_bytes)


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


def terms(
    row: Feature,
    column: Feature,
    averages: Mapping[Family, np.ndarray],
    *,
    apart: bool = False,
    mirrored: bool = False,
) -> list[Term]:
    """The products of two features as terms of a block.

    If the block is `mirrored`, of two products that are each other's mirror image the one with the higher
    derivatives on its row is there, and half of those that are their own.
    """
    made = []
    for number, product in enumerate(products(row, column, apart=apart)):
        i, j = divmod(number, len(column))
        if mirrored and i < j:
            continue
        values = np.ascontiguousarray(averages[product.family])
        count = len(values)
        steps = dict.fromkeys("abcd", 0)  # a label on two legs moves along both
        for place, (_, label) in enumerate(product.legs):
            steps[label] += count ** (3 - place)
        factor = 0.5 if mirrored and i == j else 1.0
        rows, columns = (_matrix(one, count) for one in (factor * product.row, product.column))
        made.append(Term(values.reshape(-1), tuple(steps.values()), rows, columns))
    return made


def _matrix(coefficient: Coefficient, count: int) -> np.ndarray:
    return np.array(np.broadcast_to(coefficient, (count, count)), dtype=float)


def moment(
    row: Feature, column: Feature, averages: Mapping[Family, np.ndarray], *, apart: bool = False
) -> np.ndarray:
    """<row feature of (a b) times column feature of (c d)>, (N, N, N, N)."""
    shape = next(iter(averages.values())).shape
    total, Theta = np.empty(shape), np.ones(shape[:2])  # no ties
    make_blocks([total], [Recipe(sources=terms(row, column, averages, apart=apart))], Theta)
    return total


def mean(feature: Feature, moments: Moments) -> np.ndarray:
    """<feature> over pairs (N, N), for features of sigma sigma and sigma' sigma'."""
    averages = {(0, 0): moments.sigma.value, (1, 1): moments.slope.value}
    if moments.gains is not None:
        averages.setdefault((OF_GAINS, OF_GAINS), moments.gains.value)
    total = np.zeros_like(moments.sigma.value)
    for ((i, a), (j, b)), coefficient in feature.items():
        average = averages[a, b]
        if i == j:
            diagonal = np.diag(average)
            average = diagonal[:, None] if i == 0 else diagonal[None, :]
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
    block = np.empty((len(Theta),) * 4)
    make_blocks([block], [source_recipe(shape, features, moments, averages)], Theta)
    return block


def source_recipe(
    shape: Shape,
    features: Mapping[str, Feature],
    moments: Moments,
    averages: Mapping[Family, np.ndarray],
) -> Recipe:
    """What one layer creates of a tensor."""
    row, column = features[shape.row], features[shape.column]
    mirrored = shape.row == shape.column and len(row) > 1
    made = terms(row, column, averages, mirrored=mirrored)
    if shape.centred:
        means, half = (mean(feature, moments) for feature in (row, column)), 0.5 if mirrored else 1.0
        rows, columns = means
        made.append(Term(np.ones(1), (0, 0, 0, 0), -half * rows, columns))
    return Recipe(made, shape.ties, mirrored=mirrored)


def tied(block: np.ndarray, shape: Shape, Theta: np.ndarray) -> np.ndarray:
    """The block times the factors of Theta that tie its rows to its columns, in place."""
    if shape.ties:
        make_blocks([block], [Recipe(ties=shape.ties)], Theta, keep=True)
    return block


def tie(Theta: np.ndarray, first: str, second: str) -> np.ndarray:
    """Theta between two of the labels a b c d, shaped to multiply a block."""
    shape = [Theta.shape[0] if label in (first, second) else 1 for label in "abcd"]
    return Theta.reshape(shape)  # Theta is symmetric, so the order of the labels does not matter
