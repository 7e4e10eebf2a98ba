"""G1 and H1 of all pairs from tensors of small groups of samples, for networks with skip connections.

Dense networks have them faster, by recursions closed on two labels (`theory/unrolled/pair_corrections.py`).
"""

import functools
import itertools

import numpy as np

from finitewidth.core.tasks import HERE, Runner
from finitewidth.network.network import Network
from finitewidth.theory.solve import solve_with

GROUP = 8  # samples; two groups at a time cost little more than one sample


def grouped_corrections(
    net: Network, X: np.ndarray, tolerance: float, running: Runner = HERE
) -> tuple[np.ndarray, np.ndarray]:
    """G1 and H1 of the output, (N, N) each, from groups of samples two at a time."""
    N = X.shape[0]
    G1, H1 = np.empty((N, N)), np.empty((N, N))
    pairs = group_pairs(N)
    work = functools.partial(_of_pair, net, X, pairs, tolerance)
    results = running.results(work, len(pairs), name="pairs", what="corrections of pairs", at_once=2)
    for rows, blocks in zip(pairs, results, strict=True):
        for whole, name in ((G1, "G1"), (H1, "H1")):
            whole[np.ix_(rows, rows)] = blocks[name][: rows.size, : rows.size]
    return G1, H1


def _of_pair(
    net: Network, X: np.ndarray, pairs: list[np.ndarray], tolerance: float, pair: int
) -> dict[str, np.ndarray]:
    """G1 and H1 of two groups, filled up with zeros to the size of the largest two."""
    rows = pairs[pair]
    options = {"layers": (net.depth,), "tensors": (), "four_leg_tolerance": tolerance}
    out = solve_with(HERE, net, X[rows], **options).output
    missing = pairs[0].size - rows.size
    return {"G1": np.pad(out.G1, (0, missing)), "H1": np.pad(out.H1, (0, missing))}


def group_pairs(count: int) -> list[np.ndarray]:
    """Samples of every two groups, so that every two samples are in one of them."""
    groups = [np.arange(start, min(start + GROUP, count)) for start in range(0, count, GROUP)]
    if len(groups) == 1:
        return groups
    return [np.concatenate(pair) for pair in itertools.combinations(groups, 2)]
