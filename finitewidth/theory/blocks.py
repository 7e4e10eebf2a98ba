r"""Linear propagation of pair blocks: the one law that moves every 1/n tensor up a layer.

A tensor at order 1/n is a matrix between a row pair (a b) and a column pair (c d) of samples. A step is

$$X' = \text{source} + r\, R\, X\, C^T, \qquad r = n_l / n_{l-1},$$

where the maps R and C are sparse: the new pair (a b) takes from the old pairs (a a), (a b) and (b b)
only. Families of tensors differ in their features (what stands on a row or a column), in the maps
between features and in the source, and in nothing else.
"""

import numpy as np

from finitewidth.theory.features import FeatureMaps

Blocks = dict[tuple[str, str], np.ndarray]  # (row feature, column feature): (N, N, N, N)


def propagate(blocks: Blocks, maps: FeatureMaps) -> Blocks:
    """R X C^T for the blocks of one family: rows first, then columns.

    Where rows and columns carry the same features, X is symmetric and one of two mirrored blocks is kept.
    """
    rows, columns = {r for r, _ in blocks}, {c for _, c in blocks}
    mirrored = {(c, r): _turned(block) for (r, c), block in blocks.items() if r != c and r in columns}
    moved = _rows(blocks | mirrored, {r: maps[r] for r in rows if r in maps})
    turned = {(c, r): _turned(block) for (r, c), block in moved.items()}
    final = _rows(turned, {c: maps[c] for c in columns if c in maps})
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
