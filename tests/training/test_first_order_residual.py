"""Training of residual networks through order 1/n: limits, what does not fluctuate, and refusals.

Criteria: exact identities 1e-12, statistics prepared once or twice 1e-12, limits in time 1e-6.
"""

import functools

import numpy as np
import pytest

import finitewidth as fw

pytestmark = pytest.mark.filterwarnings("ignore::finitewidth.training.first_order.expansion.ExpansionWarning")

X = np.array([[1.0, -0.6, 0.3], [0.2, 0.9, -0.7]])
Y = np.array([[0.8, 0.1], [-0.5, 0.4]])
X_TEST = np.array([[-0.5, 0.4, 0.9], [0.3, 0.3, 0.8]])


def dense(n):
    return fw.Dense(n, 0.1, 1.0, 0.5, 0.7)


def network(n=64, gamma=0.8):
    """Two blocks, the second with a body of two layers."""
    first = fw.Residual("gelu", dense(n), gamma=gamma)
    second = fw.Residual("tanh", dense(n), "gelu", dense(n), gamma=-0.6 * gamma)
    return fw.Network(3, dense(n), first, second, "gelu", dense(2))


@functools.cache
def prepared():
    return fw.prepare(network(), X, Y, X_TEST)


def test_without_skips_the_prediction_is_that_of_dense_layers():
    plain = fw.Network(
        3, dense(64), "gelu", dense(64), "tanh", dense(64), "gelu", dense(64), "gelu", dense(2)
    )
    one, other = (fw.predict(net, X, Y, X_TEST) for net in (network(gamma=0.0), plain))
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-12)


def test_trained_networks_fit_the_training_set_without_fluctuations():
    trained = fw.predict(network(), X, Y, X)
    np.testing.assert_allclose(trained.mean, Y, atol=1e-12)
    assert np.abs(trained.covariance).max() < 1e-12


def test_other_widths_cost_nothing():
    narrow, wide = prepared().with_width(200).predict(), fw.predict(network(200), X, Y, X_TEST)
    np.testing.assert_allclose(narrow.mean, wide.mean, rtol=1e-12)
    np.testing.assert_allclose(narrow.covariance, wide.covariance, atol=1e-12)


def test_a_trajectory_ends_at_the_prediction():
    path = fw.trajectory(network(), X, Y, times=[0.0, 1000.0], X_test=X_TEST)
    start, end = path.predictions
    output = fw.solve(network(), X_TEST).output
    np.testing.assert_allclose(start.mean, 0.0, atol=1e-12)
    among = np.einsum("aibi->iab", start.covariance)
    np.testing.assert_allclose(among, np.broadcast_to(output.G, among.shape), atol=1e-7)
    np.testing.assert_allclose(end.mean, prepared().predict().mean, atol=1e-6)


def test_expected_loss_and_inductive_bias_take_residual_networks():
    Y_test = np.zeros((2, 2))
    sweep = fw.expected_loss(network(), X, Y, X_TEST, Y_test, depths=[5], widths=[64])
    loss = prepared().predict().test_loss(Y_test)
    assert sweep.bias.item() == pytest.approx(float(loss.bias), rel=1e-9)
    assert set(fw.textbook.inductive_bias(prepared()).corrections) >= {"gradient flow", "two-step"}
    with pytest.raises(ValueError, match="skip connections.*pass a function of widths"):
        fw.expected_loss(network(), X, Y, X_TEST, Y_test, depths=[4], widths=[64])


def test_the_mean_of_many_samples_is_contracted_leg_by_leg(monkeypatch):
    """Averages of sin cost little; five samples stand for more than 64."""
    blocks = [fw.Residual("sin", dense(40), gamma=gamma) for gamma in (0.8, -0.5)]
    net = fw.Network(3, dense(40), *blocks, "sin", dense(2))
    more = np.concatenate([X_TEST, -X])
    whole = fw.predict(net, X, Y, more, covariance=False)
    monkeypatch.setattr("finitewidth.training.first_order.chosen_method.DENSE", 4)
    monkeypatch.setattr("finitewidth.training.first_order.pairs_with_skips.GROUP", 3)
    streamed = fw.predict(net, X, Y, more, covariance=False)
    assert streamed.contributions.keys() == whole.contributions.keys()
    for name, part in whole.contributions.items():
        np.testing.assert_allclose(streamed.contributions[name], part, atol=1e-10)


def test_depths_of_residual_networks_come_from_a_function_of_widths():
    def build(widths):
        n_0, first, *hidden, n_L = widths
        return fw.Network(
            n_0, dense(first), *(fw.Residual("sin", dense(n), gamma=0.8) for n in hidden), "sin", dense(n_L)
        )

    sweep = fw.expected_loss(build, X, Y, X_TEST, np.zeros((2, 2)), depths=[2, 3], widths=[64])
    alone = fw.predict(build((3, 64, 64, 2)), X, Y, X_TEST).test_loss(np.zeros((2, 2)))
    assert sweep.total[1, 0] == pytest.approx(float(alone.bias + alone.variance), rel=1e-9)


def test_a_skip_into_the_output_is_refused():
    """The outputs are then as many as the stream is wide: outputs/width is no small number."""
    net = fw.Network(3, dense(5), fw.Residual("gelu", dense(5)))
    with pytest.raises(ValueError, match="a skip ends in the output .* add fw.Dense"):
        fw.predict(net, X, np.zeros((2, 5)))
    assert fw.predict(net, X, np.zeros((2, 5)), order=0).mean.shape == (2, 5)
