"""Ways to initialize a network and to choose its learning rates: ours, and what people do already."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

import finitewidth as fw
from benchmarks.advice.training import Start
from finitewidth.critical.one_input import layer_by_layer
from finitewidth.critical.tuning import products_above

BASE = 64  # width at which muP is the standard parametrization


class Shape(NamedTuple):
    """A perceptron: `depth` layers with weights."""

    depth: int
    width: int
    activation: str
    inputs: int
    outputs: int

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.inputs, *[self.width] * (self.depth - 1), self.outputs)


class Method(NamedTuple):
    """A name for the tables, how a network of one seed starts, and whether its rates are by layer."""

    start: Callable[[Shape, str], Start]
    by_layer: bool = False
    says: str = ""


def drawn(shape: Shape, seed: int, method: Method, optimizer: str) -> Start:
    """The network of this seed."""
    torch.manual_seed(seed)
    return method.start(shape, optimizer)


# --- what people do -----------------------------------------------------------------------------------


def _linear(shape: Shape) -> list[nn.Linear]:
    return [nn.Linear(i, o) for i, o in zip(shape.widths, shape.widths[1:], strict=False)]


def _start(layers: list[nn.Linear], **options) -> Start:
    ones = [1.0] * len(layers)
    return Start(
        [l.weight.detach().T.contiguous() for l in layers],
        [l.bias.detach() for l in layers],
        ones,
        ones,
        **options,
    )


def by_default(shape: Shape, optimizer: str) -> Start:
    return _start(_linear(shape))


def _with(draw: Callable[[torch.Tensor, Shape], object], shape: Shape, optimizer: str) -> Start:
    layers = _linear(shape)
    for layer in layers:
        draw(layer.weight, shape)
        nn.init.zeros_(layer.bias)
    return _start(layers)


def _xavier(W: torch.Tensor, shape: Shape) -> None:
    nn.init.xavier_uniform_(W)


def _kaiming(W: torch.Tensor, shape: Shape) -> None:
    nn.init.kaiming_normal_(W, nonlinearity="tanh" if shape.activation == "tanh" else "relu")


def _orthogonal(W: torch.Tensor, shape: Shape) -> None:
    nn.init.orthogonal_(W, gain=1.0 if shape.activation == "tanh" else math.sqrt(2))


def with_norm(shape: Shape, optimizer: str) -> Start:
    gains = [torch.full((shape.width,), value) for _ in range(shape.depth - 1) for value in (1.0, 0.0)]
    return _start(_linear(shape), normalized=True, gains=gains)


def with_skips(shape: Shape, optimizer: str) -> Start:
    return _start(_linear(shape), skips=True)


# --- ours ---------------------------------------------------------------------------------------------


@functools.cache
def critical_net(shape: Shape) -> fw.MLP:
    return fw.MLP.critical(shape.widths, shape.activation)


@functools.cache
def residual_net(shape: Shape) -> fw.Network:
    block = fw.Residual(shape.activation, fw.Dense(shape.width))
    ends = fw.Dense(shape.width), fw.Dense(shape.outputs)
    blocks = [block] * (shape.depth - 2)
    return fw.Network.critical(shape.inputs, ends[0], *blocks, shape.activation, ends[1])


def _drawn(net: fw.Network, shape: Shape, **options) -> Start:
    dense = [d for d in net.walked if isinstance(d, fw.Dense)]
    widths = list(zip(shape.widths, shape.widths[1:], strict=False))
    weights = [torch.randn(i, o) * math.sqrt(d.C_W / i) for d, (i, o) in zip(dense, widths, strict=True)]
    biases = [torch.randn(o) * math.sqrt(d.C_b) for d, (_, o) in zip(dense, widths, strict=True)]
    return Start(weights, biases, [1.0] * len(dense), [1.0] * len(dense), **options)


def critical(shape: Shape, optimizer: str) -> Start:
    return _drawn(critical_net(shape), shape)


def critical_skips(shape: Shape, optimizer: str) -> Start:
    return _drawn(residual_net(shape), shape, skips=True)


def with_small_outputs(draw: Callable[[Shape, str], Start], shape: Shape, optimizer: str) -> Start:
    """The last weights and biases a tenth as large."""
    start = draw(shape, optimizer)
    start.weights[-1] /= 10
    start.biases[-1] /= 10
    return start


def equal(shape: Shape, optimizer: str) -> Start:
    """Learning rates with lambda_b = lambda_W = 1."""
    net, start = critical_net(shape), critical(shape, optimizer)
    start.weight_rates = [r / i for r, i in zip(net.lambda_W, shape.widths, strict=False)]
    start.bias_rates = list(net.lambda_b)
    return start


def balanced(share: float, shape: Shape, optimizer: str) -> Start:
    """Biases contribute `share` of what the weights of their layer do to the NTK."""
    net, start = critical_net(shape), equal(shape, optimizer)
    arriving = layer_by_layer(net, 1.0).arriving
    start.bias_rates = [share * float(r * s) for r, s in zip(net.lambda_W, arriving, strict=True)]
    return start


def balanced_skips(share: float, shape: Shape, optimizer: str) -> Start:
    """Equivalent rates of a residual network; biases have `share` of the weights' contribution."""
    start = critical_skips(shape, optimizer)
    dense = [d for d in residual_net(shape).walked if isinstance(d, fw.Dense)]
    start.weight_rates = [d.lambda_W / i for d, i in zip(dense, shape.widths, strict=False)]
    start.bias_rates = [share * d.lambda_b for d in dense]
    return start


def for_adam(readout: bool, shape: Shape, optimizer: str) -> Start:
    """Steps of the size of the rate in every parameter: each layer moves preactivations alike.

    With `readout` hidden layers are slower by the square root of the width, so that all move outputs alike.
    """
    net, start = critical_net(shape), critical(shape, optimizer)
    path = layer_by_layer(net, 1.0)
    share = 1 / (shape.depth * np.sqrt(products_above(path.perpendicular)))
    if readout:
        share[:-1] /= math.sqrt(shape.width)
    weights = share / (np.array(shape.widths[:-1]) * np.sqrt(path.arriving))
    start.weight_rates, start.bias_rates = weights.tolist(), share.tolist()
    return start


def mup(shape: Shape, optimizer: str) -> Start:
    """muP (Yang et al. 2022, table 3) on the critical initialization, with base width 64."""
    start, wider = critical(shape, optimizer), shape.width / BASE
    start.weights[-1] /= math.sqrt(wider)
    hidden = shape.depth - 2
    if optimizer in ("adam", "adamw"):
        start.weight_rates = [1.0, *[1 / wider] * hidden, 1 / wider]
    else:
        start.weight_rates = [wider, *[1.0] * hidden, 1 / wider]
        start.bias_rates = [*[wider] * (shape.depth - 1), 1.0]
    return start


def _part(function: Callable, *arguments) -> Callable[[Shape, str], Start]:
    return functools.partial(function, *arguments)


METHODS = {
    "PyTorch": Method(by_default, says="PyTorch's own initialization of nn.Linear, one rate"),
    "Xavier": Method(_part(_with, _xavier), says="xavier_uniform_, zero biases, one rate"),
    "Kaiming": Method(
        _part(_with, _kaiming),
        says="kaiming_normal_ with the gain of tanh (5/3) or relu, zero biases, one rate",
    ),
    "orthogonal": Method(
        _part(_with, _orthogonal),
        says="orthogonal_ with gain 1 (tanh) or the square root of 2, zero biases, one rate",
    ),
    "layer norm": Method(
        with_norm, says="nn.LayerNorm behind each hidden layer, PyTorch's initialization, one rate"
    ),
    "skips": Method(with_skips, says="z + W sigma(z), PyTorch's initialization, one rate"),
    "muP": Method(mup, says="critical initialization with muP's output layer and rates, base width 64"),
    "critical": Method(critical, says="our initialization, one rate"),
    "critical skips": Method(
        critical_skips, says="z + W sigma(z), our initialization of residual networks, one rate"
    ),
    "critical, small last": Method(
        _part(with_small_outputs, critical),
        says="our initialization with a tenth of the last weights, one rate",
    ),
    "critical skips, small last": Method(
        _part(with_small_outputs, critical_skips), says="the same for our residual networks"
    ),
    "lambda_b = 1": Method(equal, True, "our initialization, rates by layer with lambda_b = lambda_W = 1"),
    "bias share 1": Method(_part(balanced, 1.0), True, "our initialization, rates by layer, balanced biases"),
    "bias share 1/10": Method(_part(balanced, 0.1), True, "the same with a tenth of the rate for biases"),
    "bias share 1/100": Method(_part(balanced, 0.01), True, "the same with a hundredth"),
    "bias share 0": Method(_part(balanced, 0.0), True, "the same with biases that stay"),
    "critical skips, by layer": Method(
        _part(balanced_skips, 0.1), True, "our residual networks with rates by layer, bias share 1/10"
    ),
    "Adam by layer": Method(
        _part(for_adam, False), True, "our initialization; Adam moves preactivations of all layers alike"
    ),
    "Adam by layer, outputs": Method(
        _part(for_adam, True), True, "our initialization; Adam moves outputs alike through all layers"
    ),
}
