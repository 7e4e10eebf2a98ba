"""Checks that a matrix over samples can be the kernel of a layer."""

import numpy as np
from jaxtyping import Array, Float


def as_kernel(K: Float[np.ndarray, "N N"] | Float[Array, "N N"]) -> Float[np.ndarray, "N N"]:
    """K in double precision if it is a covariance matrix as far as pairs of samples show, else an error."""
    K = np.asarray(K, dtype=np.float64)
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(f"K must be a square matrix, got shape {K.shape}; pass one row for each sample.")
    if not np.isfinite(K).all():
        raise ValueError("K has an entry that is NaN or infinite; check the inputs and C_W.")
    variances = np.diag(K)
    if (variances < 0).any():
        raise ValueError(f"K has the negative variance {variances.min():.3g}; pass a covariance matrix.")
    scale = np.multiply.outer(np.sqrt(variances), np.sqrt(variances))
    if (np.abs(K) > scale * (1 + 1e-6) + 1e-300).any() or (np.abs(K - K.T) > 1e-6 * scale).any():
        raise ValueError(
            "K is no covariance matrix: it must be symmetric, with no entry above the root of the product of "
            "its two variances."
        )
    return K


def as_positive_kernel(K: Float[np.ndarray, "N N"] | Float[Array, "N N"]) -> Float[np.ndarray, "N N"]:
    """K made exactly symmetric, with the further check that no eigenvalue is negative; for few samples."""
    K = as_kernel(K)
    if not len(K):
        raise ValueError("K must be a matrix over at least one sample, got shape (0, 0).")
    K = (K + K.T) / 2
    lowest = float(np.linalg.eigvalsh(K)[0])
    if lowest < -1e-9 * max(float(np.abs(K).max()), 1e-300) * len(K):
        raise ValueError(f"K is no covariance matrix: it has the negative eigenvalue {lowest:.1e}.")
    return K
