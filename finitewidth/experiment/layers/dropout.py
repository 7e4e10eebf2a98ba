"""Dropout in real networks.

The masks of a network are drawn from a number that belongs to it, as its weights do, one mask for each row of
the inputs: the same rows have the same masks whenever the network is evaluated. A network with its masks is
thus one fixed function, whose outputs and NTK can be sampled. Training would draw new masks at every step.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import real
from finitewidth.experiment.layers.elementwise import AbstractElementwise
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.dropout import Dropout


class DropoutParameters(NamedTuple):
    """The number whose bits are the key of the masks; it does not learn."""

    seed: Float[Array, "*members 1"]


@dataclass(frozen=True)
class RealDropout(AbstractElementwise):
    """Dropout of samples of this shape."""

    layer: Dropout
    shape: Shape

    @property
    def normal_count(self) -> int:
        return 1

    def initial(self, normals: Float[Array, " count"]) -> DropoutParameters:
        return DropoutParameters(normals)

    @property
    def rates(self) -> DropoutParameters:
        return DropoutParameters._make((0.0,))

    def check_fixed(self) -> None:
        raise ValueError(
            f"{self.layer!r} draws masks, anew at every step of training, so that the network is no fixed "
            "function of parameters and inputs; leave it out, or sample networks at initialization with "
            "fw.sample_statistics."
        )

    def apply(self, parameters: DropoutParameters, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        return self._mask(parameters, z) * z

    def derivatives(
        self, parameters: DropoutParameters, z: Float[Array, "N ..."], highest: int
    ) -> tuple[Array, ...]:
        mask = self._mask(parameters, z)
        return (mask * z, mask, *(jnp.zeros_like(z) for _ in range(highest - 1)))[: highest + 1]

    def _mask(self, parameters: DropoutParameters, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """1/keep where a value stays, and zero elsewhere."""
        bits = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(parameters.seed[0]), jnp.uint32)
        key = jax.random.wrap_key_data(bits, impl="threefry2x32")
        of_row = jax.vmap(
            lambda row: jax.random.bernoulli(jax.random.fold_in(key, row), self.layer.keep, self.shape)
        )
        return of_row(jnp.arange(z.shape[0], dtype=jnp.uint32)).astype(z.dtype) / self.layer.keep


real.register(Dropout, RealDropout)
