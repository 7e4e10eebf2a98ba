"""Reading a torch.nn module: its linear layers in the order of application, and the operations between them.

The module is traced symbolically (torch.fx), so names, containers and the order of definition do not matter.
A module that is not a chain of linear layers is refused with the name of the operation that breaks the chain.
"""

from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.fx.node import map_arg

# parts of an operation's name, and the word for it in a message
_UNSUPPORTED = {
    "conv": "convolution",
    "norm": "normalization",
    "attention": "attention",
    "transformer": "attention",
    "pool": "pooling",
    "embedding": "embedding",
    "lstm": "recurrence",
    "gru": "recurrence",
    "rnn": "recurrence",
    "matmul": "a matrix product",
    "einsum": "a matrix product",
}
_KNOWN = "fw.torch knows linear layers with elementwise activations between them"

# allowed after the last linear layer: changes of shape, and operations that belong to the loss
_SHAPES = {"identity", "flatten", "squeeze", "reshape", "view", "size", "getattr", "getitem", "dropout"}
_PART_OF_THE_LOSS = {"softmax", "logsoftmax", "sigmoid", "logsigmoid"}


class LinearLayer(NamedTuple):
    """One linear layer by the parameters that it holds."""

    name: str
    weight: nn.Parameter  # (n_l, n_{l-1})
    bias: nn.Parameter | None


class Piece(NamedTuple):
    """The part of a module's computation from the node `source` to the node `target`."""

    module: nn.Module
    source: fx.Node
    target: fx.Node

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        """The result for a tensor on the CPU; operations in place change a copy."""
        return _value(self.module, self.target, {self.source: value.clone()})

    @property
    def operations(self) -> list[fx.Node]:
        """The nodes between the two, in order of application."""
        nodes: list[fx.Node] = []
        waiting = [self.target]
        while waiting:
            node = waiting.pop()
            if node is not self.source and node not in nodes:
                nodes.append(node)
                waiting += node.all_input_nodes
        return nodes[::-1]

    def __str__(self) -> str:
        calls = [node for node in self.operations if node.op != "get_attr"]
        return ", ".join(described(self.module, node) for node in calls) or "nothing"


class Chain(NamedTuple):
    """A multilayer perceptron: the preparation of inputs, the layers, and the operations between them."""

    front: Piece
    layers: tuple[LinearLayer, ...]
    between: tuple[Piece, ...]  # one fewer

    @property
    def widths(self) -> tuple[int, ...]:
        """n_0 ... n_L."""
        return self.layers[0].weight.shape[1], *(layer.weight.shape[0] for layer in self.layers)


def read(module: nn.Module) -> Chain:
    """The chain of linear layers that a module computes."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, got {type(module).__name__}; pass the model.")
    graph = _traced(module)
    linear = {node: layer for node in graph.nodes if (layer := _linear(module, node)) is not None}
    for node in graph.nodes:
        if node not in linear:
            _refuse_by_name(module, node)
    if not linear:
        raise ValueError(f"module {type(module).__name__} has no linear layer; {_KNOWN}.")
    _refuse_other_parameters(module, list(linear.values()))
    nodes, pieces = _in_order(module, graph, list(linear))
    layers = tuple(linear[node] for node in nodes)
    _refuse_changed_shapes(layers)
    return Chain(pieces[0], layers, tuple(pieces[1:]))


def _refuse_changed_shapes(layers: tuple[LinearLayer, ...]) -> None:
    for below, above in zip(layers, layers[1:], strict=False):
        if below.weight.shape[0] != above.weight.shape[1]:
            raise ValueError(
                f"layer {above.name!r} takes {above.weight.shape[1]} inputs but {below.name!r} gives "
                f"{below.weight.shape[0]}, so that the shape changes between them; {_KNOWN}."
            )


def _traced(module: nn.Module) -> fx.Graph:
    try:
        return fx.Tracer().trace(module)
    except Exception as error:  # a user's forward may raise anything on a symbolic input
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise ValueError(
            f"module {type(module).__name__} cannot be traced ({type(error).__name__}: "
            f"{reason.rstrip('.')}); write its forward without Python control flow on tensors, and pass the "
            "plain module."
        ) from error


def _linear(module: nn.Module, node: fx.Node) -> LinearLayer | None:
    if node.op == "call_module" and isinstance(layer := module.get_submodule(str(node.target)), nn.Linear):
        return _checked(str(node.target), layer.weight, layer.bias)
    if node.op == "call_function" and node.target is nn.functional.linear:
        given = dict(zip(("input", "weight", "bias"), node.args, strict=False)) | node.kwargs
        tensors = [_attribute(module, given.get(name)) for name in ("weight", "bias")]
        name = str(getattr(given["weight"], "target", node.name)).removesuffix(".weight")
        return _checked(name, *tensors)
    return None


def _attribute(module: nn.Module, node: Any) -> Any:
    if isinstance(node, fx.Node) and node.op == "get_attr":
        path, _, name = str(node.target).rpartition(".")
        return getattr(module.get_submodule(path), name)
    return node


def _checked(name: str, weight: Any, bias: Any) -> LinearLayer:
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
    return LinearLayer(name, weight, bias)


def described(module: nn.Module, node: fx.Node) -> str:
    """The name of a node's operation for a message."""
    if node.op == "call_module":
        return f"{type(module.get_submodule(str(node.target))).__name__} ({str(node.target)!r})"
    return (
        str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))
    )


def _plain(module: nn.Module, node: fx.Node) -> str:
    return described(module, node).split(" ")[0].lower().replace("_", "")


def _refuse_by_name(module: nn.Module, node: fx.Node) -> None:
    if not node.op.startswith("call"):
        return
    name, shown = _plain(module, node), described(module, node)
    for part, word in _UNSUPPORTED.items():
        if part in name:
            raise ValueError(f"module has {word}, {shown}, which the theory does not cover; {_KNOWN}.")
    if "dropout" in name and _drops(module, node):
        raise ValueError(
            f"module has dropout in training mode, {shown}, which the theory does not cover; call "
            "module.eval() or set p=0."
        )
    acts_in_place = getattr(_submodule(module, node), "inplace", False) or str(shown).endswith("_")
    if acts_in_place and not node.users:
        raise ValueError(
            f"module changes a tensor in place by {shown} without using the result, which tracing cannot "
            "follow; use the returned tensor."
        )


def _submodule(module: nn.Module, node: fx.Node) -> nn.Module | None:
    return module.get_submodule(str(node.target)) if node.op == "call_module" else None


def _drops(module: nn.Module, node: fx.Node) -> bool:
    layer = _submodule(module, node)
    if layer is not None:
        return layer.training and float(getattr(layer, "p", 1.0)) > 0  # type: ignore[arg-type]
    given = dict(zip(("input", "p", "training"), node.args, strict=False)) | node.kwargs
    return bool(given.get("training", True)) and bool(given.get("p", 0.5) != 0)


def _refuse_other_parameters(module: nn.Module, layers: list[LinearLayer]) -> None:
    owners: dict[int, str] = {}
    for layer in layers:
        held = [id(tensor) for tensor in (layer.weight, layer.bias) if tensor is not None]
        shared = [owners[one] for one in held if one in owners]
        if shared:
            raise ValueError(
                f"layers {shared[0]!r} and {layer.name!r} share weights, but the theory's layers are "
                "independent; give each its own."
            )
        owners |= dict.fromkeys(held, layer.name)
    others = [name for name, tensor in module.named_parameters() if id(tensor) not in owners]
    if others:
        owner = type(module.get_submodule(others[0].rpartition(".")[0])).__name__
        raise ValueError(
            f"parameter {others[0]!r} (of {owner}) belongs to no linear layer that the module applies; "
            f"{_KNOWN}."
        )


def _in_order(module: nn.Module, graph: fx.Graph, linear: list[fx.Node]) -> tuple[list[fx.Node], list[Piece]]:
    """Linear nodes from input to output, and the pieces before each of them."""
    origins = _origins(module, graph, linear)
    read_by: dict[fx.Node, list[fx.Node]] = {}
    for node in linear:
        for place in origins[_input_of(node)]:
            read_by.setdefault(place, []).append(node)
    place = next((node for node in read_by if node.op == "placeholder"), None)
    ordered, pieces = [], []
    while place in read_by:
        readers = read_by[place]
        if len(readers) > 1:
            names = " and ".join(repr(str(node.target)) for node in readers[:2])
            raise ValueError(f"module branches: {names} read the same values; {_KNOWN}.")
        pieces.append(Piece(module, place, _input_of(readers[0])))
        place = readers[0]
        ordered.append(place)
    output = next(node for node in graph.nodes if node.op == "output")
    if not ordered or origins[output] != {place}:
        raise ValueError(f"module does not return the output of its last linear layer; {_KNOWN}.")
    _check_end(Piece(module, ordered[-1], output.all_input_nodes[0]))
    return ordered, pieces


def _origins(module: nn.Module, graph: fx.Graph, linear: list[fx.Node]) -> dict[fx.Node, set[fx.Node]]:
    """For each node the input or linear layer that its value comes from, or the node itself if it is one."""
    origins: dict[fx.Node, set[fx.Node]] = {}
    for node in graph.nodes:
        joined: set[fx.Node] = set().union(*(origins[other] for other in node.all_input_nodes))
        if len(joined) > 1 and node.op != "output":
            names = " and ".join(repr(str(n.target)) for n in sorted(joined, key=lambda n: n.name)[:2])
            raise ValueError(
                "module joins paths (a skip connection, or several inputs): "
                f"{described(module, node)} reads both {names}; {_KNOWN}."
            )
        origins[node] = {node} if node in linear or node.op == "placeholder" else joined
    return origins


def _input_of(node: fx.Node) -> fx.Node:
    return node.args[0] if node.args else node.kwargs["input"]  # type: ignore[return-value]


def _check_end(piece: Piece) -> None:
    for node in piece.operations:
        if _plain(piece.module, node) not in _SHAPES | _PART_OF_THE_LOSS:
            raise ValueError(
                f"{described(piece.module, node)} follows the last linear layer, but the theory's output is "
                "that layer; end the module there, or with softmax, log_softmax or sigmoid as parts of the "
                "loss."
            )


def _value(module: nn.Module, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    if node not in known:
        args = map_arg(node.args, lambda one: _value(module, one, known))
        kwargs = map_arg(node.kwargs, lambda one: _value(module, one, known))
        known[node] = _called(module, node, args, kwargs)
    return known[node]


def _called(module: nn.Module, node: fx.Node, args: Any, kwargs: Any) -> Any:
    match node.op:
        case "get_attr":
            return _attribute(module, node).detach().cpu()
        case "call_module":
            return module.get_submodule(str(node.target))(*args, **kwargs)
        case "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        case "call_function":
            return node.target(*args, **kwargs)  # type: ignore[operator]
    raise ValueError(f"module needs its argument {node.target!r} twice; {_KNOWN}.")
