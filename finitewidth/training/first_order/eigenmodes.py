r"""Eigenmodes of the training NTK, and how a source reaches a prediction.

Arrays have training indices first, rotated to modes, and test indices behind them as they are.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from finitewidth.network.algorithms.symbols import Symbols


@dataclass(frozen=True)
class Modes:
    """Matrices at initialization with training samples first and rotated to modes of the training NTK."""

    l: np.ndarray  # eigenvalues of the training NTK, (N_A,)
    vectors: np.ndarray  # of samples and modes, (N_A, N_A)
    H: np.ndarray  # mean NTK Theta + H1/n, (N, N)
    K: np.ndarray  # kernel at infinite width, (N, N)
    G: np.ndarray  # mean kernel K + G1/n, (N, N)
    y: np.ndarray  # targets, (n_L, N_A)

    @classmethod
    def of(cls, K, G, H, Y) -> "Modes":
        """From matrices in samples, and targets (N_A, n_L)."""
        count = Y.shape[0]
        l, vectors = np.linalg.eigh(H[:count, :count])
        in_modes = rotate(H, vectors)
        in_modes[:count, :count] = np.diag(l)
        return cls(l, vectors, in_modes, rotate(K, vectors), rotate(G, vectors), Y.T @ vectors)

    def back(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """From modes to samples on one axis."""
        return rotate_axis(rows, self.vectors.T, axis)

    @property
    def count(self) -> int:
        """N_A."""
        return self.l.size

    @property
    def outputs(self) -> int:
        """n_L."""
        return self.y.shape[0]

    @property
    def training_kernel(self) -> np.ndarray:
        """K between training modes."""
        return self.K[: self.count, : self.count]

    @property
    def response(self) -> np.ndarray:
        """Theta_dA / Theta_AA, by which samples follow the modes, (N, N_A); zero for modes at rest."""
        moved = self.l > 1e-12 * self.l[-1]
        inverse = np.divide(1.0, self.l, out=np.zeros_like(self.l), where=moved)
        return self.back(self.H[:, : self.count] * inverse)

    @property
    def summed_kernel(self) -> np.ndarray:
        """The residuals eps_a eps_b summed over outputs, on average: Y_ab + n_L K_ab."""
        return self.y.T @ self.y + self.outputs * self.training_kernel


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


def with_free_symbols(symbols: Symbols, l: np.ndarray) -> Symbols:
    """The same with f and its divided difference among the symbols, as "f" (a) and "ff" (a b).

    They are the response of the free solution to one and two fluctuations of the NTK, with the sign for which
    they are dressed like all others: at the end of training they are 1/l_a and 1/(l_a l_b).
    """
    if symbols.absorbed is None:  # not from the steps of an algorithm, whose sums lose digits of small l
        free = {"f": 1 / l, "ff": 1 / np.multiply.outer(l, l)}
        return replace(symbols, outputs={**symbols.outputs, **free})
    free = {"f": symbols.f, "ff": -symbols.f_2}
    absorbed = functools.partial(_absorbed_with_free, symbols)
    return replace(symbols, outputs={**symbols.outputs, **free}, absorbed=absorbed)


def _absorbed_with_free(symbols: Symbols, e: int) -> dict[str, np.ndarray]:
    assert symbols.absorbed is not None
    return {**symbols.absorbed(e), "f": -symbols.f_2[e], "ff": symbols.f_3[e]}


SourceAt = Callable[[Mapping[str, np.ndarray], int | slice], np.ndarray]


def dressed(l: np.ndarray, H: np.ndarray, symbols: Symbols, source: SourceAt) -> np.ndarray:
    """Z X_d - sum_e H_de (Z X_e absorbed by mode e): a source on d itself, and on the training set.

    l (M,) are eigenvalues, H (I, I) is the NTK in modes; source(Z, d) is Z X at one d, or at all of them
    with d as its first axis.
    """
    on_sample = source(symbols.outputs, slice(None))
    count = l.size
    if symbols.absorbed is None:
        inner = on_sample[:count] / l.reshape(-1, *[1] * (on_sample.ndim - 1))
    else:
        inner = np.empty((count, *on_sample.shape[1:]))
        for e in range(count):
            inner[e] = source(symbols.absorbed(e), e)
    on_sample -= np.tensordot(H[:, :count], inner, 1)
    return on_sample


def single_source(kind: str, X: np.ndarray) -> SourceAt:
    """The source Z X of one array with axes d, the modes of the symbol, and any others."""

    def source(symbols: Mapping[str, np.ndarray], d: int | slice) -> np.ndarray:
        Z = symbols[kind]
        return Z[(..., *[None] * (X.ndim - 1 - Z.ndim))] * X[d]

    return source
