r"""Two-leg averages that have closed forms: the scale-invariant family, step, sin, erf and GELU.

Each form is a function of the variances and the covariance of two Gaussian variables, written so that
it keeps its precision for correlations next to one, for zero variance and for large variance. With
$\det = K_{11}K_{22} - K_{12}^2$ computed without cancellation, the angle $\arcsin c$ is
$\operatorname{atan2}(K_{12}, \sqrt{\det})$.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.gaussian.two_legs.orders import Orders
from finitewidth.network.layers.activation import Activation


class Covariance(NamedTuple):
    """Entries of the covariance of z_1 and z_2, broadcast against each other."""

    first: Float[Array, "..."]
    second: Float[Array, "..."]
    cross: Float[Array, "..."]
    determinant: Float[Array, "..."]

    def swapped(self) -> "Covariance":
        return Covariance(self.second, self.first, self.cross, self.determinant)


def determinant(first: Array, second: Array, cross: Array) -> Array:
    """K_11 K_22 - K_12^2 to full precision, also where it nearly cancels.

    The factors are split in halves of 26 bits, whose products are exact.
    """
    (a, a_low), (b, b_low), (c, c_low) = map(_split, (first, second, cross))
    high = a * b - c * c
    middle = a * b_low + a_low * b - 2 * c * c_low
    low = a_low * b_low - c_low * c_low
    return jnp.maximum(high + (middle + low), 0.0)


def _split(value: Array) -> tuple[Array, Array]:
    bits = jax.lax.bitcast_convert_type(value, jnp.uint64) & jnp.uint64(0xFFFFFFFFF8000000)
    high = jax.lax.bitcast_convert_type(bits, jnp.float64)
    return high, value - high


def closed_form(activation: Activation, orders: Orders) -> Callable[[Covariance], Array] | None:
    """The function that gives <sigma^(a)_1 sigma^(b)_2>, or None where only numbers can."""
    if activation.slopes is not None:
        a_plus, a_minus = activation.slopes
        return functools.partial(_scale_invariant, (a_plus + a_minus) / 2, (a_plus - a_minus) / 2, orders)
    forms = {"perceptron": _step, "sin": _sine, "erf": _erf, "gelu": _gelu}
    form = forms.get(activation.family or "")
    return functools.partial(form, orders) if form else None


def _positive(value: Array) -> Array:
    """A divisor: one where the variance is zero, since the numerator is zero there."""
    return jnp.where(value == 0, 1.0, value)


# --- scale-invariant and step: alpha z + beta |z| ----------------------------------------------------


def _scale_invariant(alpha: float, beta: float, orders: Orders, k: Covariance) -> Array:
    if orders[0] < orders[1]:
        return _scale_invariant(alpha, beta, (orders[1], orders[0]), k.swapped())
    if orders == (0, 0):
        if beta == 0:
            return alpha**2 * k.cross
        absolute = jnp.sqrt(k.determinant) + k.cross * _arcsine(k)
        return alpha**2 * k.cross + beta**2 * (2 / math.pi) * absolute
    if beta == 0:
        return jnp.full_like(k.cross, alpha**2 if orders == (1, 1) else 0.0)
    if orders == (1, 1):
        random = alpha**2 + beta**2 * (2 / math.pi) * _arcsine(k)
        return _at_the_kink(random, alpha - beta, alpha, k)
    if orders == (1, 0):
        mean = jnp.sqrt(k.second) + k.cross / jnp.sqrt(_positive(k.first))
        random = alpha * beta * math.sqrt(2 / math.pi) * mean
        fixed = (alpha - beta) * beta * math.sqrt(2 / math.pi) * jnp.sqrt(k.second)
        return jnp.where(k.first == 0, fixed, random)
    # (2, 0): sigma'' is 2 beta times a delta function
    return beta**2 * (2 / math.pi) * jnp.sqrt(k.determinant) / _positive(k.first)


def _at_the_kink(random: Array, fixed: float, mean: float, k: Covariance) -> Array:
    """Where a variance is zero, z sits on the kink: sigma' has the value of automatic differentiation."""
    one_is_fixed = (k.first == 0) | (k.second == 0)
    both_are_fixed = (k.first == 0) & (k.second == 0)
    return jnp.where(both_are_fixed, fixed**2, jnp.where(one_is_fixed, fixed * mean, random))


def _step(orders: Orders, k: Covariance) -> Array:
    return _at_the_kink(0.25 + _arcsine(k) / (2 * math.pi), 0.0, 0.5, k)


def _arcsine(k: Covariance) -> Array:
    return arctangent(k.cross, jnp.sqrt(k.determinant))


def arctangent(y: Array, x: Array) -> Array:
    """atan2(y, x) for x >= 0.

    Written by hand because XLA calls a scalar library function here, which is several times slower. The
    larger of |y|, x divides the smaller; a ratio above tan(pi/12) is turned back by pi/6, so that a short
    Taylor series gives the angle to rounding.
    """
    size = jnp.abs(y)
    larger, smaller = jnp.maximum(size, x), jnp.minimum(size, x)
    safe = jnp.where(larger == 0, 1.0, larger)
    t = math.tan(math.pi / 6)
    far = smaller > math.tan(math.pi / 12) * larger
    reduced = jnp.where(far, (smaller - t * larger) / (safe + t * smaller), smaller / safe)
    square = reduced * reduced
    tail = jnp.zeros_like(square)
    for k in reversed(range(1, _ARCTANGENT_TERMS)):
        tail = tail * square + (-1) ** k / (2 * k + 1)
    angle = reduced + reduced * square * tail + jnp.where(far, math.pi / 6, 0.0)
    return jnp.copysign(jnp.where(size > x, math.pi / 2 - angle, angle), y)


_ARCTANGENT_TERMS = 14  # tan(pi/12)^28 is below 1e-16


# --- Gaussian functions: erf and GELU ---------------------------------------------------------------


def _moment(p: int, q: int, c_11: Array, c_22: Array, c_12: Array) -> Array | float:
    """E[w_1^p w_2^q] for Gaussian w with covariance c (also for a formal, negative one)."""
    if (p + q) % 2:
        return 0.0
    total = 0.0
    for j in range(p % 2, min(p, q) + 1, 2):
        pairs_1, pairs_2 = (p - j) // 2, (q - j) // 2
        ways = math.factorial(p) * math.factorial(q)
        ways //= (
            math.factorial(pairs_1) * math.factorial(pairs_2) * math.factorial(j) * 2 ** (pairs_1 + pairs_2)
        )
        total = total + ways * c_11**pairs_1 * c_22**pairs_2 * c_12**j
    return total


def _bell_derivatives(p: int, q: int, width: float, k: Covariance) -> Array:
    r"""$\langle \partial^p g(z_1)\, \partial^q g(z_2) \rangle$ for $g(z) = e^{-w z^2/2}$.

    Shifting both arguments gives $D^{-1/2} e^{-w\, m^T (1 + wK)^{-1} m / 2}$, whose derivatives at m = 0 are
    the moments of a Gaussian with covariance $-w (1 + wK)^{-1}$.
    """
    big = _bell_determinant(width, k)
    c_11, c_22 = -width * (1 + width * k.second) / big, -width * (1 + width * k.first) / big
    moment = _moment(p, q, c_11, c_22, width**2 * k.cross / big)
    return moment / jnp.sqrt(big)


def _bell_determinant(width: float, k: Covariance) -> Array:
    return 1 + width * (k.first + k.second) + width**2 * k.determinant


def _erf(orders: Orders, k: Covariance) -> Array:
    a, b = orders
    if a < b:
        return _erf((b, a), k.swapped())
    if (a + b) % 2:
        return jnp.zeros_like(k.cross)
    if a == 0:
        return (2 / math.pi) * arctangent(2 * k.cross, jnp.sqrt(_bell_determinant(2.0, k)))
    if b >= 1:
        return (4 / math.pi) * _bell_derivatives(a - 1, b - 1, 2.0, k)
    # erf^(a) = -2 (a - 2) erf^(a-2) - 2 z erf^(a-1), and z is integrated by parts
    lower = 2 * (a - 2) * _erf((a - 2, 0), k) if a > 2 else 0.0
    return -(lower + 2 * k.cross * _erf((a - 1, 1), k)) / (1 + 2 * k.first)


def _gelu(orders: Orders, k: Covariance) -> Array:
    """sigma = z Phi: sigma' = Phi - phi', and beyond sigma^(m) = phi^(m-2) - phi^(m)."""
    a, b = orders
    if a < b:
        return _gelu((b, a), k.swapped())
    if b >= 2:
        return _bells(a - 2, b - 2, k) - _bells(a, b - 2, k) - _bells(a - 2, b, k) + _bells(a, b, k)
    if a >= 2:
        leg = _bell_with_slope if b == 1 else _bell_with_gelu
        return leg(a - 2, k) - leg(a, k)
    both = 0.25 + arctangent(k.cross, jnp.sqrt(_bell_determinant(1.0, k))) / (2 * math.pi)  # <Phi Phi>
    bell = _bells(0, 0, k)
    if orders == (1, 1):
        big = _bell_determinant(1.0, k)
        return both + k.cross * bell * (1 / (1 + k.first) + 1 / (1 + k.second) + 1 / big)
    if orders == (1, 0):
        cumulative = k.cross * _bell_with_cumulative(0, k) + k.second * _bell_with_cumulative(0, k.swapped())
        return cumulative - _bell_with_gelu(1, k)
    first, second, cross, det = k
    return cross * both + bell * (first * (second + det) / (1 + first) + cross**2 / (1 + second))


def _bells(p: int, q: int, k: Covariance) -> Array:
    """<phi^(p)_1 phi^(q)_2>."""
    return _bell_derivatives(p, q, 1.0, k) / (2 * math.pi)


def _bell_with_cumulative(p: int, k: Covariance) -> Array:
    """<phi^(p)_1 Phi_2>, by parts from phi^(p) = -z phi^(p-1) - (p-1) phi^(p-2)."""
    if p == 0:
        return 0.5 / jnp.sqrt(2 * math.pi * (1 + k.first)) + jnp.zeros_like(k.cross)
    lower = (p - 1) * _bell_with_cumulative(p - 2, k) if p > 1 else 0.0
    return -(k.cross * _bells(p - 1, 0, k) + lower) / (1 + k.first)


def _bell_with_slope(p: int, k: Covariance) -> Array:
    """<phi^(p)_1 sigma'_2>."""
    return _bell_with_cumulative(p, k) - _bells(p, 1, k)


def _bell_with_gelu(p: int, k: Covariance) -> Array:
    """<phi^(p)_1 sigma_2>."""
    return k.cross * _bell_with_cumulative(p + 1, k) + k.second * _bells(p, 0, k)


# --- sin --------------------------------------------------------------------------------------------


def _sine(orders: Orders, k: Covariance) -> Array:
    """sin^(a) is sin shifted by a quarter turn a times; products of sines are sums of cosines."""
    a, b = orders
    if (a - b) % 2:
        return jnp.zeros_like(k.cross)
    size = jnp.abs(k.cross)
    # the smaller of K_11 - |K_12| and K_22 - |K_12| may cancel, their sum keeps the variance of z_1 -+ z_2
    near = jnp.exp(-((k.first - size) + (k.second - size)) / 2)
    odd = -0.5 * near * jnp.expm1(-2 * size) * jnp.sign(k.cross)  # <sin sin>
    even = 0.5 * near * (1 + jnp.exp(-2 * size))  # <cos cos>
    sign = -1.0 if (a - b) % 4 == 2 else 1.0
    return sign * (odd if a % 2 == 0 else even)
