r"""Infinitely wide networks that draw batches of their own, on the squared error: exact mean and covariance.

Outputs are $z_0 - \Theta\, C\, (z_0 - y)$ with a random matrix C that depends on the batches alone. What
the optimizer accumulates is linear in accumulators and the residual, so moments of C follow linear recursions
of their own: step by step where batches are independent, else epoch by epoch, over all orders.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from finitewidth.core.memory import require_memory
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.fitting import ntk
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.solver import largest_eigenvalue

MOST_ORDERS = 1000  # of an epoch


def moments_are_known(algorithm: AbstractAlgorithm, count: int) -> bool:
    """Whether batches are independent, or orders of an epoch few enough to go over all."""
    return algorithm.independent_batches or _number_of_orders(algorithm.batch_size, count) <= MOST_ORDERS


def average_over_batches(
    net: Network, X: np.ndarray, Y: np.ndarray, X_test: np.ndarray, algorithm: AbstractAlgorithm
) -> Prediction:
    """Mean and covariance over initializations and batches."""
    algorithm.check_batches(len(X))
    N, n = len(X), Y.shape[1]
    pairs = [(i, j) for i in range(n) for j in range(i, n)]
    size = (2 + algorithm.memory) * N
    require_memory(
        8 * 4 * (1 + len(pairs)) * size**2, f"moments over batches of {N} inputs", "train on fewer inputs"
    )
    both = kernels(net, np.concatenate([X, X_test]))
    Theta, K = ntk(both), both.K
    algorithm.check_stable(largest_eigenvalue(Theta[:N, :N]), MSE())
    sources = np.stack([K[:N, :N], *(np.outer(Y[:, i], Y[:, j]) for i, j in pairs)])
    first, second = _moments(algorithm, Theta[:N, :N], sources)
    response, cross = Theta[N:, :N], K[N:, :N]
    mean = response @ first @ Y
    half = response @ first @ cross.T
    among = K[N:, N:] - half - half.T + response @ second[0] @ response.T
    coupling = np.zeros((len(X_test), n, len(X_test), n))
    for (i, j), moment in zip(pairs, second[1:], strict=True):
        spread = response @ moment @ response.T - np.outer(mean[:, i], mean[:, j])
        coupling[:, i, :, j] = spread
        coupling[:, j, :, i] = spread.T
    condition = float(np.linalg.cond(Theta[:N, :N]))
    factors = ((np.eye(n), (among + among.T) / 2),)
    return Prediction(net, algorithm, 0, mean, factors, condition, both.error, coupling=coupling)


def _moments(
    algorithm: AbstractAlgorithm, Theta: np.ndarray, sources: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """E[C], and E[C X C^T] for several matrices X."""
    N = len(Theta)
    start = np.zeros(((2 + algorithm.memory) * N, N))
    start[:N] = np.eye(N)  # the residual at initialization, then the accumulators
    first: np.ndarray = start
    second: np.ndarray = start @ sources @ start.T
    for steps in _blocks(algorithm, N):
        if algorithm.independent_batches:
            (step,) = steps
            keep, gain = _step(algorithm, step, Theta)
            one, noise = keep + gain @ _residual(Theta, len(keep)), _mask_covariance(algorithm, N)
            seen = _residual(Theta, len(keep))
            second = one @ second @ one.T + gain @ (noise * (seen @ second @ seen.T)) @ gain.T
            first = one @ first
            continue
        paths = [_path(algorithm, steps, order, Theta) for order in _orders(algorithm, N, len(steps))]
        second = np.mean([path @ second @ path.T for path in paths], axis=0)
        first = np.mean([path @ first for path in paths], axis=0)
    place = slice(N, 2 * N)
    return first[place], second[:, place, place]


def _blocks(algorithm: AbstractAlgorithm, count: int) -> Iterator[range]:
    """Steps in groups that are independent of each other: one by one, or epochs."""
    steps = int(algorithm.end)
    length = 1 if algorithm.independent_batches else count // algorithm.batch_size
    return (range(first, min(first + length, steps)) for first in range(0, steps, length))


def _step(algorithm: AbstractAlgorithm, step: int, Theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a step keeps of residual and accumulators, and how a signal enters them."""
    units, numbers, at = np.eye(1 + algorithm.memory), algorithm.numbers, np.float64(step)
    kept = np.array([algorithm.accumulate(tuple(unit), 0.0, at, numbers) for unit in units]).T
    entering = np.array(algorithm.accumulate(tuple(0.0 * units[0]), 1.0, at, numbers))
    one = np.eye(len(Theta))
    keep = np.zeros(((2 + algorithm.memory) * len(Theta),) * 2)
    keep[: len(Theta), : len(Theta)] = one
    keep[len(Theta) :, len(Theta) :] = np.kron(kept, one)
    return keep, np.concatenate([0 * one, np.kron(entering[:, None], one)])


def _residual(Theta: np.ndarray, size: int) -> np.ndarray:
    """The present residual from the first one and what has been accumulated."""
    nothing = np.zeros((len(Theta), size - 2 * len(Theta)))
    return np.concatenate([np.eye(len(Theta)), -Theta, nothing], axis=1)


def _mask_covariance(algorithm: AbstractAlgorithm, count: int) -> np.ndarray:
    """Of the weights of samples, whose mean is one, for independent draws."""
    return (count * np.eye(count) - 1) / algorithm.batch_size


def _path(
    algorithm: AbstractAlgorithm, steps: range, order: Sequence[tuple[int, ...]], Theta: np.ndarray
) -> np.ndarray:
    """All steps of an epoch with these batches."""
    count, whole = len(Theta), None
    for step, batch in zip(steps, order, strict=True):
        keep, gain = _step(algorithm, step, Theta)
        mask = np.zeros(count)
        mask[list(batch)] = count / algorithm.batch_size
        one = keep + gain @ (mask[:, None] * _residual(Theta, len(keep)))
        whole = one if whole is None else one @ whole
    assert whole is not None
    return whole


def _orders(algorithm: AbstractAlgorithm, count: int, batches: int) -> list[tuple[tuple[int, ...], ...]]:
    """All sequences of so many batches of an epoch."""
    found: list[tuple[tuple[int, ...], ...]] = [()]
    for _ in range(batches):
        found = [
            (*order, batch)
            for order in found
            for batch in itertools.combinations(
                sorted(set(range(count)) - set(itertools.chain(*order))), algorithm.batch_size
            )
        ]
    return found


def _number_of_orders(size: int, count: int) -> int:
    batches = count // size
    return math.factorial(count) // (math.factorial(size) ** batches * math.factorial(count - size * batches))
