"""Critical initialization of residual, normalized, convolutional and attention networks.

Criteria: closed forms 1e-12, or 1e-9 where interpolated averages enter; laws of large depth as stated;
sampled networks by pulls below 4.
"""

import math

import numpy as np
import pytest
from helpers.problems import refused
from scipy.special import gammaln

import finitewidth as fw
from finitewidth.critical.architectures.leak import leak
from finitewidth.critical.architectures.one_signal import Size, propagate
from finitewidth.critical.architectures.two_inputs import follow_inputs

EXACT, INTERPOLATED = 1e-12, 1e-9
NODES = np.polynomial.hermite_e.hermegauss(120)
Dense, Conv, Residual, LayerNorm = fw.Dense, fw.Conv, fw.Residual, fw.LayerNorm


def averages(function, slope):
    """<sigma^2> and <sigma'^2> at variance one, by Gauss-Hermite."""
    z, weights = NODES[0], NODES[1] / NODES[1].sum()
    return float(weights @ function(z) ** 2), float(weights @ slope(z) ** 2)


def gelu(z):
    return z * (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2


def gelu_slope(z):
    return gelu(z) / np.where(z == 0, 1, z) + z * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def stream(*body, blocks=8, gamma=1.0, end="relu", width=16):
    return Dense(width), *[Residual(*body, gamma=gamma)] * blocks, end, Dense(1)


# --- zero padding ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape, rho", [((8, 8, 1), 0.921), ((32, 32, 3), 0.994), ((5, 9, 2), None)])
def test_three_taps_between_zeros_leave_the_closed_form(shape, rho):
    exact = math.prod((1 + 2 * math.cos(math.pi / (size + 1))) / 3 for size in shape[:-1])
    assert leak(Conv(4).axes(shape)) == pytest.approx(exact, rel=EXACT)
    assert rho is None or exact == pytest.approx(rho, abs=5e-4)


@pytest.mark.parametrize("taps, shape", [((3, 5), (4, 6, 1)), ((7, 1), (5, 3, 2)), (5, (6, 1))])
def test_the_leak_is_the_largest_eigenvalue_of_the_average_over_taps(taps, shape):
    taps_of = (taps,) * (len(shape) - 1) if isinstance(taps, int) else taps
    places = list(np.ndindex(*shape[:-1]))
    matrix = np.zeros((len(places), len(places)))
    for i, p in enumerate(places):
        for f in np.ndindex(*taps_of):
            q = tuple(a + b - size // 2 for a, b, size in zip(p, f, taps_of, strict=True))
            if q in places:
                matrix[i, places.index(q)] += 1 / math.prod(taps_of)
    assert leak(Conv(4, filter=taps).axes(shape)) == pytest.approx(
        np.linalg.eigvalsh(matrix).max(), rel=EXACT
    )


@pytest.mark.parametrize("options", [{"padding": "circular"}, {"padding": "valid"}, {"filter": 1}])
def test_filters_that_read_no_zeros_lose_nothing(options):
    assert leak(Conv(4, **options).axes((8, 8, 1))) == pytest.approx(1, rel=EXACT)


def deep_convolutions(**options):
    return *[Conv(8, **options), "relu"] * 50, fw.Flatten(), Dense(1)


def test_relu_convolutions_of_eight_by_eight_need_2_17():
    """C_W = 2 / rho keeps the leading mode over fifty layers; C_W = 2 loses rho in each."""
    critical = fw.Network.critical((8, 8, 2), *deep_convolutions())
    assert critical.layers[10].C_W == pytest.approx(2.17, abs=0.005)
    kept = follow_inputs(critical, 1.0).K
    assert kept[49] == pytest.approx(kept[29], rel=1e-5)
    lost = follow_inputs(fw.Network((8, 8, 2), *deep_convolutions(C_W=2.0)), 1.0).K
    assert lost[49] / lost[29] == pytest.approx(leak(Conv(8).axes((8, 8, 1))) ** 20, rel=1e-5)
    circular = fw.Network.critical((8, 8, 2), *deep_convolutions(padding="circular"))
    assert circular.layers[0].C_W == circular.layers[10].C_W == 2.0


@pytest.mark.parametrize("activation", ["gelu", "swish", "mish"])
def test_a_half_stable_activation_keeps_gradients_behind_zero_padding(activation):
    """At all positions K cannot be K*, but the mode that survives depth neither grows nor falls."""
    net = fw.Network.critical((8, 8, 1), *[Conv(4), activation] * 40, fw.Flatten(), Dense(1))
    path = follow_inputs(net, 1.0)
    assert abs(np.log(path.perpendicular[25:39])).max() < 5e-3
    assert path.K[39] == pytest.approx(path.K[25], rel=0.01)


# --- residual blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
@pytest.mark.parametrize("gamma", [0.5, -0.9])
def test_a_skip_scales_the_critical_point_by_what_it_leaves(activation, gamma):
    """(C_b, C_W) become 1 - gamma^2 times those of the dense network."""
    point = fw.criticality(activation)
    net = fw.Network.critical(8, *stream(activation, Dense(16), gamma=gamma, end=activation))
    for block in net.layers[1:-2]:
        last = block.layers[-1]
        assert (last.C_b, last.C_W) == pytest.approx(
            ((1 - gamma**2) * point.C_b, (1 - gamma**2) * point.C_W), rel=EXACT
        )
    assert net.layers[-1].C_W == pytest.approx(point.C_W, rel=EXACT)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("body", [(0,), (0, 1), (1, 0)], ids=["W s(x)", "W s(W s(x))", "W s(W x)"])
def test_the_kernel_of_a_critical_residual_network_stays(activation, body):
    layers = {(0,): [activation, Dense(16)], (0, 1): [activation, Dense(16)] * 2}
    layers[1, 0] = [Dense(16), activation, Dense(16)]
    net = fw.Network.critical(8, *stream(*layers[body], gamma=0.8, end=activation))
    path = follow_inputs(net, 1.0)
    on = np.asarray(path.stream) - 1
    np.testing.assert_allclose(path.K[on], path.K[0], rtol=1e-9)
    np.testing.assert_allclose(path.perpendicular[on[:-1]], 1, rtol=1e-9)


def test_only_the_product_of_the_weights_of_a_body_counts():
    """relu: gamma^2 + C_1 C_2 / 4 is the growth of a block, however C_1 and C_2 share it."""
    for C_1, C_2 in ((2.0, 0.1), (0.4, 0.5)):
        body = ("relu", Dense(16, C_W=C_1), "relu", Dense(16, C_W=C_2))
        net = fw.Network(8, Dense(16), *[Residual(*body)] * 10, "relu", Dense(1))
        path = follow_inputs(net, 1.0)
        np.testing.assert_allclose(path.perpendicular[[0, 2, 4]], 1.05, rtol=EXACT)
        assert path.K[20] == pytest.approx(1.05**10, rel=EXACT)


@pytest.mark.parametrize("C_W", [1.0, 0.04])
def test_without_attenuation_relu_grows_by_the_closed_form(C_W):
    """K = (1 + C_W/2)^L for gamma = 1, and so do gradients."""
    net = fw.Network(8, Dense(16), *[Residual("relu", Dense(16, C_W=C_W))] * 50, "relu", Dense(1))
    path = follow_inputs(net, 1.0)
    np.testing.assert_allclose(path.K[:51], (1 + C_W / 2) ** np.arange(51), rtol=1e-11)
    np.testing.assert_allclose(path.perpendicular[:50], 1 + C_W / 2, rtol=1e-11)


@pytest.mark.parametrize("blocks", [5, 30])
@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_a_share_of_one_over_the_number_of_blocks_bounds_growth_at_any_depth(activation, blocks):
    net = fw.Network.critical(8, *stream(activation, Dense(16), blocks=blocks, end=activation))
    C_W = fw.criticality(activation).C_W
    assert net.layers[3].layers[-1].C_W == pytest.approx(C_W / blocks, rel=EXACT)
    way = propagate(net.layers[1:-2], Size(float(net.layers[0].C_W)), (16,))
    assert 1 <= way.chi_perp < math.e * 1.01 and way.size.square < math.e * 1.01 * net.layers[0].C_W


@pytest.mark.parametrize("gamma", [0.0, 0.8])
def test_the_kernel_of_odd_activations_is_larger_by_the_share_of_the_skip(gamma):
    """K -> 1/((1 - gamma^2)(-a_1) l), with corrections log l / l; lambda_W is smaller by the same factor."""
    l, kept = 100, 1 - gamma**2
    body = [Residual("tanh", Dense(1, C_W=kept), gamma=gamma)] * l
    K = propagate(body, Size(1.0), (1,)).size.square
    assert K * kept * 2 * l == pytest.approx(1, abs=0.05 / kept)


def test_weights_of_odd_residual_networks_learn_slower_by_the_share_of_the_skip():
    def rate(gamma):
        net = fw.Network.critical(8, *stream("tanh", Dense(16), blocks=60, gamma=gamma, end="tanh"))
        return net.layers[55].layers[-1].lambda_W

    assert rate(0.8) / rate(0.0) == pytest.approx(1 - 0.8**2, rel=0.15)


# --- norms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C_b1, C_2", [(0.5, 2.0), (0.0, 0.7), (2.0, 1.0)])
def test_directions_of_pre_norm_blocks_follow_a_power_law(C_b1, C_2):
    """K = K_0 + c l, and separations grow as the product of 1 + chi/K, which is l^(chi/c)."""
    v = C_b1 + 1
    c, chi = C_2 * v / 2, C_2 / 2
    body = (LayerNorm(epsilon=0.0), Dense(16, C_b=C_b1), "relu", Dense(16, C_W=C_2))
    net = fw.Network(8, Dense(16), *[Residual(*body)] * 30, LayerNorm(), Dense(1))
    path = follow_inputs(net, 1.0)
    on = np.asarray(path.stream[:-1]) - 1
    l = np.arange(31)
    np.testing.assert_allclose(path.K[on], 1 + c * l, rtol=1e-11)
    exact = gammaln(l + (1 + chi) / c) - gammaln((1 + chi) / c) - gammaln(l + 1 / c) + gammaln(1 / c)
    push = np.concatenate([[0.0], np.cumsum(np.log(path.perpendicular[on[:-1]]))])
    np.testing.assert_allclose(push, exact, atol=1e-10)
    slope = (exact[-1] - exact[15]) / math.log((30 + 1 / c) / (15 + 1 / c))
    assert slope == pytest.approx(chi / c, abs=0.04)


@pytest.mark.parametrize("C_b, C_W", [(0.3, 1.0), (0.0, 1.5)])
def test_post_norm_has_the_susceptibility_of_body_and_skip_over_their_kernel(C_b, C_W):
    """chi_perp = (1 + chi)/(1 + c): one only for chi = c."""
    block = Residual("relu", Dense(16, C_b=C_b, C_W=C_W)), LayerNorm(epsilon=0.0)
    net = fw.Network(8, Dense(16), LayerNorm(epsilon=0.0), *block * 10, Dense(1))
    path = follow_inputs(net, 1.0)
    c, chi = C_b + C_W / 2, C_W / 2
    np.testing.assert_allclose(path.perpendicular[1:10], (1 + chi) / (1 + c), rtol=EXACT)


FUNCTIONS = {"tanh": (np.tanh, lambda z: 1 / np.cosh(z) ** 2), "gelu": (gelu, gelu_slope)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_behind_a_norm_biases_make_up_for_the_difference_of_two_averages(name):
    """C_b = C_W (E' - E) at variance one, whatever C_W; Network.critical holds K at one."""
    E, slope = averages(*FUNCTIONS[name])
    layers = Dense(16), *[LayerNorm(), name, Dense(16)] * 10, LayerNorm(), Dense(1)
    net = fw.Network.critical(8, *layers)
    held = net.layers[6]
    assert (held.C_W, held.C_b) == pytest.approx((1 / slope, 1 - E / slope), rel=1e-8)
    other = Dense(16, C_b=0.7 * (slope - E), C_W=0.7)
    free = fw.Network(8, Dense(16), *[LayerNorm(epsilon=0.0), name, other] * 10, LayerNorm(), Dense(1))
    for one, tolerance in ((net, 1e-4), (free, 1e-8)):
        path = follow_inputs(one, 1.0)
        np.testing.assert_allclose(path.perpendicular[2:10], 1, rtol=tolerance)
        assert path.K[5:10] == pytest.approx(path.K[5], rel=tolerance)


@pytest.mark.parametrize("C_W", [0.1, 9.0])
def test_behind_a_norm_relu_is_critical_at_every_weight_variance(C_W):
    layers = Dense(16), *[LayerNorm(epsilon=0.0), "relu", Dense(16, C_W=C_W)] * 9, LayerNorm(), Dense(1)
    path = follow_inputs(fw.Network(8, *layers), 1.0)
    np.testing.assert_allclose(path.perpendicular[1:9], 1, rtol=EXACT)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "swish"])
@pytest.mark.parametrize("blocks", ["pre", "post"])
def test_angles_survive_normalized_residual_networks(activation, blocks):
    """chi = c in every block."""
    body = {"pre": [Residual(LayerNorm(), Dense(16), activation, Dense(16))]}
    body["post"] = [Residual(activation, Dense(16)), LayerNorm()]
    net = fw.Network.critical(8, Dense(16), LayerNorm(), Dense(16), *body[blocks] * 8, LayerNorm(), Dense(1))
    nearby = follow_inputs(net, 1.0).on_stream.nearby
    assert abs(np.log(nearby)).max() < 2e-3  # the epsilon of norms


# --- the way to a critical network -----------------------------------------------------------------------

NETWORKS = {
    "residual": (8, *stream("gelu", Dense(16), gamma=0.7, end="gelu")),
    "two layers": (8, *stream("relu", Dense(24), "relu", Dense(16), blocks=5)),
    "pre-norm": (
        8,
        Dense(16),
        *[Residual(LayerNorm(), Dense(24), "tanh", Dense(16))] * 6,
        LayerNorm(),
        Dense(2),
    ),
    "shortcut": (8, Dense(6), Residual("relu", Dense(9), shortcut=[Dense(9)]), "relu", Dense(1)),
    "activated": (8, Dense(6), "relu", Residual(Dense(6), gamma=0.6), Dense(4), "tanh", Dense(1)),
    "nested": (
        8,
        Dense(6),
        Residual("relu", Dense(6), Residual("relu", Dense(6)), "relu", Dense(6)),
        Dense(1),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_all_weights_and_biases_share_the_ntk(name):
    """Theta = lambda_b + lambda_W x^2, of which every layer has an equal share."""
    scale, (n_0, *layers) = 1.7, NETWORKS[name]
    net = fw.Network.critical(n_0, *layers, lambda_b=0.3, lambda_W=2.0, input_scale=scale)
    X = np.full((1, n_0), math.sqrt(scale))
    assert fw.kernels(net, X).Theta.item() == pytest.approx(0.3 + 2.0 * scale, rel=1e-7)
    weights = [layer for layer in net.walked if isinstance(layer, Dense)]
    biases = fw.Network.critical(n_0, *layers, lambda_b=1.0, lambda_W=0.0, input_scale=scale)
    first = biases.replace(
        layers=[_without_rates(layer) for layer in biases.layers[:-1]] + [biases.layers[-1]]
    )
    assert fw.kernels(first, X).Theta.item() == pytest.approx(1 / len(weights), rel=1e-7)


def _without_rates(layer):
    if isinstance(layer, Residual):
        parts = ([_without_rates(one) for one in part] for part in (layer.layers, layer.shortcut))
        return Residual(*next(parts), gamma=layer.gamma, shortcut=next(parts))
    return Dense(layer.width, layer.C_b, layer.C_W, 0.0, 0.0) if isinstance(layer, Dense) else layer


@pytest.mark.parametrize("activations", [("relu", "relu"), ("tanh", "tanh"), ("gelu", "swish")])
def test_dense_networks_are_those_of_the_perceptron(activations):
    layers = Dense(7), activations[0], Dense(5), activations[1], Dense(2)
    rates = {"lambda_b": 0.2, "lambda_W": 3.0, "input_scale": 2.0}
    assert fw.Network.critical(4, *layers, **rates) == fw.MLP.critical((4, 7, 5, 2), activations, **rates)


def test_weights_that_precede_a_half_stable_activation_bring_its_kernel():
    net = fw.Network.critical(8, *stream(Dense(16), "gelu", Dense(16), gamma=0.6, end="relu"))
    inner, _, last = net.layers[4].layers
    point = fw.criticality("gelu")
    K = net.layers[0].C_W  # on the stream, which is that of relu
    assert inner.C_W == pytest.approx(point.K_star / K, rel=1e-9)
    assert last.C_W == pytest.approx(0.64 * point.C_W * K / point.K_star, rel=1e-9)


def test_a_transformer_scales_attention_and_projections_alike():
    """1/(2 L): two residual branches in each of L blocks, as GPT-2 scales its projections."""
    block = Residual(LayerNorm(), fw.SelfAttention(16)), Residual(LayerNorm(), Dense(32), "gelu", Dense(16))
    net = fw.Network.critical((5, 4), Dense(16), *block * 12, LayerNorm(), fw.GlobalAveragePool(), Dense(3))
    attention, feedforward = net.layers[5].layers[-1], net.layers[6].layers[-1]
    assert attention.C_OV == pytest.approx(1 / 24, rel=EXACT)
    dense = fw.Network.critical(8, Dense(16), LayerNorm(), "gelu", Dense(1)).layers[-1]
    assert feedforward.C_W == pytest.approx(dense.C_W / 24, rel=EXACT)


@pytest.mark.parametrize(
    "layers, complaint",
    [
        ((Dense(4), Residual("relu", Dense(4), gamma=1.2), Dense(1)), "gamma=1.2 has no critical point"),
        ((Dense(4), Residual("sigmoid", Dense(4)), Dense(1)), "activation 'sigmoid' has no critical point"),
        ((Dense(4), LayerNorm(), "softplus", Dense(1)), "'softplus' has no critical point at the kernel 1"),
        ((Dense(4), "relu", fw.Dropout(0.1), Dense(1)), "Dropout has no critical point"),
        ((Dense(4), LayerNorm(), "swish", Dense(4), Residual("gelu", Dense(4)), Dense(1)), None),
        (
            (Dense(4), "swish", Dense(4), Residual("gelu", Dense(4), gamma=0.5), Dense(1)),
            "'swish' stands before one that needs K\\* = 3.562",
        ),
    ],
)
def test_what_has_no_critical_point_is_refused_by_name(layers, complaint):
    if complaint is None:  # behind a norm every kernel will do
        fw.Network.critical(4, *layers)
        return
    with refused(complaint):
        fw.Network.critical(4, *layers)


@pytest.mark.parametrize(
    "layers, complaint",
    [
        ((Conv(4, filter=2), "relu", Conv(4, filter=2), fw.Flatten(), Dense(1)), "drift out of the picture"),
        ((Dense(4), fw.SelfAttention(4), fw.Flatten(), Dense(1)), "SelfAttention averages positions"),
        (
            (Dense(4), Residual(fw.SelfAttention(4), gamma=0.9), fw.Flatten(), Dense(1)),
            "SelfAttention averages",
        ),
    ],
)
def test_layers_with_positions_that_have_no_critical_point_are_refused(layers, complaint):
    with refused(complaint):
        fw.Network.critical((6, 2), *layers)


def test_a_body_must_not_lead_back_to_its_own_skip():
    """x + (x + W s(x)) is 2 x + W s(x), and its kernel has 4 K, not 2 K."""
    with refused("skips lead back to its start"):
        Residual(Residual("relu", Dense(4)))
    Residual("relu", Dense(4), Residual("relu", Dense(4)))
    Residual(Residual("relu", Dense(4), shortcut=[Dense(4)]))
