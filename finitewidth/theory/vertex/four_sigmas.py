r"""Averages of four sigmas of one source layer, contracted: stored whole, or one slice after the other.

Averages do not depend on the order of their samples. A slice holds those whose last sample is d, each of them
computed once, and gives its share to every place in which d can stand.
"""

import numpy as np
from jaxtyping import Float

from finitewidth.gaussian.four_legs.averages import four_legs_with_fixed_leg
from finitewidth.theory.vertex.sources import Averages, VertexSource

FAMILY = (0, 0, 0, 0)


def from_whole(
    values: Float[np.ndarray, "N N N N"], source: VertexSource, g: np.ndarray, M: np.ndarray
) -> Averages:
    """Contractions of <s1 s2 s3 s4> with g, pulled down to the source layer, and with M."""
    b = source.answer.both
    assert b is not None
    straight = np.tensordot(g, values, ((1, 2), (2, 3)))
    crossed = np.empty_like(M)
    for one, block in enumerate(values):
        weights = b[one][:, None] * M  # over (3, 4) for each M
        crossed[:, one] = (np.einsum("bcd,qcd->qbd", block, weights) * b).sum(axis=2)
    return Averages(straight, crossed, np.einsum("aabc->abc", values).copy())


def of_linear_neurons(source: VertexSource, g: np.ndarray, M: np.ndarray) -> Averages:
    """The same contractions in closed form for linear neurons, as which orthogonal weights count."""
    K, b = source.K, source.answer.both
    assert b is not None
    straight = np.einsum("cd,mcd->m", K, g)[:, None, None] * K + K @ (g + g.transpose(0, 2, 1)) @ K
    crossed = K * (b @ (K * M) @ b.T) + (b * K) @ M @ (b * K).T
    for a in range(len(K)):
        crossed[:, a] += ((K @ (b[a][:, None] * M * K[a])) * b).sum(axis=2)
    own = K.diagonal()[:, None, None] * K + 2 * K[:, :, None] * K[:, None, :]
    return Averages(straight, crossed, own)


def from_slice(source: VertexSource, d: int, g: np.ndarray, M: np.ndarray, tolerance: float) -> Averages:
    """The share of the averages whose last sample is d in the same contractions."""
    until = d + 1
    fixed = four_legs_with_fixed_leg(
        source.activation, source.K[:until, :until], d, (FAMILY,), tolerance=tolerance
    )
    x, b = np.asarray(fixed[FAMILY, 3].value), source.answer.both
    assert b is not None
    b = b[:until, :until]
    straight = _straight(x, g[:, :until, :until])
    crossed = _crossed(x, b, M[:, :until, :until])
    twice = np.zeros((until,) * 3)
    twice[:, :, d] = twice[:, d, :] = np.einsum("aab->ab", x)
    twice[d] = x[d]
    missing = len(source.K) - until
    return Averages(_padded(straight, missing), _padded(crossed, missing), twice)


def _straight(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    d = len(x) - 1
    total = np.empty_like(g)
    below = 2 * g[:, d]
    below[:, d] /= 2
    total[:, :d, :d] = np.tensordot(below, x[:d, :d], ((1,), (2,)))
    total[:, d] = total[:, :, d] = np.tensordot(g, x, ((1, 2), (1, 2)))
    return total


def _crossed(x: np.ndarray, b: np.ndarray, M: np.ndarray) -> np.ndarray:
    d = len(x) - 1
    total = np.empty_like(M)
    with_fourth = np.einsum("abd,qd,bd->qab", x[:d, :d], M[:, d], b[:d], optimize=True)
    with_third = np.einsum("abc,qc,ac->qab", x[:d, :d, :d], M[:, d, :d], b[:d, :d], optimize=True)
    total[:, :d, :d] = b[:d, d, None] * with_fourth + b[None, :d, d] * with_third
    weights = b[d][:, None] * M
    row = (np.einsum("bcd,qcd->qbd", x, weights) * b).sum(axis=2)
    total[:, d], total[:, :, d] = row, row
    return total


def _padded(array: np.ndarray, missing: int) -> np.ndarray:
    return np.pad(array, ((0, 0), (0, missing), (0, missing)))
