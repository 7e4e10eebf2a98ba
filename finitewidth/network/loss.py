"""Former address of the losses, for modules that have not followed yet."""

from finitewidth.network.losses.abstract import AbstractLoss as Loss
from finitewidth.network.losses.cross_entropy import CrossEntropy
from finitewidth.network.losses.squared_error import MSE

__all__ = ["MSE", "CrossEntropy", "Loss"]
