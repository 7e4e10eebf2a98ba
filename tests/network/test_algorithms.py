"""Training algorithms as values."""

import math

import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.network.algorithms.abstract import as_algorithm


def test_algorithms_are_values():
    assert fw.GradientFlow() == fw.GradientFlow(math.inf)
    assert fw.GradientDescent(0.1) == fw.GradientDescent(learning_rate=0.1, steps=math.inf)
    assert fw.GradientDescent(1, 3.0).steps == 3
    assert hash(fw.TwoStep()) == hash(fw.TwoStep()) and fw.TwoStep() != fw.Newton()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: fw.GradientFlow(-1), "time must be zero or a positive number, or infinity, got -1"),
        (lambda: fw.GradientFlow(math.nan), "time must be zero or a positive number, or infinity, got nan"),
        (lambda: fw.GradientDescent(0.0), r"learning_rate must be a positive number, got 0\.0"),
        (lambda: fw.GradientDescent(math.inf), "learning_rate must be a positive number, got inf"),
        (lambda: fw.GradientDescent(True), "learning_rate must be a positive number, got True"),
        (
            lambda: fw.GradientDescent(0.1, 1.5),
            "steps must be a whole number of at least 0, or infinity, got 1",
        ),
        (
            lambda: fw.GradientDescent(0.1, -1),
            "steps must be a whole number of at least 0, or infinity, got -1",
        ),
        (lambda: fw.StochasticGradientDescent(0.1, 5, 0), "batch_size must be a whole number of at least 1"),
        (
            lambda: fw.StochasticGradientDescent(0.1, math.inf, 2),
            "steps must be a whole number of at least 0",
        ),
        (lambda: fw.StochasticGradientDescent(0.1, 5, 2, -1), "replacement must be True or False, got -1"),
        (
            lambda: fw.GradientDescent(0.1, momentum=1.0),
            "momentum must be a number from 0 to below 1, got 1",
        ),
        (
            lambda: fw.GradientDescent(lambda step: 0.1),
            "where a rate depends on the loss, steps are not linear",
        ),
        (lambda: as_algorithm("adam"), "algorithm adam moves each parameter by a nonlinear function"),
        (lambda: fw.GradientDescent(0.1, nesterov=True), "nesterov=True has no meaning without momentum"),
        (lambda: fw.GradientDescent(0.1, ridge=-1), "ridge must be zero or a positive number, got -1"),
        (lambda: fw.GradientDescent([0.1, 0.2], 3), "learning_rate has 2 entries but steps=3"),
        (lambda: fw.GradientDescent([0.1, -0.2]), "learning_rate must be zero or positive at every step"),
        (lambda: fw.GradientDescent(0.1, 3, batches=[[1, 0]]), "batches has 1 rows but steps=3"),
        (
            lambda: fw.GradientDescent(0.1, batches=[1, 0]),
            "batches must be an array",
        ),
        (lambda: fw.GradientDescent(0.1, batches=[[-1.0]]), "zero or positive, got shape"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with refused(message):
        make()
