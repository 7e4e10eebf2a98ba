"""What order 1/n says that it neglects, and the one verdict that follows from it."""

import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.theory.ratios import MEANINGLESS, TRUSTED, ratios, verdict

X = np.array([[1.0, 0.4], [-0.3, 0.9], [0.8, -1.1]])
Y = np.array([[0.7, -0.2], [-0.4, 0.5], [0.3, 0.9]])
X_TEST = np.array([[0.2, 0.3], [1.5, -0.5]])
NET = fw.MLP((2, 64, 64, 2), "tanh", C_b=0.1, C_W=1.3)
QUIET = pytest.mark.filterwarnings("ignore::finitewidth.training.first_order.expansion.ExpansionWarning")


@pytest.fixture(scope="module")
def prepared():
    return fw.prepare(NET, X, Y, X_TEST)


def test_one_threshold_each():
    sizes = (0.0, 0.999 * TRUSTED, TRUSTED, 0.999 * MEANINGLESS, MEANINGLESS, 1e9)
    words = ["trusted", "trusted", "doubtful", "doubtful", "meaningless", "meaningless"]
    assert [verdict(size) for size in sizes] == words


def test_uncertainty_has_the_shape_of_what_it_is_of_and_falls_as_the_square_of_the_width(prepared):
    near, far = (prepared.with_width(n).predict(fw.GradientFlow(3.0)) for n in (1000, 10_000))
    for name in ("uncertainty", "variance_uncertainty"):
        assert getattr(near, name).shape == near.mean.shape and (getattr(far, name) > 0).all()
        np.testing.assert_allclose(getattr(near, name), 100 * getattr(far, name), rtol=0.02)
    infinite = near.infinite_width
    assert not infinite.uncertainty.any() and not infinite.variance_uncertainty.any()
    assert infinite.verdict == near.verdict == near.expansion.verdict == "trusted"


@QUIET
def test_the_verdict_follows_the_uncertainty_down_to_narrow_networks(prepared):
    predictions = [prepared.with_width(n).predict(fw.GradientFlow(3.0)) for n in (1000, 12, 2)]
    words = ["trusted", "doubtful", "meaningless"]
    assert [one.verdict for one in predictions] == words
    for one in predictions:
        largest = np.abs(Y).max()
        assert one.expansion.mean_uncertainty == pytest.approx(one.uncertainty.max() / largest, rel=1e-12)
        assert one.verdict in repr(one)


def test_the_uncertainty_of_a_standard_deviation_is_that_of_its_variance_by_the_chain_rule(prepared):
    """sqrt(v + u) - sqrt(v - u) is twice it, for a variance v whose uncertainty u is small."""
    one = prepared.with_width(100_000).predict(fw.GradientFlow(3.0))
    v, u = one.variance, one.variance_uncertainty
    assert (u > 0).all() and (u < 1e-3 * v).all()
    np.testing.assert_allclose(2 * one.std_uncertainty, np.sqrt(v + u) - np.sqrt(v - u), rtol=1e-6)


def test_a_mean_alone_has_its_uncertainty_too(prepared):
    whole = prepared.predict(fw.GradientFlow(3.0))
    alone = prepared.predict(fw.GradientFlow(3.0), covariance=False)
    assert 0.3 < (alone.uncertainty / whole.uncertainty).min() and (alone.uncertainty > 0).all()
    assert not alone.gives_variance and alone.truncation.variance is None


@QUIET
def test_a_variance_below_zero_is_said_and_has_no_standard_deviation():
    """Linear networks and targets of zero: variances are 1 - N_A/n of infinite width, here 1 - 3/2."""
    inputs = np.random.default_rng(0).normal(size=(4, 4))
    net = fw.MLP((4, 2, 1), "linear", C_W=1.0)
    posterior = fw.bayes.posterior(net, inputs[:3], np.zeros((3, 1)), inputs[3:], order=1)
    prediction = posterior.prediction
    assert prediction.below_zero.all() and np.isnan(prediction.std).all()
    assert np.isnan(prediction.std_uncertainty).all()
    assert (posterior.variance_uncertainty >= -prediction.variance).all()
    assert posterior.verdict == "meaningless" and "variances below zero" in repr(prediction)


def test_what_was_not_computed_is_not_zero():
    """Without a covariance nothing is known of variances, neither their errors nor their corrections."""
    prediction = fw.predict(NET, X, Y, X_TEST, algorithm=fw.GradientFlow(1.0), covariance=False)
    for name in ("variance", "variance_uncertainty", "variance_stderr", "std_uncertainty"):
        with refused("the covariance was not computed"):
            getattr(prediction, name)
    expansion = prediction.expansion
    assert expansion.covariance is expansion.covariance_uncertainty is expansion.lowest_eigenvalue is None
    assert expansion.size == expansion.mean and expansion.uncertainty == expansion.mean_uncertainty


@QUIET
@pytest.mark.parametrize("n, bands", [(1000, 4), (2, 1)])
def test_no_band_is_drawn_for_what_is_meaningless(n, bands):
    """One band is that of infinite width; order 1/n has one around outputs and one in each other panel."""
    x, y = np.array([[-1.0], [0.4], [1.2]]), np.array([[0.5], [-0.3], [0.8]])
    net = fw.MLP((1, n, n, 1), "tanh", C_b=0.1, C_W=1.3)
    how = fw.GradientDescent(0.1, 30)
    prediction = fw.predict(net, x, y, np.linspace(-2, 2, 5)[:, None], algorithm=how)
    small = net.replace(widths=(1, 4, 4, 1))
    ensemble = fw.train_ensemble(small, x, y, np.linspace(-2, 2, 5)[:, None], algorithm=how, members=4, key=0)
    figure = fw.plots.trained_outputs(prediction, ensemble)
    assert sum(len(axes.collections) for axes in figure.axes) == bands + 3  # and three sets of error bars
    labels = {label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]}
    assert any("meaningless" in label for label in labels) == (prediction.verdict == "meaningless")


@pytest.mark.parametrize("depth, width", [(3, 8), (5, 8), (5, 32), (20, 64)])
def test_linear_networks_lie_within_the_uncertainty_of_their_four_point_function(depth, width):
    """It is a product of 1 + 2/n at any width: the next order is half the square of the ratio, and less."""
    net = fw.MLP((2, *[width] * (depth - 1), 1), "linear", C_W=1.0)
    layer = fw.solve(net, X[:1]).output
    exact = width * layer.K.item() ** 2 * ((1 + 2 / width) ** (depth - 1) - 1)
    left, unsure = exact - layer.V.item(), layer.uncertainty("V").item()
    assert 0 < left < 2 * unsure < 6 * left


def test_statistics_have_uncertainties_of_their_shape():
    layer = fw.solve(NET, X).output
    for name in ("G", "H", "V", "R"):
        unsure = layer.uncertainty(name)
        assert unsure.shape == getattr(layer, name).shape and (unsure > 0).all()
    K = np.diag(layer.K)
    ratio = max(abs(row.ratio) for row in ratios(layer).rows if row.name in ("G1", "V"))
    np.testing.assert_allclose(layer.uncertainty("G"), ratio**2 / 2 * np.sqrt(np.outer(K, K)), rtol=1e-12)
    with refused("name must be one of G, H, .*got 'K'"):
        layer.uncertainty("K")
    with refused("R was not computed|R does not exist"):
        fw.solve(NET, X, tensors=("V",)).output.uncertainty("R")
