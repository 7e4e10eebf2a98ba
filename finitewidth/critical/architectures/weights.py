"""Layers with weights, wherever they stand in a network: in sequences, bodies and shortcuts."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from finitewidth.network.layers.abstract import AbstractLayer
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.network.layers.residual import Residual

Weights = Dense | Conv  # C_b, C_W, lambda_b and lambda_W
Change = Callable[[Weights], Weights]


def with_weights(layers: Sequence[AbstractLayer], change: Change) -> tuple[AbstractLayer, ...]:
    """The same layers with changed weights, in the order of the signal."""
    return tuple(_changed(layer, change) for layer in layers)


@functools.singledispatch
def _changed(layer: AbstractLayer, change: Change) -> AbstractLayer:
    return layer


@_changed.register(Dense)
@_changed.register(Conv)
def _(layer: Weights, change: Change) -> AbstractLayer:
    return change(layer)


@_changed.register
def _(layer: Residual, change: Change) -> AbstractLayer:
    body = with_weights(layer.layers, change)
    return layer.replace(layers=body, shortcut=with_weights(layer.shortcut, change))


def frozen(layers: Sequence[AbstractLayer]) -> tuple[AbstractLayer, ...]:
    """The same layers without learning rates: biases, weights, gains and offsets stay as they are."""
    return tuple(_frozen(layer) for layer in layers)


@functools.singledispatch
def _frozen(layer: AbstractLayer) -> AbstractLayer:
    return layer


@_frozen.register(Dense)
@_frozen.register(Conv)
def _(layer: Weights) -> AbstractLayer:
    return replace(layer, lambda_b=0.0, lambda_W=0.0)


@_frozen.register
def _(layer: AbstractNorm) -> AbstractLayer:
    return layer.frozen()


@_frozen.register
def _(layer: Residual) -> AbstractLayer:
    return layer.replace(layers=frozen(layer.layers), shortcut=frozen(layer.shortcut))


@functools.singledispatch
def with_learning_biases(layer: AbstractLayer) -> AbstractLayer | None:
    """The layer with lambda_b = 1 at its end; None if no biases stand there whose rate can be set."""
    return None


@with_learning_biases.register(Dense)
@with_learning_biases.register(Conv)
def _(layer: Weights) -> AbstractLayer:
    return replace(layer, lambda_b=1.0)


@with_learning_biases.register
def _(layer: Residual) -> AbstractLayer | None:
    end = with_learning_biases(layer.layers[-1])
    return None if end is None else layer.replace(layers=(*layer.layers[:-1], end))
