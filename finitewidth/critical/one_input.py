r"""One input through the layers at infinite width: K, Theta and both susceptibilities of every layer.

Scalars from the table of averages, so that a thousand layers take milliseconds for any activation. Each step
from layer l to l + 1 is that of its own activation:

$$K^{(l+1)} = C_b + C_W \langle\sigma_l^2\rangle_{K^{(l)}}, \qquad
  \Theta^{(l+1)} = \lambda_b + \lambda_W \langle\sigma_l^2\rangle_{K^{(l)}} + \chi_\perp^{(l)} \Theta^{(l)}$$
"""

from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.two_legs.leg_table import LegTable, leg_table
from finitewidth.gaussian.two_legs.one_leg import require_continuous
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network

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
    return _follow(net, net.C_b[0] + net.C_W[0] * input_scale, input_scale)


def layers_repeated(net: Network, start: float) -> OneInput:
    """The last of many copies of layers 2 to L above each other, the first of which receives K = `start`.

    It shows where the kernel of a stack of different layers ends: at the fixed point of one repetition.
    """
    copies = max(2, min(_REPETITIONS, _FOLLOWED // net.depth))
    for _ in range(copies):
        path = _follow(net, start, np.nan)
        if not np.isfinite(path.K[-1]) or abs(path.K[-1] - start) <= _SETTLED * start:
            break
        start = float(path.K[-1])
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


def _follow(net: Network, start: float, input_scale: float) -> OneInput:
    tables = _tables(net)
    K, Theta, arriving = (np.full(net.depth, end) for end in (np.inf, np.inf, np.nan))
    parallel, perpendicular = np.full(net.depth, np.nan), np.full(net.depth, np.nan)
    K[0], arriving[0] = start, input_scale
    Theta[0] = net.lambda_b[0] + net.lambda_W[0] * input_scale
    for l in range(net.depth):
        C_W = net.C_W[min(l + 1, net.depth - 1)]
        averages = tables[l](K[l : l + 1])
        square, slope = averages.square[0], averages.slope[0]
        parallel[l], perpendicular[l] = C_W * averages.growth[0], C_W * slope
        if l + 1 == net.depth or not np.isfinite(square):  # beyond the table
            break
        arriving[l + 1] = square
        K[l + 1] = net.C_b[l + 1] + C_W * square
        Theta[l + 1] = net.lambda_b[l + 1] + net.lambda_W[l + 1] * square + C_W * slope * Theta[l]
    return OneInput(K, Theta, parallel, perpendicular, arriving)


def _tables(net: Network) -> list[LegTable]:
    chosen = readers(net)
    for activation in dict.fromkeys(chosen):
        require_continuous(activation)
    tables = {activation: leg_table(activation) for activation in dict.fromkeys(chosen)}
    return [tables[activation] for activation in chosen]
