"""Neurons drawn along steps with batches and momentum: factors and contractions against whole tensors."""

import numpy as np
import pytest
from helpers.many_points import INPUTS, TARGETS
from helpers.problems import refused

import finitewidth as fw
from finitewidth.core.tasks import HERE
from finitewidth.training.replay.initial_networks import InitialNetworks
from finitewidth.training.replay.polynomial_mean import mean_of_squared_error
from finitewidth.training.replay.sampled_neurons import SteppedTraining, sampled_mean
from finitewidth.training.replay.steps import KINDS, Steps
from finitewidth.training.replay.trajectories import Training

MASKS = np.array([[2, 0, 1, 0, 0, 1], [0, 1.5, 0, 0, 2, 0], [1] * 6, [0, 0, 0, 3, 0, 1]], dtype=float)
DESCENT = fw.GradientDescent([0.07, 0.05, 0.1, 0.05], momentum=0.7, nesterov=True, batches=MASKS, ridge=0.1)
NET = fw.MLP((3, 64, 64, 2), "gelu", C_b=0.1, C_W=1.4)
ROWS = np.arange(9)


def test_contributions_are_those_of_whole_tensors():
    """Every contribution within four standard errors, which are a tenth of the largest or less."""
    networks = InitialNetworks.of(fw.solve(NET, INPUTS).output.arrays, 6, 2)
    exact = mean_of_squared_error(networks, Training(DESCENT, fw.MSE(), TARGETS, (4,), ROWS), MASKS[None])
    training, H1, _ = SteppedTraining.of(NET, INPUTS, TARGETS, DESCENT, fw.kernels(NET, INPUTS))
    parts, sampled = sampled_mean(training, H1, ROWS, fw.Sampling(samples=100_000, key=1), HERE)
    np.testing.assert_allclose(parts["ntk_mean"], exact["ntk_mean"][0], rtol=0, atol=1e-8)
    for name, part in sampled.contributions.items():
        assert np.abs((part.value - exact[name][0]) / part.stderr).max() < 4, name
        assert part.stderr.max() < 0.1 * np.abs(exact[name]).max(), name


def test_sums_over_drawn_steps_are_those_over_all_steps():
    """A linear functional of the factors of each kind, averaged over nodes, against all steps and pairs."""
    Theta = fw.kernels(NET, INPUTS[:6]).Theta
    steps = Steps(DESCENT, Theta, float(np.linalg.eigvalsh(Theta)[-1]))
    w, C = steps.weights, [steps.accumulated(t) for t in range(5)]
    E = [MASKS[t][:, None] * (np.eye(6) - Theta @ C[t]) for t in range(4)]
    np.testing.assert_allclose(C[3], sum(w[3, s] * E[s] for s in range(3)), rtol=1e-12)
    D, pairs = np.diff(C, axis=0), [(s, r) for s in range(4) for r in range(s)]
    exact = {
        "fluctuation": sum(steps.response(r, s) @ D[r] for s, r in pairs),
        "symmetric": (C[4] @ C[4].T) / 2,
        "ordered": sum(w[4, s] * E[s] @ C[s].T for s in range(4)),
        "following": sum((w[s + 1, r] - w[s, r]) * C[s + 1] @ E[r].T for s in range(4) for r in range(s + 1)),
        "taylor": sum(w[s, r] * D[s] @ E[r].T for s, r in pairs),
        "nested": sum(w[4, s] * w[s, r] * E[s] @ E[r].T for s, r in pairs),
    }
    product = {
        "fluctuation": lambda node: node.e @ node.a,
        "symmetric": lambda node: node.e @ node.a.T,
        "ordered": lambda node: node.e @ node.a.T,
    }
    grid = [(np.array([u, v]) + 0.5) / 20 for u in range(20) for v in range(20)]
    for kind in KINDS:
        found = product.get(kind, lambda node: node.b @ node.e.T)
        nodes = (steps.node(kind, one, at) for one in range(steps.bins(kind)) for at in grid)
        total = sum(node.weight * node.kept * found(node) for node in nodes) / len(grid)
        largest = np.abs(exact[kind]).max()
        symmetric = (total + total.T) / 2 if kind == "symmetric" else total
        np.testing.assert_allclose(symmetric, exact[kind], rtol=0, atol=0.05 * largest, err_msg=kind)


def test_effects_are_absorbed_as_the_training_set_learns():
    """A constant change of the outputs is learned as targets are; a change of the NTK as of a network."""
    Theta = fw.kernels(NET, INPUTS).Theta[:, :6]
    steps = Steps(DESCENT, Theta[:6], float(np.linalg.eigvalsh(Theta[:6])[-1]))
    y = TARGETS
    np.testing.assert_allclose(steps.absorbed(y, np.ones(4)), steps.accumulated(4) @ y, rtol=1e-11)
    H = Theta @ np.diag([0.3, -0.2, 0.1, 0.4, 0.0, 0.2])
    H[:6] = (H[:6] + H[:6].T) / 2

    def trained(k):
        moved = Steps(DESCENT, (Theta + k * H)[:6], steps.largest)
        return (Theta + k * H) @ moved.accumulated(4) @ y

    slope = (trained(1e-4) - trained(-1e-4)) / 2e-4
    np.testing.assert_allclose(steps.through(Theta, H, y), slope, rtol=0, atol=1e-6 * np.abs(slope).max())


MANY = np.random.default_rng(3).normal(size=(60, 3))


def test_many_points_are_predicted_in_samples():
    Y = np.sin(MANY[:50, :2])
    descent = fw.GradientDescent([0.02] * 3, momentum=0.5)
    found = fw.predict(NET, MANY[:50], Y, MANY[50:], algorithm=descent, method=fw.Sampling(samples=5000))
    assert found.samples == found.sampling.samples and found.stderr.shape == found.mean.shape == (10, 2)
    correction = found.mean - found.infinite_width.mean
    np.testing.assert_allclose(sum(found.contributions.values()), correction, rtol=1e-10)
    assert (found.uncertainty > 0).all() and found.verdict in ("trusted", "doubtful", "meaningless")


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(loss=fw.losses.Huber()), "which 60 inputs are too many for; pass at most 48"),
        (
            dict(algorithm=fw.StochasticGradientDescent(0.02, 3, 5)),
            r"needs batches that all networks share.* use algorithm.fixed\(50, key=0\)",
        ),
        (dict(method=fw.Tensors()), "method=fw.Tensors.* has no meaning at order=1"),
        (dict(method=fw.Sampling(variance=True)), "variance=True, which does nothing at order=1"),
    ],
)
def test_what_many_points_do_not_allow_is_refused(changes, message):
    options = dict(algorithm=fw.GradientDescent([0.02] * 3, momentum=0.5)) | changes
    with refused(message):
        fw.predict(NET, MANY[:50], np.sin(MANY[:50, :2]), MANY[50:], **options)
