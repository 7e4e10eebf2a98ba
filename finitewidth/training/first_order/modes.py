r"""Eigenmodes of the training NTK, and how a source reaches a prediction.

Arrays have training indices first, rotated to modes, and test indices behind them as they are.
"""

import numpy as np

from finitewidth.training.first_order.symbols import Symbols


def rotate_axis(array: np.ndarray, vectors: np.ndarray, axis: int) -> np.ndarray:
    """Training indices of one axis to modes."""
    rotated = np.array(np.moveaxis(array, axis, 0))
    count = vectors.shape[0]
    rotated[:count] = np.tensordot(vectors.T, rotated[:count], 1)
    return np.moveaxis(rotated, 0, axis)


def rotate(array: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Training indices of every axis to modes."""
    for axis in range(array.ndim):
        array = rotate_axis(array, vectors, axis)
    return np.ascontiguousarray(array)


def dressed(l: np.ndarray, H: np.ndarray, symbols: Symbols, kind: str, X: np.ndarray) -> np.ndarray:
    """Z X_d - sum_e H_de (Z X_e absorbed by mode e): a source on d itself, and on the training set.

    l (M,) are eigenvalues, H (I, I) is the NTK in modes; X has shape (I, modes of the symbol, anything).
    """
    count = l.size
    Z = symbols.outputs[kind]
    wide = (..., *[None] * (X.ndim - 1 - Z.ndim))
    result = Z[wide] * X
    if symbols.absorbed is None:
        inner = result[:count] / l.reshape(-1, *[1] * (X.ndim - 1))
    else:
        inner = np.stack([symbols.absorbed(e)[kind][wide] * X[e] for e in range(count)])
    return result - np.tensordot(H[:, :count], inner, 1)
