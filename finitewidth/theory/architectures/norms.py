r"""Layer norm and RMS norm at order 1/n: maps of signals.

$$u_a = \frac{z_a - m_a}{\sqrt{v_a + \epsilon}}, \qquad c_a = \frac{1}{\sqrt{K_{aa} + \epsilon}}, \qquad
  \tilde K_{ab} = c_a c_b K_{ab}$$

A norm sees the Gram matrix of its channels. That fluctuates because of the layers below (V) and because its
channels are finitely many, by the covariance w of pairs of one channel; both count alike. The derivatives
of $\tilde K$ and $\tilde\Theta$ by the Gram matrix are the row maps N, and the blocks behind the norm, the
connected ones between different channels, are

$$\tilde X = N (X + w) N^T - \tilde w.$$

The mean that a layer norm subtracts makes different channels anticorrelated, which the next weights see
(`weights.py`). Gains and offsets that learn wait for the activation (`gains.py`).
"""

import numpy as np

from finitewidth.network.ladder import NotAtFirstOrder
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.theory.architectures.signal import Normed, Signal, bare_pairs
from finitewidth.theory.features import FeatureMaps
from finitewidth.theory.layers.activation import corners_of
from finitewidth.theory.layers.pair_map import PairMap
from finitewidth.theory.recursion import Blocks, State, propagate


def normalized(signal: Signal, layer: AbstractNorm) -> Signal:
    """The signal behind a norm."""
    kind = type(layer).__name__
    if signal.gain or signal.waits:
        what = "a norm with a gain that learns" if signal.gain else "fw.Flatten"
        raise NotAtFirstOrder(f"fw.{kind} behind {what}")
    if layer.axes == "all" and len(signal.shape) > 1:
        raise NotAtFirstOrder(f'fw.{kind} with axes="all" over positions')
    state = signal.state
    variances = np.diag(state.K) + layer.epsilon
    if not (variances > 0).all():
        raise ValueError(f"{kind} with epsilon=0 meets a variance of zero; use epsilon=1e-5.")
    c = variances**-0.5
    maps = row_maps(state, c)
    bare = State(np.outer(c, c) * state.K, np.outer(c, c) * state.Theta, None, None)
    blocks: Blocks = {}
    if state.blocks:
        full = signal.with_own_noise()
        for family in maps[:2]:
            blocks |= propagate(full, family)
        blocks |= propagate(state.blocks, maps[2])
        for key, noise in bare_pairs(bare).items():
            if key in blocks and key != ("b", "b"):
                blocks[key] -= signal.share * noise
    mean = signal.share if layer.subtracts_mean else 0.0
    G1, H1 = _corrections(signal, c, maps, mean) if state.G1 is not None else (None, None)
    return signal.replaced(
        state=State(bare.K, bare.Theta, G1, H1, blocks),
        is_centred=layer.subtracts_mean,
        gain=layer.lambda_gain,
        offset=layer.lambda_offset + signal.offset,
        crosses=signal.crosses_moved(maps),
        normed=Normed(signal, layer.epsilon, mean),
    )


def row_maps(state: State, c: np.ndarray) -> tuple[FeatureMaps, ...]:
    """N: how kernel and NTK, mixed pairs and pairs of tangents behind the norm answer to those before it."""
    cc, first, second = np.outer(c, c), (c**2)[:, None], (c**2)[None, :]
    K, Theta = cc * state.K, cc * state.Theta
    kernel: FeatureMaps = {
        "v": {"v": PairMap(-0.5 * K * first, cc, -0.5 * K * second)},
        "x": {"v": PairMap(-0.5 * Theta * first, None, -0.5 * Theta * second), "x": PairMap(None, cc)},
    }
    return kernel, {"f": {"f": PairMap(-K * first, cc)}}, {"b": {"b": PairMap(None, cc)}}


def _corrections(signal: Signal, c: np.ndarray, maps: tuple[FeatureMaps, ...], mean: float):
    """G1 and H1 behind the norm: what moves, and what fluctuations give to second order."""
    state, full = signal.state, signal.with_own_noise()
    assert state.G1 is not None
    cc, first, second = np.outer(c, c), (c**2)[:, None], (c**2)[None, :]
    K, Theta = cc * state.K, cc * state.Theta
    moved, kernel = state.G1 - mean * state.K, maps[0]
    G1 = kernel["v"]["v"].of_pairs(moved)
    V = corners_of(full["v", "v"])
    index = np.arange(len(K))
    a, b = index[:, None], index[None, :]
    twice = 3 / 8 * (first**2 * V[..., 0, 0] + second**2 * V[..., 2, 2]) + first * second * V[..., 0, 2] / 4
    G1 = G1 - 0.5 * cc * (first * V[..., 1, 0] + second * V[..., 1, 2]) + K * twice
    if state.H1 is None:
        return G1, None
    H1 = kernel["x"]["v"].of_pairs(moved) + cc * (state.H1 - mean * state.Theta)
    D, F = corners_of(full["x", "v"])[..., 1, :], full["f", "f"]
    H1 = H1 - 0.5 * cc * (first * D[..., 0] + second * D[..., 2]) + Theta * twice
    H1 = H1 - cc * (second * F[a, b, b, b] + first * F[b, a, a, a]) + K * cc**2 * F[a, a, b, b]
    return G1, H1
