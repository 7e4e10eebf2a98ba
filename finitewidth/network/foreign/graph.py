"""The computation of a foreign model as a graph, and the sequence of layers that it is.

Nodes are values that depend on the model's input. Some are made by a known layer; the others are *light*: the
light nodes between two layers together are an activation, whatever they are one by one. Where two ways meet
that have weights on them, a sum is a residual block. Everything is found from dominators: the node through
which every way to another passes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from finitewidth.network.layers.abstract import AbstractLayer
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.residual import Residual


class MissingInputs(ValueError):
    """A model that does not say how large its inputs are was read without a batch of them."""


@dataclass(eq=False)
class Node:
    """One value on the way from the input to the output."""

    text: str  # the operation, for messages
    inputs: tuple["Node", ...]  # the values it is computed from, as far as they depend on the model's input
    layer: AbstractLayer | None = None  # the known layer that makes it
    holder: Any = None  # the parameters of that layer, in the model's own form
    is_sum: bool = False
    origin: Any = None  # the model's own node
    number: int = field(default=0, init=False)
    dominator: "Node | None" = field(default=None, init=False)


class Held(NamedTuple):
    """The parameters of one layer with weights."""

    holder: Any
    scale: float = 1.0  # a fixed factor on the outputs of the layer, counted in C_b, C_W and learning rates


class Gap(NamedTuple):
    """The light nodes between two values, which together are an activation."""

    source: Node
    target: Node
    below: str  # the name of the layer before
    above: str


class Block(NamedTuple):
    """Two ways from one value whose sum goes on."""

    ways: tuple[tuple["Part", ...], ...]
    text: str


Part = Node | Gap | Block
Recognize = Callable[[Gap], tuple[AbstractLayer, ...]]  # the layers that a gap is, mostly one activation


class Sequence(NamedTuple):
    """Layers, and the parameters of those with weights in the order of signals, bodies before shortcuts."""

    layers: tuple[AbstractLayer, ...] = ()
    held: tuple[Held, ...] = ()

    def __add__(self, other: "Sequence") -> "Sequence":  # type: ignore[override]
        return Sequence(self.layers + other.layers, self.held + other.held)


def number_nodes(nodes: list[Node]) -> None:
    """Number the nodes, which come in order of computation, and find the dominator of each."""
    for number, node in enumerate(nodes):
        node.number = number
        if node.inputs:
            dominator = node.inputs[0]
            for other in node.inputs[1:]:
                dominator = _common(dominator, other)
            node.dominator = dominator


def _common(a: Node, b: Node) -> Node:
    while a is not b:
        a, b = (a, b) if a.number >= b.number else (b, a)
        if a.dominator is None:
            raise ValueError("the model has several inputs; networks take one.")
        a = a.dominator
    return a


def parts(source: Node, target: Node) -> tuple[Part, ...]:
    """The way from one node to another, in order: layers, gaps between them, and blocks."""
    reversed_parts: list[Part] = []
    while target is not source:
        if target.layer is not None:
            reversed_parts.append(target)
            target = target.inputs[0]
        elif (start := _light_from(source, target)) is not target:
            above = reversed_parts[-1] if reversed_parts else None
            reversed_parts.append(Gap(start, target, _name_at(start), _name_at(above)))
            target = start
        else:
            reversed_parts.append(_block(target))
            assert target.dominator is not None
            target = target.dominator
    return tuple(reversed_parts[::-1])


def _light_from(source: Node, target: Node) -> Node:
    """The first node from which only light nodes lead to the target."""
    while target is not source and target.layer is None and target.dominator is not None:
        if any(node.layer is not None for node in between(target.dominator, target)):
            break
        target = target.dominator
    return target


def between(source: Node | None, target: Node) -> Iterator[Node]:
    """The nodes on the ways from one node to another, without the first; from the input on for None."""
    seen, waiting = set(), [target]
    while waiting:
        node = waiting.pop()
        if node is not source and id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += node.inputs


def ordered(gap: Gap) -> list[Node]:
    """The light nodes of a gap in order of computation."""
    return sorted(between(gap.source, gap.target), key=lambda node: node.number)


def text_of(gap: Gap) -> str:
    """The operations of a gap, for messages."""
    return ", ".join(node.text for node in ordered(gap))


def dominators(first: Node, target: Node) -> Iterator[Node]:
    """The nodes through which every way passes, from the target down to the first."""
    while target is not first:
        yield target
        assert target.dominator is not None
        target = target.dominator
    yield first


def start(first: Node, target: Node) -> Node:
    """The last node before the first layer through which everything passes."""
    light = (one for one in dominators(first, target) if all(n.layer is None for n in between(first, one)))
    return max(light, key=lambda node: node.number)


def _name_at(part: Part | None) -> str:
    if part is None or isinstance(part, Gap):
        return "the output"
    return part.text if isinstance(part, Block) else str(getattr(part.holder, "name", part.text))


def _block(target: Node) -> Block:
    if not target.is_sum or len(target.inputs) != 2:
        names = " and ".join(repr(node.text) for node in target.inputs[:2])
        raise ValueError(
            f"the model joins paths by {target.text}, which reads both {names}; networks of the theory join "
            "paths by sums, x + f(x)."
        )
    assert target.dominator is not None
    return Block(tuple(parts(target.dominator, way) for way in target.inputs), target.text)


def sequence(way: tuple[Part, ...], recognize: Recognize) -> Sequence:
    """The layers of a way; activations come from `recognize`, and those that change nothing are left out."""
    made = Sequence()
    for part in way:
        if isinstance(part, Node):
            assert part.layer is not None
            held = () if part.holder is None else (Held(part.holder),)
            made += Sequence((part.layer,), held)
        elif isinstance(part, Block):
            made += _residual([sequence(one, recognize) for one in part.ways], part.text)
        else:
            made += Sequence(tuple(one for one in recognize(part) if one != as_activation("linear")))
    return made


def _residual(ways: list[Sequence], text: str) -> Sequence:
    split = sorted((_scaled(way) for way in ways), key=lambda one: (_weights(one[1]), one[0] != 1.0))
    (gamma, skip), (factor, body) = split
    if not body.layers or not body.layers[-1].has_weights:
        raise ValueError(
            f"the sum {text} adds two values neither of which ends in weights; end the branch of a skip "
            "connection with a linear layer or a convolution."
        )
    if factor != 1.0:
        body = _with_factor(body, factor)
    block = Residual(*body.layers, gamma=gamma, shortcut=skip.layers)
    return Sequence((block,), body.held + skip.held)


def _weights(way: Sequence) -> int:
    return sum(layer.depth for layer in way.layers)


def _scaled(way: Sequence) -> tuple[float, Sequence]:
    """A fixed factor at the end of a way, and the way without it."""
    if way.layers and isinstance(last := way.layers[-1], Activation):
        slopes = last.slopes
        if slopes is not None and slopes[0] == slopes[1]:
            return float(slopes[0]), Sequence(way.layers[:-1], way.held)
    return 1.0, way


def _with_factor(body: Sequence, factor: float) -> Sequence:
    """The body with the factor in its last weights."""
    last: Any = body.layers[-1]
    if isinstance(last, Residual):
        raise ValueError(
            f"a branch that ends in a skip connection of its own is scaled by {factor:g}, which no weights "
            "take; end it with a linear layer or a convolution."
        )
    squared = factor**2
    changes = {name: getattr(last, name) * squared for name in ("C_b", "C_W", "lambda_b", "lambda_W")}
    held = (*body.held[:-1], body.held[-1]._replace(scale=body.held[-1].scale * factor))
    return Sequence((*body.layers[:-1], replace(last, **changes)), held)
