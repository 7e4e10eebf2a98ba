r"""Relative learning rates of the parameters of a module, for gradient descent and for Adam.

**Gradient descent.** Weights of layer l have $\lambda_W^{(l)}/n$ with the number n of their inputs, biases
$\lambda_b^{(l)}$, by the equivalence principle (`critical/tuning.py`). With a `bias_share` biases add this
share of what the weights of their layer add to the NTK.

**Adam** makes steps of the size of the learning rate, whatever the gradient. A step of all weights of a
neuron changes what it gives by at most the rate times n times the size of what arrives, so that rates

$$\frac{c}{L\, n\, \sqrt{s_l}} \quad \text{(weights)}, \qquad \frac{c_b}{L} \quad \text{(biases, gains)}$$

with the mean square $s_l$ that arrives and the number L of layers keep the change of outputs of order one as
width and depth grow.
"""

import functools
import math
import warnings
import weakref
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from finitewidth.critical.architectures.one_signal import Shares, Size, through
from finitewidth.critical.architectures.weights import Weights, with_weights
from finitewidth.interface.adapters.modules.initialize import critical, weighted
from finitewidth.network.foreign.torch_read import Read
from finitewidth.network.layers.activation import Activation
from finitewidth.network.network import Network

BIAS_SHARE = 0.1  # of the NTK that the weights of a layer add, what its biases should add
ADAM_WEIGHTS = 1.0  # c
ADAM_BIASES = 0.1  # c_b
KEY = "made_for"  # of parameter groups: the optimizer that the rates were made for


class Rate(NamedTuple):
    """The relative learning rate of one parameter."""

    parameter: nn.Parameter
    rate: float
    layer: str  # the name of the layer
    kind: str  # "weights", "biases", "gains" or "offsets"


def contributions(net: Network, input_scale: float) -> list[Shares]:
    """What each layer adds to the NTK over its rates, in the order of signals."""
    shares: list[Shares] = []
    through(net.layers, Size(input_scale), net.input_shape).pull(1.0, shares)
    return shares[::-1]


def balanced(net: Network, input_scale: float, bias_share: float) -> Network:
    """The network whose biases add a share of what the weights of their layer add to the NTK."""
    shares = iter(contributions(net, input_scale))

    def change(layer: Weights) -> Weights:
        share = next(shares)
        size = share.of_weights / share.of_biases if share.of_biases else 0.0
        return replace(layer, lambda_b=bias_share * layer.lambda_W * size if layer.lambda_b else 0.0)

    return Network(net.input_shape, *with_weights(net.layers, change))


def descent_rates(known: Read, net: Network) -> list[Rate]:
    """Rates of gradient descent from lambda_b and lambda_W of the network that a module was read as."""
    rates = []
    for held, layer in zip(known.held, weighted(net), strict=True):
        name, weight, bias = held.holder
        rates.append(Rate(weight, layer.lambda_W / held.holder.fan_in / held.scale**2, name, "weights"))
        if bias is not None:
            rates.append(Rate(bias, layer.lambda_b / held.scale**2, name, "biases"))
    typical = [one.rate for one in rates if one.kind == "biases"] or [1 / max(1, len(known.held))]
    return _learning([*rates, *_others(known.module, rates, min(typical))])


def adam_rates(known: Read, input_scale: float) -> list[Rate]:
    """Rates of Adam from the signals that arrive at each layer of the module as it is."""
    shares, L = contributions(known.net, input_scale), len(known.held)
    rates = []
    for held, share in zip(known.held, shares, strict=True):
        name, weight, bias = held.holder
        size = math.sqrt(share.of_weights / share.of_biases) if share.of_biases > 0 else 1.0
        step = abs(held.scale) * L
        rates.append(
            Rate(weight, ADAM_WEIGHTS / (step * held.holder.fan_in * max(size, 1e-3)), name, "weights")
        )
        if bias is not None:
            rates.append(Rate(bias, ADAM_BIASES / step, name, "biases"))
    return _learning([*rates, *_others(known.module, rates, ADAM_BIASES / L)])


def plain_rates(module: nn.Module, *, adam: bool) -> list[Rate]:
    """The same for a module that the theory does not know: by the shapes of its parameters alone."""
    named = list(module.named_parameters())
    L = max(1, sum(tensor.ndim > 1 for _, tensor in named))
    weights, biases = (ADAM_WEIGHTS, ADAM_BIASES) if adam else (1.0, BIAS_SHARE)
    rates = []
    for name, tensor in named:
        layer, _, last = name.rpartition(".")
        if tensor.ndim > 1:
            rates.append(Rate(tensor, weights / (L * tensor[0].numel()), layer or name, "weights"))
        else:
            rates.append(Rate(tensor, biases / L, layer or name, "biases" if "bias" in last else "gains"))
    return _learning(rates)


def _others(module: nn.Module, rates: list[Rate], rate: float) -> list[Rate]:
    """Gains and offsets of norms, and learned slopes of activations."""
    known = {id(one.parameter) for one in rates}
    rest = [(name, tensor) for name, tensor in module.named_parameters() if id(tensor) not in known]
    kinds = {True: "offsets", False: "gains"}
    return [Rate(one, rate, name.rpartition(".")[0], kinds[name.endswith("bias")]) for name, one in rest]


def _learning(rates: list[Rate]) -> list[Rate]:
    """Without frozen parameters."""
    return [one for one in rates if one.parameter.requires_grad]


def groups_of(rates: list[Rate], factor: float, made_for: str, **options: Any) -> list[dict[str, Any]]:
    """Groups for a torch optimizer, with the name of the optimizer that they are made for."""
    numbers = {name: place for place, name in enumerate(dict.fromkeys(one.layer for one in rates), start=1)}
    return [
        {
            "params": [one.parameter],
            "lr": factor * one.rate,
            "name": f"{one.kind} of layer {numbers[one.layer]} ({one.layer})" if one.layer else one.kind,
            KEY: made_for,
            **options,
        }
        for one in rates
    ]


class OptimizerWarning(UserWarning):
    """Parameter groups are used by another optimizer than the one they were made for."""


@functools.cache  # once in a process
def watch_optimizers() -> None:
    """Let every optimizer notice at its first step that its groups were made for another one."""
    register_optimizer_step_pre_hook(_check)


_checked: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def _check(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if optimizer not in _checked:
        _checked.add(optimizer)
        check_optimizer(optimizer)


def check_optimizer(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer is the one that its groups were made for; a warning says so if it is not.

    Every optimizer with groups of `fw.torch` is checked at its first step; this asks before.
    """
    used = type(optimizer).__name__
    for group in optimizer.param_groups:
        made_for = group.get(KEY)
        if made_for is not None and made_for != used:
            warnings.warn(
                f"parameter groups with rates for {made_for} are used by {used}, which makes other steps of "
                f"the same gradients; use torch.optim.{made_for}, or fw.torch.recommend(..., "
                f"optimizer={used!r}) for groups of its own.",
                OptimizerWarning,
                stacklevel=2,
            )
            return False
    return True


def known_rates(
    known: Read, declared: Activation, input_scale: float, bias_share: float
) -> tuple[list[Rate], Network]:
    """Rates of gradient descent with balanced biases, and the critical network that they belong to."""
    net, _ = critical(known, declared, input_scale, 1.0, 1.0)
    net = balanced(net, input_scale, bias_share)
    return descent_rates(known, net), net
