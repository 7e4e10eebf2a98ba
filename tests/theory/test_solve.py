"""Infinite-width K and Theta: closed forms, sampled networks, depth, blocks, disk, and bad input."""

import itertools
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from helpers.problems import (
    ACTIVATIONS,
    HYPERPARAMETERS,
    INPUTS,
    WIDTHS,
    also_long,
    linear_network_means,
    refused,
    scale_invariant_means,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import finitewidth as fw
from finitewidth.core.storage.files import write_arrays

TOLERANCE = 1e-12  # exact identities
BLOCK = 1e-13  # a block of K or Theta against the same block of the square
PARALLEL = 1e-7  # Theta of a kinked activation at a correlation that rounding leaves 1e-16 from one
SEMIDEFINITE = 1e-12  # how far below zero an eigenvalue may be, in units of samples times largest entry
PULL = 4.0  # difference over standard error
ONE_HIDDEN_LAYER = dict(widths=(3, 4, 1), members=20_000)
WIDE = dict(widths=(3, 256, 256, 1), members=32)


def layers(theory):
    return [theory.layer(l) for l in range(1, theory.depth + 1)]


def deep(activation, depth, width=10, **hyperparameters):
    return fw.MLP((2, *[width] * (depth - 1), 1), activation, **hyperparameters)


# --- exact answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("hyperparameters", HYPERPARAMETERS.values(), ids=HYPERPARAMETERS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_deep_linear_networks_are_sums_over_layers(hyperparameters, inputs):
    net, X = fw.MLP(WIDTHS, "linear", **hyperparameters), INPUTS[inputs]
    for layer in layers(fw.solve(net, X, order=0)):
        K, Theta = linear_network_means(net, X, layer.index)
        np.testing.assert_allclose(layer.K, K, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(layer.Theta, Theta, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("hyperparameters", HYPERPARAMETERS.values(), ids=HYPERPARAMETERS)
@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.2)", "scale_invariant(1.5, -0.5)"])
@pytest.mark.parametrize("inputs", ["generic", "repeated"])
def test_scale_invariant_networks_follow_the_arc_cosine_kernels(activation, hyperparameters, inputs):
    net, X = fw.MLP(WIDTHS, activation, **hyperparameters), INPUTS[inputs]
    for layer in layers(fw.solve(net, X, order=0)):
        K, Theta = scale_invariant_means(net, X, layer.index)
        np.testing.assert_allclose(layer.K, K, rtol=TOLERANCE)
        np.testing.assert_allclose(layer.Theta, Theta, rtol=TOLERANCE)


@pytest.mark.parametrize("inputs", ["collinear", "nearly parallel"])
def test_parallel_inputs_cost_kinked_activations_half_the_digits_of_Theta_and_none_of_K(inputs):
    """The angle between inputs is the square root of what K says, so rounding of K is felt as its root."""
    net, X = fw.MLP(WIDTHS, "relu", **HYPERPARAMETERS["no biases"]), INPUTS[inputs]
    for layer in layers(fw.solve(net, X, order=0)):
        K, Theta = scale_invariant_means(net, X, layer.index)
        np.testing.assert_allclose(layer.K, K, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(layer.Theta, Theta, rtol=PARALLEL, atol=PARALLEL)


def test_a_network_of_one_layer_is_a_linear_model():
    X = INPUTS["generic"]
    net = fw.MLP((3, 2), "perceptron", C_b=0.3, C_W=1.5, lambda_b=0.5, lambda_W=2.0)
    only = fw.solve(net, X, order=0).output
    np.testing.assert_allclose(only.K, 0.3 + 1.5 * X @ X.T / 3, rtol=TOLERANCE)
    np.testing.assert_allclose(only.Theta, 0.5 + 2.0 * X @ X.T / 3, rtol=TOLERANCE)


def test_no_statistic_depends_on_the_widths():
    X = INPUTS["generic"]
    narrow, wide = (fw.solve(fw.MLP((3, n, n, 1), "tanh"), X, order=0).output for n in (1, 10_000))
    np.testing.assert_array_equal(narrow.K, wide.K)
    np.testing.assert_array_equal(narrow.Theta, wide.Theta)


# --- sampled networks --------------------------------------------------------------------------------


def sampled_means(net: fw.MLP, X: np.ndarray, members: int, key):
    """Kernel of the last layer and NTK of its neuron, member by member, by automatic differentiation."""
    depth, rates = net.depth, list(zip(net.lambda_b, net.lambda_W, strict=True))

    def initialize(key):
        keys = jax.random.split(key, (depth, 2))
        return [
            (
                math.sqrt(net.C_b[l]) * jax.random.normal(keys[l, 0], (net.widths[l + 1],)),
                math.sqrt(net.C_W[l] / net.widths[l])
                * jax.random.normal(keys[l, 1], (net.widths[l + 1], net.widths[l])),
            )
            for l in range(depth)
        ]

    def forward(parameters, x):
        z = x
        for l, (b, W) in enumerate(parameters):
            signal = z if l == 0 else net.activation(z)
            z = b + W @ signal
        return z[0], signal

    def one_member(key):
        parameters = initialize(key)
        gradients, signals = jax.vmap(jax.grad(forward, has_aux=True), (None, 0))(parameters, jnp.asarray(X))
        K = net.C_b[-1] + net.C_W[-1] * signals @ signals.T / net.widths[-2]
        Theta = jnp.zeros_like(K)
        for l, ((lambda_b, lambda_W), (db, dW)) in enumerate(zip(rates, gradients, strict=True)):
            flat = dW.reshape(len(X), -1)
            Theta += lambda_b * db @ db.T + lambda_W / net.widths[l] * flat @ flat.T
        return K, Theta

    batch = members // 16 if members >= 1000 else 1
    keys = jax.random.split(key, members)
    return [np.asarray(part) for part in jax.lax.map(one_member, keys, batch_size=batch)]


def pulls(samples: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Of the entries that are independent."""
    upper = np.triu_indices(len(exact))
    stderr = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    return ((samples.mean(axis=0) - exact) / stderr)[upper]


SAMPLED = ["tanh", *(pytest.param(name, marks=pytest.mark.long) for name in ("relu", "gelu", "hardtanh"))]


@pytest.mark.parametrize("activation", SAMPLED)
def test_networks_with_one_hidden_layer_have_these_means_at_any_width(activation, key):
    """20 000 networks of width 4; there is no 1/n correction to the means yet."""
    hyperparameters = dict(C_b=(0.2, 0.1), C_W=(1.5, 2.0), lambda_b=(0.5, 0.3), lambda_W=(2.0, 0.7))
    net, X = fw.MLP(ONE_HIDDEN_LAYER["widths"], activation, **hyperparameters), INPUTS["generic"]
    K, Theta = sampled_means(net, X, ONE_HIDDEN_LAYER["members"], key)
    exact = fw.kernels(net, X)
    assert np.abs(pulls(K, exact.K)).max() < PULL
    assert np.abs(pulls(Theta, exact.Theta)).max() < PULL


@pytest.mark.long
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_wide_networks_with_two_hidden_layers_have_these_means(activation, key):
    """32 networks of width 256: corrections of order 1/n are a third of a standard error."""
    hyperparameters = dict(
        C_b=(0.2, 0.1, 0.0), C_W=(1.5, 2.0, 1.0), lambda_b=(0.5, 0.3, 1.0), lambda_W=(2.0, 0.7, 1.0)
    )
    net, X = fw.MLP(WIDE["widths"], activation, **hyperparameters), INPUTS["generic"]
    K, Theta = sampled_means(net, X, WIDE["members"], key)
    exact = fw.kernels(net, X)
    assert np.abs(pulls(K, exact.K)).max() < PULL
    assert np.abs(pulls(Theta, exact.Theta)).max() < PULL


# --- depth -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_relu_is_constant_to_depth_2000_at_criticality():
    X = np.array([[1.0, 0.5], [0.3, -1.0]])
    first, last = (fw.kernels(deep("relu", 2000, C_W=2.0), X, layer=l) for l in (1, 2000))
    np.testing.assert_allclose(np.diag(last.K), np.diag(first.K), rtol=1e-9)
    # one input's Theta grows by lambda_b + lambda_W K / 2 in each layer
    exact = 2000 * (1 + np.diag(first.K) / 2)
    np.testing.assert_allclose(np.diag(last.Theta), exact, rtol=1e-9)
    assert np.isfinite(last.K).all() and np.isfinite(last.Theta).all()
    assert abs(last.K[0, 1]) <= math.sqrt(last.K[0, 0] * last.K[1, 1])


@pytest.mark.long
def test_tanh_decays_as_half_the_inverse_depth_at_criticality():
    """K = 1/(2 l) to within logarithms over l (PDLT section 5.3.3), and nothing breaks at depth 2000."""
    last = fw.kernels(deep("tanh", 2000), np.array([[1.0, 0.5], [0.3, -1.0]]))
    np.testing.assert_allclose(np.diag(last.K) * 2 * 2000, 1.0, rtol=0.02)
    assert np.isfinite(last.K).all() and np.isfinite(last.Theta).all()
    assert last.error <= TOLERANCE


@pytest.mark.parametrize(
    "activation, C_W", [("relu", 1.0), ("relu", 3.0), ("sin", 2.0), ("gelu", 1.0), ("erf", 5.0)]
)
def test_nothing_breaks_at_depth_300_off_criticality(activation, C_W):
    X = INPUTS["generic"][:, :2]
    last = fw.kernels(deep(activation, 300, C_W=C_W, C_b=0.01), X)
    assert np.isfinite(last.K).all() and np.isfinite(last.Theta).all()
    sigma = np.sqrt(np.diag(last.K))
    assert (np.abs(last.K) <= np.outer(sigma, sigma) * (1 + TOLERANCE)).all()


# --- blocks, order and repetition of inputs ----------------------------------------------------------

KINDS = ["tanh", "relu", "gelu", "elu"]  # series and closed form, smooth and kinked


@pytest.mark.parametrize("activation", KINDS)
def test_a_block_is_that_of_the_square(activation):
    X = np.random.default_rng(5).standard_normal((12, 3))
    net = fw.MLP(WIDTHS, activation, **HYPERPARAMETERS["one value per layer"])
    square, block = fw.kernels(net, X), fw.kernels(net, X[:8], X[8:])
    assert block.K.shape == block.Theta.shape == (8, 4)
    np.testing.assert_allclose(block.K, square.K[:8, 8:], rtol=BLOCK)
    np.testing.assert_allclose(block.Theta, square.Theta[:8, 8:], rtol=BLOCK)


@pytest.mark.parametrize("activation", KINDS)
def test_a_block_may_hold_the_same_input_on_both_sides(activation):
    X = np.random.default_rng(6).standard_normal((6, 3))
    net = fw.MLP(WIDTHS, activation, C_W=1.5)
    square, block = fw.kernels(net, X), fw.kernels(net, X, X[::2])
    np.testing.assert_allclose(block.K, square.K[:, ::2], rtol=TOLERANCE)
    # a square knows its diagonal; in a block the same input meets itself at a correlation of one to rounding
    rounding = PARALLEL if activation == "relu" else TOLERANCE
    np.testing.assert_allclose(block.Theta, square.Theta[:, ::2], rtol=rounding)


@pytest.mark.parametrize("activation", KINDS)
def test_kernels_are_the_layers_of_the_theory(activation):
    X, net = INPUTS["generic"], fw.MLP(WIDTHS, activation, **HYPERPARAMETERS["one value per layer"])
    for layer in layers(fw.solve(net, X, order=0)):
        alone = fw.kernels(net, X, layer=layer.index)
        assert alone.layer == layer.index
        np.testing.assert_array_equal(alone.K, layer.K)
        np.testing.assert_array_equal(alone.Theta, layer.Theta)


@pytest.mark.parametrize("activation", KINDS)
def test_repeated_inputs_have_the_same_rows_to_the_last_bit(activation):
    X = np.random.default_rng(7).standard_normal((5, 3))
    again = [0, 1, 2, 0, 3, 4, 1, 0]
    for layer in layers(fw.solve(fw.MLP(WIDTHS, activation, C_b=0.1), X[again], order=0)):
        for matrix in (layer.K, layer.Theta):
            for i, j in itertools.combinations(range(len(again)), 2):
                if again[i] == again[j]:
                    np.testing.assert_array_equal(matrix[i], matrix[j])
                    np.testing.assert_array_equal(matrix[:, i], matrix[:, j])


@pytest.mark.parametrize("activation", KINDS)
def test_permuted_inputs_permute_the_kernels(activation):
    X, order = np.random.default_rng(8).standard_normal((6, 3)), [3, 0, 5, 1, 4, 2]
    net = fw.MLP(WIDTHS, activation, C_b=0.1)
    plain, permuted = fw.solve(net, X, order=0).output, fw.solve(net, X[order], order=0).output
    np.testing.assert_allclose(permuted.K, plain.K[np.ix_(order, order)], rtol=TOLERANCE)
    np.testing.assert_allclose(permuted.Theta, plain.Theta[np.ix_(order, order)], rtol=TOLERANCE)


@st.composite
def inputs(draw):
    """Five inputs in three dimensions, some of them repeated, parallel, opposite or zero."""
    point = st.tuples(*[st.floats(-2, 2)] * 3).map(np.array)
    points = [draw(point), draw(point)]
    for _ in range(3):
        other = draw(st.sampled_from(points)) * draw(st.sampled_from([1.0, -1.0, 2.0, 0.0, 1 + 1e-9]))
        points.append(draw(st.just(other) | point))
    return np.array(points) * draw(st.sampled_from([1.0, 1e-5, 20.0]))


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu", "perceptron"])
@settings(deadline=None, derandomize=True, max_examples=12)
@given(X=inputs())
def test_kernels_are_symmetric_and_positive_semidefinite(activation, X):
    net = fw.MLP(WIDTHS, activation, C_b=0.05, C_W=1.5)
    for layer in layers(fw.solve(net, X, order=0)):
        matrices = {"K": layer.K} | ({"Theta": layer.Theta} if activation != "perceptron" else {})
        for name, matrix in matrices.items():
            np.testing.assert_array_equal(matrix, matrix.T)
            lowest = np.linalg.eigvalsh(matrix).min()
            # some of the inputs are parallel
            rounding = PARALLEL if (name, activation) == ("Theta", "relu") else SEMIDEFINITE
            assert lowest >= -rounding * len(X) * np.abs(matrix).max()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8, np.uint8, np.float16])
def test_inputs_of_other_types_are_promoted(dtype):
    X = np.array([[1, 2, 0], [3, 1, 1]])
    net = fw.MLP(WIDTHS, "tanh")
    plain, promoted = fw.solve(net, X.astype(float), order=0), fw.solve(net, X.astype(dtype), order=0)
    assert promoted.X.dtype == promoted.output.K.dtype == np.float64
    np.testing.assert_array_equal(promoted.output.K, plain.output.K)
    np.testing.assert_array_equal(promoted.output.Theta, plain.output.Theta)


def test_inputs_may_be_lists_and_jax_arrays_and_are_left_alone():
    X, net = INPUTS["generic"].copy(), fw.MLP(WIDTHS, "relu")
    plain = fw.solve(net, X, order=0).output.K
    for other in (X.tolist(), jnp.asarray(X), X[:, ::-1].copy()[:, ::-1], np.asfortranarray(X)):
        np.testing.assert_allclose(fw.solve(net, other, order=0).output.K, plain, rtol=TOLERANCE)
    np.testing.assert_array_equal(X, INPUTS["generic"])


@pytest.mark.parametrize("activation", ["tanh", *also_long("relu")])
def test_the_number_of_threads_changes_nothing(activation, monkeypatch):
    X = np.random.default_rng(9).standard_normal((300, 4))  # more than one tile
    net = fw.MLP((4, 10, 10, 1), activation, C_b=0.1)
    results = []
    for cores in (1, 2):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        results.append(fw.kernels(net, X))
    np.testing.assert_array_equal(results[0].K, results[1].K)
    np.testing.assert_array_equal(results[0].Theta, results[1].Theta)
    np.testing.assert_array_equal(results[0].K, results[0].K.T)
    few = fw.kernels(net, X[250:270])  # across the border of tiles
    scale = np.sqrt(np.outer(np.diag(few.K), np.diag(few.K)))
    assert (np.abs(results[0].K[250:270, 250:270] - few.K) <= TOLERANCE * scale).all()


def test_the_error_of_the_averages_is_reported():
    X = INPUTS["generic"]
    assert 0 < fw.solve(fw.MLP(WIDTHS, "tanh"), X, order=0).error <= TOLERANCE
    loose = fw.kernels(fw.MLP(WIDTHS, "tanh"), X, tolerance=1e-6)
    assert 0 < loose.error <= 1e-6
    np.testing.assert_allclose(loose.K, fw.kernels(fw.MLP(WIDTHS, "tanh"), X).K, rtol=1e-5)


# --- the perceptron ----------------------------------------------------------------------------------


def test_the_perceptron_has_a_kernel_but_no_NTK():
    X, net = INPUTS["generic"], fw.MLP(WIDTHS, "perceptron", C_W=2.0)
    theory = fw.solve(net, X, order=0)
    np.testing.assert_allclose(np.diag(theory.output.K), 1.0, rtol=TOLERANCE)
    cosine = theory.layer(1).K / np.sqrt(np.outer(*[np.diag(theory.layer(1).K)] * 2))
    exact = 2 * (0.25 + np.arcsin(np.clip(cosine, -1, 1)) / (2 * math.pi))
    np.testing.assert_allclose(theory.layer(2).K, exact, rtol=1e-7)  # arcsin next to one
    with refused(
        "'perceptron' has a kernel but no NTK, since its derivative is a delta function; use a contin"
    ):
        theory.output.Theta  # noqa: B018
    assert fw.kernels(net, X).Theta is None


# --- disk --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "leaky_relu(0.2)", "perceptron"])
def test_kernels_survive_the_disk(activation, tmp_path):
    net = fw.MLP(WIDTHS, activation, **HYPERPARAMETERS["one value per layer"])
    saved = fw.kernels(net, INPUTS["generic"], INPUTS["repeated"], layer=3)
    saved.save(tmp_path / "kernels.npz")
    loaded = fw.records.Kernels.load(tmp_path / "kernels.npz")
    assert (loaded.net, loaded.layer, loaded.error) == (net, 3, saved.error)
    np.testing.assert_array_equal(loaded.K, saved.K)
    if activation == "perceptron":
        assert loaded.Theta is None
    else:
        np.testing.assert_array_equal(loaded.Theta, saved.Theta)
    assert [file.name for file in tmp_path.iterdir()] == ["kernels.npz"]


@pytest.mark.parametrize("activation", ["tanh", "perceptron"])
def test_a_theory_survives_the_disk(activation, tmp_path):
    net = fw.MLP(WIDTHS, activation, **HYPERPARAMETERS["one value per layer"])
    saved = fw.solve(net, INPUTS["generic"], order=0)
    saved.save(tmp_path / "theory.zarr")
    loaded = fw.load(tmp_path / "theory.zarr")
    assert (loaded.net, loaded.order, loaded.error) == (net, 0, saved.error)
    np.testing.assert_array_equal(loaded.X, saved.X)
    for value, expected in zip(layers(loaded), layers(saved), strict=True):
        np.testing.assert_array_equal(value.K, expected.K)
        if activation == "perceptron":
            with refused("has a kernel but no NTK"):
                value.Theta  # noqa: B018
        else:
            np.testing.assert_array_equal(value.Theta, expected.Theta)
    assert [file.name for file in tmp_path.iterdir()] == ["theory.zarr"]


@pytest.fixture(scope="module")
def saved():
    return fw.kernels(fw.MLP((3, 4, 1), "relu"), INPUTS["generic"])


def test_a_file_of_another_kind_is_not_written(saved, tmp_path):
    with refused(r"path must end in .npz, got '.*kernels.csv'; rename it"):
        saved.save(tmp_path / "kernels.csv")
    with refused(r"path must end in .zarr, got '.*theory.npz'; rename it"):
        fw.solve(saved.net, INPUTS["generic"], order=0).save(tmp_path / "theory.npz")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_is_named(saved, tmp_path):
    with refused(r"path '.*kernels.npz' cannot be written: No such file or directory; choose another"):
        saved.save(tmp_path / "missing" / "kernels.npz")
    with refused(r"path '.*theory.zarr' cannot be written: No such file or directory; choose another"):
        fw.solve(saved.net, INPUTS["generic"], order=0).save(tmp_path / "missing" / "theory.zarr")


def test_a_full_disk_leaves_the_old_file_whole(saved, tmp_path, monkeypatch):
    path = tmp_path / "kernels.npz"
    saved.save(path)
    before = path.read_bytes()

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with refused(r"path '.*kernels.npz' cannot be written: No space left on device"):
        saved.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", [b"", b"not a kernel", b"PK\x03\x04", "half", "flipped"])
def test_a_damaged_file_is_named(damage, saved, tmp_path):
    path = tmp_path / "kernels.npz"
    saved.save(path)
    whole = path.read_bytes()
    flipped = whole[:200] + bytes(255 - byte for byte in whole[200:260]) + whole[260:]
    path.write_bytes({"half": whole[: len(whole) // 2], "flipped": flipped}.get(damage, damage))
    with refused(r"path '.*kernels.npz' is not a file that finitewidth wrote, or is damaged"):
        fw.records.Kernels.load(path)


def test_files_of_other_programs_are_named(tmp_path):
    np.savez(tmp_path / "other.npz", K=np.eye(2))
    np.save(tmp_path / "other.npy", np.eye(2))
    for name in ("other.npz", "other.npy"):
        with refused(rf"path '.*{name}' is not a file that finitewidth wrote, or is damaged"):
            fw.records.Kernels.load(tmp_path / name)
    write_arrays(tmp_path / "empty.npz", {"K": np.eye(2)}, {"kind": "kernels"})
    with refused(r"'.*empty.npz' has no 'network' and is no file of kernels"):
        fw.records.Kernels.load(tmp_path / "empty.npz")
    with refused(r"path '.*nothing.npz' does not exist; check the name"):
        fw.records.Kernels.load(tmp_path / "nothing.npz")
    with refused(r"path '.*nothing.zarr' does not exist; check the name"):
        fw.load(tmp_path / "nothing.zarr")


# --- bad input ---------------------------------------------------------------------------------------

RELU = fw.MLP((3, 4, 1), "relu")
BAD_INPUTS = {
    "flat": (np.ones(3), r"X must have shape \(samples, 3\), got \(3,\); use X.reshape\(-1, 3\)"),
    "cube": (np.ones((2, 3, 1)), r"X must have shape \(samples, 3\), got \(2, 3, 1\)"),
    "number": (1.0, r"X must have shape \(samples, 3\), got \(\)"),
    "narrow": (np.ones((2, 2)), "X has 2 columns but the network takes n_0 = 3 inputs; change widths"),
    "empty": (np.ones((0, 3)), "X has no samples; pass at least one row"),
    "NaN": ([[1, 2, 3], [1, math.nan, 3]], "X has NaN or infinity in row 1; remove or repair that sample"),
    "infinite": ([[1, -math.inf, 3]], "X has NaN or infinity in row 0"),
    "ragged": ([[1, 2, 3], [1, 2]], "X must be a rectangular array, one row for each sample"),
    "words": ([["a", "b", "c"]], "X must hold real numbers, got dtype <U1; convert it to float64"),
    "complex": (np.ones((2, 3)) * 1j, "X must hold real numbers, got dtype complex128"),
    "nothing": (None, "X must hold real numbers, got dtype object"),
    "bool": (np.ones((2, 3), bool), "X must hold real numbers, got dtype bool"),
}


@pytest.mark.parametrize("X, message", BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_unfit_inputs_are_refused(X, message):
    with refused(message):
        fw.solve(RELU, X, order=0)
    with refused(message):
        fw.kernels(RELU, X)
    if X is not None:  # X_other=None stands for X
        with refused(message.replace("X", "X_other")):
            fw.kernels(RELU, INPUTS["generic"], X)


@pytest.mark.parametrize("layer", [0, 3, -1, 1.5, "1", None])
def test_layers_are_numbered_from_1_to_the_depth(layer):
    message = f"layer must be a whole number from 1 to 2, got {layer!r}"
    with refused(message):
        fw.solve(RELU, INPUTS["generic"], order=0).layer(layer)
    if layer is not None:
        with refused(message):
            fw.kernels(RELU, INPUTS["generic"], layer=layer)


@pytest.mark.parametrize("order", [2, -1, "one", None])
def test_orders_that_the_theory_does_not_have_are_refused(order):
    with refused(f"order must be 0 .*got {order!r}"):
        fw.solve(RELU, INPUTS["generic"], order=order)


@pytest.mark.parametrize("activation", ["relu", "linear", "tanh"])
def test_kernels_beyond_double_precision_are_refused(activation):
    net = fw.MLP((3, 4, 4, 1), activation, C_W=1e300)
    with refused(
        "kernel of layer . exceeds what double precision holds; scale X or C_W down|grows too fast|reach an"
    ):
        fw.kernels(net, 1e5 * INPUTS["generic"])


def test_a_request_beyond_memory_is_refused_with_the_number(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2e6))
    X = np.ones((300, 3))
    with refused(
        "K and Theta of 2 layers for 300 inputs needs .* GB but 0.002 GB of memory are free; use fw.kern"
    ):
        fw.solve(RELU, X, order=0)
    with refused("K and Theta of 1 layer for 300 inputs needs"):
        fw.solve(fw.MLP((3, 1), "relu"), X, order=0)
    with refused(
        "a kernel of 300 x 300 pairs needs .* GB but 0.002 GB of memory are free; pass fewer inputs"
    ):
        fw.kernels(RELU, X)
    assert fw.kernels(RELU, X[:10]).K.shape == (10, 10)


def test_an_accuracy_that_is_not_reached_is_refused_with_what_is():
    with refused(
        "the averages of activation 'tanh' reach an accuracy of .* only, not tolerance=1e-18; ask for tol"
    ):
        fw.kernels(fw.MLP((3, 4, 1), "tanh"), INPUTS["generic"], tolerance=1e-18)
    for tolerance in (np.nan, -1, "x"):
        with refused(f"tolerance must lie between 0 and 1, got {tolerance!r}"):
            fw.kernels(fw.MLP((3, 4, 1), "tanh"), INPUTS["generic"], tolerance=tolerance)


def test_single_precision_is_refused():
    code = "import finitewidth as fw; fw.kernels(fw.MLP((2, 3, 1), 'tanh'), [[1.0, 2.0]])"
    environment = {**os.environ, "JAX_ENABLE_X64": "0"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "ValueError: finitewidth needs double precision, but jax_enable_x64 is off" in result.stderr


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_named_activation_has_finite_kernels(activation):
    kernels = fw.kernels(fw.MLP((3, 4, 4, 1), activation, C_b=0.1), INPUTS["generic"])
    assert np.isfinite(kernels.K).all()
    assert activation == "perceptron" or np.isfinite(kernels.Theta).all()
    assert kernels.error <= 100 * TOLERANCE
