"""Models of PyTorch, Equinox and Flax as networks, and functions of the library that take them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import finitewidth as fw
from finitewidth.core.inputs import as_inputs

torch = pytest.importorskip("torch")
from helpers.torch_models import Branch, Pictures, residual  # noqa: E402

nn, F = torch.nn, torch.nn.functional
torch.set_num_threads(1)


def measured(layer, scale=1.0) -> dict:
    """C_b, C_W and the rates of plain gradient descent of a torch layer."""
    fan_in, bias = layer.weight[0].numel(), layer.bias
    return {
        "C_b": 0.0 if bias is None else scale**2 * float((bias.detach().double() ** 2).mean()),
        "C_W": scale**2 * float((layer.weight.detach().double() ** 2).mean()) * fan_in,
        "lambda_b": 0.0 if bias is None else scale**2,
        "lambda_W": scale**2 * fan_in,
    }


def test_a_perceptron_of_torch_is_an_mlp_with_the_variances_of_its_weights():
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    expected = fw.Network(6, fw.Dense(5, **measured(model[1])), "tanh", fw.Dense(2, **measured(model[3])))
    assert fw.network_of(model) == fw.network_of(torch.nn.DataParallel(model)) == expected
    assert fw.network_of(expected) is expected
    model[1].weight.requires_grad_(False)
    assert fw.network_of(model).lambda_W == (0.0, 5.0)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_skips_become_residual_blocks_and_a_factor_stands_in_the_last_weights(scale):
    model = residual(1, scale=scale)
    first, branch, head = model
    body = (fw.Dense(8, **measured(branch.first)), "gelu", fw.Dense(8, **measured(branch.second, scale)))
    expected = fw.Network(
        6, fw.Dense(8, **measured(first)), fw.Residual(*body), fw.Dense(2, **measured(head))
    )
    assert fw.network_of(model) == expected


def test_factors_on_the_skip_are_gamma():
    class Damped(Branch):
        def forward(self, x):
            return 0.8 * x + self.second(torch.tanh(self.first(x)))

    net = fw.network_of(nn.Sequential(nn.Linear(6, 8), Damped(8), nn.Linear(8, 2)))
    assert net.layers[1].gamma == 0.8 and net.activation_name == "tanh"


def test_pictures_have_channels_last_and_shortcuts_with_weights():
    model = Pictures()
    net = fw.network_of(model, torch.zeros(2, 1, 6, 6))
    block = net.layers[1]
    assert net.input_shape == (6, 6, 1) and net.depth == 4 and net.layers[2] == fw.GlobalAveragePool()
    assert block.shortcut == (fw.Conv(8, (1, 1), (2, 2), (0, 0), **measured(model.skip)),)
    assert block.layers[-1] == fw.Conv(8, (3, 3), (2, 2), (1, 1), **measured(model.last))
    with pytest.raises(ValueError, match="how large images are; pass inputs"):
        fw.network_of(model)


def test_norms_pools_and_dropout_become_layers():
    parts = [nn.Conv1d(2, 4, 3, padding="same"), nn.GroupNorm(1, 4), nn.ReLU(), nn.AvgPool1d(2)]
    model = nn.Sequential(*parts, nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 3))
    net = fw.network_of(model, torch.zeros(2, 2, 4))
    kinds = [type(layer).__name__ for layer in net.layers]
    assert kinds == ["Conv", "LayerNorm", "Activation", "AveragePool", "Flatten", "Dropout", "Dense"]
    assert net.layers[1].axes == "all" and net.layers[1].lambda_gain == 1.0
    assert "Dropout" not in repr(fw.network_of(model.eval(), torch.zeros(2, 2, 4)))


def test_a_norm_with_a_gain_for_each_position_is_refused_while_it_learns():
    """Gains of `fw.LayerNorm(axes="all")` belong to channels, as those of a group norm do."""
    norm = nn.LayerNorm((4, 4))
    model = nn.Sequential(nn.Conv1d(2, 4, 3, padding="same"), norm, nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(ValueError, match=r"learns a gain and an offset for each position.*GroupNorm\(1"):
        fw.network_of(model, torch.zeros(2, 2, 4))
    norm.requires_grad_(False)
    assert fw.network_of(model, torch.zeros(2, 2, 4)).layers[1] == fw.LayerNorm(axes="all")


def test_functions_of_the_library_take_models_and_tensors():
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    X = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    net, numbers = fw.network_of(model), X.detach().numpy()
    np.testing.assert_array_equal(as_inputs(X.to(torch.bfloat16), 3), X.detach().to(torch.bfloat16).double())
    np.testing.assert_array_equal(fw.kernels(model, X).Theta, fw.kernels(net, numbers).Theta)
    np.testing.assert_array_equal(
        fw.solve(net=model, X=X, order=0).output.K, fw.solve(net, numbers, order=0).output.K
    )
    Y = X[:, :1].detach()
    mean = fw.predict(model, X, Y, X, order=0).mean
    np.testing.assert_array_equal(mean, fw.predict(net, numbers, Y.numpy(), numbers, order=0).mean)
    with pytest.raises(ValueError, match="net must be an fw.MLP, .* got str"):
        fw.solve("tanh", numbers)


# --- Equinox, Flax and functions ----------------------------------------------------------------


class Damping(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __call__(self, x, *, key=None):
        return x + 0.5 * self.second(jnp.tanh(self.first(self.norm(x))))


@pytest.mark.long
def test_models_of_equinox_are_networks(key):
    keys = jax.random.split(key, 4)
    linear = [
        eqx.nn.Linear(a, b, key=k) for (a, b), k in zip([(3, 8), (8, 8), (8, 8), (8, 2)], keys, strict=True)
    ]
    block = Damping(linear[1], linear[2], eqx.nn.LayerNorm(8))
    model = eqx.nn.Sequential([linear[0], block, eqx.nn.Dropout(0.1), linear[3]])

    def dense(layer, scale=1.0):
        square = {name: float(jnp.mean(getattr(layer, name) ** 2)) for name in ("bias", "weight")}
        fan_in = layer.in_features
        return (scale**2 * square["bias"], scale**2 * square["weight"] * fan_in, scale**2, scale**2 * fan_in)

    net = fw.network_of(model)
    norm, inner, activation, last = net.layers[1].layers
    assert norm == fw.LayerNorm() and activation.name == "tanh" and net.input_shape == (3,)
    for layer, theirs, scale in (
        (net.layers[0], linear[0], 1),
        (inner, linear[1], 1),
        (last, linear[2], 0.5),
    ):
        numbers = [layer.C_b, layer.C_W, layer.lambda_b, layer.lambda_W]
        np.testing.assert_allclose(numbers, dense(theirs, scale), rtol=1e-6)
    assert fw.network_of(eqx.nn.MLP(3, 2, 5, 2, activation=jax.nn.gelu, key=key)).widths == (3, 5, 5, 2)


def test_convolutions_of_equinox_are_read_with_inputs(key):
    first, last = eqx.nn.Conv2d(1, 4, 3, padding=1, key=key), eqx.nn.Linear(144, 2, key=key)
    parts = [first, eqx.nn.Lambda(jax.nn.relu), eqx.nn.Lambda(jnp.ravel), last]
    net = fw.network_of(eqx.nn.Sequential(parts), np.ones((2, 1, 6, 6)))
    kinds = [type(layer).__name__ for layer in net.layers]
    assert net.input_shape == (6, 6, 1) and kinds == ["Conv", "Activation", "Flatten", "Dense"]
    with pytest.raises(ValueError, match="does not say how large its inputs are; pass inputs"):
        fw.network_of(eqx.nn.Sequential(parts))


def test_functions_of_parameters_and_inputs_are_networks():
    parameters = {"W": np.full((3, 4), 2.0), "b": np.ones(4), "V": np.ones((4, 1))}

    def function(held, x):
        return jnp.tanh(x @ held["W"] + held["b"][None]) @ held["V"]

    net = fw.network_of(function, np.ones((2, 3)), parameters=parameters)
    layers = fw.Dense(4, 1.0, 12.0, 1.0, 3.0), "tanh", fw.Dense(1, 0.0, 4.0, 0.0, 4.0)
    assert net == fw.Network(3, *layers)
    with pytest.raises(ValueError, match="follows the last layer with weights"):
        fw.network_of(lambda held, x: jnp.tanh(x @ held["W"]), np.ones((2, 3)), parameters=parameters)


@jax.numpy_dtype_promotion("standard")  # Flax mixes precisions
def test_modules_of_flax_are_networks():
    flax = pytest.importorskip("flax.linen")
    model = flax.Sequential([flax.Dense(5), flax.LayerNorm(), flax.relu, flax.Dense(2)])
    X = jnp.ones((2, 3))
    net = fw.network_of(model, X, parameters=model.init(jax.random.key(0), X))
    assert [type(layer).__name__ for layer in net.layers] == ["Dense", "LayerNorm", "Activation", "Dense"]
    nnx = pytest.importorskip("flax.nnx")
    rngs = nnx.Rngs(0)
    parts = nnx.Linear(3, 5, rngs=rngs), nnx.tanh, nnx.Dropout(0.1, rngs=rngs), nnx.Linear(5, 2, rngs=rngs)
    own = nnx.Sequential(*parts)
    layers = ["Dense", "Activation", "Dense"]
    assert [type(layer).__name__ for layer in fw.network_of(own, X).layers] == layers
    np.testing.assert_array_equal(fw.kernels(own, X).K, fw.kernels(fw.network_of(own, X), X).K)


@pytest.mark.parametrize("factor", [0.25, 0.5])
def test_sums_over_positions_are_averages_only_with_their_division(factor):
    held = {"W": np.ones((3, 3, 1, 4)), "V": np.ones((36, 2))}

    def function(held, x):
        z = jax.lax.conv_general_dilated(
            x, held["W"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        window = (1, 2, 2, 1)
        sums = jax.lax.reduce_window(jax.nn.relu(z), 0.0, jax.lax.add, window, window, "VALID")
        return (factor * sums).reshape(len(x), -1) @ held["V"]

    X = np.ones((2, 6, 6, 1))
    if factor != 0.25:
        with pytest.raises(ValueError, match="a sum over 4 positions is not divided by that number alone"):
            fw.network_of(function, X, parameters=held)
        return
    kinds = [type(layer).__name__ for layer in fw.network_of(function, X, parameters=held).layers]
    assert kinds == ["Conv", "Activation", "AveragePool", "Flatten", "Dense"]


def test_convolutions_are_read_with_the_inputs_of_the_call(key):
    first, last = eqx.nn.Conv2d(1, 2, 3, padding=1, key=key), eqx.nn.Linear(32, 1, key=key)
    parts = [first, eqx.nn.Lambda(jax.nn.relu), eqx.nn.Lambda(jnp.ravel), last]
    model, X = eqx.nn.Sequential(parts), np.ones((2, 4, 4, 1))
    net = fw.network_of(model, np.ones((2, 1, 4, 4)))
    np.testing.assert_array_equal(fw.kernels(model, X).K, fw.kernels(net, X).K)
