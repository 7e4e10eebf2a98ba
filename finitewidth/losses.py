"""What a loss of your own is made of, and targets of classification."""

from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.losses.huber import Huber
from finitewidth.network.losses.logistic import Logistic
from finitewidth.network.losses.probabilities import one_hot, outputs_of

__all__ = [
    "AbstractLoss",
    "Huber",
    "Logistic",
    "one_hot",
    "outputs_of",
]
