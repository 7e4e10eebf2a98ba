"""Losses of the library against automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused
from scipy.special import softmax

import finitewidth as fw

RANDOM = np.random.default_rng(3)
Z, Y = RANDOM.normal(size=(5, 3)), RANDOM.uniform(0.1, 0.9, size=(5, 3))
LOSSES = [fw.losses.Huber(0.7), fw.losses.Logistic()]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradients_curvatures_and_minima_are_those_of_the_value(loss):
    np.testing.assert_allclose(loss.gradient(Z, Y), jax.grad(loss.value)(jnp.asarray(Z), Y), rtol=1e-12)
    curvature = jax.vmap(jax.hessian(loss.value))(jnp.linspace(-3.0, 3.0, 61), jnp.full(61, 0.5))
    assert curvature.max() <= loss.largest_curvature * (1 + 1e-12)
    lowest = loss.minimizer(Y)
    np.testing.assert_allclose(loss.gradient(lowest, Y), 0.0, atol=1e-15)
    np.testing.assert_allclose(loss.value(lowest, Y), loss.smallest(Y), rtol=1e-12, atol=1e-12)


def test_two_classes_are_one_logistic_output():
    """softmax(z, 0) is a logistic function, and so are the losses."""
    z, y = jnp.asarray(Z[:, :1]), jnp.asarray(Y[:, :1])
    both = fw.CrossEntropy().value(jnp.concatenate([z, 0 * z], 1), jnp.concatenate([y, 1 - y], 1))
    np.testing.assert_allclose(fw.losses.Logistic().value(z, y), both, rtol=1e-12)


def test_a_wide_huber_loss_is_the_squared_error():
    np.testing.assert_allclose(fw.losses.Huber(1e4).value(Z, Y), fw.MSE().value(Z, Y), rtol=1e-7)


def test_targets_without_meaning_are_refused():
    with refused("Y_train must hold probabilities from 0 to 1 for fw.losses.Logistic, got -1"):
        fw.losses.Logistic().check_targets(np.array([[-1.0]]))
    with refused("has targets of 0 or 1, which the logistic loss pulls to infinity"):
        fw.losses.Logistic().minimizer(np.array([[1.0]]))
    with refused("delta must be a positive number, got 0"):
        fw.losses.Huber(0)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_outputs_of_probabilities_have_these_probabilities(temperature):
    p = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])
    outputs = fw.losses.outputs_of(p, temperature=temperature)
    np.testing.assert_allclose(softmax(outputs / temperature, axis=1), p, rtol=1e-12)
    np.testing.assert_allclose(outputs.sum(axis=1), 0, atol=1e-12)
