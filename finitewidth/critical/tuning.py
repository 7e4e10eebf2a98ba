r"""The critical network: initialization at the critical point, learning rates by the equivalence principle.

Every layer shall contribute equally to the NTK (PDLT section 9.4). A layer's contribution is its learning
rate times the product of $\chi_\perp$ over the layers above, and for weights also times the mean square of
the signal that arrives.

| class of the one activation | lambda_b of layer l | lambda_W of layer l |
|---|---|---|
| scale-invariant, (9.94) | lambda_b / L | lambda_W / L |
| K* = 0, (9.95) | lambda_b l^-p_perp L^(p_perp-1) | lambda_W (L/l)^(p_perp-1) |
| half-stable | lambda_b / (L product of chi_perp above) | lambda_W / (L product of chi_perp above) |

Where K falls as l^-p_0 with p_0 other than one (a derivative jumps at zero, or a_1 vanishes) the weights' law
becomes lambda_W l^(p_0-p_perp) L^(p_perp-1), which is the one in the table for p_0 = 1.

Where activations differ, no law in l exists and the contributions of one input are computed:

$$\lambda_b^{(l)} = \frac{\lambda_b}{L} \prod_{m=l}^{L-1} \frac{1}{\chi_\perp^{(m)}}, \qquad
  \lambda_W^{(l)} = \frac{x^2}{\langle\sigma_{l-1}^2\rangle}\, \frac{\lambda_W}{L}
  \prod_{m=l}^{L-1} \frac{1}{\chi_\perp^{(m)}}$$

with $x^2$ the mean square of the input components. The NTK of that input is then $\lambda_b + \lambda_W x^2$,
as it is for one layer, and every layer has an equal share in both terms. Networks of other layers have the
same rule (`architectures/tuning.py`).

With equal lambda_b and lambda_W biases take most of the NTK where the signal is small. What they add is the
same for every pair of inputs: it raises the largest eigenvalue, which limits the learning rate, and tells no
inputs apart. `bias_share` therefore sets what biases add over what the weights of their layer add:

$$\lambda_b^{(l)} = \mathrm{share} \cdot \lambda_W^{(l)} \langle\sigma_{l-1}^2\rangle$$

Shares of a tenth and less trained best, shares of one clearly worse (benchmarks/advice/results/tuned.md).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from finitewidth.critical.activations.classification import Criticality
from finitewidth.critical.architectures.tuning import tuned_layers
from finitewidth.critical.architectures.weights import with_weights
from finitewidth.critical.initialization import critical_initialization, critical_points
from finitewidth.critical.one_input import is_dense, layer_by_layer
from finitewidth.gaussian.two_legs.leg_table import leg_table
from finitewidth.network.layers.dense import Dense
from finitewidth.network.mlp import MLP, Activations
from finitewidth.network.network import Network

_KERNELS = np.geomspace(0.1, 1e4, 400)  # at which a network without biases may be held
_LOSS = 1.0  # logarithm of what gradients and norms may gain or lose over all its layers
BIAS_SHARE = 0.1  # of the NTK that the weights of a layer add, what its biases should add


def critical_network(
    widths: Sequence[int],
    activation: Activations,
    lambda_b=1.0,
    lambda_W=1.0,
    input_scale=1.0,
    bias_share=None,
) -> MLP:
    """A network at criticality whose layers contribute equally to the NTK (PDLT sections 5.2, 5.3 and 9.4).

    `activation` is one activation, or one for each hidden layer: `critical_initialization` has the rule for
    C_b and C_W. `input_scale` is the mean square of the input components; it matters where the kernel must
    start at a K* > 0, for the learning rates of networks with different activations and for
    `bias_share`, which takes the place of `lambda_b`.
    """
    input_scale = _positive("input_scale", input_scale)
    rate_b, rate_W = _rate("lambda_b", lambda_b), _rate("lambda_W", lambda_W)
    share = _share(bias_share, rate_b)
    net = MLP(widths, activation)
    C_b, C_W = critical_initialization(net, input_scale)
    net = net.replace(C_b=C_b, C_W=C_W)
    shares_b, shares_W = equivalent_rates(net, input_scale)
    rates_W = rate_W * shares_W
    rates_b = rate_b * shares_b
    if share is not None:
        rates_b = share * rates_W * layer_by_layer(net, input_scale).arriving
    return net.replace(lambda_b=tuple(rates_b.tolist()), lambda_W=tuple(rates_W.tolist()))


def critical_version(net: Network, lambda_b=1.0, lambda_W=1.0, input_scale=1.0, bias_share=None) -> Network:
    """The network with the same layers, but critical C_b and C_W and equivalent learning rates.

    Networks of dense layers and activations get those of `critical_network`. What has no critical point is
    refused by name.
    """
    input_scale = _positive("input_scale", input_scale)
    rates = _rate("lambda_b", lambda_b), _rate("lambda_W", lambda_W)
    share = _share(bias_share, rates[0])
    if is_dense(net):
        critical = critical_network(
            net.widths, net.activations or "linear", *rates, input_scale, bias_share=share
        )
        dense = iter(critical.dense)
        with_kind = lambda old: replace(next(dense), weights=cast(Dense, old).weights)  # noqa: E731
        return net.replace(layers=with_weights(net.layers, with_kind))
    return net.replace(layers=tuned_layers(net.layers, net.input_shape, *rates, input_scale, share))


def held_without_biases(net: Network, input_scale: float) -> MLP | None:
    """C_b = 0, and the smallest kernel that C_W can hold so that the whole depth changes little.

    For perceptrons of one activation; None where no such kernel exists. Far from zero an activation such as
    gelu is two straight lines, which need no biases: the loss falls with the kernel, and grows with depth.
    """
    if not isinstance(net, MLP) or len(set(net.activations)) > 1:
        return None
    averages = leg_table(net.activations[0])(_KERNELS)
    C_W = _KERNELS / averages.square
    rates = np.abs(np.log(np.stack([C_W * averages.slope, C_W * averages.growth]))).max(axis=0)
    good = np.flatnonzero(rates * (net.depth - 1) <= _LOSS)
    if not good.size:
        return None
    K, hidden = float(_KERNELS[good[0]]), float(C_W[good[0]])
    scale = min(1.0, 1 / K)  # of the outputs
    C_W_all = (K / input_scale, *[hidden] * (net.depth - 2), scale * hidden)
    return net.replace(C_b=0.0, C_W=C_W_all[: net.depth])


def equivalent_rates(net: Network, input_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The factors on lambda_b and lambda_W of each layer of a critical network, (L,) and (L,)."""
    points = critical_points(net)
    if len(set(net.activations)) > 1:
        return _computed_rates(net, input_scale)
    if points[0].universality_class == "half-stable":
        above = products_above(layer_by_layer(net, input_scale).perpendicular)
        return 1 / (net.depth * above), 1 / (net.depth * above)
    return _rates_by_law(points[0], net.depth)


def _rates_by_law(point: Criticality, L: int) -> tuple[np.ndarray, np.ndarray]:
    if point.universality_class == "scale-invariant":
        return np.full(L, 1 / L), np.full(L, 1 / L)
    l = np.arange(1, L + 1.0)
    p_0, p_perp = point.exponents["p_0"], point.exponents["p_perp"]
    return l**-p_perp * L ** (p_perp - 1), l ** (p_0 - p_perp) * L ** (p_perp - 1)


def _computed_rates(net: Network, input_scale: float) -> tuple[np.ndarray, np.ndarray]:
    path = layer_by_layer(net, input_scale)
    biases = 1 / (net.depth * products_above(path.perpendicular))
    return biases, biases * input_scale / path.arriving


def products_above(chi: np.ndarray) -> np.ndarray:
    """For each layer the product of chi_perp from it to the layer before the output."""
    return np.concatenate([np.cumprod(chi[:-1][::-1])[::-1], [1.0]])


def _positive(name: str, value) -> float:
    number = _rate(name, value)
    if number == 0:
        raise ValueError(
            f"{name} must be above 0, got {value!r}; it is the mean square of the input components."
        )
    return number


def _share(bias_share, lambda_b: float) -> float | None:
    if bias_share is None:
        return None
    if lambda_b != 1:
        raise ValueError(
            f"bias_share takes the place of lambda_b, got bias_share={bias_share!r} and "
            f"lambda_b={lambda_b!r}; give one of them."
        )
    return _rate("bias_share", bias_share)


def _rate(name: str, value) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be one number, got {value!r}; the layers' shares are computed."
        ) from None
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value!r}.")
    return number
