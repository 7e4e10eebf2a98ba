"""Operations of JAX that are layers of the library: weights, norms, average pools.

Weights have the C_b and C_W that they are measured to have, and the learning rates of gradient descent with
one rate for all parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.layer_norm import LayerNorm
from finitewidth.network.layers.pooling import AveragePool

KNOWN = "networks have linear layers, convolutions, layer norms, average pools and skip connections"
_EPSILONS = (1e-5, 1e-6, 1e-3, 1e-12, 0.0)  # of layer norms in use


def with_variance(layer: Any, weights: np.ndarray, fan_in: int) -> Any:
    square = float(np.mean(np.asarray(weights, dtype=float) ** 2))
    return replace(layer, C_b=0.0, C_W=square * fan_in, lambda_b=0.0, lambda_W=float(fan_in))


def convolution(equation: Any, weights: np.ndarray) -> Conv:
    options, numbers = equation.params, equation.params["dimension_numbers"]
    spatial = numbers.rhs_spec[2:]
    plain = options["feature_group_count"] == options["batch_group_count"] == 1
    dilated = set(options["lhs_dilation"]) | set(options["rhs_dilation"]) != {1}
    if not plain or dilated or len(spatial) > 2:
        raise ValueError(f"the model has a convolution with groups, dilation or three axes; {KNOWN}.")
    taps = tuple(weights.shape[axis] for axis in spatial)
    width = weights.shape[numbers.rhs_spec[0]]
    padding = tuple((int(low), int(high)) for low, high in options["padding"])
    layer = Conv(width, taps, tuple(options["window_strides"]), padding)
    return with_variance(layer, weights, weights.size // width)


def norm(function: Callable, shape: Shape, batched: bool) -> LayerNorm | None:
    """The layer norm that a function is, with a gain of one and an offset of zero."""
    size = int(np.prod(shape))
    rows = np.random.default_rng(0).normal(size=(3, size)) * np.array([[1.0], [0.01], [3.0]])
    try:
        values = function(rows)
    except (TypeError, ValueError):
        return None
    if values.shape != rows.shape:
        return None
    axes = {"all": (size,)} if not batched else {"channels": (-1, shape[-1]), "all": (size,)}
    if len(shape) == 1 + batched:
        axes = {"channels": (size,)}
    for name, inner in axes.items():
        parts = rows.reshape(3, *inner)
        centred = parts - parts.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        for epsilon in _EPSILONS:
            if np.allclose(
                (centred / np.sqrt(variance + epsilon)).reshape(3, size), values, rtol=1e-6, atol=1e-9
            ):
                return LayerNorm(epsilon, name)
    return None


def window_pool(equation: Any) -> tuple[AveragePool, int]:
    """The average pool that a sum over windows becomes by the division by a number, and that number."""
    options = equation.params
    dilated = {*options.get("base_dilation", (1,)), *options.get("window_dilation", (1,))} != {1}
    spatial = slice(1, -1)  # between the samples and the channels
    window, stride = (tuple(options[name])[spatial] for name in ("window_dimensions", "window_strides"))
    padding = tuple((int(low), int(high)) for low, high in options["padding"])[spatial]
    number = int(np.prod(options["window_dimensions"]))
    if dilated or number != int(np.prod(window)):
        raise ValueError(f"the model has a pool over channels or with dilation; {KNOWN}.")
    return AveragePool(window, stride, padding), number
