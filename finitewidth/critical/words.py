"""What `criticality` says in words: one place, so that the command line and the documentation say the "
"same."""

import math
from typing import TYPE_CHECKING

from finitewidth.critical.half_stable import CriticalPoint, Search
from finitewidth.critical.onset import Onset
from finitewidth.gaussian.two_legs.one_leg import Origin

if TYPE_CHECKING:
    from finitewidth.critical.classification import Criticality

_OUTSIDE = "use gelu or swish, which have a half-stable critical point, or tanh"
OTHERS = f"Instead, {_OUTSIDE}."


def perceptron() -> str:
    return (
        "The step has the same <sigma^2> = 1/2 at every K, so chi_parallel is 0, and its derivative is a "
        "delta "
        "function, so chi_perpendicular is infinite: no C_W makes both one. Use tanh, which is a smooth step."
    )


def vanishing() -> str:
    return "The activation is zero everywhere and passes no signal; use another."


def scale_invariant(A_2: float, rho: float) -> str:
    angle = (
        "Angles between inputs are preserved."
        if rho == 0
        else f"Angles between inputs shrink as 3/(rho l) = {3 / rho:.4g}/l."
    )
    return (
        f"sigma(c z) = c sigma(z), so both susceptibilities are C_W A_2 with A_2 = {A_2:.6g} at every K: at "
        f"C_W = 1/A_2 "
        f"each layer passes on exactly the kernel that the first layer sets. {angle}"
    )


def zero_class(first: Onset, other: float | None) -> str:
    if first.power == 1:
        law = (
            f"K falls as {-1 / first.alpha:.4g}/l, since a_1 = {first.alpha:.4g} is negative, "
            f"and p_perp = b_1/a_1 = {first.p_perp:.4g}."
        )
    elif math.isinf(first.power):
        law = (
            "sigma is linear around zero, so a_1 = 0 and every further power vanishes: averages at small K "
            "show that K still "
            "falls, but more slowly than any power of the depth; exponents are zero up to logarithms."
        )
    elif first.numerical:
        law = (
            f"a_1 = 0; averages at small K show that the next order, K' = K (1 - {-first.alpha:.3g} "
            f"K^{first.power:.3g}), makes "
            f"K fall as l^-{first.p_0:.3g}."
        )
    else:
        law = (
            f"A derivative of sigma jumps at zero, so K' = K (1 - {-first.alpha:.4g} sqrt(K)) in place of "
            f"a_1, "
            f"and K falls as l^-2 with p_perp = {first.p_perp:.4g}."
        )
    basin = (
        ""
        if other is None
        else f" It does so only from below K = {other:.5g}, an unstable fixed point: start below it."
    )
    return f"sigma vanishes at zero with a slope, and K* = 0 attracts: {law}{basin}"


def half_stable(
    point: CriticalPoint, side: str, second: float, slope: float, other: float | None, found: Search
) -> str:
    away = "above" if side == "below" else "below"
    course = (
        f"K* = {point.K:.9g} attracts from {side} (the kernel map bends "
        f"{'upwards' if second > 0 else 'downwards'}: second "
        f"derivative {second:.4g}) and repels from {away}, slowly: |K - K*| is about "
        f"{2 / abs(second):.3g}/l after l layers."
    )
    runaway = (
        f" Kernels {away} it drift to K = {other:.5g}."
        if other is not None
        else f" Kernels {away} it drift away."
    )
    more = f" There are {len(found.points) - 1} further such points." if len(found.points) > 1 else ""
    return (
        f"Both susceptibilities are one at a K* > 0. {course}{runaway} There chi_perpendicular changes by "
        f"{slope:.4g} "
        f"per unit of K. Let the first layer start at K*.{more}"
    )


def unstable(first: Onset, other: float | None, chi_perp: float | None, found: Search) -> str:
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
        f"{fate}. "
        f"{_nothing_else(found)} {OTHERS}"
    )


def no_point(zero: Origin, found: Search) -> str:
    if abs(zero.value) > 0:
        origin = f"sigma(0) = {zero.value:.6g} is not zero, so K* = 0 is no fixed point."
    else:
        origin = "sigma'(0) = 0, so both susceptibilities vanish at K* = 0."
    return f"{origin} {_nothing_else(found)}"


def _nothing_else(found: Search) -> str:
    if found.impossible:
        listed = ", ".join(f"K = {point.K:.5g} (C_b = {point.C_b:.4g})" for point in found.impossible)
        return f"Both susceptibilities could be one only where C_b would be negative: at {listed}."
    where = f"for K from {found.lowest:.0e} to {found.highest:.1e}"
    if found.sign:
        word = "positive" if found.sign > 0 else "negative"
        order = "above" if found.sign > 0 else "below"
        result = (
            f"Each susceptibility can be one, but not both: <sigma sigma''> is {word} "
            f"{'for every K' if found.certain else where}, "
            f"so chi_parallel stays {order} chi_perpendicular."
        )
    else:
        result = f"No K* > 0 makes both susceptibilities one {where}."
    if found.certain:
        return result
    return (
        f"{result} The search failed beyond K = {found.highest:.2e}, where the averages overflow or cannot "
        f"be resolved, "
        "so a critical point there is not excluded."
    )


def shift(value: float, remedy: "Criticality") -> str:
    name = f"sigma(z) {'-' if value > 0 else '+'} {abs(value):.6g}"
    if remedy.universality_class in ("K*=0", "scale-invariant"):
        return f"Shifted to vanish at zero it is critical: {name} at C_b = 0, C_W = {remedy.C_W:.9g}."
    if remedy.universality_class == "half-stable":
        place = f"C_b = {remedy.C_b:.9g}, C_W = {remedy.C_W:.9g}"
        return f"Shifted to vanish at zero, {name} has a half-stable point: {place}."
    return f"Shifted to vanish at zero, {name} is {_fate(remedy)}; {_OUTSIDE}."


def _fate(remedy: "Criticality") -> str:
    return "unstable" if remedy.universality_class == "unstable" else "not critical either"
