"""The named activations: formulas, kinks and exact derivatives, and how a name such as "elu(0.5)" is read.

A formula is plain data. `network.layers.activation` makes an `Activation` from it.
"""

import difflib
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

Derivatives = Callable[[Array, int], tuple[Array, ...]]


class Formula(NamedTuple):
    """A named activation; the fields have the meaning of the fields of `Activation`."""

    family: str
    function: Callable[[Array], Array]
    name: str
    parameters: tuple[float, ...] = ()
    kinks: tuple[float, ...] = ()
    jump_order: int | float = math.inf
    exact: Derivatives | None = None


def activations() -> tuple[str, ...]:
    """The names that a string may use; some take parameters, as in "leaky_relu(0.2)".

    Returns:
        The names as strings.

    ```python
    "tanh" in fw.activations()
    ```
    """
    return tuple(_FORMULAS)


def formula(text: str) -> Formula:
    """The formula of a name, with its parameters in parentheses if there are any."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
    name, listed = (match[1].lower(), match[2] or "") if match else (text, "")
    if name not in _FORMULAS:
        near = difflib.get_close_matches(name, _FORMULAS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_FORMULAS)}."
        raise ValueError(f"activation {text!r} is not known; {hint}")
    arguments = [part.strip() for part in listed.split(",") if part.strip()]
    try:
        return _FORMULAS[name](*map(float, arguments))
    except (TypeError, ValueError) as error:
        raise ValueError(f"activation {text!r} cannot be made: {error}") from None


# --- piecewise linear ---------------------------------------------------------------------------


def _scale_invariant(a_plus: float, a_minus: float, *, name: str | None = None) -> Formula:
    """a_plus z for z > 0 and a_minus z for z < 0."""
    _check_parameters("scale_invariant", a_plus=a_plus, a_minus=a_minus)
    smooth = a_plus == a_minus
    return Formula(
        "scale_invariant",
        (lambda z: a_plus * z) if smooth else lambda z: jnp.where(z > 0, a_plus * z, a_minus * z),
        name or f"scale_invariant({_number(a_plus)}, {_number(a_minus)})",
        parameters=(float(a_plus), float(a_minus)),
        kinks=() if smooth else (0.0,),
        jump_order=math.inf if smooth else 1,
    )


def _linear() -> Formula:
    """z."""
    return _scale_invariant(1.0, 1.0, name="linear")


def _relu() -> Formula:
    """max(z, 0)."""
    return _scale_invariant(1.0, 0.0, name="relu")


def _leaky_relu(slope: float = 0.01) -> Formula:
    """z for z > 0 and slope z for z < 0."""
    _check_parameters("leaky_relu", slope=slope)
    return _scale_invariant(1.0, slope, name=f"leaky_relu({_number(slope)})")


def _perceptron() -> Formula:
    """1 for z > 0 and 0 below: it has a kernel, but no NTK."""
    step = lambda z: jnp.where(z > 0, 1.0, 0.0)  # noqa: E731
    return Formula("perceptron", step, "perceptron", kinks=(0.0,), jump_order=0)


def _hardtanh() -> Formula:
    """z cut at -1 and 1."""
    return Formula("hardtanh", lambda z: jnp.clip(z, -1.0, 1.0), "hardtanh", kinks=(-1.0, 1.0), jump_order=1)


# --- smooth -------------------------------------------------------------------------------------


def _sigmoid() -> Formula:
    """1 / (1 + exp(-z))."""
    return Formula("sigmoid", jax.nn.sigmoid, "sigmoid", exact=_sigmoid_derivatives)


def _tanh() -> Formula:
    """tanh z."""
    return Formula("tanh", jnp.tanh, "tanh", exact=_tanh_derivatives)


def _sin() -> Formula:
    """sin z."""
    return Formula("sin", jnp.sin, "sin")


def _erf() -> Formula:
    """The error function of z."""
    return Formula("erf", jax.scipy.special.erf, "erf")


def _softplus() -> Formula:
    """log(1 + exp z)."""

    def exact(z, highest):
        slope_and_beyond = _sigmoid_derivatives(z, highest - 1) if highest else ()
        return (jax.nn.softplus(z), *slope_and_beyond)

    return Formula("softplus", jax.nn.softplus, "softplus", exact=exact)


def _swish(beta: float = 1.0) -> Formula:
    """z / (1 + exp(-beta z))."""
    _check_parameters("swish", beta=beta)
    name = "swish" if beta == 1 else f"swish({_number(beta)})"

    def exact(z, highest):  # Leibniz: (z g)^(m) = z g^(m) + m g^(m-1)
        g = [beta**m * value for m, value in enumerate(_sigmoid_derivatives(beta * z, highest))]
        return (z * g[0], *(z * g[m] + m * g[m - 1] for m in range(1, highest + 1)))

    def function(z):
        return z * jax.nn.sigmoid(beta * z)

    return Formula("swish", function, name, parameters=(float(beta),), exact=exact)


def _gelu() -> Formula:
    """z Phi(z) with the exact Gaussian cumulative distribution Phi."""
    return Formula("gelu", lambda z: 0.5 * z * jax.scipy.special.erfc(-z * math.sqrt(0.5)), "gelu")


def _mish() -> Formula:
    """z tanh(softplus z)."""
    return Formula("mish", lambda z: z * jnp.tanh(jax.nn.softplus(z)), "mish")


def _monomial(degree: float = 3) -> Formula:
    """z to the power `degree`."""
    if not 1 <= degree <= 12 or int(degree) != degree:
        raise ValueError(f"degree of a monomial must be a whole number from 1 to 12, got {degree}.")
    return _polynomial(*[0.0] * int(degree), 1.0, name=f"monomial({int(degree)})")


def _polynomial(*coefficients: float, name: str | None = None) -> Formula:
    """c_0 + c_1 z + c_2 z^2 + ..."""
    _check_parameters("polynomial", **{f"c_{k}": c for k, c in enumerate(coefficients)})
    if not 1 <= len(coefficients) <= 13:
        raise ValueError(f"polynomial takes 1 to 13 coefficients, got {len(coefficients)}.")

    def horner(z):
        value = jnp.zeros_like(z)
        for c in reversed(coefficients):
            value = value * z + c
        return value

    name = name or f"polynomial({', '.join(map(_number, coefficients))})"
    return Formula("polynomial", horner, name, parameters=tuple(map(float, coefficients)))


# --- exponential below zero ---------------------------------------------------------------------


def _elu(alpha: float = 1.0) -> Formula:
    """z for z > 0 and alpha (exp z - 1) below."""
    _check_parameters("elu", alpha=alpha)
    return Formula(
        "elu",
        _exponential_linear(alpha),
        "elu" if alpha == 1 else f"elu({_number(alpha)})",
        parameters=(float(alpha),),
        kinks=(0.0,),
        jump_order=2 if alpha == 1 else 1,
    )


def _selu() -> Formula:
    """The self-normalizing elu of Klambauer et al. (2017)."""
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    elu_part = _exponential_linear(alpha)
    return Formula("selu", lambda z: scale * elu_part(z), "selu", kinks=(0.0,), jump_order=1)


def _exponential_linear(alpha: float) -> Callable[[Array], Array]:
    # the inner where keeps exp from overflowing in the branch that is not taken
    return lambda z: jnp.where(z > 0, z, alpha * jnp.expm1(jnp.where(z > 0, 0.0, z)))


# --- exact derivatives --------------------------------------------------------------------------


def _tanh_derivatives(z: Array, highest: int) -> tuple[Array, ...]:
    """Polynomials in t = tanh z: unlike automatic differentiation they keep all digits of small values."""
    t = jnp.tanh(z)
    square = t * t
    slope = 1 - square
    derivatives = (
        t,
        slope,
        -2 * t * slope,
        slope * (6 * square - 2),
        t * slope * (16 - 24 * square),
        slope * (16 - 120 * square * slope),
    )
    return derivatives[: highest + 1]


def _sigmoid_derivatives(z: Array, highest: int) -> tuple[Array, ...]:
    """sigmoid(z) = (1 + tanh(z/2)) / 2."""
    t = _tanh_derivatives(z / 2, highest)
    return (jax.nn.sigmoid(z), *(t[m] / 2 ** (m + 1) for m in range(1, highest + 1)))


# --- names and parameters -----------------------------------------------------------------------


def _number(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))


def _check_parameters(family: str, **parameters: float) -> None:
    for name, value in parameters.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} of {family} must be a finite number, got {value}.")


_FORMULAS: dict[str, Callable[..., Formula]] = {
    "linear": _linear,
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "scale_invariant": _scale_invariant,
    "perceptron": _perceptron,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "sin": _sin,
    "erf": _erf,
    "softplus": _softplus,
    "swish": _swish,
    "silu": _swish,
    "gelu": _gelu,
    "mish": _mish,
    "elu": _elu,
    "selu": _selu,
    "hardtanh": _hardtanh,
    "monomial": _monomial,
    "polynomial": _polynomial,
}
