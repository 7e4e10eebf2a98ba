"""Dense layers: every output neuron sees every input neuron."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from finitewidth.network.layers.abstract import AbstractWeights, Shape
from finitewidth.network.layers.weights import as_ensemble, check_weights


@dataclass(frozen=True, repr=False)
class Dense(AbstractWeights):
    r"""Weights and biases, $z_i = b_i + \sum_j W_{ij} x_j$, the same at every position (PDLT chapter 2).

    Orthogonal weights are $\sqrt{C_W m / n_{in}}$ times a corner of a random orthogonal matrix of
    $m = \max(n_{in}, n_{out})$ rows, as `torch.nn.init.orthogonal_` makes them: $C_W$ keeps its meaning,
    $E[WW] = C_W / n_{in}$, and infinite width does not change.

    Args:
        width: The number of neurons.
        C_b: The variance of biases.
        C_W: The variance of weights times the number of inputs.
        lambda_b: The learning rate of biases, relative to the global one.
        lambda_W: The learning rate of weights times the number of inputs, relative to the global one.
        weights: What weights are drawn from, "gaussian" or "orthogonal".

    ```python
    fw.Network(2, fw.Dense(64, C_b=0.1, C_W=1.2), "tanh", fw.Dense(1))
    fw.Network(2, fw.Dense(64, weights="orthogonal"), "tanh", fw.Dense(1))  # a Gaussian readout
    ```
    """

    width: int
    C_b: float = 0.0
    C_W: float = 1.0
    lambda_b: float = 1.0
    lambda_W: float = 1.0
    weights: str = "gaussian"

    def __post_init__(self):
        check_weights(self)
        as_ensemble("weights", self.weights)

    @property
    def is_orthogonal(self) -> bool:
        return self.weights == "orthogonal"

    def orthogonality(self, fan_in: int) -> float:
        """min(1, n_in / n_out) of orthogonal weights, 0 of Gaussian ones: what isometry takes from 1/n."""
        return min(1.0, fan_in / self.width) if self.is_orthogonal else 0.0

    def fan_in(self, shape: Shape) -> int:
        """The number of inputs of a neuron."""
        return shape[-1]

    def with_outputs(self, width: int) -> "Dense":
        return dataclasses.replace(self, width=width)

    def with_fewer_outputs(self, width: int, shape: Shape) -> "Dense":
        """Rows of one orthogonal matrix are alike up to their number of inputs; beyond, the width matters."""
        if not self.is_orthogonal:
            return self.with_outputs(width)
        fan_in = self.fan_in(shape)
        return self if self.width > fan_in else self.with_outputs(min(width, fan_in))

    def to_plain(self) -> dict[str, Any]:
        plain = super().to_plain()
        return plain if self.is_orthogonal else {k: v for k, v in plain.items() if k != "weights"}

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.width)
