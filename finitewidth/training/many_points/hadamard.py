"""Products (M o L R^T) v for every neuron of a batch, where o multiplies entry by entry.

Matrices L R^T of a few neurons stay in cache: they are made, weighted and used before those of the next ones.
A few are one batch because threads wait for the interpreter between calls, and one matrix is small.
"""

import numpy as np

_CACHED = 1 << 17  # numbers in the matrices of the neurons that are treated at once


def hadamard_product(
    weights: list[np.ndarray],
    left: np.ndarray,
    right: np.ndarray,
    vectors: list[np.ndarray],
    minus: np.ndarray | None = None,
) -> list[np.ndarray]:
    """(M o (L R^T - minus)) v, (N, k, B), for each M (N, A) of `weights` with its own v (A, k, B).

    L (N, p, B) and R (A, p, B) may lack the axis of the neurons.
    """
    rows, columns = left.shape[0], right.shape[0]
    size = vectors[0].shape[2]
    lefts, rights = _by_neuron(left, size), _by_neuron(right, size)
    moved = [np.ascontiguousarray(v.transpose(2, 0, 1)) for v in vectors]
    results = [np.empty((size, rows, v.shape[2]), v.dtype) for v in moved]
    few = max(1, _CACHED // (rows * columns))
    matrices, products = np.empty((2, min(few, size), rows, columns), moved[0].dtype)
    for start in range(0, size, few):
        part = slice(start, min(start + few, size))
        matrix, product = matrices[: part.stop - start], products[: part.stop - start]
        np.matmul(lefts[part], rights[part].transpose(0, 2, 1), out=matrix)
        if minus is not None:
            matrix -= minus
        for M, v, result in zip(weights, moved, results, strict=True):
            np.multiply(matrix, M, out=product)
            np.matmul(product, v[part], out=result[part])
    return [result.transpose(1, 2, 0) for result in results]


def _by_neuron(array: np.ndarray, size: int) -> np.ndarray:
    if array.ndim == 2:
        return np.broadcast_to(array, (size, *array.shape))
    return np.ascontiguousarray(array.transpose(2, 0, 1))
