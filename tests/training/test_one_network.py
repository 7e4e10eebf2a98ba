"""One network after training, from its derivatives at initialization: random tensors stepped by hand."""

import itertools

import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw

SAMPLES, OUTPUTS, TRAINING = 3, 2, 2
PAIRS, TRAINED = SAMPLES * OUTPUTS, TRAINING * OUTPUTS


def symmetrized(array, orders):
    return sum(array.transpose(order) for order in orders) / len(orders)


@pytest.fixture(scope="module")
def network():
    """z, residual, NTK, dNTK and ddNTKs with the symmetries of a real network, none of them small."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((PAIRS, 2 * PAIRS))
    H = root @ root.T / (2 * PAIRS) + 0.3 * np.eye(PAIRS)
    dH = symmetrized(rng.standard_normal((PAIRS,) * 3), [(0, 1, 2), (0, 2, 1)])
    ddI = symmetrized(
        rng.standard_normal((PAIRS,) * 4), [(0, *rest) for rest in itertools.permutations((1, 2, 3))]
    )
    ddII = symmetrized(rng.standard_normal((PAIRS,) * 4), [(0, 1, 2, 3), (1, 0, 3, 2)])
    return rng.standard_normal(PAIRS), rng.standard_normal(TRAINED), (H, dH, ddI, ddII)


def step_by_step(z, y, tensors, eta, steps):
    """The coupled difference equations (inf.81)-(inf.83)."""
    H, dH, ddI, ddII = tensors
    t = slice(TRAINED)
    for _ in range(steps):
        e = z[t] - y
        moved = -eta * H[:, t] @ e + eta**2 / 2 * np.einsum("Iab,a,b->I", dH[:, t, t], e, e)
        moved -= eta**3 / 6 * np.einsum("Iabc,a,b,c->I", ddI[:, t, t, t], e, e, e)
        first = np.einsum("pqa,a->pq", dH[:, :, t], e)
        second = np.einsum("pqab,a,b->pq", ddI[:, :, t, t], e, e)
        shared = np.einsum("pqab,a,b->pq", ddII[:, :, t, t], e, e)
        H_next = H - eta * (first + first.T) + eta**2 / 2 * (second + second.T + 2 * shared)
        mixed = np.einsum("opqa,a->opq", ddII[..., t], e)
        dH = dH - eta * (np.einsum("opqa,a->opq", ddI[..., t], e) + mixed + mixed.transpose(0, 2, 1))
        z, H = z + moved, H_next
    return z, H, dH


def by_component(array):
    """From pairs to the axes (component, sample) of real networks' derivatives."""
    axes = array.ndim
    folded = array.reshape((SAMPLES, OUTPUTS) * axes)
    return folded.transpose([i for k in range(axes) for i in (2 * k + 1, 2 * k)])


def predicted(z, y, tensors, algorithm):
    return fw.empirical.trained_outputs(
        z.reshape(SAMPLES, OUTPUTS), *map(by_component, tensors), y.reshape(TRAINING, OUTPUTS), algorithm
    )


def scaled(tensors, size):
    return (tensors[0], *(size * tensor for tensor in tensors[1:]))


@pytest.mark.parametrize("steps", [7, np.inf])
def test_closed_form_solves_the_equations_of_motion_to_first_order(network, steps):
    """What is left falls as the square of the differentials."""
    z, y, tensors = network
    gaps = []
    for size in (1e-3, 1e-4):
        small = scaled(tensors, size)
        exact = step_by_step(z, y, small, 0.5, int(min(steps, 400)))
        trained = predicted(z, y, small, fw.GradientDescent(0.5, steps))
        pairs = zip(exact, (trained.outputs.ravel(), trained.ntk, trained.dntk), strict=True)
        gaps.append(
            [np.abs((e if e.ndim == 1 else by_component(e)).ravel() - f.ravel()).max() for e, f in pairs]
        )
    ratios = np.array(gaps[0]) / gaps[1]
    np.testing.assert_allclose(ratios, 100, rtol=0.1)
    assert max(gaps[1]) < 5e-6


def test_without_differentials_the_free_solution_is_all(network):
    z, y, tensors = network
    trained = predicted(z, y, scaled(tensors, 0.0), fw.GradientDescent(0.5, 7))
    np.testing.assert_array_equal(trained.outputs, trained.free)
    exact = step_by_step(z, y, scaled(tensors, 0.0), 0.5, 7)
    np.testing.assert_allclose(trained.outputs.ravel(), exact[0], rtol=1e-12)


def test_small_steps_are_gradient_flow(network):
    z, y, tensors = network
    small = scaled(tensors, 1e-3)
    flow = predicted(z, y, small, fw.GradientFlow(2.0))
    gaps = [
        np.abs(predicted(z, y, small, fw.GradientDescent(2.0 / steps, steps)).outputs - flow.outputs).max()
        for steps in (500, 1000)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.02)


def test_the_trained_NTK_makes_the_prediction_a_kernel_prediction(network):
    """z - H# (H# on the training set)^-1 (z - y) is the trained output, to first order (inf.155)."""
    z, y, tensors = network
    gaps = []
    for size in (1e-3, 1e-4):
        trained = predicted(z, y, scaled(tensors, size), fw.GradientFlow())
        kernel = trained.trained_ntk.reshape(PAIRS, TRAINED)
        outputs = z - kernel @ np.linalg.solve(kernel[:TRAINED], z[:TRAINED] - y)
        gaps.append(np.abs(outputs - trained.outputs.ravel()).max())
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.1)


def test_training_ends_at_the_targets(network):
    z, y, tensors = network
    trained = predicted(z, y, scaled(tensors, 0.1), fw.TwoStep())
    np.testing.assert_allclose(trained.outputs.ravel()[:TRAINED], y, atol=1e-12)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(z=np.zeros(3)), r"z must have shape \(N, n_L\)"),
        (dict(ntk=np.eye(3)), "ntk must have shape .*, as z says, got .3, 3."),
        (dict(dntk=np.nan), "dntk has an entry that is NaN or infinite"),
        (dict(Y=np.zeros((SAMPLES + 1, OUTPUTS))), "Y has . rows but z only"),
        (dict(Y=np.zeros((1, OUTPUTS + 1))), "Y must have shape"),
        (dict(ntk=0.0), "ntk of the training samples is singular"),
        (dict(algorithm=fw.GradientDescent(100.0, 3)), "learning_rate=100 is not below 2 /"),
    ],
)
def test_what_no_network_can_have_is_refused(network, changes, message):
    z, y, tensors = network
    names = ("ntk", "dntk", "ddntk_1", "ddntk_2")
    good = {"z": z.reshape(SAMPLES, OUTPUTS), "Y": y.reshape(TRAINING, OUTPUTS)}
    good |= dict(zip(names, map(by_component, tensors), strict=True)) | {"algorithm": fw.GradientFlow()}
    for name, value in changes.items():
        filled = np.isscalar(value) and name != "algorithm"
        good[name] = np.full_like(good[name], value) if filled else value
    with refused(message):
        fw.empirical.trained_outputs(**good)
