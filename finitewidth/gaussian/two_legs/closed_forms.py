r"""Two-leg averages that have closed forms: the scale-invariant family, step, sin, erf and GELU.

Each form is a function of the variances and the covariance of two Gaussian variables, written so that
it keeps its precision for correlations next to one, for zero variance and for large variance. The averages
of sigma and of sigma' with themselves, which kernels of many pairs ask for, stand in `pair_loops`; this file
has those with other derivatives, and sin.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

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


def other_form(activation: Activation, orders: Orders) -> Callable[[Covariance], Array]:
    """The function that gives <sigma^(a)_1 sigma^(b)_2> of an activation that has closed forms."""
    if activation.slopes is not None:
        a_plus, a_minus = activation.slopes
        return functools.partial(_scale_invariant, (a_plus + a_minus) / 2, (a_plus - a_minus) / 2, orders)
    return functools.partial({"sin": _sine, "erf": _erf, "gelu": _gelu}[activation.family or ""], orders)


def _positive(value: Array) -> Array:
    """A divisor: one where the variance is zero, since the numerator is zero there."""
    return jnp.where(value == 0, 1.0, value)


# --- scale-invariant: alpha z + beta |z| -------------------------------------------------------------


def _scale_invariant(alpha: float, beta: float, orders: Orders, k: Covariance) -> Array:
    if orders[0] < orders[1]:
        return _scale_invariant(alpha, beta, (orders[1], orders[0]), k.swapped())
    if orders == (1, 0):
        mean = jnp.sqrt(k.second) + k.cross / jnp.sqrt(_positive(k.first))
        random = alpha * beta * math.sqrt(2 / math.pi) * mean
        fixed = (alpha - beta) * beta * math.sqrt(2 / math.pi) * jnp.sqrt(k.second)
        return jnp.where(k.first == 0, fixed, random)
    # (2, 0): sigma'' is 2 beta times a delta function
    return beta**2 * (2 / math.pi) * jnp.sqrt(k.determinant) / _positive(k.first)


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
    cumulative = k.cross * _bell_with_cumulative(0, k) + k.second * _bell_with_cumulative(0, k.swapped())
    return cumulative - _bell_with_gelu(1, k)  # (1, 0)


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
