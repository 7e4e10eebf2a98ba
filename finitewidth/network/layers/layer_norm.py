"""Normalization over channels: layer norm and RMS norm."""

import dataclasses
from dataclasses import dataclass

from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values
from finitewidth.network.layers.weights import as_variance

AXES = ("channels", "all")


class AbstractNorm(AbstractLayer):
    """A normalization of each sample, with a gain that may learn."""

    epsilon: float
    axes: str
    lambda_gain: float
    lambda_offset: float
    subtracts_mean: bool

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def values_behind(self, values: Values) -> Values:
        kind = type(self).__name__
        if values is Values.GAUSSIAN and self.lambda_gain:
            return Values.GAINED
        if values.is_gaussian:
            return values
        if values is Values.DATA:
            of_data = "mean" if self.subtracts_mean else "mean square"
            raise ValueError(
                f"{kind} comes first, where the {of_data} is that of the data; standardize X instead."
            )
        raise ValueError(
            f"{kind} follows {values.value}, behind which the mean of the channels is not zero; "
            "put it before, right behind weights."
        )


@dataclass(frozen=True, repr=False)
class LayerNorm(AbstractNorm):
    """Each sample minus its mean, over its standard deviation, with a gain of 1 and an offset of 0 at first.

    To the NTK of a neuron of value x a gain that learns adds `lambda_gain` $x_1 x_2$, which an activation
    right behind the norm averages together with its slopes. A channel has one gain and one offset, which all
    positions share, also with `axes="all"`. PyTorch's `LayerNorm` over positions and channels has a gain for
    each of their pairs instead, and another NTK as soon as gains learn.

    Args:
        epsilon: A number that is added to the variance.
        axes: "channels" takes mean and variance over the channels of a position, "all" over all positions and
            channels.
        lambda_gain: The learning rate of the gain; PyTorch's learns like weights.
        lambda_offset: The learning rate of the offset.

    ```python
    fw.Network(2, fw.Dense(64), fw.LayerNorm(), "relu", fw.Dense(1))
    ```
    """

    epsilon: float = 1e-5
    axes: str = "channels"
    lambda_gain: float = 0.0
    lambda_offset: float = 0.0

    def __post_init__(self):
        for name in ("epsilon", "lambda_gain", "lambda_offset"):
            object.__setattr__(self, name, as_variance(name, getattr(self, name)))
        if self.axes not in AXES:
            raise ValueError(f'axes must be "channels" or "all", got {self.axes!r}.')

    def frozen(self) -> "LayerNorm":
        return dataclasses.replace(self, lambda_gain=0.0, lambda_offset=0.0)

    @property
    def subtracts_mean(self) -> bool:  # type: ignore[override]
        return True


@dataclass(frozen=True, repr=False)
class RMSNorm(AbstractNorm):
    """Each sample over the root of its mean square over the channels, with a gain of 1 at first.

    It is `fw.LayerNorm` without the mean and without an offset. At infinite width both are the same, since
    the mean of a wide layer vanishes; at order 1/n they are not.

    Args:
        epsilon: A number that is added to the mean square.
        lambda_gain: The learning rate of the gain; PyTorch's learns like weights.

    ```python
    fw.Network(2, fw.Dense(64), fw.RMSNorm(), "silu", fw.Dense(1))
    ```
    """

    epsilon: float = 1e-5
    lambda_gain: float = 0.0

    def __post_init__(self):
        for name in ("epsilon", "lambda_gain"):
            object.__setattr__(self, name, as_variance(name, getattr(self, name)))

    def frozen(self) -> "RMSNorm":
        return dataclasses.replace(self, lambda_gain=0.0)

    @property
    def axes(self) -> str:  # type: ignore[override]
        return "channels"

    @property
    def lambda_offset(self) -> float:  # type: ignore[override]
        return 0.0

    @property
    def subtracts_mean(self) -> bool:  # type: ignore[override]
        return False
