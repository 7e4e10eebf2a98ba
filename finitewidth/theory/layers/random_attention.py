r"""Averages over the random attention of wide networks whose scores are scaled by the root of d.

With keys and queries that are independent of each other, scores
$S_{pq} = \sigma_{QK}\, q_p \cdot k_q/\sqrt d$ are Gaussian of mean zero, with the covariance
$\sigma_{QK}^2\, \tilde K_{pp'} \tilde K_{qq'}$ between the positions of any two samples, where $\tilde K$ is
the kernel that keys and queries see. Attention is $a = \mathrm{softmax}(S)$ in each head. Averaged over
heads, values have the kernel $\langle a K a'^T \rangle$ and the NTK

$$\langle a (\Theta + 2K) a'^T \rangle_{pp'}
  + \sigma_{QK}^2 \sum_{qq'} \langle D_p K D'^T_{p'} \rangle_{qq'}
  \bigl[(\tilde\Theta + 2\tilde K)_{pp'} \tilde K_{qq'} + \tilde K_{pp'} \tilde\Theta_{qq'}\bigr]$$

with $D_p = \mathrm{diag}(a_p) - a_p a_p^T$, the derivative of attention by scores (Hron et al. 2020). The
first 2K comes from values and outputs that learn, $2\tilde K$ from keys and queries that do.

The scores of a pair of samples are $\sigma_{QK} R Z R$ with the symmetric root R of the joint kernel of both
and normal numbers Z. The same Z serve all pairs, each with both signs and with the two samples exchanged. So
an average over draws depends on its pair alone, is symmetric, and does not depend on how inputs are divided
into blocks. Kernels are positive semi-definite up to the standard error: only scores of all inputs that are
drawn together, from a root of the kernel of all sites, would make them so exactly.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

_AT_ONCE = 1 << 20  # numbers in an array


class Pair(NamedTuple):
    """Kernels between the positions of pairs of samples, (A, B, p, q) each."""

    K: np.ndarray
    first: np.ndarray  # what keys see: within the first sample, between both, within the second
    cross: np.ndarray
    second: np.ndarray
    Theta: np.ndarray | None
    share: float  # of the channels that keys see, the share that values see


@functools.lru_cache(maxsize=16)
def normals(key: int, layer: int, draws: int, size: int) -> np.ndarray:
    """Normal numbers (draws, size, size), different in each layer."""
    return np.random.default_rng([key, layer]).standard_normal((draws, size, size))


def average(pair: Pair, numbers: np.ndarray, sigma: float) -> tuple[list[np.ndarray], float]:
    """The kernel of values with attention and, if there is one, their NTK.

    Also the largest standard error, in units of the largest entry of each.
    """
    roots, count = _roots(pair), len(numbers)
    sums = np.zeros((2, 1 if pair.Theta is None else 2, *pair.K.shape))  # of values and of their squares
    for some in _chunks(numbers, pair.K.size * 4):
        versions = [np.stack(_values(pair, a, b, sigma)) for a, b in _attention(roots, some, sigma)]
        means = np.mean(versions, axis=0)
        sums += np.stack([means.sum(axis=3), (means**2).sum(axis=3)])
    values, squares = sums / count
    flat, spreads = (
        part.reshape(len(values), -1) for part in (values, np.sqrt(np.maximum(squares - values**2, 0.0)))
    )
    largest = np.abs(flat).max(axis=1)
    error = spreads.max(axis=1) / np.where(largest > 0, largest, 1.0) / np.sqrt(count - 1)
    return list(values), float(error.max())


def _chunks(numbers: np.ndarray, size: int) -> Iterator[np.ndarray]:
    step = max(1, _AT_ONCE // size)
    for start in range(0, len(numbers), step):
        yield numbers[start : start + step]


def _roots(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the symmetric root of the joint kernel that belong to each sample, (A, B, 1, P, 2P)."""
    joint = np.block([[pair.first, pair.cross], [np.swapaxes(pair.cross, -1, -2), pair.second]])
    eigenvalues, vectors = np.linalg.eigh(joint)
    scaled = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))[..., None, :]
    root = (scaled @ np.swapaxes(vectors, -1, -2))[:, :, None]
    P = pair.K.shape[-1]
    return root[..., :P, :], root[..., P:, :]


def _attention(roots: tuple, numbers: np.ndarray, sigma: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Attention in both samples, (A, B, draws, p, q): numbers as they are and exchanged, with both signs."""
    P = roots[0].shape[-2]
    for some in (numbers, np.roll(numbers, P, axis=(-2, -1))):
        scores = [sigma * (root @ some @ np.swapaxes(root, -1, -2)) for root in roots]
        for sign in (1, -1):
            yield softmax(sign * scores[0], axis=-1), softmax(sign * scores[1], axis=-1)


def _values(pair: Pair, a: np.ndarray, b: np.ndarray, sigma: float) -> tuple[np.ndarray, ...]:
    """The kernel of values with this attention, and their NTK."""
    K, seen = pair.K[:, :, None], pair.cross[:, :, None]
    right = np.swapaxes(b, -1, -2)
    attended = a @ K @ right
    if pair.Theta is None:
        return (attended,)
    Theta = pair.Theta[:, :, None]
    moved = pair.share * Theta  # the NTK of what keys see

    def learned(G: np.ndarray) -> np.ndarray:
        """sum_{q q'} (D_p K D_p'^T)_{q q'} G_{q q'}."""
        first = a @ ((K * G) @ right - (K @ right) * (G @ right))
        return first - ((a @ K) * (a @ G)) @ right + attended * (a @ G @ right)

    of_scores = (moved + 2 * seen) * learned(seen) + seen * learned(moved)
    return attended, a @ Theta @ right + 2 * attended + sigma**2 * of_scores
