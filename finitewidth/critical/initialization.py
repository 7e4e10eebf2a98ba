r"""The critical C_b and C_W of every layer, for one activation or for several in one network.

The step from layer l to l + 1 is critical where both susceptibilities of its activation are one at the kernel
$K^{(l)}$ that arrives. Where that is, depends on the class of the activation (PDLT sections 5.2 and 5.3):

| class | critical at |
|---|---|
| scale-invariant | every K, with $C_W = 1/A_2$ and any $C_b$ |
| K* = 0 | small K, which the steps themselves lead to with $C_W = 1/\sigma_1^2$, $C_b = 0$ |
| half-stable | $K = K^*$ only |

Without half-stable activations every layer takes C_b and C_W from the critical point of the activation before
it: scale-invariant steps keep K, and K* = 0 steps let it fall as a power of the depth.

A half-stable activation must receive its K*. The first layer then starts the kernel at the first such K*, and
the kernel is held. C_W makes $\chi_\perp = 1$ in every step, and C_b makes up for the kernel that the step
would lose:

$$C_W^{(l+1)} = 1/\langle\sigma_l'^2\rangle_{K^{(l)}}, \qquad
  C_b^{(l+1)} = K^{(l+1)} - C_W^{(l+1)} \langle\sigma_l^2\rangle_{K^{(l)}} \ge 0 .$$

Scale-invariant and half-stable steps are critical there. A step of the class K* = 0 keeps angles and
gradients, but its $\chi_\parallel < 1$ at a held kernel: differences of norm between inputs are forgotten.
Since C_b is a variance, a kernel can be raised to a larger K* but seldom lowered to a smaller one; such
networks are refused.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from finitewidth.critical.activations.classification import (
    Criticality,
    critical_variances,
    criticality,
    needed_kernel,
)
from finitewidth.critical.activations.susceptibilities import CRITICAL
from finitewidth.critical.one_input import readers
from finitewidth.gaussian.two_legs.one_leg import leg_averages
from finitewidth.network.network import Network


class Initialization(NamedTuple):
    """C_b and C_W of every layer."""

    C_b: tuple[float, ...]
    C_W: tuple[float, ...]


def critical_points(net: Network) -> tuple[Criticality, ...]:
    """The critical point of the activation on each hidden layer; of the declared one where there is none."""
    chosen = readers(net)
    return tuple(criticality(activation) for activation in chosen[: max(1, net.depth - 1)])


def critical_initialization(net: Network, input_scale: float) -> Initialization:
    """The critical C_b and C_W of each layer, or an error that names an activation which has none.

    At a half-stable point the first layer has C_b = 0 and C_W = K*/`input_scale`, so that an input whose
    components have mean square `input_scale` starts at K*. Otherwise it is set by the first activation.
    """
    points = critical_points(net)
    for point in dict.fromkeys(points):
        critical_variances(point, "pass C_b and C_W to fw.MLP yourself")
    wanted = [needed_kernel(point) for point in points]
    start = next((K for K in wanted if K is not None), None)
    if start is None:
        steps = [(_known(point.C_b), _known(point.C_W)) for point in points]
        first = steps[0]
    else:
        steps = _held(points, wanted, start)
        first = (0.0, start / input_scale)
    C_b, C_W = zip(first, *steps[: net.depth - 1], strict=True)
    return Initialization(C_b, C_W)


def is_critical(net: Network) -> bool:
    """Whether all layers beyond the first have the critical C_b and C_W.

    The first layer is free: its kernel is that of the inputs.
    """
    try:
        critical = critical_initialization(net, 1.0)
    except ValueError:
        return False
    return np.allclose(net.C_b[1:], critical.C_b[1:], rtol=CRITICAL, atol=1e-12) and np.allclose(
        net.C_W[1:], critical.C_W[1:], rtol=CRITICAL, atol=0
    )


def _held(
    points: Sequence[Criticality], wanted: Sequence[float | None], start: float
) -> list[tuple[float, float]]:
    """C_b and C_W of layers 2 to L, which give every half-stable activation its K*."""
    steps, K, upcoming = [], start, _upcoming(wanted)
    for l, point in enumerate(points, start=1):  # the activation of layer l sets layer l + 1
        C_W, image = _keeping_gradients(point, K)
        needed = wanted[l] if l < len(wanted) else None
        if needed is not None and needed < image * (1 - CRITICAL):
            _refuse(points, l, image, needed)
        # hold the kernel, or lower it as far as the next half-stable activation needs and C_b allows
        target = max(image, min(K, upcoming[l])) if needed is None else needed
        unchanged = point.K_star == K == target
        steps.append((_known(point.C_b) if unchanged else max(0.0, target - image), C_W))
        K = target
    return steps


def _upcoming(wanted: Sequence[float | None]) -> list[float]:
    """For each layer the K* of the next half-stable activation, itself included; infinite behind the last."""
    upcoming = [math.inf]
    for needed in reversed(wanted):
        upcoming.append(upcoming[-1] if needed is None else needed)
    return upcoming[::-1]


def _keeping_gradients(point: Criticality, K: float) -> tuple[float, float]:
    """C_W with chi_perp = 1 at K, and the kernel C_W <sigma^2> behind the step without C_b."""
    if point.universality_class == "scale-invariant":
        return _known(point.C_W), K
    if point.universality_class == "half-stable":  # K = K*
        return _known(point.C_W), K - _known(point.C_b)
    averages = leg_averages(point.activation, np.asarray([K]))
    C_W = float(1 / averages.slope[0])
    return C_W, C_W * float(averages.square[0])


def _known(value: float | None) -> float:
    assert value is not None  # critical_variances
    return value


def _refuse(points: Sequence[Criticality], l: int, image: float, needed: float) -> None:
    before, after = points[l - 1].activation.name, points[l].activation.name
    raise ValueError(
        f"activations {before!r} on layer {l} and {after!r} on layer {l + 1} cannot be critical together: "
        f"with chi_perpendicular = 1 layer {l + 1} receives a kernel of at least {image:.4g}, but {after!r} "
        f"needs K* = {needed:.4g}, so C_b would be negative; put activations with a larger K* behind those "
        "with a smaller one."
    )
