"""What a loss of your own is made of, and targets of classification."""

from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.losses.probabilities import one_hot, outputs_of

__all__ = [
    "AbstractLoss",
    "one_hot",
    "outputs_of",
]
