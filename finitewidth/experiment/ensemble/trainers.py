"""The trainer that an algorithm asks for."""

from finitewidth.experiment.ensemble.descent import Descent
from finitewidth.experiment.ensemble.flow import Flow
from finitewidth.experiment.ensemble.newton import SecondOrder
from finitewidth.experiment.ensemble.trainer import AbstractTrainer
from finitewidth.network.algorithms.abstract import AbstractAlgorithm

_TRAINERS: dict[str | None, AbstractTrainer] = {
    "steps": Descent(),
    "flow": Flow(),
    "second order": SecondOrder(),
}


def trainer_of(algorithm: AbstractAlgorithm) -> AbstractTrainer:
    """The trainer by the algorithm's motion."""
    if algorithm.motion not in _TRAINERS:
        raise ValueError(
            f"algorithm={algorithm!r} does not say how real networks move; use fw.GradientFlow, "
            "fw.GradientDescent, fw.StochasticGradientDescent, fw.Newton or fw.TwoStep, or define its motion."
        )
    return _TRAINERS[algorithm.motion]
