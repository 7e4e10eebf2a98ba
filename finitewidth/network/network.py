"""The network that is studied: an input shape and a sequence of layers, as one value."""

import functools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.plain import layers_from_plain
from finitewidth.network.layers.sequence import LayerLike, as_layer, output_shape, shown_layers, values_behind
from finitewidth.network.layers.weights import as_width


class Network:
    """A network: the shape of one input and the layers behind it, in order.

    `input_shape` is a number of components, or a tuple whose last entry counts channels. A layer is a value
    such as `fw.Dense(64)`; an activation is a name, an `fw.Activation` or a function of z. Networks are
    immutable, comparable and hashable. Layers are counted by those with weights, from 1 to `depth`.
    """

    input_shape: Shape
    layers: tuple[AbstractLayer, ...]

    def __init__(self, input_shape: int | Sequence[int], *layers: LayerLike):
        object.__setattr__(self, "input_shape", _as_shape(input_shape))
        object.__setattr__(self, "layers", tuple(as_layer(layer) for layer in layers))
        _check_end(self.layers, self.output_shape)

    @functools.cached_property
    def output_shape(self) -> Shape:
        """The shape of one output."""
        return output_shape(self.layers, self.input_shape)

    @property
    def outputs(self) -> int:
        """n_L, the number of output neurons."""
        return self.output_shape[-1]

    @functools.cached_property
    def depth(self) -> int:
        """L, the number of layers with weights; those inside a residual body count, those of a skip not."""
        return sum(layer.depth for layer in self.layers)

    @functools.cached_property
    def walked(self) -> tuple[AbstractLayer, ...]:
        """All layers, also those inside others, in the order in which signals meet them."""
        return tuple(inner for layer in self.layers for inner in layer.walk())

    @functools.cached_property
    def discontinuous(self) -> Activation | None:
        """The first activation that jumps, so that the network has a kernel but no NTK; or None."""
        return next((one for one in self._activations_walked if one.jump_order < 1), None)

    @functools.cached_property
    def _activations_walked(self) -> tuple[Activation, ...]:
        return tuple(layer for layer in self.walked if isinstance(layer, Activation))

    @functools.cached_property
    def is_smooth(self) -> bool:
        """Whether all derivatives of all activations that the theory uses exist everywhere."""
        return all(activation.is_smooth for activation in self._activations_walked)

    @functools.cached_property
    def jump_order(self) -> float:
        """The lowest order of derivative that jumps in any activation; infinite for smooth ones."""
        return min((activation.jump_order for activation in self._activations_walked), default=float("inf"))

    @property
    def activation_name(self) -> str:
        """The name of the activation, or the names in order where they differ."""
        names = [str(activation.name) for activation in self._activations_walked]
        if not names:
            return "linear"
        return names[0] if len(set(names)) == 1 else ", ".join(names)

    # --- networks of dense layers --------------------------------------------------------------------

    @functools.cached_property
    def blocks(self) -> tuple[tuple[AbstractLayer, ...], ...]:
        """The layers in groups that end in weights: block l takes layer l - 1 to layer l."""
        ends = [place for place, layer in enumerate(self.layers, start=1) if layer.has_weights]
        return tuple(self.layers[a:b] for a, b in zip([0, *ends], ends, strict=False))

    @functools.cached_property
    def dense(self) -> tuple[Dense, ...]:
        """The dense layers, one for each l = 1 ... L."""
        for layer in self.layers:
            if not isinstance(layer, Dense | Activation):
                raise ValueError(
                    f"{type(layer).__name__} is no dense layer, and this knows networks of dense layers and "
                    "activations only; what has order=0 takes any network."
                )
        return tuple(block[-1] for block in self.blocks)  # type: ignore[misc]

    @functools.cached_property
    def activations(self) -> tuple[Activation, ...]:
        """The activation on the preactivations of each layer l = 1 ... L - 1; linear where there is none."""
        return tuple(_activation_of(block) for block in self.blocks[1:])

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """n_0 ... n_L."""
        return (self.input_shape[-1], *(layer.width for layer in self.dense))

    @functools.cached_property
    def C_b(self) -> tuple[float, ...]:
        """The variance of the biases of each layer."""
        return tuple(layer.C_b for layer in self.dense)

    @functools.cached_property
    def C_W(self) -> tuple[float, ...]:
        """The variance of the weights of each layer, times their number of inputs."""
        return tuple(layer.C_W for layer in self.dense)

    @functools.cached_property
    def lambda_b(self) -> tuple[float, ...]:
        """The learning rate of the biases of each layer."""
        return tuple(layer.lambda_b for layer in self.dense)

    @functools.cached_property
    def lambda_W(self) -> tuple[float, ...]:
        """The learning rate of the weights of each layer, times their number of inputs."""
        return tuple(layer.lambda_W for layer in self.dense)

    @property
    def parameter_count(self) -> int:
        """How many biases and weights the network has."""
        pairs = zip(self.widths, self.widths[1:], strict=False)
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairs)

    @functools.cached_property
    def kinked_layer(self) -> float:
        """The first layer whose activation is not smooth, counted from 1; infinite if there is none."""
        layers = enumerate(self.activations, start=1)
        return next((layer for layer, activation in layers if not activation.is_smooth), float("inf"))

    @property
    def kinked(self) -> Activation | None:
        """The first activation that is not smooth, or None."""
        return next((one for one in self._activations_walked if not one.is_smooth), None)

    def with_widths(self, widths: Sequence[int]) -> "Network":
        """The same layers with other widths n_0 ... n_L."""
        if len(widths) != len(self.widths):
            raise ValueError(f"widths must name n_0 ... n_{self.depth}, got {tuple(widths)!r}.")
        new = iter(widths[1:])
        layers = (
            Dense(next(new), layer.C_b, layer.C_W, layer.lambda_b, layer.lambda_W)
            if isinstance(layer, Dense)
            else layer
            for layer in self.layers
        )
        return Network((*self.input_shape[:-1], widths[0]), *layers)

    # --- copies, comparison, text --------------------------------------------------------------------

    def replace(
        self, *, input_shape: int | Sequence[int] | None = None, layers: Iterable[LayerLike] | None = None
    ) -> "Network":
        """A copy with another input shape or other layers."""
        shape = self.input_shape if input_shape is None else input_shape
        return Network(shape, *(self.layers if layers is None else layers))

    def to_dict(self) -> dict:
        """Plain numbers and strings from which `from_dict` makes an equal network."""
        return {
            "input_shape": list(self.input_shape),
            "layers": [layer.to_plain() for layer in self.layers],
        }

    @classmethod
    def from_dict(cls, fields: Mapping) -> "Network":
        """The network that `to_dict` wrote down."""
        for name in fields:
            if name not in ("input_shape", "layers"):
                raise ValueError(f"network has no field {name!r}; its fields are input_shape, layers.")
        for name in ("input_shape", "layers"):
            if name not in fields:
                raise ValueError(f"network needs a field {name!r}; add it.")
        return Network(fields["input_shape"], *layers_from_plain(fields["layers"]))

    def to_toml(self) -> str:
        """The network as a TOML table."""
        import tomli_w

        return tomli_w.dumps({"network": self.to_dict()})

    @classmethod
    def from_toml(cls, text: str) -> "Network":
        """The network that `to_toml` wrote down."""
        return cls.from_dict(network_table(text, "input_shape and layers"))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; use replace for a copy with other fields.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Network):
            return NotImplemented
        return (self.input_shape, self.layers) == (other.input_shape, other.layers)

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.input_shape, self.layers))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self):
        return _remade, (self.input_shape, self.layers)

    def __repr__(self) -> str:
        shape = self.input_shape[0] if len(self.input_shape) == 1 else self.input_shape
        return f"Network({', '.join([str(shape), *shown_layers(self.layers)])})"


def network_table(text: str, wanted: str) -> Mapping:
    """The table [network] of a TOML text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"network is not valid TOML: {error}.") from None
    if not isinstance(table.get("network"), dict):
        raise ValueError(f"TOML needs a table [network] with {wanted}; add it.")
    return table["network"]


def _remade(input_shape: Shape, layers: tuple[AbstractLayer, ...]) -> Network:
    return Network(input_shape, *layers)


def _as_shape(shape: int | Sequence[int]) -> Shape:
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        return (as_width("input_shape", shape),)
    if not shape:
        raise ValueError("input_shape must name at least the number of components, got ().")
    return tuple(as_width("input_shape", size) for size in shape)


def _activation_of(block: tuple[AbstractLayer, ...]) -> Activation:
    chosen = [layer for layer in block if isinstance(layer, Activation)]
    return chosen[0] if chosen else as_activation("linear")


def _check_end(layers: tuple[AbstractLayer, ...], shape: Shape) -> None:
    """The output is one vector of Gaussian preactivations."""
    behind = values_behind(layers, Values.DATA)
    if not layers or not layers[-1].has_weights:
        raise ValueError("layers must end in weights; add fw.Dense(outputs).")
    if behind is not Values.GAUSSIAN:
        raise ValueError(
            f"the last skip carries {behind.value}, so the output is not Gaussian; add fw.Dense(outputs)."
        )
    if len(shape) > 1:
        raise ValueError(
            f"the output has positions, shape {shape}; add fw.Flatten() or fw.GlobalAveragePool(), and then "
            "fw.Dense(outputs)."
        )
