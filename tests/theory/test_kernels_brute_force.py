"""The brute-force kernels of the tests, against those of neural-tangents and against themselves."""

import numpy as np
import pytest
from helpers import brute_force
from helpers.close import assert_close, own_sizes
from helpers.peer_kernels import Reference, references
from scipy.special import erf

SMOOTH = ("gelu", "sin")  # by quadrature, which is too slow for all pairs of sites of all inputs
FEW = {1: 8, 2: 6, 3: 2}  # inputs with so many axes that are enough then


@pytest.mark.parametrize("name", references())
def test_kernels_are_those_of_neural_tangents(name):
    case: Reference = references()[name]
    few = FEW[len(case.network["input_shape"])] if any(s in str(case.network) for s in SMOOTH) else None
    K, Theta = brute_force.kernels(case.network, case.inputs[:few])
    for value, exact, most in zip((K, Theta), (case.K, case.Theta), case.tolerances, strict=True):
        assert_close(value, exact[:few, :few], most, scale=own_sizes(exact[:few, :few]))


@pytest.mark.parametrize("name", ["perceptron: dropout", "image: dropout, averaged", "sequence: transformer"])
def test_repeated_inputs_are_the_same_input(name):
    """Dropout draws once for an input, however often and in whichever argument it is given."""
    case = references()[name]
    few = case.inputs[[0, 1, 2]]
    K, Theta = brute_force.kernels(case.network, few)
    between = brute_force.kernels(case.network, few[[0, 1, 0]], few[[1, 2, 2, 0]])
    for value, whole in zip(between, (K, Theta), strict=True):
        np.testing.assert_allclose(value, whole[np.ix_([0, 1, 0], [1, 2, 2, 0])], rtol=1e-12)


@pytest.mark.parametrize(
    "word, numbers, window, stride",
    [
        ("same", 1, 3, 1),
        ("same", [[0, 1], [0, 1]], 2, 1),
        ("same", [[0, 1], [1, 1]], 3, [2, 1]),
        ("valid", 0, [2, 3], 2),
        ("valid", [0, [0, 0]], 2, 1),
    ],
)
def test_padding_by_words_and_by_numbers(word, numbers, window, stride):
    positions = (6, 5) if stride == [2, 1] else (6, 6)
    by_word, by_number = (brute_force.windows(positions, window, stride, how) for how in (word, numbers))
    assert by_word[1] == by_number[1]
    np.testing.assert_array_equal(by_word[0], by_number[0])


def test_quadrature_gives_the_closed_form():
    slope = lambda z: 2 / np.sqrt(np.pi) * np.exp(-z * z)  # noqa: E731
    case = references()["sequence: same"]
    network = {"input_shape": [5, 3], "layers": [{"kind": "Conv", "width": 1}, "erf", {"kind": "Flatten"}]}
    closed = brute_force.kernels(network, case.inputs)
    network["layers"][1] = (erf, slope)
    for value, exact in zip(brute_force.kernels(network, case.inputs), closed, strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-12)


def test_gain_and_offset_of_layer_norm_add_to_the_tangent_kernel():
    """Theta' = c Theta + lambda_gain K' + lambda_offset."""
    X = np.random.default_rng(0).standard_normal((4, 3))
    dense, norm = {"kind": "Dense", "width": 5}, {"kind": "LayerNorm", "epsilon": 0.1}
    plain = brute_force.kernels({"input_shape": [3], "layers": [dense, norm]}, X)
    norm = {**norm, "lambda_gain": 0.7, "lambda_offset": 0.2}
    K, Theta = brute_force.kernels({"input_shape": [3], "layers": [dense, norm]}, X)
    np.testing.assert_array_equal(K, plain[0])
    np.testing.assert_allclose(Theta, plain[1] + 0.7 * K + 0.2, rtol=1e-13)
