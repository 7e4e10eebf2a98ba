"""What every layer is: a frozen value with a rule for shapes."""

import abc
from typing import Any

Shape = tuple[int, ...]  # of one sample; channels stand last


class AbstractLayer(abc.ABC):
    """One layer of a network, as a value.

    The theory of a kind of layer stands in one file of `theory/layers`, its use in real networks in one
    file of `experiment/layers`; both are found by the type of the layer.
    """

    @property
    def has_weights(self) -> bool:
        """Whether the layer ends in weights; layers of a network are counted by these."""
        return False

    @abc.abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """The shape of one sample behind the layer, or an error that says why it does not fit."""

    @abc.abstractmethod
    def to_plain(self) -> Any:
        """The layer in plain numbers and strings, for TOML and stores."""
