r"""The correction G1 of the mean kernel, from the vertex between the pairs of two samples only.

At every layer $V_{(ab)(cd)}$ with labels from {1, 2} follows from the same entries of the layer below: three
pairs (11), (12), (22) against three, for every two samples, instead of N^4 numbers.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from finitewidth.network.ladder import Ladder
from finitewidth.theory.layers.activation import Corners, KernelResponse
from finitewidth.theory.layers.isometry import Isometry
from finitewidth.theory.steps import Step


def moved(step: Step, V: Corners, created: Corners) -> tuple[Corners, Corners]:
    """V of the next layer, and V of this one with its columns moved up.

    `created` are the covariances of s s between the three pairs.
    """
    R = answer(step.moments.sigma)
    columns = np.einsum("abjk,ablk->abjl", V, R, optimize=True)
    rows = np.einsum("abij,abjl->abil", R, columns, optimize=True)
    above, isometry = step.C_W**2 * (created + step.width_ratio * rows), Isometry.behind(step)
    return above if isometry is None else above - isometry.vertex, columns


def first(isometry: Isometry | None, count: int) -> Corners:
    """V of layer 1, which vanishes but for orthogonal weights."""
    return np.zeros((count, count, 3, 3)) if isometry is None else -isometry.vertex


def corrections(
    ladder: Ladder, steps: Sequence[Step], twice: Sequence[np.ndarray]
) -> list[Float[np.ndarray, "N N"]]:
    """G1 of layers 1, 2, ..., from <s1 s1 s2 s3> of the layers below the last."""
    G1 = [np.zeros_like(steps[0].K)]
    V = first(Isometry.first(ladder, steps[0].below), len(G1[0]))
    for step, Y in zip(steps, twice, strict=True):
        sigma, C, r = step.moments.sigma, step.C_W, step.width_ratio
        G1.append(r * C * sigma.correction(G1[-1], V))
        V = moved(step, V, _created(Y, sigma.value))[0]
    return G1


def answer(sigma: KernelResponse) -> Corners:
    """How <s s> of the pairs (11), (12), (22) answers to those of the kernel."""
    assert sigma.gradient is not None
    first, both, second = sigma.gradient
    assert first is not None and both is not None and second is not None
    diagonal = np.diag(first + both + second)
    R = np.zeros((*both.shape, 3, 3))
    R[..., 0, 0], R[..., 2, 2] = diagonal[:, None], diagonal[None, :]
    R[..., 1, 0], R[..., 1, 1], R[..., 1, 2] = first, both, second
    return R


def _created(Y: np.ndarray, mean: np.ndarray) -> Corners:
    """Cov(s s, s s) between the three pairs; Y is <s1 s1 s2 s3>."""
    a, b = np.arange(len(mean))[:, None], np.arange(len(mean))[None, :]
    return covariances(Y[a, a, a], Y[a, a, b], Y[a, b, b], mean)


def covariances(fourth: np.ndarray, cubes: np.ndarray, squares: np.ndarray, mean: np.ndarray) -> Corners:
    """Cov(s s, s s) between the pairs (11), (12), (22).

    From <s1^4>, (N, 1), and <s1^3 s2>, <s1^2 s2^2> and <s1 s2>, (N, N) each.
    """
    moments = np.empty((*mean.shape, 3, 3))
    moments[..., 0, 0], moments[..., 2, 2] = fourth, fourth.T
    moments[..., 0, 1] = moments[..., 1, 0] = cubes
    moments[..., 1, 2] = moments[..., 2, 1] = cubes.T
    moments[..., 0, 2] = moments[..., 2, 0] = moments[..., 1, 1] = squares
    diagonal = np.diag(mean)
    means = np.stack(np.broadcast_arrays(diagonal[:, None], mean, diagonal[None, :]), axis=-1)
    return moments - means[..., :, None] * means[..., None, :]
