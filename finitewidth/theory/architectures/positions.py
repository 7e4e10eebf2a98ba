"""Filters, pools and flattening: what they do to pairs of sites, as sparse matrices.

A filter or a flattened vector has independent weights on its taps, so that both sites of a pair move with one
tap; a pool averages the two sites of a pair by themselves.
"""

import functools
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.pooling import AveragePool, GlobalAveragePool
from finitewidth.network.layers.windows import Axis
from finitewidth.theory.architectures.signal import PairMatrix


def of_filter(layer: Conv, shape: Shape, samples: int) -> PairMatrix:
    """The mean over the taps of a filter; where taps read padding, nothing is added."""
    axes = layer.axes(shape)
    taps = [_of_one_tap(axes, tap, samples) for tap in np.ndindex(*(axis.taps for axis in axes))]
    return _mean_over_taps(taps)


def of_flattening(shape: Shape, samples: int) -> PairMatrix:
    """The mean over positions, each of which has weights of its own."""
    count = int(np.prod(shape[:-1]))
    one = sparse.csr_array(np.eye(samples))
    taps = [sparse.csr_array(sparse.kron(one, np.eye(count)[p : p + 1])) for p in range(count)]
    return _mean_over_taps(taps)


def of_pool(layer: AveragePool | GlobalAveragePool, shape: Shape, samples: int) -> PairMatrix:
    """The averages of both sites of a pair."""
    if isinstance(layer, GlobalAveragePool):
        count = int(np.prod(shape[:-1]))
        positions = sparse.csr_array(np.full((1, count), 1 / count))
    else:
        matrices = (_averages(axis, counts=layer.count_padding) for axis in layer.axes(shape))
        positions = functools.reduce(sparse.kron, matrices)
    sites = sparse.kron(np.eye(samples), positions, format="csr")
    return sparse.csr_array(sparse.kron(sites, sites, format="csr"))


def _mean_over_taps(taps: Sequence[sparse.csr_array]) -> PairMatrix:
    total = sum(sparse.kron(tap, tap, format="csr") for tap in taps)
    return sparse.csr_array(total / len(taps))


def _of_one_tap(axes: Sequence[Axis], tap: tuple[int, ...], samples: int) -> sparse.csr_array:
    positions = functools.reduce(sparse.kron, map(_tap_along, axes, tap))
    return sparse.csr_array(sparse.kron(np.eye(samples), positions, format="csr"))


def _tap_along(axis: Axis, tap: int) -> sparse.csr_array:
    """The input position that one tap reads for each output."""
    places, inside = axis.sources()
    rows = np.flatnonzero(inside[:, tap])
    return sparse.csr_array((np.ones(rows.size), (rows, places[rows, tap])), shape=(axis.output, axis.size))


def _averages(axis: Axis, *, counts: bool) -> sparse.csr_array:
    total = sparse.csr_array(sum(_tap_along(axis, tap) for tap in range(axis.taps)))
    inside = np.full(axis.output, axis.taps) if counts else axis.sources()[1].sum(axis=1)
    return sparse.csr_array(sparse.diags_array(1 / inside) @ total)
