"""Former address of the algorithms, for modules that have not followed yet."""

from finitewidth.network.algorithms.abstract import AbstractAlgorithm as Algorithm
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import Newton, TwoStep
from finitewidth.network.algorithms.projectors import Projectors
from finitewidth.network.algorithms.schedule import Schedule
from finitewidth.network.algorithms.stochastic import StochasticGradientDescent

__all__ = [
    "Algorithm",
    "GradientDescent",
    "GradientFlow",
    "Newton",
    "Projectors",
    "Schedule",
    "StochasticGradientDescent",
    "TwoStep",
]
