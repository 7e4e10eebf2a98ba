"""scikit-learn estimators: its own checks, and agreement with `fw.predict`."""

import importlib
import pickle

import numpy as np
import pytest
from helpers.problems import also_long
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import finitewidth as fw
from finitewidth.training.infinite.leave_one_out import LeftOut, left_out

PLAIN = {"scale_inputs": False, "normalize_y": False}  # data as they are
RANDOM = np.random.default_rng(41)
X, Y, X_TEST = RANDOM.normal(size=(12, 3)), RANDOM.normal(size=(12, 2)), RANDOM.normal(size=(5, 3))


@pytest.mark.filterwarnings("ignore")  # scikit-learn's checks warn on purpose
@pytest.mark.parametrize(
    "estimator",
    [
        *also_long(fw.sklearn.WideNetworkRegressor(), fw.sklearn.WideNetworkRegressor(inference="posterior")),
        fw.sklearn.WideNetworkClassifier(),
    ],
)
def test_estimators_pass_the_checks_of_scikit_learn(estimator):
    results = check_estimator(estimator, on_skip=None)
    assert len(results) > 30 and all(one["status"] in ("passed", "skipped") for one in results)


def test_regressor_is_the_prediction_with_a_ridge():
    model = fw.sklearn.WideNetworkRegressor(depth=3, activation="gelu", C_W=1.5, ridge=0.01, noise=0, **PLAIN)
    model.fit(X, Y)
    net = fw.MLP((3, 1, 1, 2), "gelu", C_W=1.5)
    expected = fw.predict(net, X, Y, X_TEST, order=0, ridge=0.01)
    mean, std = model.predict(X_TEST, return_std=True)
    np.testing.assert_allclose(mean, expected.mean, rtol=1e-11)
    np.testing.assert_allclose(std, expected.std, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X_TEST), mean)
    one = fw.sklearn.WideNetworkRegressor(ridge=0.01).fit(X, Y[:, 0])
    assert one.predict(X_TEST).shape == (5,) and one.predict(X_TEST, return_std=True)[1].shape == (5,)


@pytest.mark.parametrize("width", [None, 400])
def test_regressor_is_the_posterior_with_its_noise(width):
    options = {"activation": "gelu", "C_b": 0.1, "C_W": 1.5, "noise": 0.2, **PLAIN}
    model = fw.sklearn.WideNetworkRegressor(inference="posterior", width=width, **options).fit(X[:4], Y[:4])
    net = fw.MLP((3, width or 2, width or 2, 2), "gelu", C_b=0.1, C_W=1.5)
    expected = fw.bayes.posterior(net, X[:4], Y[:4], X_TEST, noise=0.2, order=0 if width is None else 1)
    mean, std = clone(model).fit(X[:4], Y[:4]).predict(X_TEST, return_std=True)
    np.testing.assert_allclose(mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(std, np.sqrt(expected.variance + 0.2), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X_TEST), mean)


def test_standard_deviations_far_from_all_samples_come_with_a_warning():
    """A sine without noise, learned on its arcs: beyond them networks agree with each other alone."""
    x = np.linspace(-4, 4, 25)[:, None]
    model = fw.sklearn.WideNetworkRegressor(activation="tanh", C_b=0.1, C_W=1.3).fit(x, np.sin(x[:, 0]))
    inside, outside = np.linspace(-4.3, 4.3, 40)[:, None], np.linspace(6, 8, 10)[:, None]
    mean, std = model.predict(inside, return_std=True)  # warnings are errors in these tests
    with pytest.warns(fw.warnings.ExtrapolationWarning, match="^10 of 50 inputs lie more than twice as far"):
        mean, std = model.predict(np.concatenate([inside, outside]), return_std=True)
    assert np.mean(np.abs(mean - np.sin([*inside[:, 0], *outside[:, 0]]))[40:] > 2 * std[40:]) > 0.5
    model.predict(outside)


def test_training_has_no_width_and_noise_no_sign():
    with pytest.raises(ValueError, match='inference must be "training" at infinite width .* or "posterior"'):
        fw.sklearn.WideNetworkRegressor(width=100).fit(X, Y)
    with pytest.raises(ValueError, match="noise must be a variance, zero or positive, got -1"):
        fw.sklearn.WideNetworkRegressor(inference="posterior", noise=-1).fit(X, Y)
    with pytest.raises(ValueError, match='noise must be "auto" or a number, zero or positive, got -1'):
        fw.sklearn.WideNetworkRegressor(noise=-1).fit(X, Y)


def test_each_hidden_layer_may_have_its_own_activation():
    """One prediction, whether the estimator is made, cloned, pickled or given its parameters later."""
    names = ("tanh", "relu", "gelu")
    model = fw.sklearn.WideNetworkRegressor(depth=4, activation=names, C_W=1.5, ridge=0.01, **PLAIN)
    net = fw.MLP((3, 1, 1, 1, 2), names, C_W=1.5)
    expected = fw.predict(net, X, Y, X_TEST, order=0, ridge=0.01).mean
    later = fw.sklearn.WideNetworkRegressor(ridge=0.01, **PLAIN).set_params(
        depth=4, activation=names, C_W=1.5
    )
    assert clone(model).get_params() == model.get_params() == later.get_params()
    for one in (model, clone(model), later):
        np.testing.assert_allclose(one.fit(X, Y).predict(X_TEST), expected, rtol=1e-11)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict(X_TEST, return_std=True),
        model.predict(X_TEST, return_std=True),
    )
    with pytest.raises(ValueError, match="activation has 3 entries for 2 hidden layers"):
        model.set_params(depth=3).fit(X, Y)
    labels = np.arange(12) % 3
    search = GridSearchCV(
        fw.sklearn.WideNetworkClassifier(), {"activation": [("tanh", "relu"), ("relu", "tanh")]}, cv=2
    )
    assert search.fit(X, labels).best_params_["activation"] in (("tanh", "relu"), ("relu", "tanh"))


def test_early_stopping_is_an_algorithm():
    stopped = fw.sklearn.WideNetworkRegressor(algorithm=fw.GradientFlow(0.5), ridge=0.0, **PLAIN).fit(X, Y)
    net = fw.MLP((3, 1, 1, 2), "relu", C_W=2.0)
    expected = fw.predict(net, X, Y, X_TEST, algorithm=fw.GradientFlow(0.5), order=0)
    np.testing.assert_allclose(stopped.predict(X_TEST), expected.mean, rtol=1e-11)


def test_classifier_works_in_pipelines_and_searches():
    inputs, labels = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[labels]
    model = make_pipeline(StandardScaler(), fw.sklearn.WideNetworkClassifier(ridge=0.1))
    grid = {"widenetworkclassifier__ridge": [0.01, 1.0], "widenetworkclassifier__depth": [2, 3]}
    search = GridSearchCV(model, grid, cv=3).fit(inputs, names)
    assert search.best_score_ > 0.9
    probabilities = search.predict_proba(inputs)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(search.predict(inputs), search.classes_[probabilities.argmax(axis=1)])


def test_smoothing_does_not_change_the_winner():
    labels = np.arange(12) % 3
    first, second = (fw.sklearn.WideNetworkClassifier(smoothing=s).fit(X, labels) for s in (0.01, 0.3))
    np.testing.assert_array_equal(first.predict(X_TEST), second.predict(X_TEST))
    ratio = first.decision_function(X_TEST) / second.decision_function(X_TEST)
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-9)


def test_the_modules_have_short_paths():
    from finitewidth.sklearn import WideNetworkRegressor

    assert WideNetworkRegressor is fw.sklearn.WideNetworkRegressor
    for name in ("optax", "plots", "sklearn", "torch"):
        assert importlib.import_module(f"finitewidth.{name}") is getattr(fw, name)


def misses_without(algorithm, ridge: float) -> tuple[np.ndarray, np.ndarray, LeftOut]:
    """Misses and variances of networks that are trained without one sample, and the closed form of both."""
    net = fw.MLP((3, 1, 1, 2), "gelu", C_b=0.1, C_W=1.5)
    misses, variances = [], []
    for i in range(3):
        others = np.arange(12) != i
        without = fw.fit(net, X[others], Y[others], algorithm=algorithm, ridge=ridge)
        mean, std = without.mean_and_std(X[i : i + 1])
        misses.append(Y[i] - mean[0])
        variances.append(std[0] ** 2)
    return (
        np.array(misses),
        np.array(variances),
        left_out(fw.fit(net, X, Y, algorithm=algorithm, ridge=ridge), Y),
    )


def test_samples_left_out_are_those_of_networks_trained_without_them():
    misses, variances, closed = misses_without(fw.GradientFlow(), 0.3)
    np.testing.assert_allclose(closed.residuals[:3], misses, rtol=1e-9)
    np.testing.assert_allclose(closed.variances[:3], variances, rtol=1e-9)


def test_samples_left_out_early_in_training_are_right_up_to_the_square_of_the_time():
    errors = []
    for time in (0.01, 0.005):
        misses, variances, closed = misses_without(fw.GradientFlow(time), 0.0)
        errors.append(
            [np.abs(closed.residuals[:3] - misses).max(), np.abs(closed.variances[:3] - variances).max()]
        )
    assert np.all(np.abs(np.divide(*errors) - 4) < 1)


def test_the_ridge_is_that_of_leave_one_out():
    model = fw.sklearn.WideNetworkRegressor(**PLAIN).fit(X, Y)
    net = fw.MLP((3, 1, 1, 2), "relu", C_W=2.0)
    path = fw.choose_ridge(net, X, Y)
    assert model.ridge_ == path.best_leave_one_out
    expected = fw.predict(net, X, Y, X_TEST, order=0, ridge=model.ridge_)
    np.testing.assert_allclose(model.predict(X_TEST), expected.mean, rtol=1e-9)
    with pytest.raises(ValueError, match='ridge="loo" needs networks trained to the end'):
        fw.sklearn.WideNetworkRegressor(algorithm=fw.GradientFlow(1.0)).fit(X, Y)
    with pytest.raises(ValueError, match='ridge must be "loo" or a number, zero or positive, got .best.'):
        fw.sklearn.WideNetworkRegressor(ridge="best").fit(X, Y)


@pytest.mark.parametrize("inference", ["training", "posterior"])
def test_units_of_inputs_and_targets_do_not_matter(inference):
    first = fw.sklearn.WideNetworkRegressor(inference=inference).fit(X, Y)
    second = fw.sklearn.WideNetworkRegressor(inference=inference).fit(1000 * X, 7 + 50 * Y)
    for a, b, offset in zip(
        first.predict(X_TEST, return_std=True),
        second.predict(1000 * X_TEST, return_std=True),
        (7, 0),
        strict=True,
    ):
        np.testing.assert_allclose(offset + 50 * a, b, rtol=1e-6)


@pytest.mark.parametrize("inference", ["training", "posterior"])
def test_the_noise_of_targets_is_estimated(inference):
    """400 targets with noise of variance 0.25: its estimate has an error of about 0.25 sqrt(2/400)."""
    random = np.random.default_rng(7)
    inputs = random.normal(size=(400, 2))
    targets = np.sin(inputs[:, 0]) + 0.5 * random.normal(size=400)
    model = fw.sklearn.WideNetworkRegressor(inference=inference, normalize_y=False).fit(inputs, targets)
    assert abs(np.ravel(model.noise_)[0] - 0.25) < 4 * 0.25 * np.sqrt(2 / 400)
    _, std = model.predict(inputs[:5], return_std=True)
    assert np.all(std > 0.4)


def test_a_pickle_has_one_matrix_between_samples():
    inputs = np.random.default_rng(3).normal(size=(150, 3))
    model = fw.sklearn.WideNetworkRegressor().fit(inputs, inputs[:, 0])
    stored = pickle.dumps(model)
    assert 8 * 150**2 < len(stored) < 1.2 * 8 * 150**2
    for one, other in zip(
        pickle.loads(stored).predict(X_TEST, return_std=True),
        model.predict(X_TEST, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_probabilities_are_frequencies():
    """Labels that are wrong three times in ten: on new data, networks are as sure as they are right."""
    random = np.random.default_rng(11)
    inputs = random.normal(size=(1300, 2))
    labels = (inputs[:, 0] > 0) ^ (random.random(1300) < 0.3)
    model = fw.sklearn.WideNetworkClassifier().fit(inputs[:300], labels[:300])
    probabilities = model.predict_proba(inputs[300:])
    right = np.mean(model.predict(inputs[300:]) == labels[300:])
    error = np.sqrt(0.3 * 0.7 * (1 / 1000 + 1 / 300))  # of the test, and of the samples left out
    assert abs(probabilities.max(axis=1).mean() - right) < 4 * error
    other = fw.sklearn.WideNetworkClassifier(smoothing=0.3).fit(inputs[:300], labels[:300])
    np.testing.assert_allclose(other.predict_proba(inputs[300:]), probabilities, rtol=1e-4)
    sure = clone(model).set_params(temperature=0.05).fit(inputs[:300], labels[:300])
    assert sure.predict_proba(inputs[300:]).max(axis=1).mean() > right + 4 * error


def test_bad_parameters_are_named():
    for change, message in (
        (dict(depth=0), "depth must be a whole number of at least 1"),
        (dict(smoothing=0.0), "smoothing must lie between 0 and 1"),
        (dict(temperature="cold"), 'temperature must be "loo" or a number, zero or positive'),
        (dict(activation="nothing"), "activation"),
    ):
        with pytest.raises(ValueError, match=message):
            fw.sklearn.WideNetworkClassifier(**change).fit(X, np.arange(12) % 2)
