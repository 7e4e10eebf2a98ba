"""The network and the regression problem that the values of the page describe."""

import math

import numpy as np

from finitewidth.critical.activations.classification import criticality
from finitewidth.interface.page.values import BadValues, Values
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import TwoStep
from finitewidth.network.mlp import MLP

# x is an angle: the input of the network is sqrt(2) (cos x, sin x), of mean square one for every x
SPAN = 1.5
_OUTERMOST = 1.05
# inputs at which corrections of order 1/n are computed, in parts that are each spread over all x
PARTS = (
    (-1.5, -0.7, 0.0, 0.7, 1.5),
    (-0.525, -0.175, 0.175, 0.525),
    (-1.275, -0.875, 0.875, 1.275),
)
_COMPARED = PARTS[:2]  # real networks are evaluated at fewer inputs, to be trained sooner
_TARGETS = {
    "sine": lambda x: np.sin(2 * x),
    "line": lambda x: x,
    "parabola": lambda x: x**2 - 0.5,
    "step": np.sign,
}


def inputs(x) -> np.ndarray:
    """The inputs of the network at the angles x, (N, 2)."""
    x = np.asarray(x, dtype=float)
    return math.sqrt(2) * np.stack([np.cos(x), np.sin(x)], axis=1)


def training_points(values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Angles and targets of the training set."""
    x = training_inputs(values.points)
    return x, _TARGETS[values.target](x)


def training_inputs(points: int) -> np.ndarray:
    """Angles of the training set."""
    return np.linspace(-_OUTERMOST, _OUTERMOST, points)


def compared(x_train: np.ndarray) -> np.ndarray:
    """All angles at which finite width and real networks are compared."""
    return np.unique(np.concatenate([x_train, *_COMPARED]))


def curve(x_train: np.ndarray) -> np.ndarray:
    """The angles of a smooth curve, and the angles of all other curves, which are compared with it."""
    return np.unique(np.concatenate([np.linspace(-SPAN, SPAN, 61), x_train, *PARTS]))


def network(values: Values, width: int | None = None) -> MLP:
    """The network, with another width if one is given."""
    widths = (2, *[width or values.width] * (values.depth - 1), 1)
    rates = (values.lambda_b, values.lambda_W)
    if values.start == "own":
        return MLP(widths, values.activation, values.C_b, values.C_W, *rates, values.weights)
    point = criticality(values.activation)
    if point.universality_class in ("none", "unstable"):
        raise BadValues(
            {"start": f"{values.activation} has no critical point: {point.explanation} Choose C_b and C_W."}
        )
    return MLP.critical(widths, values.activation, *rates, weights=values.weights)


def algorithm(values: Values) -> AbstractAlgorithm:
    """The training algorithm."""
    match values.algorithm:
        case "flow":
            return GradientFlow()
        case "flow_time":
            return GradientFlow(values.time)
        case "descent":
            return GradientDescent(values.learning_rate, values.steps)
    return TwoStep()
