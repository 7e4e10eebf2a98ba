"""Sequences of layers: what a user may write for a layer, shapes and values behind, and text."""

from collections.abc import Callable, Sequence

from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.pooling import Flatten
from finitewidth.network.layers.weights import RateRule

LayerLike = AbstractLayer | str | Callable
_NO_KERNEL = {
    "batchnorm": "BatchNorm couples all samples of a batch and has no kernel of a pair; use fw.LayerNorm()",
    "maxpool": "max pooling has no closed form for its kernel; use fw.AveragePool(window)",
}


def as_layer(layer: LayerLike) -> AbstractLayer:
    """A layer, or the activation that a name or a function stands for."""
    if isinstance(layer, str):
        refuse_without_kernel(layer)
    return layer if isinstance(layer, AbstractLayer) else as_activation(layer)


def refuse_without_kernel(name: str) -> None:
    """Say of layers that people know from elsewhere why they are not here."""
    plain = name.lower().replace("_", "").replace("1d", "").replace("2d", "")
    for known, why in _NO_KERNEL.items():
        if plain.startswith((known, known + "ing")):
            raise ValueError(f"{name}: {why}.")


def up_to(layers: Sequence[AbstractLayer], count: int) -> tuple[AbstractLayer, ...]:
    """The layers through which signals pass up to layer `count` with weights."""
    kept: tuple[AbstractLayer, ...] = ()
    for layer in layers:
        if count <= layer.depth:
            return kept + layer.up_to(count)
        kept, count = (*kept, layer), count - layer.depth
    return kept


def output_shape(layers: Sequence[AbstractLayer], shape: Shape) -> Shape:
    """The shape of one sample behind the layers."""
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape


def values_behind(layers: Sequence[AbstractLayer], values: Values) -> Values:
    """What stands behind the layers."""
    for layer in layers:
        values = layer.values_behind(values)
    return values


def layers_with_rates(layers: Sequence[AbstractLayer], rule: RateRule, shape: Shape) -> list[AbstractLayer]:
    """The layers with the learning rates of a rule."""
    made = []
    for layer in layers:
        made.append(layer.with_rates(rule, shape))
        shape = layer.output_shape(shape)
    return made


def channels_in_front(layers: Sequence[AbstractLayer], shape: Shape) -> tuple[int, ...]:
    """The channels that each layer with weights reads; those of a flattened layer are those of a position."""
    found: list[int] = []
    channels = shape[-1]
    for layer in layers:
        if layer.depth:
            inner = getattr(layer, "layers", None)
            found += [channels] if inner is None else channels_in_front(inner, (*shape[:-1], channels))
        shape = layer.output_shape(shape)
        channels = channels if isinstance(layer, Flatten) else shape[-1]
    return tuple(found)


def shown_layers(layers: Sequence[AbstractLayer], *, longest: int = 12) -> list[str]:
    """The layers as one would type them; a deep network's text stays one line."""
    texts = [repr(layer.name) if isinstance(layer, Activation) else repr(layer) for layer in layers]
    return texts if len(texts) <= longest else [*texts[:6], "...", *texts[-4:]]
