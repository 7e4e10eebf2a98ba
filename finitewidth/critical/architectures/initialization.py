r"""The critical C_b and C_W of networks with skips, norms and convolutions.

Weights are set by the activation before them, as in a multilayer perceptron, so that a step keeps both the
kernel and gradients. Other layers change this as follows.

- **Residual block.** The last weights of the body take a share of these values, so that the skip and the body
  together keep the kernel: $\gamma^2 + (1 - \gamma^2) = 1$. For $\gamma = 1$ there is no critical point; with
  a share of 1/B in each of B such blocks, signals and gradients grow by a factor e in the whole network,
  however deep it is. Only products count along a body, so its other weights are set as if there were no skip.
- **Norm.** It makes the kernel one, and the weights behind it hold it there:
  $C_W = 1/\langle\sigma'^2\rangle_1$, $C_b = 1 - C_W \langle\sigma^2\rangle_1$. Every activation for which
  C_b is not negative is then critical, whatever its class.
- **Convolution.** Zero padding leaves a share rho of the kernel; C_W is divided by it (`leak.py`).
- **Attention** averages positions, so that they become equal with depth unless a skip with $\gamma = 1$ keeps
  them apart. It is refused elsewhere. Dropout is refused, since its masks separate equal inputs.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from finitewidth.critical.activations.classification import (
    Criticality,
    critical_variances,
    criticality,
    needed_kernel,
)
from finitewidth.critical.activations.susceptibilities import CRITICAL
from finitewidth.critical.architectures.leak import drifts, leaking_point
from finitewidth.critical.architectures.one_signal import Size, propagate_layer, rho
from finitewidth.gaussian.two_legs.one_leg import leg_averages
from finitewidth.network.layers.abstract import AbstractLayer, Shape
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.dropout import Dropout
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.network.layers.residual import Residual

Layers = tuple[AbstractLayer, ...]
_REMEDY = "pass C_b and C_W to the layers yourself"


@dataclass(frozen=True)
class Signal:
    """The signal of one input, as far as the next weights depend on it."""

    K: float  # the kernel that the next weights shall hold
    square: float  # mean square of the signal
    slope: float = 1.0  # the factor on gradients since the last weights
    point: Criticality | None = None  # of the activation before, where its critical point is used
    after: Activation | None = None
    normalized: bool = False  # a norm has set the kernel
    rescaling: float = 1.0  # the factor by which weights of this body brought the kernel to a K*
    is_input: bool = False

    def scaled(self, ratio: float) -> "Signal":
        """The signal with a body added: kernel and square grow by the same ratio."""
        return replace(self, K=ratio * self.K, square=ratio * self.square, is_input=False)


@dataclass(frozen=True)
class Context:
    """The surroundings of a layer, as far as its initialization depends on them."""

    shape: Shape
    reader: Activation | None  # the activation that reads what the layer makes
    start: float | None  # the first K* > 0 that an activation on the stream needs
    blocks: int  # with gamma = 1
    share: float | None = None  # of the critical values, for weights that end a body
    gamma: float | None = None  # of the innermost residual block around

    @property
    def needed(self) -> float | None:
        """K* > 0, if a half-stable activation reads what the layer makes."""
        return None if self.reader is None else needed_kernel(criticality(self.reader))


def critical_layers(layers: Layers, shape: Shape, input_scale: float) -> Layers:
    """The same layers with critical C_b and C_W, or an error that names a layer which has none.

    `input_scale` is the mean square of the input components.
    """
    blocks = sum(
        isinstance(one, Residual) and abs(one.gamma) == 1 for layer in layers for one in layer.walk()
    )
    context = Context(shape, None, _start(layers), blocks)
    return _sequence(layers, Signal(input_scale, input_scale, is_input=True), context)[0]


def _readers(layers: Layers) -> list[Activation | None]:
    """The activation that reads the signal first, in front of each layer and behind the last."""
    readers: list[Activation | None] = [None]
    for layer in reversed(layers):
        readers.append(_reader(layer, readers[-1]))
    return readers[::-1]


@functools.singledispatch
def _reader(layer: AbstractLayer, behind: Activation | None) -> Activation | None:
    """The activation that reads the signal in front of the layer, given the one that reads it behind."""
    return None if layer.has_weights else behind


@_reader.register
def _(layer: Activation, behind: Activation | None) -> Activation | None:
    return layer


@_reader.register
def _(layer: AbstractNorm, behind: Activation | None) -> Activation | None:
    return None


@_reader.register
def _(layer: Residual, behind: Activation | None) -> Activation | None:
    """In the body, or else behind the skip."""
    skips = not any(one.has_weights for one in layer.shortcut)
    return _readers(layer.layers)[0] or (behind if skips else None)


def _start(layers: Layers) -> float | None:
    """The first K* that an activation on the stream needs, before any norm."""
    for layer in layers:
        if isinstance(layer, AbstractNorm):
            return None
        reader = _reader(layer, None)
        needed = None if reader is None else needed_kernel(criticality(reader))
        if needed is not None:
            return needed
    return None


def _sequence(
    layers: Layers, signal: Signal, context: Context, share: float | None = None
) -> tuple[Layers, Signal]:
    """Layers one behind the other; the last weights take a `share` of their critical values."""
    critical, shape, readers = [], context.shape, _readers(layers)
    for number, layer in enumerate(layers, start=1):
        is_end = share is not None and number == len(layers)
        here = replace(context, shape=shape, reader=readers[number], share=share if is_end else None)
        new, signal = _set(layer, signal, here)
        critical.append(new)
        shape = layer.output_shape(shape)
    return tuple(critical), signal


@functools.singledispatch
def _set(layer: AbstractLayer, signal: Signal, context: Context) -> tuple[AbstractLayer, Signal]:
    """The layer with critical hyperparameters, and the signal behind it."""
    return layer, signal


@_set.register
def _(layer: Activation, signal: Signal, context: Context) -> tuple[AbstractLayer, Signal]:
    point = None if signal.normalized else criticality(layer)
    if point is not None:
        C_b, C_W = critical_variances(point, _REMEDY)
        if point.universality_class != "K*=0" or context.start is None:
            square = _square_at_point(point, C_b, C_W, signal.square)
            return layer, replace(signal, square=square, slope=1 / C_W, point=point, after=layer)
    square, slope = _averages(
        layer, signal.square
    )  # the kernel is held where a norm or another K* has set it
    return layer, replace(signal, square=square, slope=slope, point=None, after=layer)


@functools.lru_cache(maxsize=1024)
def _averages(activation: Activation, K: float) -> tuple[float, float]:
    averages = leg_averages(activation, np.asarray([K]))
    return float(averages.square[0]), float(averages.slope[0])


def _square_at_point(point: Criticality, C_b: float, C_W: float, K: float) -> float:
    """<sigma^2> behind an activation at its own critical point; K* comes back to the last digit."""
    if point.K_star and math.isclose(K, point.K_star, rel_tol=CRITICAL):
        return (point.K_star - C_b) / C_W
    return propagate_layer(point.activation, Size(K), (1,)).size.square


@_set.register
def _(layer: AbstractNorm, signal: Signal, context: Context) -> tuple[AbstractLayer, Signal]:
    return layer, Signal(1.0, 1.0, normalized=True)


@_set.register
def _(layer: Dropout, signal: Signal, context: Context) -> tuple[AbstractLayer, Signal]:
    raise ValueError(
        "Dropout has no critical point, since its masks separate even equal inputs; leave it out, or pass "
        "C_b and C_W to the layers yourself."
    )


@_set.register
def _(layer: SelfAttention, signal: Signal, context: Context) -> tuple[AbstractLayer, Signal]:
    if context.gamma is None or abs(context.gamma) != 1:
        raise ValueError(
            "SelfAttention averages positions, which become equal exponentially with depth without a skip of "
            "gamma=1; put it into fw.Residual."
        )
    share = 1.0 if context.share is None else context.share / signal.rescaling
    K = share * signal.square / signal.slope
    return replace(layer, C_OV=share / signal.slope, C_b=0.0), Signal(K, K, normalized=signal.normalized)


@_set.register
def _(layer: Residual, signal: Signal, context: Context) -> tuple[AbstractLayer, Signal]:
    if isinstance(layer.layers[-1], Residual):
        raise ValueError(
            "a residual body that ends in another residual block has no weights that scale it; end it with "
            "fw.Dense or fw.Conv."
        )
    inside = replace(context, gamma=layer.gamma)
    entry = Signal(signal.square, signal.square, normalized=signal.normalized)
    body, added = _sequence(layer.layers, entry, inside, _share(layer.gamma, context.blocks))
    shortcut, kept = _sequence(layer.shortcut, signal, inside)
    ratio = layer.gamma**2 + added.square / kept.square
    return layer.replace(layers=body, shortcut=shortcut), kept.scaled(ratio)


def _share(gamma: float, blocks: int) -> float:
    if abs(gamma) > 1:
        raise ValueError(
            f"Residual with gamma={gamma:g} has no critical point, since its skip alone multiplies signals "
            f"by {gamma**2:.4g} in each block; use gamma of at most 1."
        )
    return 1 - gamma**2 if abs(gamma) < 1 else 1 / blocks


@_set.register(Dense)
@_set.register(Conv)
def _(layer: Any, signal: Signal, context: Context) -> tuple[AbstractLayer, Signal]:
    fraction = rho(layer, context.shape)
    if isinstance(layer, Conv) and drifts(layer.axes(context.shape)):
        raise ValueError(
            f"{layer!r} has more taps on one side of a position than on the other, so signals drift out of "
            "the picture and no C_W keeps them; use an odd filter, or padding='circular'."
        )
    if signal.after is None:
        C_b, C_W, rescaling = _linear(signal, context, fraction)
    else:
        (C_b, C_W), rescaling = _activated(layer, signal, context, fraction), 1.0
    share = 1.0 if context.share is None else context.share / (signal.rescaling * rescaling)
    C_b, C_W = share * C_b, share * C_W
    K = C_b + C_W * fraction * signal.square
    behind = Signal(K, K, normalized=signal.normalized, rescaling=signal.rescaling * rescaling)
    return replace(layer, C_b=C_b, C_W=C_W), behind


def _linear(signal: Signal, context: Context, fraction: float) -> tuple[float, float, float]:
    """C_b, C_W and the factor on the kernel, of weights without an activation before them."""
    if signal.is_input:
        return (*_first(signal, context, fraction), 1.0)
    needed = None if signal.normalized or context.share is not None else context.needed
    rescaling = 1.0 if needed is None else needed / signal.square
    return 0.0, rescaling / fraction, rescaling


def _first(signal: Signal, context: Context, fraction: float) -> tuple[float, float]:
    """The first layer starts the kernel at the first K* > 0, or is set by the first activation."""
    if context.start is not None:
        return 0.0, context.start / (signal.square * fraction)
    C_b, C_W = 0.0, 1.0
    if context.reader is not None:
        C_b, C_W = critical_variances(criticality(context.reader), _REMEDY)
    return C_b, C_W / fraction


def _activated(layer: Any, signal: Signal, context: Context, fraction: float) -> tuple[float, float]:
    """C_b and C_W of weights behind an activation."""
    C_W = 1 / (fraction * signal.slope)
    image = signal.square / signal.slope  # the kernel without biases
    needed = None if signal.normalized or context.share is not None else context.needed
    point = signal.point
    if point is not None and fraction < 1 and needed_kernel(point) is not None and isinstance(layer, Conv):
        axes = layer.axes(context.shape)
        if all(axis.output == axis.size for axis in axes):
            return leaking_point(point, axes)
    if point is not None and (needed is None or needed == point.K_star):
        return critical_variances(point, _REMEDY)[0], C_W
    target = signal.K if needed is None else needed
    if target < image * (1 - CRITICAL):
        _refuse(signal, image, target)
    return max(0.0, target - image), C_W


def _refuse(signal: Signal, image: float, target: float) -> None:
    assert signal.after is not None
    name = signal.after.name
    if signal.normalized:
        raise ValueError(
            f"activation {name!r} has no critical point at the kernel {target:.4g} that a norm sets: with "
            f"chi_perpendicular = 1 the next layer receives {image:.4g} without biases, so C_b would be "
            "negative and inputs merge; use gelu, relu or tanh, or shift the activation to vanish at zero."
        )
    raise ValueError(
        f"activation {name!r} stands before one that needs K* = {target:.4g}, but with chi_perpendicular = 1 "
        f"it passes on a kernel of at least {image:.4g}, so C_b would be negative; put activations with a "
        "larger K* behind those with a smaller one."
    )
