r"""The mean at order 1/n for many training points, with nothing of size N^4 stored.

At the end of training every contribution is a tensor with one slot on the sample d and a dual on the other
three: what the algorithm and the targets make of three training modes. Duals have N_A^3 entries; tensors are
contracted with them leg by leg (`theory/unrolled_slots.py`), and the training set's share is taken off last.
H1 and G1 are needed between pairs of samples only and come from small groups of samples.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from finitewidth.network import MLP
from finitewidth.theory.solve import solve
from finitewidth.theory.unroll import unroll
from finitewidth.theory.unrolled_slots import Request, contract_slots
from finitewidth.training.corrections import Modes
from finitewidth.training.symbols import Symbols

GROUP = 8  # samples; two groups at a time are as many as cost little more than one sample
Dual = tuple[str, str, int, np.ndarray]  # contribution, tensor, open slot, (n_L, N_A, N_A, N_A) in modes


def pair_corrections(
    net: MLP, X: np.ndarray, tolerance: float, done: Callable[[], None] = lambda: None
) -> tuple[np.ndarray, np.ndarray]:
    """G1 and H1 of the output, (N, N) each, from groups of samples two at a time."""
    N = X.shape[0]
    G1, H1 = np.empty((N, N)), np.empty((N, N))
    for rows in group_pairs(N):
        out = solve(net, X[rows], layers=(net.depth,), tensors=(), four_leg_tolerance=tolerance).output
        G1[np.ix_(rows, rows)], H1[np.ix_(rows, rows)] = out.G1, out.H1
        done()
    return G1, H1


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
    symbols: Symbols,
    *,
    tolerance: float,
    done: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """n times the contributions to the mean on all samples, (N, n_L) each."""
    if symbols.absorbed is not None:
        raise ValueError(
            "at a finite time the mean at order 1/n needs whole tensors, too large for so many samples; use "
            "the end of training (time or steps infinite), or fewer inputs."
        )
    listed = list(duals(modes, symbols))
    requests = [Request(tensor, slot, _in_samples(dual, modes.vectors)) for _, tensor, slot, dual in listed]
    found = contract_slots(unroll(net, X), requests, tolerance=tolerance, done=done)
    totals: dict[str, np.ndarray] = {}
    for (name, *_), part in zip(listed, found, strict=True):
        totals[name] = totals.get(name, 0.0) - part.T
    return {name: _beyond_training(total, modes) for name, total in totals.items()}


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
    yield "ntk_fluctuation", "A", 0, fluctuation
    yield "ntk_fluctuation", "B", 0, fluctuation + n_L * spread("ib,am->bam", inverse)  # B_dbaa
    of_a, of_b = spread("ib,am->abm", Z_A), spread("ia,bm->abm", Z_A)  # the last slot on mode a, or on b
    straight = 2 * spread("ib,am->abm", Z_B)
    yield "dntk", "P", 0, straight
    yield "dntk", "Q", 0, straight + 2 * n_L * spread("ib,am->bam", Z_B)
    yield "dntk", "P", 1, n_L * of_a + of_b
    yield "dntk", "Q", 1, of_a + n_L * of_b
    yield "dntk", "Q", 2, of_a + of_b


def _cubic_duals(modes: Modes, symbols: Symbols) -> Iterator[Dual]:
    y, kernel, Z = modes.y, modes.training_kernel, symbols.outputs
    mixed = np.einsum("ab,ic->iabc", kernel, y)
    first = np.einsum("ia,bc->iabc", y, modes.pair) + mixed + mixed.transpose(0, 1, 3, 2)  # T(a|bc)
    second, third = first.transpose(0, 3, 1, 2), first.transpose(0, 2, 3, 1)  # T(b|ca), T(c|ab) at a b c
    yield "ddntk_1", "R", 0, 3 * Z["IB"] * first
    yield "ddntk_1", "R", 1, Z["IA"] * first
    # R is symmetric in its last two slots, so R_acdb is R_acbd
    yield "ddntk_1", "R", 3, Z["IA"] * third + (Z["IA"] * second).transpose(0, 1, 3, 2)
    yield "ddntk_2", "S", 0, Z["IIB"] * first
    yield "ddntk_2", "S", 2, Z["IIA"] * third
    yield "ddntk_2", "T", 0, (Z["IIB"] * second).transpose(0, 2, 3, 1)  # T_dbca
    yield "ddntk_2", "T", 1, (Z["IIA"] * first).transpose(0, 1, 3, 2)  # T_adcb
    yield "ddntk_2", "U", 0, (Z["IIB"] * third).transpose(0, 3, 1, 2)  # U_dcab
    yield "ddntk_2", "U", 3, (Z["IIA"] * second).transpose(0, 1, 3, 2)  # U_acbd
