"""The patches of samples that the windows of a convolution or a pool see."""

import functools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float

from finitewidth.network.layers.windows import Axis


@dataclass(frozen=True)
class Patches:
    """Windows along one or two axes of positions."""

    axes: tuple[Axis, ...]

    @property
    def taps(self) -> int:
        """Positions in a window."""
        return math.prod(axis.taps for axis in self.axes)

    @property
    def outputs(self) -> int:
        """The number of windows."""
        return math.prod(axis.output for axis in self.axes)

    @functools.cached_property
    def inside(self) -> np.ndarray:
        """Whether a tap of a window reads a position and not padding, (outputs, taps)."""
        return self._sources[1]

    def of(self, z: Float[Array, "N ..."]) -> Float[Array, "N outputs taps channels"]:
        """All patches, with zeros where taps read padding."""
        places, inside = self._sources
        flat = z.reshape(z.shape[0], -1, z.shape[-1])
        beyond = np.where(inside, places, flat.shape[1])
        return flat.at[:, beyond].get(mode="fill", fill_value=0.0, unique_indices=False)

    @functools.cached_property
    def _sources(self) -> tuple[np.ndarray, np.ndarray]:
        """The position of every tap of every window, counted over all axes, and whether it is inside."""
        places, inside = np.zeros((1, 1), dtype=int), np.ones((1, 1), dtype=bool)
        for axis in self.axes:
            own, own_inside = axis.sources()
            shape = (places.shape[0] * axis.output, places.shape[1] * axis.taps)
            places = (places[:, None, :, None] * axis.size + own[None, :, None, :]).reshape(shape)
            inside = (inside[:, None, :, None] & own_inside[None, :, None, :]).reshape(shape)
        return places, inside
