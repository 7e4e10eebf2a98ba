"""Critical exponents fitted from a deep network, to be compared with the stated ones."""

from collections.abc import Callable, Mapping

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.critical.activations.stated_exponents import ALL, FINITE_WITH_KINKS
from finitewidth.critical.one_input import layer_by_layer
from finitewidth.critical.tuning import critical_network
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.network import Network
from finitewidth.theory import one_input
from finitewidth.theory.ratios import POWERS


def exponents(
    activation: str | Activation | Callable,
    *,
    depth: int = 4000,
    lambda_b: float = 1.0,
    lambda_W: float = 1.0,
) -> Mapping[str, Estimate]:
    """Exponents measured on a critical network of that depth with one input, each with an error bar.

    The critical point and the learning rates are used; the stated exponents are not. Activations with kinks
    that are not scale-invariant give p_0, p_perp and p_Theta only.

    Args:
        activation: A name, an `fw.Activation` or a function; it is that of all layers.
        depth: The number of layers.
        lambda_b: The learning rate of biases before it is shared out over the layers.
        lambda_W: That of weights.

    Returns:
        Estimates by the name of the exponent.

    ```python
    fw.critical.exponents("tanh", depth=200)["p_0"]
    ```
    """
    if depth < 100:
        raise ValueError(f"depth must be at least 100 for a power of the depth to show, got {depth}.")
    net = critical_network((1, *[1] * depth), as_activation(activation), lambda_b, lambda_W)
    curves = _curves(net)
    return {name: fit_power(curve) for name, curve in curves.items() if curve[depth // 2 :].any()}


def _curves(net: Network) -> dict[str, np.ndarray]:
    """|X| by layer for every statistic that the network has."""
    path = layer_by_layer(net, 1.0)
    separation = np.concatenate([[1.0], np.cumprod(path.perpendicular[:-1])])
    curves = {"p_0": path.K, "p_perp": separation, "p_Theta": path.Theta}
    if not one_input.applies(net):
        return curves
    statistics = one_input.single_input(net, 1.0, 1e-12).layers
    for name in ALL if net.is_smooth else FINITE_WITH_KINKS:
        k, theta = POWERS[name]
        curves[name] = np.abs(statistics[name]) / (statistics["K"] ** k * statistics["Theta"] ** theta)
    return curves


def fit_power(curve: np.ndarray) -> Estimate:
    """The p of l^-p at the end of a curve over layers 1, 2, ..., with an error bar.

    Corrections to a power law are of relative order (a + b log l)/l and are fitted too. The remaining error
    is systematic: the error bar is twice the largest change when the window of layers is moved, plus
    rounding.
    """
    value = _slope(curve, 1 / 30, 1.0)
    others = [_slope(curve, 1 / 10, 1.0), _slope(curve, 1 / 60, 0.5), _slope(curve, 1 / 30, 0.7)]
    error = 2 * max(abs(value - other) for other in others) + 1e-6
    return Estimate(np.asarray(value), np.asarray(error))


def _slope(curve: np.ndarray, start: float, end: float) -> float:
    first, last = max(8, int(start * curve.size)), int(end * curve.size)
    l = np.unique(np.geomspace(first, last, 200).astype(int))
    design = np.stack([np.ones(l.size), -np.log(l), 1 / l, np.log(l) / l], axis=-1)
    scale = np.abs(design).max(axis=0)
    solution = np.linalg.lstsq(design / scale, np.log(curve[l - 1]), rcond=None)[0] / scale
    return float(solution[1])
