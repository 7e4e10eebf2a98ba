r"""An activation and the weights behind it, at every position, at order 1/n.

Without positions and norms this is the step of dense networks. Sources, maps and corrections are the same
with sites in the place of samples, and a matrix A on pairs of sites stands behind the ties,

$$X' = A\,(\text{source} + r R\, X\, C^T)\, A^T, \qquad K' = C_b + A\,(C_W \langle\sigma\sigma\rangle),$$

since different taps of a filter have independent weights. A norm that has subtracted the mean over channels
makes different channels anticorrelated, $E[u_i u_k] = -\tilde K/n$, and tangents likewise by
$\tilde\Theta$: the sources of V, D, A and F lose

$$\sum_{ab} \langle\partial_a \Psi\rangle \tilde K_{ab} \langle\partial_b \Psi\rangle, \qquad
  C_W^2 \langle\sigma'_1\sigma_3\rangle \tilde\Theta_{12} \langle\sigma'_2\sigma_4\rangle.$$
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.two_legs.averages import relative_two_legs
from finitewidth.network.ladder import NotAtFirstOrder
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.theory.architectures import gains
from finitewidth.theory.architectures.signal import (
    PairMatrix,
    Signal,
    crosses_mixed,
    mixed,
)
from finitewidth.theory.feature_products import FourLegs
from finitewidth.theory.features import feature_maps
from finitewidth.theory.layers.activation import Moments
from finitewidth.theory.layers.dense import Means
from finitewidth.theory.recursion import Blocks, State, next_layer
from finitewidth.theory.steps import Step

Weights = Dense | Conv
_BLOCKS = (("v", "v"), ("x", "v"), ("x", "x"), ("f", "f"), ("b", "b"))


class Detail(NamedTuple):
    """What is followed through the network: all, without what kinks forbid, or the kernel alone."""

    bare: bool = False
    kernel_only: bool = False

    @property
    def features(self) -> str:
        """The features of which there are blocks."""
        return "v" if self.kernel_only else "vfb" if self.bare else "vxfb"


def reader(signal: Signal) -> Activation:
    """The activation that the next weights read through."""
    return signal.activation or as_activation("linear")


def first_weights(
    signal: Signal, layer: Weights, shape, matrix: PairMatrix | None, detail: Detail, *, only_means: bool
) -> Signal:
    """The first weights, which read data: nothing fluctuates there."""
    data = signal.state if matrix is None else mixed(signal.state, matrix)
    K, Theta = layer.C_b + layer.C_W * data.K, layer.lambda_b + layer.lambda_W * data.K
    if only_means:
        return Signal(State(K, Theta, None, None), shape, signal.channels)
    blocks = {key: np.zeros((len(K),) * 4) for key in _BLOCKS if key[0] in detail.features}
    G1, H1 = (np.zeros_like(K) if wanted else None for wanted in (not detail.bare, "x" in detail.features))
    return Signal(State(K, Theta, G1, H1, blocks), shape, signal.channels)


def step_of(signal: Signal, layer: Weights, moments: Moments, detail: Detail) -> Step:
    """The step of dense networks on the sites in front of the weights, without biases."""
    state, C, lW = signal.state, layer.C_W, layer.lambda_W
    Theta = state.Theta + signal.offset
    square, slope = moments.sigma.value, moments.slope.value
    above = Means(C * square, lW * square + C * Theta * slope)
    if signal.gain:
        assert moments.gains is not None
        above = above._replace(Theta=above.Theta + C * signal.gain * moments.gains.value)
    plain = Dense(layer.width, C_b=0.0, C_W=C, lambda_b=0.0, lambda_W=lW)
    ratio = signal.channels / signal.stripped
    means = Means(state.K, Theta)
    step = Step(reader(signal), plain, ratio, means, above, moments, False, detail.bare)
    return replace(step, gain=signal.gain, kernel_only=detail.kernel_only)


def behind_weights(
    signal: Signal, layer: Weights, shape, matrix: PairMatrix | None, step: Step, averages: FourLegs
) -> Signal:
    """The signal behind an activation and weights; `matrix` takes pairs of sites through the weights."""
    state = next_layer(signal.state, step, averages)
    if signal.gain and not step.kernel_only:
        gains.add(state.blocks, step, averages)
    if signal.is_centred:
        _take_mean_away(state.blocks, signal, step)
    crosses = signal.crosses_moved(tuple(feature_maps(step)))
    if matrix is not None:
        state, crosses = mixed(state, matrix), crosses_mixed(crosses, matrix)
    state = replace(state, K=layer.C_b + state.K, Theta=layer.lambda_b + state.Theta)
    return Signal(state, shape, signal.channels, crosses=crosses)


def only_means(signal: Signal, layer: Weights, shape, matrix: PairMatrix | None, step: Step) -> Signal:
    """K and Theta behind the weights."""
    above = step.above if matrix is None else mixed(State(*step.above, None, None), matrix)
    state = State(layer.C_b + above.K, layer.lambda_b + above.Theta, None, None)
    return Signal(state, shape, signal.channels)


def _take_mean_away(blocks: Blocks, signal: Signal, step: Step) -> None:
    """Subtract from the sources what channels owe to the mean that a norm has taken from all of them."""
    state, C = signal.state, step.C_W
    known = _single_slopes(step, with_ntk=("x", "x") in blocks)
    first = C * known[0]
    answers = {"v": _answers(first)}
    if ("x", "x") in blocks:
        assert known[1] is not None
        answers["x"] = _answers(step.lambda_W * known[0] + C * step.Theta * known[1])
        if step.gain:
            answers["x"] += step.C_W * step.gain * _answers(gains.single_slope(step))
    for row, column in (("v", "v"), ("x", "v"), ("x", "x")):
        if (row, column) in blocks:
            blocks[row, column] -= np.einsum(
                "abp,pq,cdq->abcd", answers[row], state.K, answers[column], optimize=True
            )
    if ("f", "f") in blocks:
        blocks["f", "f"] -= np.einsum("ab,ac,cd->abcd", first, state.Theta, first, optimize=True)


def _answers(slopes: np.ndarray) -> np.ndarray:
    """d<Psi_12> by a shift of each site (N, N, N), from <d_1 Psi_12>."""
    count = len(slopes)
    result, index = np.zeros((count,) * 3), np.arange(count)
    result[index, :, index] += slopes
    result[:, index, index] += slopes.T
    return result


def _single_slopes(step: Step, *, with_ntk: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """<sigma'_1 sigma_2> and, where the NTK is asked for, <sigma''_1 sigma'_2>."""
    activation, K = step.activation, step.K
    if activation.is_smooth:
        orders = ((1, 0), (2, 1)) if with_ntk else ((1, 0),)
        values, _ = relative_two_legs(activation, K, orders)
        return values[1, 0], values.get((2, 1))
    values, _ = relative_two_legs(activation, K, ((1, 0),))
    return values[1, 0], _slope_of_slopes(activation, K) if with_ntk else None


def _slope_of_slopes(activation: Activation, K: np.ndarray) -> np.ndarray:
    """<sigma''_1 sigma'_2> of two straight lines: the density at the kink times the mean slope there."""
    if activation.slopes is None:
        raise NotAtFirstOrder(
            f"D, A and H1 of fw.LayerNorm before activation {activation.name!r}, which has kinks"
        )
    plus, minus = activation.slopes
    density = 1 / np.sqrt(2 * math.pi * np.diag(K))
    return np.broadcast_to((density * (plus - minus) * (plus + minus) / 2)[:, None], K.shape)
