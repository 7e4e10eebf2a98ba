"""What every layer is: a frozen value with rules for shapes and for what may come before it."""

import abc
import dataclasses
import enum
from collections.abc import Iterator
from typing import Any

from finitewidth.network.layers.weights import RateRule

Shape = tuple[int, ...]  # of one sample: positions, then channels


class Values(enum.Enum):
    """What flows between two layers, as far as the theory asks."""

    DATA = "the input"
    GAUSSIAN = "preactivations"  # Gaussian of mean zero, alike in all channels of a position
    ACTIVATED = "an activation"
    SUMMED = "a skip that carries what an activation gave"
    FLATTENED = "fw.Flatten()"  # channels that came from different positions
    DROPPED = "fw.Dropout()"
    GAINED = "fw.LayerNorm with a gain that learns"  # Gaussian, but the NTK of a neuron knows its value
    CARRIED = "a skip behind fw.LayerNorm with a gain that learns"  # the NTK knows a part of the value

    @property
    def is_gaussian(self) -> bool:
        """Whether values are Gaussian of mean zero, alike in all channels of a position."""
        return self in (Values.GAUSSIAN, Values.GAINED, Values.CARRIED)


class AbstractLayer(abc.ABC):
    """One layer of a network, as a value.

    The theory of a kind of layer stands in one file of `theory/layers`, its use in real networks in one
    file of `experiment/layers`; both are found by the type of the layer.
    """

    @property
    def has_weights(self) -> bool:
        """Whether the layer ends in weights; layers of a network are counted by these."""
        return False

    @property
    def depth(self) -> int:
        """The number of layers that it counts for: layers with weights, inside a residual body too."""
        return int(self.has_weights)

    @abc.abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """The shape of one sample behind the layer, or an error that says why it does not fit."""

    def values_behind(self, values: Values) -> Values:
        """What stands behind the layer, or an error if the theory does not allow it after `values`."""
        return values

    @property
    def is_homogeneous(self) -> bool:
        """Whether outputs c times as large stand behind inputs c times as large, for c > 0, in training too.

        Layers inside are asked on their own.
        """
        return False

    @property
    def has_fixed_rates(self) -> bool:
        """Whether it has parameters whose learning rates nobody can choose."""
        return False

    def with_rates(self, rule: RateRule, shape: Shape) -> "AbstractLayer":
        """The layer with other learning rates of weights and biases, for samples of this shape before it."""
        return self

    def frozen(self) -> "AbstractLayer":
        """The layer with all learning rates zero."""
        return self

    def walk(self) -> "Iterator[AbstractLayer]":
        """The layer itself and all layers inside it, in the order in which signals meet them."""
        yield self

    def up_to(self, count: int) -> "tuple[AbstractLayer, ...]":
        """The layers through which signals pass up to its layer `count` with weights, from 1 to `depth`."""
        return (self,)

    def with_outputs(self, width: int) -> "AbstractLayer":
        """The layer with another number of output neurons; itself where what comes in fixes that number."""
        return self

    def with_fewer_outputs(self, width: int, shape: Shape) -> "AbstractLayer":
        """The layer with so many output neurons, as far as no statistic of a neuron depends on the number."""
        return self.with_outputs(width)

    def to_plain(self) -> Any:
        """The layer in plain numbers and strings, for TOML and stores."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"kind": type(self).__name__} | {
            name: _listed(value) for name, value in fields.items() if value is not None
        }

    @classmethod
    def from_plain(cls, fields: dict[str, Any]) -> "AbstractLayer":
        """The layer that `to_plain` wrote down, without its kind."""
        return cls(**{name: _tupled(value) for name, value in fields.items()})

    def __repr__(self) -> str:
        return shown(self)


class AbstractWeights(AbstractLayer):
    """Weights and biases with a `width`, variances `C_b` and `C_W`, and rates `lambda_b` and `lambda_W`."""

    C_b: float
    lambda_b: float

    @property
    def has_weights(self) -> bool:
        return True

    @property
    def is_homogeneous(self) -> bool:
        return self.C_b == 0 and self.lambda_b == 0

    @property
    def is_orthogonal(self) -> bool:
        """Whether weights are a corner of a random orthogonal matrix, and not independent."""
        return False

    @abc.abstractmethod
    def fan_in(self, shape: Shape) -> int:
        """The number of inputs of a neuron."""

    def with_rates(self, rule: RateRule, shape: Shape) -> "AbstractWeights":
        lambda_b, lambda_W = rule(self, self.fan_in(shape))
        return dataclasses.replace(self, lambda_b=lambda_b, lambda_W=lambda_W)  # type: ignore[type-var]

    def frozen(self) -> "AbstractWeights":
        return dataclasses.replace(self, lambda_b=0.0, lambda_W=0.0)  # type: ignore[type-var]

    def values_behind(self, values: Values) -> Values:
        return Values.GAUSSIAN


def shown(layer: Any) -> str:
    """A frozen layer as one would type it: the fields that differ from their defaults."""
    parts = []
    for place, field in enumerate(dataclasses.fields(layer)):
        value = getattr(layer, field.name)
        if value != field.default:
            text = f"{value:.8g}" if isinstance(value, float) else repr(value)
            parts.append(text if place == 0 else f"{field.name}={text}")
    return f"{type(layer).__name__}({', '.join(parts)})"


def _listed(value: Any) -> Any:
    """Tuples as lists, which is what TOML has."""
    if isinstance(value, tuple):
        return [_listed(part) for part in value]
    return value.to_plain() if isinstance(value, AbstractLayer) else value


def _tupled(value: Any) -> Any:
    """Lists as tuples, which is what layers hold."""
    return tuple(_tupled(part) for part in value) if isinstance(value, list) else value
