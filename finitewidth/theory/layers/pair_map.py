"""Sparse linear maps of pairs: the new pair (a b) from the old pairs (a a), (a b) and (b b)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Leg = tuple[int, int]  # (which sample of the pair, derivative order of the activation)
Legs = tuple[Leg, Leg]
Coefficient = float | np.ndarray  # a number, or (N, N) over pairs
Feature = dict[Legs, Coefficient]  # a function of one neuron and a pair: coefficients of products of two legs


class PairMap(NamedTuple):
    """The new pair (a b) from the old pairs (a a), (a b) and (b b); None is zero."""

    first: Float[np.ndarray, "N N"] | None
    both: Float[np.ndarray, "N N"] | None
    second: Float[np.ndarray, "N N"] | None = None

    def of_rows(self, block: np.ndarray) -> np.ndarray:
        """The map applied to the row pair of a block."""
        result = np.zeros_like(block) if self.both is None else self.both[:, :, None, None] * block
        if self.first is None and self.second is None:
            return result
        on_diagonal = np.ascontiguousarray(np.einsum("aacd->acd", block))
        if self.first is not None:
            result += self.first[:, :, None, None] * on_diagonal[:, None]
        if self.second is not None:
            result += self.second[:, :, None, None] * on_diagonal[None, :]
        return result

    def stacked(self) -> np.ndarray:
        """The three parts as one array (3, N, N), as `core.loops.add_moved` takes it."""
        parts = [part for part in self if part is not None]
        return np.stack([np.zeros_like(parts[0]) if part is None else part for part in self])

    def of_three(self, first: np.ndarray, both: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The map applied to values on the pairs (11), (12) and (22), (N, N) each."""
        parts = zip(self, (first, both, second), strict=True)
        return sum(part * value for part, value in parts if part is not None)  # type: ignore[return-value]

    def of_pairs(self, matrix: np.ndarray) -> np.ndarray:
        """The map applied to a matrix of pairs (N, N)."""
        return self.of_rows(matrix[:, :, None, None])[:, :, 0, 0]

    def of_feature(self, feature: Feature) -> Feature:
        """The map applied to a feature: products of two legs go over into products of two legs."""
        moved: Feature = {}
        for legs, coefficient in feature.items():
            if self.both is not None:
                add_to(moved, legs, self.both * coefficient)
            diagonal = np.diag(coefficient) if isinstance(coefficient, np.ndarray) else coefficient
            column = diagonal[:, None] if isinstance(diagonal, np.ndarray) else diagonal
            if self.first is not None:
                add_to(moved, _on(0, legs), self.first * column)
            if self.second is not None:
                add_to(moved, _on(1, legs), self.second * np.transpose(column))
        return moved

    def scaled(self, factor: Coefficient) -> "PairMap":
        """The map times a number, or times a number for each new pair."""
        return PairMap(*(None if part is None else factor * part for part in self))

    def plus(self, other: "PairMap") -> "PairMap":
        """The sum of two maps."""
        pairs = zip(self, other, strict=True)
        return PairMap(*(b if a is None else a if b is None else a + b for a, b in pairs))


def add_to(feature: Feature, legs: Legs, coefficient: Coefficient) -> None:
    """Add a coefficient to a feature, in place."""
    feature[legs] = feature[legs] + coefficient if legs in feature else coefficient


def _on(sample: int, legs: Legs) -> Legs:
    """Both legs on one sample of the pair, the higher derivative first."""
    (_, a), (_, b) = legs
    return (sample, max(a, b)), (sample, min(a, b))
