"""Networks of any layers at infinite width: a second derivation, closed forms, blocks, rates and text."""

import json
import pickle

import numpy as np
import pytest
from helpers import brute_force
from helpers.close import assert_close
from helpers.peer_kernels import references
from helpers.problems import linear_network_means
from helpers.random_networks import SHAPES, random_network

import finitewidth as fw

EXACT = 1e-12
PARALLEL = 1e-7  # Theta of relu between sites that are parallel to rounding
BLOCK = 1e-13  # a block alone against the same block of the whole
RANDOM = np.random.default_rng(11)
IMAGES = RANDOM.standard_normal((6, 4, 5, 2))
CONV = dict(C_b=0.1, C_W=1.7, lambda_b=0.4, lambda_W=0.8)


def both(kernels: fw.records.Kernels) -> tuple[np.ndarray, np.ndarray]:
    assert kernels.Theta is not None
    return kernels.K, kernels.Theta


# --- a second derivation ----------------------------------------------------------------------------

QUICK, MORE = range(5), range(5, 60)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(s, marks=pytest.mark.long) for s in MORE)])
def test_random_networks_have_the_kernels_of_brute_force(kind, seed):
    """Rectangles with inputs that are repeated, in both sets, and parallel."""
    network = random_network(seed, kind)
    Z = np.random.default_rng(seed).standard_normal((5, *SHAPES[kind]))
    X, X_other = np.stack([Z[0], Z[1], Z[0], -0.5 * Z[2]]), Z[[3, 0, 2, 3]]
    kernels = fw.kernels(fw.Network.from_dict(network), X, X_other)
    K, Theta = brute_force.kernels(network, X, X_other)
    assert_close(kernels.K, K, EXACT)
    assert_close(kernels.Theta, Theta, PARALLEL if "relu" in json.dumps(network) else 1e-11)


def test_random_networks_have_all_kinds_of_layers():
    text = json.dumps([random_network(seed, kind) for kind in SHAPES for seed in (*QUICK, *MORE)])
    kinds = ("Dense", "Conv", "Residual", "LayerNorm", "AveragePool", "GlobalAveragePool", "Flatten")
    for word in (*kinds, "Dropout", "SelfAttention", "relu", "erf", "valid", "circular", "concatenate"):
        assert f'"{word}"' in text, word


# --- closed forms -----------------------------------------------------------------------------------


def test_linear_circular_convolutions_are_linear_perceptrons():
    """The mean over positions of K(p, p) goes through sums over taps as it is."""
    layers = [fw.Conv(4, padding="circular", **CONV), fw.Conv(3, filter=2, padding="circular", **CONV)]
    net = fw.Network((4, 5, 2), *layers, fw.Flatten(), fw.Dense(1, C_b=0.2, C_W=0.9, lambda_W=0.5))
    perceptron = fw.Network(40, fw.Dense(4, **CONV), fw.Dense(3, **CONV), net.layers[-1])
    flat, theory = IMAGES.reshape(6, 40), fw.solve(net, IMAGES, order=0)
    for l in (1, 2, 3):
        K, Theta = linear_network_means(perceptron, flat, l)
        np.testing.assert_allclose(theory.layer(l).K, K, rtol=EXACT, atol=EXACT)
        np.testing.assert_allclose(theory.layer(l).Theta, Theta, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("activation", ["relu", "erf"])
def test_circular_convolutions_of_images_of_one_colour_are_perceptrons(activation):
    """All sites of such an image are one site, whatever is averaged."""
    colours = RANDOM.standard_normal((3, 2))
    images = np.broadcast_to(colours[:, None, None], (3, 4, 5, 2))
    middle = [fw.Conv(4, padding="circular", **CONV), activation, fw.AveragePool(2, padding="circular")]
    for end in (fw.GlobalAveragePool(), fw.Flatten()):
        net = fw.Network((4, 5, 2), *middle, middle[0], activation, end, fw.Dense(1))
        perceptron = fw.Network(2, *[fw.Dense(4, **CONV), activation] * 2, fw.Dense(1))
        exact = both(fw.kernels(perceptron, colours))
        for value, matrix in zip(both(fw.kernels(net, images)), exact, strict=True):
            np.testing.assert_allclose(value, matrix, rtol=1e-11)


def test_linear_residual_blocks_in_closed_form():
    """K = a^l K_1 and Theta = a^l Theta_1 + l a^(l-1) lambda_W K_1, with a = gamma^2 + C_W."""
    block, X = fw.Residual(fw.Dense(5, C_W=0.3, lambda_b=0.0, lambda_W=0.7), gamma=0.8), IMAGES[:, 0, 0]
    net = fw.Network(2, fw.Dense(5, **CONV), *[block] * 4, fw.Dense(1))
    theory, a = fw.solve(net, X, order=0), 0.8**2 + 0.3
    K, Theta = theory.layer(1).K, theory.layer(1).Theta
    for l in range(1, 5):
        np.testing.assert_allclose(theory.layer(1 + l).K, a**l * K, rtol=EXACT)
        exact = a**l * Theta + l * a ** (l - 1) * 0.7 * K
        np.testing.assert_allclose(theory.layer(1 + l).Theta, exact, rtol=EXACT)


def test_layer_norm_leaves_angles_alone():
    X = IMAGES[:, 0, 0]
    first = fw.Dense(5, C_W=7.0, lambda_W=0.5)
    net = fw.Network(2, first, fw.LayerNorm(epsilon=0.0), fw.Dense(1, lambda_W=0.3))
    K, Theta = both(fw.kernels(net, X))
    norms = np.linalg.norm(X, axis=1)
    cosines = X @ X.T / np.outer(norms, norms)
    np.testing.assert_allclose(K, cosines, rtol=EXACT)
    learned_before = (1 + 0.5 * X @ X.T / 2) / (7.0 * np.outer(norms, norms) / 2)
    np.testing.assert_allclose(Theta, 1 + 0.3 * cosines + learned_before, rtol=EXACT)


@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
def test_gain_behind_a_norm_learns_what_weights_behind_the_activation_learn(slope):
    """z s'(z) = s(z) for slopes 1 and `slope`, so that both add a rate times <s s>; at any angle."""
    X, activation = IMAGES[[0, 1, 0, 2], 0, 0], f"leaky_relu({slope})"
    first, still = fw.Dense(5, C_W=1.7, lambda_W=0.5), {"C_W": 1.3, "lambda_b": 0.0}
    gain = fw.Network(2, first, fw.LayerNorm(lambda_gain=0.6), activation, fw.Dense(1, lambda_W=0.0, **still))
    weights = fw.Network(2, first, fw.LayerNorm(), activation, fw.Dense(1, lambda_W=0.6 * 1.3, **still))
    for value, exact in zip(both(fw.kernels(gain, X)), both(fw.kernels(weights, X)), strict=True):
        np.testing.assert_allclose(value, exact, rtol=EXACT)


def test_gain_of_post_norm_blocks_is_averaged_by_the_next_weights():
    """Skips carry its share on: a linear network has K = c K_1 and Theta = c (Theta_1 + 2 gains K_1)."""
    X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [0.6, -1.28062484748657]])  # of length sqrt(2)
    still = {"lambda_b": 0.0, "lambda_W": 0.0}
    norm, block = fw.LayerNorm(epsilon=0.0, lambda_gain=0.5), fw.Residual(fw.Dense(5, C_W=0.3, **still))
    net = fw.Network(2, fw.Dense(5, lambda_b=0.0), norm, block, norm, fw.Dense(1, **still))
    K, Theta = both(fw.kernels(net, X))
    np.testing.assert_allclose(K, X @ X.T / 2, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(Theta, (1 + 2 * 0.5) * K, rtol=1e-11, atol=1e-14)


def test_attention_to_everything_alike_is_an_average():
    X = RANDOM.standard_normal((4, 6, 2))
    uniform = fw.Network((6, 2), fw.SelfAttention(4, C_OV=1.3, sigma_QK=0.0), fw.Flatten(), fw.Dense(1))
    average = fw.Network((6, 2), fw.GlobalAveragePool(), fw.Dense(4, C_W=1.3), fw.Dense(1))
    np.testing.assert_allclose(fw.kernels(uniform, X).K, fw.kernels(average, X).K, rtol=EXACT)


def test_hidden_layers_with_positions_are_shown_as_if_flattened():
    layers = [fw.Conv(4, stride=2, **CONV), "erf", fw.Conv(4, filter=2, **CONV)]
    net = fw.Network((4, 5, 2), *layers, "relu", fw.GlobalAveragePool(), fw.Dense(3))
    theory = fw.solve(net, IMAGES, order=0)
    read = fw.Dense(1, C_b=0.0, C_W=1.0, lambda_b=0.0, lambda_W=0.0)
    for l, end in ((1, 1), (2, 3)):
        exact = fw.kernels(fw.Network((4, 5, 2), *layers[:end], fw.Flatten(), read), IMAGES)
        alone = fw.kernels(net, IMAGES, layer=l)
        for value in ((theory.layer(l).K, theory.layer(l).Theta), both(alone)):
            for one, other in zip(value, both(exact), strict=True):
                np.testing.assert_allclose(one, other, rtol=EXACT)


# --- blocks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [fw.Flatten(), fw.GlobalAveragePool()], ids=["flatten", "average"])
def test_a_block_alone_is_the_block_of_the_whole(end):
    """Pairs of samples do not know of each other, nor of threads and tiles."""
    X = np.random.default_rng(3).standard_normal((90, 4, 5, 2))
    X[17] = X[3]
    block = fw.Residual("relu", fw.Conv(4, C_W=0.5), gamma=0.9)
    net = fw.Network((4, 5, 2), fw.Conv(4, **CONV), block, "erf", fw.AveragePool(2), end, fw.Dense(1))
    whole = both(fw.kernels(net, X))
    for rows, columns in (((0, 5), (0, 7)), ((2, 3), (85, 90)), ((30, 71), (12, 20))):
        rows, columns = slice(*rows), slice(*columns)
        for value, matrix in zip(both(fw.kernels(net, X[rows], X[columns])), whole, strict=True):
            assert_close(value, matrix[rows, columns], BLOCK)
    for value, matrix in zip(both(fw.kernels(net, X, X.copy())), whole, strict=True):
        assert_close(value, matrix, BLOCK)
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_allclose(matrix[17], matrix[3], rtol=BLOCK)


# --- parametrizations -------------------------------------------------------------------------------

STANDARD = [name for name in references() if "standard" in name]


def without_rates(layer):
    """Only rates of zero stay, which say that something does not learn."""
    if isinstance(layer, str):
        return layer
    return {key: value for key, value in layer.items() if not (key.startswith("lambda") and value)}


@pytest.mark.parametrize("name", references())
def test_parametrizations_are_those_of_neural_tangents(name):
    network = references()[name].network
    exact = fw.Network.from_dict(network)
    make = fw.Network.standard_parametrization if name in STANDARD else fw.Network.ntk_parametrization
    bare = fw.Network.from_dict({**network, "layers": [without_rates(one) for one in network["layers"]]})
    assert make(bare.input_shape, *bare.layers) == exact


def test_parametrizations_of_perceptrons():
    layers = [fw.Dense(8, C_b=0.25), "tanh", fw.Dense(5, C_b=0.25), "tanh", fw.Dense(1, C_b=0.25)]
    standard = fw.MLP.standard_parametrization((3, 8, 5, 1), "tanh", C_b=0.25)
    assert standard == fw.Network.standard_parametrization(3, *layers)
    assert standard.lambda_W == (3, 8, 5) and standard.lambda_b == (1, 1, 1)
    ntk = fw.MLP.ntk_parametrization((3, 8, 5, 1), "tanh", beta=0.5)
    assert ntk == fw.Network.ntk_parametrization(3, *layers)


def test_standard_parametrization_is_the_tangent_kernel_of_torch():
    """Gradients of all parameters, added up with one learning rate; of one hidden layer at any width."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width, members, X = 6, 100, IMAGES[:2, :, :4]
    layers = [fw.Conv(width, C_b=0.3, C_W=1.5), "relu", fw.Flatten(), fw.Dense(1, C_b=0.1, C_W=0.8)]
    net = fw.Network.standard_parametrization((4, 4, 2), *layers)
    first, last = torch.nn.Conv2d(2, width, 3, padding=1), torch.nn.Linear(16 * width, 1)
    model = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Flatten(), last).double()
    images, ntks = torch.tensor(X).permute(0, 3, 1, 2), []
    for _ in range(members):
        for layer, (C_b, C_W), fan_in in ((first, (0.3, 1.5), 18), (last, (0.1, 0.8), 16 * width)):
            torch.nn.init.normal_(layer.weight, std=(C_W / fan_in) ** 0.5)
            torch.nn.init.normal_(layer.bias, std=C_b**0.5)
        outputs = model(images)[:, 0]
        gradients = [torch.autograd.grad(z, list(model.parameters()), retain_graph=True) for z in outputs]
        flat = torch.stack([torch.cat([part.ravel() for part in one]) for one in gradients])
        ntks.append((flat @ flat.T).numpy())
    stderr = np.std(ntks, axis=0, ddof=1) / members**0.5
    assert np.max(np.abs(np.mean(ntks, axis=0) - fw.kernels(net, X).Theta) / stderr) < 4


# --- values and text --------------------------------------------------------------------------------

EVERYTHING = fw.Network(
    (8, 8, 3),
    fw.Conv(16, filter=(3, 2), stride=2, padding=((1, 1), 0), C_W=2.0),
    fw.LayerNorm(axes="all", lambda_offset=1.0),
    fw.Residual("relu", fw.Conv(16), gamma=0.9, shortcut=[fw.Conv(16, filter=1)]),
    "gelu",
    fw.AveragePool(2, stride=1, padding="same", count_padding=False),
    fw.Dropout(0.2),
    fw.SelfAttention(8, positions=fw.Positions(length=2.0)),
    "leaky_relu(0.2)",
    fw.GlobalAveragePool(),
    fw.Flatten(),
    fw.Dense(10, C_b=0.1),
)


def test_all_kinds_of_layers_survive_text_and_pickling():
    for net in (EVERYTHING, *(fw.Network.from_dict(one.network) for one in references().values())):
        again = (
            fw.Network.from_toml(net.to_toml()),
            fw.Network.from_dict(json.loads(json.dumps(net.to_dict()))),
            pickle.loads(pickle.dumps(net)),
        )
        for one in again:
            assert one == net and hash(one) == hash(net) and repr(one) == repr(net)
    assert EVERYTHING.depth == 4 and EVERYTHING.outputs == 10


def test_text_is_what_one_would_type():
    short = EVERYTHING.replace(layers=EVERYTHING.layers[:3] + EVERYTHING.layers[-3:])
    words = ("Network", "Conv", "LayerNorm", "Residual", "GlobalAveragePool", "Flatten", "Dense")
    assert eval(repr(short), {name: getattr(fw, name) for name in words}) == short


def test_theories_and_kernels_of_images_are_kept(tmp_path):
    block = fw.Residual(fw.Conv(4), shortcut=[fw.Conv(4)])
    net = fw.Network((4, 5, 2), fw.Conv(4), "erf", block, fw.Flatten(), fw.Dense(2))
    theory, kernels = fw.solve(net, IMAGES, order=0), fw.kernels(net, IMAGES, IMAGES[:2])
    theory.save(tmp_path / "theory.zarr")
    kernels.save(tmp_path / "kernels.npz")
    again, loaded = fw.load(tmp_path / "theory.zarr"), fw.records.Kernels.load(tmp_path / "kernels.npz")
    assert again.net == loaded.net == net and repr(again) == repr(theory)
    np.testing.assert_array_equal(again.X, IMAGES)
    np.testing.assert_array_equal(again.layer(2).Theta, theory.layer(2).Theta)
    np.testing.assert_array_equal(loaded.Theta, kernels.Theta)
    data = theory.to_xarray()
    assert data.X.dims == ("sample_a", "position_1", "position_2", "channel")
    assert data.K.dims == ("layer", "sample_a", "sample_b") and data.sizes["layer"] == net.depth == 3
