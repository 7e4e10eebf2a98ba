r"""Gains of norms that learn, at order 1/n.

The tangent of a gain lives on its own channel, where it is $\lambda u$. With $t(u) = u \sigma'(u)$ the NTK
feature of a channel becomes

$$X_{12} = \lambda_W \sigma_1\sigma_2 + C_W \Theta_{12} \sigma'_1\sigma'_2 + C_W \lambda\, t_1 t_2,$$

and F and B, which tie two pairs by tangents, get $C_W^2 \lambda \langle t_1\sigma_3 t_2\sigma_4\rangle$ and
$C_W^2 (\lambda\Theta_{34} \langle t_1\sigma'_3 t_2\sigma'_4\rangle + \lambda\Theta_{12}
\langle \sigma'_1 t_3 \sigma'_2 t_4\rangle + \lambda^2 \langle t_1 t_3 t_2 t_4\rangle)$. Of two straight
lines t is sigma itself. An offset only adds its rate to Theta.
"""

import numpy as np

from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.four_legs.two_layers import four_legs_of_two_layers
from finitewidth.gaussian.two_legs.averages import relative_two_legs
from finitewidth.network.ladder import NotAtFirstOrder
from finitewidth.network.layers.activation import Activation, times_slope
from finitewidth.theory.feature_products import FourLegs, moment, tie
from finitewidth.theory.features import order_of_gain
from finitewidth.theory.layers.activation import KernelResponse, Moments
from finitewidth.theory.layers.pair_map import Feature, PairMap
from finitewidth.theory.recursion import Blocks
from finitewidth.theory.steps import Step

_ORDERS = ((0, 0), (1, 1), (2, 0), (2, 2), (3, 1), (4, 0))


def with_gains(known: Moments, activation: Activation, K: np.ndarray, accuracy: float) -> Moments:
    """The averages of a step together with those of t."""
    if activation.slopes is not None:
        return known._replace(gains=known.sigma)
    if not activation.is_smooth:
        raise NotAtFirstOrder(f"a gain that learns before activation {activation.name!r}, which has kinks")
    e, error = relative_two_legs(times_slope(activation), K, _ORDERS, accuracy)
    e |= {(b, a): value.T for (a, b), value in e.items()}
    gradient = PairMap(e[2, 0] / 2, e[1, 1], e[0, 2] / 2)
    bend = tuple(e[4 - k, k] for k in range(5))
    return known._replace(gains=KernelResponse(e[0, 0], gradient, bend), error=max(known.error, error))


def averages_with_gains(known: FourLegs, activation: Activation, K: np.ndarray, accuracy: float) -> FourLegs:
    """Four-leg averages together with those of t on two or four legs."""
    if activation.slopes is not None:
        return known
    t = times_slope(activation)
    order, joint = order_of_gain(activation), np.tile(K, (2, 2))
    asked: dict[Family, tuple[Family, tuple[Activation, Activation]]] = {
        (order, order, 0, 0): ((0, 0, 0, 0), (t, activation)),
        (order, order, 1, 1): ((0, 0, 1, 1), (t, activation)),
        (order, order, order, order): ((0, 0, 0, 0), (t, t)),
    }
    values, error = dict(known.values), known.error
    for family, (orders, pair) in asked.items():
        average = four_legs_of_two_layers(pair, joint, (orders,), tolerance=accuracy)[orders]
        values[family], error = np.asarray(average.value), max(error, average.error)
    return FourLegs(values, error)


def single_slope(step: Step) -> np.ndarray:
    """<t'_1 t_2>."""
    return relative_two_legs(times_slope(step.activation), step.K, ((1, 0),))[0][1, 0]


def add(blocks: Blocks, step: Step, averages: FourLegs) -> None:
    """Add to F and B what gains create."""
    order, Theta = order_of_gain(step.activation), step.Theta
    with_sigma, with_slope, twice = (_feature(order, other) for other in (0, 1, order))
    first_slope = _feature(1, order)
    C, gain, values = step.C_W, step.gain, averages.values
    blocks["f", "f"] += C**2 * gain * moment(with_sigma, with_sigma, values)
    blocks["b", "b"] += C**2 * gain * tie(Theta, "b", "d") * moment(with_slope, with_slope, values)
    blocks["b", "b"] += C**2 * gain * tie(Theta, "a", "c") * moment(first_slope, first_slope, values)
    blocks["b", "b"] += C**2 * gain**2 * moment(twice, twice, values)


def _feature(first: int, second: int) -> Feature:
    """A leg of each of the two sites."""
    return {((0, first), (1, second)): 1.0}
