"""Expected accuracy of trained networks."""

import numpy as np
import pytest
from scipy.special import ndtr

import finitewidth as fw

RNG = np.random.default_rng(3)
X = RNG.standard_normal((9, 3))
LABELS = (X[:, 0] > 0).astype(int)
Y = np.eye(2)[LABELS] - 0.5
TRAIN, TEST = slice(0, 5), slice(5, None)
DESCENT = fw.GradientDescent(0.05, 12)


def network(n: int = 64) -> fw.MLP:
    return fw.MLP((3, n, 2), "tanh", C_b=0.1, C_W=1.2)


def test_accuracy_of_two_classes_is_a_normal_probability():
    prediction = fw.predict(network(), X[TRAIN], Y[TRAIN], X[TEST], algorithm=DESCENT)
    accuracy = fw.accuracy(prediction, LABELS[TEST], members=20_000)
    m, S = prediction.mean, prediction.within_samples
    sign = 2 * LABELS[TEST] - 1
    gap, variance = sign * (m[:, 1] - m[:, 0]), S[:, 0, 0] + S[:, 1, 1] - 2 * S[:, 0, 1]
    exact = ndtr(gap / np.sqrt(variance))
    np.testing.assert_allclose(accuracy.of_samples, exact, atol=4 * 0.5 / np.sqrt(20_000))
    assert abs(accuracy.expected.value - exact.mean()) < 4 * accuracy.expected.stderr
    one_hot = fw.accuracy(prediction, Y[TEST], members=20_000)
    assert one_hot.expected == accuracy.expected


@pytest.mark.long
def test_real_networks_are_as_often_right(tmp_path):
    prediction = fw.predict(network(), X[TRAIN], Y[TRAIN], X[TEST], algorithm=DESCENT)
    ensemble = fw.train_ensemble(
        network(),
        X[TRAIN],
        Y[TRAIN],
        X[TEST],
        algorithm=DESCENT,
        members=600,
        key=1,
        record=fw.Record(members=True),
        run=fw.Run(store=tmp_path / "networks.zarr", progress=False),
    )
    foretold, seen = fw.accuracy(prediction, LABELS[TEST]), fw.accuracy(ensemble, LABELS[TEST])
    error = np.hypot(foretold.expected.stderr, seen.expected.stderr)
    assert abs(foretold.expected.value - seen.expected.value) < 4 * error
    assert foretold.spread == pytest.approx(seen.spread, rel=0.2)
    assert "±" in repr(seen) and "spread=" in repr(seen)


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0, 1], "labels must be 4 numbers"),
        ([0, 1, 2, 0], "from 0 to 1"),
        ("ab", "labels"),
        (np.zeros((4, 2)), "row 0 is"),
        (np.full((4, 2), np.nan), "row 0 is"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    prediction = fw.predict(network(), X[TRAIN], Y[TRAIN], X[TEST], order=0)
    with pytest.raises(ValueError, match=message):
        fw.accuracy(prediction, labels)


@pytest.mark.parametrize("option", [{"members": 50}, {"key": 1}])
def test_networks_that_are_counted_are_not_drawn(option):
    """A sampled prediction, and an ensemble, have networks of their own."""
    sampled = fw.predict(
        network(),
        X[TRAIN],
        Y[TRAIN],
        X[TEST],
        order=0,
        algorithm=DESCENT,
        method=fw.FunctionSpace(members=40),
    )
    ensemble = fw.train_ensemble(
        network(4), X[TRAIN], Y[TRAIN], X[TEST], algorithm=fw.GradientDescent(0.05, 2), members=4, key=1
    )
    (name,) = option
    for trained in (sampled, ensemble):
        message = f"^{name}=.* has no effect on a {type(trained).__name__}, .*; remove {name}.$"
        with pytest.raises(ValueError, match=message):
            fw.accuracy(trained, LABELS[TEST], **option)
    assert fw.accuracy(sampled, LABELS[TEST]).of_samples.shape == (4,)


def test_one_output_knows_no_classes():
    net = fw.MLP((3, 8, 1), "tanh")
    prediction = fw.predict(net, X[TRAIN], Y[TRAIN, :1], X[TEST], order=0)
    with pytest.raises(ValueError, match="one output for each class"):
        fw.accuracy(prediction, LABELS[TEST])


def test_variances_alone_are_enough_where_outputs_of_one_input_are_hardly_correlated():
    """Sampling knows no covariance; correlations between outputs are of order 1/n.

    At width 512 they move the accuracy by less than 0.01, which both methods then share.
    """
    wide = network(512)
    whole = fw.predict(wide, X[TRAIN], Y[TRAIN], X[TEST], algorithm=DESCENT)
    sampling = fw.Sampling(variance=True, tolerance=0.2)
    alone = fw.predict(wide, X[TRAIN], Y[TRAIN], X[TEST], algorithm=DESCENT, method=sampling)
    first, second = (fw.accuracy(one, LABELS[TEST], members=20_000) for one in (whole, alone))
    assert abs(first.expected.value - second.expected.value) < 0.01
    assert first.spread == pytest.approx(second.spread, rel=0.1)
