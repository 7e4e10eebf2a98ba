"""Dense layers: every output neuron sees every input neuron."""

from dataclasses import dataclass, replace

from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values, shown
from finitewidth.network.layers.weights import check_weights


@dataclass(frozen=True)
class Dense(AbstractLayer):
    r"""Weights and biases, $z_i = b_i + \sum_j W_{ij} x_j$, the same at every position.

    Biases have variance `C_b` and weights `C_W` over the number of inputs; they learn at rates `lambda_b` and
    `lambda_W` over the number of inputs, times the global learning rate (PDLT chapters 2 and 8).
    """

    width: int
    C_b: float = 0.0
    C_W: float = 1.0
    lambda_b: float = 1.0
    lambda_W: float = 1.0

    def __post_init__(self):
        check_weights(self)

    @property
    def has_weights(self) -> bool:
        return True

    def fan_in(self, shape: Shape) -> int:
        """The number of inputs of a neuron."""
        return shape[-1]

    def with_outputs(self, width: int) -> "Dense":
        return replace(self, width=width)

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.width)

    def values_behind(self, values: Values) -> Values:
        return Values.GAUSSIAN

    def __repr__(self) -> str:
        return shown(self)
