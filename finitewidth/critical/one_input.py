"""One input through the layers at infinite width: K, Theta and both susceptibilities of every layer.

Scalars from the table of averages, so that a thousand layers take milliseconds for any activation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.two_legs.leg_table import LegTable, leg_table
from finitewidth.gaussian.two_legs.one_leg import require_continuous
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.theory.layers.dense import Means, behind_weights
from finitewidth.theory.steps import TwoLegs, over_depth

_REPETITIONS = 50  # of the network above itself, at most
_FOLLOWED = 20_000  # layers in all these, at most
_SETTLED = 1e-10  # a kernel that one repetition changes by less has arrived


class OneInput(NamedTuple):
    """Numbers of each layer, (L,); chi of layer l takes it to layer l + 1. Infinite beyond doubles."""

    K: np.ndarray
    Theta: np.ndarray
    parallel: np.ndarray  # C_W^(l+1) d<sigma^2>/dK; the last layer's uses its own C_W
    perpendicular: np.ndarray
    arriving: np.ndarray  # mean square of the signal that the layer's weights multiply


def layer_by_layer(net: Network, input_scale: float) -> OneInput:
    """The numbers of each layer for an input whose components have mean square `input_scale`."""
    return _follow(net, behind_weights(net.dense[0], input_scale), input_scale)


def layers_repeated(net: Network, start: float) -> OneInput:
    """The last of many copies of layers 2 to L above each other, the first of which receives K = `start`.

    It shows where the kernel of a stack of different layers ends: at the fixed point of one repetition.
    """
    copies = max(2, min(_REPETITIONS, _FOLLOWED // net.depth))
    path = _follow(net, Means(start, np.nan), np.nan)
    for _ in range(copies - 1):
        if not np.isfinite(path.K[-1]) or abs(path.K[-1] - start) <= _SETTLED * start:
            break
        start = float(path.K[-1])
        path = _follow(net, Means(start, np.nan), np.nan)
    return path


def is_dense(net: Network) -> bool:
    """Whether the network has dense layers and activations only, so that one number is one input."""
    return net.not_dense is None


def readers(net: Network) -> tuple[Activation, ...]:
    """The activation on each layer's preactivations, (L,).

    Nothing reads the output layer. The last activation stands in for its reader, so that the susceptibilities
    of the output layer are those of one more layer of the same kind. A network of one layer has the
    activation that it was declared with.
    """
    if net.activations:
        return (*net.activations, net.activations[-1])
    declared = net.activation if isinstance(net, MLP) else as_activation("linear")
    return declared if isinstance(declared, tuple) else (declared,)


def _follow(net: Network, first: Means, input_scale: float) -> OneInput:
    tables, means, seen = _tables(net), [first], []

    def averages(layer: int, K: float) -> TwoLegs:
        table = tables[layer - 1](np.array([K]))
        seen.append((table.square[0], table.slope[0], table.growth[0]))
        return TwoLegs(*seen[-1][:2])

    for _, (square, _, _), above in over_depth(net.ladder, first, averages):
        if not np.isfinite(square):  # beyond the table
            break
        means.append(above)
    else:
        averages(net.depth, means[-1].K)
    (K, Theta), (square, slope, growth) = zip(*means, strict=True), zip(*seen, strict=True)
    C_W = np.array([*net.C_W[1:], net.C_W[-1]])[: len(seen)]
    arriving = [input_scale, *square][: len(means)]
    columns = (K, np.inf), (Theta, np.inf), (C_W * growth, np.nan), (C_W * slope, np.nan), (arriving, np.nan)
    return OneInput(*(_up_to_depth(net.depth, *column) for column in columns))


def _up_to_depth(depth: int, known: Sequence[float] | np.ndarray, beyond: float) -> np.ndarray:
    return np.array([*known, *[beyond] * (depth - len(known))], dtype=float)


def _tables(net: Network) -> list[LegTable]:
    chosen = readers(net)
    for activation in dict.fromkeys(chosen):
        require_continuous(activation)
    tables = {activation: leg_table(activation) for activation in dict.fromkeys(chosen)}
    return [tables[activation] for activation in chosen]
