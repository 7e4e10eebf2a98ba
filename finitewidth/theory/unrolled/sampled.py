r"""Unrolled tensors contracted by sampling the preactivations of each source layer.

For one sample z ~ Normal(0, K) the legs are numbers, and the sum over the four labels is a small graph
whose edges are pair matrices and ties of Theta: matrix products of size N do it. Covariances are taken
between the sums over rows and over columns.
"""

from collections.abc import Sequence

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.gaussian.tower import Tower
from finitewidth.theory.sources import Source
from finitewidth.theory.tensors import Shape

_BATCH = 64


def sampled(
    sources: Sequence[Source], shape: Shape, vectors: dict[str, np.ndarray], samples: int, key: int
) -> Estimate:
    """Mean over samples and standard error, source layers independent of each other."""
    value, variance = 0.0, 0.0
    for index, source in enumerate(sources):
        generator = np.random.default_rng([key, index])
        root = _root(source.K)
        tower = Tower(source.activation, 3)
        parts = []
        for start in range(0, samples, _BATCH):
            size = min(_BATCH, samples - start)
            z = generator.standard_normal((size, root.shape[0])) @ root.T
            parts.append(_per_sample(source, shape, vectors, tower(z)))
        rows, columns = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
        if shape.centred:
            rows, columns = rows - rows.mean(), (columns - columns.mean()) * samples / (samples - 1)
        numbers = source.weight * rows * columns
        value += float(numbers.mean())
        variance += float(numbers.var(ddof=1)) / samples
    return Estimate(np.asarray(value), np.asarray(np.sqrt(variance)))


def _root(K: np.ndarray) -> np.ndarray:
    """R with R R^T = K, also where K is singular."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _per_sample(source: Source, shape: Shape, vectors, legs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two factors per sample whose product is the sample's contraction (the second is one unless centred)."""
    rows = _feature_matrix(source, shape.row, legs) * np.multiply.outer(vectors["a"], vectors["b"])
    columns = _feature_matrix(source, shape.column, legs) * np.multiply.outer(vectors["c"], vectors["d"])
    if shape.centred:
        return rows.sum(axis=(1, 2)), columns.sum(axis=(1, 2))
    ones = np.ones(rows.shape[0])
    return _GRAPHS[shape.ties](rows, columns, source.Theta), ones


def _feature_matrix(source: Source, feature: str, legs: np.ndarray) -> np.ndarray:
    """The feature of every pair for every sample (samples, N, N)."""
    total = np.zeros((legs.shape[1], legs.shape[2], legs.shape[2]))
    for ((i, a), (j, b)), matrix in source.features[feature].items():
        first = legs[a][:, :, None] if i == 0 else legs[a][:, None, :]
        second = legs[b][:, :, None] if j == 0 else legs[b][:, None, :]
        total += matrix * (first * second)
    return total


def _one_tie(rows, columns, Theta):
    """sum rows_ab columns_cd Theta_ac."""
    return np.einsum("sa,ac,sc->s", rows.sum(axis=2), Theta, columns.sum(axis=2))


def _parallel_ties(rows, columns, Theta):
    """sum rows_ab columns_cd Theta_ac Theta_bd."""
    return ((Theta.T @ rows @ Theta) * columns).sum(axis=(1, 2))


def _fan_of_ties(rows, columns, Theta):
    """sum rows_ab columns_cd Theta_ac Theta_ad."""
    spread = ((Theta @ columns) * Theta).sum(axis=2)  # over c, then d
    return (rows.sum(axis=2) * spread).sum(axis=1)


def _three_ties(rows, columns, Theta):
    """sum rows_ab columns_cd Theta_ac Theta_ad Theta_cb."""
    by_d = Theta @ np.swapaxes(columns, 1, 2)  # (a, c): over d
    by_b = rows @ Theta  # (a, c): over b
    return (by_d * by_b * Theta).sum(axis=(1, 2))


_GRAPHS = {
    ("ac",): _one_tie,
    ("ac", "bd"): _parallel_ties,
    ("ac", "ad"): _fan_of_ties,
    ("ac", "ad", "cb"): _three_ties,
}
