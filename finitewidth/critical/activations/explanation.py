"""The explanations of `criticality`: one place, so that the command line and the documentation agree."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from finitewidth.core.display.numbers import number
from finitewidth.critical.activations.half_stable import CriticalPoint, Search
from finitewidth.critical.activations.onset import Onset
from finitewidth.gaussian.two_legs.one_leg import Origin

if TYPE_CHECKING:
    from finitewidth.critical.activations.classification import Criticality

_SHOWN = 12  # kinds of layers with a line of their own
_LISTED = 4  # numbers of layers that are listed one by one
_OUTSIDE = "use gelu or swish, which have a half-stable critical point, or tanh"
OTHERS = f"Instead, {_OUTSIDE}."


def numbered(layers: Sequence[int]) -> str:
    """The numbers of layers, ranges and long lists shortened."""
    first, last = layers[0], layers[-1]
    if len(layers) == 1:
        return f"layer {first}"
    if last - first + 1 == len(layers) and len(layers) > 2:
        return f"layers {first} to {last}"
    shown = list(map(str, layers))
    if len(shown) > _LISTED:
        shown = [*shown[: _LISTED - 1], "...", shown[-1]]
    return f"layers {', '.join(shown)}"


def in_range(values: np.ndarray) -> str:
    """The first and the last value, or one where they are the same."""
    first, last = f"{values[0]:.4g}", f"{values[-1]:.4g}"
    return first if first == last else f"{first} to {last}"


def shortened(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The first lines, and the number of the others."""
    if len(lines) <= _SHOWN:
        return lines
    return (*lines[:_SHOWN], f"and {len(lines) - _SHOWN} further kinds of layers")


def perceptron() -> str:
    """A step has no critical point."""
    return (
        "The step has the same <sigma^2> = 1/2 at every K, so chi_parallel is 0. Its derivative is a delta "
        "function, so chi_perpendicular is infinite. No C_W makes both one; use tanh, which is a smooth step."
    )


def vanishing() -> str:
    """A function that is zero has no critical point."""
    return "The activation is zero everywhere and passes no signal on; use another."


def scale_invariant(A_2: float, rho: float) -> str:
    """Two straight lines are critical at every K."""
    angle = (
        "Angles between inputs are preserved."
        if rho == 0
        else f"Angles between inputs shrink as 3/(rho l) = {3 / rho:.4g}/l."
    )
    return (
        f"sigma(c z) = c sigma(z), so both susceptibilities are C_W A_2 with A_2 = {A_2:.6g} at every K. At "
        f"C_W = 1/A_2 each layer passes on exactly the kernel that the first layer sets. {angle}"
    )


def zero_class(first: Onset, other: float | None) -> str:
    """The kernel falls to K* = 0 as a power of the depth."""
    basin = (
        ""
        if other is None
        else f" It does so only from below K = {other:.5g}, an unstable fixed point: start below it."
    )
    return f"sigma(0) is zero and sigma'(0) is not, and K* = 0 attracts kernels.{basin} {_law_of_fall(first)}"


def _law_of_fall(first: Onset) -> str:
    if first.power == 1:
        return (
            f"Since a_1 = {first.alpha:.4g} is negative, K falls as {-1 / first.alpha:.4g}/l, "
            f"and p_perp = b_1/a_1 = {first.p_perp:.4g}."
        )
    if math.isinf(first.power):
        return (
            "sigma is linear around zero, so a_1 = 0 and all further powers vanish. Averages at small K show "
            "that K still falls, but more slowly than any power of the depth; the exponents are zero up to "
            "logarithms."
        )
    if first.numerical:
        return (
            f"a_1 = 0, and averages at small K show the next order, K' = K (1 - {-first.alpha:.3g} "
            f"K^{first.power:.3g}), which makes K fall as l^-{first.p_0:.3g}."
        )
    return (
        f"A derivative of sigma jumps at zero, so K' = K (1 - {-first.alpha:.4g} sqrt(K)) takes the place of "
        f"a_1: K falls as l^-2, and p_perp = {first.p_perp:.4g}."
    )


def half_stable(
    point: CriticalPoint, side: str, second: float, slope: float, other: float | None, searched: Search
) -> str:
    """Both susceptibilities are one at a K* > 0."""
    away = "above" if side == "below" else "below"
    bend = "upwards" if second > 0 else "downwards"
    course = (
        f"K* = {point.K:.9g} attracts from {side} and repels from {away}, because the kernel map bends "
        f"{bend} (second derivative {second:.4g}). Both are slow: |K - K*| is about "
        f"{number(2 / abs(second), 3)}/l after l layers."
    )
    end = "away" if other is None else f"to K = {other:.5g}"
    further = len(searched.points) - 1
    more = f" There are {further} further such points." if further else ""
    return (
        f"Both susceptibilities are one at a K* > 0. {course} Kernels {away} it drift {end}. "
        f"chi_perpendicular changes by {slope:.4g} per unit of K there. Let the first layer start at "
        f"K*.{more}"
    )


def unstable(first: Onset, other: float | None, chi_perp: float | None, searched: Search) -> str:
    """K* = 0 repels, and there is no other critical point."""
    growth = (
        f"K' = K (1 + {first.alpha:.4g} K), since a_1 is positive"
        if first.power == 1
        else "the first correction to the kernel map is positive"
    )
    if other is None or chi_perp is None:
        fate = "without bound"
    else:
        nearby = "separate" if chi_perp > 1 else "merge"
        fate = (
            f"to K = {other:.5g}, where chi_perpendicular is {chi_perp:.4g} and nearby inputs {nearby} "
            "exponentially"
        )
    return (
        f"Both susceptibilities are one at K* = 0, but it repels: {growth}, so signals grow with depth "
        f"{fate}. {_nothing_else(searched)} {OTHERS}"
    )


def no_point(zero: Origin, searched: Search) -> str:
    """Neither K* = 0 nor any K* > 0 is a critical point."""
    if abs(zero.value) > 0:
        at_zero = f"sigma(0) = {zero.value:.6g} is not zero, so K* = 0 is no fixed point."
    else:
        at_zero = "sigma'(0) = 0, so both susceptibilities vanish at K* = 0."
    return f"{at_zero} {_nothing_else(searched)}"


def _nothing_else(searched: Search) -> str:
    if searched.impossible:
        listed = ", ".join(f"K = {point.K:.5g} (C_b = {point.C_b:.4g})" for point in searched.impossible)
        return f"Both susceptibilities could be one only where C_b would be negative: at {listed}."
    where = f"for K from {searched.lowest:.0e} to {searched.highest:.1e}"
    if searched.sign:
        word, order = ("positive", "above") if searched.sign > 0 else ("negative", "below")
        result = (
            f"Each susceptibility can be one, but not both: <sigma sigma''> is {word} "
            f"{'for every K' if searched.certain else where}, so chi_parallel stays {order} "
            "chi_perpendicular."
        )
    else:
        result = f"No K* > 0 makes both susceptibilities one {where}."
    if searched.certain:
        return result
    return (
        f"{result} The search failed beyond K = {searched.highest:.2e}, where the averages overflow or "
        "cannot be resolved, so a critical point there is not excluded."
    )


def shift(value: float, remedy: "Criticality") -> str:
    """The class of sigma - sigma(0), which may be critical where sigma is not."""
    name = f"sigma(z) {'-' if value > 0 else '+'} {abs(value):.6g}"
    if remedy.universality_class in ("K*=0", "scale-invariant"):
        return f"Shifted to vanish at zero it is critical: {name} at C_b = 0, C_W = {remedy.C_W:.9g}."
    if remedy.universality_class == "half-stable":
        place = f"C_b = {remedy.C_b:.9g}, C_W = {remedy.C_W:.9g}"
        return f"Shifted to vanish at zero, {name} has a half-stable point: {place}."
    return f"Shifted to vanish at zero, {name} is {_fate(remedy)}; {_OUTSIDE}."


def _fate(remedy: "Criticality") -> str:
    return "unstable" if remedy.universality_class == "unstable" else "not critical either"
