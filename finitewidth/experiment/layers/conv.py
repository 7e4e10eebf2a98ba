"""Convolutions of real networks.

They are matrix products of the patches that the filter sees. With weights that differ between the networks of
a batch this is about four times faster on a CPU than XLA's own convolution in double precision.
"""

from dataclasses import dataclass

from jaxtyping import Array, Float

from finitewidth.experiment.layers.abstract import real
from finitewidth.experiment.layers.patches import Patches
from finitewidth.experiment.layers.sites import AbstractSites
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.conv import Conv


@dataclass(frozen=True)
class RealConv(AbstractSites):
    """A convolution of samples of this shape; weights have axes (neuron, taps and channels in one)."""

    layer: Conv
    shape: Shape

    def patches(self, z: Float[Array, "N ..."]) -> Float[Array, "N P fan_in"]:
        windows = Patches(self.layer.axes(self.shape))
        return windows.of(z).reshape(z.shape[0], windows.outputs, self.fan_in)


real.register(Conv, RealConv)
