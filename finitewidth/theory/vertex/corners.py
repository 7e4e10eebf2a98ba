r"""The correction G1 of the mean kernel, from the vertex between the pairs of two samples only.

At every layer $V_{(ab)(cd)}$ with labels from {1, 2} follows from the same entries of the layer below: three
pairs (11), (12), (22) against three, for every two samples, instead of N^4 numbers.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from finitewidth.theory.layers.activation import KernelResponse
from finitewidth.theory.steps import Step

Corners = Float[np.ndarray, "N N 3 3"]


def corrections(steps: Sequence[Step], twice: Sequence[np.ndarray]) -> list[Float[np.ndarray, "N N"]]:
    """G1 of layers 1, 2, ..., from <s1 s1 s2 s3> of the layers below the last."""
    G1 = [np.zeros_like(steps[0].K)]
    V = np.zeros((*steps[0].K.shape, 3, 3))
    for step, Y in zip(steps, twice, strict=True):
        sigma, C, r = step.moments.sigma, step.C_W, step.width_ratio
        G1.append(r * C * _correction(sigma, G1[-1], V))
        R = _answer(sigma)
        moved = np.einsum("abij,abjk,ablk->abil", R, V, R, optimize=True)
        V = C**2 * (_created(Y, sigma.value) + r * moved)
    return G1


def _correction(sigma: KernelResponse, G1: np.ndarray, V: Corners) -> np.ndarray:
    assert sigma.slope is not None
    bend = sigma.bend
    fourth = (
        bend[0] * V[..., 0, 0] + 4 * bend[1] * V[..., 0, 1] + bend[2] * (2 * V[..., 0, 2] + 4 * V[..., 1, 1])
    )
    fourth += 4 * bend[3] * V[..., 1, 2] + bend[4] * V[..., 2, 2]
    return sigma.slope.of_pairs(G1) + fourth / 8


def _answer(sigma: KernelResponse) -> Corners:
    """How <s s> of the pairs (11), (12), (22) answers to those of the kernel."""
    assert sigma.slope is not None
    first, both, second = sigma.slope
    assert first is not None and both is not None and second is not None
    alone = np.diag(first + both + second)
    R = np.zeros((*both.shape, 3, 3))
    R[..., 0, 0], R[..., 2, 2] = alone[:, None], alone[None, :]
    R[..., 1, 0], R[..., 1, 1], R[..., 1, 2] = first, both, second
    return R


def _created(Y: np.ndarray, mean: np.ndarray) -> Corners:
    """Cov(s s, s s) between the three pairs; Y is <s1 s1 s2 s3>."""
    N = len(mean)
    a, b = np.arange(N)[:, None], np.arange(N)[None, :]
    moments = np.empty((N, N, 3, 3))
    moments[..., 0, 0], moments[..., 2, 2] = Y[a, a, a], Y[b, b, b]
    moments[..., 0, 1] = moments[..., 1, 0] = Y[a, a, b]
    moments[..., 1, 2] = moments[..., 2, 1] = Y[b, a, b]
    moments[..., 0, 2] = moments[..., 2, 0] = moments[..., 1, 1] = Y[a, b, b]
    means = np.stack(np.broadcast_arrays(mean[a, a], mean, mean[b, b]), axis=-1)
    return moments - means[..., :, None] * means[..., None, :]
