"""Activations of real networks: elementwise, without parameters, and with derivatives of their own."""

from dataclasses import dataclass

from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import real
from finitewidth.experiment.layers.elementwise import AbstractElementwise
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.activation import Activation


@dataclass(frozen=True)
class RealActivation(AbstractElementwise):
    """An activation behind samples of this shape."""

    layer: Activation
    shape: Shape

    def apply(self, parameters: tuple, z: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        return self.layer(z)

    def derivatives(self, parameters: tuple, z: Float[Array, "N ..."], highest: int) -> tuple[Array, ...]:
        return self.layer.derivatives(z, highest)


real.register(Activation, RealActivation)
