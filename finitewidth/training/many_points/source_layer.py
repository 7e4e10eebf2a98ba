r"""One source layer in the form that samples of its neurons are contracted with.

All features of a layer (`theory/features.py`) share three matrices of pairs, whatever the depth above:

$$b = E\,\sigma'\sigma', \quad u = E\,\sigma''\sigma', \quad f = E\,\sigma'\sigma + \alpha, \quad
  p = E\,\sigma''\sigma + \ldots, \quad x = \Lambda\,\sigma\sigma + \Omega\,\sigma'\sigma' + \ldots,$$

and y, r, s are x with derivatives on its legs. The dots have both legs on one sample; they vanish in the last
source layer. E and alpha stand between samples of which one is open and the other is summed. There they are
replaced by averages of products of random fields, $E = \langle g g^T \rangle$ and
$\alpha = \langle h k^T \rangle$: nearly all of a field is the leading singular vector, which does not vary.
"""

from dataclasses import dataclass

import numpy as np

from finitewidth.network.layers.activation import Activation
from finitewidth.theory.layers.activation import Moments
from finitewidth.theory.sources import Source

_RANK = 1e-14  # eigenvalues below this fraction of the largest are rounding
_FIELD = 1e-12  # the same for random fields
SAME_SAMPLE = ("x2", "y3", "p2", "p3", "r3", "r4", "alpha")

_ENTRIES = {  # feature and derivatives on its two legs
    "E": ("b", ((0, 1), (1, 1))),
    "Lam": ("x", ((0, 0), (1, 0))),
    "Om": ("x", ((0, 1), (1, 1))),
    "x2": ("x", ((0, 0), (0, 0))),
    "y3": ("y", ((0, 1), (0, 0))),
    "p2": ("p", ((0, 2), (0, 0))),
    "p3": ("p", ((0, 1), (0, 1))),
    "r3": ("r", ((0, 2), (0, 0))),
    "r4": ("r", ((0, 1), (0, 1))),
    "alpha": ("f", ((0, 1), (0, 0))),
    "v": ("v", ((0, 0), (1, 0))),
    "v2": ("v", ((0, 0), (0, 0))),
}


@dataclass(frozen=True, eq=False)
class RandomFields:
    """Two random fields with a given mean product: a part that never varies and a Gaussian rest."""

    leading: tuple[np.ndarray, np.ndarray]  # (N, 1) each
    rest: tuple[np.ndarray, np.ndarray]  # (N, rank) each

    @classmethod
    def of(cls, matrix: np.ndarray, dtype: type) -> "RandomFields":
        """With <h k^T> equal to the matrix."""
        left, values, right = np.linalg.svd(matrix)
        keep = values > values[0] * _FIELD
        left, right = left[:, keep] * np.sqrt(values[keep]), right[keep].T * np.sqrt(values[keep])
        left, right = left.astype(dtype), right.astype(dtype)
        return cls((left[:, :1], right[:, :1]), (left[:, 1:], right[:, 1:]))

    def draw(self, generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """h and k, (N, size) each."""
        noise = generator.standard_normal((self.rest[0].shape[1], size)).astype(self.rest[0].dtype)
        first, second = (lead + rest @ noise for lead, rest in zip(self.leading, self.rest, strict=True))
        return first, second


@dataclass(frozen=True, eq=False)
class SourceLayer:
    """Pair matrices of a source layer, on all samples."""

    activation: Activation
    weight: float
    moments: Moments
    pairs: dict[str, np.ndarray]  # Th, E, Lam, Om and those of one sample, (N, N) each
    root: np.ndarray  # of the kernel, (N, rank)
    E_fields: RandomFields
    alpha_fields: RandomFields | None  # None where alpha vanishes
    has_same_sample: bool  # terms with both legs on one sample, which the last source layer has not

    @classmethod
    def of(cls, source: Source, dtype: type) -> "SourceLayer":
        shape = source.K.shape
        pairs = {"Th": source.Theta}
        for name, (feature, legs) in _ENTRIES.items():
            matrix = np.broadcast_to(source.features[feature].get(legs, 0.0), shape)
            pairs[name] = np.ascontiguousarray(matrix, dtype=np.float64)
        root, E_fields = kernel_root(source.K).astype(dtype), RandomFields.of(pairs["E"], dtype)
        alpha_fields = RandomFields.of(pairs["alpha"], dtype) if pairs["alpha"].any() else None
        same = any(pairs[name].any() for name in SAME_SAMPLE)
        moments = source.moments
        return cls(source.activation, source.weight, moments, pairs, root, E_fields, alpha_fields, same)


def kernel_root(K: np.ndarray) -> np.ndarray:
    """R with R R^T = K and as few columns as the rank of K."""
    values, vectors = np.linalg.eigh(K)
    keep = values > values[-1] * _RANK
    return vectors[:, keep] * np.sqrt(values[keep])
