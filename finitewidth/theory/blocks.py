r"""Linear propagation of pair blocks: the one law that moves every 1/n tensor up a layer.

A tensor at order 1/n is a matrix between a row pair (a b) and a column pair (c d) of samples. A step is

$$X' = \text{source} + r\, R\, X\, C^T, \qquad r = n_l / n_{l-1},$$

where the maps R and C are sparse: the new pair (a b) takes from the old pairs (a a), (a b) and (b b)
only. Families of tensors differ in their features (what stands on a row or a column), in the maps
between features and in the source, and in nothing else.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Blocks = dict[tuple[str, str], np.ndarray]  # (row feature, column feature): (N, N, N, N)


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

    def of_pairs(self, matrix: np.ndarray) -> np.ndarray:
        """The map applied to a matrix of pairs (N, N)."""
        return self.of_rows(matrix[:, :, None, None])[:, :, 0, 0]


FeatureMaps = Mapping[str, Mapping[str, PairMap]]  # new feature: {old feature: map}


def propagate(blocks: Blocks, rows: FeatureMaps, columns: FeatureMaps) -> Blocks:
    """R X C^T for every block: rows first, then columns.

    Where rows and columns carry the same features, X is symmetric and one of two mirrored blocks is kept.
    """
    whole = dict(blocks)
    if rows is columns:
        whole |= {(c, r): _turned(block) for (r, c), block in blocks.items() if r != c}
    moved = _rows(whole, rows)
    turned = {
        (c, r): _turned(block) for (r, c), block in moved.items() if any(r == kept for kept, _ in blocks)
    }
    final = _rows(turned, columns)
    return {(r, c): _turned(block) for (c, r), block in final.items() if (r, c) in blocks}


def _rows(blocks: Blocks, maps: FeatureMaps) -> Blocks:
    result: Blocks = {}
    for new, sources in maps.items():
        for column in {c for r, c in blocks if r in sources}:
            parts = (m.of_rows(blocks[old, column]) for old, m in sources.items() if (old, column) in blocks)
            result[new, column] = sum(parts)  # type: ignore[assignment]
    return result


def _turned(block: np.ndarray) -> np.ndarray:
    """Rows and columns exchanged; a view."""
    return block.transpose(2, 3, 0, 1)
