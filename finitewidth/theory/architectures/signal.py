"""What the layers so far have made of a data set, through order 1/n, on pairs of sites."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import sparse

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.activation import Activation
from finitewidth.theory.features import FeatureMaps
from finitewidth.theory.recursion import Blocks, State, exchanged, moved_rows

PairMatrix = sparse.csr_array  # (new pairs of sites, old pairs of sites)


class Normed(NamedTuple):
    """What a norm right in front has normalized."""

    signal: "Signal"
    epsilon: float | None
    mean: float  # the share of K that a subtracted mean takes, with 1/n stripped


@dataclass(frozen=True)
class Signal:
    """Statistics of the values between two layers; sites are ordered by sample, then by position.

    As in dense networks 1/n is stripped from corrections and blocks, here with n = `stripped`, the number of
    channels in front of the last weights. `crosses` are blocks between the pairs here (rows) and those where
    the skips start that are open here (columns).
    """

    state: State
    shape: Shape  # of one sample
    stripped: int
    is_data: bool = False
    is_centred: bool = False  # whether a norm has subtracted the mean over channels
    gain: float = 0.0  # learning rates of norms in front, whose tangents live on single channels
    offset: float = 0.0
    activation: Activation | None = None  # that waits for the next weights
    mixing: PairMatrix | None = None  # of positions behind the activation, which waits for the next weights
    crosses: tuple[Blocks, ...] = ()
    normed: Normed | None = None

    @property
    def channels(self) -> int:
        return self.shape[-1]

    @property
    def share(self) -> float:
        """What one channel among those of this layer counts, with 1/n stripped."""
        return self.stripped / self.channels

    @property
    def waits(self) -> bool:
        """Whether something stands between the last weights or norm and here."""
        return self.activation is not None or self.mixing is not None

    def with_own_noise(self) -> Blocks:
        """The blocks of the Gram matrix of this layer's channels, whose number is finite."""
        blocks = dict(self.state.blocks)
        for key, noise in bare_pairs(self.state).items():
            if key in blocks:
                blocks[key] = blocks[key] + self.share * noise
        return blocks

    def replaced(self, **changes) -> "Signal":
        return replace(self, **changes)

    def crosses_moved(self, maps: tuple[FeatureMaps, ...]) -> tuple[Blocks, ...]:
        """The rows of the crosses moved by the maps of all families."""
        return tuple(
            {key: block for family in maps for key, block in moved_rows(cross, family).items()}
            for cross in self.crosses
        )


def bare_pairs(state: State) -> Blocks:
    """Covariances of pairs of one channel: of z z, of a tangent and z, and of two tangents."""
    K, Theta = state.K, state.Theta
    square = np.multiply.outer(K, K)
    return {
        ("v", "v"): square.transpose(0, 2, 1, 3) + square.transpose(0, 2, 3, 1),
        ("f", "f"): np.multiply.outer(Theta, K).transpose(0, 2, 1, 3),
        ("b", "b"): np.multiply.outer(Theta, Theta).transpose(0, 2, 1, 3),
    }


def with_both_columns(blocks: Blocks) -> Blocks:
    """The blocks with v x beside x v, so that all columns stand beside every row."""
    extra = {(c, r): exchanged(block) for (r, c), block in blocks.items() if r != c}
    return {**blocks, **extra}


def mixed(state: State, matrix: PairMatrix) -> State:
    """The statistics behind a linear map of positions, the same for all channels."""
    return State(
        of_pairs(matrix, state.K),
        of_pairs(matrix, state.Theta),
        None if state.G1 is None else of_pairs(matrix, state.G1),
        None if state.H1 is None else of_pairs(matrix, state.H1),
        mapped(state.blocks, lambda block: of_columns(matrix, of_rows(matrix, block))),
    )


def crosses_mixed(crosses: tuple[Blocks, ...], matrix: PairMatrix) -> tuple[Blocks, ...]:
    """The rows of crosses behind a linear map of positions."""
    return tuple(mapped(cross, lambda block: of_rows(matrix, block)) for cross in crosses)


def mapped(blocks: Mapping, function: Callable[[np.ndarray], np.ndarray]) -> Blocks:
    """A function of each block."""
    return {key: function(block) for key, block in blocks.items()}


def of_pairs(matrix: PairMatrix, values: np.ndarray) -> np.ndarray:
    """The matrix applied to a matrix of pairs."""
    side = _side(matrix)
    return (matrix @ values.ravel()).reshape(side, side)


def of_rows(matrix: PairMatrix, block: np.ndarray) -> np.ndarray:
    """The matrix applied to the row pairs of a block."""
    side, columns = _side(matrix), block.shape[2:]
    return (matrix @ block.reshape(len(block) ** 2, -1)).reshape(side, side, *columns)


def of_columns(matrix: PairMatrix, block: np.ndarray) -> np.ndarray:
    """The matrix applied to the column pairs of a block."""
    return np.ascontiguousarray(exchanged(of_rows(matrix, np.ascontiguousarray(exchanged(block)))))


def _side(matrix: PairMatrix) -> int:
    """The number of sites behind a matrix."""
    return round((matrix.indptr.size - 1) ** 0.5)
