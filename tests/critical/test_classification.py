"""From an activation to its critical point: printed constants, closed forms, limits, and bad input.

Criteria: constants to the digits printed, closed forms 1e-12, integrals in 30 digits 1e-11, roots 1e-9.
"""

import math
import warnings

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from helpers.problems import ACTIVATIONS

import finitewidth as fw
from finitewidth.critical.activations import explanation, half_stable
from finitewidth.critical.activations.onset import Onset
from finitewidth.gaussian.two_legs.leg_table import leg_table
from finitewidth.gaussian.two_legs.one_leg import LegAverages, curvatures
from finitewidth.network.layers.activation import as_activation

EXACT, INTEGRAL, ROOT = 1e-12, 1e-11, 1e-9


def sinh(z):
    return jnp.sinh(z)


def bump(z):
    return z * jnp.exp(-z * z)


def tilted(z):
    return jnp.tanh(z) + 0.3 * z * z


def gelu_by_tanh(z):
    return jax.nn.gelu(z, approximate=True)


# --- susceptibilities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softplus", "swish(1.5)", "elu", "selu"])
@pytest.mark.parametrize("K", [1e-4, 40.0])
def test_susceptibilities_are_integrals_against_hermite_polynomials(name, K):
    """chi_parallel = C_W <sigma^2 (x^2 - 1)>/2K, an integral of sigma alone, in 30 digits."""
    function, kinks = ACTIVATIONS[name].function, ACTIVATIONS[name].kinks
    with mpmath.workdps(30):
        root = mpmath.sqrt(K)
        cuts = sorted({-14, -6, -3, -1, 0, 1, 3, 6, 14, *(float(k / root) for k in kinks)})
        weight = lambda x: mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)  # noqa: E731
        slope = lambda z: mpmath.diff(function, z, h=mpmath.mpf(10) ** -12)  # noqa: E731
        growth = mpmath.quad(lambda x: function(root * x) ** 2 * (x * x - 1) * weight(x), cuts) / (2 * K)
        square = mpmath.quad(lambda x: slope(root * x) ** 2 * weight(x), cuts)
    susceptibilities = fw.critical.susceptibilities(name, K, C_W=1.3)
    assert susceptibilities.parallel == pytest.approx(1.3 * float(growth), rel=INTEGRAL)
    assert susceptibilities.perpendicular == pytest.approx(1.3 * float(square), rel=INTEGRAL)


def test_hardtanh_counts_the_delta_functions_of_its_kinks():
    K = np.asarray([1e-3, 0.1, 1.0, 30.0, 1e4])
    inside = np.asarray([math.erf(1 / math.sqrt(2 * k)) for k in K])
    susceptibilities = fw.critical.susceptibilities("hardtanh", K, C_W=2.0)
    np.testing.assert_allclose(susceptibilities.perpendicular, 2 * inside, rtol=EXACT)
    parallel = 2 * (inside - 2 * np.exp(-1 / (2 * K)) / np.sqrt(2 * np.pi * K))
    np.testing.assert_allclose(susceptibilities.parallel, parallel, rtol=1e-11, atol=1e-15)


def test_sine_at_any_variance_is_its_closed_form():
    K = np.geomspace(1e-8, 1e8, 33)
    susceptibilities = fw.critical.susceptibilities("sin", K)
    np.testing.assert_allclose(susceptibilities.parallel, np.exp(-2 * K), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(susceptibilities.perpendicular, (1 + np.exp(-2 * K)) / 2, rtol=EXACT)


def test_susceptibilities_at_zero_are_limits_from_above():
    for name in ("relu", "selu", "elu", "tanh", "hardtanh", "softplus", "polynomial(0.5, 1, 2)"):
        zero, near = fw.critical.susceptibilities(name, 0.0), fw.critical.susceptibilities(name, 1e-20)
        assert zero.parallel == pytest.approx(near.parallel, rel=1e-8)
        assert zero.perpendicular == pytest.approx(near.perpendicular, rel=1e-8)
    raised = fw.Activation(lambda z: 1 + jnp.abs(z), kinks=(0.0,))
    assert fw.critical.susceptibilities(raised, 0.0).parallel == math.inf


def test_susceptibilities_keep_the_shape_of_K():
    assert isinstance(fw.critical.susceptibilities("tanh", 0.5).parallel, float)
    assert fw.critical.susceptibilities("tanh", np.full((2, 3), 0.5)).perpendicular.shape == (2, 3)


@pytest.mark.parametrize("K", [0.3, 3.0])
def test_second_derivatives_of_a_smooth_activation_agree_with_those_by_parts(K):
    """<(sigma^2)''''>/4 and <sigma''^2 + sigma' sigma'''> of sin, whose averages are exponentials."""
    curves = curvatures(as_activation("sin"), K)
    assert curves.square == pytest.approx(-2 * math.exp(-2 * K), rel=1e-10)
    assert curves.slope == pytest.approx(-math.exp(-2 * K), rel=1e-10)


# --- the classes -----------------------------------------------------------------------------------------

CLASSES = {
    "linear": "scale-invariant",
    "relu": "scale-invariant",
    "leaky_relu(0.2)": "scale-invariant",
    "scale_invariant(1.5, -0.5)": "scale-invariant",
    "perceptron": "none",
    "sigmoid": "none",
    "softplus": "none",
    "monomial(3)": "none",
    "monomial(2)": "none",
    "tanh": "K*=0",
    "sin": "K*=0",
    "erf": "K*=0",
    "elu": "K*=0",
    "elu(0.5)": "K*=0",
    "selu": "K*=0",
    "hardtanh": "K*=0",
    "polynomial(0, 1, 0, -0.2)": "K*=0",
    "polynomial(0, 1, 0, 0.2)": "unstable",
    "swish": "half-stable",
    "gelu": "half-stable",
    "mish": "half-stable",
}


@pytest.mark.parametrize("name", CLASSES)
def test_named_activations_fall_into_their_classes(name):
    point = fw.criticality(name)
    assert point.universality_class == CLASSES[name]
    assert point.converged
    assert (point.C_W is None) == (CLASSES[name] == "none")
    if point.C_W is not None:
        assert point.residual < ROOT
        chi = fw.critical.susceptibilities(
            name, point.K_star if point.K_star is not None else 0.37, point.C_W
        )
        assert chi.parallel == pytest.approx(1.0, abs=ROOT)
        assert chi.perpendicular == pytest.approx(1.0, abs=ROOT)


def test_every_named_activation_is_classified():
    for name in fw.activations():
        if name not in ("scale_invariant", "polynomial"):  # these need parameters
            assert fw.criticality(name).universality_class in ("none", *set(CLASSES.values()))


@pytest.mark.parametrize(
    "function, kind, C_W",
    [
        (sinh, "unstable", 1.0),
        (bump, "K*=0", 1.0),
        (tilted, "K*=0", 1.0),
        (lambda z: z + 0.1 * jnp.sin(z), "K*=0", 1 / 1.21),
        (lambda z: jnp.tanh(100 * z), "K*=0", 1e-4),
        (lambda z: 2.0 * jax.nn.relu(z), "scale-invariant", 0.5),
        (gelu_by_tanh, "half-stable", 1.98288824),
        (lambda z: 0.0 * z, "none", None),
    ],
)
def test_functions_of_a_user_fall_into_their_classes(function, kind, C_W):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fw.warnings.KinkWarning)
        point = fw.criticality(function)
    assert (point.universality_class, point.converged) == (kind, True)
    assert point.C_W is None if C_W is None else point.C_W == pytest.approx(C_W, rel=1e-8)


def test_scale_invariant_constants():
    point = fw.criticality("leaky_relu(0.2)")
    assert point.constants["A_2"] == pytest.approx((1 + 0.04) / 2, rel=EXACT)
    assert point.constants["A_4"] == pytest.approx((1 + 0.0016) / 2, rel=EXACT)
    assert point.constants["rho"] == pytest.approx(0.8**2 / 1.04 / math.pi, rel=EXACT)
    assert (point.C_b, point.K_star, point.stable) == (0.0, None, True)
    assert point.C_W == pytest.approx(2 / 1.04, rel=EXACT)


@pytest.mark.parametrize(
    "activation, a_1, b_1",
    [
        ("tanh", -2.0, -2.0),
        ("sin", -1.0, -1.0),
        ("erf", -2.0, -2.0),
        (tilted, -1.73, -1.64),
        (bump, -6.0, -6.0),
    ],
)
def test_constants_and_exponents_at_zero(activation, a_1, b_1):
    """a_1 = sigma_3/sigma_1 + (3/4)(sigma_2/sigma_1)^2, b_1 = sigma_3/sigma_1 + (sigma_2/sigma_1)^2."""
    point = fw.criticality(activation)
    assert point.constants["a_1"] == pytest.approx(a_1, rel=1e-11)
    assert point.constants["b_1"] == pytest.approx(b_1, rel=1e-11)
    assert point.exponents["p_perp"] == pytest.approx(b_1 / a_1, rel=1e-11)
    assert point.exponents["p_0"] == 1.0
    assert point.exponents["p_Theta"] == pytest.approx(b_1 / a_1 - 1, abs=1e-11)


def test_gelu_is_half_stable_at_its_printed_point():
    point = fw.criticality("gelu")
    assert point.K_star == pytest.approx((3 + math.sqrt(17)) / 2, rel=ROOT)
    assert f"{point.C_W:.8f} {point.C_b:.8f}" == "1.98305826 0.17292239"
    assert (point.attracts_from, point.stable) == ("above", False)
    assert "attracts from above" in point.explanation
    assert point.constants["second_derivative_of_kernel_map"] < 0
    assert point.other_fixed_point == pytest.approx(3.035, abs=5e-4)


def test_swish_is_half_stable_at_its_printed_point():
    point = fw.criticality("swish")
    assert f"{point.K_star:.7f} {point.C_W:.8f} {point.C_b:.8f}" == "14.3201736 1.98800468 0.55514317"
    assert point.attracts_from == "below" and "attracts from below" in point.explanation
    assert point.constants["second_derivative_of_kernel_map"] > 0
    assert point.other_fixed_point == pytest.approx(14.59, abs=5e-3)


@pytest.mark.parametrize("activation, offset", [("gelu", 0.05), ("swish", 0.1)])
def test_a_half_stable_point_attracts_from_the_side_it_says(activation, offset):
    """One layer of fw.solve moves K on both sides the same way, by half the second derivative x offset^2."""
    point = fw.criticality(activation)
    bend = point.constants["second_derivative_of_kernel_map"]
    moves = []
    for side in (1, -1):
        K = point.K_star + side * offset
        net = fw.MLP((1, 1, 1), activation, C_b=point.C_b, C_W=point.C_W)
        x = math.sqrt((K - point.C_b) / point.C_W)
        moves.append(fw.solve(net, [[x]], order=0).output.K.item() - K)
    assert all(np.sign(move) == {"above": -1, "below": 1}[point.attracts_from] for move in moves)
    assert np.mean(moves) == pytest.approx(bend / 2 * offset**2, rel=0.01)  # cubic terms cancel


def test_a_stretched_swish_has_its_point_where_the_stretch_puts_it():
    """z sigmoid(beta z) is swish(beta z)/beta, so K* and C_b scale as 1/beta^2, over twelve decades."""
    whole = fw.criticality("swish")
    for beta in (1e-3, 1e3):
        point = fw.criticality(f"swish({beta})")
        assert point.K_star == pytest.approx(whole.K_star / beta**2, rel=1e-7)
        assert point.C_b == pytest.approx(whole.C_b / beta**2, rel=1e-6)
        assert point.C_W == pytest.approx(whole.C_W, rel=1e-9)
        assert point.attracts_from == "below"


def test_a_parabola_has_its_point_where_algebra_puts_it():
    """z^2 - 1: <sigma sigma''> = 2 (K - 1), <sigma'^2> = 4K, <sigma^2> = 3K^2 - 2K + 1."""
    point = fw.criticality("polynomial(-1, 0, 1)")
    assert (point.K_star, point.C_W, point.C_b) == pytest.approx((1.0, 0.25, 0.5), rel=1e-11)
    assert point.constants["second_derivative_of_kernel_map"] == pytest.approx(1.5, rel=1e-10)
    assert point.constants["derivative_of_chi_perp"] == pytest.approx(1.0, rel=1e-10)
    assert point.other_fixed_point is None


def test_sigmoid_and_softplus_are_told_what_helps():
    sigmoid, softplus = fw.criticality("sigmoid"), fw.criticality("softplus")
    assert "negative for every K" in sigmoid.explanation and "positive for every K" in softplus.explanation
    assert sigmoid.remedy.universality_class == "K*=0"
    assert sigmoid.remedy.C_W == pytest.approx(16.0, rel=EXACT)
    assert "C_W = 16." in sigmoid.explanation
    assert softplus.remedy.universality_class == "unstable"
    assert "use gelu or swish" in softplus.explanation


def test_what_grows_is_said_of_unstable_activations():
    assert "signals grow with depth without bound" in fw.criticality(sinh).explanation
    nothing = half_stable.Search((), (), 1e-10, 1e10, 0, True)
    text = explanation.unstable(Onset(1.0, 1.0, 0.5, 0.5, False), 2.5, 0.9, nothing)
    assert "to K = 2.5, where chi_perpendicular is 0.9 and nearby inputs merge exponentially" in text


def test_a_basin_that_ends_is_reported():
    """z - z^3/5 at C_W = 1: K' = K - 6/5 K^2 + 3/5 K^3, so K = 2 is an unstable fixed point."""
    point = fw.criticality("polynomial(0, 1, 0, -0.2)")
    assert point.other_fixed_point == pytest.approx(2.0, rel=1e-9)
    assert "only from below K = 2" in point.explanation


def test_the_next_order_is_looked_at_where_a_1_vanishes():
    falls, grows = (
        fw.criticality("polynomial(0, 1, 0, 0, 0, -0.1)"),
        fw.criticality("polynomial(0, 1, 0, 0, 0, 0.1)"),
    )
    assert falls.universality_class == "K*=0" and "a_1 = 0" in falls.explanation
    assert falls.exponents["p_0"] == 0.5
    assert falls.exponents["p_perp"] == pytest.approx(0.5, abs=1e-5)
    assert grows.universality_class == "unstable"
    assert "linear around zero" in fw.criticality("hardtanh").explanation


# --- the search ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["tanh", "sin", "erf", "hardtanh", "elu", "selu", "sigmoid", "softplus", "monomial(3)"]
)
def test_no_root_is_invented(name):
    activation = as_activation(name)
    point = half_stable.search(activation, leg_table(activation))
    assert point.points == point.impossible == ()
    assert point.certain and point.sign != 0


def test_a_search_that_was_cut_short_is_not_called_empty():
    """exp(z) overflows its averages beyond K = 200, and sigma sigma'' changes sign with z."""
    point = fw.criticality(lambda z: jnp.exp(z) + 2 + 0.3 * jnp.sin(5 * z))
    assert (point.universality_class, point.converged) == ("none", False)
    assert "search failed beyond K = " in point.explanation


def test_a_point_that_needs_a_negative_variance_is_named_and_refused():
    point = fw.criticality(lambda z: jax.nn.gelu(z, approximate=False) + 0.1)
    assert point.universality_class == "none"
    assert "only where C_b would be negative" in point.explanation


def test_fast_oscillations_do_not_deceive_the_quadrature():
    """exp(z) sin(z) has <sigma sigma''> = sin(4K) beside <sigma'^2> near exp(2K): rules can alias."""
    activation = fw.Activation(lambda z: jnp.exp(z) * jnp.sin(z))
    table = leg_table(activation)
    K, averages = table.K, table.averages
    off = np.abs(averages.curvature - np.sin(4 * K)) / (averages.slope + np.abs(averages.curvature))
    assert (off <= averages.error).all()


def synthetic(monkeypatch, bend):
    """A search in which <sigma sigma''>/<sigma'^2> is a given function of log K."""

    def averages(activation, K):
        one = np.ones_like(K)
        return LegAverages(one / 10, one, bend(np.log(K)), 1e-13 * one)

    monkeypatch.setattr(half_stable, "leg_averages", averages)
    monkeypatch.setattr(half_stable, "sign_for_every_variance", lambda activation: 0)
    table = leg_table(as_activation("tanh"))
    changed = type(table)(
        table.activation, table.K, averages(None, table.K), True, table.zero, table._splines
    )
    return half_stable.search(table.activation, changed)


def test_two_roots_between_neighbours_of_the_grid_are_found(monkeypatch):
    step = math.log(10) / 32
    for shift in (0.1, 0.5, 0.93):
        middle, half = 1.0 + shift * step, step / 9
        value = synthetic(monkeypatch, lambda u, m=middle, h=half: (u - m) ** 2 - h**2)
        roots = np.log([point.K for point in value.points])
        np.testing.assert_allclose(roots, [middle - half, middle + half], atol=1e-9)


def test_roots_at_both_ends_of_the_range_are_found(monkeypatch):
    low, high = math.log(1.3e-10), math.log(0.8e10)
    value = synthetic(monkeypatch, lambda u: (u - low) * (u - 2.0) * (u - high))
    roots = sorted(np.log([point.K for point in (*value.points, *value.impossible)]))
    np.testing.assert_allclose(roots, [low, 2.0, high], atol=1e-9)


def test_noise_around_zero_is_no_root(monkeypatch):
    point = synthetic(monkeypatch, lambda u: 1e-14 * np.sin(1e3 * u))
    assert point.points == point.impossible == ()


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::finitewidth.warnings.KinkWarning")
@pytest.mark.parametrize(
    "function, complaint",
    [
        (lambda z: jnp.sqrt(z), "returns NaN"),
        (lambda z: z / jnp.sum(z), "must be elementwise"),
        (lambda z: jnp.where(z > 0.5, 1.0, 0.0), "is discontinuous at z = 0.5"),
        (lambda z: jnp.exp(z * z), "grows too fast for a Gaussian"),
        ("tanhh", "did you mean 'tanh'"),
    ],
)
def test_bad_activations_are_refused_with_the_reason(function, complaint):
    with pytest.raises(ValueError, match=complaint):
        fw.criticality(function)


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("tanh", -1.0), "K must be finite and at least 0, got -1"),
        (("tanh", [0.1, math.nan]), "K must be finite"),
        (("tanh", "much"), "K must be a number"),
        (("tanh", 1.0, math.inf), "C_W must be finite"),
        (("perceptron", 1.0), "is discontinuous"),
        ((sinh, 1e9), "grows too fast to be averaged"),
    ],
)
@pytest.mark.filterwarnings("ignore::finitewidth.warnings.KinkWarning")
def test_bad_questions_about_susceptibilities_are_refused(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        fw.critical.susceptibilities(*arguments)
