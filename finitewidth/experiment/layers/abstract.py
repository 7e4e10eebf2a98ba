r"""The interface of a layer in real networks, and the list of known kinds.

Each file of this folder holds one kind of layer. A kind says which parameters it has and how it acts on
samples; all derivatives then follow by automatic differentiation. A kind whose derivatives have structure,
such as gradients that are outer products, overrides the methods where the structure saves work.

Legs are outputs of the network, a = (neuron, sample), with the sample running fastest. Along with every leg
comes its direction $g_a = \lambda\, \partial z_a/\partial\theta$ in the space of parameters.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from finitewidth.network.layers.abstract import AbstractLayer, Shape

Legs = Float[Array, "legs others"]
FourLegs = Float[Array, "legs legs legs legs"]


class Record(NamedTuple):
    """One layer of one network, seen from the outputs."""

    parameters: Any
    incoming: Float[Array, "N ..."]
    delta: Float[Array, "legs ..."]  # dz_a/d(values behind the layer)
    tangent: Float[Array, "N legs ..."] | None = None  # of `incoming` along g_a; None where it does not move


class Passage(NamedTuple):
    """What came into a layer with weights, and its preactivations, with a skip that ends there."""

    incoming: Float[Array, "N ..."]
    preactivations: Float[Array, "N ..."]


class AbstractRealLayer(abc.ABC):
    """One layer of real networks: its parameters, its action on samples, and the derivatives of both.

    Samples stand along the first axis and do not mix. Methods are for one network; `jax.vmap` gives many.
    """

    # --- parameters, where a kind has any, and action, which every kind defines ---------------------------

    @property
    def normal_count(self) -> int:
        """The number of normal numbers from which the parameters are made."""
        return 0

    def initial(self, normals: Float[Array, " count"]) -> Any:
        """The parameters at initialization, made from `normal_count` standard normal numbers."""
        return ()

    @property
    def rates(self) -> Any:
        """The learning rates, in the structure of the parameters with a number for each array."""
        return ()

    @abc.abstractmethod
    def apply(self, parameters: Any, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """The values behind the layer."""

    @property
    def has_parameters(self) -> bool:
        """Whether the layer has an entry among the parameters of a network."""
        return bool(jax.tree.leaves(self.rates))

    has_weights: ClassVar[bool] = False  # whether it is one of the counted layers of a network

    @property
    def is_structured(self) -> bool:
        """Whether its differentials are its own, and fast."""
        return False

    def traced(self, parameters: Any, z: Float[Array, "N ..."]) -> tuple[Array, list[Passage]]:
        """The values behind the layer, and the passages through the counted layers inside it."""
        behind = self.apply(parameters, z)
        return behind, [Passage(z, behind)] if self.has_weights else []

    def check_fixed(self) -> None:  # noqa: B027  # most layers are
        """Refuse a layer that is not a fixed function of its parameters and of one sample."""

    def narrowed(self, parameters: Any, neurons: int) -> "tuple[AbstractRealLayer, Any]":
        """The layer with its first `neurons` output neurons, and their parameters.

        Layers whose neurons are not independent of each other stay as they are.
        """
        return self, parameters

    # --- memory -------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers of one sample are kept, for each step of the layer that keeps any."""
        return ()

    def ntk_size(self, neurons: int, samples: int) -> int:
        """How many numbers its share of the NTK of these legs takes on the way; gradients by default."""
        return 2 * neurons * samples * self.normal_count

    # --- the gradient of a loss ---------------------------------------------------------------------------

    def forward(self, parameters: Any, z: Float[Array, "N ..."], order: int) -> tuple[Array, Any]:
        """The values behind the layer, and what `backward` or `record` need to know of this pass.

        `order` is the highest order of derivatives that will be asked for.
        """
        return self.apply(parameters, z), z

    def backward(self, parameters: Any, saved: Any, delta: Float[Array, "N ..."]) -> tuple[Any, Array]:
        """The gradient of a loss, and its derivative in front of the layer, from the one behind it."""
        return jax.vjp(self.apply, parameters, saved)[1](delta)

    # --- the NTK ------------------------------------------------------------------------------------------

    def record(self, parameters: Any, saved: Any, delta: Float[Array, "legs ..."]) -> tuple[Any, Array]:
        """The layer seen from the outputs, and `delta` in front of it."""
        record = Record(parameters, saved, delta)
        return record, self._gradients(record)[1]

    def add_ntk(self, record: Any, other: Any, total: Legs) -> Legs:
        r"""`total` plus the layer's share $\sum_\theta \lambda\, \partial_\theta z_a \partial_\theta z_b$.

        Legs a are those of `record`, legs b those of `other`, perhaps the same one.
        """
        left = self._learning(self._gradients(record)[0])
        right = left if other is record else self._learning(self._gradients(other)[0])
        for (gradient, rate), (beside, _) in zip(left, right, strict=True):
            flat, flat_beside = (part.reshape(part.shape[0], -1) for part in (gradient, beside))
            total = total + rate * flat @ flat_beside.T
        return total

    # --- differentials of the NTK: derivatives along the directions of the legs ---------------------------

    def tangent(self, record: Any, tangent: Float[Array, "N legs ..."] | None) -> tuple[Any, Array | None]:
        """The record with `tangent`, and the derivative behind the layer along every direction.

        None stands for values that do not move, as the data and what is made of them without parameters.
        """
        record = record._replace(tangent=tangent)
        return record, self._mixed(record, (), 1)

    def higher(
        self,
        record: Any,
        second: Float[Array, "N legs legs ..."] | None,
        third: Float[Array, "N legs legs legs ..."] | None,
    ) -> tuple[Array | None, Array | None]:
        """Second and third derivatives behind the layer along the directions, from those in front of it."""
        return self._mixed(record, (second,), 2), self._mixed(record, (second, third), 3)

    def shared(
        self, record: Any, change: Float[Array, "legs legs ..."], total: FourLegs
    ) -> tuple[FourLegs, Array]:
        r"""`total` plus the layer's share $\lambda\, \partial_\theta(z'_a[g_c])\,\partial_\theta(z'_b[g_d])$.

        Also `change`, the derivative of delta_a along g_c, in front of the layer, from the one behind it.
        """
        of_leg = sample_of_leg(record)
        if record.tangent is None:
            tangent = jnp.zeros((*change.shape[:2], *record.incoming.shape[1:]))
        else:
            tangent = record.tangent[of_leg]

        def along(z, delta, direction, tangent, change):
            point, velocity = (record.parameters, z, delta), (direction, tangent, change)
            return jax.jvp(self._pulled_back, point, velocity)[1]

        over_c = jax.vmap(along, in_axes=(None, None, 0, 0, 0))
        gradients, below = jax.vmap(over_c, in_axes=(0, 0, None, 0, 0))(
            record.incoming[of_leg], record.delta, self._directions(record), tangent, change
        )
        for gradient, rate in self._learning(gradients):
            flat = gradient.reshape(*gradient.shape[:2], -1)
            total = total + rate * jnp.einsum("acp,bdp->abcd", flat, flat)
        return total, below

    # --- the same by automatic differentiation ------------------------------------------------------------

    def _of_one_sample(self, parameters: Any, z: Array) -> Array:
        return self.apply(parameters, z[None])[0]

    def _pulled_back(self, parameters: Any, z: Array, delta: Array) -> tuple[Any, Array]:
        """The gradient of one leg and its derivative in front of the layer, on the sample of that leg."""
        return jax.vjp(self._of_one_sample, parameters, z)[1](delta)

    def _gradients(self, record: Record) -> tuple[Any, Array]:
        incoming = record.incoming[sample_of_leg(record)]
        return jax.vmap(self._pulled_back, in_axes=(None, 0, 0))(record.parameters, incoming, record.delta)

    def _directions(self, record: Record) -> Any:
        return jax.tree.map(lambda rate, part: rate * part, self.rates, self._gradients(record)[0])

    def _learning(self, gradients: Any) -> list[tuple[Array, float]]:
        """The gradients of the parameters that learn, with their rates."""
        pairs = zip(jax.tree.leaves(gradients), jax.tree.leaves(self.rates), strict=True)
        return [(gradient, rate) for gradient, rate in pairs if rate != 0]

    def _mixed(self, record: Record, higher: tuple[Array | None, ...], order: int) -> Array:
        """The mixed derivative behind the layer along `order` directions, axes (sample, legs..., ...).

        `higher` are second and third derivatives of `incoming`.
        """
        directions, jets = self._directions(record), (record.tangent, *higher)

        def along(sample, *legs):
            def at(*steps):
                parameters, z = record.parameters, record.incoming[sample]
                for step, leg in zip(steps, legs, strict=True):
                    parameters = jax.tree.map(
                        lambda p, g, s=step, a=leg: p + s * g[a], parameters, directions
                    )
                return self._of_one_sample(parameters, z + _displaced(jets, sample, legs, steps))

            derivative: Callable = at
            for place in range(order):
                derivative = jax.jacfwd(derivative, argnums=place)
            return derivative(*[jnp.zeros(())] * order)

        for place in range(order, -1, -1):
            along = jax.vmap(along, in_axes=[0 if k == place else None for k in range(order + 1)])
        legs = jnp.arange(record.delta.shape[0])
        return along(jnp.arange(record.incoming.shape[0]), *[legs] * order)


def _displaced(jets: tuple[Array | None, ...], sample: Array, legs: tuple, steps: tuple) -> Array | float:
    """How far a sample's values move when parameters move by `steps` along the directions of `legs`."""
    moved: Array | float = 0.0
    for chosen in range(1, 2 ** len(legs)):  # every set of legs
        members = [k for k in range(len(legs)) if chosen >> k & 1]
        jet = jets[len(members) - 1]
        if jet is not None:
            size = functools.reduce(lambda a, b: a * b, [steps[k] for k in members])
            moved = moved + size * jet[(sample, *(legs[k] for k in members))]
    return moved


def sample_of_leg(record: Any) -> Integer[Array, " legs"]:
    """The number of the sample of every leg."""
    samples, legs = record.incoming.shape[0], record.delta.shape[0]
    return jnp.tile(jnp.arange(samples), legs // samples)


def axes_of_legs(record: Any) -> tuple[int, int]:
    """How many neurons and samples the legs of a record run over."""
    samples = record.incoming.shape[0]
    return record.delta.shape[0] // samples, samples


def three_ways(x: Float[Array, "N legs legs legs ..."]) -> Float[Array, "N legs legs legs ..."]:
    """The sum over the three ways to single out one of the legs a, b, c, given x with leg a singled out."""
    rest = tuple(range(4, x.ndim))
    return x + x.transpose(0, 2, 1, 3, *rest) + x.transpose(0, 2, 3, 1, *rest)


@functools.singledispatch
def real(layer: AbstractLayer, shape: Shape) -> AbstractRealLayer:
    """The layer in real networks, where samples of this shape come in; found by the type of the layer."""
    raise ValueError(
        f"layer {layer!r} has no real networks; add a file for {type(layer).__name__} to experiment/layers."
    )
