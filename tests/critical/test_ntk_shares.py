"""What biases and weights of each layer add to the NTK, and rates that balance them."""

import numpy as np
import pytest

import finitewidth as fw

BLOCK = fw.Residual("gelu", fw.Dense(6), gamma=0.9)
DOWN = fw.Residual("tanh", fw.Dense(8), shortcut=[fw.Dense(8, C_b=0.1)])
NETWORKS = [
    fw.MLP.critical((3, *[4] * 9, 2), "tanh", lambda_b=0.3, lambda_W=1.7),
    fw.MLP((3, 5, 5, 1), ("relu", "erf"), C_b=0.2, C_W=1.4, lambda_b=(0.1, 0.2, 0.3), lambda_W=2.0),
    fw.Network(3, fw.Dense(6, lambda_b=0.4), BLOCK, BLOCK, "gelu", fw.Dense(1)),
    fw.Network(3, fw.Dense(6), DOWN, fw.LayerNorm(), "relu", fw.Dense(1, lambda_b=0.1, lambda_W=0.2)),
]


@pytest.mark.parametrize("net", NETWORKS, ids=["tanh", "mixed", "residual", "shortcut"])
def test_shares_sum_to_the_ntk_of_the_theory(net):
    X = np.array([[1.0, -1.0, 0.5]])
    shares = fw.critical.shares(net, input_scale=float(np.mean(X**2)))
    assert len(shares.biases) == len(shares.weights)
    np.testing.assert_allclose(shares.Theta, float(fw.kernels(net, X).Theta[0, 0]), rtol=1e-9)


def test_a_share_is_the_ntk_of_a_network_in_which_nothing_else_learns():
    net = NETWORKS[0]
    shares = fw.critical.shares(net, input_scale=0.8)
    for l in (0, 4, 9):
        alone = [0.0] * net.depth
        alone[l] = net.lambda_W[l]
        only = fw.critical.shares(net.replace(lambda_b=0.0, lambda_W=tuple(alone)), input_scale=0.8)
        np.testing.assert_allclose(only.Theta, shares.weights[l], rtol=1e-12)


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu", ("gelu", "relu", "gelu", "relu")])
def test_biases_add_their_share_of_what_the_weights_of_their_layer_add(activation):
    net = fw.MLP.critical((3, 4, 4, 4, 4, 2), activation, lambda_W=2.0, input_scale=0.7, bias_share=0.1)
    shares = fw.critical.shares(net, input_scale=0.7)
    np.testing.assert_allclose(shares.biases, 0.1 * shares.weights, rtol=1e-9)
    usual = fw.MLP.critical((3, 4, 4, 4, 4, 2), activation, lambda_W=2.0, input_scale=0.7)
    assert net.replace(lambda_b=usual.lambda_b) == usual


def test_bias_share_of_residual_networks():
    layers = [fw.Dense(6), *[fw.Residual("tanh", fw.Dense(6), gamma=1.0)] * 5, "tanh", fw.Dense(1)]
    net = fw.Network.critical(4, *layers, input_scale=2.0, bias_share=0.25)
    shares = fw.critical.shares(net, input_scale=2.0)
    np.testing.assert_allclose(shares.biases, 0.25 * shares.weights, rtol=1e-9)
    np.testing.assert_allclose(shares.weights, 2.0 / 7, rtol=1e-9)


def test_equal_rates_give_biases_of_deep_tanh_networks_most_of_the_ntk():
    shares = fw.critical.shares(fw.MLP.critical((64, *[8] * 31, 10), "tanh"))
    assert shares.biases.sum() > 0.6 * shares.Theta
    assert "layer   biases  weights" in str(shares)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: fw.MLP.critical((3, 4, 1), "tanh", lambda_b=0.5, bias_share=0.1), "give one of them"),
        (
            lambda: fw.MLP.critical((3, 4, 1), "tanh", bias_share=-1.0),
            "bias_share must be finite and at least 0",
        ),
        (
            lambda: fw.critical.shares(NETWORKS[0], input_scale=0.0),
            "input_scale must be a finite number above 0",
        ),
        (
            lambda: fw.critical.shares(
                fw.Network(3, fw.Dense(4), fw.LayerNorm(lambda_offset=1.0), "relu", fw.Dense(1))
            ),
            "gain and offset learn",
        ),
        (
            lambda: fw.critical.shares(fw.Network((5, 3), fw.SelfAttention(8), fw.Flatten(), fw.Dense(1))),
            "SelfAttention",
        ),
    ],
)
def test_what_has_no_shares_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
