"""Kernels of all kinds of layers, against neural-tangents and against brute force."""

import numpy as np
import pytest
from helpers import brute_force
from helpers.close import assert_close
from helpers.peer_kernels import references

import finitewidth as fw


@pytest.mark.parametrize("name", references())
def test_kernels_are_those_of_neural_tangents(name):
    """Also for repeated and parallel inputs, and for inputs that are in both sets."""
    case = references()[name]
    net = fw.Network.from_dict(case.network)
    for given, exact in (((case.X,), case.of_X()), ((case.X, case.X_other), case.between())):
        kernels = fw.kernels(net, *given)
        for value, one, most in zip((kernels.K, kernels.Theta), exact, case.tolerances, strict=True):
            assert_close(value, one, most)


CONV = {"kind": "Conv", "width": 4, "C_b": 0.1, "C_W": 1.5, "lambda_b": 0.7, "lambda_W": 0.4}
POOL = {"kind": "AveragePool", "window": 3, "stride": 2}
NORM = {"kind": "LayerNorm", "epsilon": 0.1, "lambda_gain": 0.3, "lambda_offset": 0.2}
FLATTEN, GLOBAL = {"kind": "Flatten"}, {"kind": "GlobalAveragePool"}
DENSE = {"kind": "Dense", "width": 1, "lambda_b": 0.2, "lambda_W": 1.3}
BEYOND_THE_PEER = {
    "padding by numbers": [{**CONV, "padding": 2}, "relu", {**CONV, "padding": [1, 0]}, "erf", FLATTEN],
    "padding by pairs": [{**CONV, "padding": [[0, 2], [1, 0]], "stride": 2}, "relu", CONV, "erf", GLOBAL],
    "pool with numbers": [CONV, "relu", {**POOL, "padding": 1}, CONV, "erf", FLATTEN],
    "pool that does not count": [
        CONV,
        "erf",
        {**POOL, "padding": [[1, 0], 1], "count_padding": False},
        GLOBAL,
    ],
    "gain and offset": [CONV, NORM, CONV, "relu", CONV, {**NORM, "axes": "all"}, CONV, "erf", FLATTEN],
    "gain before activations": [
        CONV,
        NORM,
        "tanh",
        {**POOL, "stride": 1, "padding": 1},
        CONV,
        {**NORM, "axes": "all"},
        {**POOL, "window": 2},
        NORM,
        "gelu",
        GLOBAL,
    ],
    "tanh": [CONV, "tanh", {**CONV, "stride": 2}, "tanh", GLOBAL],
}


@pytest.mark.parametrize("name", BEYOND_THE_PEER)
def test_kernels_are_those_of_brute_force(name):
    """Learning rates, padding, gains and activations that neural-tangents does not have."""
    network = {"input_shape": [5, 4, 2], "layers": [*BEYOND_THE_PEER[name], DENSE]}
    X = np.random.default_rng(7).standard_normal((3, 5, 4, 2))
    kernels = fw.kernels(fw.Network.from_dict(network), X, X[[2, 0]])
    for value, exact in zip(
        (kernels.K, kernels.Theta), brute_force.kernels(network, X, X[[2, 0]]), strict=True
    ):
        assert_close(value, exact, 1e-9)
