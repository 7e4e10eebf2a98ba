"""The learning rate of a module for a loss and an optimizer, with the reasons for it."""

import io
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import nn

from finitewidth.core.inputs import as_number, as_positive, reason
from finitewidth.critical.tuning import BIAS_SHARE
from finitewidth.interface.adapters.modules.curvature import Curvature, curvature, softmax, squared
from finitewidth.interface.adapters.modules.measure import copied, differentiable
from finitewidth.interface.adapters.modules.rates import (
    Rate,
    adam_rates,
    groups_of,
    known_rates,
    one_rate,
    plain_adam_rates,
    watch_optimizers,
)
from finitewidth.network.foreign.recognition import Given
from finitewidth.network.foreign.torch_read import Read, as_batch, declared, read
from finitewidth.network.foreign.torch_trace import unwrapped
from finitewidth.network.layers.residual import Residual
from finitewidth.network.network import Network

_ROWS = 128  # inputs on which the curvature is measured
_DECAY = 1e-3  # the rate of PyTorch's Adam, for which people write weight decays
_OF_THE_LIMIT = 0.9  # of the squared loss; networks of infinite width do not converge at the limit
# the best rate of descent for the cross-entropy, measured: factor (2/layers)^power / eigenvalue^power
_FACTOR, _OF_EIGENVALUE = 1.5, 0.25
_OF_DEPTH, _OF_DEPTH_WITH_SKIPS = 1.25, 0.75
_SHOWN = 16  # layers in the printed table
_OPTIMIZERS = ("SGD", "Adam", "AdamW")


class Loss(NamedTuple):
    """What the learning rate needs to know of a loss."""

    name: str  # "squared" or "cross-entropy"
    reduction: str  # "mean" or "sum"

    def root(self, samples: int, outputs: int):
        """The square root of the curvature in the outputs, for the mean over samples."""
        if self.name == "cross-entropy":
            return softmax(1 / samples)
        return squared(2 / (samples * (outputs if self.reduction == "mean" else 1)))


@dataclass(frozen=True, eq=False)
class Recommendation:
    """Learning rates for one module, loss and optimizer, and why they are what they are.

    `fw.torch.recommend` makes it.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    print(fw.torch.recommend(model, torch.as_tensor(X, dtype=torch.float32), loss="squared"))
    ```
    """

    made_for: str  # "SGD", "Adam" or "AdamW"
    learning_rate: float  # the factor on the relative rates of all groups; of Adam, the one rate
    largest_learning_rate: float | None  # descent is stable below it at initialization; None for Adam
    curvature: float | None  # the largest eigenvalue of NTK times curvature of the loss, with relative rates
    loss: Loss  # the loss as it was understood
    momentum: float  # that of SGD
    groups: list[dict[str, Any]] = field(repr=False)  # for the optimizer
    shares: dict[str, float] = field(repr=False)  # of the parameters in the NTK with these rates; sum to one
    net: Network | None = field(repr=False)  # the critical network whose rates by layer these are
    reasons: tuple[str, ...]  # why, in sentences
    notes: tuple[str, ...]  # what was passed over

    def optimizer(self, **options: Any) -> torch.optim.Optimizer:
        """The optimizer with these groups; `options` are its other arguments."""
        kind = getattr(torch.optim, self.made_for)
        first = {"lr": self.learning_rate} | options
        return kind([dict(group) for group in self.groups], **first)

    def __str__(self) -> str:
        text = io.StringIO()
        console = Console(file=text, width=110, no_color=True, highlight=False)
        lines = [f"torch.optim.{self.made_for}, learning rate {self.learning_rate:.3g}"]
        lines += [f"reason   {one}" for one in self.reasons] + [f"note     {one}" for one in self.notes]
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)
        console.print(_table(self))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _table(advice: Recommendation) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 1))
    for title in ("group", "rate", "weight decay", "share of the NTK"):
        table.add_column(title, justify="left" if title == "group" else "right", no_wrap=True)
    count, shares = len(advice.groups), list(advice.shares.values())  # in the same order
    kept = sorted(
        {round(i * (count - 1) / max(1, min(count, _SHOWN) - 1)) for i in range(min(count, _SHOWN))}
    )
    for place in kept:
        group, share = advice.groups[place], shares[place]
        table.add_row(
            group["name"],
            f"{group['lr']:.3g}",
            f"{group.get('weight_decay', 0.0):.3g}",
            f"{share:.2%}",
        )
    return table


def recommend(
    module: nn.Module,
    inputs: Any,
    *,
    loss: Any = "cross_entropy",
    optimizer: Any = "SGD",
    momentum: float = 0.0,
    weight_decay: float | None = None,
    bias_share: float | None = None,
    activation: Given = None,
) -> Recommendation:
    """The learning rate and the parameter groups of a module for a loss and an optimizer, with reasons.

    Initialize the module first (`initialize_`): rates belong to the weights that it has. The module is not
    changed.

    What is recommended is what trained best (benchmarks/advice/results/tuned.md):

    - SGD, squared loss: rates by layer (`parameter_groups`) at nine tenths of the limit of stable descent,
      which is two over the largest eigenvalue of the NTK on `inputs` times the curvature of the loss.
      Networks with skips, and modules that the theory does not know, have one rate for all parameters.
    - SGD, cross-entropy: one rate for all parameters, which depends on the number of layers and little on
      the eigenvalue, since the curvature of this loss changes in training. The law was measured.
    - Adam, AdamW: one rate, 2 over the number of inputs of a neuron, summed over the layers.
      The product of rate and weight decay stays the same, and biases have none.

    `largest_learning_rate` is the limit of stable descent at initialization; with `momentum` m it is $1+m$
    times as large, and the recommended rate is smaller by 1 - m. No rate is known to be safe: watch the loss.

    Args:
        module: The module.
        inputs: A batch as the module takes it.
        loss: "squared", "cross_entropy", or a loss module of PyTorch, whose `reduction` counts.
        optimizer: "SGD", "Adam" or "AdamW", or one of these classes.
        momentum: That of SGD.
        weight_decay: That of AdamW at its default rate of 0.001; it is scaled so that rate times decay is the
            same.
        bias_share: What biases add to the NTK over what the weights of their layer add, where rates
            are by layer.
        activation: Activations that are not recognized, as in `network`.

    Returns:
        The `learning_rate`, the `groups` for the optimizer, and the `reasons`.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    recommended = fw.torch.recommend(model, torch.as_tensor(X, dtype=torch.float32), loss="squared")
    torch.optim.SGD(recommended.groups, lr=recommended.learning_rate)
    ```
    """
    wanted, kind = as_loss(loss), as_optimizer(optimizer)
    momentum = _momentum(momentum, kind)
    decay = _decay(weight_decay, kind)
    model, _ = unwrapped(module)
    known, notes = _known(module, inputs, activation)
    skips = known is not None and any(isinstance(layer, Residual) for layer in known.net.walked)
    share = _share(bias_share, kind == "SGD" and wanted.name == "squared" and known is not None and not skips)
    double = copied(model)
    batch = as_batch(inputs, double)
    if batch.numel() == 0 or (batch.dtype.is_floating_point and not bool(torch.isfinite(batch).all())):
        raise ValueError("inputs must be a batch of finite numbers that the module accepts, one row each.")
    rows = batch[:: max(1, math.ceil(len(batch) / _ROWS))]
    scale = _scale(known, rows)
    rates, net, more = _rates(model, known, kind, activation, scale, share)
    measured = _curvature(double, model, rows, rates, wanted)
    number = len(batch) if wanted.reduction == "sum" else 1
    layers = sum(one.kind == "weights" for one in rates)
    descent = _descent(wanted, measured, number, layers, skips, momentum) if kind == "SGD" else None
    rate = rates[0].rate if descent is None else descent.rate
    options = {"momentum": momentum} if kind == "SGD" and momentum else {}
    groups = groups_of(rates, 1.0 if descent is None else rate, kind, **options)
    if decay is not None:
        for group, one in zip(groups, rates, strict=True):
            group["weight_decay"] = decay * _DECAY / group["lr"] if one.kind == "weights" else 0.0
    watch_optimizers()
    names = {id(tensor): name for name, tensor in model.named_parameters()}
    if descent is None:
        reasons = _reasons_of_adam(decay)
    else:
        reasons = _reasons(descent, wanted, momentum, len(rows), len(batch), share, layers, skips)
    return Recommendation(
        made_for=kind,
        learning_rate=rate,
        largest_learning_rate=None if descent is None else descent.limit,
        curvature=None if descent is None else descent.curvature,
        loss=wanted,
        momentum=momentum,
        groups=groups,
        shares={name: measured.shares[name] for name in (names[id(one.parameter)] for one in rates)},
        net=net,
        reasons=reasons,
        notes=(*notes, *more),
    )


class Descent(NamedTuple):
    """The rate of gradient descent, and what it was taken from."""

    rate: float
    limit: float  # descent is stable below it at initialization
    curvature: float  # the largest eigenvalue


def _descent(
    loss: Loss, measured: Curvature, number: int, layers: int, skips: bool, momentum: float
) -> Descent:
    """Nine tenths of the limit for the squared loss; for the cross-entropy a law that was measured.

    The curvature of the cross-entropy changes in training, and best rates hardly know the one at the start.
    The law was read off transfers and deep networks of benchmarks/advice/results/tuned.md and judged on its
    table.
    """
    largest = measured.largest * number
    if loss.name == "squared":
        rate = _OF_THE_LIMIT * 2 / largest
    else:
        power = _OF_DEPTH_WITH_SKIPS if skips else _OF_DEPTH
        rate = _FACTOR * (2 / max(layers, 1)) ** power / measured.largest**_OF_EIGENVALUE / number
    return Descent((1 - momentum) * rate, 2 * (1 + momentum) / largest, largest)


def _share(given: float | None, by_layer: bool) -> float | None:
    """The share of biases where rates are by layer; None for one rate."""
    if by_layer:
        return as_positive("bias_share", BIAS_SHARE if given is None else given, or_zero=True)
    if given is not None:
        raise ValueError(
            f"bias_share belongs to rates by layer, which SGD gets for the squared loss and a network that "
            f"the theory knows without skips, got bias_share={given!r}; leave it out, or use "
            "fw.torch.parameter_groups."
        )
    return None


def _known(module: Any, inputs: Any, activation: Given) -> tuple[Read | None, tuple[str, ...]]:
    try:
        known = read(module, inputs, activation=activation)
        return known, known.notes
    except ValueError as error:
        if activation is not None:
            raise
        return None, (f"the theory does not know the module, for which no rate was measured: {error}",)


def _scale(known: Read | None, rows: torch.Tensor) -> float:
    if known is None:
        return 1.0
    scale = float((known.front(rows).double() ** 2).mean())
    if not scale > 0:
        raise ValueError("inputs are zeros only, so that nothing enters the module; pass real inputs.")
    return scale


def _rates(
    model: nn.Module,
    known: Read | None,
    kind: str,
    activation: Given,
    scale: float,
    share: float | None,
) -> tuple[list[Rate], Network | None, tuple[str, ...]]:
    """Relative rates, the critical network they belong to if they are by layer, and notes."""
    if kind != "SGD":
        return (plain_adam_rates(model) if known is None else adam_rates(known, scale)), None, ()
    if known is None or share is None:
        return one_rate(model, 1.0), None, ()
    try:
        return *known_rates(known, declared(activation), scale, share), ()
    except ValueError as error:  # no critical point: one rate does not need one
        return one_rate(model, 1.0), None, (f"all parameters have one rate: {error}",)


def _curvature(
    double: nn.Module, model: nn.Module, rows: torch.Tensor, rates: list[Rate], loss: Loss
) -> Curvature:
    names = {id(tensor): name for name, tensor in model.named_parameters()}
    relative = {names[id(one.parameter)]: one.rate for one in rates}
    if not relative:
        raise ValueError("all parameters of the module are frozen; set requires_grad of those that learn.")
    with torch.no_grad():
        outputs = double(rows)
    if not isinstance(outputs, torch.Tensor) or len(outputs) != len(rows):
        raise ValueError("module must return one tensor with one row for each input.")
    try:
        with differentiable():
            result = curvature(double, rows, relative, loss.root(len(rows), outputs[0].numel()))
    except (RuntimeError, NotImplementedError) as error:
        raise ValueError(
            f"module has an operation without the derivatives that are needed ({reason(error)})."
        ) from error
    if not (math.isfinite(result.largest) and result.largest > 0):
        raise ValueError(
            "the loss has no curvature at this initialization, since no gradient passes through the module; "
            "initialize it (fw.torch.initialize_)."
        )
    return result


def as_loss(loss: Any) -> Loss:
    """A loss by its name, or a loss module of PyTorch."""
    reduction = getattr(loss, "reduction", "mean")
    kinds = {nn.MSELoss: "squared", nn.CrossEntropyLoss: "cross-entropy", nn.NLLLoss: "cross-entropy"}
    words = {
        "squared": "squared",
        "mse": "squared",
        "cross_entropy": "cross-entropy",
        "cross-entropy": "cross-entropy",
    }
    name = next((word for kind, word in kinds.items() if isinstance(loss, kind) or loss is kind), None)
    name = name or (words.get(loss.lower().replace("_", "-")) if isinstance(loss, str) else None)
    if name is None or reduction not in ("mean", "sum"):
        raise ValueError(
            f'loss must be "squared", "cross_entropy", nn.MSELoss() or nn.CrossEntropyLoss() with reduction '
            f'"mean" or "sum", got {loss!r}.'
        )
    return Loss(name, reduction)


def as_optimizer(optimizer: Any) -> str:
    """The name of an optimizer, from its name or its class."""
    given = optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", "")
    for name in _OPTIMIZERS:
        if given.lower() == name.lower():
            return name
    raise ValueError(
        f'optimizer must be "SGD", "Adam" or "AdamW", or one of these classes, got {optimizer!r}.'
    )


def _momentum(momentum: Any, kind: str) -> float:
    number = as_number(momentum)
    if not 0 <= number < 1:
        raise ValueError(f"momentum must be at least 0 and below 1, got {momentum!r}.")
    if number and kind != "SGD":
        raise ValueError(f"momentum belongs to SGD, got momentum={momentum!r} for {kind}; leave it out.")
    return number


def _decay(weight_decay: Any, kind: str) -> float | None:
    if weight_decay is None:
        return 0.01 if kind == "AdamW" else None
    if kind != "AdamW":
        raise ValueError(f"weight_decay is scaled with the rates of AdamW, got it for {kind}; leave it out.")
    return as_positive("weight_decay", weight_decay, or_zero=True)


def _reasons_of_adam(decay: float | None) -> tuple[str, ...]:
    reasons = [
        "a step of Adam is as large as its rate: with 2 over the sum of inputs x size of signals over all "
        "layers outputs change by order one at any width and depth",
        "all parameters have one rate, since rates by layer trained worse",
    ]
    if decay is not None:
        reasons.append(
            f"rate times weight decay of all weights is {decay * _DECAY:.3g}, as with rate {_DECAY:g} "
            f"and weight decay {decay:g}, so that weights forget at the same speed"
        )
    return tuple(reasons)


def _reasons(
    descent: Descent,
    loss: Loss,
    momentum: float,
    rows: int,
    count: int,
    share: float | None,
    layers: int,
    skips: bool,
) -> tuple[str, ...]:
    largest = descent.curvature
    of = f"the {loss.reduction} over {count if loss.reduction == 'sum' else 'a batch of any'} inputs"
    how = "the probabilities of the outputs" if loss.name == "cross-entropy" else "every output"
    factor = f" (1 + {momentum:g})" if momentum else ""
    reasons = [
        f"the largest eigenvalue of the NTK times the curvature of the {loss.name} loss ({how}) is "
        f"{largest:.4g} with these relative rates, measured on {rows} inputs, for {of}",
        "all parameters have one rate"
        if share is None
        else f"layers learn alike; biases add {share:.3g} of what the weights of their layer add to the NTK",
        f"descent is stable below 2{factor} / {largest:.4g} = {descent.limit:.4g} at initialization",
    ]
    if loss.name == "squared":
        reasons.append(f"the rate is {_OF_THE_LIMIT:g} of that limit")
    else:
        law = f"{_FACTOR:g} (2/{layers})^{_OF_DEPTH_WITH_SKIPS if skips else _OF_DEPTH:g}"
        reasons.append(
            "the curvature of the cross-entropy changes in training, so that this limit is a poor guide: the "
            f"rate is {law} / (eigenvalue for the mean)^{_OF_EIGENVALUE:g}, the law of measured best rates "
            f"{'with' if skips else 'without'} skips"
        )
    if momentum:
        reasons.append(f"momentum adds up steps, so that the rate is smaller by 1 - {momentum:g}")
    return tuple(reasons)
