"""What an algorithm of your own is made of; those of the library are at the top."""

from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.projectors import Projectors
from finitewidth.network.algorithms.schedule import Schedule
from finitewidth.network.algorithms.symbols import Symbols

__all__ = [
    "AbstractAlgorithm",
    "Projectors",
    "Schedule",
    "Symbols",
]
