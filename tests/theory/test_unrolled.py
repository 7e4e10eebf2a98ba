"""The unrolled form against the recursion: dense, streamed leg by leg, and sampled.

Criteria: dense and streamed 1e-9 of the largest entry (of the sum of absolute terms for a contraction),
sampled contractions pulls below 4 from 20 000 samples.
"""

import functools

import numpy as np
import pytest
from helpers.problems import also_long

import finitewidth as fw
from finitewidth.theory.tensors import TENSORS
from finitewidth.theory.unrolled.leg_by_leg import LegSlices, Request, contract_slots
from finitewidth.theory.unrolled.unroll import unroll

DERIVED, PULL, SAMPLES = 1e-9, 4.0, 20_000
FINE = 1e-11

NET = fw.MLP(
    (4, 30, 20, 25, 3),
    "tanh",
    C_b=(0.1, 0.05, 0.2, 0.1),
    C_W=(1.2, 1.5, 1.1, 1.3),
    lambda_b=(0.5, 1.0, 0.7, 0.3),
    lambda_W=(1.0, 0.8, 1.1, 0.6),
)
X = np.random.default_rng(0).standard_normal((3, 4))
VECTORS = tuple(np.random.default_rng(1).standard_normal((4, 3)))


@functools.cache
def recursion(activation):
    return fw.solve(NET.replace(activation=activation), X, method=fw.Tensors(tolerance=FINE))


@functools.cache
def unrolled(activation):
    return unroll(NET.replace(activation=activation), X)


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("activation", ["tanh", "sin"])
def test_sums_over_source_layers_are_the_recursion(activation, name):
    exact = getattr(recursion(activation).output, name)
    tensor = unrolled(activation).tensor(name, tolerance=FINE)
    assert np.abs(tensor - exact).max() <= DERIVED * np.abs(exact).max()


@pytest.mark.parametrize("layer", [2, 3])
def test_layers_inside_the_network_can_be_unrolled(layer):
    part = unroll(NET.replace(activation="sin"), X, layer=layer)
    assert len(part.sources) == layer - 1
    for name in TENSORS:
        exact = getattr(recursion("sin").layer(layer), name)
        assert np.abs(part.tensor(name) - exact).max() <= DERIVED * np.abs(exact).max()


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("activation", ["tanh", "sin"])
def test_streamed_contractions_are_contractions(activation, name):
    tensor = getattr(recursion(activation).output, name)
    exact = np.einsum("abcd,a,b,c,d", tensor, *VECTORS)
    size = np.einsum("abcd,a,b,c,d", np.abs(tensor), *np.abs(VECTORS))
    assert abs(unrolled(activation).contract(name, VECTORS, tolerance=FINE) - exact) <= DERIVED * size


@pytest.mark.parametrize("name", ["V", "A", "P", "S", *also_long("D", "F", "B", "Q", "R", "T", "U")])
def test_sampled_contractions_agree_within_their_errors(name):
    exact = np.einsum("abcd,a,b,c,d", getattr(recursion("sin").output, name), *VECTORS)
    tensor = unrolled("sin").sample_contraction(name, VECTORS, samples=SAMPLES, key=5)
    assert abs(tensor.value - exact) < PULL * tensor.stderr
    assert 0 < tensor.stderr


def test_standard_errors_fall_with_the_root_of_the_number_of_samples():
    few, many = (
        unrolled("sin").sample_contraction("B", VECTORS, samples=count).stderr for count in (1000, 16_000)
    )
    assert few / many == pytest.approx(4.0, rel=0.3)
    again = unrolled("sin").sample_contraction("B", VECTORS, samples=1000)
    assert again.stderr == few  # the same key gives the same samples


def test_every_slot_may_be_left_open_against_a_dual_on_the_others():
    """Duals on the first two of three samples; all tensors and slots in one pass."""
    duals = np.random.default_rng(3).standard_normal((2, 2, 2, 2))
    requests = [Request(name, slot, duals) for name in TENSORS for slot in range(4)]
    contracted = contract_slots(LegSlices(unrolled("tanh"), lambda: requests, FINE))
    for request, values in zip(requests, contracted, strict=True):
        tensor = np.moveaxis(getattr(recursion("tanh").output, request.tensor), request.slot, 0)
        exact = np.einsum("dxyz,kxyz->kd", tensor[:, :2, :2, :2], duals)
        assert np.abs(values - exact).max() <= DERIVED * np.abs(tensor).max() * np.abs(duals).sum()


def test_repeated_and_vanishing_inputs_can_be_unrolled():
    repeated = np.stack([X[0], X[1], X[0], np.zeros(4)])
    net = NET.replace(activation="sin")
    exact, part = fw.solve(net, repeated).output, unroll(net, repeated)
    for name in ("A", "T", "R"):
        assert np.abs(part.tensor(name) - getattr(exact, name)).max() <= DERIVED * np.abs(exact.A).max()


def test_nothing_fluctuates_in_the_first_layer():
    part = unroll(NET, X, layer=1)
    np.testing.assert_array_equal(part.tensor("V"), np.zeros((3, 3, 3, 3)))
    assert part.contract("V", VECTORS) == 0.0


@pytest.mark.parametrize(
    "vectors, shapes",
    [
        (VECTORS[:3], r"\[\(3,\), \(3,\), \(3,\)\]"),
        ([np.ones(2)] * 4, r"\[\(2,\), \(2,\), \(2,\), \(2,\)\]"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(vectors, shapes):
    for contract in (unrolled("sin").contract, unrolled("sin").sample_contraction):
        with pytest.raises(ValueError, match=rf"four arrays of shape \(3,\), got {shapes}"):
            contract("V", vectors)


def test_unknown_tensors_too_few_samples_and_absent_layers_are_refused():
    for call in (
        lambda: unrolled("sin").tensor("Z"),
        lambda: unrolled("sin").contract("Z", VECTORS),
        lambda: unrolled("sin").sample_contraction("Z", VECTORS),
    ):
        with pytest.raises(ValueError, match="name must be one of V, .*got 'Z'"):
            call()
    with pytest.raises(ValueError, match="samples must be at least 2, got 1"):
        unrolled("sin").sample_contraction("V", VECTORS, samples=1)
    with pytest.raises(ValueError, match="layer must be a whole number from 1 to 4, got 5"):
        unroll(NET, X, layer=5)


def test_kinks_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match="'relu' has a kink.*use fw.solve for V, D, A, F and B, or a smooth"):
        unroll(NET.replace(activation="relu"), X)
