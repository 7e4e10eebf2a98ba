"""Networks with a different activation in every layer: statistics at initialization.

Criteria: activations that happen to be equal 1e-13; one input against many 1e-9; an independent recursion
by quadrature 1e-9; sampled networks by pulls below 4, with the sample sizes stated there.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.close import assert_close
from helpers.problems import inputs, refused
from helpers.sampled_networks import FLUCTUATIONS, extrapolated, sample

import finitewidth as fw
from finitewidth.network.layers.activation import as_activation
from finitewidth.theory.tensors import KINKED_TENSORS, MATRICES, TENSORS

RATES = {
    "C_b": (0.1, 0.2, 0.05, 0.1),
    "C_W": (1.1, 1.3, 1.2, 0.9),
    "lambda_b": (0.5, 1.0, 0.7, 0.9),
    "lambda_W": (0.8, 1.1, 1.0, 0.6),
}
THREE = ("tanh", "gelu", "sin")
EQUAL, ROUTES = 1e-13, 1e-9


def network(activations, widths=(3, 20, 30, 25, 2)) -> fw.MLP:
    return fw.MLP(widths, activations, **RATES)


def test_activations_that_happen_to_be_equal_give_the_same_numbers():
    X = inputs(4, 3)
    one = network("gelu")
    # the same function declared twice is two activations, told apart by their names
    twin = fw.Activation(as_activation("gelu").function, name="twin")
    same, alike = network(("gelu", "gelu", "gelu")), network(("gelu", twin, "gelu"))
    theory = fw.solve(one, X)
    for net, tolerance in ((same, EQUAL), (alike, ROUTES)):
        other = fw.solve(net, X)
        for name in (*MATRICES, *TENSORS):
            assert_close(getattr(other.output, name), getattr(theory.output, name), tolerance)


def test_a_network_of_layers_is_the_perceptron():
    X = inputs(3, 3)
    net = network(THREE)
    theory, other = fw.solve(net, X), fw.solve(fw.Network(net.input_shape, *net.layers), X)
    for name in (*MATRICES, *TENSORS):
        assert np.array_equal(getattr(theory.output, name), getattr(other.output, name))


def two_legs(activation, K, order):
    """<s^(m) s^(m)> for every pair, by a product rule of 200 x 200 nodes."""
    x, w = np.polynomial.hermite_e.hermegauss(200)
    w = w / w.sum()
    result = np.empty_like(K)
    for i, j in np.ndindex(K.shape):
        a = np.sqrt(K[i, i])
        z_1 = a * x[:, None]
        rest = np.sqrt(max(K[j, j] - K[i, j] ** 2 / K[i, i], 0.0))
        z_2 = K[i, j] / a * x[:, None] + rest * x[None, :]
        first, second = (activation.derivatives(jnp.asarray(z), order)[order] for z in (z_1, z_2))
        result[i, j] = np.sum(w[:, None] * w[None, :] * np.asarray(first) * np.asarray(second))
    return result


def test_kernels_follow_each_layers_own_activation():
    X, net = inputs(3, 3), network(THREE)
    K = net.C_b[0] + net.C_W[0] * X @ X.T / 3
    Theta = net.lambda_b[0] + net.lambda_W[0] * X @ X.T / 3
    for l, name in enumerate(THREE, start=1):
        s, d = (two_legs(as_activation(name), K, order) for order in (0, 1))
        Theta = net.lambda_b[l] + net.lambda_W[l] * s + net.C_W[l] * d * Theta
        K = net.C_b[l] + net.C_W[l] * s
        kernels = fw.kernels(net, X, layer=l + 1)
        assert_close(kernels.K, K, ROUTES)
        assert_close(kernels.Theta, Theta, ROUTES)


@pytest.mark.parametrize(
    "activations",
    [
        THREE,
        ("relu", "tanh", "leaky_relu(0.2)"),
        pytest.param(("gelu", "relu", "erf"), marks=pytest.mark.long),
    ],
)
def test_one_input_is_the_diagonal_of_many(activations):
    X, net = inputs(2, 3), network(activations)
    many = fw.solve(net, X, method=fw.Tensors(tolerance=1e-10 if net.is_smooth else 1e-6))
    one = fw.solve(net, X[:1])
    for layer in (2, 3, 4):
        assert set(one.layer(layer).arrays) == set(many.layer(layer).arrays)
        for name, value in one.layer(layer).arrays.items():
            tolerance = 1e-8 if net.is_smooth else 1e-4
            assert many.layer(layer).arrays[name].flat[0] == pytest.approx(
                value.item(), rel=tolerance, abs=1e-7
            )


def test_tensors_exist_below_the_first_kink():
    theory = fw.solve(network(("tanh", "relu", "gelu")), inputs(2, 3), method=fw.Tensors(tolerance=1e-5))
    assert set(theory.layer(2).arrays) == {*MATRICES, *TENSORS}
    for layer in (3, 4):  # a smooth activation above a kink does not bring them back
        assert set(theory.layer(layer).arrays) == {*MATRICES, *KINKED_TENSORS}
        with refused("P does not exist: activation 'relu' has a kink"):
            theory.layer(layer).P  # noqa: B018


def test_tensors_with_kinks_survive_disk_where_they_exist(tmp_path):
    theory = fw.solve(network(("tanh", "relu", "gelu")), inputs(2, 3), method=fw.Tensors(tolerance=1e-4))
    theory.save(tmp_path / "theory.zarr")
    again = fw.load(tmp_path / "theory.zarr")
    assert again.net == theory.net
    for layer in (1, 2, 3, 4):
        assert set(again.layer(layer).arrays) == set(theory.layer(layer).arrays)
        for name, value in theory.layer(layer).arrays.items():
            assert np.array_equal(again.layer(layer).arrays[name], value)


def test_the_unrolled_form_knows_each_layers_activation():
    X, net = inputs(3, 3), network(THREE)
    theory, unrolled = fw.solve(net, X, method=fw.Tensors(tolerance=1e-9)), fw.unroll(net, X)
    for name in TENSORS:
        assert_close(unrolled.tensor(name, tolerance=1e-9), getattr(theory.output, name), 1e-7)


def test_activations_that_jump_leave_a_kernel():
    net = network(("tanh", "perceptron", "relu"))
    theory = fw.solve(net, inputs(2, 3), order=0)
    assert set(theory.output.arrays) == {"K"}
    with refused("Theta does not exist: activation 'perceptron' has a kernel but no NTK"):
        theory.output.Theta  # noqa: B018
    with refused("activation 'perceptron' has no NTK"):
        fw.solve(net, inputs(2, 3))


@pytest.mark.long
@pytest.mark.parametrize("activations", [("gelu", "relu", "sin"), ("tanh", "gelu", "swish")])
def test_sampled_networks_with_three_activations_fluctuate_as_predicted(activations):
    """Four layers, 40 batches of 400 networks at each of three widths, extrapolated in 1/n."""
    X, widths = inputs(2, 3), (12, 24, 48)
    estimates = [
        sample(network(activations, (3, n, n, n, 2)), X, FLUCTUATIONS, batches=40, size=400, seed=n)
        for n in widths
    ]
    theory = fw.solve(network(activations, (3, 8, 8, 8, 2)), X, method=fw.Tensors(tolerance=1e-5)).output
    for name in FLUCTUATIONS:
        limit = extrapolated(widths, [estimate[name] for estimate in estimates])
        pulls = (limit.value - getattr(theory, name)) / limit.stderr
        assert np.abs(pulls).max() < 4, name
