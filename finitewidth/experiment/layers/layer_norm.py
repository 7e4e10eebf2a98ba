r"""Layer norm and RMS norm of real networks.

$$z'_i = g_i\, \frac{z_i - m}{\sqrt{v + \epsilon}} + o_i$$

with mean m and variance v (the mean square deviation, as in PyTorch) of the sample itself; in RMS norm m is
zero and v the mean square. There is one gain
and one offset for each channel, shared by all positions, also where m and v are those of all positions. Both
are always among the parameters, so that the structure of parameters does not depend on learning rates.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import AbstractRealLayer, real
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.layer_norm import AbstractNorm


class LayerNormParameters(NamedTuple):
    """Gain and offset of every channel."""

    gain: Float[Array, "*members n"]
    offset: Float[Array, "*members n"]


@dataclass(frozen=True)
class RealLayerNorm(AbstractRealLayer):
    """The normalization of samples of this shape."""

    layer: AbstractNorm
    shape: Shape

    def initial(self, normals: Float[Array, " count"]) -> LayerNormParameters:
        return LayerNormParameters(jnp.ones(self.shape[-1]), jnp.zeros(self.shape[-1]))

    @property
    def rates(self) -> LayerNormParameters:
        return LayerNormParameters._make((self.layer.lambda_gain, self.layer.lambda_offset))

    @property
    def sizes(self) -> tuple[int, ...]:
        return (math.prod(self.shape),)

    def ntk_size(self, neurons: int, samples: int) -> int:
        return 2 * neurons * samples * self.shape[-1]

    def apply(self, parameters: LayerNormParameters, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        over = (-1,) if self.layer.axes == "channels" else tuple(range(1, z.ndim))
        centred = z - jnp.mean(z, axis=over, keepdims=True) if self.layer.subtracts_mean else z
        variance = jnp.mean(centred**2, axis=over, keepdims=True)
        channels = (1,) * (z.ndim - 1) + (-1,)
        gain, offset = (part.reshape(channels) for part in parameters)
        return gain * centred / jnp.sqrt(variance + self.layer.epsilon) + offset


real.register(AbstractNorm, RealLayerNorm)
