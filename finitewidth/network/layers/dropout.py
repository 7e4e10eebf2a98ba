"""Dropout."""

from dataclasses import dataclass

from finitewidth.core.inputs import as_number
from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values


@dataclass(frozen=True, repr=False)
class Dropout(AbstractLayer):
    """Each value is zero with probability `drop`, drawn for each sample on its own, and else over 1 - drop.

    Args:
        drop: The probability of a zero, as in PyTorch.

    ```python
    fw.Network(2, fw.Dense(64), "relu", fw.Dropout(0.1), fw.Dense(1))
    ```
    """

    drop: float = 0.1

    def __post_init__(self):
        number = as_number(self.drop)
        if not 0 <= number < 1:
            raise ValueError(f"drop must be a probability of at least 0 and below 1, got {self.drop!r}.")
        object.__setattr__(self, "drop", number)

    @property
    def keep(self) -> float:
        """The probability that a value stays."""
        return 1 - self.drop

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def values_behind(self, values: Values) -> Values:
        return Values.DROPPED if values.is_gaussian else values
