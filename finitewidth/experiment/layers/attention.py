r"""Self-attention of real networks.

$$z_p = b + W_O \sum_q a_{pq} W_V x_q, \qquad
  a_{pq} = \mathrm{softmax}_q(\sigma_{QK}\, q_p \cdot k_q / d), \qquad k = W_K x,$$

in each head, of d components, width/heads by default. Queries q are the keys k; with `scaling="root"`, which
divides by the root of d, they are independent of keys, $q = W_Q x$. $W_K$, $W_Q$ and $W_V$ have variance one
over the number of channels that they see, $W_O$ has $C_{OV}$ over heads times d. $W_V$, $W_O$ and b learn at
rates equal to their variances, and so do $W_K$ and $W_Q$ where both exist; a $W_K$ alone does not learn.
Features of positions are seen by keys and queries, not by values; they do not learn.
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
    """Biases, weights of outputs, values and keys; features of positions and weights of queries, if any."""

    b: Float[Array, "*members n"]
    W_O: Float[Array, "*members n inner"]
    W_V: Float[Array, "*members inner fan_in"]
    W_K: Float[Array, "*members inner seen"]
    features: Float[Array, "*members P channels"] | None = None
    W_Q: Float[Array, "*members inner seen"] | None = None


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
    def inner(self) -> int:
        """The components of all heads."""
        return self.layer.heads * self.layer.components

    @property
    def _drawn(self) -> dict[str, tuple[Shape, float]]:
        """Shape and variance of the parameters, in the order in which they are drawn."""
        layer, n, seen, inner = self.layer, self.layer.width, self.seen_by_keys, self.inner
        drawn = {
            "b": ((n,), layer.C_b),
            "W_O": ((n, inner), layer.C_OV / inner),
            "W_V": ((inner, self.fan_in), 1 / self.fan_in),
            "W_K": ((inner, seen), 1 / seen),
        }
        if layer.positions is not None:
            drawn["features"] = ((math.prod(self.shape[:-1]), self.fan_in), 1.0)
        if layer.scaling == "root":
            drawn["W_Q"] = drawn["W_K"]
        return drawn

    @property
    def normal_count(self) -> int:
        return sum(math.prod(shape) for shape, _ in self._drawn.values())

    def initial(self, normals: Float[Array, " count"]) -> AttentionParameters:
        made, start = {}, 0
        for name, (shape, variance) in self._drawn.items():
            end = start + math.prod(shape)
            made[name], start = variance**0.5 * normals[start:end].reshape(shape), end
        if self.layer.positions is not None:
            root = jnp.asarray(_root(self.layer.positions.kernel(self.shape[:-1])))
            made["features"] = root @ made["features"]
        return AttentionParameters(**made)

    @property
    def rates(self) -> AttentionParameters:
        rates = {name: variance for name, (_, variance) in self._drawn.items()}
        still = ("features", "W_K") if self.layer.scaling == "linear" else ("features",)
        rates |= {name: 0.0 for name in still if name in rates}
        return AttentionParameters._make(map(rates.get, AttentionParameters._fields))

    @property
    def sizes(self) -> tuple[int, ...]:
        positions = math.prod(self.shape[:-1])
        return *(positions * max(self.layer.width, self.inner),) * 5, 2 * self.layer.heads * positions**2

    def apply(self, parameters: AttentionParameters, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        x = z.reshape(z.shape[0], -1, z.shape[-1])
        seen = self._with_positions(parameters, x)
        keys, values = self._in_heads(seen @ parameters.W_K.T), self._in_heads(x @ parameters.W_V.T)
        queries = keys if parameters.W_Q is None else self._in_heads(seen @ parameters.W_Q.T)
        d = self.layer.components
        scale = self.layer.sigma_QK / (d if self.layer.scaling == "linear" else d**0.5)
        attention = jax.nn.softmax(scale * queries @ keys.swapaxes(2, 3), axis=-1)
        attended = (attention @ values).swapaxes(1, 2).reshape(*x.shape[:2], self.inner)
        behind = attended @ parameters.W_O.T + parameters.b[None, None]
        return behind.reshape(*z.shape[:-1], self.layer.width)

    def _in_heads(self, x: Float[Array, "N P n"]) -> Float[Array, "N heads P d"]:
        return x.reshape(*x.shape[:2], self.layer.heads, -1).swapaxes(1, 2)

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
