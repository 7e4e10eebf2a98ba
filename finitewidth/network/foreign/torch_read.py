"""A torch.nn module as a network of the library, with the parameters of its layers."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx, nn

from finitewidth.core.inputs import reason
from finitewidth.network.foreign import graph
from finitewidth.network.foreign.graph import Gap, Held, MissingInputs, Node
from finitewidth.network.foreign.recognition import Given, activation_of, gaussian_beside_others, passed
from finitewidth.network.foreign.torch_layers import (
    KNOWN,
    SHAPES,
    dropout_of,
    layer_of,
    norm_of,
    refuse_by_name,
    refuse_modules,
    shape_change,
)
from finitewidth.network.foreign.torch_notes import notes_of
from finitewidth.network.foreign.torch_trace import Traced, Weights, traced, unwrapped
from finitewidth.network.layers.abstract import AbstractLayer, Shape
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.dropout import Dropout
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.network.layers.residual import Residual
from finitewidth.network.network import Network

_PART_OF_THE_LOSS = {"softmax", "logsoftmax", "sigmoid", "logsigmoid"}
_SUMS = {"add", "iadd"}


class Read(NamedTuple):
    """A module read as a network."""

    module: nn.Module
    net: Network  # with the C_b and C_W that the weights have, and the rates of plain gradient descent
    held: tuple[Held, ...]  # the parameters of its dense layers and convolutions, in the order of signals
    norms: tuple[nn.Module, ...]  # layer norms that have gains and offsets
    notes: tuple[str, ...]  # what was passed over: wrappers, dropout, learned slopes, frozen parameters
    front: Callable[[torch.Tensor], torch.Tensor]  # what the module does to inputs before the first layer

    @property
    def weights(self) -> tuple[Weights, ...]:
        """Names and parameters of the layers with weights."""
        return tuple(one.holder for one in self.held)


def read(module: Any, inputs: Any = None, *, activation: Given = None, with_dropout: bool = False) -> Read:
    """The network that a module computes, or an error that names the operation which is in no network.

    `inputs`, a batch as the module takes it, is needed for modules that begin with a convolution or whose
    layers act at several positions. Nothing is changed, and no random number of the user is drawn.
    """
    module, wrapper = unwrapped(module)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        reader = _Reader(_traced(module), with_dropout)
        reader.collect(inputs)
        layers, held = reader.sequence(activation)
    notes = notes_of(module, wrapper, reader.dropout, reader.slopes)
    shape = reader.input_shape(layers)
    try:
        net = Network(shape, *layers)
    except ValueError as error:
        if "gain that learns" not in str(error):
            raise
        net = Network(shape, *with_fixed_gains(layers))
        fixed = "gains and offsets of layer norms count as fixed, since the NTK is not known otherwise"
        notes = (*notes, fixed)
    net = gaussian_beside_others(net)
    norms = tuple(one for one in reader.norms if one is not None and one.weight is not None)
    return Read(module, net, held, norms, notes, reader.prepared)


def _traced(module: nn.Module) -> Traced:
    try:
        return traced(module)
    except ValueError:
        refuse_modules(module)  # a part that the theory does not cover is the better reason
        raise


def with_fixed_gains(layers: Iterable[AbstractLayer]) -> tuple[AbstractLayer, ...]:
    """The layers with norms whose gains and offsets do not learn."""
    return tuple(_with_fixed_gains(layer) for layer in layers)


def _with_fixed_gains(layer: AbstractLayer) -> AbstractLayer:
    if isinstance(layer, Residual):
        body, skip = (with_fixed_gains(part) for part in (layer.layers, layer.shortcut))
        return layer.replace(layers=body, shortcut=skip)
    return layer.frozen() if isinstance(layer, AbstractNorm) else layer


@dataclass
class _Reader:
    """What is gathered on the way through the graph."""

    trace: Traced
    with_dropout: bool
    dropout: list[str] = field(default_factory=list)  # names of operations that drop values
    slopes: list[str] = field(default_factory=list)  # names of activations with learned slopes
    norms: list[Any] = field(default_factory=list)
    nodes: dict[fx.Node, Node] = field(default_factory=dict)  # those that carry data
    values: dict[fx.Node, Any] = field(default_factory=dict)  # of an example, as far as it is known
    owners: dict[int, str] = field(default_factory=dict)  # of parameters
    source: Node | None = None

    def collect(self, inputs: Any) -> None:
        """Make a node of every operation, from the input to the output."""
        fx_nodes = list(self.trace.graph.nodes)
        data = self.trace.data()
        for node in fx_nodes:
            refuse_by_name(self.trace, node)
        self._start(fx_nodes, inputs)
        behind: set[fx.Node] = set()  # nodes behind the first weights
        for node in fx_nodes:
            if node in data and node.op != "output":
                ways = [one for one in node.all_input_nodes if one in data]
                is_behind = any(one in behind for one in ways)
                made = self._node(node, tuple(self.nodes[one] for one in ways), is_behind=is_behind)
                self.nodes[node] = made
                if is_behind or made.layer is not None:
                    behind.add(node)
        if not behind:
            name = type(self.trace.module).__name__
            raise ValueError(f"module {name} has no linear layer; {KNOWN}.")
        self._refuse_other_parameters()
        graph.number_nodes(list(dict.fromkeys(self.nodes.values())))

    def _start(self, fx_nodes: list[fx.Node], inputs: Any) -> None:
        """Values for shapes: the inputs, or an example in front of the first linear layer."""
        places = [node for node in fx_nodes if node.op == "placeholder" and not node.args]
        if len(places) != 1:
            raise ValueError(f"module takes {len(places)} inputs; networks of the theory take one.")
        if inputs is not None:
            self.values[places[0]] = as_batch(inputs, self.trace.module)
            return
        for node in fx_nodes:
            made = layer_of(self.trace, node)
            if made is not None and made.weights is not None:
                if isinstance(made.layer, Conv):
                    raise MissingInputs(
                        f"convolution {made.weights.name!r} does not say how large images are; pass inputs, "
                        "a batch that the model accepts."
                    )
                weight = made.weights.weight
                example = torch.ones(2, weight.shape[1], dtype=weight.dtype, device=weight.device)
                self.values[self.trace.input_of(node)] = example
                return

    def _node(self, node: fx.Node, inputs: tuple[Node, ...], *, is_behind: bool) -> Node:
        trace, text = self.trace, self.trace.described(node)
        if node.op == "placeholder":
            return Node("the input", (), origin=node)
        drop = dropout_of(trace, node)
        if drop is not None:
            return self._dropout(node, inputs[0], drop)
        made = layer_of(trace, node)
        if made is not None:
            if made.weights is not None:
                self._own(made.weights)
                self._check_width(node, made.weights)
            return Node(text, inputs, made.layer, made.weights, origin=node)
        if is_behind and (layer := self._by_shape(node, inputs[0])) is not None:
            return Node(text, inputs, layer, origin=node)
        if isinstance(trace.submodule(node), nn.PReLU):
            self.slopes.append(str(node.target))
        return Node(text, inputs, is_sum=trace.plain(node) in _SUMS, origin=node)

    def _by_shape(self, node: fx.Node, before: Node) -> AbstractLayer | None:
        """The layer that an operation is because of the shape of what it acts on."""
        name = self.trace.plain(node)
        if "norm" not in name and name not in SHAPES | {"mean"}:
            return None
        value = self._value(before.origin)
        norm = norm_of(self.trace, node, value)
        if norm is None:
            return shape_change(self.trace, node, value, self._value(node))
        self.norms.append(norm[1])
        return norm[0]

    def _dropout(self, node: fx.Node, before: Node, drop: float) -> Node:
        if drop and self.with_dropout:
            return Node(self.trace.described(node), (before,), Dropout(drop), origin=node)
        if drop:
            self.dropout.append(str(node.target) if node.op == "call_module" else self.trace.described(node))
        return before

    def _check_width(self, node: fx.Node, weights: Weights) -> None:
        value = self.values.get(self.trace.input_of(node))
        if isinstance(value, torch.Tensor) and weights.weight.ndim == 2 and value.ndim > 2:
            if any(isinstance(one.layer, Conv) for one in self.nodes.values()):
                raise ValueError(
                    f"layer {weights.name!r} acts along positions of a convolution; flatten or average them "
                    "first."
                )

    def _value(self, node: fx.Node) -> Any:
        try:
            return self.trace.value(node, self.values)
        except (RuntimeError, TypeError, IndexError, AssertionError) as error:
            raise ValueError(
                f"module cannot be evaluated at {self.trace.described(node)} ({reason(error)}); pass inputs, "
                "a batch that it accepts."
            ) from error

    def _own(self, weights: Weights) -> None:
        tensors = [id(tensor) for tensor in (weights.weight, weights.bias) if tensor is not None]
        shared = [self.owners[one] for one in tensors if one in self.owners]
        if shared:
            raise ValueError(
                f"layers {shared[0]!r} and {weights.name!r} share weights, but the theory's layers are "
                "independent; give each its own."
            )
        self.owners |= dict.fromkeys(tensors, weights.name)

    def _refuse_other_parameters(self) -> None:
        module = self.trace.module
        extra = [one for one in self.norms if one is not None]
        extra += [one for one in module.modules() if isinstance(one, nn.PReLU)]
        known = self.owners.keys() | {id(p) for one in extra for p in one.parameters()}
        others = [name for name, tensor in module.named_parameters() if id(tensor) not in known]
        if others:
            owner = type(module.get_submodule(others[0].rpartition(".")[0])).__name__
            raise ValueError(
                f"parameter {others[0]!r} (of {owner}) belongs to no layer that the theory knows; {KNOWN}."
            )

    def sequence(self, given: Given) -> graph.Sequence:
        """The layers from the first to the last."""
        output = next(node for node in self.trace.graph.nodes if node.op == "output")
        if not isinstance(output.args[0], fx.Node) or output.args[0] not in self.nodes:
            raise ValueError(f"module does not return one tensor; {KNOWN}.")
        target, first = self.nodes[output.args[0]], next(iter(self.nodes.values()))
        self.source = graph.start(first, target)  # inputs are prepared there
        way = graph.parts(self.source, target)
        if way and isinstance(way[-1], Gap):
            self._check_end(way[-1])
            way = way[:-1]
        gaps = list(_gaps(way))
        wanted = dict(zip(_places(way, gaps), passed(given, _count(way, gaps)), strict=False))
        return graph.sequence(way, lambda gap: self._recognized(gap, wanted.get(gaps.index(gap))))

    def _recognized(self, gap: Gap, wanted: Activation | None) -> tuple[Activation]:
        def function(entries: np.ndarray) -> np.ndarray:
            known = {gap.source.origin: torch.from_numpy(entries.copy())}
            value = self.trace.value(gap.target.origin, known)
            return value.to(torch.float64).numpy()

        width = self._width(gap.source)
        place = f"between layers {gap.below!r} and {gap.above!r}"
        return (activation_of(function, width, wanted, place=place, text=graph.text_of(gap)),)

    def _width(self, node: Node) -> int:
        while node.dominator is not None and not isinstance(node.layer, Dense | Conv):
            node = node.dominator
        return node.layer.width if isinstance(node.layer, Dense | Conv) else 8

    def _check_end(self, gap: Gap) -> None:
        for node in graph.between(gap.source, gap.target):
            if self.trace.plain(node.origin) not in SHAPES | _PART_OF_THE_LOSS:
                raise ValueError(
                    f"{node.text} follows the last linear layer, but the theory's output is that layer; end "
                    "the module there, or with softmax, log_softmax or sigmoid as parts of the loss."
                )

    def prepared(self, inputs: torch.Tensor) -> torch.Tensor:
        """What enters the first layer."""
        assert self.source is not None
        first = next(iter(self.nodes))
        return self.trace.value(self.source.origin, {first: inputs.clone()})

    def input_shape(self, layers: tuple) -> Shape:
        """The shape of one input of the first layer, channels last."""
        assert self.source is not None
        value = self._value(self.source.origin)
        shape = tuple(value.shape[1:])
        channels_first = len(shape) > 1 and any(isinstance(layer, Conv) for layer in layers)
        if not shape:
            raise ValueError(f"inputs have shape {tuple(value.shape)}; pass a batch, one row for each input.")
        return (*shape[1:], shape[0]) if channels_first else shape


def _gaps(way: tuple) -> Iterator[Gap]:
    for part in way:
        if isinstance(part, Gap):
            yield part
        elif isinstance(part, graph.Block):
            for one in part.ways:
                yield from _gaps(one)


def _is_chain(way: tuple) -> bool:
    return all(isinstance(part, Gap) or isinstance(getattr(part, "layer", None), Dense) for part in way)


def _count(way: tuple, gaps: list[Gap]) -> int:
    """Hidden layers of a perceptron, also those with nothing behind them; elsewhere the activations."""
    if not _is_chain(way):
        return len(gaps)
    return max(1, sum(isinstance(part, Node) for part in way) - 1)


def _places(way: tuple, gaps: list[Gap]) -> list[int | None]:
    """The number of the gap behind each hidden layer of a perceptron, None where there is none."""
    if not _is_chain(way):
        return list(range(len(gaps)))
    pairs = zip(way, (*way[1:], None), strict=True)
    hidden = [(part, after) for part, after in pairs if isinstance(part, Node)][:-1]
    return [gaps.index(after) if isinstance(after, Gap) else None for _, after in hidden]


def as_batch(inputs: Any, module: nn.Module) -> torch.Tensor:
    """Inputs as a tensor of the dtype and on the device of the module's parameters."""
    try:
        batch = inputs if isinstance(inputs, torch.Tensor) else torch.as_tensor(np.asarray(inputs))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"inputs must be a batch that the module accepts ({reason(error)}).") from error
    reference = next(module.parameters(), None)
    if reference is None:
        return batch.detach()
    same = reference.dtype if batch.dtype.is_floating_point else batch.dtype
    return batch.detach().to(device=reference.device, dtype=same)


def declared(activation: Given) -> Activation:
    """The activation of a network without hidden layers, which decides its critical point."""
    count = len(activation) if isinstance(activation, tuple | list) else 1
    return next((one for one in passed(activation, count) if one), as_activation("linear"))
