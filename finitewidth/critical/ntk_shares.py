r"""What each layer adds to the neural tangent kernel of one input.

At infinite width the NTK of an input is a sum over the layers with weights,

$$\Theta = \sum_l g_l \left(\lambda_b^{(l)} + \lambda_W^{(l)} s_l\right),$$

with the mean square $s_l$ of the signal that arrives at the layer and the gradient $g_l$ between it and the
output. A layer whose share is small hardly learns; biases whose share is large limit the learning rate.
"""

import math
import numbers
from dataclasses import dataclass

import numpy as np

from finitewidth.core.display.records import shown
from finitewidth.critical.architectures.one_signal import contributions_to_ntk
from finitewidth.critical.architectures.weights import Weights, with_weights
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.network.network import Network


@shown("Theta", "biases", "weights")
@dataclass(frozen=True, eq=False)
class NTKShares:
    """The NTK of one input at infinite width, divided into what biases and weights of each layer add.

    `fw.critical.shares` makes it.

    ```python
    print(fw.critical.shares(fw.MLP.critical((2, 64, 64, 1), "tanh")))
    ```
    """

    biases: np.ndarray  # what the biases of each layer add, (L,)
    weights: np.ndarray  # what the weights of each layer add, (L,)

    @property
    def Theta(self) -> float:
        """The NTK, the sum of all shares."""
        return float(self.biases.sum() + self.weights.sum())

    def __str__(self) -> str:
        rows = zip(self.biases / self.Theta, self.weights / self.Theta, strict=True)
        lines = [f"{l:5d}  {b:7.2%}  {W:7.2%}" for l, (b, W) in enumerate(rows, start=1)]
        return "\n".join([f"NTK {self.Theta:.6g}, of which", "layer   biases  weights", *lines])


def shares(net: Network, *, input_scale=1.0) -> NTKShares:
    """What biases and weights of each layer add to the NTK of an input; the shares sum to the NTK.

    Layers are those with weights, in the order in which signals meet them, also inside residual bodies.
    Positions of a convolution are taken to be alike; networks without positions are exact. `SelfAttention`,
    and a `LayerNorm` that learns, are refused.

    Args:
        net: The network.
        input_scale: The mean square of the input components.

    Returns:
        Shares of `biases` and `weights`, an entry for each layer.

    ```python
    shares = fw.critical.shares(fw.MLP.critical((2, 64, 64, 1), "tanh"))
    shares.biases / shares.Theta  # most of the NTK if lambda_b = lambda_W, a tenth with bias_share=0.1
    ```
    """
    if not (isinstance(input_scale, numbers.Real) and math.isfinite(input_scale) and input_scale > 0):
        raise ValueError(f"input_scale must be a finite number above 0, got {input_scale!r}.")
    _refuse_other_learners(net)
    layers: list[Weights] = []

    def listed(layer: Weights) -> Weights:
        layers.append(layer)
        return layer

    with_weights(net.layers, listed)
    contributions = contributions_to_ntk(net.layers, net.input_shape, float(input_scale))
    pairs = list(zip(layers, contributions, strict=True))
    return NTKShares(
        np.array([layer.lambda_b * one.of_biases for layer, one in pairs]),
        np.array([layer.lambda_W * one.of_weights for layer, one in pairs]),
    )


def _refuse_other_learners(net: Network) -> None:
    if net.fixed_rates is not None:
        raise ValueError(
            f"net has {net.fixed_rates}, whose share in the NTK depends on all positions; leave it out."
        )
    for layer in net.walked:
        if isinstance(layer, AbstractNorm) and (layer.lambda_gain or layer.lambda_offset):
            raise ValueError(
                f"net has {layer!r}, whose gain and offset learn; set lambda_gain=0 and lambda_offset=0."
            )
