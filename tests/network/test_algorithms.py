"""Training algorithms as values."""

import math

import pytest
from helpers.problems import refused

import finitewidth as fw


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
        (lambda: fw.StochasticGradientDescent(0.1, 5, 2, -1), "decay must be zero or a positive number"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with refused(message):
        make()
