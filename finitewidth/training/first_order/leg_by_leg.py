r"""The mean at order 1/n for many training points, with nothing of size N^4 stored.

At the end of training every contribution is a tensor with one slot on the sample d and a dual on the other
three: the algorithm's symbol times the targets, on three training modes. Duals have N_A^3 entries; tensors
are contracted with them (`theory/unrolled/leg_by_leg.py`), and the part that the training set already
explains is subtracted last.
"""

import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np

from finitewidth.core.cores import on_all_cores
from finitewidth.core.tasks import HERE, Runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.network import Network
from finitewidth.theory.unrolled.leg_by_leg import LegSlices, Request, contract_slots
from finitewidth.theory.unrolled.unroll import unroll
from finitewidth.training.first_order.eigenmodes import Modes, with_free_symbols
from finitewidth.training.first_order.leg_by_leg_cost import check_time, require_memory_for
from finitewidth.training.first_order.mean_terms import LINEAR, TENSORS, TERMS, Term, dual, three_residuals


def streamed_contributions(
    net: Network,
    X: np.ndarray,
    modes: Modes,
    algorithm: AbstractAlgorithm,
    *,
    tolerance: float,
    budget: float = math.inf,
    running: Runner = HERE,
) -> dict[str, np.ndarray]:
    """n times the contributions to the mean at the end of training, on all samples, (N, n_L) each.

    What does not fit into memory, or takes longer than `budget` seconds by a pilot, is refused.
    """
    require_memory_for(modes, len(X))
    check_time(net, X, modes, algorithm, _requests, tolerance=tolerance, budget=budget, running=running)
    slices = LegSlices(unroll(net, X), functools.partial(_requests, modes, algorithm), tolerance)
    parts = list(zip(slices.requests, contract_slots(slices, running), strict=True))
    totals = {
        name: -np.sum([part.T for request, part in parts if request.tensor in tensors], axis=0)
        for name, tensors in TENSORS.items()
    }
    return {name: _minus_explained(total, modes) for name, total in totals.items()}


def _minus_explained(total: np.ndarray, modes: Modes) -> np.ndarray:
    """X_d - H_dA (training NTK)^-1 X_A: minus the part that the training set explains."""
    count = modes.count
    gain = modes.back(modes.H[:, :count], 0) / modes.l  # samples, modes
    result = total - gain @ (modes.vectors.T @ total[:count])
    result[:count] = 0.0
    return result


def _requests(modes: Modes, algorithm: AbstractAlgorithm) -> list[Request]:
    def request(dual: tuple[tuple[str, int], np.ndarray]) -> Request:
        key, array = dual
        return Request(*key, _in_samples(array, modes.vectors))

    return [made for _, made in on_all_cores(request, duals(modes, algorithm))]


def duals(modes: Modes, algorithm: AbstractAlgorithm) -> Iterator[tuple[tuple[str, int], np.ndarray]]:
    """For each tensor and open slot, the dual on the other three slots, (n_L, N_A, N_A, N_A) in modes."""
    Z = with_free_symbols(algorithm.symbols(modes.l), modes.l).outputs
    residuals = three_residuals(modes.y, modes.training_kernel, modes.summed_kernel)
    for name, terms in TERMS.items():
        weights = modes.y if name in LINEAR else residuals
        for key, group in itertools.groupby(sorted(terms, key=_place), key=_place):
            yield key, dual(tuple(group), Z, weights, modes.outputs)


def _place(term: Term) -> tuple[str, int]:
    return term.tensor, term.open_slot


def _in_samples(array: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """A dual from modes to samples."""
    for axis in (1, 2, 3):
        array = np.moveaxis(np.tensordot(vectors, array, (1, axis)), 0, axis)
    return np.ascontiguousarray(array)
