"""Operations of PyTorch that are layers of the library: weights, norms, pools, flattening, dropout.

Weights have the C_b and C_W that they are measured to have, and the learning rates of gradient descent with
one rate for all parameters; what is frozen has the rate zero.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import fx, nn

from finitewidth.network.foreign.recognition import ensemble_of
from finitewidth.network.foreign.torch_trace import Traced, Weights, checked
from finitewidth.network.layers.abstract import AbstractLayer
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.layer_norm import AbstractNorm, LayerNorm, RMSNorm
from finitewidth.network.layers.pooling import AveragePool, Flatten, GlobalAveragePool

# parts of an operation's name, and the word for it in a message
_UNSUPPORTED = {
    "batchnorm": "batch normalization",
    "instancenorm": "instance normalization",
    "attention": "attention",
    "transformer": "attention",
    "maxpool": "max pooling",
    "adaptivemax": "max pooling",
    "embedding": "embedding",
    "lstm": "recurrence",
    "gru": "recurrence",
    "rnn": "recurrence",
    "matmul": "a matrix product",
    "bmm": "a matrix product",
    "einsum": "a matrix product",
    "convtranspose": "transposed convolution",
    "conv3d": "convolution over three axes",
    "upsample": "upsampling",
    "interpolate": "upsampling",
    "cat": "concatenation",
    "stack": "concatenation",
}
KNOWN = (
    "fw.torch knows linear layers, convolutions, layer norms, average pools and skip connections, with "
    "elementwise activations between them"
)
SHAPES = {"identity", "flatten", "squeeze", "unsqueeze", "reshape", "view", "contiguous", "getitem"}
_CONVOLUTIONS: dict[Any, tuple[str, ...]] = {
    F.conv1d: ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    F.conv2d: ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
}
_POOLS = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


class Made(NamedTuple):
    """A layer, and the parameters of its weights."""

    layer: AbstractLayer
    weights: Weights | None = None


def layer_of(trace: Traced, node: fx.Node) -> Made | None:
    """The layer that a node is, or None; shapes are not asked for."""
    called = trace.submodule(node)
    if isinstance(called, nn.Linear):
        return _dense(checked(str(node.target), called.weight, called.bias))
    if isinstance(called, nn.Conv1d | nn.Conv2d) and not isinstance(called, nn.modules.conv._ConvTransposeNd):
        return _module_convolution(str(node.target), called)
    if node.op == "call_function" and node.target is F.linear:
        return _dense(_functional(trace, node, ("input", "weight", "bias")))
    if node.op == "call_function" and node.target in _CONVOLUTIONS:
        return _functional_convolution(trace, node)
    if isinstance(called, nn.AvgPool1d | nn.AvgPool2d):
        options = [getattr(called, name, None) for name in _POOLS[1:]]
        return Made(_pool(trace.described(node), *options))
    if node.op == "call_function" and node.target in (F.avg_pool1d, F.avg_pool2d):
        defaults = (None, None, 0, False, True, None)
        pairs = zip(_POOLS[1:], defaults, strict=True)
        return Made(
            _pool(trace.described(node), *(trace.argument(node, _POOLS, name, one) for name, one in pairs))
        )
    return _global_pool(trace, node)


def _global_pool(trace: Traced, node: fx.Node) -> Made | None:
    if "adaptiveavgpool" not in trace.plain(node):
        return None
    called = trace.submodule(node)
    size = trace.argument(node, ("input", "output_size"), "output_size")
    size = getattr(called, "output_size", size)
    if any(one != 1 for one in (size if isinstance(size, tuple | list) else (size,))):
        raise ValueError(
            f"{trace.described(node)} makes windows of size {size!r}, which may overlap; use size 1 or "
            "AvgPool2d."
        )
    return Made(GlobalAveragePool())


def _functional(trace: Traced, node: fx.Node, names: tuple[str, ...]) -> Weights:
    tensors = [trace.argument(node, names, name) for name in ("weight", "bias")]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    name = str(getattr(given["weight"], "target", node.name)).removesuffix(".weight")
    return checked(name, *tensors)


def measured(weights: Weights) -> dict[str, float]:
    """C_b, C_W and the learning rates of gradient descent with one rate."""
    weight, bias = weights.weight.detach().double(), weights.bias
    return {
        "C_b": 0.0 if bias is None else float((bias.detach().double() ** 2).mean()),
        "C_W": float((weight**2).mean()) * weights.fan_in,
        "lambda_b": float(bias is not None and bias.requires_grad),
        "lambda_W": float(weights.fan_in * weights.weight.requires_grad),
    }


def _dense(weights: Weights) -> Made:
    ensemble = ensemble_of(weights.weight.detach().double().cpu().numpy())
    return Made(Dense(weights.weight.shape[0], **measured(weights), weights=ensemble), weights)


def _module_convolution(name: str, conv: Any) -> Made:
    weights = checked(name, conv.weight, conv.bias)
    options = conv.stride, conv.padding, conv.dilation, conv.groups
    return Made(_convolution(weights, *options, mode=conv.padding_mode), weights)


def _functional_convolution(trace: Traced, node: fx.Node) -> Made:
    names = _CONVOLUTIONS[node.target]
    weights = _functional(trace, node, names)
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    options = [trace.argument(node, names, name, default) for name, default in defaults.items()]
    return Made(_convolution(weights, *options), weights)


def _convolution(
    weights: Weights, stride: Any, padding: Any, dilation: Any, groups: int, mode: str = "zeros"
) -> Conv:
    if groups != 1 or any(one != 1 for one in _tuple(dilation)):
        raise ValueError(
            f"convolution {weights.name!r} has groups={groups} and dilation={dilation}, which the theory "
            "does not cover; use 1 and 1."
        )
    taps = tuple(weights.weight.shape[2:])
    if mode == "circular":
        if padding != "same" and any(
            2 * one != tap - 1 for one, tap in zip(_tuple(padding), taps, strict=False)
        ):
            raise ValueError(
                f"convolution {weights.name!r} pads circularly by {padding}, not by half of its filter; use "
                "padding='same'."
            )
        padding = "circular"
    elif mode != "zeros":
        raise ValueError(f"convolution {weights.name!r} pads by {mode!r}; use zeros or circular padding.")
    pads = padding if isinstance(padding, str) else tuple(int(one) for one in _tuple(padding))
    width = weights.weight.shape[0]
    return Conv(width, taps, _tuple(stride), _one_or_all(pads), **measured(weights))


def _tuple(value: Any) -> tuple:
    return tuple(value) if isinstance(value, tuple | list | torch.Size) else (value,)


def _one_or_all(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def _pool(
    name: str, window: Any, stride: Any, padding: Any, ceil: Any, counts: Any, divisor: Any
) -> AveragePool:
    if ceil or divisor is not None:
        raise ValueError(f"{name} has ceil_mode or divisor_override; use an average pool without them.")
    stride = None if stride is None or stride == () else _one_or_all(_tuple(stride))
    pads = _one_or_all(_tuple(padding))
    return AveragePool(_one_or_all(_tuple(window)), stride, pads, bool(counts))


def norm_of(trace: Traced, node: fx.Node, value: torch.Tensor) -> tuple[AbstractNorm, Any] | None:
    """A layer norm, RMS norm or group norm of one group on such a value, and its module if it is one."""
    name, called = trace.plain(node), trace.submodule(node)
    rates = {} if called is None else _norm_rates(called)
    if name == "layernorm":
        names = ("input", "normalized_shape", "weight", "bias", "eps")
        shape = _tuple(getattr(called, "normalized_shape", trace.argument(node, names, "normalized_shape")))
        eps = getattr(called, "eps", trace.argument(node, names, "eps", 1e-5))
        whole = math.prod(value.shape[1:])
        if math.prod(shape) not in (value.shape[-1], whole):
            raise ValueError(
                f"{trace.described(node)} normalizes over {shape}; use all axes or the channels."
            )
        axes = "channels" if math.prod(shape) == value.shape[-1] or value.ndim == 2 else "all"
        if axes == "all" and any(rates.values()):
            raise ValueError(
                f"{trace.described(node)} learns a gain and an offset for each position, which no kernel "
                "here has; use nn.GroupNorm(1, channels), whose positions share them, or "
                "elementwise_affine=False."
            )
        return LayerNorm(float(eps), axes, **rates), called
    if name == "rmsnorm":
        names = ("input", "normalized_shape", "weight", "eps")
        shape = _tuple(getattr(called, "normalized_shape", trace.argument(node, names, "normalized_shape")))
        eps = getattr(called, "eps", trace.argument(node, names, "eps", None))
        if math.prod(shape) != value.shape[-1]:
            raise ValueError(f"{trace.described(node)} normalizes over {shape}; use the channels.")
        eps = torch.finfo(value.dtype).eps if eps is None else float(eps)
        return RMSNorm(eps, rates.get("lambda_gain", 0.0)), called
    if isinstance(called, nn.GroupNorm):
        if called.num_groups != 1:
            raise ValueError(f"{trace.described(node)} has {called.num_groups} groups; use 1, a layer norm.")
        return LayerNorm(float(called.eps), "channels" if value.ndim == 2 else "all", **rates), called
    return None


def _norm_rates(norm: nn.Module) -> dict[str, float]:
    """Gains and offsets learn like weights."""
    names = {"lambda_gain": "weight", "lambda_offset": "bias"}
    held = {rate: getattr(norm, name, None) for rate, name in names.items()}
    return {rate: float(one is not None and one.requires_grad) for rate, one in held.items()}


def shape_change(trace: Traced, node: fx.Node, before: torch.Tensor, after: Any) -> AbstractLayer | None:
    """Flattening or an average over all positions, if a node behind weights is one."""
    name = trace.plain(node)
    if not isinstance(after, torch.Tensor) or after.shape == before.shape or before.ndim < 3:
        return None
    if before.numel() == before.shape[0] * before.shape[1]:  # behind an average over all positions
        return None
    if name in SHAPES and after.ndim == 2 and after.numel() == before.numel():
        return Flatten()
    if name == "mean" and after.numel() == before.shape[0] * before.shape[1]:
        return GlobalAveragePool()
    return None


def dropout_of(trace: Traced, node: fx.Node) -> float | None:
    """The probability with which a node in training mode drops values; None for other operations."""
    if "dropout" not in trace.plain(node):
        return None
    called = trace.submodule(node)
    if called is not None:
        return float(getattr(called, "p", 0.0)) if called.training else 0.0
    names = ("input", "p", "training")
    training = trace.argument(node, names, "training", True)
    return float(trace.argument(node, names, "p", 0.5)) if training else 0.0


def refuse_modules(module: nn.Module) -> None:
    """Refuse a module with parts that the theory does not cover, by the names of their types."""
    for name, part in module.named_modules():
        kind = type(part).__name__
        _refuse(kind.lower(), f"{kind} ({name!r})" if name else kind)


def _refuse(plain: str, shown: str) -> None:
    for part, word in _UNSUPPORTED.items():
        if plain.startswith(part) or (len(part) > 5 and part in plain):
            raise ValueError(f"module has {word}, {shown}, which the theory does not cover; {KNOWN}.")


def refuse_by_name(trace: Traced, node: fx.Node) -> None:
    """Refuse operations that the theory does not cover, by their names."""
    if not node.op.startswith("call"):
        return
    shown = trace.described(node)
    _refuse(trace.plain(node), shown)
    called = trace.submodule(node)
    if (getattr(called, "inplace", False) or shown.endswith("_")) and not node.users:
        raise ValueError(
            f"module changes a tensor in place by {shown} without using the result, which tracing cannot "
            "follow; use the returned tensor."
        )
