"""The network as a value: what it accepts, what it refuses, how it is written down."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import PER_LAYER, WIDTHS, as_for_users, refused
from hypothesis import given, settings
from hypothesis import strategies as st

import finitewidth as fw

HYPERPARAMETERS = ("C_b", "C_W", "lambda_b", "lambda_W")


def network(**changes) -> fw.MLP:
    return fw.MLP(**{"widths": (2, 3, 1), "activation": "tanh", **changes})


# --- what it holds -----------------------------------------------------------------------------------


def test_hyperparameters_are_one_per_layer_whatever_was_given():
    with as_for_users():
        net = network(C_b=0.5, C_W=[1, 2], lambda_W=np.array([0.25, 4.0]))
    assert net.widths == (2, 3, 1)
    assert net.depth == 2
    assert (net.C_b, net.C_W, net.lambda_b, net.lambda_W) == ((0.5, 0.5), (1.0, 2.0), (1.0, 1.0), (0.25, 4.0))


@pytest.mark.parametrize("two", [2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.array(2.0)], ids=type)
@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_a_number_is_a_number_of_any_type(name, two):
    with as_for_users():
        assert getattr(network(**{name: two}), name) == (2.0, 2.0)


@pytest.mark.parametrize("widths", [[2, 3, 1], (2.0, 3, 1), np.array([2, 3, 1]), range(2, 4)], ids=type)
def test_widths_are_whole_numbers_of_any_type(widths):
    with as_for_users():
        net = fw.MLP(widths, "tanh")
    assert net.widths == tuple(widths)
    assert all(type(n) is int for n in net.widths)


def test_activation_is_a_name_an_activation_or_a_function():
    assert network(activation="relu").activation.name == "relu"
    mine = fw.Activation(jnp.sin, name="mine")
    assert network(activation=mine).activation is mine
    assert network(activation=jnp.sin).activation == mine


@pytest.mark.parametrize("widths, count", [((2, 3, 1), 13), ((5, 1), 6), (WIDTHS, 32 + 45 + 42 + 16)])
def test_parameter_count_is_that_of_biases_and_weights(widths, count):
    assert fw.MLP(widths, "tanh").parameter_count == count


def test_ntk_parametrization_is_that_of_jacot_et_al():
    net = fw.MLP.ntk_parametrization(WIDTHS, "erf", beta=0.5)
    assert net == fw.MLP(WIDTHS, "erf", C_b=0.25, C_W=1.0, lambda_b=0.25, lambda_W=1.0)
    assert fw.MLP.ntk_parametrization((2, 1), "erf").C_b == (0.1**2,)
    with as_for_users():
        assert fw.MLP.ntk_parametrization((2, 1), "erf", beta=np.float32(0.5)).C_b == (0.25,)


@pytest.mark.parametrize("beta", [math.nan, math.inf, "a", None])
def test_ntk_parametrization_refuses_a_beta_that_is_no_number(beta):
    with refused(f"beta must be a finite number, got {beta!r}"):
        fw.MLP.ntk_parametrization((2, 1), "erf", beta=beta)


# --- what it refuses ---------------------------------------------------------------------------------

BAD_WIDTHS = {
    3: r"widths must be whole numbers n_0, ..., n_L, got 3; use \(2, 64, 1\)",
    "ab": "widths must be whole numbers n_0, ..., n_L, got 'ab'",
    (): r"widths must name the input and at least one layer, got \(\)",
    (2,): r"widths must name the input and at least one layer, got \(2,\)",
    (2, 2.5, 1): r"widths must be whole numbers, got \(2, 2.5, 1\); round them",
    (2, 0, 1): "widths must be at least 1, but n_1 is 0; give every layer a neuron",
    (2, 3, -1): "widths must be at least 1, but n_2 is -1",
    (2, math.nan, 1): r"widths must be whole numbers n_0, ..., n_L, got \(2, nan, 1\)",
    (2, math.inf, 1): r"widths must be whole numbers n_0, ..., n_L, got \(2, inf, 1\)",
    (2, None, 1): r"widths must be whole numbers n_0, ..., n_L, got \(2, None, 1\)",
}


@pytest.mark.parametrize("widths, message", BAD_WIDTHS.items(), ids=map(repr, BAD_WIDTHS))
def test_unfit_widths_are_refused(widths, message):
    with refused(message):
        fw.MLP(widths, "tanh")


BAD_VALUES = [
    (-1, "must be finite and at least 0, but layer 1 has -1; change it"),
    ((1, -2), "must be finite and at least 0, but layer 2 has -2; change it"),
    (math.nan, "must be finite and at least 0, but layer 1 has nan"),
    ((1, math.inf), "must be finite and at least 0, but layer 2 has inf"),
    ((1, 2, 3), "has 3 values for 2 layers; give one number, or one for each layer"),
    ((), "has 0 values for 2 layers"),
    ((1,), "has 1 values for 2 layers"),
    (None, "must be a number or one number per layer, got None"),
    ("a", "must be a number or one number per layer, got 'a'"),
    ("12", "must be a number or one number per layer, got '12'"),
    (1j, "must be a number or one number per layer, got 1j"),
    ([[1, 2]], r"must be a number or one number per layer, got \[\[1, 2\]\]"),
]


@pytest.mark.parametrize("name", HYPERPARAMETERS)
@pytest.mark.parametrize("value, message", BAD_VALUES, ids=[repr(value) for value, _ in BAD_VALUES])
def test_unfit_hyperparameters_are_refused_by_name(name, value, message):
    with refused(f"{name} {message}"):
        network(**{name: value})


@pytest.mark.parametrize(
    "activation, message",
    [
        ("tahn", "activation 'tahn' is not known; did you mean 'tanh'"),
        (None, "activation must be a name, an Activation or a function of z, got None"),
        (jnp.log, "activation 'log' returns NaN"),
    ],
)
def test_unfit_activations_are_refused(activation, message):
    with refused(message):
        network(activation=activation)


# --- copies, equality, repr --------------------------------------------------------------------------


def test_a_copy_changes_only_what_is_named():
    net = fw.MLP(WIDTHS, "tanh", **PER_LAYER)
    changed = net.replace(activation="gelu", C_W=1.5)
    assert changed == fw.MLP(WIDTHS, "gelu", **{**PER_LAYER, "C_W": 1.5})
    assert net.replace() == net
    assert net.activation.name == "tanh"


def test_a_copy_of_another_depth_keeps_what_was_the_same_for_all_layers():
    net = network(C_W=1.5, lambda_b=0.5)
    deeper = net.replace(widths=(2, 3, 3, 1))
    assert deeper == fw.MLP((2, 3, 3, 1), "tanh", C_W=1.5, lambda_b=0.5)


def test_a_copy_of_another_depth_needs_values_that_fit():
    net = network(C_b=(0.1, 0.2))
    with refused("C_b has 2 values for 3 layers"):
        net.replace(widths=(2, 3, 3, 1))
    assert net.replace(widths=(2, 3, 3, 1), C_b=0.1).C_b == (0.1, 0.1, 0.1)


def test_a_copy_with_an_unknown_field_is_refused():
    with refused("MLP has no field 'width'; its fields are widths, activation, C_b, C_W, lambda_b, lambda_W"):
        network().replace(width=(2, 1))


def test_networks_are_equal_when_their_fields_are():
    assert network(C_W=2.0) == network(C_W=(2.0, 2.0))
    assert hash(network(C_W=2.0)) == hash(network(C_W=(2.0, 2.0)))
    different = [network(), network(widths=(2, 4, 1)), network(activation="sin")]
    different += [network(**{name: (1.0, 0.5)}) for name in HYPERPARAMETERS]
    assert len(set(different)) == len(different) == 7
    assert network() != "network"


def test_networks_do_not_change():
    with pytest.raises(AttributeError):
        network().C_b = 1.0


@pytest.mark.parametrize(
    "net, text",
    [
        (network(), "MLP(widths=(2, 3, 1), activation='tanh', C_b=0, C_W=1, lambda_b=1, lambda_W=1)"),
        (
            network(C_b=(0.1, 1 / 3), C_W=1 / 3, activation="leaky_relu(0.2)"),
            "MLP(widths=(2, 3, 1), activation='leaky_relu(0.2)', C_b=(0.1, 0.333333), C_W=0.33333333, "
            "lambda_b=1, lambda_W=1)",
        ),
    ],
)
def test_repr_is_what_one_would_type(net, text):
    assert repr(net) == text


def test_repr_of_a_deep_network_stays_short():
    deep = fw.MLP((2,) + 10 * (5,), "relu", C_W=[float(l) for l in range(1, 11)])
    assert "C_W=(1, 2, 3, ..., 9, 10)" in repr(deep)


# --- written down ------------------------------------------------------------------------------------


def numbers(depth):
    value = st.floats(0, 1e12)
    return value | st.lists(value, min_size=depth, max_size=depth)


@st.composite
def fields(draw):
    depth = draw(st.integers(1, 5))
    widths = draw(st.lists(st.integers(1, 10**6), min_size=depth + 1, max_size=depth + 1))
    slope = draw(st.floats(-10, 10))
    names = ["tanh", "silu", "monomial(4)", f"leaky_relu({slope!r})", f"elu({slope!r})"]
    activation = draw(st.sampled_from(names))
    return {"widths": widths, "activation": activation} | {n: draw(numbers(depth)) for n in HYPERPARAMETERS}


@settings(deadline=None, derandomize=True, max_examples=100)
@given(fields())
def test_networks_survive_being_written_down(chosen):
    net = fw.MLP(**chosen)
    assert fw.MLP.from_dict(net.to_dict()) == net
    assert fw.MLP.from_toml(net.to_toml()) == net


def test_a_dict_holds_plain_numbers_and_strings():
    assert network(C_b=(0.1, 0.2)).to_dict() == {
        "widths": [2, 3, 1],
        "activation": "tanh",
        "C_b": [0.1, 0.2],
        "C_W": 1.0,
        "lambda_b": 1.0,
        "lambda_W": 1.0,
    }


def test_toml_needs_widths_and_activation_only():
    text = '[network]\nwidths = [2, 3, 1]\nactivation = "tanh"\n'
    assert fw.MLP.from_toml(text) == network()


@pytest.mark.parametrize(
    "fields, message",
    [
        ({}, "network needs a field 'widths'; add it"),
        ({"widths": [2, 1]}, "network needs a field 'activation'; add it"),
        ({"widths": [2, 1], "activation": 3}, "activation must be a name, got 3"),
        (
            {"widths": [2, 1], "activation": "tanh", "width": 1},
            "network has no field 'width'; its fields are",
        ),
        ({"widths": [2, 1], "activation": "tanh", "C_b": -1}, "C_b must be finite and at least 0"),
    ],
)
def test_unfit_dicts_are_refused(fields, message):
    with refused(message):
        fw.MLP.from_dict(fields)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", r"TOML needs a table \[network\] with widths and activation; add it"),
        ("network = 3", r"TOML needs a table \[network\]"),
        ("[network", "network is not valid TOML: "),
        ("[network]\nwidths = [2, 1]", "network needs a field 'activation'"),
        (
            "[network]\nwidths = [2, 1]\nactivation = 'tanh'\nC_b = 'a'",
            "C_b must be a number or one number per layer",
        ),
    ],
)
def test_unfit_toml_is_refused(text, message):
    with refused(message):
        fw.MLP.from_toml(text)


@pytest.mark.parametrize("write", [fw.MLP.to_dict, fw.MLP.to_toml])
def test_a_users_function_cannot_be_written_down(write):
    net = network(activation=fw.Activation(jnp.sin, name="mine"))
    with refused("activation 'mine' is a function of yours and cannot be written down; use a named"):
        write(net)
