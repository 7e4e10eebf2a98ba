"""Infinitely wide networks that draw their own batches: closed moments against all schedules, one by one."""

import itertools

import numpy as np
import pytest

import finitewidth as fw

RANDOM = np.random.default_rng(4)
X, Y, X_TEST = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(2, 2))
NET = fw.MLP((2, 24, 2), "tanh", C_b=0.1, C_W=1.2)
OPTIONS = dict(momentum=0.6, nesterov=True, ridge=0.1)


def enumerated(schedules):
    """Mean and covariance over equally likely schedules of batches of one."""
    found = [
        fw.predict(NET, X, Y, X_TEST, order=0, algorithm=fw.GradientDescent(0.1, batches=masks, **OPTIONS))
        for masks in schedules
    ]
    mean = np.mean([one.mean for one in found], axis=0)
    between = np.mean([np.multiply.outer(one.mean - mean, one.mean - mean) for one in found], axis=0)
    return mean, np.mean([one.covariance for one in found], axis=0) + between


@pytest.mark.parametrize("replacement, steps", [(True, 3), (False, 3), (False, 2)])
def test_moments_are_those_of_all_schedules(replacement, steps):
    """27 schedules with replacement, 6 orders of an epoch without, and an epoch that was not finished."""
    every = (
        itertools.product(range(3), repeat=steps) if replacement else itertools.permutations(range(3), steps)
    )
    mean, covariance = enumerated([3 * np.eye(3)[list(order)] for order in every])
    algorithm = fw.StochasticGradientDescent(0.1, steps, 1, replacement, **OPTIONS)
    found = fw.predict(NET, X, Y, X_TEST, algorithm=algorithm, order=0)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-11, atol=1e-12)
    path = fw.trajectory(NET, X, Y, X_TEST, algorithm=algorithm, times=[0, steps], order=0)
    np.testing.assert_allclose(path.mean[-1], mean, rtol=1e-12, atol=1e-12)


def test_independent_batches_keep_the_mean_of_full_batches_and_add_variance():
    full = fw.predict(NET, X, Y, X_TEST, algorithm=fw.GradientDescent(0.1, 6), order=0)
    drawn = fw.StochasticGradientDescent(0.1, 6, 2, replacement=True)
    found = fw.predict(NET, X, Y, X_TEST, algorithm=drawn, order=0)
    np.testing.assert_allclose(found.mean, full.mean, rtol=1e-12, atol=1e-12)
    assert (found.variance > full.variance).all()


def test_networks_are_drawn_where_orders_are_too_many():
    """Ten points in batches of one have 3.6 million orders: function space, the same mean within errors."""
    random = np.random.default_rng(5)
    X, Y = random.normal(size=(10, 2)), random.normal(size=(10, 2))
    drawn = fw.StochasticGradientDescent(0.001, 10, 1)
    found = fw.predict(NET, X, Y, X_TEST, algorithm=drawn, order=0)
    full = fw.predict(NET, X, Y, X_TEST, algorithm=fw.GradientDescent(0.001, 10), order=0)
    pulls = (found.mean.value - full.mean) / found.mean.stderr  # rates so small that orders hardly matter
    assert np.abs(pulls).max() < 4
