"""Dense layers: every output neuron sees every input neuron."""

import dataclasses
from dataclasses import dataclass

from finitewidth.network.layers.abstract import AbstractWeights, Shape
from finitewidth.network.layers.weights import check_weights


@dataclass(frozen=True, repr=False)
class Dense(AbstractWeights):
    r"""Weights and biases, $z_i = b_i + \sum_j W_{ij} x_j$, the same at every position (PDLT chapter 2).

    Args:
        width: The number of neurons.
        C_b: The variance of biases.
        C_W: The variance of weights times the number of inputs.
        lambda_b: The learning rate of biases, relative to the global one.
        lambda_W: The learning rate of weights times the number of inputs, relative to the global one.

    ```python
    fw.Network(2, fw.Dense(64, C_b=0.1, C_W=1.2), "tanh", fw.Dense(1))
    ```
    """

    width: int
    C_b: float = 0.0
    C_W: float = 1.0
    lambda_b: float = 1.0
    lambda_W: float = 1.0

    def __post_init__(self):
        check_weights(self)

    def fan_in(self, shape: Shape) -> int:
        """The number of inputs of a neuron."""
        return shape[-1]

    def with_outputs(self, width: int) -> "Dense":
        return dataclasses.replace(self, width=width)

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.width)
