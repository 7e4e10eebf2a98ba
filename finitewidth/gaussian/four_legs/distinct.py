"""Samples of a kernel that are distinct, and an order of them that keeps Hermite series short."""

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage

from finitewidth.gaussian.division import quotient


def distinct_samples(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Representatives of equal samples, and the place of each sample among them."""
    close = 1e-14 * max(float(np.diagonal(K).max()), 1e-300)
    representatives: list[int] = []
    inverse = np.zeros(len(K), dtype=int)
    for sample in range(len(K)):
        if representatives:
            apart = np.abs(K[representatives] - K[sample]).max(axis=1)
            nearest = int(apart.argmin())
            if apart[nearest] <= close:
                inverse[sample] = nearest
                continue
        inverse[sample] = len(representatives)
        representatives.append(sample)
    return np.array(representatives), inverse


def similar_together(K: np.ndarray) -> np.ndarray:
    """The order of the leaves of a tree of correlations.

    Of four samples in this order, the third lies between the second and the fourth. Conditioning on
    the first and third therefore never leaves two legs that are closer to each other than to the
    conditioning pair, and the Hermite series of the two remaining legs stays short.
    """
    if len(K) < 3:
        return np.arange(len(K))
    roots = np.sqrt(np.diagonal(K))
    scale = np.outer(roots, roots)
    correlation = np.abs(quotient(K, scale))
    distance = np.maximum(1 - correlation, 0.0)[np.triu_indices(len(K), 1)]
    return leaves_list(linkage(distance, "average"))


def expanded(value: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """An array over representatives as an array over all samples."""
    if len(inverse) == len(value) and (inverse == np.arange(len(inverse))).all():
        return value
    return value[np.ix_(*[inverse] * value.ndim)]
