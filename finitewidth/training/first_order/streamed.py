r"""The mean at order 1/n for many training points, with nothing of size N^4 stored.

At the end of training every contribution is a tensor with one slot on the sample d and a dual on the other
three: what the algorithm and the targets make of three training modes. Duals have N_A^3 entries; tensors are
contracted with them leg by leg (`theory/unrolled_slots.py`), and the training set's share is taken off last.
H1 and G1 are needed between pairs of samples only and come from small groups of samples.
"""

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from finitewidth.core.tasks import HERE, Runner
from finitewidth.network.algorithm import Algorithm
from finitewidth.network.mlp import MLP
from finitewidth.theory.solve import solve_with
from finitewidth.theory.unrolled.slots import LegSlices, Request, contract_slots
from finitewidth.theory.unrolled.unroll import unroll
from finitewidth.training.first_order.corrections import Modes
from finitewidth.training.first_order.symbols import Symbols, symbols

GROUP = 8  # samples; two groups at a time are as many as cost little more than one sample
Dual = tuple[str, int, np.ndarray]  # tensor, open slot, (n_L, N_A, N_A, N_A) in modes
TENSORS = {"ntk_fluctuation": "AB", "dntk": "PQ", "ddntk_1": "R", "ddntk_2": "STU"}  # by contribution


def pair_corrections(
    net: MLP, X: np.ndarray, tolerance: float, running: Runner = HERE
) -> tuple[np.ndarray, np.ndarray]:
    """G1 and H1 of the output, (N, N) each, from groups of samples two at a time."""
    N = X.shape[0]
    G1, H1 = np.empty((N, N)), np.empty((N, N))
    pairs = group_pairs(N)
    work = functools.partial(_of_pair, net, X, pairs, tolerance)
    results = running.results(work, len(pairs), name="pairs", what="corrections of pairs", at_once=2)
    for rows, found in zip(pairs, results, strict=True):
        for whole, name in ((G1, "G1"), (H1, "H1")):
            whole[np.ix_(rows, rows)] = found[name][: rows.size, : rows.size]
    return G1, H1


def _of_pair(
    net: MLP, X: np.ndarray, pairs: list[np.ndarray], tolerance: float, pair: int
) -> dict[str, np.ndarray]:
    """G1 and H1 of two groups, filled up with zeros to the size of the largest two."""
    rows = pairs[pair]
    options = {"layers": (net.depth,), "tensors": (), "four_leg_tolerance": tolerance}
    out = solve_with(HERE, net, X[rows], **options).output
    missing = pairs[0].size - rows.size
    return {"G1": np.pad(out.G1, (0, missing)), "H1": np.pad(out.H1, (0, missing))}


def group_pairs(count: int) -> list[np.ndarray]:
    """Samples of every two groups, so that every two samples meet."""
    groups = [np.arange(start, min(start + GROUP, count)) for start in range(0, count, GROUP)]
    if len(groups) == 1:
        return groups
    return [np.concatenate(pair) for pair in itertools.combinations(groups, 2)]


def streamed_contributions(
    net: MLP,
    X: np.ndarray,
    modes: Modes,
    algorithm: Algorithm,
    *,
    tolerance: float,
    running: Runner = HERE,
) -> dict[str, np.ndarray]:
    """n times the contributions to the mean at the end of training, on all samples, (N, n_L) each."""
    slices = LegSlices(unroll(net, X), functools.partial(_requests, modes, algorithm), tolerance)
    found = list(zip(slices.requests, contract_slots(slices, running), strict=True))
    totals = {
        name: -np.sum([part.T for request, part in found if request.tensor in tensors], axis=0)
        for name, tensors in TENSORS.items()
    }
    return {name: _beyond_training(total, modes) for name, total in totals.items()}


def _requests(modes: Modes, algorithm: Algorithm) -> list[Request]:
    listed = duals(modes, symbols(algorithm, modes.l))
    return [Request(tensor, slot, _in_samples(dual, modes.vectors)) for tensor, slot, dual in listed]


def _beyond_training(total: np.ndarray, modes: Modes) -> np.ndarray:
    """X_d - H_dA (training NTK)^-1 X_A."""
    count = modes.count
    gain = modes.back(modes.H[:, :count], 0) / modes.l  # samples, modes
    result = total - gain @ (modes.vectors.T @ total[:count])
    result[:count] = 0.0
    return result


def _in_samples(dual: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    for axis in (1, 2, 3):
        dual = np.moveaxis(np.tensordot(vectors, dual, (1, axis)), 0, axis)
    return np.ascontiguousarray(dual)


def duals(modes: Modes, symbols: Symbols) -> Iterator[Dual]:
    """What every tensor meets on the slots that are not open; minus the sum of all is the mean."""
    yield from _linear_duals(modes, symbols)
    yield from _cubic_duals(modes, symbols)


def _linear_duals(modes: Modes, symbols: Symbols) -> Iterator[Dual]:
    y, n_L, l = modes.y, modes.outputs, modes.l
    Z_A, Z_B, same = symbols.outputs["A"], symbols.outputs["B"], np.eye(l.size)
    inverse = 1 / np.multiply.outer(l, l)

    def spread(subscripts: str, Z: np.ndarray) -> np.ndarray:
        """Z_ab y_i and a Kronecker delta, in the slots that `subscripts` name."""
        legs, result = subscripts.split("->")
        return np.einsum(f"ab,{legs}->i{result}", Z, y, same)

    fluctuation = spread("ib,am->amb", inverse)  # X_daab
    yield "A", 0, fluctuation
    yield "B", 0, fluctuation + n_L * spread("ib,am->bam", inverse)  # B_dbaa
    of_a, of_b = spread("ib,am->abm", Z_A), spread("ia,bm->abm", Z_A)  # the last slot on mode a, or on b
    straight = 2 * spread("ib,am->abm", Z_B)
    yield "P", 0, straight
    yield "Q", 0, straight + 2 * n_L * spread("ib,am->bam", Z_B)
    yield "P", 1, n_L * of_a + of_b
    yield "Q", 1, of_a + n_L * of_b
    yield "Q", 2, of_a + of_b


def _cubic_duals(modes: Modes, symbols: Symbols) -> Iterator[Dual]:
    y, kernel, Z = modes.y, modes.training_kernel, symbols.outputs
    mixed = np.einsum("ab,ic->iabc", kernel, y)
    first = np.einsum("ia,bc->iabc", y, modes.pair) + mixed + mixed.transpose(0, 1, 3, 2)  # T(a|bc)
    second, third = first.transpose(0, 3, 1, 2), first.transpose(0, 2, 3, 1)  # T(b|ca), T(c|ab) at a b c
    yield "R", 0, 3 * Z["IB"] * first
    yield "R", 1, Z["IA"] * first
    # R is symmetric in its last two slots, so R_acdb is R_acbd
    yield "R", 3, Z["IA"] * third + (Z["IA"] * second).transpose(0, 1, 3, 2)
    yield "S", 0, Z["IIB"] * first
    yield "S", 2, Z["IIA"] * third
    yield "T", 0, (Z["IIB"] * second).transpose(0, 2, 3, 1)  # T_dbca
    yield "T", 1, (Z["IIA"] * first).transpose(0, 1, 3, 2)  # T_adcb
    yield "U", 0, (Z["IIB"] * third).transpose(0, 3, 1, 2)  # U_dcab
    yield "U", 3, (Z["IIA"] * second).transpose(0, 1, 3, 2)  # U_acbd
