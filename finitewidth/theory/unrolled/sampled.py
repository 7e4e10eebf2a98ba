r"""Unrolled tensors contracted by sampling the preactivations of each source layer.

For one sample z ~ Normal(0, K) the legs are numbers, and the sum over the four labels is a small graph
whose edges are pair matrices and ties of Theta: matrix products of size N do it. Covariances are taken
between the sums over rows and over columns. Layers that skips correlate are sampled together.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import Activation
from finitewidth.theory.layers.pair_map import Feature
from finitewidth.theory.sources import Source
from finitewidth.theory.tensors import Shape

_BATCH = 64


class Member(NamedTuple):
    """A layer of a group: its activation, None for bare preactivations, and the features it sends up."""

    activation: Activation | None
    features: Mapping[str, Feature]


@dataclass(frozen=True)
class Group:
    """Source layers whose preactivations are correlated, and the bare ones of the layer asked for."""

    weight: float
    members: tuple[Member, ...]
    K: np.ndarray  # of all members together, one after the other
    Theta: Mapping[tuple[int, int], np.ndarray]  # between two members

    @classmethod
    def of(cls, source: Source) -> "Group":
        """A source layer that is correlated with no other."""
        members = (Member(source.activation, source.features),)
        return cls(source.weight, members, source.K, {(0, 0): source.Theta})


def sampled(
    groups: Sequence[Group], shape: Shape, vectors: dict[str, np.ndarray], samples: int, key: int
) -> Estimate:
    """Mean over samples and standard error, groups independent of each other."""
    value, variance = 0.0, 0.0
    for index, group in enumerate(groups):
        generator = np.random.default_rng([key, index])
        root = _root(group.K)
        parts = []
        for start in range(0, samples, _BATCH):
            size = min(_BATCH, samples - start)
            z = generator.standard_normal((size, root.shape[0])) @ root.T
            parts.append(_per_sample(group, shape, vectors, z))
        factors = np.concatenate(parts, axis=2)  # (rows or columns, term, sample)
        if shape.centred:
            factors = factors - factors.mean(axis=2, keepdims=True)
            factors[1] *= samples / (samples - 1)
        numbers = group.weight * (factors[0] * factors[1]).sum(axis=0)
        value += float(numbers.mean())
        variance += float(numbers.var(ddof=1)) / samples
    return Estimate(np.asarray(value), np.asarray(np.sqrt(variance)))


def _root(K: np.ndarray) -> np.ndarray:
    """R with R R^T = K, also where K is singular."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _per_sample(group: Group, shape: Shape, vectors, z: np.ndarray) -> np.ndarray:
    """(2, term, sample): factors whose products add up to a sample's contraction, the second one if tied."""
    ends = np.multiply.outer(vectors["a"], vectors["b"]), np.multiply.outer(vectors["c"], vectors["d"])
    matrices = []
    for member, part in zip(group.members, np.split(z, len(group.members), axis=1), strict=True):
        legs = _legs(member.activation, part)
        both = (_feature_matrix(member.features.get(name, {}), legs) for name in (shape.row, shape.column))
        matrices.append([matrix * end for matrix, end in zip(both, ends, strict=True)])
    total = np.zeros(z.shape[0])
    terms = []
    for (i, one), (j, other) in itertools.product(enumerate(matrices), repeat=2):
        if group.members[i].activation is None and group.members[j].activation is None:
            continue  # bare pairs alone are no correction
        if shape.centred:
            terms.append((one[0].sum(axis=(1, 2)), other[1].sum(axis=(1, 2))))
        else:
            total += _GRAPHS[shape.ties](one[0], other[1], group.Theta[i, j])
    return np.stack(terms or [(total, np.ones_like(total))], axis=1)


def _legs(activation: Activation | None, z: np.ndarray) -> np.ndarray:
    """Derivatives up to the third; of a bare preactivation its value, one, and nothing."""
    if activation is not None:
        return Tower(activation, 3)(z)
    return np.stack([z, np.ones_like(z), np.zeros_like(z), np.zeros_like(z)])


def _feature_matrix(feature: Feature, legs: np.ndarray) -> np.ndarray:
    """The feature of every pair for every sample (samples, N, N)."""
    total = np.zeros((legs.shape[1], legs.shape[2], legs.shape[2]))
    for ((i, a), (j, b)), matrix in feature.items():
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
