"""Everything at infinite width on a small convolutional network, and refusals by the layer's name."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from helpers.close import assert_close
from helpers.command_line import call, error_line
from helpers.problems import refused
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import finitewidth as fw
from finitewidth.interface.runs import run_files

RANDOM = np.random.default_rng(17)
SHAPE = (4, 5, 2)
X, X_TEST = RANDOM.standard_normal((6, *SHAPE)), RANDOM.standard_normal((3, *SHAPE))
Y, Y_TEST = RANDOM.standard_normal((6, 2)), RANDOM.standard_normal((3, 2))
BODY = fw.Residual(fw.Conv(4, C_W=0.8), gamma=0.9)
LAYERS = [
    fw.Conv(4, C_b=0.1, C_W=1.5),
    BODY,
    fw.LayerNorm(lambda_offset=0.5),
    "erf",
    fw.Flatten(),
    fw.Dense(2),
]
NET = fw.Network(SHAPE, *LAYERS)
ATTENTIVE = fw.Network((4, 2), fw.SelfAttention(3), fw.Flatten(), fw.Dense(1))
TRAIN, CROSS, TEST = fw.kernels(NET, X), fw.kernels(NET, X_TEST, X), fw.kernels(NET, X_TEST)


# --- training ---------------------------------------------------------------------------------------


def test_the_end_of_training_is_a_linear_system():
    gain = CROSS.Theta @ np.linalg.inv(TRAIN.Theta)
    covariance = TEST.K - gain @ CROSS.K.T - CROSS.K @ gain.T + gain @ TRAIN.K @ gain.T
    prediction = fw.predict(NET, X, Y, X_TEST, order=0)
    assert_close(prediction.mean, gain @ Y)
    assert_close(prediction.covariance[:, 1, :, 1], covariance)
    fitted = fw.fit(NET, X, Y)
    assert_close(fitted.mean(X_TEST), gain @ Y)
    assert_close(fitted.mean_and_std(X_TEST)[1] ** 2, np.diag(covariance))
    assert_close(fitted.gain(X_TEST), gain)
    path = fw.trajectory(NET, X, Y, X_TEST, times=[0.0, np.inf], order=0)
    assert_close(path.mean[0], 0, scale=1)
    assert_close(path.mean[1], prediction.mean)
    assert_close(path[1].covariance, prediction.covariance)
    assert path.stopping_time(Y_TEST).index in (0, 1)


def test_a_ridge_and_its_choice():
    assert_close(
        fw.predict(NET, X, Y, X_TEST, order=0, ridge=0.3).mean,
        CROSS.Theta @ np.linalg.solve(TRAIN.Theta + 0.3 * np.eye(6), Y),
    )
    missed = [
        Y[i] - fw.fit(NET, np.delete(X, i, 0), np.delete(Y, i, 0), ridge=0.3).mean(X[[i]])[0]
        for i in range(6)
    ]
    assert_close(fw.choose_ridge(NET, X, Y, ridges=[0.3]).leave_one_out, [np.mean(np.square(missed))])


def test_the_spectrum_is_that_of_the_tangent_kernel():
    spectrum = fw.textbook.spectrum(NET, X)
    assert_close(spectrum.eigenvalues, np.linalg.eigvalsh(TRAIN.Theta))
    with refused("learning_rate"):
        fw.fit(NET, X, Y, algorithm=fw.GradientDescent(1.1 * spectrum.largest_learning_rate))


def test_posterior_and_evidence():
    noisy = TRAIN.K + 0.2 * np.eye(6)
    gain = np.linalg.solve(noisy, CROSS.K.T).T
    posterior = fw.bayes.posterior(NET, X, Y, X_TEST, noise=0.2, order=0)
    assert_close(posterior.mean, gain @ Y)
    assert_close(posterior.covariance[:, 0, :, 0], TEST.K - gain @ CROSS.K.T)
    evidence = fw.bayes.evidence(NET, X, Y, noise=0.2, order=0)
    density = scipy.stats.multivariate_normal(np.zeros(6), noisy)
    assert_close(evidence.value, sum(density.logpdf(column) for column in Y.T))
    assert evidence.gradient is None


def test_training_the_last_layer_is_bayesian():
    bayesian = fw.bayes.rates(NET)
    assert_close(fw.kernels(bayesian, X).Theta, TRAIN.K)
    assert_close(
        fw.predict(bayesian, X, Y, X_TEST, order=0).mean,
        fw.bayes.posterior(NET, X, Y, X_TEST, order=0).mean,
        1e-8,
    )
    sequences = X[:, 0, :4]
    with refused(
        "SelfAttention learns at rates equal to its variances and cannot be frozen; use fw.bayes.posterior"
    ):
        fw.bayes.rates(ATTENTIVE)
    assert fw.bayes.posterior(ATTENTIVE, sequences, Y[:, :1], noise=0.1, order=0).mean.shape == (6, 1)
    ends_in_a_skip = fw.Network(2, fw.Dense(3), fw.Residual("erf", fw.Dense(3)))
    with refused("the last layer is a Residual, whose skip its last weights do not move"):
        fw.bayes.rates(ends_in_a_skip)


def test_losses_of_trained_networks():
    prediction = fw.predict(NET, X, Y, X_TEST, order=0)
    loss = prediction.test_loss(Y_TEST)
    assert_close(loss.bias, np.sum((prediction.mean - Y_TEST) ** 2) / 2)
    soft = fw.losses.one_hot(np.arange(6) % 2, 2, smoothing=0.1)
    end = fw.predict(NET, X, soft, X_TEST, loss=fw.CrossEntropy(), order=0)
    assert_close(end.mean, fw.predict(NET, X, fw.losses.outputs_of(soft), X_TEST, order=0).mean)
    stopped = fw.predict(
        NET, X, soft, X_TEST, loss=fw.CrossEntropy(), algorithm=fw.GradientFlow(0.5), order=0,
        method=fw.FunctionSpace(members=8),
    )  # fmt: skip
    assert stopped.mean.value.shape == (3, 2)


def test_a_control_variate_is_what_training_would_keep():
    control = fw.control_variate(NET, X, Y, X_TEST, fw.GradientFlow())
    z = RANDOM.standard_normal((9, 2))
    together = np.concatenate([TRAIN.Theta, CROSS.Theta])
    assert_close(control.function(z), z - together @ np.linalg.solve(TRAIN.Theta, z[:6]))


def test_pairs_of_images():
    both = fw.kernels(NET, X[:2])
    assert_close(fw.textbook.neighbour(NET, X[0], X[1]).ratio, both.Theta[1, 0] / both.Theta[0, 0])
    star = fw.textbook.starpolate(NET, X[0], X[1], Y[0], Y[1], s=[0.0, 0.3, 1.0])
    assert_close(star.mean[[2, 0]], Y[:2])
    with refused("only dense layers have one; use .mean"):
        _ = star.curvature


def test_parallel_images_without_biases_are_named():
    """Skips, pools and strides scale with their input too; attention does not."""
    bare = dict(lambda_b=0.0)
    body = fw.Residual("relu", fw.Conv(4, **bare), gamma=0.5)
    net = fw.Network(
        SHAPE, fw.Conv(4, **bare), body, fw.AveragePool(2), "relu", fw.Flatten(), fw.Dense(2, **bare)
    )
    twice = np.concatenate([X[:3], 2 * X[1:2]])
    with refused("rows 1 and 3 of X_train are parallel and without biases"):
        fw.fit(net, twice, Y[:4])
    with refused("rows 0 and 1 of X_train are equal but their targets differ"):
        fw.fit(NET, X[[0, 0]], Y[:2])
    assert not fw.Network((4, 2), fw.SelfAttention(3), fw.Flatten(), fw.Dense(1, **bare)).is_homogeneous


# --- scikit-learn -----------------------------------------------------------------------------------


def test_estimators_take_images_and_flat_rows():
    exact = fw.predict(NET, X, Y, X_TEST, order=0, ridge=0.1).mean
    flat, flat_test = X.reshape(6, -1), X_TEST.reshape(3, -1)
    plain = {"ridge": 0.1, "scale_inputs": False, "normalize_y": False}
    for network, inputs in ((NET, X), (NET, flat), (LAYERS, X)):
        model = fw.sklearn.WideNetworkRegressor(network=network, **plain).fit(inputs, Y)
        for one in (model, pickle.loads(pickle.dumps(model)), clone(model).fit(inputs, Y)):
            assert_close(one.predict(X_TEST), exact)
            assert_close(one.predict(flat_test), exact)
    one_output = fw.sklearn.WideNetworkRegressor(network=NET, **plain).fit(X, Y[:, 0])
    assert_close(one_output.predict(X_TEST), exact[:, 0])


def test_images_go_through_pipelines_and_searches():
    labels = np.array(["a", "b", "c"])[np.arange(12) % 3]
    images = RANDOM.standard_normal((12, *SHAPE)).reshape(12, -1)
    model = make_pipeline(StandardScaler(), fw.sklearn.WideNetworkClassifier(network=NET))
    grid = {"widenetworkclassifier__ridge": [0.01, 1.0]}
    search = GridSearchCV(model, grid, cv=2).fit(images, labels)
    assert search.predict_proba(images).shape == (12, 3)


@pytest.mark.parametrize(
    "network, inputs, message",
    [
        (
            NET,
            X[:, :, :4],
            r"X has inputs of shape \(4, 4, 2\), but network takes \(4, 5, 2\), channels last",
        ),
        (NET, X.reshape(6, -1)[:, 1:], r"X has 39 features, but network takes inputs of shape \(4, 5, 2\)"),
        (LAYERS, X.reshape(6, -1), "Conv needs samples with one or two axes of positions"),
        ("relu", X, "network must be an fw.Network or a list of layers, got 'relu'"),
        (
            fw.Network(SHAPE, fw.Flatten(), fw.Dense(3), BODY.replace(layers=[fw.Dense(3)])),
            X,
            "3 outputs for 2",
        ),
    ],
)
def test_networks_and_images_that_do_not_fit(network, inputs, message):
    with refused(message):
        fw.sklearn.WideNetworkRegressor(network=network).fit(inputs, Y)


# --- the command line -------------------------------------------------------------------------------

RUN = {
    "network": NET.to_dict(),
    "data": {"train_inputs": "data.npz:X", "train_targets": "data.npz:Y", "test_inputs": "data.npz:flat"},
    "training": {"algorithm": "gradient_flow"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with images."""
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", X=X, Y=Y, flat=X_TEST.reshape(3, -1), turned=X.swapaxes(1, 2))
    np.save("images.npy", X)
    return tmp_path


def write(folder, **tables) -> str:
    import tomli_w

    (folder / "run.toml").write_text(tomli_w.dumps(RUN | tables), encoding="utf-8")
    return "run.toml"


def test_solve_predicts_at_order_zero_and_says_why(capsys, folder):
    assert call("solve", write(folder), "--no-figure") == 0
    reason = (
        "Order 1/n is left out: it knows dense layers, activations and residual blocks of them only, not the "
        "Conv of this network."
    )
    assert reason in capsys.readouterr().out.replace("\n", " ")
    assert "not the Conv" in (folder / "results/run/report.html").read_text(encoding="utf-8")
    assert call("solve", "results/run/run.toml", "--no-figure", "--json", "--output", "again") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["order"] == 0 and document["data"]["dimension"] == 40 and document["conclusion"] == reason
    means = [row["infinite_width"] for row in document["predictions"]]
    assert_close(means, fw.predict(NET, X, Y, X_TEST, order=0).mean.ravel())


def test_solve_shows_kernels_of_images(capsys, folder):
    tables = {"network": RUN["network"], "data": {"path": "images.npy"}}
    (folder / "images.toml").write_text(
        fw.Network.to_toml(NET) + '[data]\npath = "images.npy"\n', encoding="utf-8"
    )
    assert call("solve", "images.toml") == 0
    assert "Layers with positions: mean over positions." in capsys.readouterr().out
    theory = fw.load(folder / "results/images/theory.zarr")
    assert theory.net == NET and theory.depth == 3
    assert_close(theory.output.Theta, TRAIN.Theta)
    assert json.loads((folder / "results/images/summary.json").read_text())["network"] == tables["network"]


def test_runs_that_do_not_fit_are_one_line(capsys, folder):
    path = write(folder, theory={"order": 1})
    reason = "residual blocks of them only, not Conv; write order = 0"
    assert reason in error_line(capsys, "solve", path)
    path = write(folder, data={**RUN["data"], "train_inputs": "data.npz:turned"})
    assert "takes inputs of shape (4, 5, 2), channels last, but [data] train_inputs has samples of shape" in (
        error_line(capsys, "solve", path)
    )
    path = write(folder, data={**RUN["data"], "test_inputs": "data.npz:Y"})
    assert "[network] takes 40 inputs, but [data] test_inputs has 2 columns" in error_line(
        capsys, "solve", path
    )


# --- what is refused --------------------------------------------------------------------------------

FIRST_ORDER = {
    "predict": lambda: fw.predict(NET, X, Y),
    "trajectory": lambda: fw.trajectory(NET, X, Y, times=[1.0]),
    "finite_width": lambda: fw.prepare(NET, X, Y),
    "unroll": lambda: fw.unroll(NET, X),
    "expected_loss": lambda: fw.expected_loss(NET, X, Y, X_TEST, Y_TEST, depths=[2], widths=[8]),
}


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_order_one_names_the_layer_and_order_zero(name):
    with refused("^order 1/n knows dense layers.* not the Conv of this network; use order=0"):
        FIRST_ORDER[name]()


def solved() -> fw.records.Layer:
    return fw.solve(NET, X, order=0).output


DENSE = fw.Dense(3)
REFUSED = [
    (
        lambda: NET.widths,
        "this knows networks of dense layers and activations only, not the Conv of this one",
    ),
    (lambda: solved().V, r"V was not computed; use fw.solve\(net, X, order=1\)"),
    (lambda: solved().P, "P is known of dense layers, .* a network with Conv has V, D, A, F and B"),
    (
        lambda: fw.textbook.delta_expansion(NET, X[0], X[1]),
        "delta_expansion knows dense layers .* use fw.textbook.neighbour",
    ),
    (lambda: fw.kernels(NET, X.reshape(6, 40)), r"X must have shape \(samples, 4, 5, 2\), got \(6, 40\)"),
    (lambda: fw.fit(NET, X.swapaxes(1, 2), Y), r"X_train must have shape \(samples, 4, 5, 2\)"),
    (lambda: fw.fit(NET, X, Y[:5]), "Y_train has 5 rows but X_train has 6 samples"),
    (lambda: fw.kernels(NET, np.full((1, *SHAPE), np.nan)), "X has NaN or infinity in row 0"),
    (lambda: fw.Network(SHAPE, fw.Conv(4), "relu", DENSE), "the output has positions"),
    (lambda: fw.Network(8, fw.Conv(4), DENSE), "Conv needs samples with one or two axes of positions"),
    (lambda: fw.Network(SHAPE, "BatchNorm2d", DENSE), "BatchNorm2d: BatchNorm couples all samples"),
    (lambda: fw.Network(SHAPE, "MaxPool2d", DENSE), "MaxPool2d: max pooling has no closed form"),
    (
        lambda: fw.Network(2, DENSE, "relu", fw.LayerNorm(), DENSE),
        "LayerNorm follows an activation, behind which the mean of the channels is not zero",
    ),
    (
        lambda: fw.Network(2, DENSE, fw.LayerNorm(lambda_gain=1.0), fw.Residual(DENSE), "relu", DENSE),
        "activation 'relu' follows a skip behind fw.LayerNorm with a gain that learns; put weights before it",
    ),
    (
        lambda: fw.Network(2, DENSE, fw.LayerNorm(lambda_gain=1.0), fw.Residual(DENSE)),
        "the last skip carries a skip behind fw.LayerNorm with a gain that learns, so that outputs are not",
    ),
    (
        lambda: fw.Network(2, DENSE, fw.Residual("relu", fw.Dense(5)), DENSE),
        r"Residual adds a body of shape \(5,\) to a skip of shape \(3,\)",
    ),
    (
        lambda: fw.Network.standard_parametrization((4, 2), *ATTENTIVE.layers),
        "SelfAttention learns at rates equal to its variances and has no standard parametrization",
    ),
]


@pytest.mark.parametrize("ask, message", REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_refusals_are_one_sentence(ask, message):
    with refused(message):
        ask()


@pytest.mark.long
def test_solve_compares_residual_networks_at_order_one(capsys, folder):
    """Without a word about the order it is 1, as for perceptrons; a skip into the output leaves it at 0."""
    dense = {"kind": "Dense", "width": 24, "C_b": 0.1, "lambda_b": 0.5, "lambda_W": 0.7}
    block = {"kind": "Residual", "layers": ["sin", dense], "gamma": 0.8}
    rows = {"train_inputs": [[1.0, -0.6], [0.2, 0.9]], "train_targets": [[0.8], [-0.5]]}
    data = {**rows, "test_inputs": [[-0.5, 0.4]]}
    layers = [dense, block, "sin", {**dense, "width": 1}]
    training = {"algorithm": "gradient_descent", "learning_rate": 0.1, "steps": 6}
    tables = {"data": data, "training": training, "ensemble": {"members": 40, "key": 1}}
    path = write(folder, network={"input_shape": [2], "layers": layers}, **tables)
    assert call("solve", path, "--no-figure", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["order"] == 1 and abs(document["predictions"][0]["pull_finite_width"]) < 4
    wide = {**data, "train_targets": np.zeros((2, 24)).tolist()}
    path = write(folder, network={"input_shape": [2], "layers": layers[:2]}, **tables | {"data": wide})
    assert run_files.read(Path(path)).order == 0
