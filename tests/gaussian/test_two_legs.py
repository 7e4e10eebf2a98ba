"""Two-leg Gaussian averages: against a table of 30 digits, against each other, and their symmetries."""

import functools
import json
import math
from decimal import Decimal, localcontext
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.paths import DATA
from helpers.problems import ACTIVATIONS, also_long, as_for_users, refused
from hypothesis import given, settings
from hypothesis import strategies as st

import finitewidth as fw
from finitewidth.gaussian.two_legs import series_legs
from finitewidth.gaussian.two_legs.averages import relative_two_legs, two_legs
from finitewidth.gaussian.two_legs.closed_averages import has_closed_form
from finitewidth.gaussian.two_legs.legs import Side
from finitewidth.gaussian.two_legs.orders import existing
from finitewidth.gaussian.two_legs.scales import by_quadrature
from finitewidth.gaussian.two_legs.scales import scale as scale_of
from finitewidth.gaussian.two_legs.series_legs import SeriesLegs, widest_variance
from finitewidth.network.layers.activation import as_activation

TOLERANCE = 1e-12  # of an average, in units of its scale sqrt(<(s^(a)_1)^2> <(s^(b)_2)^2>)
TINY = 1e-100  # scales below this are compared absolutely: a kink out of the reach of z
SEMIDEFINITE = 1e-12  # how far below zero an eigenvalue may be, in units of samples times largest variance
TABLE = json.loads((DATA / "two_leg_averages.json").read_text())["entries"]
TABLED = sorted({entry["activation"] for entry in TABLE})

ALL_ORDERS = tuple((a, b) for a in range(6) for b in range(a + 1))


def orders_of(name: str, highest: int = 5) -> tuple[tuple[int, int], ...]:
    """All (a, b) with a >= b whose average exists; the others are its transposes."""
    jump = ACTIVATIONS[name].jump_order
    existing = tuple((a, b) for a, b in ALL_ORDERS if a <= jump or (a == jump + 1 and b < jump))
    return tuple(pair for pair in existing if max(pair) <= highest)


# --- the table of 30 digits --------------------------------------------------------------------------


class Compared(NamedTuple):
    """An average of the table and what the library makes of it."""

    K: tuple[float, float, float]
    orders: tuple[int, int]
    difference: float
    scale: float
    reported: float


@functools.cache
def compared(name: str, tolerance: float = TOLERANCE, share: int = 5) -> list[Compared]:
    activation = as_activation(name)
    by_kernel: dict[tuple, list] = {}
    for entry in TABLE:
        if entry["activation"] == name:
            by_kernel.setdefault(tuple(entry["K"]), []).append(entry)
    results = []
    # every fifth kernel, others for the next activation: between them all kernels have their turn
    turn = TABLED.index(name) % share
    for (k_11, k_12, k_22), entries in list(by_kernel.items())[turn::share]:
        K = np.array([[k_11, k_12], [k_12, k_22]])
        with as_for_users():  # checks of types would double the time of many small calls
            averages = two_legs(activation, K, orders_of(name), tolerance)
        results += [compare(activation, averages, entry) for entry in entries]
    return results


def compare(activation, averages, entry) -> Compared:
    K, (a, b) = tuple(entry["K"]), entry["orders"]
    average = averages[max(a, b), min(a, b)]
    value = average.value[(0, 1) if a >= b else (1, 0)]
    scale = float(entry["scale"])
    if max(a, b) > activation.jump_order:  # a delta function has no mean square of its own
        scale = scale_of(activation, np.array([K[0]]), np.array([K[2]]), (a, b)).item()
    with localcontext(prec=60):
        difference = float(abs(Decimal(float(value)) - Decimal(entry["value"])))
    return Compared(K, (a, b), difference, scale, average.error)


def test_the_table_holds_every_activation_order_and_kind_of_correlation():
    assert {name.split("(")[0] for name in TABLED} == set(fw.activations()) - {"silu"}
    for name in TABLED:
        entries = [entry for entry in TABLE if entry["activation"] == name]
        assert {tuple(sorted(entry["orders"], reverse=True)) for entry in entries} == set(orders_of(name))
        kernels = {tuple(entry["K"]) for entry in entries}
        assert kernels >= {(1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1 - 1e-12, 1.0), (1e6, 9e5, 1e6)}


@pytest.mark.parametrize("name", TABLED)
def test_averages_are_exact_and_reported_errors_not_below_the_true_ones(name):
    """One test for both: workers then compute an activation's averages once."""
    assert_exact(compared(name))


@pytest.mark.long
@pytest.mark.parametrize("name", TABLED)
def test_the_whole_table_is_reproduced(name):
    assert_exact(compared(name, share=1))


def assert_exact(value: list[Compared]) -> None:
    assert not [c for c in value if not c.difference <= max(TOLERANCE * c.scale, TINY)]
    assert not [c for c in value if not c.difference <= max(c.reported, TINY)]


def test_a_loose_tolerance_is_kept_and_reported():
    for c in compared("elu", 1e-6):
        assert c.difference <= max(1e-6 * c.scale, TINY)
        assert c.difference <= max(c.reported, TINY)


@pytest.mark.parametrize("name", ["relu", "leaky_relu(0.2)", "scale_invariant(1.5, -0.5)"])
def test_a_slope_at_zero_is_that_from_the_left(name):
    """A first leg without variance: <sigma'(0) sigma(z)> = a_minus (a_plus - a_minus) sqrt(K / (2 pi))."""
    a_plus, a_minus = ACTIVATIONS[name].slopes
    average = two_legs(as_activation(name), np.array([[0.0, 0.0], [0.0, 1.7]]), ((1, 0),), TOLERANCE)[1, 0]
    exact = a_minus * (a_plus - a_minus) * math.sqrt(1.7 / (2 * math.pi))
    np.testing.assert_allclose(average.value[0, 1], exact, rtol=1e-12)


# --- one way against another -------------------------------------------------------------------------


def of_series(activation, K: np.ndarray, orders):
    """Averages of all pairs and their relative error by the Hermite series, closed form or not."""
    orders, variances = existing(activation, orders), np.diag(K)[None].copy()
    legs = SeriesLegs(activation, orders, variances, widest_variance(activation, variances), TOLERANCE)
    same = np.eye(len(K), dtype=bool)[None, None]
    sides = Side(legs, slice(0, len(K))), Side(legs, slice(0, len(K)), along_columns=True)
    values, error = series_legs.average(*sides, K[None, None], same)
    return {pair: value[0, 0] for pair, value in zip(orders, values, strict=True)}, error


def of_quadrature(activation, K: np.ndarray, orders):
    """The same by quadrature for every pair: slow, and right wherever the other ways might not be."""
    orders, variances = existing(activation, orders), np.diag(K)
    sides = (np.broadcast_to(side, K.shape).ravel() for side in (variances[:, None], variances))
    averages = by_quadrature(activation, *sides, K.ravel(), orders, TOLERANCE)
    values = (value.reshape(K.shape) for value in averages.values)
    return dict(zip(orders, values, strict=True)), averages.error


WAYS = {"chosen": relative_two_legs, "series": of_series, "quadrature": of_quadrature}


def kernel_of(X: np.ndarray, size: float = 1.0, bias: float = 0.0) -> np.ndarray:
    return size * X @ X.T / X.shape[1] + bias


# generic, repeated, opposite, nearly parallel and vanishing inputs
DIFFICULT = np.array([[1.0, 0.4], [-0.2, 0.9], [1.0, 0.4], [-1.0, -0.4], [1.0, 0.4 + 1e-7], [0.0, 0.0]])
GENERIC = DIFFICULT[:5]  # a vanishing input sits on the kink, where a derivative is a convention


def scales(activation, K: np.ndarray, pair) -> np.ndarray:
    first, second = (side.ravel() for side in np.broadcast_arrays(np.diag(K)[:, None], np.diag(K)[None, :]))
    return scale_of(activation, first, second, pair).reshape(K.shape)


def assert_agree(name, one, other, K, orders):
    activation = as_activation(name)
    (first, _), (second, _) = (WAYS[way](activation, K, orders) for way in (one, other))
    for pair in orders:
        limit = 2 * TOLERANCE * scales(activation, K, pair) + TINY
        assert (np.abs(first[pair] - second[pair]) <= limit).all(), pair


CLOSED_FORMS = (
    "linear",
    "relu",
    "leaky_relu(0.2)",
    "scale_invariant(1.5, -0.5)",
    "perceptron",
    "sin",
    "erf",
    "gelu",
)


@pytest.mark.parametrize("name", ["relu", "sin", "erf", "gelu", *also_long(*CLOSED_FORMS[2:5], "linear")])
def test_closed_forms_agree_with_the_series_and_with_quadrature(name):
    K = kernel_of(DIFFICULT if ACTIVATIONS[name].jump_order > 5 else GENERIC)
    assert has_closed_form(as_activation(name))
    for way in ("series", "quadrature"):
        assert_agree(name, "chosen", way, K, orders_of(name, highest=2))


@pytest.mark.parametrize("name", ["tanh", "swish", "elu", "hardtanh", "monomial(3)"])
def test_the_series_agrees_with_quadrature(name):
    K = kernel_of(DIFFICULT if ACTIVATIONS[name].jump_order > 5 else GENERIC, size=3.0)
    assert_agree(name, "series", "quadrature", K, orders_of(name, highest=3))


@pytest.mark.long
@pytest.mark.parametrize("name", ["tanh", "elu", "hardtanh"])
@pytest.mark.parametrize("variance", [0.03, 0.3, 10.0])
def test_the_series_is_exact_and_knows_its_error_next_to_correlation_one(name, variance):
    """Hundreds of terms: Hermite polynomials of high order need a fine grid."""
    angles = np.arccos([1.0, 1.0, 0.9999, 0.999, 0.995, 0.99])
    K = variance * np.cos(angles[:, None] - angles)
    activation, orders = as_activation(name), ((0, 0), (1, 1))
    (exact, exact_error), (averages, error) = (
        way(activation, K, orders) for way in (of_quadrature, of_series)
    )
    for pair in orders:
        difference, scale = np.abs(averages[pair] - exact[pair]), scales(activation, K, pair)
        assert (difference <= 2 * TOLERANCE * scale).all(), pair
        assert difference.max() <= (error + exact_error) * scale.max(), pair


@pytest.mark.parametrize("name", ["tanh", "swish", "mish", "elu", "hardtanh", "monomial(3)"])
def test_closed_forms_are_not_invented(name):
    assert not has_closed_form(as_activation(name))


# functions written by a user, and the names of the same functions
COPIES = {
    "tanh": (lambda z: jnp.tanh(z), ()),
    "softplus": (lambda z: jnp.logaddexp(z, 0.0), ()),
    "gelu": (lambda z: jax.nn.gelu(z, approximate=False), ()),
    "relu": (lambda z: jnp.maximum(z, 0.0), (0.0,)),
    "elu": (lambda z: jax.nn.elu(z), (0.0,)),
    "hardtanh": (lambda z: jax.nn.hard_tanh(z), (-1.0, 1.0)),
    "perceptron": (lambda z: jnp.heaviside(z, 0.0), (0.0,)),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_users_copy_agrees_with_the_named_activation(name):
    function, kinks = COPIES[name]
    named, copy = as_activation(name), fw.Activation(function, kinks=kinks)
    orders = orders_of(name, highest=2)
    K = kernel_of(DIFFICULT[1:], size=2.0, bias=0.1)
    exact, averages = (two_legs(activation, K, orders) for activation in (named, copy))
    for pair in orders:
        difference = np.abs(exact[pair].value - averages[pair].value)
        assert (difference <= 2 * TOLERANCE * scales(named, K, pair)).all(), pair


def test_an_undeclared_kink_is_averaged_as_a_kink():
    with pytest.warns(fw.warnings.KinkWarning):
        mine = fw.Activation(lambda z: jnp.maximum(z, 0))
    K = kernel_of(GENERIC)
    averages = two_legs(mine, K, orders_of("relu"))
    exact = two_legs("relu", K, orders_of("relu"))
    for pair in orders_of("relu"):
        np.testing.assert_allclose(averages[pair].value, exact[pair].value, rtol=TOLERANCE, atol=TOLERANCE)


# --- identities --------------------------------------------------------------------------------------

SMOOTH_ORDERS = ((0, 0), (1, 1), (1, 0), (0, 1), (2, 0), (0, 2), (3, 1), (1, 3))
KINKED_ORDERS = ((0, 0), (1, 1), (1, 0), (0, 1), (2, 0), (0, 2))
HYPOTHESIS = settings(deadline=None, derandomize=True, max_examples=10)
FACES = ["tanh", "gelu", "relu", "elu"]  # series and closed form, smooth and kinked


@st.composite
def inputs(draw):
    """Four inputs in the plane, some of them repeated, parallel, opposite or zero, of any size."""
    point = st.tuples(st.floats(-2, 2), st.floats(-2, 2)).map(np.array)
    points = [draw(point), draw(point)]
    for _ in range(2):
        other = draw(st.sampled_from(points)) * draw(st.sampled_from([1.0, -1.0, 2.0, -0.5, 0.0, 1 + 1e-9]))
        points.append(draw(st.just(other) | point))
    X = np.array(points)
    X[np.abs(X) < 1e-100] = 0.0  # whose squares would be zero, and products with others not: no covariance
    return X * draw(st.sampled_from([1.0, 1e-6, 30.0]))


@pytest.mark.long
@pytest.mark.parametrize("name", FACES)
@HYPOTHESIS
@given(X=inputs())
def test_legs_may_be_exchanged(name, X):
    """<s^(a)_1 s^(b)_2> = <s^(b)_2 s^(a)_1>."""
    activation, K = as_activation(name), kernel_of(X)
    orders = SMOOTH_ORDERS if activation.is_smooth else KINKED_ORDERS
    averages = two_legs(activation, K, orders)
    for a, b in orders:
        difference = np.abs(averages[a, b].value - averages[b, a].value.T)
        assert (difference <= TOLERANCE * scales(activation, K, (a, b)) + TINY).all()


@pytest.mark.parametrize("name", FACES)
@HYPOTHESIS
@given(X=inputs(), bias=st.sampled_from([0.0, 0.1]))
def test_averages_of_one_function_are_positive_semidefinite(name, X, bias):
    for average in two_legs(name, kernel_of(X, bias=bias), ((0, 0), (1, 1))).values():
        symmetric = (average.value + average.value.T) / 2
        lowest = np.linalg.eigvalsh(symmetric).min()
        assert lowest >= -SEMIDEFINITE * len(X) * np.diag(symmetric).max()


@pytest.mark.parametrize("name", ["tanh", "gelu", "elu", "relu", "hardtanh"])
def test_the_mean_square_changes_with_the_variance_as_the_derivatives_say(name):
    """d<s^2>/dK = <s'^2> + <s s''>, by a symmetric difference that is good to 1e-7."""
    activation, step = as_activation(name), 1e-5
    for variance in (1e-4, 0.3, 40.0):
        K = variance * np.array([1.0, 1 + step, 1 - step])
        averages = two_legs(activation, np.sqrt(np.outer(K, K)), ((0, 0), (1, 1), (2, 0)))
        squares, slopes, bends = (np.diag(averages[pair].value) for pair in ((0, 0), (1, 1), (2, 0)))
        by_difference = (squares[1] - squares[2]) / (2 * step * variance)
        assert abs(by_difference - slopes[0] - bends[0]) <= 1e-7 * squares[0] / variance


def test_averages_scale_with_a_scale_invariant_activation():
    K = kernel_of(GENERIC)
    for factor in (2.0**-400, 2.0**-40, 2.0**40, 2.0**400):  # exact; products of two entries stay in range
        small, large = (two_legs("leaky_relu(0.2)", k) for k in (K, factor * K))
        np.testing.assert_allclose(large[0, 0].value, factor * small[0, 0].value, rtol=TOLERANCE)
        np.testing.assert_allclose(large[1, 1].value, small[1, 1].value, rtol=TOLERANCE)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if ACTIVATIONS[name].jump_order > 5])
def test_zero_variance_puts_both_legs_at_zero(name):
    at_zero = [float(d) for d in as_activation(name).derivatives(jnp.zeros(()), 5)]
    averages = two_legs(name, np.zeros((2, 2)), ((0, 0), (1, 0), (1, 1), (3, 1)))
    for (a, b), average in averages.items():
        np.testing.assert_allclose(average.value, at_zero[a] * at_zero[b], rtol=TOLERANCE, atol=TOLERANCE)


def test_a_larger_kernel_gives_the_averages_of_its_parts():
    """Tiles and padding change nothing."""
    X = np.random.default_rng(3).standard_normal((300, 5))
    K = kernel_of(X)
    whole = two_legs("tanh", K)
    chosen = np.ix_(range(0, 300, 47), range(0, 300, 47))
    part = two_legs("tanh", K[chosen])
    for pair in part:
        np.testing.assert_allclose(whole[pair].value[chosen], part[pair].value, rtol=0, atol=2 * TOLERANCE)


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, orders, order, at",
    [
        ("relu", (2, 1), 1, "0"),
        ("relu", (1, 2), 1, "0"),
        ("relu", (2, 2), 1, "0"),
        ("relu", (3, 0), 1, "0"),
        ("hardtanh", (2, 1), 1, "-1"),
        ("elu", (3, 2), 2, "0"),
        ("elu", (4, 0), 2, "0"),
        ("perceptron", (1, 0), 0, "0"),
        ("perceptron", (1, 1), 0, "0"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_averages_that_do_not_exist_are_refused_by_name(way, name, orders, order, at):
    message = (
        rf"the average of derivatives \({orders[0]}, {orders[1]}\) does not exist for activation '{name}'.* "
        rf"derivative of order {order} jumps at z = {at}; use a smooth"
    )
    with refused(message):
        WAYS[way](as_activation(name), np.eye(2), (orders,))


@pytest.mark.parametrize("orders", [(6, 0), (0, 6), (-1, 0), (2, -3)])
def test_orders_outside_0_to_5_are_refused(orders):
    with refused(rf"orders must lie between 0 and 5, got \({orders[0]}, {orders[1]}\)"):
        two_legs("tanh", np.eye(2), (orders,))


def test_broken_orders_are_refused():
    with refused(r"orders must be pairs of whole numbers, got \(1.7, 0\)"):
        two_legs("tanh", np.eye(2), ((1.7, 0),))


@pytest.mark.parametrize(
    "K, message",
    [
        (np.array([[1.0, 5.0], [5.0, 1.0]]), "K is no covariance matrix"),
        (np.array([[1.0, 0.5], [-0.3, 1.0]]), "K is no covariance matrix"),
        (np.ones((2, 3)), r"K must be a square matrix, got shape \(2, 3\); pass one row for each sample"),
        (np.ones(4), r"K must be a square matrix, got shape \(4,\)"),
        (np.ones((2, 2, 2)), r"K must be a square matrix, got shape \(2, 2, 2\)"),
        (np.array([[1.0, math.nan], [math.nan, 1.0]]), "K has an entry that is NaN or infinite"),
        (np.array([[1.0, 0.0], [0.0, math.inf]]), "K has an entry that is NaN or infinite"),
        (np.diag([1.0, -0.5]), "K has the negative variance -0.5; pass a covariance matrix"),
    ],
)
def test_matrices_that_are_no_kernels_are_refused(K, message):
    with refused(message):
        two_legs("tanh", K)


def test_covariances_beyond_the_variances_by_rounding_are_those_of_parallel_legs():
    exact = two_legs("tanh", np.ones((2, 2)))
    beyond = two_legs("tanh", np.array([[1.0, 1 + 1e-15], [1 + 1e-15, 1.0]]))
    for pair in exact:
        np.testing.assert_allclose(beyond[pair].value, exact[pair].value, rtol=TOLERANCE)


def test_growth_that_no_gaussian_tames_is_refused():
    mine = fw.Activation(lambda z: jnp.exp(z * z / 4), name="mine")
    assert two_legs(mine, np.full((1, 1), 0.1))[0, 0].value == pytest.approx(1 / math.sqrt(0.9), 1e-10)
    with refused(
        "activation 'mine' grows too fast to be averaged at variance 10; lower C_W or C_b, or scale"
    ):
        two_legs(mine, np.full((1, 1), 10.0))


@pytest.mark.parametrize("variance", [50.0, 60.0, 70.0, 80.0])
@pytest.mark.parametrize("way", ["chosen", "quadrature"])
def test_a_fast_oscillation_does_not_deceive_the_error_estimate(way, variance):
    """exp(z) sin(z) is the imaginary part of exp((1 + i) z), whose averages are known."""
    activation = fw.Activation(lambda z: jnp.exp(z) * jnp.sin(z))
    K = variance * np.array([[1.0, 0.97], [0.97, 1.0]])
    together, opposite = np.exp(2j * (variance + K)), np.exp(2 * K)  # of (1 + i) z_1 +- its conjugate on z_2
    exact = (opposite - together).real / 2
    values, error = WAYS[way](activation, K, ((0, 0),))
    assert np.abs(values[0, 0] - exact).max() <= error * exact[0, 0]
    if way == "chosen":
        assert error < 1e-12
