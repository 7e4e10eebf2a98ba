"""Expected loss over depth and width, and the bias of algorithms."""

import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 3))
Y = np.sin(X @ RNG.standard_normal((3, 1)))


@pytest.fixture(scope="module")
def sweep():
    return fw.expected_loss(
        lambda widths: fw.MLP.critical(widths, "tanh"),
        X[:4],
        Y[:4],
        X[4:],
        Y[4:],
        depths=(2, 3),
        widths=(32, 64),
    )


def test_expected_loss_is_that_of_the_prediction(sweep):
    """With targets scaled by L^(-p_0/2) and losses in units of the square of that."""
    scale = 3.0**-0.5
    net = fw.MLP.critical((3, 64, 64, 1), "tanh")
    prediction = fw.predict(net, X[:4], scale * Y[:4], X[4:])
    loss = prediction.test_loss(scale * Y[4:])
    assert sweep.target_scale[1] == pytest.approx(scale)
    assert sweep.bias[1, 1] == pytest.approx(loss.bias / scale**2, rel=1e-9)
    assert sweep.variance[1, 1] == pytest.approx(loss.variance / scale**2, rel=1e-9)
    infinite = prediction.infinite_width.test_loss(scale * Y[4:])
    assert sweep.infinite_total[1] == pytest.approx(infinite.total / scale**2, rel=1e-9)


def test_the_coefficient_is_the_slope_in_depth_over_width(sweep):
    """The remainder falls as the square of 1/n."""
    for row, depth in enumerate((2, 3)):
        slope = (sweep.total[row] - sweep.infinite_total[row]) * sweep.widths / depth
        gaps = slope - sweep.coefficient[row]
        assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.2)


def test_networks_of_one_depth_only_are_refused():
    net = fw.MLP((3, 8, 8, 1), "tanh", C_W=(1.0, 2.0, 1.0))
    with refused("net has different values of C_W in its layers"):
        fw.expected_loss(net, X[:4], Y[:4], X[4:], Y[4:], depths=(2,), widths=(8,))
    tanh = fw.MLP((3, 8, 1), "tanh")
    with refused("each of depths must be a whole number of at least 2, got 1"):
        fw.expected_loss(tanh, X[:4], Y[:4], X[4:], Y[4:], depths=(1,), widths=(8,))
    with refused("each of widths must be a whole number of at least 2, got inf"):
        fw.expected_loss(tanh, X[:4], Y[:4], X[4:], Y[4:], depths=(2,), widths=(np.inf,))
    with refused("Y_train must have shape"):
        fw.expected_loss(tanh, X[:4], Y[:4, 0], X[4:], Y[4:], depths=(2,), widths=(8,))
    with refused("net gives other hyperparameters at width 8 than at width"):
        fw.expected_loss(
            lambda widths: fw.MLP(widths, "tanh", lambda_W=1 / widths[1]),
            X[:4],
            Y[:4],
            X[4:],
            Y[4:],
            depths=(2,),
            widths=(8,),
        )


def test_networks_of_unequal_layers_have_other_widths_but_no_other_depth():
    net = fw.MLP((3, 8, 8, 1), ("tanh", "sin"), C_W=(1.0, 1.2, 1.0))
    data = (X[:4], Y[:4], X[4:], Y[4:])
    with refused("net has different activations in its layers, tanh, sin; pass a function of widths"):
        fw.expected_loss(net, *data, depths=(2, 3), widths=(32,))
    sweep = fw.expected_loss(net, *data, depths=(3,), widths=(64,))
    loss = fw.predict(net.replace(widths=(3, 64, 64, 1)), *data[:3]).test_loss(Y[4:])
    assert sweep.total[0, 0] == pytest.approx(loss.total, rel=1e-9)


def test_targets_keep_their_size_where_the_kernel_does_not_fall_and_algorithms_are_heard():
    """Off criticality, for descent that is stopped early."""
    net, how = fw.MLP((3, 32, 1), "tanh", C_b=0.3, C_W=1.5), fw.GradientDescent(0.05, steps=7)
    table = fw.expected_loss(net, X[:4], Y[:4], X[4:], Y[4:], depths=(2,), widths=(32,), algorithm=how)
    loss = fw.predict(net, X[:4], Y[:4], X[4:], algorithm=how).test_loss(Y[4:])
    assert table.target_scale[0] == 1
    assert table.total[0, 0] == pytest.approx(loss.total, rel=1e-9)


def test_algorithms_differ_in_the_projector_that_knows_them():
    net = fw.MLP((3, 64, 64, 1), "tanh", C_b=0.1)
    prepared = fw.prepare(net, X[:4], Y[:4], X[4:])
    bias = fw.textbook.inductive_bias(prepared)
    l = bias.eigenvalues
    np.testing.assert_allclose(bias.ratios["gradient flow"], 2 * l / (l[:, None] + l), rtol=1e-9)
    assert not bias.ratios["two-step"].any()
    fastest = [bias.ratios[f"descent, {p}% of limit"][-1, -1] for p in (25, 50, 75, 95)]
    # descent must be stable with the NTK of infinite width as well
    largest = np.linalg.eigvalsh(prepared.means.Theta[:4, :4])[-1]
    x = 2 * np.array([0.25, 0.5, 0.75, 0.95]) * l[-1] / max(l[-1], largest)
    np.testing.assert_allclose(fastest, 2 * (1 - x) / (2 - x), atol=1e-9)
    assert len({float(c.sum()) for c in bias.corrections.values()}) == 6
    assert bias.table().count("\n") == 6


@pytest.mark.long
def test_other_losses_are_replayed_once_for_all_widths():
    """Cross-entropy with momentum: the losses and their slope in 1/n are those of a prediction."""
    labels = fw.losses.one_hot([0, 1, 1], 2)
    net, entropy = fw.MLP((3, 32, 2), "tanh", C_b=0.1, C_W=1.2), fw.CrossEntropy()
    options = dict(algorithm=fw.GradientDescent(0.2, 3, momentum=0.5), loss=entropy)
    method = fw.Sampling(samples=1000)
    data = X[:3], labels, X[3:], labels
    found = fw.expected_loss(net, *data, depths=(2,), widths=(32, 64), method=method, **options)
    one = fw.predict(net, *data[:3], method=method, **options).with_width(64)
    loss = one.test_loss(labels)
    assert found.total[0, 1] == pytest.approx(loss.total, rel=1e-6)
    assert found.bias[0, 1] == pytest.approx(loss.bias, rel=1e-6)
    slope = one.expectation(lambda z: entropy.value(z, labels)).correction.value * 64 / 2
    assert found.coefficient[0] == pytest.approx(slope, rel=1e-4)
    with refused("method=fw.Tensors.* has no meaning with algorithm="):
        fw.expected_loss(net, *data, depths=(2,), widths=(32,), method=fw.Tensors(), **options)
