"""Signals and gradients of any torch module, layer by layer, measured by hooks while it runs.

A layer is an operation with a matrix of weights: a linear layer or a convolution, as a module or a function,
and any other module that owns such a parameter. Everything runs in double precision on the CPU in a copy of
the model in evaluation mode, so that a gradient as small as 1e-30 is measured and the model is not changed.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.autograd.forward_ad as forward_mode
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from finitewidth.core.inputs import reason

_OUTPUTS = 16  # output neurons whose gradients are taken
_WEIGHTED = {
    F.linear: 0,
    F.conv1d: 1,
    F.conv2d: 2,
    F.conv3d: 3,
}  # functions of (input, weight, bias, ...), and the positions they act along


class Curves(NamedTuple):
    """One number for each layer, (L,): a mean over samples, and over output neurons if there are several."""

    signal: np.ndarray  # mean square of what the layer gives
    gradient: np.ndarray  # squared norm of d output / d what the layer gives
    ntk: np.ndarray  # the layer's part of the NTK with lambda_b = lambda_W = 1; NaN where it is not known
    correlation: np.ndarray  # of what the layer gives for two inputs, a mean over pairs
    nearby: np.ndarray  # mean square of the change that a small change of the input makes


@dataclass
class Call:
    """One layer at work."""

    name: str
    output: torch.Tensor
    arriving: torch.Tensor | None = None  # of layers whose operation is known
    options: tuple = ()  # stride, padding and dilation
    positions: int = 0
    taps: tuple[int, ...] = ()
    has_bias: bool = False


@dataclass
class _Calls(TorchFunctionMode):
    """Keeps the output of every layer while a model runs; what runs on is a copy, for work in place."""

    names: dict[int, str]
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self):
        super().__init__()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func not in _WEIGHTED:
            return result
        given = dict(zip(("input", "weight", "bias"), args, strict=False)) | (kwargs or {})
        weight = given["weight"]
        if id(weight) not in self.names:
            return result
        names = ("stride", "padding", "dilation")
        options = dict(zip(names, args[3:], strict=False)) | {
            name: (kwargs or {})[name] for name in names if name in (kwargs or {})
        }
        self.calls.append(
            Call(
                self.names[id(weight)],
                result,
                given["input"],
                tuple(options.get(name, 0 if name == "padding" else 1) for name in names),
                _WEIGHTED[func],
                tuple(weight.shape[2:]),
                given.get("bias") is not None,
            )
        )
        return result.clone()

    def hook(self, name: str):
        """Of a module whose operation is not known."""

        def keep(module: nn.Module, args: Any, output: Any) -> Any:
            first = output[0] if isinstance(output, tuple | list) else output
            if isinstance(first, torch.Tensor) and first.dtype.is_floating_point:
                if not any(call.name == name or call.name.startswith(name + ".") for call in self.calls):
                    self.calls.append(Call(name, first))

        return keep


@contextmanager
def differentiable() -> Iterator[None]:
    """Attention by plain operations, which have all derivatives; torch warns of its own parts meanwhile."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def copied(model: nn.Module) -> nn.Module:
    """A copy in double precision on the CPU and in evaluation mode."""
    try:
        return copy.deepcopy(model).cpu().double().eval()
    except Exception as error:  # a user's module may refuse anything
        raise ValueError(
            f"module {type(model).__name__} cannot be copied ({type(error).__name__}: {error}); the audit "
            "measures a copy, so that the model is not changed."
        ) from error


@contextmanager
def _watched(model: nn.Module) -> Iterator[_Calls]:
    names = {id(tensor): name.removesuffix(".weight") for name, tensor in model.named_parameters()}
    calls = _Calls(names)
    handles = [
        module.register_forward_hook(calls.hook(name))
        for name, module in model.named_modules()
        if name and _owns_weights(module)
    ]
    try:
        with calls:
            yield calls
    finally:
        for handle in handles:
            handle.remove()


def _owns_weights(module: nn.Module) -> bool:
    if isinstance(module, nn.Linear | nn.modules.conv._ConvNd) and not hasattr(module, "parametrizations"):
        return False  # their functions are seen
    parametrized = getattr(module, "parametrizations", {})
    own = [
        *module.parameters(recurse=False),
        *(one for part in parametrized.values() for one in part.parameters()),
    ]
    return any(tensor.ndim > 1 for tensor in own)


def run(model: nn.Module, inputs: torch.Tensor) -> tuple[list[Call], torch.Tensor]:
    """The calls of a forward pass and the output, one row for each sample."""
    try:
        with _watched(model) as watched:
            output = model(inputs)
    except Exception as error:  # a user's forward may raise anything
        raise ValueError(
            f"sample must be a batch of inputs that the module accepts, one row each ({reason(error)})."
        ) from error
    first = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(first, torch.Tensor) or first.ndim < 1 or len(first) != len(inputs):
        raise ValueError(
            f"module {type(model).__name__} does not return a tensor with one row for each input; audit the "
            "part that does."
        )
    if not watched.calls:
        raise ValueError(
            f"module {type(model).__name__} has no linear layer and no other weights; there is nothing to "
            "measure."
        )
    return _numbered(watched.calls), first.reshape(len(first), -1)


def _numbered(calls: list[Call]) -> list[Call]:
    """Layers that are called again get a number behind their names."""
    seen: dict[str, int] = {}
    for call in calls:
        seen[call.name] = seen.get(call.name, 0) + 1
        if seen[call.name] > 1:
            call.name = f"{call.name} ({seen[call.name]})"
    return calls


def measured(
    model: nn.Module, inputs: torch.Tensor, *, brief: bool = False
) -> tuple[tuple[str, ...], Curves]:
    """The names of the layers in the order of work, and their curves; `brief` leaves out the last three."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = inputs.clone()
        if leaf.dtype.is_floating_point:
            leaf.requires_grad_()
        calls, output = run(model, leaf)
        gradient, ntk = _backward(calls, output, with_ntk=not brief)
    signal = np.array([float((call.output.detach() ** 2).mean()) for call in calls])
    nothing = np.full(len(calls), np.nan)
    correlation = nothing if brief else np.array([_correlation(call.output.detach()) for call in calls])
    nearby = nothing if brief else _nearby(model, inputs, len(calls))
    return tuple(call.name for call in calls), Curves(signal, gradient, ntk, correlation, nearby)


def _backward(calls: list[Call], output: torch.Tensor, *, with_ntk: bool) -> tuple[np.ndarray, np.ndarray]:
    """Squared norms of gradients, and shares of the NTK, means over samples and output neurons."""
    outputs = min(output.shape[1], _OUTPUTS if with_ntk else 4)
    places = [call.output for call in calls]
    norms, shares = np.zeros(len(calls)), np.zeros(len(calls))
    for neuron in range(outputs):
        gradients = torch.autograd.grad(output[:, neuron].sum(), places, retain_graph=True, allow_unused=True)
        for number, (call, gradient) in enumerate(zip(calls, gradients, strict=True)):
            if gradient is None:
                continue
            norms[number] += float((gradient**2).sum()) / len(output)
            if with_ntk:
                shares[number] += _ntk(call, gradient)
    return norms / outputs, shares / outputs if with_ntk else np.full(len(calls), np.nan)


def _ntk(call: Call, gradient: torch.Tensor) -> float:
    """The part of the NTK that biases and weights over fan-in add, the mean over samples."""
    if call.arriving is None or call.positions == 3:
        return float("nan")
    arriving, back = _at_positions(call, call.arriving.detach(), gradient)
    parts = []
    for a, g in zip(arriving, back, strict=True):  # (positions, fan-in), (positions, neurons)
        weights = float(((g @ g.T) * (a @ a.T)).sum()) / a.shape[1]
        parts.append(weights + call.has_bias * float((g.sum(dim=0) ** 2).sum()))
    return float(np.mean(parts))


def _at_positions(
    call: Call, arriving: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the weights multiply and the gradient behind them, (samples, positions, entries)."""
    if not call.positions:
        shape = (len(arriving), -1)
        return arriving.reshape(*shape, arriving.shape[-1]), gradient.reshape(*shape, gradient.shape[-1])
    stride, padding, dilation = (_pair(one, call.positions) for one in call.options)
    taps = call.taps if call.positions == 2 else (1, *call.taps)
    images = arriving if call.positions == 2 else arriving[:, :, None]
    if isinstance(padding, str):  # "same", whose odd zero stands behind
        total = [d * (t - 1) for d, t in zip(dilation, taps, strict=True)] if padding == "same" else [0, 0]
        images = F.pad(
            images, (total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2)
        )
        padding = (0, 0)
    patches = F.unfold(images, taps, dilation, padding, stride).transpose(1, 2)
    return patches, gradient.flatten(2).transpose(1, 2)


def _pair(option: Any, positions: int) -> Any:
    if isinstance(option, str):
        return option
    sizes = tuple(option) if isinstance(option, tuple | list) else (option,) * positions
    neutral = 0 if sizes == (0,) else 1
    return sizes if positions == 2 else (neutral if len(sizes) == 1 else 1, *sizes)


def _correlation(output: torch.Tensor) -> float:
    """The cosine between neighbouring samples."""
    rows = output.reshape(len(output), -1)
    if len(rows) < 2:
        return float("nan")
    return float(F.cosine_similarity(rows[:-1], rows[1:], dim=1).mean())


def _nearby(model: nn.Module, inputs: torch.Tensor, count: int) -> np.ndarray:
    """Mean squares of the change at each layer, exact to first order; ones where it cannot be had."""
    if not inputs.dtype.is_floating_point:
        return np.ones(count)
    change = torch.randn(inputs.shape, dtype=inputs.dtype, generator=torch.Generator().manual_seed(0))
    try:
        with differentiable(), forward_mode.dual_level():
            calls, _ = run(model, forward_mode.make_dual(inputs, change))
            tangents = [forward_mode.unpack_dual(call.output).tangent for call in calls]
    except (ValueError, RuntimeError, NotImplementedError):  # an operation without forward derivatives
        return np.ones(count)
    if len(tangents) != count:
        return np.ones(count)
    return np.array([float("nan") if one is None else float((one.detach() ** 2).mean()) for one in tangents])


def shuffled(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """A copy whose weights and biases are another draw: the entries of every tensor in another order."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for tensor in other.parameters():
            entries = tensor.reshape(-1)
            order = torch.randperm(entries.numel(), generator=generator)
            tensor.copy_(entries[order].reshape(tensor.shape))
    return other
