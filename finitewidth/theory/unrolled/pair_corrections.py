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
from finitewidth.theory.feature_products import mean
from finitewidth.theory.layers.isometry import Isometry
from finitewidth.theory.recursion import Fluctuations, corrected_means
from finitewidth.theory.steps import Step, first_layer, steps
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
    def first(cls, isometry: Isometry | None, count: int) -> "_OnPairs":
        """Nothing fluctuates in the first layer, but V of orthogonal weights."""
        zero = np.zeros((count, count))
        return cls(corners.first(isometry, count), *[zero] * 7)


def pair_corrections(net: Network, X: np.ndarray) -> PairCorrections:
    """G1 and H1 of the output layer on checked inputs."""
    first = first_layer(net, X)
    state, error = _OnPairs.first(Isometry.first(net.ladder, first), X.shape[0]), 0.0
    for step in steps(net, first, net.depth, ACCURACY):
        averages = two_samples(step.activation, step.K)
        error = max(error, averages.error)
        state = _next(state, step, averages)
    return PairCorrections(state.G1, state.H1, error)


def _next(now: _OnPairs, step: Step, averages: TwoSamples) -> _OnPairs:
    values = (*_kernel(now, step, averages), *_mixed(now, step, averages), *_means(now, step))
    return _OnPairs(*values)  # in the order of its fields


def _diagonal(matrix: np.ndarray) -> np.ndarray:
    return np.diag(matrix)[:, None]


def _kernel(now: _OnPairs, step: Step, averages: TwoSamples) -> list[np.ndarray]:
    """V and D of the next layer."""
    sigma, from_kernel = step.moments.sigma.gradient, features.kernel_maps(step)["x"]["v"]
    assert sigma is not None
    value, r, C = step.moments.sigma.value, step.width_ratio, step.C_W
    X = mean(features.created(step)["x"], step.moments)
    variance, one = _diagonal(value), corners.answer(step.moments.sigma)[..., 0, 0]
    fourth = _diagonal(averages.squares)
    created = corners.covariances(fourth, averages.cube_one, averages.squares, value)
    V, columns = corners.moved(step, now.V, created)
    # the columns (i i) and (i j) of V moved up, for each of the rows (i i), (i j), (j j)
    on_ii, on_ij = (np.moveaxis(columns[..., place], -1, 0) for place in (0, 1))
    gradients = step.lambda_W * averages.cube_one + C * step.Theta * averages.sloped_square
    both = step.lambda_W * averages.squares + C * step.Theta * averages.sloped_pair
    slopes = C * step.moments.slope.value
    D_ijii = gradients - X * variance + r * (from_kernel.of_three(*on_ii) + slopes * one * now.D_ijii)
    own = slopes * sigma.of_three(now.D_ijii, now.D_ijij, now.D_ijii.T)
    D_ijij = both - X * value + r * (from_kernel.of_three(*on_ij) + own)
    return [V, C * D_ijii, C * D_ijij]


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
    above, isometry = [step.C_W**2 * F for F in (F_iiji, F_iijj, F_ijji)], Isometry.behind(step)
    if isometry is None:
        return above
    lost = isometry.share * isometry.t
    return [F - lost * k for F, k in zip(above, (_diagonal(isometry.k), isometry.k, isometry.k), strict=True)]


def _means(now: _OnPairs, step: Step) -> tuple[np.ndarray, np.ndarray]:
    """G1 and H1 of the next layer."""
    on_first = now.D_ijii + 2 * now.F_iiji
    on_both = now.D_ijij + now.F_iijj + now.F_ijji
    return corrected_means(now.G1, now.H1, step, Fluctuations(now.V, on_first, on_both, on_first.T))
