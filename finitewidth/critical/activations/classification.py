"""From any activation to its critical initialization: universality class, critical point, exponents.

Criticality is both susceptibilities equal to one at the fixed point of the kernel, so that neither the
norm of a signal, nor the angle between two, nor a gradient changes exponentially with depth (PDLT chapter 5).
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.display.records import shown
from finitewidth.core.precision import require_double_precision
from finitewidth.critical.activations import explanation
from finitewidth.critical.activations.half_stable import (
    CriticalPoint,
    Search,
    bracketed_root,
    other_fixed_point,
    search,
)
from finitewidth.critical.activations.onset import Onset, onset
from finitewidth.critical.activations.stated_exponents import stated_exponents
from finitewidth.gaussian.two_legs.leg_table import LegTable, leg_table
from finitewidth.gaussian.two_legs.one_leg import Origin, curvatures, leg_averages, require_continuous
from finitewidth.network.layers.activation import Activation, as_activation, shifted

CLASSES = ("scale-invariant", "K*=0", "half-stable", "unstable", "none")
_CONVERGED = 1e-9  # largest residual of a critical point


@shown("activation", "universality_class", "C_b", "C_W", "K_star", "stable", "exponents")
@dataclass(frozen=True, eq=False)
class Criticality:
    """The universality class of an activation and the critical initialization that belongs to it.

    `fw.criticality` makes it.

    ```python
    point = fw.criticality("tanh")
    point.universality_class, point.C_b, point.C_W, point.exponents["p_0"], point.explanation
    ```
    """

    activation: Activation  # the activation
    universality_class: str  # one of CLASSES
    C_b: float | None  # None where there is no critical point; likewise the next two
    C_W: float | None  # variance of weights times fan-in
    # the critical kernel; None for scale-invariant activations too, which keep any kernel
    K_star: float | None
    stable: bool  # whether kernels on both sides of K_star stay or are drawn to it
    attracts_from: str | None  # "both sides", "above", "below", or None
    constants: Mapping[str, float]  # numbers from which class and exponents follow, by name
    exponents: Mapping[str, float]  # x falls as l^-p; ratios of tensors by the tensor's letter
    residual: float  # of K = F(K) and of both susceptibilities from one
    # False if the search was cut short, or if the point misses its conditions by more than 1e-9
    converged: bool
    explanation: str  # class, point and exponents in words
    other_fixed_point: float | None = None  # of the kernel at the same C_b, C_W, nearest to K_star
    other_points: tuple[CriticalPoint, ...] = ()  # further half-stable points
    remedy: "Criticality | None" = field(default=None, repr=False)  # sigma - sigma(0), where sigma has none


def criticality(activation: str | Activation | Callable) -> Criticality:
    """The universality class, critical point and exponents of any activation (PDLT sections 5.2 and 5.3).

    Half-stable points are searched over K from 1e-10 to 1e10 before an activation is called unstable.
    `converged` is False if that search was cut short, or if the point misses its conditions by more than
    1e-9. Networks of several activations are judged by `fw.audit`.

    Args:
        activation: A name, an `fw.Activation` or a function.

    Returns:
        Class, `C_b`, `C_W`, `K_star`, exponents and an `explanation` in explanation.

    ```python
    point = fw.criticality("gelu")
    point.universality_class, point.C_b, point.C_W
    ```
    """
    require_double_precision()
    return _classify(as_activation(activation))


def needed_kernel(point: Criticality) -> float | None:
    """K* > 0, the only kernel at which a half-stable activation is critical; None for the others."""
    return point.K_star if point.universality_class == "half-stable" else None


def critical_variances(point: Criticality, remedy: str) -> tuple[float, float]:
    """C_b and C_W, or an error that names the activation, and the remedy if the search was not accurate."""
    if point.universality_class in ("none", "unstable"):
        raise ValueError(
            f"activation {point.activation.name!r} has no critical point to initialize at "
            f"({point.universality_class}). {point.explanation}"
        )
    if not point.converged:
        raise ValueError(
            f"the critical point of activation {point.activation.name!r} was not found to accuracy (residual "
            f"{point.residual:.1e}); {remedy}."
        )
    assert point.C_b is not None and point.C_W is not None
    return point.C_b, point.C_W


@functools.lru_cache(maxsize=256)
def _classify(activation: Activation) -> Criticality:
    if activation.family == "perceptron":
        return _none(activation, explanation.perceptron(), converged=True)
    require_continuous(activation)
    if activation.slopes is not None:
        return _scale_invariant(activation, *activation.slopes)
    table = leg_table(activation)
    zero = table.zero
    first = onset(zero, table) if _has_slope_at_zero(zero, table) else None
    searched = search(activation, table)
    if first is not None and first.alpha < 0:
        return _zero_class(activation, zero, table, first, searched)
    if searched.points:
        return _half_stable(activation, searched)
    if first is not None:
        return _unstable(activation, zero, table, first, searched)
    return _without_point(activation, zero, searched)


def _has_slope_at_zero(zero: Origin, table: LegTable) -> bool:
    """sigma(0) = 0 and sigma'(0) != 0, to rounding on the scale that sigma has at variance one."""
    one = int(np.argmin(np.abs(np.log(table.K))))
    size, slope = math.sqrt(table.averages.square[one]), table.averages.slope[one]
    return abs(zero.value) <= 1e-13 * size and bool(zero.slope > 1e-20 * slope)


def _scale_invariant(activation: Activation, a_plus: float, a_minus: float) -> Criticality:
    A_2, A_4 = (a_plus**2 + a_minus**2) / 2, (a_plus**4 + a_minus**4) / 2
    if A_2 == 0:
        return _none(activation, explanation.vanishing(), converged=True)
    rho = (a_plus - a_minus) ** 2 / (2 * A_2) / math.pi
    return Criticality(
        activation,
        "scale-invariant",
        C_b=0.0,
        C_W=1 / A_2,
        K_star=None,
        stable=True,
        attracts_from=None,
        constants={"A_2": A_2, "A_4": A_4, "rho": rho},
        exponents=stated_exponents("scale-invariant", activation, 0.0, 0.0),
        residual=abs(A_2 * (1 / A_2) - 1),
        converged=True,
        explanation=explanation.scale_invariant(A_2, rho),
    )


def _zero_class(
    activation: Activation, zero: Origin, table: LegTable, first: Onset, searched: Search
) -> Criticality:
    other = _first_crossing(activation, table, first)
    residual = abs(zero.slope / first.A_2 - 1)
    return Criticality(
        activation,
        "K*=0",
        C_b=0.0,
        C_W=1 / first.A_2,
        K_star=0.0,
        stable=True,
        attracts_from="above",
        constants=_constants_at_zero(zero, first),
        exponents=stated_exponents("K*=0", activation, first.p_0, first.p_perp),
        residual=residual,
        converged=residual < _CONVERGED,
        explanation=explanation.zero_class(first, other),
        other_fixed_point=other,
        other_points=searched.points,
    )


def _half_stable(activation: Activation, searched: Search) -> Criticality:
    point = searched.points[0]
    bend = curvatures(activation, point.K)
    second, slope = point.C_W * bend.square, point.C_W * bend.slope
    other = other_fixed_point(activation, point)
    residual = _residual(activation, point)
    side = "below" if second > 0 else "above"
    return Criticality(
        activation,
        "half-stable",
        C_b=point.C_b,
        C_W=point.C_W,
        K_star=point.K,
        stable=False,
        attracts_from=side,
        constants={"second_derivative_of_kernel_map": second, "derivative_of_chi_perp": slope},
        exponents={},
        residual=residual,
        converged=residual < _CONVERGED,
        explanation=explanation.half_stable(point, side, second, slope, other, searched),
        other_fixed_point=other,
        other_points=searched.points[1:],
    )


def _unstable(
    activation: Activation, zero: Origin, table: LegTable, first: Onset, searched: Search
) -> Criticality:
    other = _first_crossing(activation, table, first)
    chi_perp = None
    if other is not None:
        chi_perp = float(leg_averages(activation, np.asarray([other])).slope[0] / first.A_2)
    return Criticality(
        activation,
        "unstable",
        C_b=0.0,
        C_W=1 / first.A_2,
        K_star=0.0,
        stable=False,
        attracts_from=None,
        constants=_constants_at_zero(zero, first),
        exponents={},
        residual=abs(zero.slope / first.A_2 - 1),
        converged=searched.certain,
        explanation=explanation.unstable(first, other, chi_perp, searched),
        other_fixed_point=other,
    )


def _without_point(activation: Activation, zero: Origin, searched: Search) -> Criticality:
    reason = explanation.no_point(zero, searched)
    if zero.value == 0:
        return _none(activation, f"{reason} {explanation.OTHERS}", converged=searched.certain)
    remedy = _classify(shifted(activation, zero.value))
    return _none(
        activation,
        f"{reason} {explanation.shift(zero.value, remedy)}",
        converged=searched.certain,
        remedy=remedy,
    )


def _none(
    activation: Activation, explanation: str, *, converged: bool, remedy: Criticality | None = None
) -> Criticality:
    return Criticality(
        activation,
        "none",
        C_b=None,
        C_W=None,
        K_star=None,
        stable=False,
        attracts_from=None,
        constants={},
        exponents={},
        residual=math.inf,
        converged=converged,
        explanation=explanation,
        remedy=remedy,
    )


def _constants_at_zero(zero: Origin, first: Onset) -> dict[str, float]:
    constants = {"sigma_1_squared": first.A_2}
    if first.power == 1:
        constants |= {"a_1": first.alpha, "b_1": first.beta}
    elif math.isfinite(first.power):
        constants |= {"power": first.power, "alpha": first.alpha, "beta": first.beta}
    if first.power != 0.5:
        constants |= {f"sigma_{m}": (zero.right[m] + zero.left[m]) / 2 for m in (1, 2, 3)}
    return constants


def _first_crossing(activation: Activation, table: LegTable, first: Onset) -> float | None:
    """The smallest K > 0 at which K = <sigma^2>/A_2: there the drift away from or towards zero ends."""
    correction = table.averages.square / (first.A_2 * table.K) - 1
    sure = np.abs(correction) > np.maximum(1e-11, 10 * table.averages.error)
    against = np.flatnonzero(sure & (np.sign(correction) == -np.sign(first.alpha)))
    if not against.size:
        return None
    index = int(against[0])
    before = np.flatnonzero(sure[:index] & (np.sign(correction[:index]) == np.sign(first.alpha)))
    if not before.size:
        return None

    def drift(K: float) -> float:
        return float(leg_averages(activation, np.asarray([K])).square[0] / (first.A_2 * K) - 1)

    return bracketed_root(drift, float(table.K[before[-1]]), float(table.K[index]))


def _residual(activation: Activation, point: CriticalPoint) -> float:
    averages = leg_averages(activation, np.asarray([point.K]))
    image = point.C_b + point.C_W * averages.square[0]
    chi = point.C_W * averages.growth[0], point.C_W * averages.slope[0]
    return float(max(abs(image / point.K - 1), abs(chi[0] - 1), abs(chi[1] - 1), averages.error[0]))
