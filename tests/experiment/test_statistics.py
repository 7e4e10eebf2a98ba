"""Measured statistics against the theory and against exact results, in standard errors.

A pull is the difference over the standard error; all must stay below 4. Numbers of networks are stated.
"""

import math

import numpy as np
import pytest
from helpers.problems import INPUTS, refused
from helpers.sampled_networks import extrapolated

import finitewidth as fw
from finitewidth.experiment.statistics import TENSORS

X = INPUTS["generic"][:2]


def network(widths, activation="tanh"):
    depth = len(widths) - 1
    return fw.MLP(
        widths,
        activation,
        C_b=[0.03, 0.06, 0.15][:depth],
        C_W=[1.2, 2.0, 1.3][:depth],
        lambda_b=[0.3, 0.5, 0.4][:depth],
        lambda_W=[0.9, 1.1, 0.7][:depth],
    )


def pulls(sampled, layer, names):
    results = {}
    for name in names:
        estimate = getattr(sampled, name)
        assert estimate.value.shape == estimate.stderr.shape == getattr(layer, name).shape
        results[name] = (estimate.value - getattr(layer, name)) / estimate.stderr
    return results


def test_one_hidden_layer_is_as_the_theory_says_at_any_width():
    """60000 networks with three hidden neurons, where order 1/n is exact; every entry of every tensor."""
    net = network((3, 3, 1))
    sampled = fw.sample_statistics(net, X, members=60_000, key=1)
    layer = fw.solve(net, X).output
    assert sampled.members == 60_000 and sampled.n == 3
    deviations = pulls(sampled, layer, ("G", "H", *TENSORS))
    largest = {name: np.max(np.abs(value)) for name, value in deviations.items()}
    assert max(largest.values()) < 4, largest
    everything = np.concatenate([value.ravel() for value in deviations.values()])
    assert (
        0.6 < np.sqrt(np.mean(everything**2)) < 1.4
    )  # the stated errors are neither too large nor too small
    for name in TENSORS:
        assert np.max(getattr(sampled, name).stderr) < 0.1 * np.max(np.abs(getattr(layer, name))), name


@pytest.mark.long
def test_two_hidden_layers_are_as_the_theory_says_at_first_order():
    """6000 networks at each of the widths 8, 16, 32; every entry, extrapolated to 1/n = 0."""
    widths = (8, 16, 32)
    nets = [network((3, n, n, 1)) for n in widths]
    sampled = [fw.sample_statistics(net, X, members=6000, key=2) for net in nets]
    layer = fw.solve(nets[0], X).output  # tensors with 1/n stripped are the same at every width
    for name in TENSORS:
        limit = extrapolated(widths, [value.estimates[name] for value in sampled])
        pulls = (limit.value - getattr(layer, name)) / limit.stderr
        assert np.max(np.abs(pulls)) < 4, (name, pulls)
        if name in ("B", "S", "U"):  # where the noise is small enough to tell
            assert np.max(limit.stderr) < 0.15 * np.max(np.abs(getattr(layer, name))), name


@pytest.mark.long
def test_hidden_layers_are_measured_like_outputs():
    """30000 networks; layer 2 of three, whose width is 5."""
    net = network((3, 4, 5, 1), "gelu")
    sampled = fw.sample_statistics(net, X, members=30_000, key=3, layer=2, tensors=("V", "F", "B"))
    deviations = pulls(sampled, fw.solve(net, X).layer(2), ("G", "H", "V", "F", "B"))
    assert max(np.max(np.abs(value)) for value in deviations.values()) < 4


@pytest.mark.long
def test_deep_linear_networks_are_exact_at_any_width():
    """30000 networks: E[z_i^2 z_j^2] = K^2 prod (1 + 2/n_k), E[H] = L (lambda_b + lambda_W K), E[zz] = K."""
    widths = (3, 4, 6, 5, 1)
    net = fw.MLP(widths, "linear", C_b=0.0, C_W=1.0, lambda_b=0.3, lambda_W=0.8)
    x = X[:1]
    sampled = fw.sample_statistics(net, x, members=30_000, key=4, tensors=("V",))
    K = float(np.mean(x**2))
    V = 5 * K**2 * (math.prod(1 + 2 / n for n in widths[1:-1]) - 1)
    for estimate, exact in ((sampled.G, K), (sampled.H, 4 * (0.3 + 0.8 * K)), (sampled.V, V)):
        assert abs(estimate.value.item() - exact) < 4 * estimate.stderr.item()
        assert estimate.stderr.item() < 0.1 * exact


def test_the_same_request_gives_the_same_bits_and_more_members_smaller_errors():
    net = network((3, 4, 2))
    first, again, more = (
        fw.sample_statistics(net, X, members=m, key=5, tensors=("V", "A")) for m in (1001, 1001, 16016)
    )
    np.testing.assert_array_equal(first.A.value, again.A.value)
    assert first.members == 1001
    ratio = np.mean(first.H.stderr) / np.mean(more.H.stderr)
    assert 3 < ratio < 5  # sixteen times the members


def test_kinked_activations_have_no_differentials():
    net = network((3, 4, 1), "relu")
    sampled = fw.sample_statistics(net, X, members=100, key=0)
    assert np.isfinite(sampled.A.stderr).all()
    with refused("P does not exist: activation 'relu' has a kink"):
        sampled.P  # noqa: B018
    with refused("T does not exist"):
        fw.sample_statistics(net, X, members=100, key=0, tensors=("T",))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"members": 0}, "members must be a whole number of at least 4, got 0"),
        ({"members": "many"}, "members must be a whole number of at least 4, got 'many'"),
        ({"tensors": ("W",)}, "tensors has no 'W'; known are V, D"),
        ({"neurons": 1}, "neurons must be a whole number of at least 2, got 1"),
        ({"run": fw.Run(batch_size=100)}, "batch_size 100 puts all 100 members into one batch"),
        ({"run": fw.Run(batch_size=33)}, "batch_size 33 leaves a last batch of one network"),
        ({"layer": 4}, "layer must be a number from 1 to 2, got 4"),
        ({"run": fw.Run(memory=10.0)}, "memory of .* is too little"),
        ({"X": [[1.0, math.nan, 0.0]]}, "X has NaN or infinity in row 0"),
    ],
)
def test_impossible_requests_are_refused(changes, message):
    with refused(message):
        fw.sample_statistics(**{"net": network((3, 4, 1)), "X": X, "members": 100, "key": 0, **changes})
