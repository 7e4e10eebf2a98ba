r"""One input through the layers at infinite width: K, Theta and both susceptibilities of every layer.

Scalars from the table of averages, so that a thousand layers take milliseconds for any activation.
"""

from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.two_legs.leg_table import leg_table
from finitewidth.gaussian.two_legs.one_leg import require_continuous
from finitewidth.network.mlp import MLP


class Trajectory(NamedTuple):
    """Numbers of each layer, (L,); chi of layer l moves it to layer l + 1. Infinite beyond doubles."""

    K: np.ndarray
    Theta: np.ndarray
    parallel: np.ndarray  # C_W^(l+1) d<sigma^2>/dK; the last layer's uses its own C_W
    perpendicular: np.ndarray


def trajectory(net: MLP, input_scale: float) -> Trajectory:
    """Layer by layer, for an input whose components have mean square `input_scale`."""
    require_continuous(net.activation)
    K, Theta = np.full(net.depth, np.inf), np.full(net.depth, np.inf)
    parallel, perpendicular = np.full(net.depth, np.nan), np.full(net.depth, np.nan)
    K[0] = net.C_b[0] + net.C_W[0] * input_scale
    Theta[0] = net.lambda_b[0] + net.lambda_W[0] * input_scale
    table = leg_table(net.activation)
    for l in range(net.depth):
        C_W = net.C_W[min(l + 1, net.depth - 1)]
        averages = table(K[l : l + 1])
        square, slope = averages.square[0], averages.slope[0]
        parallel[l], perpendicular[l] = C_W * averages.growth[0], C_W * slope
        if l + 1 == net.depth or not np.isfinite(square):  # beyond the table
            break
        K[l + 1] = net.C_b[l + 1] + C_W * square
        Theta[l + 1] = net.lambda_b[l + 1] + net.lambda_W[l + 1] * square + C_W * slope * Theta[l]
    return Trajectory(K, Theta, parallel, perpendicular)
