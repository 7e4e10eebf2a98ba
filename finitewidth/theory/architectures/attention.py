r"""Attention at order 1/n: V and G1 behind heads that are drawn.

Given the Gram matrix Q of the channels in front, heads are independent and alike, and queries, keys and
values are exactly Gaussian with covariance Q. With M = a Q a^T of one head of d components,

$$K' = C_b + C_{OV} E[M], \qquad \text{noise} = \frac{C_{OV}^2}{H} \Bigl\{ \mathrm{Cov}(M_{12}, M_{34})
  + \frac1d E[M_{13} M_{24} + M_{14} M_{23}] \Bigr\}$$

are exact in the number of heads H and in d. The Gram matrix fluctuates as the blocks X = V + w say, and

$$X' = DK'\, X\, DK'^T + \text{noise}, \qquad G' = DK'\, G + \tfrac12 D^2K' : X.$$

Nothing is expanded in 1/d. Scores are $\sigma_{QK} L g L^T$ with a root L of Q and with products g of normal
numbers that stay the same while Q moves, so that derivatives are differences between smooth functions, along
the eigenvectors of X. Behind a norm they are derivatives by the Gram matrix in front of the norm, since what
a norm makes of that moves in directions in which a singular Q would not stay positive.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from finitewidth.network.ladder import NotAtFirstOrder
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.theory.architectures.signal import Normed, Signal
from finitewidth.theory.recursion import Blocks, State

_STEP = 0.002  # of a difference, in units of Q
_RANK = 1e-10  # eigenvalues below this share of the largest are rounding
_JITTER = 1e-12  # of the largest variance, for a root of a singular Q


class Heads(NamedTuple):
    """Random heads of d components, as functions of the Gram matrix of all sites, before a norm if any."""

    products: np.ndarray  # (draws, S, S) of the normal numbers of queries and keys
    sigma: float
    samples: int
    epsilon: float | None  # of a norm in between

    @classmethod
    def drawn(
        cls, layer: SelfAttention, sites: int, samples: int, epsilon: float | None, seed: tuple[int, ...]
    ) -> "Heads":
        """As many as the layer's `draws`; those scaled by the root come in pairs of opposite scores."""
        rng, d = np.random.default_rng(seed), layer.components
        count = -(-layer.draws // 2) if layer.scaling == "root" else layer.draws
        keys = rng.standard_normal((count, sites, d))
        if layer.scaling == "linear":
            return cls(keys @ keys.swapaxes(1, 2) / d, layer.sigma_QK, samples, epsilon)
        queries = rng.standard_normal((count, sites, d))
        products = queries @ keys.swapaxes(1, 2) / np.sqrt(d)
        return cls(np.concatenate([products, -products]), layer.sigma_QK, samples, epsilon)

    def attended(self, Q: np.ndarray) -> np.ndarray:
        """M = a Q a^T of each head (draws, S, S), where the sites of a sample attend to each other."""
        S = len(Q)
        L = np.linalg.cholesky(Q + _JITTER * Q.diagonal().max() * np.eye(S))
        if self.epsilon is not None:
            c = 1 / np.sqrt(Q.diagonal() + self.epsilon)
            L, Q = c[:, None] * L, c[:, None] * Q * c
        T = S // self.samples
        whole = np.zeros_like(self.products)
        for start in range(0, S, T):
            own = slice(start, start + T)
            rows = L[own, : start + T]
            inner = self.products[:, : start + T, : start + T]
            whole[:, own, own] = softmax(self.sigma * (rows @ inner @ rows.T), axis=-1)
        return whole @ Q @ whole.swapaxes(1, 2)

    def mean(self, Q: np.ndarray) -> np.ndarray:
        """E[M] (S, S)."""
        return self.attended(Q).mean(axis=0)


class Answer(NamedTuple):
    """How E[M] answers to what fluctuates: along eigenvectors, and to second order."""

    vectors: np.ndarray  # (S^2, r) eigenvectors of the Gram matrix's covariance
    eigenvalues: np.ndarray  # (r,)
    first: np.ndarray  # (S^2, r) derivatives along them
    second: np.ndarray  # (S, S) half the second derivative, contracted with the covariance


def attended(signal: Signal, layer: SelfAttention, samples: int, seed: tuple[int, ...]) -> Signal:
    """The signal behind attention; `seed` makes the heads."""
    _check(signal, layer)
    shape = (*signal.shape[:-1], layer.width)
    front, epsilon, mean = signal.normed or Normed(signal, None, 0.0)
    Q, C = front.state.K, layer.C_OV
    heads = Heads.drawn(layer, len(Q), samples, epsilon, seed)
    M = heads.attended(Q)
    K = layer.C_b + C * M.mean(axis=0)
    if not signal.state.blocks:
        return Signal(State(K, np.zeros_like(K), None, None), shape, signal.channels)
    full = front.with_own_noise()["v", "v"] / front.stripped
    answer = _answer(heads, Q, full)
    moved = C**2 * (answer.first * answer.eigenvalues) @ answer.first.T
    V = signal.channels * (moved.reshape(full.shape) + C**2 * noise(M, layer))
    assert front.state.G1 is not None
    shift = (front.state.G1 - mean * Q) / front.stripped
    G1 = signal.channels * C * (answer.second + _along(heads, Q, shift))
    state = State(K, np.zeros_like(K), G1, None, {("v", "v"): V})
    rows = C * answer.first @ answer.vectors.T
    crosses = tuple(_moved(cross, rows) for cross in front.crosses)
    return Signal(state, shape, signal.channels, crosses=crosses)


def noise(M: np.ndarray, layer: SelfAttention) -> np.ndarray:
    """What finitely many heads of finitely many components add, over C_OV^2."""
    S = M.shape[1]
    flat = M.reshape(len(M), -1)
    second = (flat.T @ flat / len(M)).reshape((S,) * 4)  # E[M_12 M_34]
    mean = M.mean(axis=0)
    of_values = second.transpose(0, 2, 1, 3) + second.transpose(0, 2, 3, 1)  # E[M_13 M_24 + M_14 M_23]
    return (second - np.multiply.outer(mean, mean) + of_values / layer.components) / layer.heads


def _answer(heads: Heads, Q: np.ndarray, full: np.ndarray) -> Answer:
    """Differences of E[M] along the eigenvectors of a covariance of Q."""
    S = len(Q)
    matrix = full.reshape(S * S, S * S)
    eigenvalues, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = eigenvalues > _RANK * eigenvalues[-1]
    eigenvalues, vectors = eigenvalues[kept], vectors[:, kept]
    here, first, second = heads.mean(Q), np.empty_like(vectors), np.zeros_like(Q)
    for place, (size, vector) in enumerate(zip(eigenvalues, vectors.T, strict=True)):
        step = _symmetric(vector.reshape(S, S))
        slope, curvature = _derivatives(heads, Q, step, here)
        first[:, place] = slope.ravel()
        second += size * curvature / 2
    return Answer(vectors, eigenvalues, first, second)


def _along(heads: Heads, Q: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The derivative of E[M] along a change of Q."""
    if not np.any(shift):
        return np.zeros_like(Q)
    return _derivatives(heads, Q, shift, heads.mean(Q))[0]


def _derivatives(heads: Heads, Q: np.ndarray, step: np.ndarray, here: np.ndarray):
    """The first and second derivative of E[M] along a change of Q, from five points."""
    h = _STEP / _size(Q, step)
    up, down, far_up, far_down = (heads.mean(Q + k * h * step) for k in (1, -1, 2, -2))
    slope = (8 * (up - down) - (far_up - far_down)) / (12 * h)
    return slope, (16 * (up + down) - (far_up + far_down) - 30 * here) / (12 * h**2)


def _size(Q: np.ndarray, step: np.ndarray) -> float:
    """The largest eigenvalue of Q^(-1/2) step Q^(-1/2) where Q does not vanish: Q + h step stays positive."""
    eigenvalues, vectors = np.linalg.eigh(Q)
    kept = eigenvalues > _RANK * eigenvalues[-1]
    root = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    return float(np.abs(np.linalg.eigvalsh(root.T @ step @ root)).max())


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def _moved(cross: Blocks, rows: np.ndarray) -> Blocks:
    return {key: (rows @ block.reshape(len(rows), -1)).reshape(block.shape) for key, block in cross.items()}


def _check(signal: Signal, layer: SelfAttention) -> None:
    if layer.positions is not None:
        raise NotAtFirstOrder("fw.SelfAttention with random features of positions")
    if signal.is_data:
        raise NotAtFirstOrder("fw.SelfAttention on the inputs")
    if signal.waits:
        raise NotAtFirstOrder("fw.SelfAttention behind an activation")
