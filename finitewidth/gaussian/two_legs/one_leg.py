r"""Averages of one preactivation as functions of its variance K.

$$\langle\sigma^2\rangle_K, \qquad \langle\sigma'^2\rangle_K, \qquad \langle\sigma\sigma''\rangle_K$$

These are two legs on the same sample. The delta function of a kink in sigma'' is included, by
integration by parts; no derivative is taken by finite differences.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from finitewidth.gaussian.division import divisor
from finitewidth.gaussian.tower import Tower
from finitewidth.gaussian.two_legs import quadrature
from finitewidth.gaussian.two_legs.closed_averages import averages as closed_averages
from finitewidth.gaussian.two_legs.closed_averages import has_closed_form
from finitewidth.network.layers.activation import Activation

_ORDERS = ((0, 0), (1, 1), (2, 0))
_COUNTS = (161, 227, 367, 595, 963, 1559)  # nodes per segment, tried in turn, two at least; none nested
TOLERANCE = 1e-12
_HOPELESS = 1e-4  # an error that more nodes would hardly reduce
_NEXT_TO_ZERO = 1e-300  # a side of zero, where a derivative may jump


class LegAverages(NamedTuple):
    """Averages of one preactivation, one entry for each variance K."""

    square: np.ndarray  # <sigma^2>
    slope: np.ndarray  # <sigma'^2>
    curvature: np.ndarray  # <sigma sigma''> with the delta functions of kinks
    error: np.ndarray  # of the square relative to it, of slope and curvature relative to slope + |curvature|

    @property
    def growth(self) -> np.ndarray:
        """d<sigma^2>/dK."""
        return self.slope + self.curvature


class Origin(NamedTuple):
    """sigma and its first three derivatives on the two sides of z = 0."""

    right: tuple[float, ...]
    left: tuple[float, ...]

    @property
    def value(self) -> float:
        return (self.right[0] + self.left[0]) / 2

    @property
    def slope(self) -> float:
        """The limit of <sigma'^2> for K -> 0."""
        return (self.right[1] ** 2 + self.left[1] ** 2) / 2

    @property
    def curvature(self) -> float:
        """The limit of <sigma sigma''>; infinite where sigma' jumps and sigma does not vanish."""
        jump = self.right[1] - self.left[1]
        if self.value == 0:
            return 0.0
        if abs(jump) > 1e-12 * math.sqrt(self.slope):
            return math.copysign(math.inf, self.value * jump)
        return self.value * (self.right[2] + self.left[2]) / 2


def origin(activation: Activation) -> Origin:
    """The derivatives at z = 0, from both sides."""
    points = np.asarray([_NEXT_TO_ZERO, -_NEXT_TO_ZERO]) * (0.0 in activation.kinks)
    values = Tower(activation, 3)(points)
    values[np.abs(values) <= 1e10 * _NEXT_TO_ZERO] = 0.0
    return Origin(*(tuple(map(float, side)) for side in values.T))


def leg_averages(activation: Activation, K: Float[np.ndarray, " M"]) -> LegAverages:
    """<sigma^2>, <sigma'^2> and <sigma sigma''> at each variance, with their error."""
    require_continuous(activation)
    if activation.slopes is not None:
        A_2 = (activation.slopes[0] ** 2 + activation.slopes[1] ** 2) / 2
        flat = np.full(K.shape, A_2)
        return LegAverages(A_2 * K, flat, np.zeros(K.shape), np.full(K.shape, 1e-15))
    values, errors = np.empty((3, K.size)), np.full(K.size, np.inf)
    scale = np.floor(2 * np.log10(np.where(K > 0, K, 1.0)))  # halves of a decade
    for group in np.unique(scale[K > 0]):  # one grid reaches as far as its widest leg needs
        members = np.flatnonzero((scale == group) & (K > 0))
        values[:, members], errors[members] = _by_quadrature(activation, K[members])
        if has_closed_form(activation) and errors[members].min() > _HOPELESS:
            break  # wider legs oscillate faster still
    _by_closed_form(activation, K, values, errors)
    if (K == 0).any():
        zero = origin(activation)
        values[:, K == 0] = np.asarray([zero.value**2, zero.slope, zero.curvature])[:, None]
        errors[K == 0] = 1e-15
    return LegAverages(values[0], values[1], values[2], errors)


def _by_quadrature(activation: Activation, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two rules whose nodes are not nested must agree: oscillations can deceive one rule and its half."""
    values, errors, todo = np.full((3, K.size), np.nan), np.full(K.size, np.inf), np.arange(K.size)
    formula = has_closed_form(activation)
    for count in _COUNTS:
        nested = quadrature.one_sample(activation, K[todo], _ORDERS, count=count)
        square, slope, curvature = np.abs(nested.fine)
        scale = np.stack([square, slope + curvature, slope + curvature])
        claimed = nested.error(scale).max(axis=0)
        with np.errstate(invalid="ignore", over="ignore"):
            change = (np.abs(nested.fine - values[:, todo]) / divisor(scale)).max(axis=0)
        values[:, todo] = nested.fine
        # the nodes grow by 1.4 and with them the digits; the first rule has nothing to be compared with
        errors[todo] = np.inf if count == _COUNTS[0] else np.maximum(claimed, 10 * change**1.4)
        todo = todo[~(errors[todo] <= TOLERANCE)]
        if formula and count > _COUNTS[1]:  # a hopeless oscillation is left to the closed form
            todo = todo[errors[todo] < _HOPELESS]
        if todo.size == 0:
            break
    return values, errors


def _by_closed_form(activation: Activation, K: np.ndarray, values: np.ndarray, errors: np.ndarray) -> None:
    """Overwrite averages that quadrature could not resolve (fast oscillations), where a formula is known."""
    missed = np.flatnonzero((errors > TOLERANCE) & (K > 0))
    if missed.size and has_closed_form(activation):
        values[:, missed] = closed_averages(activation, _ORDERS, K[missed], K[missed], K[missed])
        errors[missed] = 1e-13


class Curvatures(NamedTuple):
    """Second derivative of <sigma^2> and first derivative of <sigma'^2> with respect to K."""

    square: float
    slope: float


def curvatures(activation: Activation, K: float) -> Curvatures:
    r"""$\langle\sigma^2 He_4\rangle / 4K^2$ and $\langle\sigma'^2 He_2\rangle / 2K$ with $z = \sqrt K x$."""
    require_continuous(activation)
    points = quadrature.kinks_in_units(activation, np.asarray(math.sqrt(K)))
    extent = quadrature.reach(activation, K) + 2  # the polynomials reach further
    x, weights = quadrature.gaussian_grid(points, extent, _COUNTS[-1])
    s, slope = Tower(activation, int(min(2, activation.jump_order)))(math.sqrt(K) * x)[:2]
    fourth, second = x**4 - 6 * x**2 + 3, x**2 - 1
    return Curvatures(
        float((weights * s**2 * fourth).sum() / (4 * K**2)),
        float((weights * slope**2 * second).sum() / (2 * K)),
    )


def require_continuous(activation: Activation) -> None:
    """Refuse an activation that jumps: its derivative is a delta function, whose square has no average."""
    if activation.jump_order < 1:
        raise ValueError(
            f"activation {activation.name!r} is discontinuous at z = {activation.kinks[0]:g}, so "
            "chi_perpendicular is infinite and nothing can be tuned; use a continuous function, such as tanh "
            "for a step."
        )
