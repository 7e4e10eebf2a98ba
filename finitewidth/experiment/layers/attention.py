r"""Self-attention of real networks,

$$z_p = b + W_O \sum_q a_{pq} W_V x_q, \qquad
  a_{pq} = \mathrm{softmax}_q(\sigma_{QK}\, k_p \cdot k_q / d), \qquad k = W_K x.$$

$W_K$ and $W_V$ have variance one over the number of channels that they see, $W_O$ has $C_{OV}$ over the
width, which is also the number d of components of a key. $W_V$, $W_O$ and b learn at rates equal to their
variances. Features of positions are seen by keys, not by values; neither they nor keys learn.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import AbstractRealLayer, real
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.attention import SelfAttention


class AttentionParameters(NamedTuple):
    """Biases, weights of outputs, values and keys, and features of positions, if there are any."""

    b: Float[Array, "*members n"]
    W_O: Float[Array, "*members n n"]
    W_V: Float[Array, "*members n fan_in"]
    W_K: Float[Array, "*members n seen"]
    features: Float[Array, "*members P channels"] | None


@dataclass(frozen=True)
class RealSelfAttention(AbstractRealLayer):
    """Self-attention of samples of this shape."""

    layer: SelfAttention
    shape: Shape
    has_weights = True

    @property
    def fan_in(self) -> int:
        """The number of channels that values are made of."""
        return self.shape[-1]

    @property
    def seen_by_keys(self) -> int:
        """The number of channels that keys are made of, with those of positions beside them."""
        positions = self.layer.positions
        doubled = positions is not None and positions.mixing == "concatenate"
        return self.fan_in * (1 + doubled)

    @property
    def _shapes(self) -> tuple[Shape, ...]:
        """The shape of every parameter."""
        n, fan_in = self.layer.width, self.fan_in
        features = (math.prod(self.shape[:-1]) * (self.layer.positions is not None), self.shape[-1])
        return (n,), (n, n), (n, fan_in), (n, self.seen_by_keys), features

    @property
    def normal_count(self) -> int:
        return sum(math.prod(shape) for shape in self._shapes)

    def initial(self, normals: Float[Array, " count"]) -> AttentionParameters:
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])[:-1]
        parts = zip(jnp.split(normals, ends), self._shapes, strict=True)
        b, W_O, W_V, W_K, features = (part.reshape(shape) for part, shape in parts)
        positions = self.layer.positions
        if positions is not None:
            features = jnp.asarray(_root(positions.kernel(self.shape[:-1]))) @ features
        W_O, W_V = (self.layer.C_OV / self.layer.width) ** 0.5 * W_O, self.fan_in**-0.5 * W_V
        b, W_K = self.layer.C_b**0.5 * b, self.seen_by_keys**-0.5 * W_K
        return AttentionParameters(b, W_O, W_V, W_K, features if positions else None)

    @property
    def rates(self) -> AttentionParameters:
        features = None if self.layer.positions is None else 0.0
        learning = (self.layer.C_b, self.layer.C_OV / self.layer.width, 1 / self.fan_in)
        return AttentionParameters._make((*learning, 0.0, features))

    @property
    def sizes(self) -> tuple[int, ...]:
        positions = math.prod(self.shape[:-1])
        return *(positions * self.layer.width,) * 4, 2 * positions**2

    def apply(self, parameters: AttentionParameters, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        x = z.reshape(z.shape[0], -1, z.shape[-1])
        keys, values = self._with_positions(parameters, x) @ parameters.W_K.T, x @ parameters.W_V.T
        d = self.layer.width
        scale = self.layer.sigma_QK / (d if self.layer.scaling == "linear" else d**0.5)
        attention = jax.nn.softmax(scale * keys @ keys.swapaxes(1, 2), axis=-1)
        behind = attention @ values @ parameters.W_O.T + parameters.b[None, None]
        return behind.reshape(*z.shape[:-1], d)

    def _with_positions(self, parameters: AttentionParameters, x: Float[Array, "N P C"]) -> Array:
        positions = self.layer.positions
        if positions is None or parameters.features is None:
            return x
        if positions.mixing == "sum":
            return x + parameters.features[None]
        return jnp.concatenate([x, jnp.broadcast_to(parameters.features[None], x.shape)], axis=-1)


def _root(R: Float[np.ndarray, "P P"]) -> Float[np.ndarray, "P P"]:
    """A root of a covariance, which may be singular."""
    values, vectors = np.linalg.eigh(R)
    return vectors * np.sqrt(np.maximum(values, 0.0))[None]


real.register(SelfAttention, RealSelfAttention)
