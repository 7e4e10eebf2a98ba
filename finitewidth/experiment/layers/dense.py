r"""Dense layers of real networks, where samples have no positions (`sites.py` has those that do).

The gradient of a leg is an outer product, of its `delta` and of what comes in. The NTK is then a product of
small matrices,

$$\hat H_{ab} = \sum_l \Bigl(\lambda_b + \frac{\lambda_W}{n_{l-1}} \sigma_a \cdot \sigma_b\Bigr)
  \delta_a \cdot \delta_b,$$

and no derivative needs a gradient as a matrix.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import (
    AbstractRealLayer,
    FourLegs,
    Legs,
    Record,
    axes_of_legs,
    sample_of_leg,
    three_ways,
)
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.dense import Dense

_FEWEST = 4  # samples that are multiplied one by one: a product with the transposed weights is slow for them
_FEW = 24  # samples whose outer products are written out
_FIRST_CACHE = 1 << 12  # numbers
_BLOCK = 32  # columns that are made orthogonal to all earlier ones by one product


class DenseParameters(NamedTuple):
    """Biases and weights of one layer; a leading axis of members where there are many networks."""

    b: Float[Array, "*members n"]
    W: Float[Array, "*members n fan_in"]


def _through(W: Float[Array, "n fan_in"], z: Float[Array, "N fan_in"]) -> Float[Array, "N n"]:
    return jnp.stack([W @ one for one in z]) if 0 < len(z) <= _FEWEST else z @ W.T


def _outer_sum(delta: Float[Array, "N n"], s: Float[Array, "N fan_in"]) -> Float[Array, "n fan_in"]:
    """The sum of the samples' outer products.

    For few samples it is written out, in fours that do not wait for each other. The compiler joins it with
    the update of the weights, one pass over them. Every row of weights meets all samples, which must fit into
    the first cache for that.
    """
    count = len(s)
    if not 0 < count <= _FEW or s.size > _FIRST_CACHE:
        return delta.T @ s
    each = [delta[a][:, None] * s[a][None] for a in range(count)]
    return sum((sum(each[a + 1 : a + 4], each[a]) for a in range(4, count, 4)), sum(each[1:4], each[0]))


def orthogonal(normals: Float[Array, "n fan_in"]) -> Float[Array, "n fan_in"]:
    """A corner of a Haar-distributed orthogonal matrix, its entries scaled to variance one.

    Normal columns made orthonormal one after the other are Haar-distributed, and as many of them as the
    corner has are those of the whole matrix.
    """
    width, fan_in = normals.shape
    if width < fan_in:
        return orthogonal(normals.T).T
    Q = normals[:, :0]
    for start in range(0, fan_in, _BLOCK):
        V = normals[:, start : start + _BLOCK]
        for _ in range(2):  # rounding of the first pass is gone after the second
            V = _orthonormal(V - Q @ (Q.T @ V))
        Q = jnp.concatenate([Q, V], axis=1)
    return width**0.5 * Q


def _orthonormal(V: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Columns by Gram and Schmidt; batches of LAPACK's QR, two at a time, never end with jax 0.10.2."""

    def one(j, V):
        v, before = V[:, j], jnp.arange(V.shape[1]) < j
        v = v - V @ jnp.where(before, V.T @ v, 0.0)
        return V.at[:, j].set(v / jnp.linalg.norm(v))

    return jax.lax.fori_loop(0, V.shape[1], one, V)


class AbstractWeights(AbstractRealLayer):
    """Weights and biases: their initialization and their learning rates."""

    layer: Any  # with a width, a fan-in, C_b, C_W, lambda_b and lambda_W
    shape: Shape
    has_weights = True

    @property
    def fan_in(self) -> int:
        """The number of inputs of a neuron."""
        return self.layer.fan_in(self.shape)

    @property
    def normal_count(self) -> int:
        return self.layer.width * (1 + self.fan_in)

    def initial(self, normals: Float[Array, " count"]) -> DenseParameters:
        r"""$b \sim N(0, C_b)$, then $W \sim N(0, C_W/\text{fan-in})$, taps first (PDLT section 2.3).

        Orthogonal weights are made from the same normal numbers.
        """
        width, fan_in = self.layer.width, self.fan_in
        b = self.layer.C_b**0.5 * normals[:width]
        W = normals[width:].reshape(width, fan_in)
        if self.layer.is_orthogonal:
            W = orthogonal(W)
        return DenseParameters(b, (self.layer.C_W / fan_in) ** 0.5 * W)

    @property
    def rates(self) -> DenseParameters:
        r"""$\lambda_b$ and $\lambda_W$ over the number of inputs."""
        return DenseParameters._make((self.layer.lambda_b, self.layer.lambda_W / self.fan_in))


@dataclass(frozen=True)
class RealDense(AbstractWeights):
    """A dense layer behind samples of this shape."""

    layer: Dense
    shape: Shape

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.layer.width,)

    @property
    def is_structured(self) -> bool:
        return True

    def ntk_size(self, neurons: int, samples: int) -> int:
        return 0

    def narrowed(self, parameters: DenseParameters, neurons: int) -> "tuple[RealDense, DenseParameters]":
        b, W = parameters
        layer = RealDense(self.layer.with_outputs(min(neurons, self.layer.width)), self.shape)
        return layer, DenseParameters(b[:neurons], W[:neurons])

    def apply(self, parameters: DenseParameters, z: Float[Array, "N fan_in"]) -> Float[Array, "N n"]:
        return _through(parameters.W, z) + parameters.b[None]

    def backward(
        self, parameters: DenseParameters, saved: Float[Array, "N fan_in"], delta: Float[Array, "N n"]
    ) -> tuple[DenseParameters, Array]:
        return DenseParameters(jnp.sum(delta, axis=0), _outer_sum(delta, saved)), delta @ parameters.W

    def record(
        self, parameters: DenseParameters, saved: Float[Array, "N fan_in"], delta: Float[Array, "legs n"]
    ) -> tuple[Record, Array]:
        return Record(parameters, saved, delta), delta @ parameters.W

    def add_ntk(self, record: Record, other: Record, total: Legs) -> Legs:
        rate_b, rate_W = self.rates
        gram = rate_b + rate_W * record.incoming @ other.incoming.T
        aligned = (record.delta @ other.delta.T).reshape(*axes_of_legs(record), *axes_of_legs(other))
        return total + (aligned * gram[None, :, None, :]).reshape(total.shape)

    def tangent(self, record: Record, tangent: Float[Array, "N legs fan_in"] | None) -> tuple[Record, Array]:
        rate_b, rate_W = self.rates
        overlap = rate_W * record.incoming @ record.incoming[sample_of_leg(record)].T
        behind = (rate_b + overlap)[:, :, None] * record.delta[None]
        if tangent is not None:
            behind = behind + tangent @ record.parameters.W.T
        return record._replace(tangent=tangent), behind

    def higher(self, record: Record, second: Array | None, third: Array | None) -> tuple[Array, Array]:
        """Linear in weights and in what comes in: each leg can move the weights once."""
        if record.tangent is None or second is None or third is None:
            samples, (legs, width) = record.incoming.shape[0], record.delta.shape
            return jnp.zeros((samples, legs, legs, width)), jnp.zeros((samples, legs, legs, legs, width))
        W, towards = record.parameters.W, self.rates.W * record.incoming[sample_of_leg(record)]
        once = jnp.einsum("an,aj,xbj->xabn", record.delta, towards, record.tangent)
        twice = jnp.einsum("an,aj,xbcj->xabcn", record.delta, towards, second)
        return once + once.swapaxes(1, 2) + second @ W.T, three_ways(twice) + third @ W.T

    def shared(self, record: Record, change: Array, total: FourLegs) -> tuple[FourLegs, Array]:
        """Weights are shared through delta, through what comes in, and through one of each."""
        rate_b, rate_W = self.rates
        of_leg, delta = sample_of_leg(record), record.delta
        incoming, aligned = record.incoming[of_leg], delta @ delta.T
        rate = rate_b + rate_W * incoming @ incoming.T
        total = total + jnp.einsum("acn,bdn,ab->abcd", change, change, rate)
        below = rate_W * jnp.einsum("ac,cj->acj", aligned, incoming) + change @ record.parameters.W
        if record.tangent is None:
            return total, below
        turned = jnp.einsum("acn,bn->acb", change, delta)
        moved = record.tangent[of_leg]  # of the incoming of a along g_c
        along = rate_W * jnp.einsum("acj,bj->acb", moved, incoming)
        cross = jnp.einsum("acb,bda->abcd", turned, along)
        total = total + cross + cross.transpose(1, 0, 3, 2)
        return total + rate_W * jnp.einsum("ab,acj,bdj->abcd", aligned, moved, moved), below
