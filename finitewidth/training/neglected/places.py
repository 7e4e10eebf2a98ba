"""Where a test input lies: on a training point, beside one, or far from all of them."""

import numpy as np

ON, BESIDE, FAR = "on a training point", "beside training points", "far from training points"
_EXPLAINED = 0.9  # of its kernel by the training points, beside them
_SINGULAR = 1e-10


def places_of(kernel: np.ndarray, train: np.ndarray, tests: np.ndarray) -> np.ndarray:
    """The place of each test input in words, by a kernel between inputs."""
    train = np.unique(train)
    cross = kernel[np.ix_(tests, train)]
    inverse = np.linalg.pinv(kernel[np.ix_(train, train)], rcond=_SINGULAR, hermitian=True)
    explained = np.einsum("ta,ab,tb->t", cross, inverse, cross)
    beside = explained > _EXPLAINED * np.diag(kernel)[tests]
    return np.where(np.isin(tests, train), ON, np.where(beside, BESIDE, FAR))
