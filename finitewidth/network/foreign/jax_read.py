"""Models of Equinox and Flax, and any function of parameters and inputs written with JAX, as networks.

The function is traced to its primitive operations (jaxpr). A product or a convolution with an array that
depends on parameters alone is a layer, a sum with such an array its biases; what is left between two layers
is an activation or a layer norm, told by its values.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from finitewidth.core.inputs import reason
from finitewidth.network.foreign import graph
from finitewidth.network.foreign.graph import Gap, MissingInputs, Node
from finitewidth.network.foreign.jax_layers import KNOWN, convolution, norm, window_pool, with_variance
from finitewidth.network.foreign.recognition import activation_of, ensemble_of, gaussian_beside_others
from finitewidth.network.layers.abstract import AbstractLayer, Shape
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.layer_norm import LayerNorm
from finitewidth.network.layers.pooling import Flatten, GlobalAveragePool
from finitewidth.network.network import Network

_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # parameters under which operations hold others


class Held(NamedTuple):
    """The weights of one layer."""

    name: str


class Traced(NamedTuple):
    """A function of parameters and inputs, an example of both, and whether inputs have a batch axis."""

    function: Callable
    parameters: Any
    example: jax.Array
    batched: bool


def read_model(model: Any, inputs: Any, parameters: Any) -> Network:
    """The network that a model of Equinox or Flax, or a function with its parameters, is."""
    nnx: Any = sys.modules.get("flax.nnx")  # its models come with it
    packages = {kind.__module__.split(".")[0] for kind in type(model).__mro__}
    if "equinox" in packages:
        trace = _of_equinox(model, inputs)
    elif parameters is not None:
        call = getattr(model, "apply", model)
        trace = Traced(call, parameters, _batch(inputs), True)
    elif hasattr(nnx, "split") and "flax" in packages and not hasattr(model, "apply"):
        trace = _of_nnx(nnx, model, inputs)
    else:
        raise ValueError(
            f"{type(model).__name__} does not hold its parameters; pass parameters=, as model.init returned "
            "them."
        )
    return _Reader(trace).network()


def _of_equinox(model: Any, inputs: Any) -> Traced:
    import equinox as eqx

    arrays, static = eqx.partition(eqx.nn.inference_mode(model), eqx.is_inexact_array)
    if inputs is None:
        matrices = [leaf for leaf in jax.tree.leaves(arrays) if leaf.ndim == 2]
        convolves = any(leaf.ndim > 2 for leaf in jax.tree.leaves(arrays))
        if convolves or not matrices:
            raise MissingInputs(
                f"{type(model).__name__} does not say how large its inputs are; pass inputs, a batch of them."
            )
        example = jnp.ones(matrices[0].shape[1])
    else:
        example = _batch(inputs)[0]
    return Traced(lambda held, x: eqx.combine(held, static)(x), arrays, example, False)


def _of_nnx(nnx: Any, model: Any, inputs: Any) -> Traced:
    definition, parameters, others = nnx.split(model, nnx.Param, ...)

    def function(held: Any, x: jax.Array) -> Any:
        copy = nnx.merge(definition, held, others)
        copy.eval()  # dropout does nothing
        return copy(x)

    return Traced(function, parameters, _batch(inputs), True)


def _batch(inputs: Any) -> jax.Array:
    if inputs is None:
        raise MissingInputs("the model does not say how large its inputs are; pass inputs, a batch of them.")
    array = jnp.asarray(np.asarray(inputs))
    if array.ndim < 2 or not array.shape[0]:
        raise ValueError(f"inputs must be a batch, one row for each input, got shape {array.shape}.")
    return array[:1]


Place = tuple[Node, int]  # a node, and which of its results


class Operation(NamedTuple):
    """A primitive operation and what it acts on: places, and values that do not depend on the input."""

    equation: Any
    arguments: list[Any]

    def applied(self, known: dict[Node, list[Any]]) -> list[Any]:
        """The results, from those of other nodes."""
        given = [known[one[0]][one[1]] if isinstance(one, tuple) else one for one in self.arguments]
        results = self.equation.primitive.bind(*given, **self.equation.params)
        return list(results) if self.equation.primitive.multiple_results else [results]


@dataclass
class _Reader:
    """What is gathered on the way through the operations."""

    trace: Traced
    places: dict[Any, Place] = field(default_factory=dict)  # of variables that depend on the input
    values: dict[Any, Any] = field(default_factory=dict)  # of those that do not
    operations: dict[Node, "Operation"] = field(default_factory=dict)
    sums: dict[Node, int] = field(default_factory=dict)  # over positions, and the number that divides them
    count: int = 0

    def network(self) -> Network:
        """The network, from the first operation to the last."""
        trace = self.trace
        try:
            closed = jax.make_jaxpr(trace.function)(trace.parameters, trace.example)
        except Exception as error:  # a user's function may raise anything on a symbolic input
            raise ValueError(
                f"the model cannot be traced ({type(error).__name__}: {reason(error)})."
            ) from error
        leaves = jax.tree.leaves(trace.parameters)
        *before, last = closed.jaxpr.invars
        self.values |= dict(zip(before, leaves, strict=True))
        first = Node("the input", (), origin=last.aval)
        self.places[last] = first, 0
        self._run(closed)
        (output,) = closed.jaxpr.outvars if len(closed.jaxpr.outvars) == 1 else (None,)
        if not self._is_data(output):
            raise ValueError(f"the model does not return one array that depends on its input; {KNOWN}.")
        graph.number_nodes([first, *self.operations])
        target = self.places[output][0]
        way = graph.parts(graph.start(first, target), target)
        if not any(not isinstance(part, Gap) for part in way):
            raise ValueError(f"the model has no linear layer; {KNOWN}.")
        if isinstance(way[-1], Gap):
            self._check_end(way[-1])
            way = way[:-1]
        layers = graph.sequence(way, self._recognized).layers
        if self.sums:
            raise ValueError(f"the model sums over positions without a division by their number; {KNOWN}.")
        return gaussian_beside_others(Network(self._input_shape(layers), *layers))

    def _run(self, closed: Any) -> None:
        self.values |= dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        for equation in closed.jaxpr.eqns:
            inner = next((equation.params[name] for name in _INNER if name in equation.params), None)
            if inner is None:
                self._apply(equation)
            else:
                self._run_inner(equation, inner)

    def _run_inner(self, equation: Any, inner: Any) -> None:
        closed = inner if hasattr(inner, "consts") else ClosedJaxpr(inner, [])
        for outer, variable in zip(equation.invars, closed.jaxpr.invars, strict=True):
            self._alias(outer, variable)
        self._run(closed)
        for variable, outer in zip(closed.jaxpr.outvars, equation.outvars, strict=True):
            self._alias(variable, outer)

    def _alias(self, known: Any, name: Any) -> None:
        if self._is_data(known):
            self.places[name] = self.places[known]
        else:
            self.places.pop(name, None)  # of an earlier call of the same function
            self.values[name] = self._value(known)

    def _value(self, variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else self.values[variable]

    def _is_data(self, variable: Any) -> bool:
        return variable is not None and not isinstance(variable, Literal) and variable in self.places

    def _apply(self, equation: Any) -> None:
        if not any(self._is_data(one) for one in equation.invars):
            results = equation.primitive.bind(*map(self._value, equation.invars), **equation.params)
            results = results if equation.primitive.multiple_results else [results]
            for variable, result in zip(equation.outvars, results, strict=True):
                self.values[variable] = result
                self.places.pop(variable, None)
            return
        node = self._node(equation)
        arguments = [self.places[one] if self._is_data(one) else self._value(one) for one in equation.invars]
        self.operations.setdefault(node, Operation(equation, arguments))
        for index, variable in enumerate(equation.outvars):
            self.places[variable] = node, index

    def _node(self, equation: Any) -> Node:
        name = equation.primitive.name
        ways = tuple(self.places[one][0] for one in equation.invars if self._is_data(one))
        others = [one for one in equation.invars if not self._is_data(one)]
        if name in ("dot_general", "conv_general_dilated"):
            if len(ways) != 1:
                raise ValueError(f"the model multiplies values by each other ({name}); {KNOWN}.")
            return self._weights(equation, ways[0], np.asarray(self._value(others[0])))
        if name == "squeeze" and isinstance(ways[0].layer, Dense | Conv):  # an axis of one sample
            ways[0].origin = equation.outvars[0].aval
            return ways[0]
        if name == "add" and len(ways) == 1 and self._add_biases(ways[0], np.asarray(self._value(others[0]))):
            return ways[0]
        layer, number = self._by_shape(equation, ways[0])
        node = Node(name, ways, layer, is_sum=name in ("add", "add_any"), origin=equation.outvars[0].aval)
        if number:
            self.sums[node] = number
        return node

    def _weights(self, equation: Any, before: Node, weights: np.ndarray) -> Node:
        self.count += 1
        held = Held(f"{equation.primitive.name} {self.count}")
        if equation.primitive.name == "dot_general":
            layer: AbstractLayer = self._dense(equation, weights)
        else:
            layer = convolution(equation, weights)
        return Node(held.name, (before,), layer, held, origin=equation.outvars[0].aval)

    def _dense(self, equation: Any, weights: np.ndarray) -> Dense:
        (left, right), batch = equation.params["dimension_numbers"]
        is_left = not self._is_data(equation.invars[0])
        axes = left if is_left else right
        if batch[0] or len(axes) != 1 or weights.ndim != 2:
            raise ValueError(f"the model has a product over several axes; {KNOWN}.")
        fan_in = weights.shape[axes[0]]
        return with_variance(Dense(weights.size // fan_in, weights=ensemble_of(weights)), weights, fan_in)

    def _add_biases(self, node: Node, biases: np.ndarray) -> bool:
        """Whether an array that is added to the output of weights is taken as their biases."""
        if not isinstance(node.layer, Dense | Conv) or node.layer.lambda_b or biases.size < node.layer.width:
            return False
        square = float(np.mean(np.asarray(biases, dtype=float) ** 2))
        node.layer = replace(node.layer, C_b=square, lambda_b=1.0)
        return True

    def _by_shape(self, equation: Any, before: Node) -> tuple[AbstractLayer | None, int]:
        """Flattening, or the sum of an average over positions and their number, behind a convolution."""
        name, output = equation.primitive.name, equation.outvars[0].aval.shape
        came = equation.invars[0].aval.shape if hasattr(equation.invars[0], "aval") else ()
        axes = len(came) - int(self.trace.batched)
        if axes < 2 or not _behind_convolution(before):
            return None, 0
        if name == "reshape" and len(output) == 1 + self.trace.batched:
            return Flatten(), 0
        if name == "reduce_sum" and len(equation.params["axes"]) == axes - 1:
            return GlobalAveragePool(), int(np.prod([came[axis] for axis in equation.params["axes"]]))
        if name == "reduce_window_sum":
            return window_pool(equation)
        return None, 0

    def _recognized(self, gap: Gap) -> tuple[AbstractLayer, ...]:
        if gap.source in self.sums:
            self._check_average(gap, self.sums.pop(gap.source))
            return ()
        if (layer := self._norm(gap)) is not None:
            return (layer,)
        try:
            return (self._activation(gap),)
        except ValueError:
            # a norm right before an activation
            for middle in list(graph.dominators(gap.source, gap.target))[1:-1]:
                if (layer := self._norm(gap._replace(target=middle))) is not None:
                    return layer, self._activation(gap._replace(source=middle))
            raise

    def _check_average(self, gap: Gap, number: int) -> None:
        """A sum over positions is divided by their number, and nothing else happens to it."""
        shape = gap.source.origin.shape
        rows = np.random.default_rng(0).normal(size=(3, int(np.prod(shape))))
        if not np.allclose(self._function(gap, shape)(rows), rows / number, rtol=1e-6):
            raise ValueError(
                f"a sum over {number} positions is not divided by that number alone, which would make it an "
                f"average; {KNOWN}."
            )

    def _norm(self, gap: Gap) -> LayerNorm | None:
        shape = gap.source.origin.shape
        return norm(self._function(gap, shape), shape, self.trace.batched)

    def _activation(self, gap: Gap) -> Activation:
        shape = gap.source.origin.shape
        place, text = f"between {gap.below!r} and {gap.above!r}", graph.text_of(gap)
        return activation_of(self._function(gap, shape), int(np.prod(shape)), None, place=place, text=text)

    def _function(self, gap: Gap, shape: Shape) -> Callable[[np.ndarray], np.ndarray]:
        """The operations of a gap on matrices whose rows are flattened values."""
        nodes = graph.ordered(gap)

        def one(row: jax.Array) -> jax.Array:
            known = {gap.source: [row.reshape(shape)]}
            for node in nodes:
                known[node] = self.operations[node].applied(known)
            return known[gap.target][0].reshape(-1)

        return lambda rows: np.asarray(jax.vmap(one)(jnp.asarray(rows)))

    def _check_end(self, gap: Gap) -> None:
        names = [node.text for node in graph.between(gap.source, gap.target)]
        if any(name not in ("reshape", "squeeze", "broadcast_in_dim") for name in names):
            raise ValueError(
                f"{names[-1]} follows the last layer with weights, but the theory's output is that layer; "
                "leave the softmax to the loss."
            )

    def _input_shape(self, layers: tuple[AbstractLayer, ...]) -> Shape:
        shape = self.trace.example.shape[int(self.trace.batched) :]
        channels_first = not self.trace.batched and any(isinstance(one, Conv) for one in layers)
        return (*shape[1:], shape[0]) if channels_first and len(shape) > 1 else tuple(shape)


def _behind_convolution(node: Node) -> bool:
    return any(isinstance(one.layer, Conv) for one in graph.between(None, node))
