r"""Training NTKs that memory cannot hold: a kernel matrix on disk, and its inverse by conjugate gradients.

The system is preconditioned by the Nystrom approximation from some landmarks (Frangella, Tropp and Udell,
2023): with eigenvectors U and eigenvalues $\Lambda$ of the approximation,

$$P^{-1} = U\, \frac{\lambda_r + \mu}{\Lambda + \mu}\, U^T + 1 - U U^T.$$

Conjugate gradients are written out here because all right-hand sides must share one product with the matrix,
which is read from disk each time; the library routine takes one at a time.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.linalg

from finitewidth.core.checkpoint import open_group
from finitewidth.core.display.user_warnings import warn
from finitewidth.theory.pairs.panels import NAME, Panels

LANDMARKS = 1000
MOST_ITERATIONS = 2000


class AccuracyWarning(UserWarning):
    """An iterative solution is less accurate than was asked for.

    ```python
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", fw.warnings.AccuracyWarning)  # stop at it
        fw.fit(net, X, Y).mean(X_test)
    ```
    """


class StoredMatrix:
    """A symmetric matrix in panels on disk; `@` reads all of them once."""

    __array_ufunc__ = None  # NumPy leaves products with it to this class

    def __init__(self, path: Path, name: str, panels: Panels):
        self.path, self.name, self.panels = Path(path), name, panels
        self.shape = (panels.rows, panels.rows)

    def _parts(self):
        array = open_group(self.path)[f"{NAME}/{self.name}"]
        for task in range(len(self.panels.corners)):
            rows, columns = self.panels.part(task)
            block = np.asarray(array[task])  # type: ignore[index]
            yield rows, columns, block[: rows.stop - rows.start, : columns.stop - columns.start]

    def __matmul__(self, B: np.ndarray) -> np.ndarray:
        result = np.zeros((self.shape[0], *B.shape[1:]))
        for rows, columns, block in self._parts():
            result[rows] += block @ B[columns]
            if rows != columns:
                result[columns] += block.T @ B[rows]
        return result

    def __rmatmul__(self, B: np.ndarray) -> np.ndarray:
        return (self @ B.T).T

    def largest_row_sum(self) -> float:
        """Of absolute values: a bound on the largest eigenvalue."""
        sums = np.zeros(self.shape[0])
        for rows, columns, block in self._parts():
            sums[rows] += np.abs(block).sum(axis=1)
            if rows != columns:
                sums[columns] += np.abs(block).sum(axis=0)
        return float(sums.max())

    def columns(self, chosen: np.ndarray) -> np.ndarray:
        """Some columns of the matrix (N, k), in one pass."""
        result = np.empty((self.shape[0], chosen.size))
        for rows, columns, block in self._parts():
            for first, second, part in ((rows, columns, block), (columns, rows, block.T)):
                inside = (chosen >= second.start) & (chosen < second.stop)
                result[first, inside] = part[:, chosen[inside] - second.start]
        return result


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """The inverse of a low-rank approximation plus a number."""

    vectors: np.ndarray
    factors: np.ndarray  # (lambda_r + mu) / (Lambda + mu) - 1

    @classmethod
    def nystrom(cls, matrix: StoredMatrix, ridge: float, landmarks: int) -> "Preconditioner":
        """From columns that are spread evenly over the data set."""
        chosen = np.unique(np.linspace(0, matrix.shape[0] - 1, min(landmarks, matrix.shape[0])).astype(int))
        C = matrix.columns(chosen)
        W = C[chosen]
        shift = np.finfo(float).eps * np.trace(W)
        lower = scipy.linalg.cholesky(W + shift * np.eye(chosen.size), lower=True, check_finite=False)
        half = scipy.linalg.solve_triangular(lower, C.T, lower=True, check_finite=False).T
        vectors, singular, _ = scipy.linalg.svd(half, full_matrices=False, check_finite=False)
        values = np.maximum(singular**2 - shift, 0.0) + ridge
        kept = values > 1e-15 * values[0]
        return cls(vectors[:, kept], values[kept][-1] / values[kept] - 1)

    def apply(self, B: np.ndarray) -> np.ndarray:
        return B + self.vectors @ (self.factors[:, None] * (self.vectors.T @ B))


@dataclass(frozen=True, eq=False)
class IterativeInverse:
    """F = (Theta + a)^-1 by preconditioned conjugate gradients, all right-hand sides at once."""

    matrix: StoredMatrix
    ridge: float
    accuracy: float  # asked for: the residual over the right-hand side
    preconditioner: Preconditioner = field(repr=False)
    largest: float  # a bound on the largest eigenvalue, with the ridge
    reached: list[float] = field(default_factory=list)  # the accuracy of every solution so far

    @classmethod
    def of(cls, matrix: StoredMatrix, ridge: float, accuracy: float) -> "IterativeInverse":
        """With a preconditioner from as many landmarks as memory easily holds."""
        preconditioner = Preconditioner.nystrom(matrix, ridge, LANDMARKS)
        return cls(matrix, ridge, accuracy, preconditioner, matrix.largest_row_sum() + ridge)

    @property
    def condition(self) -> float:
        """A bound on the condition number; infinite without a ridge."""
        return self.largest / self.ridge if self.ridge else np.inf

    def apply(self, B: np.ndarray) -> np.ndarray:
        """F B for B (N, k), to the accuracy that was asked for, or a warning with the one reached."""
        solution, reached = _conjugate_gradients(self, B)
        self.reached.append(reached)
        if reached > self.accuracy:
            warn(
                f"conjugate gradients reached a relative residual of {reached:.1e}, not accuracy="
                f"{self.accuracy:g}, in {MOST_ITERATIONS} iterations; add a ridge.",
                AccuracyWarning,
            )
        return solution

    apply_transposed = apply

    def product(self, B: np.ndarray) -> np.ndarray:
        """(Theta + a) B."""
        return self.matrix @ B + self.ridge * B


def _conjugate_gradients(inverse: IterativeInverse, B: np.ndarray) -> tuple[np.ndarray, float]:
    """The solution and its largest relative residual, which is computed anew at the end."""
    size = np.linalg.norm(B, axis=0)
    size[size == 0] = 1.0
    x, r = np.zeros_like(B), B.copy()
    z = inverse.preconditioner.apply(r)
    p, rz = z.copy(), np.einsum("ij,ij->j", r, z)
    for _ in range(MOST_ITERATIONS):
        if (np.linalg.norm(r, axis=0) <= 0.5 * inverse.accuracy * size).all():
            break
        q = inverse.product(p)
        curvature = np.einsum("ij,ij->j", p, q)
        step = np.divide(rz, curvature, out=np.zeros_like(rz), where=curvature > 0)
        x += step * p
        r -= step * q
        z = inverse.preconditioner.apply(r)
        before, rz = rz, np.einsum("ij,ij->j", r, z)
        p = z + np.divide(rz, before, out=np.zeros_like(rz), where=before > 0) * p
    return x, float((np.linalg.norm(B - inverse.product(x), axis=0) / size).max())
