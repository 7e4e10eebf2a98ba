"""Initialization and learning rates, which all layers with weights share."""

import math
from collections.abc import Callable
from typing import Any

from finitewidth.core.inputs import as_number

WIDEST = 2**53  # whole numbers beyond that are not numbers of double precision
ENSEMBLES = ("gaussian", "orthogonal")  # what weights are drawn from
RateRule = Callable[[Any, int], tuple[float, float]]  # lambda_b, lambda_W of a layer with so many inputs
HYPERPARAMETERS = ("C_b", "C_W", "lambda_b", "lambda_W")


def check_weights(layer: Any, names: tuple[str, ...] = HYPERPARAMETERS) -> None:
    """Width and hyperparameters of a frozen layer as numbers, or an error that names the wrong one."""
    object.__setattr__(layer, "width", as_width("width", layer.width))
    for name in names:
        object.__setattr__(layer, name, as_variance(name, getattr(layer, name)))


def as_ensemble(name: str, value) -> str:
    """What weights are drawn from, by name."""
    if value not in ENSEMBLES:
        raise ValueError(f"{name} must be 'gaussian' or 'orthogonal', got {value!r}; write one of the two.")
    return value


def as_variance(name: str, value) -> float:
    """A finite number of at least zero."""
    number = as_number(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value!r}; change it.")
    return number


def as_width(name: str, value) -> int:
    """A number of neurons."""
    number = as_number(value)
    if not (math.isfinite(number) and number == int(number) and 1 <= number <= WIDEST):
        raise ValueError(f"{name} must be a whole number from 1 to 2^53, got {value!r}.")
    return int(number)


def standard_rates(layer: Any, fan_in: int) -> tuple[float, float]:
    """One learning rate for all parameters: lambda_W / fan-in = lambda_b = 1; a rate of zero stays zero."""
    return float(layer.lambda_b > 0), float(fan_in) if layer.lambda_W > 0 else 0.0


def ntk_rates(layer: Any, fan_in: int) -> tuple[float, float]:
    """Rates equal to the variances; a rate of zero stays zero."""
    return layer.C_b if layer.lambda_b > 0 else 0.0, layer.C_W if layer.lambda_W > 0 else 0.0
