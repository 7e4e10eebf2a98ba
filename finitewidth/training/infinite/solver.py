r"""The response of infinitely wide networks to their residual, as a matrix between training samples.

At infinite width the NTK is frozen and every mode of the residual learns by itself. With $l$ an eigenvalue,

$$z_d(t) = z_d - \Theta_{dA}\, F\,(z_A - y), \qquad F = f_t(\tilde\Theta), \qquad
  f_t(l) = \frac{1 - (1 - \eta l)^t}{l}, \quad \frac{1 - e^{-l t}}{l}, \quad \frac1l$$

for t steps of gradient descent, gradient flow until time t, and the end of training (PDLT 10.35). A ridge
$a$ adds $\frac a2 |\theta - \theta(0)|^2$, in units of the learning rates, to the loss: $l$ becomes $l + a$.
F is applied through a Cholesky factor at the end of training and through the eigenbasis before. The training
NTK is overwritten by its factor or its eigenvectors: a fit keeps two matrices of the size of the data set,
this one and the kernel K.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import eigsh

from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.training.infinite.conditioning import largest_condition

# norm, Cholesky factorization and condition number of a matrix in place
_dlange, _dpotrf, _dpocon = scipy.linalg.get_lapack_funcs(("lange", "potrf", "pocon"), dtype=np.float64)


class Singular(Exception):
    """The training kernel cannot be inverted; the caller, which has the data, names the reason."""

    def __init__(self, condition: float):
        self.condition = condition


@dataclass(frozen=True, eq=False)
class InverseMatrix:
    """F = (Theta + a)^-1 by its Cholesky factor."""

    factor: np.ndarray  # lower triangle
    condition: float  # in the 1-norm

    def apply(self, B: np.ndarray) -> np.ndarray:
        """F B for B (N, k)."""
        return scipy.linalg.cho_solve((self.factor, True), B, check_finite=False)

    apply_transposed = apply


@dataclass(frozen=True, eq=False)
class ModeMatrix:
    """F = f(Theta) in the eigenbasis of Theta."""

    vectors: np.ndarray
    f: np.ndarray
    condition: float

    def apply(self, B: np.ndarray) -> np.ndarray:
        """F B for B (N, k)."""
        return self.vectors @ (self.f[:, None] * (self.vectors.T @ B))

    apply_transposed = apply


@dataclass(frozen=True, eq=False)
class FullMatrix:
    """F as it is; it need not be symmetric."""

    F: np.ndarray
    condition: float

    def apply(self, B: np.ndarray) -> np.ndarray:
        """F B for B (N, k)."""
        return self.F @ B

    def apply_transposed(self, B: np.ndarray) -> np.ndarray:
        """F^T B for B (N, k)."""
        return self.F.T @ B


ResponseMatrix = InverseMatrix | ModeMatrix | FullMatrix


class Eigenbasis(NamedTuple):
    """Eigenvalues in ascending order, none negative, and eigenvectors in columns."""

    values: np.ndarray
    vectors: np.ndarray

    @property
    def largest(self) -> float:
        return float(self.values[-1])


def eigenbasis(Theta: np.ndarray) -> Eigenbasis:
    """The eigendecomposition of a positive semidefinite matrix, which is overwritten."""
    values, vectors = scipy.linalg.eigh(Theta.T, overwrite_a=True, driver="evd", check_finite=False)
    return Eigenbasis(np.maximum(values, 0.0), vectors)


def response_matrix(
    Theta: np.ndarray,
    algorithm: AbstractAlgorithm,
    loss: AbstractLoss,
    *,
    ridge: float = 0.0,
    cutoff: float = 0.0,
) -> ResponseMatrix:
    """F for a training NTK, which is overwritten; raises `Singular` where an inverse does not exist."""
    if algorithm.mixes_modes:
        Theta.flat[:: Theta.shape[0] + 1] += ridge
        F = algorithm.response_matrix(Theta)
        return FullMatrix(F, condition_of(eigenbasis(Theta), 0.0))
    if algorithm.is_finished and cutoff == 0:
        _check_stable(Theta, algorithm, loss, ridge)
        return inverse(Theta, ridge)
    basis = eigenbasis(Theta)
    algorithm.check_stable(basis.largest + ridge, loss)
    f = mode_response(basis, algorithm, ridge=ridge, cutoff=cutoff)
    return ModeMatrix(basis.vectors, f, condition_of(basis, ridge))


def mode_response(
    basis: Eigenbasis, algorithm: AbstractAlgorithm, *, ridge: float = 0.0, cutoff: float = 0.0
) -> np.ndarray:
    """f of every eigenvalue; those below `cutoff` times the largest are not learned at all."""
    condition = condition_of(basis, ridge)
    if algorithm.is_finished and cutoff == 0 and not condition <= largest_condition(basis.values.size):
        raise Singular(condition)
    kept = basis.values > cutoff * basis.largest if cutoff else np.ones(basis.values.shape, dtype=bool)
    f = np.zeros_like(basis.values)
    f[kept] = algorithm.response(basis.values[kept] + ridge)
    return f


def condition_of(basis: Eigenbasis, ridge: float) -> float:
    """The condition number with the ridge; infinite if the smallest eigenvalue is zero."""
    smallest, largest = basis.values[0] + ridge, basis.largest + ridge
    return float(largest / smallest) if smallest > 0 else np.inf


def inverse(Theta: np.ndarray, ridge: float = 0.0) -> InverseMatrix:
    """The inverse of Theta + ridge, from a Cholesky factor in its place."""
    diagonal = np.diagonal(Theta).copy()
    Theta.flat[:: Theta.shape[0] + 1] += ridge
    norm = float(_dlange("1", Theta.T))
    factor, info = _dpotrf(Theta.T, lower=1, overwrite_a=1, clean=0)
    if info != 0:
        raise Singular(_exact_condition(factor, diagonal, ridge))
    reciprocal, _ = _dpocon(factor, norm, uplo="L")
    condition = 1 / reciprocal if reciprocal > 0 else np.inf
    if not condition <= largest_condition(Theta.shape[0]):
        raise Singular(condition)
    return InverseMatrix(factor, condition)


def _exact_condition(broken: np.ndarray, diagonal: np.ndarray, ridge: float) -> float:
    """The condition number of a matrix whose factorization failed, from the untouched upper triangle."""
    whole = np.triu(broken, 1)
    whole += whole.T
    whole.flat[:: whole.shape[0] + 1] = diagonal + ridge
    values = np.abs(scipy.linalg.eigvalsh(whole, overwrite_a=True, check_finite=False))
    smallest, largest = values.min(), values.max()
    return float(largest / smallest) if smallest > 0 else np.inf


def largest_eigenvalue(Theta: np.ndarray) -> float:
    """The largest eigenvalue, by Lanczos iteration from the vector of ones: the same number every time."""
    size = Theta.shape[0]
    if size < 64:
        return float(scipy.linalg.eigvalsh(Theta, check_finite=False)[-1])
    return float(eigsh(Theta, k=1, which="LA", v0=np.ones(size), return_eigenvectors=False)[0])


def _check_stable(Theta: np.ndarray, algorithm: AbstractAlgorithm, loss: AbstractLoss, ridge: float) -> None:
    """With a bound on the largest eigenvalue where that suffices, which is cheaper than the eigenvalue."""
    bound = max(float(np.abs(row).sum()) for row in Theta)
    try:
        algorithm.check_stable(bound + ridge, loss)
    except ValueError:
        algorithm.check_stable(largest_eigenvalue(Theta) + ridge, loss)
