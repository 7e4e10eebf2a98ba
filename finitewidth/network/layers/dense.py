"""Dense layers: every output neuron sees every input neuron."""

import dataclasses
import math
from dataclasses import dataclass

from finitewidth.core.inputs import as_number
from finitewidth.network.layers.abstract import AbstractLayer, Shape

WIDEST = 2**53  # whole numbers beyond that are not numbers of double precision
HYPERPARAMETERS = ("C_b", "C_W", "lambda_b", "lambda_W")


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
        object.__setattr__(self, "width", as_width("width", self.width))
        for name in HYPERPARAMETERS:
            number = as_number(getattr(self, name))
            if not (math.isfinite(number) and number >= 0):
                raise ValueError(
                    f"{name} must be finite and at least 0, got {getattr(self, name)!r}; change it."
                )
            object.__setattr__(self, name, number)

    @property
    def has_weights(self) -> bool:
        return True

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.width)

    def to_plain(self) -> dict:
        return {"kind": "Dense", **dataclasses.asdict(self)}

    def __repr__(self) -> str:
        changed = (f for f in dataclasses.fields(self)[1:] if getattr(self, f.name) != f.default)
        shown = "".join(f", {f.name}={getattr(self, f.name):.8g}" for f in changed)
        return f"Dense({self.width}{shown})"


def as_width(name: str, value) -> int:
    """A number of neurons."""
    number = as_number(value)
    if not (math.isfinite(number) and number == int(number) and 1 <= number <= WIDEST):
        raise ValueError(f"{name} must be a whole number from 1 to 2^53, got {value!r}.")
    return int(number)
