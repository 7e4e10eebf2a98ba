"""Layer normalization."""

import dataclasses
from dataclasses import dataclass

from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values
from finitewidth.network.layers.weights import as_variance

AXES = ("channels", "all")


@dataclass(frozen=True, repr=False)
class LayerNorm(AbstractLayer):
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

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def values_behind(self, values: Values) -> Values:
        if values is Values.GAUSSIAN and self.lambda_gain:
            return Values.GAINED
        if values.is_gaussian:
            return values
        if values is Values.DATA:
            raise ValueError(
                "LayerNorm comes first, where the mean is that of the data; standardize X instead."
            )
        raise ValueError(
            f"LayerNorm follows {values.value}, behind which the mean of the channels is not zero; "
            "put it before, right behind weights."
        )
