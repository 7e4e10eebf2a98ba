r"""Derivatives of $\langle\sigma\sigma\rangle$ and $\langle\sigma'\sigma'\rangle$ by the kernel, with kinks.

The Gaussian is differentiated and not sigma: each derivative is a polynomial in z times the Gaussian. For
two different samples

$$\partial_{K_{12}} \langle f \rangle = \langle (y_1 y_2 - M_{12}) f \rangle, \qquad y = M z,$$

with M the inverse of the 2 x 2 kernel of the pair. Where the two legs are one sample, the average
depends on K_11 alone. Its whole derivative is stored once, because the separate pieces diverge and
only their sum is finite.
"""

import math
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.tower import Tower
from finitewidth.gaussian.two_legs import quadrature
from finitewidth.network.layers.activation import Activation

_NEARLY_PARALLEL = 1e-9  # smallest det / (K_11 K_22) at which derivatives are still trusted


class KernelDerivatives(NamedTuple):
    """Derivatives (N, N) of an average with respect to the kernel of its two legs; 2 means twice."""

    first: np.ndarray  # K_11
    both: np.ndarray  # K_12
    second: np.ndarray  # K_22
    first2: np.ndarray  # K_11 twice
    first_both: np.ndarray  # K_11 and K_12
    both2: np.ndarray  # K_12 twice; also four times K_11 and K_22


def kernel_derivatives(
    activation: Activation, K: np.ndarray
) -> tuple[KernelDerivatives, KernelDerivatives, float]:
    """Derivatives of <sigma sigma> and of <sigma' sigma'>, and their relative error."""
    _refuse_parallel(activation, K)
    if activation.slopes is not None:
        a_plus, a_minus = activation.slopes
        return (*_scale_invariant((a_plus - a_minus) / 2, K), 1e-15)
    return _by_quadrature(activation, K)


def _refuse_parallel(activation: Activation, K: np.ndarray) -> None:
    variances = np.diag(K)
    product = np.outer(variances, variances)
    relative = np.where(product == 0, 0.0, 1 - K**2 / np.where(product == 0, 1.0, product))
    np.fill_diagonal(relative, 1.0)
    if (variances == 0).any() or relative.min(initial=1.0) < _NEARLY_PARALLEL:
        i, j = np.unravel_index(np.argmin(relative), relative.shape)
        raise ValueError(
            f"inputs {min(i, j)} and {max(i, j)} are parallel or zero: with the kinks of activation "
            f"{activation.name!r} G1, H1, D and A diverge there; drop one, keep tensors=('V', 'F', 'B') "
            "only, or use a smooth activation."
        )


def _scale_invariant(beta: float, K: np.ndarray) -> tuple[KernelDerivatives, KernelDerivatives]:
    """From <s s> = alpha^2 K_12 + (2 beta^2/pi)(sqrt(det) + K_12 q), q = arcsin of the correlation."""
    k_1, k_2 = np.diag(K)[:, None], np.diag(K)[None, :]
    det = k_1 * k_2 - K**2
    np.fill_diagonal(det, 1.0)  # overwritten below
    root, factor = np.sqrt(det), 2 * beta**2 / math.pi
    q_first, q_both = -K / (2 * k_1 * root), 1 / root  # derivatives of q
    zero = np.zeros_like(K)
    sigma = KernelDerivatives(
        first=factor / 2 * root / k_1,
        both=zero,  # <s' s'> itself, which the caller adds
        second=factor / 2 * root / k_2,
        first2=factor / 2 * (k_2 / (2 * root * k_1) - root / k_1**2),
        first_both=factor * q_first,
        both2=factor * q_both,
    )
    slope = KernelDerivatives(
        first=factor * q_first,
        both=factor * q_both,
        second=factor * q_first.T,
        first2=factor * (K / (2 * k_1**2 * root) + K * k_2 / (4 * k_1 * root**3)),
        first_both=-factor * k_2 / (2 * root**3) * np.ones_like(K),
        both2=factor * K / root**3,
    )
    # along the diagonal <s s> = A_2 K and <s' s'> = A_2: no second derivative and no first
    for matrix in (*sigma, *slope):
        np.fill_diagonal(matrix, 0.0)
    return sigma, slope


def _by_quadrature(
    activation: Activation, K: np.ndarray
) -> tuple[KernelDerivatives, KernelDerivatives, float]:
    size = K.shape[0]
    derivatives = np.zeros((2, 6, size, size))
    i, j = np.nonzero(~np.eye(size, dtype=bool))
    errors = [0.0]
    for start in range(0, i.size, 4):
        rows, columns = i[start : start + 4], j[start : start + 4]
        fine, coarse = _of_pairs(activation, K, rows, columns)
        derivatives[:, :, rows, columns] = fine
        scale = np.abs(fine).max(axis=(0, 2), keepdims=True) + 1e-30
        errors.append(float(quadrature.Nested(fine, coarse).error(scale).max()))
    first, first2 = _of_singles(activation, np.diag(K))
    index = np.arange(size)
    derivatives[1, 1, index, index] = first[1]  # the whole derivative, in the place of K_12
    derivatives[:, 4, index, index] = 0.0
    derivatives[:, 3, index, index] = first2 / 2  # by K_11 twice, half of it for each leg
    return KernelDerivatives(*derivatives[0]), KernelDerivatives(*derivatives[1]), max(errors)


def _of_pairs(activation: Activation, K, rows, columns) -> tuple[np.ndarray, np.ndarray]:
    """Six derivatives of <s s> and <s' s'> (2, 6, M), by two rules."""
    k_1, k_2, k_12 = K[rows, rows], K[columns, columns], K[rows, columns]
    det = k_1 * k_2 - k_12**2
    extent = quadrature.reach(activation, float(max(k_1.max(), k_2.max()))) + 1
    grid = quadrature.pair_grid(activation, quadrature.Pairs(k_1, k_2, k_12, det), extent, 193)
    m_11, m_22, m_12 = ((k / det)[:, None, None] for k in (k_2, k_1, -k_12))
    y_1, y_2 = m_11 * grid.z_1 + m_12 * grid.z_2, m_12 * grid.z_1 + m_22 * grid.z_2
    polynomials = (
        (y_1**2 - m_11) / 2,
        y_1 * y_2 - m_12,
        (y_2**2 - m_22) / 2,
        (y_1**4 - 6 * m_11 * y_1**2 + 3 * m_11**2) / 4,
        (y_1**3 * y_2 - 3 * m_11 * y_1 * y_2 - 3 * m_12 * y_1**2 + 3 * m_11 * m_12) / 2,
        (y_1 * y_2) ** 2 - m_11 * y_2**2 - m_22 * y_1**2 - 4 * m_12 * y_1 * y_2 + m_11 * m_22 + 2 * m_12**2,
    )
    tower = Tower(activation, 1)
    products = tower(grid.z_1) * tower(grid.z_2)
    both = []
    for weights in (grid.weights, grid.rare):
        sums = [[(p * f * weights).sum(axis=(1, 2)) for p in polynomials] for f in products]
        both.append(np.asarray(sums))
    return both[0], both[1]


def _of_singles(activation: Activation, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivative of <s^2> and <s'^2> with respect to the variance (2, M)."""
    sigma = np.sqrt(variances)
    extent = quadrature.reach(activation, float(variances.max())) + 1
    x, weights = quadrature.gaussian_grid(quadrature.kinks_in_units(activation, sigma), extent, 321)
    squares = Tower(activation, 1)(sigma[:, None] * x) ** 2
    first = (squares * (x**2 - 1) * weights).sum(axis=-1) / (2 * variances)
    second = (squares * (x**4 - 6 * x**2 + 3) * weights).sum(axis=-1) / (4 * variances**2)
    return first, second
