r"""F = f(Theta~ + a) applied to vectors: a Cholesky factor at the end of training, else the eigenbasis.

The training NTK is overwritten by its factor or its eigenvectors, so that a fit keeps two matrices of the
size of the data set: this one and the kernel K.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import eigsh

from finitewidth.network.algorithm import Algorithm, GradientDescent, Schedule
from finitewidth.training.infinite.conditioning import largest_condition
from finitewidth.training.infinite.learned import check_learning_rate, is_finished, learned

# norm, Cholesky factorization and condition number of a matrix in place
_dlange, _dpotrf, _dpocon = scipy.linalg.get_lapack_funcs(("lange", "potrf", "pocon"), dtype=np.float64)


class Singular(Exception):
    """The training kernel cannot be inverted; the caller knows the data and says why."""

    def __init__(self, condition: float):
        self.condition = condition


@dataclass(frozen=True, eq=False)
class Inverse:
    """(Theta + a)^-1 by its Cholesky factor."""

    factor: np.ndarray  # lower triangle
    condition: float  # in the 1-norm

    def apply(self, B: np.ndarray) -> np.ndarray:
        """F B for B (N, k)."""
        return scipy.linalg.cho_solve((self.factor, True), B, check_finite=False)

    apply_transposed = apply


@dataclass(frozen=True, eq=False)
class OfModes:
    """f(Theta) in the eigenbasis of Theta."""

    vectors: np.ndarray
    f: np.ndarray
    condition: float

    def apply(self, B: np.ndarray) -> np.ndarray:
        """F B for B (N, k)."""
        return self.vectors @ (self.f[:, None] * (self.vectors.T @ B))

    apply_transposed = apply


@dataclass(frozen=True, eq=False)
class Dense:
    """F as a matrix, which need not be symmetric."""

    F: np.ndarray
    condition: float

    def apply(self, B: np.ndarray) -> np.ndarray:
        """F B for B (N, k)."""
        return self.F @ B

    def apply_transposed(self, B: np.ndarray) -> np.ndarray:
        """F^T B for B (N, k)."""
        return self.F.T @ B


# what training does with the residual at initialization: outputs move by -Theta_{dA} F (z - y)
Response = Inverse | OfModes | Dense


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


def response(Theta: np.ndarray, algorithm: Algorithm, *, ridge: float = 0.0, cutoff: float = 0.0) -> Response:
    """F for a training NTK, which is overwritten; raises `Singular` where an inverse does not exist."""
    if isinstance(algorithm, Schedule):
        return _scheduled(Theta, algorithm, ridge)
    if is_finished(algorithm) and cutoff == 0:
        _check_largest(Theta, algorithm, ridge)
        return inverse(Theta, ridge)
    basis = eigenbasis(Theta)
    check_learning_rate(algorithm, basis.largest, ridge)
    f = mode_response(basis, algorithm, ridge=ridge, cutoff=cutoff)
    return OfModes(basis.vectors, f, condition_of(basis, ridge))


def mode_response(
    basis: Eigenbasis, algorithm: Algorithm, *, ridge: float = 0.0, cutoff: float = 0.0
) -> np.ndarray:
    """f of every eigenvalue; those below `cutoff` times the largest are not learned at all."""
    if (
        is_finished(algorithm)
        and cutoff == 0
        and not condition_of(basis, ridge) <= largest_condition(basis.values.size)
    ):
        raise Singular(condition_of(basis, ridge))
    kept = basis.values > cutoff * basis.largest if cutoff else np.ones(basis.values.shape, dtype=bool)
    f = np.zeros_like(basis.values)
    f[kept] = learned(algorithm, basis.values[kept] + ridge)
    return f


def condition_of(basis: Eigenbasis, ridge: float) -> float:
    smallest, largest = basis.values[0] + ridge, basis.largest + ridge
    return float(largest / smallest) if smallest > 0 else np.inf


def inverse(Theta: np.ndarray, ridge: float = 0.0) -> Inverse:
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
    return Inverse(factor, condition)


def _exact_condition(broken: np.ndarray, diagonal: np.ndarray, ridge: float) -> float:
    """Of a matrix whose factorization failed; the triangle above the diagonal is still untouched."""
    whole = np.triu(broken, 1)
    whole += whole.T
    whole.flat[:: whole.shape[0] + 1] = diagonal + ridge
    values = np.abs(scipy.linalg.eigvalsh(whole, overwrite_a=True, check_finite=False))
    smallest, largest = values.min(), values.max()
    return float(largest / smallest) if smallest > 0 else np.inf


def largest_eigenvalue(Theta: np.ndarray) -> float:
    """By Lanczos iteration, from the vector of ones so that it is the same every time."""
    size = Theta.shape[0]
    if size < 64:
        return float(scipy.linalg.eigvalsh(Theta, check_finite=False)[-1])
    found = eigsh(Theta, k=1, which="LA", v0=np.ones(size), return_eigenvectors=False)
    return float(found[0])


def _check_largest(Theta: np.ndarray, algorithm: Algorithm, ridge: float) -> None:
    if not isinstance(algorithm, GradientDescent):
        return
    bound = max(float(np.abs(row).sum()) for row in Theta)  # no eigenvalue is larger
    if algorithm.learning_rate * (bound + ridge) >= 2:
        check_learning_rate(algorithm, largest_eigenvalue(Theta), ridge)


def _scheduled(Theta: np.ndarray, schedule: Schedule, ridge: float) -> Response:
    """F after all updates: F += M (1 - (Theta + a) F), starting from zero."""
    size = Theta.shape[0]
    Theta.flat[:: size + 1] += ridge
    F = np.zeros_like(Theta)
    for step, update in enumerate(schedule.updates):
        if update.ndim and update.shape[0] != size:
            raise ValueError(
                f"update {step} of the schedule is made for {update.shape[0]} training samples, "
                f"but X_train has {size}."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            remaining = np.eye(size) - Theta @ F
            F += update @ remaining if update.ndim == 2 else np.atleast_1d(update)[:, None] * remaining
        if not np.isfinite(F).all():
            raise ValueError(f"the schedule diverges at step {step}; lower its learning rates.")
    return Dense(F, condition_of(eigenbasis(Theta), 0.0))
