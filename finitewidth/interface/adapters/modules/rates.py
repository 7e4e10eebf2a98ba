r"""Relative learning rates of the parameters of a module, for gradient descent, and the one rate of Adam.

**Gradient descent.** Weights of layer l have $\lambda_W^{(l)}/n$ with the number n of their inputs, biases
$\lambda_b^{(l)}$, by the equivalence principle (`critical/tuning.py`).

**Adam** makes steps of the size of the learning rate, whatever the gradient. A step of all weights of a
neuron changes what it gives by at most the rate times n times the size of what arrives. The rate

$$\frac{2}{\sum_l n_l \max(1, \sqrt{s_l})}$$

with the mean square $s_l$ that arrives, keeps the sum of these changes over the layers of order one as width
and depth grow. It is taken for all parameters: rates by layer trained worse. The 2 was measured, and that
small signals are no reason for a larger rate (benchmarks/advice/results/tuned.md).
"""

import functools
import math
import weakref
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from finitewidth.core.display.user_warnings import warn
from finitewidth.critical.architectures.one_signal import contributions_to_ntk
from finitewidth.interface.adapters.modules.initialize import critical, weighted
from finitewidth.network.foreign.torch_read import Read
from finitewidth.network.layers.activation import Activation
from finitewidth.network.network import Network

ADAM = 1e-3  # PyTorch's default, for modules without weights
CHANGE = 2.0  # of what neurons give in a step of Adam, summed over the layers; measured
KEY = "made_for"  # of parameter groups: the optimizer that the rates were made for


class Rate(NamedTuple):
    """The relative learning rate of one parameter."""

    parameter: nn.Parameter
    rate: float
    layer: str  # the name of the layer
    kind: str  # "weights", "biases", "gains" or "offsets"


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
    """The one rate of Adam for a module as it is, from the signals that arrive at each layer."""
    net = known.net
    shares = contributions_to_ntk(net.layers, net.input_shape, input_scale)
    changes = 0.0
    for held, share in zip(known.held, shares, strict=True):
        size = math.sqrt(share.of_weights / share.of_biases) if share.of_biases > 0 else 1.0
        changes += abs(held.scale) * held.holder.fan_in * max(size, 1.0)
    return one_rate(known.module, CHANGE / changes)


def one_rate(module: nn.Module, rate: float) -> list[Rate]:
    """The same rate for all parameters that learn, in the order of the module."""
    rates = []
    for name, tensor in module.named_parameters():
        layer, _, last = name.rpartition(".")
        kind = "weights" if tensor.ndim > 1 else "biases" if "bias" in last else "gains"
        rates.append(Rate(tensor, rate, layer or name, kind))
    return _learning(rates)


def plain_adam_rates(module: nn.Module) -> list[Rate]:
    """The one rate of Adam for a module that the theory does not know, by the shapes of its parameters."""
    inputs = [tensor[0].numel() for tensor in module.parameters() if tensor.ndim > 1]
    return one_rate(module, CHANGE / sum(inputs) if inputs else ADAM)


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
    """Parameter groups are used by another optimizer than the one they were made for.

    ```python
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", fw.torch.OptimizerWarning)  # stop at it
        # optimizer.step()
    ```
    """


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

    Args:
        optimizer: An optimizer of PyTorch.

    Returns:
        True if it is, or if its groups are not of `fw.torch`.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    fw.torch.check_optimizer(torch.optim.SGD(fw.torch.parameter_groups(model, 0.05), lr=0.05))
    ```
    """
    used = type(optimizer).__name__
    for group in optimizer.param_groups:
        made_for = group.get(KEY)
        if made_for is not None and made_for != used:
            warn(
                f"parameter groups with rates for {made_for} are used by {used}, which makes other steps of "
                f"the same gradients; use torch.optim.{made_for}, or fw.torch.recommend(..., "
                f"optimizer={used!r}) for groups of its own.",
                OptimizerWarning,
            )
            return False
    return True


def known_rates(
    known: Read, declared: Activation, input_scale: float, bias_share: float
) -> tuple[list[Rate], Network]:
    """Rates of gradient descent, and the critical network that they belong to."""
    net, _ = critical(known, declared, input_scale, bias_share=bias_share)
    return descent_rates(known, net), net
