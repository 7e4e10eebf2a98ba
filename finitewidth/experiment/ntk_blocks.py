r"""Blocks of the NTK of one model, in three ways.

For a function of unknown structure there are two ways from the gradients of a block of rows to the kernel:
products with the gradients of a block of columns, $2 n_L P$ operations for each row and column sample with P
parameters, or derivatives of the outputs of the columns along the gradients of the rows, about the work of
two evaluations of the function on a sample. The cheaper one is taken; Novak, Sohl-Dickstein and Schoenholz
(*Fast finite width neural tangent kernel*, 2022) compare them. The layers of an `fw.Network` know more:
their gradients have structure, and need not be formed.
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.experiment.directions import ntk, ntk_between
from finitewidth.experiment.layers.sequence import RealSequence
from finitewidth.experiment.sampling import real_network
from finitewidth.network.network import Network

Counts = tuple[int, int]  # of rows and of columns


@dataclass(frozen=True, eq=False)
class AbstractBlocks(abc.ABC):
    """A way to compute blocks of the kernel, and their size."""

    outputs: int  # n_L
    rows: int  # samples in a block of rows
    neurons: int  # output neurons in a block of rows
    columns: int  # samples in a block of columns

    @abc.abstractmethod
    def seen(self, x: Array, first: int) -> Any:
        """What is known of a block of rows with output neurons from `first` on, before it meets columns."""

    @abc.abstractmethod
    def kernel(self, seen: Any, x: Array) -> Float[Array, "neurons N n M"]:
        """The kernel between a block of rows and a block of columns."""

    def traced(self, seen: Any, x: Array, first: int) -> Float[Array, "N M"]:
        """The sum over equal output neurons of a block whose rows have neurons from `first` on."""
        kernel = self.kernel(seen, x)[: self.outputs - first]
        return jnp.einsum("iaib->ab", kernel[:, :, first : first + kernel.shape[0]])


# --- networks of the package --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StructuredBlocks(AbstractBlocks):
    """Layers that know the structure of their gradients."""

    net: Network
    parameters: Any

    @classmethod
    def of(cls, net: Network, parameters: Any, counts: Counts, memory: float) -> "StructuredBlocks":
        """As large as memory allows."""
        layers, n, size = real_network(net), net.outputs, max(counts)
        while size > 1 and _structured_bytes(layers, n, size) > memory:
            size = (size + 1) // 2
        rows, columns = (_evenly(count, size) for count in counts)
        return cls(n, rows, n, columns, net, parameters)

    def seen(self, x: Array, first: int) -> Array:
        return x

    def kernel(self, seen: Array, x: Array) -> Array:
        if x is seen:
            return _within(self.net, self.parameters, x)
        return _between(self.net, self.parameters, seen, x)


_within, _between = (jax.jit(function, static_argnums=0) for function in (ntk, ntk_between))


def _structured_bytes(layers: RealSequence, neurons: int, samples: int) -> float:
    legs = neurons * samples
    return 8.0 * (2 * legs * sum(layers.sizes) + 4 * legs**2 + 2 * layers.ntk_size(neurons, samples))


# --- functions of unknown structure -------------------------------------------------------------------


class Model(NamedTuple):
    """A function with outputs (N, n_L), its parameters and a learning rate for each of their arrays."""

    f: Callable
    parameters: Any
    rates: Any

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.parameters))


class Cost(NamedTuple):
    """Operations and bytes that one more sample costs."""

    flops: float
    bytes: float  # if everything that is computed on the way is kept


def cheaper_blocks(model: Model, X: Array, counts: Counts, average: bool, memory: float) -> AbstractBlocks:
    """Products of gradients or derivatives along them, whichever is less work, in blocks that fit."""
    n = jax.eval_shape(model.f, model.parameters, X).shape[1]
    cost = _cost_of_one(model, X)
    hashable = model._replace(f=_hashable(model.f))
    products = ProductBlocks.of(hashable, n, counts, cost, memory)
    along = DirectionBlocks.of(hashable, n, counts, cost, memory)
    if products is None:
        if along is None:
            raise ValueError(
                f"memory of {memory / 1e9:.3g} GB is too little for one gradient of {model.size} parameters; "
                f"use memory={64.0 * model.size:.2g} or more."
            )
        return along
    again = (
        0.0 if products.rows >= counts[0] else 3 * cost.flops / products.rows
    )  # gradients of columns, anew
    work = 2.0 * model.size * (1 if average else n) + again
    return products if along is None or work <= 2 * cost.flops else along


@dataclass(frozen=True, eq=False)
class ProductBlocks(AbstractBlocks):
    """Products of the gradients of rows with the gradients of columns."""

    model: Model

    @classmethod
    def of(cls, model: Model, n: int, counts: Counts, cost: Cost, memory: float) -> "ProductBlocks | None":
        """As large as memory allows, or None where the gradients of one sample do not fit."""
        fits = int(memory // (2 * n * (16 * model.size + 2 * cost.bytes)))
        rows, columns = (_evenly(count, fits) for count in counts)
        return None if fits < 1 else cls(n, rows, n, columns, model)

    def seen(self, x: Array, first: int) -> tuple[Array, Array]:
        return x, self._gradients(x)

    def kernel(self, seen: tuple[Array, Array], x: Array) -> Array:
        return _product(*self._pair(seen, x))

    def traced(self, seen: tuple[Array, Array], x: Array, first: int) -> Array:
        return _traced_product(*self._pair(seen, x))

    def _pair(self, seen: tuple[Array, Array], x: Array) -> tuple[Array, Array]:
        rows, gradients = seen
        return gradients, gradients if x is rows else self._gradients(x)

    def _gradients(self, x: Array) -> Float[Array, "n N P"]:
        return _rooted_gradients(*self.model, x, jnp.eye(self.outputs))


@dataclass(frozen=True, eq=False)
class DirectionBlocks(AbstractBlocks):
    """Derivatives of the outputs of columns along the gradients of rows."""

    model: Model

    @classmethod
    def of(cls, model: Model, n: int, counts: Counts, cost: Cost, memory: float) -> "DirectionBlocks | None":
        """As large as memory allows, or None where a single gradient does not fit."""
        legs = int(memory / 2 // (16 * model.size + 2 * cost.bytes))
        if legs < 1:
            return None
        rows, neurons = (_evenly(counts[0], legs // n), n) if legs >= n else (1, _evenly(n, legs))
        columns = int(memory / 2 // (2 * rows * neurons * max(cost.bytes, 8.0)))
        return cls(n, rows, neurons, _evenly(counts[1], columns), model)

    def seen(self, x: Array, first: int) -> Any:
        ends = jnp.eye(self.outputs)[first : first + self.neurons]
        missing = self.neurons - ends.shape[0]
        return _directions(*self.model, x, jnp.pad(ends, ((0, missing), (0, 0))))

    def kernel(self, seen: Any, x: Array) -> Array:
        return _along(self.model.f, self.model.parameters, seen, x)


def _evenly(count: int, fits: int) -> int:
    """The size of as few blocks as fit, all about equally large."""
    fits = max(1, min(count, fits))
    return -(-count // -(-count // fits))


def _cost_of_one(model: Model, X: Array) -> Cost:
    """What one more sample costs, by the compiler's count; at least a product with each parameter."""
    totals = []
    for samples in (1, 2):
        x = jax.ShapeDtypeStruct((samples, *X.shape[1:]), X.dtype)
        traced = jax.jit(model.f).trace(model.parameters, x)
        counted = traced.lower().cost_analysis()
        flops = counted.get("flops", 0.0) if isinstance(counted, dict) else 0.0
        totals.append((flops, _computed_bytes(traced.jaxpr.jaxpr)))
    (flops, bytes_), (flops_of_two, bytes_of_two) = totals
    return Cost(max(flops_of_two - flops, 2.0 * model.size), max(bytes_of_two - bytes_, 8.0))


def _computed_bytes(jaxpr: Any) -> float:
    """The size of all that is computed on the way, in double precision."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [getattr(part, "jaxpr", part) for part in jax.tree.leaves(equation.params, is_leaf=_is_jaxpr)]
        inside = [_computed_bytes(part) for part in inner if hasattr(part, "eqns")]
        times = equation.params.get("length", 1) if inside else 1  # of a scan
        own = sum(8.0 * math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars)
        total += times * sum(inside) if inside else own
    return total


def _is_jaxpr(part: Any) -> bool:
    return hasattr(part, "eqns") or hasattr(part, "jaxpr")


def _hashable(f: Callable) -> Callable:
    """f, or a function that calls it: compiled code is known by its function."""
    try:
        hash(f)
    except TypeError:
        return lambda parameters, X: f(parameters, X)
    return f


def _gradients(f: Callable, parameters: Any, x: Array, ends: Float[Array, "neurons n"]) -> Any:
    """The gradient of each output neuron of each sample, axes (neuron, sample, ...) for each array."""

    def of_sample(one):
        _, back = jax.vjp(lambda p: f(p, one[None])[0], parameters)
        return jax.vmap(lambda end: back(end)[0])(ends)

    return jax.vmap(of_sample, out_axes=1)(x)


@partial(jax.jit, static_argnums=0)
def _directions(f: Callable, parameters: Any, rates: Any, x: Array, ends: Array) -> Any:
    gradients = _gradients(f, parameters, x, ends)
    return jax.tree.map(lambda gradient, rate: gradient * rate, gradients, rates)


@partial(jax.jit, static_argnums=0)
def _rooted_gradients(
    f: Callable, parameters: Any, rates: Any, x: Array, ends: Array
) -> Float[Array, "neurons N P"]:
    """Gradients times the roots of their rates, all parameters in one axis."""
    gradients = _gradients(f, parameters, x, ends)
    scaled = jax.tree.map(lambda gradient, rate: gradient * jnp.sqrt(rate), gradients, rates)
    return jnp.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(scaled)], axis=-1)


@jax.jit
def _product(left: Float[Array, "n N P"], right: Float[Array, "n M P"]) -> Float[Array, "n N n M"]:
    return jnp.einsum("iap,jbp->iajb", left, right)


@jax.jit
def _traced_product(left: Float[Array, "n N P"], right: Float[Array, "n M P"]) -> Float[Array, "N M"]:
    return jnp.einsum("iap,ibp->ab", left, right)


@partial(jax.jit, static_argnums=0)
def _along(f: Callable, parameters: Any, directions: Any, x: Array) -> Float[Array, "neurons N n M"]:
    _, push = jax.linearize(lambda p: f(p, x), parameters)
    derivatives = jax.vmap(jax.vmap(push))(directions)  # (neuron, sample, M, n)
    return derivatives.swapaxes(2, 3)
