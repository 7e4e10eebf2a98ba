"""Layers that gather positions and have no parameters: averages over windows or the whole, and flattening."""

import math
from dataclasses import dataclass

from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values
from finitewidth.network.layers.windows import Axis, Padding, as_padding, as_sizes, axes


@dataclass(frozen=True, repr=False)
class AveragePool(AbstractLayer):
    """The average over a sliding window of positions.

    Args:
        window: The size of the window, one number or one for each axis.
        stride: By how much it slides; by default its size.
        padding: As in `fw.Conv`.
        count_padding: Whether the zeros of the padding count in the average, as they do in PyTorch.

    ```python
    fw.Network((8, 8, 1), fw.Conv(64), "relu", fw.AveragePool(2), fw.Flatten(), fw.Dense(10))
    ```
    """

    window: int | tuple[int, ...]
    stride: int | tuple[int, ...] | None = None
    padding: Padding = "valid"
    count_padding: bool = True

    def __post_init__(self):
        object.__setattr__(self, "window", as_sizes("window", self.window))
        if self.stride is not None:
            object.__setattr__(self, "stride", as_sizes("stride", self.stride))
        object.__setattr__(self, "padding", as_padding(self.padding))
        if not isinstance(self.count_padding, bool):
            raise ValueError(f"count_padding must be True or False, got {self.count_padding!r}.")

    @property
    def is_homogeneous(self) -> bool:
        return True

    def axes(self, shape: Shape) -> tuple[Axis, ...]:
        """The window along each axis of positions."""
        stride = self.window if self.stride is None else self.stride
        return axes("AveragePool", shape, self.window, stride, self.padding)

    def output_shape(self, shape: Shape) -> Shape:
        return (*(axis.output for axis in self.axes(shape)), shape[-1])


@dataclass(frozen=True, repr=False)
class GlobalAveragePool(AbstractLayer):
    """The average over all positions.

    ```python
    fw.Network((8, 8, 1), fw.Conv(64), "relu", fw.GlobalAveragePool(), fw.Dense(10))
    ```
    """

    @property
    def is_homogeneous(self) -> bool:
        return True

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) < 2:
            raise ValueError(
                f"GlobalAveragePool needs samples with positions before the channels, got shape {shape}; use "
                "input_shape=(H, W, C) or (T, C), and put it before fw.Flatten()."
            )
        return shape[-1:]


@dataclass(frozen=True, repr=False)
class Flatten(AbstractLayer):
    """All positions and channels as one vector.

    ```python
    fw.Network((8, 8, 1), fw.Conv(64), "relu", fw.Flatten(), fw.Dense(10))
    ```
    """

    @property
    def is_homogeneous(self) -> bool:
        return True

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def values_behind(self, values: Values) -> Values:
        return Values.FLATTENED if values.is_gaussian else values
