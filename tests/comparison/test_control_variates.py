"""Control variates for any loss: odd in the initial outputs, and what linear training would keep."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw

RANDOM = np.random.default_rng(8)
X, X_TEST = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(2, 2))
Y = fw.losses.one_hot([0, 1, 0], 2)
NET = fw.MLP((2, 24, 2), "tanh", C_b=0.1, C_W=1.2)
MASKS = np.array([[1.5, 1.5, 0], [0, 1.5, 1.5], [1, 1, 1]])
DESCENT = fw.GradientDescent([0.2, 0.1, 0.1], momentum=0.5, batches=MASKS)


def test_the_control_of_any_loss_is_odd_and_replays_training():
    """The odd part of z - Theta c for the cross-entropy with batches and momentum, by a plain loop."""
    control = fw.control_variate(NET, X, Y, X_TEST, DESCENT, fw.CrossEntropy())
    z = RANDOM.normal(size=(5, 2))
    Theta = fw.kernels(NET, np.concatenate([X, X_TEST])).Theta[:, :3]

    def trained(z):
        c = velocity = np.zeros((3, 2))
        for rate, mask in zip(DESCENT.learning_rate, MASKS, strict=True):
            powers = np.exp(z[:3] - Theta[:3] @ c)
            velocity = 0.5 * velocity + mask[:, None] * (powers / powers.sum(axis=1, keepdims=True) - Y)
            c = c + rate * velocity
        return z - Theta @ c

    np.testing.assert_allclose(control.function(jnp.asarray(z)), (trained(z) - trained(-z)) / 2, rtol=1e-12)
    assert not control.mean.any() and not control.linear


def test_batches_that_are_drawn_are_replaced_by_all_samples():
    """For the squared error the control is linear: the part of z that full batches keep."""
    drawn = fw.StochasticGradientDescent(0.1, 4, 2, momentum=0.5)
    control = fw.control_variate(NET, X, Y, X_TEST, drawn)
    full = fw.control_variate(NET, X, Y, X_TEST, fw.GradientDescent(0.1, 4, momentum=0.5))
    z = RANDOM.normal(size=(5, 2))
    np.testing.assert_allclose(control.function(jnp.asarray(z)), full.function(jnp.asarray(z)), rtol=1e-11)
    assert control.linear and full.linear


@pytest.mark.parametrize("algorithm", [fw.GradientFlow(1.0), fw.GradientDescent(0.1)])
def test_endless_training_and_flow_on_other_losses_have_no_control(algorithm):
    with refused("replays training step by step, got algorithm=.* or no control"):
        fw.control_variate(NET, X, Y, X_TEST, algorithm, fw.CrossEntropy())
