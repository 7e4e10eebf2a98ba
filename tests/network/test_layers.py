"""Networks as values: layers, shapes, text; perceptrons with an activation for each layer."""

import pickle

import jax.numpy as jnp
import pytest
from helpers.problems import refused

import finitewidth as fw


def mixed() -> fw.MLP:
    return fw.MLP((3, 5, 4, 2), ("tanh", "relu"), C_b=0.1, C_W=(1.0, 1.5, 2.0), lambda_W=0.5)


def test_a_perceptron_is_the_network_of_its_layers():
    rates = {"C_b": 0.1, "lambda_W": 0.5}
    layers = [fw.Dense(5, C_W=1.0, **rates), "tanh", fw.Dense(4, C_W=1.5, **rates), "relu"]
    net = fw.Network(3, *layers, fw.Dense(2, C_W=2.0, **rates))
    assert net == mixed() and hash(net) == hash(mixed())
    assert isinstance(mixed(), fw.Network)
    assert net.layers == mixed().layers
    for name in ("widths", "C_b", "C_W", "lambda_b", "lambda_W", "depth", "activations", "parameter_count"):
        assert getattr(net, name) == getattr(mixed(), name)


def test_layers_are_counted_by_their_weights():
    net = fw.Network(3, fw.Dense(5), fw.Dense(4), "relu", fw.Dense(2))
    assert net.depth == 3
    assert [len(block) for block in net.blocks] == [1, 1, 2]
    assert [a.name for a in net.activations] == ["linear", "relu"]
    assert net.input_shape == (3,) and net.output_shape == (2,)


def test_what_activations_are_together():
    assert mixed().activation_name == "tanh, relu"
    assert mixed().kinked == mixed().activations[1]
    assert not mixed().is_smooth and mixed().jump_order == 1
    assert fw.MLP((3, 5, 4, 2), "tanh").activation_name == "tanh"
    assert fw.MLP((3, 2), "tanh").is_smooth


def test_equal_activations_are_one():
    same = fw.MLP((3, 5, 4, 2), ["tanh", fw.MLP((1, 1), "tanh").activation])
    assert same == fw.MLP((3, 5, 4, 2), "tanh")
    assert same.activation.name == "tanh"


@pytest.mark.parametrize(
    "net", [mixed(), fw.MLP((3, 2), "relu"), fw.Network(3, fw.Dense(5), "tanh", fw.Dense(2))]
)
def test_networks_survive_text_and_pickling(net):
    kind = type(net)
    assert kind.from_dict(net.to_dict()) == net
    assert kind.from_toml(net.to_toml()) == net
    assert pickle.loads(pickle.dumps(net)) == net
    assert repr(pickle.loads(pickle.dumps(net))) == repr(net)


def test_repr_is_what_one_would_type():
    assert repr(fw.Network(3, fw.Dense(5, C_W=1.5), "tanh", fw.Dense(2))) == (
        "Network(3, Dense(5, C_W=1.5), 'tanh', Dense(2))"
    )
    assert "activation=('tanh', 'relu')" in repr(mixed())


def test_copies():
    assert mixed().with_widths((3, 7, 7, 2)).widths == (3, 7, 7, 2)
    assert mixed().with_widths((3, 7, 7, 2)).activations == mixed().activations
    net = fw.Network(3, fw.Dense(5, C_W=1.5), "tanh", fw.Dense(2))
    assert net.with_widths((4, 6, 2)) == fw.Network(4, fw.Dense(6, C_W=1.5), "tanh", fw.Dense(2))
    assert net.replace(input_shape=7).widths == (7, 5, 2)
    assert mixed().replace(activation="sin").activation_name == "sin"
    with pytest.raises(AttributeError):
        net.layers = ()


def test_another_depth_needs_activations_that_fit():
    with refused("activation has 2 entries for 3 hidden layers; give one, or one for each hidden layer"):
        mixed().replace(widths=(3, 5, 5, 5, 2), C_W=1.0)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: fw.Network(3), "layers must end in weights; add fw.Dense"),
        (lambda: fw.Network(3, fw.Dense(2), "relu"), "layers must end in weights"),
        (lambda: fw.Network(3, "relu", fw.Dense(2)), "activation 'relu' comes first; put weights before it"),
        (
            lambda: fw.Network(3, fw.Dense(2), "relu", "tanh", fw.Dense(2)),
            "activation 'tanh' follows an activation; put weights before it",
        ),
        (lambda: fw.Network(0, fw.Dense(2)), "input_shape must be a whole number from 1 to 2\\^53, got 0"),
        (lambda: fw.Network((), fw.Dense(2)), "input_shape must name at least the number of components"),
        (lambda: fw.Network(3, fw.Dense(2.5)), "width must be a whole number from 1 to 2\\^53, got 2.5"),
        (lambda: fw.Network(3, fw.Dense(2, C_W=-1)), "C_W must be finite and at least 0, got -1"),
        (lambda: fw.Network(3, 7), "activation must be a name, an Activation or a function of z, got 7"),
        (lambda: fw.MLP((2, 3, 1), ()), "activation has 0 entries for 1 hidden layers"),
        (lambda: fw.MLP((2, 3, 1), ("relu", "nosuch")), "activation has 2 entries for 1 hidden layers"),
        (
            lambda: fw.MLP.from_dict({"widths": [2, 3, 1], "activation": [3]}),
            "activation must be a name, got 3",
        ),
        (lambda: fw.Network.from_dict({"layers": []}), "network needs a field 'input_shape'; add it"),
        (lambda: fw.Network.from_dict({"input_shape": 3, "layers": 5}), "layers must be a list, got 5"),
        (
            lambda: fw.Network.from_dict({"input_shape": 3, "layers": [{"kind": "Conf"}]}),
            "layers has {'kind': 'Conf'}; write an activation's name or a table with kind = Dense",
        ),
        (
            lambda: fw.Network.from_dict({"input_shape": 3, "layers": [{"kind": "Dense", "size": 3}]}),
            "which is no Dense",
        ),
    ],
)
def test_what_is_no_network_is_refused(make, message):
    with refused(message):
        make()


def test_a_users_function_cannot_be_written_down():
    net = fw.Network(3, fw.Dense(2), fw.Activation(jnp.sin, name="mine"), fw.Dense(2))
    with refused("activation 'mine' is a function of yours and cannot be written down"):
        net.to_dict()
