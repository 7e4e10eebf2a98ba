"""What order 1/n says that it neglects, and the one verdict that follows from it."""

import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.theory.ratios import MEANINGLESS, TRUSTED, neglected, ratios, verdict

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
    scales = {1000: 1, 6: 1, 2: 5}  # of the targets, by width
    predictions = [
        prepared.with_width(n).with_targets(scale * Y).predict(fw.GradientFlow(3.0))
        for n, scale in scales.items()
    ]
    words = ["trusted", "doubtful", "meaningless"]
    assert [one.verdict for one in predictions] == words
    for one, scale in zip(predictions, scales.values(), strict=True):
        largest = scale * np.abs(Y).max()
        assert one.expansion.mean_uncertainty == pytest.approx(one.uncertainty.max() / largest, rel=1e-12)
        assert one.verdict in repr(one)


def test_the_uncertainty_of_a_standard_deviation_is_that_of_its_variance_by_the_chain_rule(prepared):
    """sqrt(v + u) - sqrt(v - u) is twice it, for a variance v whose uncertainty u is small."""
    one = prepared.with_width(100_000).predict(fw.GradientFlow(3.0))
    v, u = one.variance, one.variance_uncertainty
    assert (u > 0).all() and (u < 1e-3 * v).all()
    np.testing.assert_allclose(2 * one.std_uncertainty, np.sqrt(v + u) - np.sqrt(v - u), rtol=1e-6)


def test_a_mean_alone_has_the_uncertainty_that_it_has_with_its_variance(prepared):
    whole = prepared.predict(fw.GradientFlow(3.0))
    alone = prepared.predict(fw.GradientFlow(3.0), covariance=False)
    np.testing.assert_array_equal(alone.uncertainty, whole.uncertainty)
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
    np.testing.assert_allclose(
        layer.uncertainty("G"), ratio * max(ratio, 2 / 64) / 2 * np.sqrt(np.outer(K, K)), rtol=1e-12
    )
    with refused("name must be one of G, H, .*got 'K'"):
        layer.uncertainty("K")
    with refused("R was not computed|R does not exist"):
        fw.solve(NET, X, tensors=("V",)).output.uncertainty("R")


# --- a band belongs to its point and its problem ------------------------------------------------------


# 1e-8 in four-leg averages, which inverses amplify up to 1000 times; what vanishes is known as they are
AVERAGES = {"rtol": 1e-5, "atol": 1e-8}


def uncertainties(prediction):
    return np.stack([prediction.uncertainty, prediction.variance_uncertainty], axis=1)


@pytest.mark.parametrize("algorithm", [fw.GradientFlow(3.0), fw.GradientDescent(0.1, 25), fw.TwoStep()])
def test_the_uncertainty_of_a_prediction_belongs_to_its_test_input_whatever_else_is_asked(algorithm):
    """Also that of training points, which are asked about alone, among others, and as test inputs."""
    many = np.concatenate([X, X_TEST, X + 0.01])
    whole = fw.predict(NET, X, Y, many, algorithm=algorithm)
    for rows in (slice(0, 3), slice(3, 5), slice(5, 6)):
        part = fw.predict(NET, X, Y, many[rows], algorithm=algorithm)
        np.testing.assert_allclose(uncertainties(part), uncertainties(whole)[rows], **AVERAGES)
    default = fw.predict(NET, X, Y, algorithm=algorithm)
    np.testing.assert_allclose(uncertainties(default), uncertainties(whole)[:3], **AVERAGES)


def test_the_uncertainty_of_a_posterior_belongs_to_its_test_input_whatever_else_is_asked():
    many = np.concatenate([X, X_TEST, X + 0.01])
    whole = fw.bayes.posterior(NET, X, Y, many, noise=0.1, order=1)
    for rows in (slice(0, 3), slice(3, 5), slice(5, 6)):
        part = fw.bayes.posterior(NET, X, Y, many[rows], noise=0.1, order=1)
        np.testing.assert_allclose(uncertainties(part), uncertainties(whole)[rows], rtol=1e-6)
    evidence = fw.bayes.evidence(NET, X, Y, noise=0.1, order=1, gradient=False)
    assert evidence.uncertainty > 0 and evidence.infinite_width.uncertainty == 0


@QUIET  # a covariance that vanishes on training points has eigenvalues of both signs
def test_at_the_end_of_training_nothing_is_neglected_on_training_points_and_little_beside_them(prepared):
    end = fw.predict(NET, X, Y, np.concatenate([X, X + 1e-3, X + 1e-2]), algorithm=fw.GradientFlow())
    on, beside, farther = (uncertainties(end)[rows] for rows in (slice(0, 3), slice(3, 6), slice(6, 9)))
    assert on.max() < 1e-12
    assert (beside < farther).all() and (beside > 1e-12).all()


def test_a_test_input_that_approaches_a_training_point_takes_over_its_uncertainty(prepared):
    together = fw.predict(NET, X, Y, np.concatenate([X, X + 1e-7]), algorithm=fw.GradientDescent(0.1, 25))
    np.testing.assert_allclose(uncertainties(together)[3:], uncertainties(together)[:3], rtol=1e-4)


def test_late_in_training_the_uncertainty_on_training_points_fades_slower_than_the_correction(prepared):
    """Networks that learn late make it, and order 1/n knows nothing of them."""
    ratios = []
    for time in (3.0, 10.0, 30.0):
        one = fw.predict(NET.with_widths((2, 32, 32, 2)), X, Y, algorithm=fw.GradientFlow(time))
        correction = np.abs(one.mean - one.infinite_width.mean)
        ratios.append(np.sqrt(np.mean(one.uncertainty**2) / np.mean(correction**2)))
    assert ratios[0] < ratios[1] < ratios[2] and ratios[2] > 1


def test_the_verdict_says_which_number_decides(prepared):
    far = prepared.with_width(1000).predict(fw.GradientFlow(3.0)).expansion
    assert far.decided_by in {"the mean far from training points", "the variance far from training points"}
    net = NET.with_widths((2, 6, 6, 2))
    with pytest.warns(fw.warnings.ExpansionWarning, match="the (mean|variance) on a training point decides"):
        on = fw.predict(net, X, 5 * Y, algorithm=fw.GradientDescent(0.1, 4)).expansion
    assert on.decided_by.endswith("on a training point")
    beside = fw.predict(NET, X, Y, X + 1e-3, algorithm=fw.GradientFlow(3.0)).expansion
    assert beside.decided_by.endswith("beside training points")


# --- statistics at initialization -----------------------------------------------------------------------


def test_networks_that_saturate_are_uncertain_by_what_happens_between_different_inputs():
    """One input by itself has almost no fluctuations where tanh is a sign; two inputs have."""
    inputs, n, C_W = np.array([[1.0, 0.4, -0.7], [-0.3, 0.9, 0.8]]), 8, 40.0
    layer = fw.solve(fw.MLP((3, n, n, n, 1), "tanh", C_W=C_W), inputs).output
    draws = _kernels_of_tanh(inputs, n, C_W, hidden=3, members=200_000)[:, 0, 1]
    left, stderr = abs(draws.mean() - layer.G[0, 1]), draws.std() / np.sqrt(draws.size)
    assert 4 * stderr < left < 2 * np.hypot(layer.uncertainty("G")[0, 1], stderr)
    own = max(abs(layer.G1[0, 0]) / layer.K[0, 0], layer.V[0, 0, 0, 0] / layer.K[0, 0] ** 2) / n
    assert own**2 / 2 * layer.K[0, 0] < left / 4  # by ratios of coincident samples it would be certain


def _kernels_of_tanh(inputs, n, C_W, *, hidden, members):
    """Kernels of real networks: neurons of a layer are Gaussian and independent given the layer below."""
    random, K = np.random.default_rng(0), C_W * inputs @ inputs.T / inputs.shape[1]
    K = np.broadcast_to(K, (members, *K.shape))
    for _ in range(hidden):
        root = np.linalg.cholesky(K + 1e-12 * np.eye(len(inputs)))
        signals = np.tanh(root @ random.standard_normal((members, len(inputs), n)))
        K = C_W * signals @ signals.swapaxes(1, 2) / n
    return K


def test_the_uncertainty_of_a_statistic_is_refused_where_tensors_that_make_it_were_not_kept():
    whole, vertex = fw.solve(NET, X), fw.solve(NET, X, tensors=("V",))
    np.testing.assert_allclose(vertex.output.uncertainty("G"), whole.output.uncertainty("G"), rtol=1e-12)
    with refused("the uncertainty of H is made of .* D, F, A, B were not kept"):
        vertex.output.uncertainty("H")
    with refused("the verdict belongs to all tensors, and D, F, A, B, P"):
        vertex.report().verdict  # noqa: B018
    assert "no verdict without D" in str(vertex.report())


def test_where_ratios_are_small_the_next_order_is_that_of_one_layer():
    """As behind skips: moments of n neurons are known to 2/n, and a square alone would state too little."""
    assert neglected(0.01, 16) == pytest.approx(0.01 * (2 / 16) / 2, rel=1e-12)
    assert neglected(-0.5, 16) == neglected(0.5) == pytest.approx(0.5**2 / 2, rel=1e-12)
