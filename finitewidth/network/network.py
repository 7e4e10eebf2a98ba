"""The network that is studied: an input shape and a sequence of layers, as one value."""

import dataclasses
import functools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from finitewidth.network.ladder import Ladder, UnknownLayer
from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.plain import layers_from_plain
from finitewidth.network.layers.residual import Residual
from finitewidth.network.layers.sequence import (
    LayerLike,
    as_layer,
    channels_in_front,
    layers_with_rates,
    output_shape,
    shown_layers,
    values_behind,
)
from finitewidth.network.layers.weights import as_width, ntk_rates, standard_rates


def _of_dense_layers(name: str, description: str) -> functools.cached_property[tuple[float, ...]]:
    def values(self: "Network") -> tuple[float, ...]:
        return tuple(getattr(layer, name) for layer in self.dense)

    values.__doc__ = description
    return functools.cached_property(values)


class Network:
    """A network: the shape of one input and the layers behind it, in order.

    Networks are immutable, comparable and hashable. Layers are counted by those with weights, from 1 to
    `depth`.

    Args:
        input_shape: A number of components, or a tuple whose last entry counts channels.
        layers: Values such as `fw.Dense(64)`. An activation is a name, an `fw.Activation` or a function of z.

    ```python
    fw.Network((8, 8, 1), fw.Conv(64), "relu", fw.Flatten(), fw.Dense(10))
    ```
    """

    input_shape: Shape
    layers: tuple[AbstractLayer, ...]

    def __init__(self, input_shape: int | Sequence[int], *layers: LayerLike):
        object.__setattr__(self, "input_shape", _as_shape(input_shape))
        object.__setattr__(self, "layers", tuple(as_layer(layer) for layer in layers))
        _check_end(self.layers, self.output_shape)

    @classmethod
    def standard_parametrization(cls, input_shape: int | Sequence[int], *layers: LayerLike) -> "Network":
        """The network that gradient descent with one learning rate trains, as in PyTorch.

        `lambda_W` of every layer is its fan-in and `lambda_b` is 1, so that all weights and biases learn at
        the same rate: the "standard" parametrization of neural-tangents. Widths therefore matter. Layers set
        `C_b` and `C_W`; a rate of zero in a layer stays zero.
        """
        net = Network(input_shape, *layers)
        fixed = net.fixed_rates
        if fixed is not None:
            raise ValueError(
                f"{fixed} learns at rates equal to its variances and has no standard parametrization; use "
                "fw.Network.ntk_parametrization."
            )
        return net.replace(layers=layers_with_rates(net.layers, standard_rates, net.input_shape))

    @classmethod
    def ntk_parametrization(cls, input_shape: int | Sequence[int], *layers: LayerLike) -> "Network":
        """The network whose learning rates are its variances: `lambda_W` is `C_W` and `lambda_b` is `C_b`.

        This is the "ntk" parametrization of neural-tangents. A rate of zero in a layer stays zero.
        """
        net = Network(input_shape, *layers)
        return net.replace(layers=layers_with_rates(net.layers, ntk_rates, net.input_shape))

    @classmethod
    def critical(
        cls,
        input_shape: int | Sequence[int],
        *layers: LayerLike,
        lambda_b=1.0,
        lambda_W=1.0,
        input_scale=1.0,
        bias_share=None,
    ) -> "Network":
        r"""The network of these layers at its critical point, with learning rates that let all learn equally.

        C_b, C_W and learning rates of all dense layers and convolutions are set; what they had is replaced.
        Weights are set by the activation before them, for signals and gradients that neither grow nor fall
        with depth. The last weights of a residual body get a share of that, $1 - \gamma^2$, or for
        $\gamma = 1$ one over the number of such blocks; weights behind `LayerNorm` hold the kernel at one;
        $C_W$ of a convolution makes up for what zero padding loses. `lambda_b` and `lambda_W` are shared
        out over the layers by the equivalence principle (PDLT section 9.4); `bias_share` takes the place of
        `lambda_b`, so that biases add this share of what the weights of their layer add to the NTK.
        `input_scale` is the mean square of the input components. Layers and activations without a critical
        point are refused by name.
        `fw.audit(net).steps` says of each layer what was set.
        """
        from finitewidth.critical.tuning import critical_version  # theory answers; it is not known before

        return critical_version(Network(input_shape, *layers), lambda_b, lambda_W, input_scale, bias_share)

    @functools.cached_property
    def fixed_rates(self) -> str | None:
        """The kind of the first layer whose learning rates nobody can choose, or None."""
        return next((type(layer).__name__ for layer in self.walked if layer.has_fixed_rates), None)

    @functools.cached_property
    def output_shape(self) -> Shape:
        """The shape of one output."""
        return output_shape(self.layers, self.input_shape)

    @property
    def outputs(self) -> int:
        """n_L, the number of output neurons."""
        return self.output_shape[-1]

    @property
    def readout(self) -> Dense | None:
        """The dense layer whose neurons are the outputs, or None where the network ends otherwise."""
        last = self.layers[-1]
        return last if isinstance(last, Dense) and len(self.output_shape) == 1 else None

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
    def grows_faster_than_linearly(self) -> Activation | None:
        """The first activation, such as a polynomial, with which rare networks diverge; or None."""
        return next((one for one in self._activations_walked if one.grows_faster_than_linearly), None)

    @functools.cached_property
    def _activations_walked(self) -> tuple[Activation, ...]:
        return tuple(layer for layer in self.walked if isinstance(layer, Activation))

    @functools.cached_property
    def is_homogeneous(self) -> bool:
        """Whether outputs grow in proportion to a factor c > 0 of the inputs, during training too."""
        return all(layer.is_homogeneous for layer in self.walked)

    @functools.cached_property
    def is_linear(self) -> bool:
        """Whether every activation is a straight line through the origin."""
        slopes = [activation.slopes for activation in self._activations_walked]
        return all(pair is not None and pair[0] == pair[1] for pair in slopes)

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
    def not_dense(self) -> str | None:
        """The kind of the first layer that is neither dense nor an activation; None in a perceptron."""
        others = (layer for layer in self.layers if not isinstance(layer, Dense | Activation))
        return next((type(layer).__name__ for layer in others), None)

    @functools.cached_property
    def ladder(self) -> Ladder:
        """The dense layers and the skips between them; an error for layers unknown at order 1/n."""
        return Ladder.of(self.input_shape[-1], self.layers)

    @functools.cached_property
    def has_attention(self) -> bool:
        """Whether positions attend to each other in some layer."""
        return any(isinstance(layer, SelfAttention) for layer in self.walked)

    @functools.cached_property
    def channels_in_front(self) -> tuple[int, ...]:
        """The channels that each layer l = 1 ... L with weights reads: the n of its order 1/n.

        Behind `fw.Flatten` they are those of one position.
        """
        return channels_in_front(self.layers, self.input_shape)

    @functools.cached_property
    def unknown_layer(self) -> str | None:
        """The name of the first layer that is beyond dense networks with skips at order 1/n, or None."""
        try:
            Ladder.of(self.input_shape[-1], self.layers)
        except UnknownLayer as error:
            return error.what
        return None

    @functools.cached_property
    def dense(self) -> tuple[Dense, ...]:
        """The dense layers, one for each l = 1 ... L."""
        if self.not_dense is not None:
            raise ValueError(
                f"this knows networks of dense layers and activations only, not the {self.not_dense} of this "
                "one; fw.kernels, fw.fit and everything with order=0 take any network."
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

    C_b = _of_dense_layers("C_b", "The variance of the biases of each layer.")
    C_W = _of_dense_layers("C_W", "The variance of the weights of each layer, times their number of inputs.")
    lambda_b = _of_dense_layers("lambda_b", "The learning rate of the biases of each layer.")
    lambda_W = _of_dense_layers(
        "lambda_W", "The learning rate of the weights of each layer, times their number of inputs."
    )

    @functools.cached_property
    def weights(self) -> tuple[str, ...]:
        """What the weights of each layer are drawn from, "gaussian" or "orthogonal"."""
        return tuple(layer.weights for layer in self.dense)

    @functools.cached_property
    def has_orthogonal_weights(self) -> bool:
        """Whether any dense layer, also inside others, has orthogonal weights."""
        return any(isinstance(layer, Dense) and layer.is_orthogonal for layer in self.walked)

    @property
    def parameter_count(self) -> int:
        """How many biases and weights the network has."""
        pairs = zip(self.widths, self.widths[1:], strict=False)
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairs)

    @functools.cached_property
    def kinked_layer(self) -> float:
        """The first layer whose activation is not smooth, counted from 1; infinite if there is none."""
        layer = 0
        for one in self.walked:
            if isinstance(one, Activation):
                if not one.is_smooth:
                    return layer
            elif one.depth and not isinstance(one, Residual):
                layer += 1
        return float("inf")

    @property
    def kinked(self) -> Activation | None:
        """The first activation that is not smooth, or None."""
        return next((one for one in self._activations_walked if not one.is_smooth), None)

    def with_widths(self, widths: Sequence[int]) -> "Network":
        """The same layers with other widths n_0 ... n_L, those in residual bodies in the order of signals."""
        if len(widths) != len(self.ladder.widths):
            raise ValueError(f"widths must name n_0 ... n_{self.depth}, got {tuple(widths)!r}.")
        new = iter(widths[1:])
        layers = [_with_widths(layer, new) for layer in self.layers]
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

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
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


def _with_widths(layer: AbstractLayer, widths: Iterator[int]) -> AbstractLayer:
    if isinstance(layer, Residual):
        return layer.replace(layers=[_with_widths(inner, widths) for inner in layer.layers])
    return dataclasses.replace(layer, width=next(widths)) if isinstance(layer, Dense) else layer


def _check_end(layers: tuple[AbstractLayer, ...], shape: Shape) -> None:
    """The output is one vector of Gaussian preactivations."""
    behind = values_behind(layers, Values.DATA)
    if not layers or not layers[-1].has_weights:
        raise ValueError("layers must end in weights; add fw.Dense(outputs).")
    if behind is not Values.GAUSSIAN:
        raise ValueError(
            f"the last skip carries {behind.value}, so that outputs are not Gaussian with a fixed NTK; add "
            "fw.Dense(outputs)."
        )
    if len(shape) > 1:
        raise ValueError(
            f"the output has positions, shape {shape}; add fw.Flatten() or fw.GlobalAveragePool(), and then "
            "fw.Dense(outputs)."
        )
