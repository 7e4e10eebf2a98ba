"""Products (M o L R^T) v for every neuron of a batch, where o multiplies entry by entry.

The matrix of one neuron stays in cache: it is made, weighted and used before that of the next one.
"""

import numpy as np


def weighted(
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
    matrix, product = np.empty((2, rows, columns), moved[0].dtype)
    for neuron in range(size):
        np.matmul(lefts[neuron], rights[neuron].T, out=matrix)
        if minus is not None:
            matrix -= minus
        for M, v, result in zip(weights, moved, results, strict=True):
            np.multiply(matrix, M, out=product)
            np.matmul(product, v[neuron], out=result[neuron])
    return [result.transpose(1, 2, 0) for result in results]


def _by_neuron(array: np.ndarray, size: int) -> np.ndarray:
    if array.ndim == 2:
        return np.broadcast_to(array, (size, *array.shape))
    return np.ascontiguousarray(array.transpose(2, 0, 1))
