r"""One signal through any network at infinite width: its size forwards, gradients backwards.

Positions are taken to be alike: of a convolution the mode counts that survives depth, whose kernel is
multiplied by rho (`leak.py`), and averages over positions keep it. Networks without positions are exact.

| layer | mean square of the signal | gradient, backwards |
|---|---|---|
| weights | $C_b + C_W \rho\, s$ | $C_W \rho\, g$ |
| activation | $\langle\sigma^2\rangle_s$ | $\langle\sigma'^2\rangle_s\, g$ |
| norm | $s/(s + \epsilon)$ | $g/(s + \epsilon)$ |
| residual | $\gamma^2 s_{\mathrm{shortcut}} + s_{\mathrm{body}}$ | the sum over both branches |
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.critical.architectures.leak import leak
from finitewidth.gaussian.two_legs.leg_table import leg_table
from finitewidth.gaussian.two_legs.one_leg import require_continuous
from finitewidth.network.layers.abstract import AbstractLayer, Shape
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.dropout import Dropout
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.network.layers.residual import Residual


class Size(NamedTuple):
    """The mean square of a signal, and its change with that of the signal that came in."""

    square: float
    change: float = 1.0

    def times(self, factor: float, plus: float = 0.0) -> "Size":
        """The size behind a linear layer."""
        return Size(plus + factor * self.square, factor * self.change)


class Shares(NamedTuple):
    """How much of the NTK a layer adds, divided by lambda_b and by lambda_W."""

    of_biases: float
    of_weights: float


Contributions = list[Shares]  # of the layers with learning rates; those nearest to the output first
Backward = Callable[[float, Contributions], float]


@dataclass(frozen=True)
class Passage:
    """A forward and backward pass through some layers: the size behind them, and the gradient before them."""

    size: Size
    backward: Backward  # from the gradient behind the layers to that before them

    @property
    def chi_perp(self) -> float:
        """The factor on gradients and on small differences of direction."""
        return self.backward(1.0, [])


def rho(layer: AbstractLayer, shape: Shape) -> float:
    """The fraction of the arriving kernel that padding leaves, which multiplies C_W."""
    return leak(layer.axes(shape)) if isinstance(layer, Conv) else 1.0


def propagate(layers: Sequence[AbstractLayer], size: Size, shape: Shape) -> Passage:
    """The passage through layers in sequence."""
    backwards: list[Backward] = []
    for layer in layers:
        passage = propagate_layer(layer, size, shape)
        size, shape = passage.size, layer.output_shape(shape)
        backwards.append(passage.backward)

    def backward(gradient: float, contributions: Contributions) -> float:
        for one in reversed(backwards):
            gradient = one(gradient, contributions)
        return gradient

    return Passage(size, backward)


def contributions_to_ntk(layers: Sequence[AbstractLayer], shape: Shape, input_scale: float) -> Contributions:
    """Of each layer with learning rates, in the order of the signal."""
    contributions: Contributions = []
    propagate(layers, Size(input_scale), shape).backward(1.0, contributions)
    return contributions[::-1]


@functools.singledispatch
def propagate_layer(layer: AbstractLayer, size: Size, shape: Shape) -> Passage:
    """The passage through one layer; averages over positions, and layers that rearrange them, keep it."""
    return Passage(size, lambda gradient, _: gradient)


@propagate_layer.register(Dense)
@propagate_layer.register(Conv)
def _(layer: Dense | Conv, size: Size, shape: Shape) -> Passage:
    fraction = rho(layer, shape)

    def backward(gradient: float, contributions: Contributions) -> float:
        contributions.append(Shares(gradient, gradient * fraction * size.square))
        return gradient * layer.C_W * fraction

    return Passage(size.times(layer.C_W * fraction, layer.C_b), backward)


@propagate_layer.register
def _(layer: SelfAttention, size: Size, shape: Shape) -> Passage:
    return Passage(size.times(layer.C_OV, layer.C_b), lambda gradient, _: layer.C_OV * gradient)


@propagate_layer.register
def _(layer: Dropout, size: Size, shape: Shape) -> Passage:
    return Passage(size.times(1 / layer.keep), lambda gradient, _: gradient / layer.keep)


@propagate_layer.register
def _(layer: Activation, size: Size, shape: Shape) -> Passage:
    require_continuous(layer)
    if layer.slopes is not None:  # exact at every variance
        factor = (layer.slopes[0] ** 2 + layer.slopes[1] ** 2) / 2
        return Passage(size.times(factor), lambda gradient, _: factor * gradient)
    square, slope, curvature = (float(part[0]) for part in leg_table(layer)(np.asarray([size.square]))[:3])
    return Passage(Size(square, (slope + curvature) * size.change), lambda gradient, _: slope * gradient)


@propagate_layer.register
def _(layer: AbstractNorm, size: Size, shape: Shape) -> Passage:
    whole = size.square + layer.epsilon
    change = size.change * layer.epsilon / whole**2
    return Passage(Size(size.square / whole, change), lambda gradient, _: gradient / whole)


@propagate_layer.register
def _(layer: Residual, size: Size, shape: Shape) -> Passage:
    body, skip = propagate(layer.layers, size, shape), propagate(layer.shortcut, size, shape)
    share = layer.gamma**2

    def backward(gradient: float, contributions: Contributions) -> float:
        along_skip = skip.backward(share * gradient, contributions)
        return along_skip + body.backward(gradient, contributions)

    return Passage(
        Size(*(share * kept + added for kept, added in zip(skip.size, body.size, strict=True))), backward
    )
