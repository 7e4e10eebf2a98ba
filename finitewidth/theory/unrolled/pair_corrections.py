r"""G1 and H1 of all pairs of inputs, for dense networks with smooth activations.

The corrections of a pair need the tensors V, D and F with labels on this pair only, and these recursions
close on two labels. So every tensor is a few matrices of pairs, and time grows as N^2. The maps are those of
`theory/features.py`, written out for two labels; `theory/recursion.py` has them for any four. V is that of
`theory/vertex/corners.py`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.gaussian.two_legs.two_samples import TwoSamples, two_samples
from finitewidth.network.network import Network
from finitewidth.theory import features
from finitewidth.theory.averages import mean
from finitewidth.theory.layers.pair_map import PairMap
from finitewidth.theory.pairs.propagation import first_layer
from finitewidth.theory.steps import Step, steps
from finitewidth.theory.vertex import corners
from finitewidth.theory.vertex.corners import Corners


class PairCorrections(NamedTuple):
    """Corrections of order 1/n to the kernel and NTK of the output, and the error of four-leg averages."""

    G1: np.ndarray  # (N, N)
    H1: np.ndarray
    error: float


@dataclass(frozen=True, eq=False)
class _OnPairs:
    """V, D and F on the labels i, j of every pair, with G1 and H1; (N, N) each but for V."""

    V: Corners  # between the pairs (i i), (i j), (j j)
    D_ijii: np.ndarray
    D_ijij: np.ndarray
    F_iiji: np.ndarray
    F_iijj: np.ndarray
    F_ijji: np.ndarray
    G1: np.ndarray
    H1: np.ndarray

    @classmethod
    def first(cls, count: int) -> "_OnPairs":
        """Nothing fluctuates in the first layer."""
        zero = np.zeros((count, count))
        return cls(np.zeros((count, count, 3, 3)), *[zero] * 7)


def pair_corrections(net: Network, X: np.ndarray) -> PairCorrections:
    """G1 and H1 of the output layer on checked inputs."""
    state, error = _OnPairs.first(X.shape[0]), 0.0
    for step in steps(net, first_layer(net, X, ACCURACY), net.depth, ACCURACY):
        averages = two_samples(step.activation, step.K)
        error = max(error, averages.error)
        state = _next(state, step, averages)
    return PairCorrections(state.G1, state.H1, error)


def _next(now: _OnPairs, step: Step, averages: TwoSamples) -> _OnPairs:
    values = (*_kernel(now, step, averages), *_mixed(now, step, averages), *_means(now, step))
    return _OnPairs(*values)  # in the order of its fields


def _diagonal(matrix: np.ndarray) -> np.ndarray:
    return np.diag(matrix)[:, None]


def _responses(step: Step) -> tuple[PairMap, PairMap]:
    """How <s s> and <s' s'> answer to the kernel."""
    sigma, slope = step.moments.sigma.slope, step.moments.slope.slope
    assert sigma is not None and slope is not None
    return sigma, slope


def _kernel(now: _OnPairs, step: Step, averages: TwoSamples) -> list[np.ndarray]:
    """V and D of the next layer."""
    sigma, slope = _responses(step)
    from_kernel = sigma.scaled(step.lambda_W).plus(slope.scaled(step.C_W * step.Theta))
    value, r, C = step.moments.sigma.value, step.width_ratio, step.C_W
    X = mean(features.created(step)["x"], step.moments)
    alone, one = _diagonal(value), corners.answer(step.moments.sigma)[..., 0, 0]
    fourth = _diagonal(averages.squares)
    created = corners.covariances(fourth, averages.cube_one, averages.squares, value)
    V, columns = corners.moved(step, now.V, created)
    # the columns (i i) and (i j) of V moved up, for each of the rows (i i), (i j), (j j)
    on_ii, on_ij = (np.moveaxis(columns[..., place], -1, 0) for place in (0, 1))
    gradients = step.lambda_W * averages.cube_one + C * step.Theta * averages.sloped_square
    both = step.lambda_W * averages.squares + C * step.Theta * averages.sloped_pair
    slopes = C * step.moments.slope.value
    D_ijii = gradients - X * alone + r * (_sum(from_kernel, *on_ii) + slopes * one * now.D_ijii)
    own = slopes * _sum(sigma, now.D_ijii, now.D_ijij, now.D_ijii.T)
    D_ijij = both - X * value + r * (_sum(from_kernel, *on_ij) + own)
    return [V, C * D_ijii, C * D_ijij]


def _sum(pair_map: PairMap, first: np.ndarray, both: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The map applied to values of the pairs (i i), (i j), (j j)."""
    parts = zip(pair_map, (first, both, second), strict=True)
    return sum(part * value for part, value in parts if part is not None)  # type: ignore[return-value]


def _mixed(now: _OnPairs, step: Step, averages: TwoSamples) -> list[np.ndarray]:
    """F of the next layer."""
    leading, slopes = step.moments.leading, step.moments.slope.value
    assert leading is not None
    one, r = _diagonal(leading) + _diagonal(slopes), step.width_ratio
    across = leading.T * now.F_iijj + slopes * now.F_iiji  # the column (j i) of the row (i i)
    crossed = leading * across + slopes * (leading.T * now.F_iiji.T + slopes * now.F_ijji)
    F_iiji = step.Theta * averages.sloped_square + r * one * across
    F_iijj = step.Theta * averages.sloped_pair + r * one * one.T * now.F_iijj
    F_ijji = step.Theta * averages.sloped_pair + r * crossed
    return [step.C_W**2 * F for F in (F_iiji, F_iijj, F_ijji)]


def _means(now: _OnPairs, step: Step) -> tuple[np.ndarray, np.ndarray]:
    """G1 and H1 of the next layer."""
    signal = corners.correction(step.moments.sigma, now.G1, now.V)
    slope, r = step.moments.slope, step.width_ratio
    D, F = now.D_ijii, now.F_iiji
    tied = _sum(_responses(step)[1], D + 2 * F, now.D_ijij + now.F_iijj + now.F_ijji, (D + 2 * F).T)
    gradient = now.H1 * slope.value + step.Theta * corners.correction(slope, now.G1, now.V) + tied
    return r * step.C_W * signal, r * (step.lambda_W * signal + step.C_W * gradient)
