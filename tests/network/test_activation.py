"""Activations as values: derivatives, kinks that are found, names that are understood."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIVATIONS, exact_derivatives, refused
from hypothesis import given, settings
from hypothesis import strategies as st

import finitewidth as fw
from finitewidth.gaussian.two_legs.averages import two_legs
from finitewidth.network.layers.activation import HIGHEST_DERIVATIVE, as_activation

TOLERANCE = 1e-12  # of a derivative, in units of its value plus its largest one for |z| < 4
POINTS = (-40.0, -17.3, -9.1, -4.4, -2.2, -1.3, -0.6, -0.01, 0.02, 0.4, 0.9, 1.7, 3.1, 6.6, 12.5, 40.0)
WHOLE_LINE = np.concatenate([np.linspace(-40, 40, 4001), [-800.0, 800.0, -0.0, 0.0, 1e-300, -1e-300]])


# --- derivatives -------------------------------------------------------------------------------------


@functools.cache
def found_derivatives(name: str) -> np.ndarray:
    """At POINTS, at zero and on the whole line, (order, point)."""
    z = jnp.asarray(np.concatenate([POINTS, [0.0], WHOLE_LINE]))
    return np.stack(jax.jit(lambda z: as_activation(name).derivatives(z, HIGHEST_DERIVATIVE))(z))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives_to_fifth_order_are_exact(name):
    exact = np.array([exact_derivatives(name, z) for z in POINTS]).T
    derivatives = found_derivatives(name)[:, : len(POINTS)]
    central = np.abs(exact[:, np.abs(POINTS) < 4]).max(axis=1, keepdims=True)
    assert (np.abs(derivatives - exact) <= TOLERANCE * (np.abs(exact) + central)).all()


@pytest.mark.parametrize("name", [name for name, problem in ACTIVATIONS.items() if not problem.kinks])
def test_derivatives_of_smooth_activations_are_exact_at_zero(name):
    derivatives = found_derivatives(name)[:, len(POINTS)]
    np.testing.assert_allclose(derivatives, exact_derivatives(name, 0.0), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives_are_finite_far_out(name):
    assert np.isfinite(found_derivatives(name)).all()


@pytest.mark.parametrize("name", ["tanh", "swish", "gelu", "elu"])
def test_lower_derivatives_do_not_depend_on_the_highest_asked_for(name):
    activation, z = as_activation(name), jnp.asarray(POINTS)
    lower = jax.jit(lambda z: (activation(z), *activation.derivatives(z, 2)))(z)
    exact = found_derivatives(name)[[0, 0, 1, 2], : len(POINTS)]
    np.testing.assert_allclose(lower, exact, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("highest", [-1, 6])
def test_a_derivative_order_outside_0_to_5_is_refused(highest):
    with refused(f"highest must be a derivative order from 0 to 5, got {highest}"):
        as_activation("tanh").derivatives(jnp.zeros(2), highest)


# --- class facts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, problem", ACTIVATIONS.items(), ids=ACTIVATIONS)
def test_class_facts_are_known(name, problem):
    activation = as_activation(name)
    assert activation.kinks == problem.kinks
    assert activation.jump_order == problem.jump_order
    assert activation.is_smooth == (problem.jump_order == math.inf)
    assert activation.is_odd == problem.odd
    assert activation.slopes == problem.slopes
    assert activation.is_scale_invariant == (problem.slopes is not None)


def test_a_users_scale_invariant_function_is_recognized():
    assert fw.Activation(lambda z: jnp.where(z > 0, 2 * z, -0.5 * z), kinks=(0.0,)).slopes == (2.0, -0.5)
    assert fw.Activation(lambda z: 3 * z).slopes == (3.0, 3.0)
    assert fw.Activation(lambda z: 3 * z + 1).slopes is None


# --- kinks that were not declared --------------------------------------------------------------------

# function, where its kinks are, the order that jumps first, and words of the warning
KINKED = {
    "maximum": (lambda z: jnp.maximum(z, 0), (0.0,), 1, "z = 0, where its first derivative jumps by 1"),
    "abs": (jnp.abs, (0.0,), 1, "z = 0, where its first derivative jumps by 2"),
    "clip": (
        lambda z: jnp.clip(z, -0.3, 0.7),
        (-0.3, 0.7),
        1,
        "z = 0.7, where its first derivative",
    ),
    "elu": (jax.nn.elu, (0.0,), 2, "z = 0, where its second derivative jumps by 1"),
    "selu": (jax.nn.selu, (0.0,), 1, "z = 0, where its first derivative jumps by 0.707"),
    "step": (
        lambda z: jnp.where(z > 0.5, 1.0, 0.0),
        (0.5,),
        0,
        "z = 0.5, where the function itself",
    ),
    "cube": (lambda z: jnp.abs(z) ** 3, (0.0,), 3, "z = 0, where its third derivative jumps by 12"),
    "fourth power": (lambda z: jnp.maximum(z - 1, 0) ** 4, (1.0,), 4, "its fourth derivative jumps by 24"),
    "slight": (
        lambda z: jnp.tanh(z) + 1e-5 * jnp.abs(z - 0.2),
        (0.2,),
        1,
        "z = 0.2, where its first derivative",
    ),
    "far out": (
        lambda z: jnp.tanh(z) + jnp.maximum(z - 20, 0),
        (20.0,),
        1,
        "z = 20, where its first derivative",
    ),
    "two kinks": (
        lambda z: jnp.maximum(z, 0) + 0.3 * jnp.abs(z - 1.234),
        (0.0, 1.234),
        1,
        "z = 0, where its first derivative jumps by 1; z = 1.234, where its first derivative jumps by 0.6",
    ),
}


@pytest.mark.parametrize("function, kinks, order, words", KINKED.values(), ids=KINKED)
def test_undeclared_kinks_are_found_and_named(function, kinks, order, words):
    with pytest.warns(fw.warnings.KinkWarning, match="has a kink that was not declared") as caught:
        activation = fw.Activation(function)
    assert words in str(caught[0].message)
    assert f"declare it as kinks={kinks}" in str(caught[0].message)
    assert activation.kinks == kinks
    assert activation.jump_order == order


@pytest.mark.parametrize("function, kinks, order, words", KINKED.values(), ids=KINKED)
def test_declared_kinks_are_not_warned_of(function, kinks, order, words):
    activation = fw.Activation(function, kinks=kinks)
    assert (activation.kinks, activation.jump_order) == (kinks, order)


def _bend(at: float):
    return lambda z: z + jnp.maximum(z - at, 0.0)


def test_a_kink_far_out_is_not_missed():
    """sigma = z + max(z - at, 0) at variance 1000: <sigma' sigma'> = 1 + 3 P(z > at)."""
    K = np.array([[1000.0, 0.0], [0.0, 1000.0]])
    with pytest.warns(fw.warnings.KinkWarning, match="z = 40"):
        values = fw.Activation(_bend(40.0))
    for activation in (values, fw.Activation(_bend(40.0), kinks=(40.0,))):
        assert activation.jump_order == 1 and not activation.is_scale_invariant
        value = two_legs(activation, K)[1, 1].value[0, 0]
        assert value == pytest.approx(1 + 1.5 * math.erfc(40 / math.sqrt(2000)), rel=1e-12)
    assert fw.Activation(_bend(200.0), kinks=(200.0,)).jump_order == 1
    unseen = fw.Activation(_bend(200.0))
    two_legs(unseen, K / 1000)  # nobody comes near it
    with refused("has a kink at z = 200 that was not declared .* declare kinks=.200.0,."):
        two_legs(unseen, K)
    oscillating = fw.Activation(lambda z: jnp.sin(z))  # its half periods are no kinks
    assert two_legs(oscillating, K)[0, 0].value[0, 0] == pytest.approx(0.5, rel=1e-12)


def test_a_warning_names_only_the_kinks_that_were_not_declared():
    with pytest.warns(fw.warnings.KinkWarning, match=r"declare it as kinks=\(1.0,\)"):
        activation = fw.Activation(lambda z: jnp.clip(z, -1, 1), kinks=(-1.0,))
    assert activation.kinks == (-1.0, 1.0)


SMOOTH = {
    "sharp": lambda z: jnp.tanh(1000 * z),
    "sharp off center": lambda z: jnp.tanh(1000 * (z - 0.7)),
    "bump": lambda z: jnp.exp(-z * z),
    "narrow bump": lambda z: jnp.exp(-((100 * (z - 1.3)) ** 2)),
    "exponential": jnp.exp,
    "oscillating": lambda z: jnp.sin(5 * z),
    "gelu": lambda z: jax.nn.gelu(z, approximate=True),
    "constant": jnp.ones_like,
}


@pytest.mark.parametrize("function", SMOOTH.values(), ids=SMOOTH)
def test_smooth_functions_are_not_called_kinked(function):
    activation = fw.Activation(function)  # a KinkWarning would be an error
    assert activation.kinks == ()
    assert activation.is_smooth


# --- functions that are refused ----------------------------------------------------------------------


def only_numpy(z):
    return np.tanh(np.asarray(z))


def branching(z):
    return z if z > 0 else 0 * z


REFUSED = {
    "sum": (jnp.sum, r"must be elementwise, but maps shapes \(133,\) and \(\) to \(\) and \(\)"),
    "pair": (lambda z: (z, z), "must be elementwise"),
    "constant": (lambda z: 1.0, "must be elementwise"),
    "normalized": (lambda z: z / (1 + jnp.abs(z).max()), "its value at one entry depends on the others"),
    "softmax": (jax.nn.softmax, "cannot be traced by JAX"),
    "np.tanh": (np.tanh, "'tanh' cannot be traced by JAX .* write it with jax.numpy"),
    "numpy inside": (only_numpy, "'only_numpy' cannot be traced by JAX .* write it with jax.numpy"),
    "branches": (branching, "'branching' cannot be traced by JAX .* no Python branches"),
    "no argument": (lambda: 1.0, "cannot be traced by JAX"),
    "NaN": (jnp.log, "'log' returns NaN at z = -39.9; define it for every real z"),
    "infinite": (lambda z: jnp.exp(z * z), "infinite at z = -39.9: it grows too fast for a Gaussian average"),
    "bool": (lambda z: z > 0, "returns bool, not float64; return a real floating value"),
    "single": (lambda z: z.astype(jnp.float32), "returns float32, not float64"),
    "complex": (lambda z: z.astype(complex), "returns complex128, not float64"),
    "root": (lambda z: jnp.sqrt(jnp.abs(z)), "has a derivative without bound near z = -1.*e-11"),
    "cube root": (jnp.cbrt, "has a derivative without bound near z = -1.*e-11"),
    "fast": (
        lambda z: jnp.sin(1000 * z),
        r"is not smooth on 2048 places of \|z\| < 128; use a function",
    ),
    "not callable": (5, "activation must be a name, an Activation or a function of z, got 5"),
    "twice": (as_activation("tanh"), "function is already an Activation; pass it as it is"),
}


@pytest.mark.parametrize("function, message", REFUSED.values(), ids=REFUSED)
def test_unfit_functions_are_refused_with_the_remedy(function, message):
    with refused(message):
        fw.Activation(function)


def test_a_derivative_that_is_not_finite_is_refused():
    """Where automatic differentiation takes zero times infinity."""
    with refused("has a derivative that is not finite near z = |has a derivative without bound near z = "):
        fw.Activation(lambda z: jnp.where(z > 0, jnp.sqrt(z), 0.0))


@pytest.mark.parametrize(
    "kinks, message",
    [
        (0.0, r"kinks must be a sequence of numbers, got 0.0; use kinks=\(0.0,\)"),
        (("a",), "kinks must be a sequence of numbers, got .'a',."),
        ((math.inf,), "kinks must be finite numbers, got .inf,."),
        ((math.nan,), "kinks must be finite numbers, got .nan,."),
    ],
)
def test_unfit_kinks_are_refused(kinks, message):
    with refused(message):
        fw.Activation(jnp.tanh, kinks=kinks)


# --- names -------------------------------------------------------------------------------------------


def test_every_name_is_listed():
    assert set(fw.activations()) == {name.split("(")[0] for name in ACTIVATIONS} | {"silu"}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_names_parse_back(name):
    activation = as_activation(name)
    assert activation.name == name
    assert as_activation(activation.name) == activation
    assert hash(as_activation(activation.name)) == hash(activation)
    assert as_activation(activation) is activation
    assert name in repr(activation)


@pytest.mark.parametrize(
    "text, name",
    [
        ("silu", "swish"),
        ("silu(2)", "swish(2)"),
        ("swish(1)", "swish"),
        ("elu(1.0)", "elu"),
        ("leaky_relu", "leaky_relu(0.01)"),
        ("monomial", "monomial(3)"),
        (" Swish ( 1.5 ) ", "swish(1.5)"),
        ("tanh()", "tanh"),
        ("scale_invariant(1,0.1)", "scale_invariant(1, 0.1)"),
        ("leaky_relu(0.3333333333333333)", "leaky_relu(0.3333333333333333)"),
    ],
)
def test_spellings_of_one_activation_have_one_name(text, name):
    assert as_activation(text).name == name
    assert as_activation(text) == as_activation(name)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_parameters_survive_the_name_to_the_last_bit(a_plus, a_minus):
    activation = as_activation(f"scale_invariant({a_plus!r}, {a_minus!r})")
    assert activation.parameters == (a_plus, a_minus)
    assert as_activation(activation.name).parameters == (a_plus, a_minus)


@pytest.mark.parametrize(
    "text, message",
    [
        ("tahn", "activation 'tahn' is not known; did you mean 'tanh'?"),
        ("geluu", "did you mean 'gelu'?"),
        ("leakyrelu(0.2)", "did you mean 'leaky_relu'?"),
        ("gelu(", "did you mean 'gelu'?"),
        ("xyzzyplugh", "activation 'xyzzyplugh' is not known; known are linear, relu, "),
        ("", "activation '' is not known; known are linear, "),
        (
            "leaky_relu(a)",
            r"'leaky_relu\(a\)' cannot be made: could not convert string to float: 'a'",
        ),
        ("leaky_relu(nan)", "slope of leaky_relu must be a finite number, got nan"),
        ("swish(inf)", "beta of swish must be a finite number, got inf"),
        ("elu(nan)", "alpha of elu must be a finite number, got nan"),
        ("scale_invariant(1, inf)", "a_minus of scale_invariant must be a finite number, got inf"),
        ("scale_invariant(1)", r"'scale_invariant\(1\)' cannot be made: .*'a_minus'"),
        ("relu(3)", r"'relu\(3\)' cannot be made: .* takes 0 positional arguments"),
        ("monomial(2.5)", "degree of a monomial must be a whole number from 1 to 12, got 2.5"),
        ("monomial(inf)", "degree of a monomial must be a whole number from 1 to 12, got inf"),
        ("monomial(nan)", "degree of a monomial must be a whole number from 1 to 12, got nan"),
        ("monomial(0)", "degree of a monomial must be a whole number from 1 to 12, got 0"),
        ("polynomial", "polynomial takes 1 to 13 coefficients, got 0"),
        ("polynomial(1, nan)", "c_1 of polynomial must be a finite number, got nan"),
    ],
)
def test_bad_names_are_refused_with_the_remedy(text, message):
    with refused(message.replace("?", r"\?")):
        as_activation(text)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.text(max_size=12) | st.from_regex(r"[a-z_]{1,10}\([0-9.,e-]{0,8}\)", fullmatch=True))
def test_any_text_is_a_name_or_a_value_error(text):
    try:
        assert as_activation(text).name
    except ValueError as error:
        assert repr(text) in str(error)


# --- as values ---------------------------------------------------------------------------------------


def test_activations_are_equal_when_they_are_the_same_function():
    def mine(z):
        return jnp.sin(z)

    activation, again = fw.Activation(mine), fw.Activation(mine, name="another name")
    assert activation == again
    assert hash(activation) == hash(again)
    assert activation != fw.Activation(lambda z: jnp.sin(z))
    assert activation != fw.Activation(mine, kinks=(1.0,))
    assert as_activation("leaky_relu(0.2)") != as_activation("leaky_relu(0.3)")
    assert as_activation("tanh") != as_activation("sin")
    assert as_activation("tanh") != "tanh"


def test_a_users_activation_takes_the_name_of_its_function():
    def mine(z):
        return jnp.sin(z)

    assert fw.Activation(mine).name == "mine"
    assert fw.Activation(mine, name="sine").name == "sine"
    assert repr(fw.Activation(jnp.abs, kinks=(0.0,))) == "Activation(abs, kinks=(0.0,))"


def test_activations_do_not_change():
    with pytest.raises(AttributeError):
        as_activation("tanh").kinks = (1.0,)
