"""One real network, or any function of parameters and inputs: its outputs, NTK and Taylor models."""

from finitewidth.experiment.empirical import ntk
from finitewidth.experiment.functions import apply, initialize
from finitewidth.experiment.taylor import taylor
from finitewidth.training.first_order.one_network import trained_outputs

__all__ = [
    "apply",
    "initialize",
    "ntk",
    "taylor",
    "trained_outputs",
]
