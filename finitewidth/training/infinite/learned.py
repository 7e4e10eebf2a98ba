"""Former address of questions to algorithms, for modules that have not followed yet."""

from finitewidth.network.losses.squared_error import MSE


def is_finished(algorithm) -> bool:
    return algorithm.is_finished


def check_learning_rate(algorithm, largest: float, ridge: float) -> None:
    algorithm.check_stable(largest + ridge, MSE())
