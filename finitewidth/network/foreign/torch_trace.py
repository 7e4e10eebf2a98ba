"""Tracing a torch.nn module (torch.fx), and evaluating parts of what it computes.

Names, containers and the order of definition do not matter. Dropout counts as in evaluation.
"""

from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.fx.node import map_arg

from finitewidth.core.inputs import reason

_SIZES = {"size", "getattr", "shape", "dim", "len"}  # operations whose results are no tensors


class Weights(NamedTuple):
    """The parameters of one layer with weights, dense or convolutional."""

    name: str
    weight: nn.Parameter  # (n_l, n_{l-1}, ...)
    bias: nn.Parameter | None

    @property
    def fan_in(self) -> int:
        """The number of inputs of a neuron."""
        return self.weight[0].numel()


class Traced(NamedTuple):
    """A module and the graph of what it computes."""

    module: nn.Module
    graph: fx.Graph

    def submodule(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls."""
        return self.module.get_submodule(str(node.target)) if node.op == "call_module" else None

    def attribute(self, node: Any) -> Any:
        """The tensor that a node stands for; anything else as it is."""
        if isinstance(node, fx.Node) and node.op == "get_attr":
            path, _, name = str(node.target).rpartition(".")
            return getattr(self.module.get_submodule(path), name)
        return node

    def described(self, node: fx.Node) -> str:
        """The operation of a node, for a message."""
        if node.op == "call_module":
            return f"{type(self.submodule(node)).__name__} ({str(node.target)!r})"
        if node.op == "call_method":
            return str(node.target)
        return getattr(node.target, "__name__", str(node.target))

    def plain(self, node: fx.Node) -> str:
        """The name of the operation in small letters without underscores."""
        return self.described(node).split(" ")[0].lower().replace("_", "")

    def argument(self, node: fx.Node, names: tuple[str, ...], wanted: str, default: Any = None) -> Any:
        """An argument of a function by its name, positional or not."""
        given = dict(zip(names, node.args, strict=False)) | node.kwargs
        return self.attribute(given.get(wanted, default))

    def data(self) -> set[fx.Node]:
        """The nodes whose values are tensors that depend on the input."""
        nodes: set[fx.Node] = set()
        for node in self.graph.nodes:
            if node.op == "placeholder" and not node.args:
                nodes.add(node)
            elif any(one in nodes for one in node.all_input_nodes) and self.plain(node) not in _SIZES:
                nodes.add(node)
        return nodes

    def value(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        """The value of a node from known ones, computed on the way."""
        if node not in known:
            args = map_arg(node.args, lambda one: self.value(one, known))
            kwargs = map_arg(node.kwargs, lambda one: self.value(one, known))
            known[node] = self._called(node, args, kwargs)
        return known[node]

    def _called(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        if "dropout" in self.plain(node):
            return args[0]
        match node.op:
            case "get_attr":
                return self.attribute(node).detach().cpu()
            case "call_module":
                called = self.submodule(node)
                if isinstance(called, nn.PReLU):
                    return nn.functional.prelu(args[0], called.weight.detach().to(args[0]))
                assert called is not None
                return called(*args, **kwargs)
            case "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            case "call_function":
                return node.target(*args, **kwargs)  # type: ignore[operator]
        raise ValueError(
            f"the model needs its argument {node.target!r} in the middle of its computation; pass inputs, a "
            "batch that it accepts."
        )

    def input_of(self, node: fx.Node) -> fx.Node:
        """The tensor that an operation of one tensor acts on."""
        return node.args[0] if node.args else node.kwargs["input"]  # type: ignore[return-value]


def unwrapped(module: Any) -> tuple[nn.Module, str | None]:
    """The module inside torch.compile, DataParallel or DistributedDataParallel, and the wrapper's name."""
    wrapper = None
    while True:
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            wrapper, module = type(module).__name__, module.module
        elif isinstance(inner := getattr(module, "_orig_mod", None), nn.Module):
            wrapper, module = "torch.compile", inner
        else:
            break
    if not isinstance(module, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, got {type(module).__name__}; pass the model.")
    return module, wrapper


def traced(module: nn.Module) -> Traced:
    """The module with the graph of what it computes."""
    try:
        return Traced(module, fx.Tracer().trace(module))
    except Exception as error:  # a user's forward may raise anything on a symbolic input
        raise ValueError(
            f"module {type(module).__name__} cannot be traced ({type(error).__name__}: "
            f"{reason(error)}); write its forward without Python control flow on tensors, and pass the "
            "plain module."
        ) from error


def checked(name: str, weight: Any, bias: Any) -> Weights:
    """The parameters of a layer, or an error for tensors that are none."""
    for kind, tensor in (("weights", weight), ("biases", bias)):
        if tensor is None and kind == "biases":
            continue
        if isinstance(tensor, nn.UninitializedParameter) or getattr(tensor, "is_meta", False):
            raise ValueError(
                f"layer {name!r} has no {kind} yet; run the module on a batch or give it storage."
            )
        if not isinstance(tensor, nn.Parameter):
            raise ValueError(
                f"{kind} of layer {name!r} are computed (weight normalization or another parametrization), "
                "not parameters; remove the parametrization."
            )
        if not tensor.dtype.is_floating_point:
            raise ValueError(
                f"{kind} of layer {name!r} have dtype {tensor.dtype}; use real floating numbers."
            )
        if not bool(torch.isfinite(tensor.detach()).all()):
            raise ValueError(f"layer {name!r} has NaN or infinity in its parameters; initialize it again.")
    return Weights(name, weight, bias)
