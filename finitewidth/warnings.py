"""The warnings of the library, to be silenced or turned into errors."""

from finitewidth.experiment.ensemble.training import DivergenceWarning, UnfinishedWarning
from finitewidth.network.layers.activation import KinkWarning
from finitewidth.training.first_order.expansion import ExpansionWarning
from finitewidth.training.infinite.iterative import AccuracyWarning
from finitewidth.training.infinite.leave_one_out import ExtrapolationWarning

__all__ = [
    "AccuracyWarning",
    "DivergenceWarning",
    "ExpansionWarning",
    "ExtrapolationWarning",
    "KinkWarning",
    "UnfinishedWarning",
]
