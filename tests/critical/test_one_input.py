"""Deep networks at and off criticality: exponents, learning rates, correlation lengths, over 1000 layers.

Criteria: laws of the source at depth 4000 within 1 %, logarithmic corrections within 3 %; exponents fitted
from depth within three of their error bars, each below 0.02; correlation lengths from fw.solve within 1 % of
the predicted; two derivations 1e-8 (the scalar path interpolates averages); exact identities 1e-12.
"""

import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest

import finitewidth as fw
from finitewidth.critical.fitted_exponents import fit_power
from finitewidth.critical.one_input import layer_by_layer
from finitewidth.critical.tuning import products_above

LAW, LOGARITHMIC, LENGTH, DERIVED, EXACT = 0.01, 0.03, 0.01, 1e-8, 1e-12
DEPTH = 4000


def bump(z):
    return z * jnp.exp(-z * z)


def tilted(z):
    return jnp.tanh(z) + 0.3 * z * z


# --- the laws of PDLT chapter 10 at K* = 0 ---------------------------------------------------------------


@functools.cache
def deep(activation, lambda_b=0.7, lambda_W=1.3):
    net = fw.MLP.critical((1, *[1] * DEPTH), activation, lambda_b=lambda_b, lambda_W=lambda_W)
    return net, layer_by_layer(net, 1.0)


@pytest.mark.parametrize("activation", ["tanh", pytest.param(tilted, marks=pytest.mark.long)])
def test_kernel_separation_and_ntk_follow_their_laws(activation):
    """(10.71) K = 1/(-a_1 l), (10.72) chi = 1 - p/l, (10.75) Theta = (lb + lW s1^2/(-a_1)) (L/l)^(p-1)."""
    net, path = deep(activation)
    constants, p = fw.criticality(activation).constants, fw.criticality(activation).exponents["p_perp"]
    l = np.arange(1, DEPTH + 1)
    assert -constants["a_1"] * DEPTH * path.K[-1] == pytest.approx(1.0, rel=LAW)
    assert DEPTH * (1 - path.perpendicular[-1]) == pytest.approx(p, rel=LAW)
    total = 0.7 + 1.3 * constants["sigma_1_squared"] / -constants["a_1"]
    for layer in (DEPTH // 4, DEPTH):
        expected = total * (DEPTH / layer) ** (p - 1)
        assert path.Theta[layer - 1] == pytest.approx(expected, rel=LAW)
    np.testing.assert_allclose(net.lambda_b, 0.7 * l**-p * DEPTH ** (p - 1), rtol=EXACT)
    np.testing.assert_allclose(net.lambda_W, 1.3 * (DEPTH / l) ** (p - 1), rtol=EXACT)


def test_the_scalar_path_is_that_of_solve():
    for net in (
        fw.MLP.critical((1, *[1] * 60), "tanh"),
        fw.MLP((1, *[1] * 60), "relu", C_b=0.1, C_W=1.9),
        fw.MLP.critical((1, *[1] * 60), "gelu"),
        fw.MLP((1, *[1] * 12), "elu", C_b=0.1, C_W=1.2, lambda_b=0.3),
    ):
        order = 0 if net.activation.name == "elu" else 1
        path, theory = layer_by_layer(net, 1.0), fw.solve(net, [[1.0]], order=order)
        for l in (1, 2, 7, net.depth):
            assert path.K[l - 1] == pytest.approx(theory.layer(l).K.item(), rel=DERIVED)
            assert path.Theta[l - 1] == pytest.approx(theory.layer(l).Theta.item(), rel=DERIVED)


@pytest.mark.parametrize("activation", ["tanh", "sin", bump])
def test_odd_functions_separate_inputs_with_exponent_one(activation):
    """Fitted from the product of chi_perp over depth; b_1/a_1 is not used."""
    point = fw.criticality(activation)
    net = fw.MLP((1, *[1] * DEPTH), activation, C_b=point.C_b, C_W=point.C_W)
    path = layer_by_layer(net, 0.5)
    fitted = fit_power(np.concatenate([[1.0], np.cumprod(path.perpendicular[:-1])]))
    assert fitted.stderr < 0.005
    assert abs(fitted.value - 1) < 3 * fitted.stderr


def distances(activation, depth, layers):
    """Squared distance, in fw.solve, of two inputs of equal norm that begin 1e-3 apart in angle."""
    net = fw.MLP((2, *[1] * depth), activation, C_W=fw.criticality(activation).C_W)
    X = math.sqrt(2) * np.asarray([[math.cos(a), math.sin(a)] for a in (0.5, 0.501)])
    theory = fw.solve(net, X, order=0, layers=layers)
    return net, np.asarray([[1, -1] @ theory.layer(l).K @ [1, -1] for l in layers])


def test_nearby_inputs_approach_each_other_as_one_over_depth():
    """(10.71) for an odd function: doubling the depth halves the distance."""
    _, apart = distances("erf", 400, [100, 200, 400])
    local = -np.diff(np.log(apart)) / math.log(2)
    np.testing.assert_allclose(local, 1.0, atol=LAW)
    assert abs(local[1] - 1) < abs(local[0] - 1)  # and still converging


def test_nearby_inputs_are_moved_by_the_product_of_chi_perpendicular():
    net, apart = distances(tilted, 40, [5, 40])
    chi = layer_by_layer(net, 1.0).perpendicular[4:39]
    assert apart[1] / apart[0] == pytest.approx(np.prod(chi), rel=1e-5)


@pytest.mark.parametrize(
    "activation", ["tanh", "linear", "relu", pytest.param(tilted, marks=pytest.mark.long)]
)
def test_fitted_exponents_are_the_stated_ones(activation):
    stated, fitted = fw.criticality(activation).exponents, fw.critical.exponents(activation)
    assert set(stated) == set(fitted)
    for name, p in stated.items():
        assert fitted[name].stderr < 0.02, name
        assert abs(fitted[name].value - p) < 3 * fitted[name].stderr, name


@pytest.mark.parametrize("activation, p", [("elu", 2.0), ("polynomial(0, 1, 0, 0, 0, -0.02)", 0.5)])
def test_other_first_corrections_have_other_exponents(activation, p):
    """K' = K - c K^(1+q) falls as l^(-1/q): q = 1/2 where sigma'' jumps at zero, q = 2 for z - z^5/50."""
    net = fw.MLP.critical((1, *[1] * DEPTH), activation)
    path = layer_by_layer(net, 1.0)
    separation = np.concatenate([[1.0], np.cumprod(path.perpendicular[:-1])])
    exponents = fw.criticality(activation).exponents
    for curve, name in ((path.K, "p_0"), (separation, "p_perp"), (path.Theta, "p_Theta")):
        fitted = fit_power(curve)
        assert fitted.stderr < 0.01
        assert abs(fitted.value - exponents[name]) < 3 * fitted.stderr
    assert exponents["p_0"] == p


def test_a_power_law_with_corrections_is_fitted_within_its_error():
    l = np.arange(1, 3001.0)
    for p in (-1.0, 0.0, 0.8):
        fitted = fit_power(3 * l**-p * (1 + (2 + 3 * np.log(l)) / l))
        assert abs(fitted.value - p) < fitted.stderr < 0.01


# --- the laws at scale invariance ------------------------------------------------------------------------


@functools.cache
def two_relu_inputs(depth=800):
    net = fw.MLP.critical((2, *[1] * depth), "relu", lambda_b=0.4, lambda_W=0.9)
    return net, fw.solve(net, [[1.0, 0.2], [0.2, 1.0]], order=0)


def angles(layer):
    K, Theta = layer.K, layer.Theta
    return math.acos(K[0, 1] / K[0, 0]), Theta[0, 1] / Theta[0, 0]


def test_relu_kernel_is_constant_and_its_angle_falls_as_three_over_rho_l():
    """(10.90)."""
    net, theory = two_relu_inputs()
    rho = fw.criticality("relu").constants["rho"]
    assert theory.output.K[0, 0] == pytest.approx(theory.layer(1).K[0, 0], rel=1e-11)
    psi, _ = angles(theory.output)
    assert psi * net.depth * rho / 3 == pytest.approx(1.0, rel=LOGARITHMIC)


def test_relu_ntk_grows_linearly():
    """(10.91) Theta = (lambda_b + lambda_W A_2 K) l/L, exactly."""
    net, theory = two_relu_inputs()
    K = theory.layer(1).K[0, 0]
    for l in (1, 10, net.depth):
        expected = (0.4 + 0.9 * 0.5 * K) * l / net.depth
        assert theory.layer(l).Theta[0, 0] == pytest.approx(expected, rel=1e-11)


def test_relu_ntk_angle_tends_to_one_quarter():
    """(10.92) cos' = (1 - 4/l) cos + 1/l and (10.93) cos = 1/4."""
    net, theory = two_relu_inputs()
    rho, l = fw.criticality("relu").constants["rho"], net.depth - 1
    psi, cosine = angles(theory.layer(l))
    kept = (1 - rho * psi) * theory.layer(l).Theta[0, 0] / theory.output.Theta[0, 0]
    assert l * (1 - kept) == pytest.approx(4.0, rel=LOGARITHMIC)
    assert l * (angles(theory.output)[1] - kept * cosine) == pytest.approx(1.0, rel=LOGARITHMIC)
    assert cosine == pytest.approx(0.25, rel=LOGARITHMIC)


# --- the critical network --------------------------------------------------------------------------------


def contributions(net, x):
    """What biases and weights of each layer give to the NTK of the output, by switching the others off."""
    off = (0.0,) * net.depth
    results = []
    for l in range(net.depth):
        for name in ("lambda_b", "lambda_W"):
            alone = tuple(rate if i == l else 0.0 for i, rate in enumerate(getattr(net, name)))
            single = net.replace(**{"lambda_b": off, "lambda_W": off, name: alone})
            results.append(fw.solve(single, x, order=0).output.Theta.item())
    return np.asarray(results).reshape(net.depth, 2)


def test_all_layers_of_a_critical_relu_network_contribute_equally():
    parts = contributions(fw.MLP.critical((3, 5, 5, 5, 5), "relu"), [[0.3, -1.0, 2.0]])
    np.testing.assert_allclose(parts, np.broadcast_to(parts[0], parts.shape), rtol=EXACT)


def test_all_layers_of_a_half_stable_network_contribute_equally():
    """lambda times the product of chi_perp above is the same for all; the first layer's input differs."""
    net = fw.MLP.critical((1, *[4] * 8), "gelu", input_scale=2.5)
    parts = contributions(net, [[math.sqrt(2.5)]])
    np.testing.assert_allclose(parts[:, 0], parts[0, 0], rtol=1e-9)
    np.testing.assert_allclose(parts[1:, 1], parts[1, 1], rtol=1e-9)
    above = products_above(layer_by_layer(net, 2.5).perpendicular)
    np.testing.assert_allclose(np.asarray(net.lambda_b) * above, net.lambda_b[-1], rtol=1e-7)


def test_deep_layers_of_a_critical_tanh_network_contribute_equally():
    net = fw.MLP.critical((1, *[1] * 160), "tanh")
    picked = fw.MLP.critical((1, *[1] * 160), "tanh")
    off = (0.0,) * net.depth
    parts = []
    for l in (40, 80, 159):
        for name in ("lambda_b", "lambda_W"):
            alone = tuple(rate if i == l else 0.0 for i, rate in enumerate(getattr(picked, name)))
            parts.append(
                layer_by_layer(net.replace(**{"lambda_b": off, "lambda_W": off, name: alone}), 1.0).Theta[-1]
            )
    biases, weights = parts[::2], parts[1::2]
    assert max(biases) / min(biases) < 1.1
    assert max(weights) / min(weights) < 1.1


@pytest.mark.parametrize("activation", ["gelu", "swish"])
def test_a_half_stable_network_starts_and_stays_at_its_fixed_point(activation):
    point = fw.criticality(activation)
    net = fw.MLP.critical((3, *[1] * 100), activation, lambda_b=2.0, input_scale=0.5)
    assert (net.C_b[0], net.C_W[0]) == (0.0, pytest.approx(point.K_star / 0.5, rel=EXACT))
    assert (net.C_b[1], net.C_W[1]) == (point.C_b, point.C_W)
    K = fw.solve(net, [[0.5, 0.5, 1.0]], order=0, layers=[1, 100])
    assert K.layer(1).K.item() == pytest.approx(point.K_star, rel=EXACT)
    assert K.output.K.item() == pytest.approx(point.K_star, rel=1e-9)
    np.testing.assert_allclose(net.lambda_b, 2.0 / 100, rtol=1e-6)


@pytest.mark.parametrize(
    "activation, options, complaint",
    [
        ("sigmoid", {}, "'sigmoid' has no critical point to initialize at \\(none\\).*C_W = 16"),
        (jnp.sinh, {}, "no critical point to initialize at \\(unstable\\).*use gelu or swish"),
        ("gelu", {"input_scale": 0.0}, "input_scale must be above 0"),
        ("gelu", {"input_scale": "big"}, "input_scale must be one number"),
        ("tanh", {"lambda_b": -1.0}, "lambda_b must be finite and at least 0"),
        ("tanh", {"lambda_W": (1.0, 2.0)}, "lambda_W must be one number"),
    ],
)
def test_networks_that_cannot_be_critical_are_refused(activation, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        fw.MLP.critical((2, 4, 1), activation, **options)


def test_exponents_need_depth():
    with pytest.raises(ValueError, match="depth must be at least 100"):
        fw.critical.exponents("tanh", depth=20)


# --- at and off criticality over 1000 layers -------------------------------------------------------------


def test_a_critical_tanh_network_keeps_signals_polynomial_over_1000_layers():
    net = fw.MLP.critical((1, *[1] * 1000), "tanh")
    theory = fw.solve(net, [[1.0]], layers=[125, 250, 500, 1000])
    for name, exponent in (("K", 1.0), ("Theta", 0.0)):
        values = [theory.layer(l).arrays[name].item() for l in (125, 250, 500, 1000)]
        local = -np.diff(np.log(values)) / math.log(2)
        np.testing.assert_allclose(local, exponent, atol=0.03)


def test_below_criticality_the_kernel_dies_at_the_predicted_correlation_length():
    diagram = fw.critical.phase_diagram("tanh", [0.0], [0.95])
    length = diagram.correlation_length_parallel.item()
    assert length == pytest.approx(-1 / math.log(0.95), rel=EXACT)
    theory = fw.solve(fw.MLP((1, *[1] * 1000), "tanh", C_W=0.95), [[1.0]], layers=[300, 600, 1000])
    K = [theory.layer(l).K.item() for l in (300, 600, 1000)]
    assert 300 / math.log(K[0] / K[1]) == pytest.approx(length, rel=LENGTH)
    assert 400 / math.log(K[1] / K[2]) == pytest.approx(length, rel=LENGTH)


def test_above_criticality_nearby_inputs_separate_at_the_predicted_correlation_length():
    """Inputs 1e-5 apart in angle, once their norm has settled."""
    diagram = fw.critical.phase_diagram("tanh", [0.0], [1.5])
    length = diagram.correlation_length_perp.item()
    assert diagram.region.item() == "chaotic"
    X = math.sqrt(2) * np.asarray([[math.cos(a), math.sin(a)] for a in (0.5, 0.50001)])
    theory = fw.solve(fw.MLP((2, *[1] * 100), "tanh", C_W=1.5), X, order=0, layers=[30, 100])
    apart = [np.asarray([1, -1]) @ theory.layer(l).K @ [1, -1] for l in (30, 100)]
    assert 70 / math.log(apart[1] / apart[0]) == pytest.approx(length, rel=LENGTH)
