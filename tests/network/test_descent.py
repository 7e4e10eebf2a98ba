"""Sums over past steps: schedules, momentum, batches and a ridge at infinite width."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw

RANDOM = np.random.default_rng(7)
X, Y, X_TEST = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(2, 2))
NET = fw.MLP((2, 24, 2), "tanh", C_b=0.1, C_W=1.2)
L = np.array([0.0, 0.3, 1.7])
TOLERANCE = 1e-12


def predicted(algorithm, **options):
    return fw.predict(NET, X, Y, X_TEST, algorithm=algorithm, order=0, **options)


def test_a_schedule_of_equal_rates_is_one_rate():
    plain = fw.GradientDescent(0.2, 9)
    np.testing.assert_allclose(fw.GradientDescent([0.2] * 9).response(L), plain.response(L), rtol=TOLERANCE)
    full = fw.GradientDescent(0.2, batches=np.ones((9, 3)))
    for one, other in ((full, plain), (fw.GradientDescent([0.2] * 9), plain)):
        np.testing.assert_allclose(predicted(one).mean, predicted(other).mean, rtol=TOLERANCE)
        np.testing.assert_allclose(predicted(one).covariance, predicted(other).covariance, atol=TOLERANCE)


def test_momentum_is_the_linear_recursion_of_a_mode():
    """c(t+1) = (1 + beta - eta l) c(t) - beta c(t-1) + eta: two roots, and a fixed point at 1/l."""
    eta, beta, steps = 0.3, 0.6, 7
    found = fw.GradientDescent(eta, steps, momentum=beta).response(L)
    before, now = np.zeros_like(L), eta * np.ones_like(L)
    for _ in range(steps - 1):
        before, now = now, (1 + beta - eta * L) * now - beta * before + eta
    np.testing.assert_allclose(found, now, rtol=TOLERANCE)
    end = fw.GradientDescent(eta, 4000, momentum=beta, nesterov=True).response(L[1:])
    np.testing.assert_allclose(end, 1 / L[1:], rtol=TOLERANCE)
    with_ridge = fw.GradientDescent(eta, 4000, momentum=beta, ridge=0.2).response(L[1:])
    np.testing.assert_allclose(with_ridge, 1 / (L[1:] + 0.2), rtol=TOLERANCE)
    assert fw.GradientDescent(eta, ridge=0.2).response(L[1:]) == pytest.approx(1 / (L[1:] + 0.2))


def test_batches_are_the_schedule_with_one_rate_for_each_sample():
    masks = np.array([[1.5, 1.5, 0], [0, 3, 0], [0, 1.5, 1.5], [1, 1, 1]])
    rates = (0.2, 0.1, 0.3, 0.05)
    schedule = fw.algorithms.Schedule([rate * mask for rate, mask in zip(rates, masks, strict=True)])
    one, other = predicted(fw.GradientDescent(rates, batches=masks)), predicted(schedule)
    np.testing.assert_allclose(one.mean, other.mean, rtol=TOLERANCE)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=TOLERANCE)


@dataclasses.dataclass(frozen=True)
class Delayed(fw.algorithms.AbstractAlgorithm):
    """Steps along the gradient of the step before: linear in past gradients, in one method."""

    learning_rate: float
    steps: int
    motion = "steps"
    memory = 1

    @property
    def end(self) -> float:
        return float(self.steps)

    def accumulate(self, state: tuple, x: Any, step, numbers) -> tuple:
        total, before = state
        return total + self.learning_rate * before, x


def test_an_algorithm_of_ones_own_is_one_method():
    """c(t+1) = c(t) + eta (1 - l c(t-1)), in theory and for real networks."""
    c = [np.zeros_like(L), np.zeros_like(L)]
    for _ in range(4):
        c.append(c[-1] + 0.2 * (1 - L * c[-2]))
    np.testing.assert_allclose(Delayed(0.2, 5).response(L), c[-1], rtol=TOLERANCE)
    flat = fw.MLP((2, 2), "tanh", C_b=0.2, C_W=1.5)
    options = dict(algorithm=Delayed(0.2, 5), members=1, key=3, record=fw.Record(at=(0,)))
    real = fw.train_ensemble(flat, X, Y, X_TEST, **options).outputs.value
    l, V = np.linalg.eigh(fw.kernels(flat, X).Theta)
    response = V @ np.diag(Delayed(0.2, 5).response(l)) @ V.T
    moved = fw.kernels(flat, np.concatenate([X, X_TEST])).Theta[:, :3] @ response @ (real[0, :3] - Y)
    np.testing.assert_allclose(real[-1], real[0] - moved, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "algorithm, limit",
    [
        (fw.GradientDescent(10.0, 3, momentum=0.5), "3 over the largest eigenvalue"),
        (fw.GradientDescent(10.0, 3, momentum=0.5, nesterov=True), "1.5 over the largest eigenvalue"),
        (fw.GradientDescent([1e200] * 9), "diverges at step"),
    ],
)
def test_rates_that_diverge_are_refused(algorithm, limit):
    with refused(limit):
        predicted(algorithm)


def test_one_response_is_refused_where_batches_are_drawn():
    with refused("draws its batches at random, so there is no single response; use fw.predict"):
        fw.fit(NET, X, Y, algorithm=fw.StochasticGradientDescent(0.1, 4, 2))
