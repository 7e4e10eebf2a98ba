r"""Leakage through zero padding: the factor by which a filter shrinks a kernel in every layer.

A convolution averages the kernel of a position over the taps of its filter,
$(A K)(p) = \frac1F \sum_f K(s p + f)$. With circular padding the uniform kernel is kept. Taps that read
zeros lose a share, and deep networks keep only the mode of the largest eigenvalue rho of A. A is a product
over axes; three taps have, on H positions between zeros, $\rho = (1 + 2\cos\frac{\pi}{H+1})/3$.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from finitewidth.critical.activations.classification import Criticality
from finitewidth.gaussian.two_legs.leg_table import leg_table
from finitewidth.network.layers.windows import Axis

_ITERATIONS = 3000  # of the profile of the kernel, at most
_CONVERGED = 1e-13


def averaging(axis: Axis) -> Float[np.ndarray, "out in"]:
    """The matrix of the average over taps along one axis."""
    places, inside = axis.sources()
    matrix = np.zeros((axis.output, axis.size))
    np.add.at(matrix, (np.arange(axis.output)[:, None], places), inside / axis.taps)
    return matrix


def leak(axes: Sequence[Axis]) -> float:
    """The factor rho of a convolution on a kernel, one where nothing leaks.

    If the positions stay the same it is the largest eigenvalue of the average over taps; otherwise, where the
    layer cannot be repeated, the mean share of taps that read no padding.
    """
    return math.prod(_leak_along(axis) for axis in axes)


@functools.lru_cache(maxsize=256)
def _leak_along(axis: Axis) -> float:
    matrix = averaging(axis)
    shares = matrix.sum(axis=1)
    if axis.output != axis.size or (np.abs(shares - 1) < 1e-14).all():
        return float(shares.mean())
    return float(np.abs(np.linalg.eigvals(matrix)).max())


def drifts(axes: Sequence[Axis]) -> bool:
    """Whether signals drift out of the picture: taps on both sides of a position differ in number."""
    return any(
        axis.output == axis.size and _leak_along(axis) < 1 and not _is_symmetric(averaging(axis))
        for axis in axes
    )


def _is_symmetric(matrix: np.ndarray) -> bool:
    return bool(np.allclose(matrix, matrix.T, rtol=0, atol=1e-14))


class LeakingPoint(NamedTuple):
    """C_b and C_W at which a half-stable activation keeps gradients behind zero padding."""

    C_b: float
    C_W: float


@functools.lru_cache(maxsize=64)
def leaking_point(point: Criticality, axes: tuple[Axis, ...]) -> LeakingPoint:
    r"""The half-stable point of an activation in front of convolutions that leak.

    The kernel then differs between positions, $K = C_b + C_W A \langle\sigma^2\rangle_K$, and cannot be K*
    everywhere. C_W makes the largest eigenvalue of $C_W A \langle\sigma'^2\rangle_K$ one, so that gradients
    and directions are kept. C_b makes the mean of K, weighted by that mode, equal to K*; then norms are kept
    but for the second order in the differences between positions.
    """
    assert point.K_star is not None
    table, matrices = leg_table(point.activation), [averaging(axis) for axis in axes]
    K = np.full([axis.size for axis in axes], point.K_star)
    mode, C_b, C_W = np.ones(K.shape), 0.0, 1.0
    for _ in range(_ITERATIONS):
        averages = table(K)
        image = _averaged(matrices, averages.slope * mode)
        C_W, mode = float(np.linalg.norm(mode) / np.linalg.norm(image)), image / np.linalg.norm(image)
        arriving = C_W * _averaged(matrices, averages.square)
        weight = mode * averages.slope  # A is symmetric, so this is the mode of the transposed map
        C_b = max(0.0, point.K_star - float((weight * arriving).sum() / weight.sum()))
        change = np.abs(C_b + arriving - K).max()
        K = C_b + arriving
        if change < _CONVERGED * point.K_star:
            break
    return LeakingPoint(C_b, C_W)


def _averaged(matrices: Sequence[np.ndarray], values: np.ndarray) -> np.ndarray:
    for place, matrix in enumerate(matrices):
        values = np.moveaxis(np.tensordot(matrix, values, axes=(1, place)), 0, place)
    return values
