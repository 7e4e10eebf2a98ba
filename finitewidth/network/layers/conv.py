"""Convolutions: one small filter with shared weights at every position."""

import math
from dataclasses import dataclass

from finitewidth.network.layers.abstract import AbstractWeights, Shape
from finitewidth.network.layers.weights import check_weights
from finitewidth.network.layers.windows import Axis, Padding, as_padding, as_sizes, axes


@dataclass(frozen=True, repr=False)
class Conv(AbstractWeights):
    r"""A convolution over one or two axes, $z_{p,i} = b_i + \sum_{f,j} W_{f,ij}\, x_{sp+f,j}$.

    Args:
        width: The number of channels behind it.
        filter: The size of the filter, one number or one for each axis.
        stride: By how much it moves, one number or one for each axis.
        padding: "same", "valid", "circular", a number of zeros on both sides, or for each axis a number or a
            pair (before, after), as in PyTorch. "same" puts an odd zero behind.
        C_b: The variance of biases.
        C_W: The variance of weights times the number of inputs of a neuron: channels times taps of the
            filter, also where taps read padding.
        lambda_b: The learning rate of biases.
        lambda_W: The learning rate of weights times the number of inputs of a neuron.

    ```python
    fw.Network((8, 8, 1), fw.Conv(64, filter=5, stride=2), "relu", fw.Flatten(), fw.Dense(10))
    ```
    """

    width: int
    filter: int | tuple[int, ...] = 3
    stride: int | tuple[int, ...] = 1
    padding: Padding = "same"
    C_b: float = 0.0
    C_W: float = 1.0
    lambda_b: float = 1.0
    lambda_W: float = 1.0

    def __post_init__(self):
        check_weights(self)
        object.__setattr__(self, "filter", as_sizes("filter", self.filter))
        object.__setattr__(self, "stride", as_sizes("stride", self.stride))
        object.__setattr__(self, "padding", as_padding(self.padding))

    def axes(self, shape: Shape) -> tuple[Axis, ...]:
        """The filter along each axis of positions."""
        return axes("Conv", shape, self.filter, self.stride, self.padding)

    def fan_in(self, shape: Shape) -> int:
        """The number of inputs of a neuron: channels times taps."""
        return shape[-1] * math.prod(axis.taps for axis in self.axes(shape))

    def output_shape(self, shape: Shape) -> Shape:
        return (*(axis.output for axis in self.axes(shape)), self.width)
