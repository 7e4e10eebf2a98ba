"""The initialization of any network in words: what each kind of layer was set to, and what its step does.

A step goes from one layer of the stream to the next. A residual block is one step, so its verdict stands with
the last weights of the body; the other weights of a body are listed without one.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from finitewidth.critical.activations.explanation import in_range, numbered, shortened
from finitewidth.critical.architectures.one_signal import Size, propagate
from finitewidth.network.layers.abstract import AbstractLayer
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.network.layers.residual import Residual
from finitewidth.network.network import Network

_CLOSE = 1e-4  # a factor this close to one is one in words; the epsilon of norms is smaller


class Step(NamedTuple):
    """What a step on the stream does to one signal."""

    K: float  # behind the step
    growth: float  # of the signal
    angle: float  # factor on the angle between nearby signals


@dataclass(frozen=True)
class Weights:
    """A layer with weights in words."""

    number: int  # layers are counted; weights of a shortcut have the number of the layer that they add to
    place: str
    variances: str
    ends_step: bool


def settings_of_layers(net: Network) -> tuple[str, ...]:
    """C_b and C_W of the layers, equal ones together."""
    return shortened(tuple(f"{_named(group)} to {group[0].variances}" for group in _groups(net)))


def steps_of_layers(net: Network, input_scale: float) -> tuple[str, ...]:
    """C_b and C_W of the layers and what the step that ends there does to one signal."""
    steps = _steps(net, input_scale)
    lines = []
    for group in _groups(net):
        ends = [steps[one.number] for one in group if one.ends_step]
        verdict = f"; {_verdict(ends, is_first=group[0].number == 1)}" if ends else ""
        lines.append(f"{_named(group)}: {group[0].variances}{verdict}")
    return shortened(tuple(lines))


def _steps(net: Network, input_scale: float) -> dict[int, Step]:
    """The steps of one signal, by the number of the layer where each ends."""
    size, shape, number, steps = Size(input_scale), net.input_shape, 0, {}
    for block in net.blocks:
        passage = propagate(block, size, shape)
        number += sum(layer.depth for layer in block)
        growth = passage.size.square / size.square
        steps[number] = Step(passage.size.square, growth, passage.chi_perp / growth)
        size = Size(passage.size.square)
        for layer in block:
            shape = layer.output_shape(shape)
    return steps


def _verdict(steps: Sequence[Step], *, is_first: bool) -> str:
    K, growth, angle = (np.asarray(part) for part in zip(*steps, strict=True))
    if not (np.isfinite(K).all() and np.isfinite(angle).all()):
        return "the kernel grows without bound"
    if is_first:
        return f"the kernel starts at K = {in_range(K)}"
    if _is_one(growth) and _is_one(angle):
        return f"critical at K = {in_range(K)}"
    size = "keeps signals" if _is_one(growth) else f"multiplies signals by {in_range(growth)}"
    nearby = "keeps angles" if _is_one(angle) else f"multiplies small angles by {in_range(angle)}"
    return f"{'the' if len(steps) == 1 else 'each'} step {size} and {nearby}, up to K = {K[-1]:.4g}"


def _is_one(factors: np.ndarray) -> bool:
    return bool((np.abs(factors - 1) <= _CLOSE).all())


def _groups(net: Network) -> list[list[Weights]]:
    """The layers with weights, those with equal words together."""
    groups: dict[tuple[str, str, bool], list[Weights]] = {}
    for one in _in_words(net.layers, Context(0)):
        groups.setdefault((one.place, one.variances, one.number == 1), []).append(one)
    return list(groups.values())


def _named(group: Sequence[Weights]) -> str:
    place = f" ({group[0].place})" if group[0].place else ""
    return f"{numbered([one.number for one in group])}{place}"


@dataclass(frozen=True)
class Context:
    """The surroundings of a layer, as far as its words depend on them."""

    count: int  # of layers before it
    inside: str = ""  # the words for weights that stand there
    at_end: str = ""  # the words for weights that end the body
    on_stream: bool = True
    before: tuple[str, ...] = ()  # norm and activation since the last weights
    is_end: bool = False
    shortcut_of: int | None = None

    def weights(self, variances: str) -> Weights:
        """The words for weights at this place."""
        role = self.at_end if self.is_end else self.inside
        after = f"after {', '.join(self.before)}" if self.before else ""
        place = ", ".join(part for part in (role, after) if part)
        number = self.count + 1 if self.shortcut_of is None else self.shortcut_of
        return Weights(number, place, variances, self.on_stream and (self.is_end or not self.inside))


def _in_words(layers: Sequence[AbstractLayer], context: Context) -> Iterator[Weights]:
    count, before = context.count, ()
    for place, layer in enumerate(layers, start=1):
        here = replace(
            context, count=count, before=before, is_end=place == len(layers) and bool(context.at_end)
        )
        yield from _of(layer, here)
        count += layer.depth
        before = () if layer.has_weights else (*before, *_called(layer))


@functools.singledispatch
def _of(layer: AbstractLayer, context: Context) -> Iterator[Weights]:
    yield from ()


@_of.register(Dense)
@_of.register(Conv)
def _(layer: Dense | Conv, context: Context) -> Iterator[Weights]:
    yield context.weights(f"C_b = {layer.C_b:.9g}, C_W = {layer.C_W:.9g}")


@_of.register
def _(layer: SelfAttention, context: Context) -> Iterator[Weights]:
    yield context.weights(f"C_b = {layer.C_b:.9g}, C_OV = {layer.C_OV:.9g}")


@_of.register
def _(layer: Residual, context: Context) -> Iterator[Weights]:
    inside = "inside a residual block"
    body = replace(context, inside=inside, at_end=f"residual, gamma = {layer.gamma:.9g}")
    yield from _in_words(layer.layers, replace(body, on_stream=context.on_stream and not context.inside))
    skip = Context(0, "shortcut", on_stream=False, shortcut_of=context.count + layer.depth)
    yield from _in_words(layer.shortcut, skip)


@functools.singledispatch
def _called(layer: AbstractLayer) -> tuple[str, ...]:
    return ()


@_called.register
def _(layer: Activation) -> tuple[str, ...]:
    return (str(layer.name),)


@_called.register
def _(layer: AbstractNorm) -> tuple[str, ...]:
    return ("norm",)
