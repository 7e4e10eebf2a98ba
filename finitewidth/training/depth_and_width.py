r"""Expected test loss as a function of depth and width, through order 1/n.

$$\mathbb{E}[L_B] = \text{bias} + \text{variance}, \qquad
  \mathbb{E}[L_B](n) = \mathbb{E}[L_B](\infty) + c\, \frac{L}{n} + O(1/n^2)$$

The sign of c says whether finite width helps (PDLT sections 10.3 and inf.2.4). Where the kernel falls with
depth as $L^{-p_0}$ targets are scaled by $L^{-p_0/2}$ and losses given in units of $L^{-p_0}$, so that depths
can be compared (inf.23)-(inf.26).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.algorithm import Algorithm, GradientFlow
from finitewidth.inputs import as_inputs, as_targets
from finitewidth.network import MLP
from finitewidth.theory.criticality import criticality
from finitewidth.training.finite_width import FiniteWidth, finite_width
from finitewidth.training.generalization import TestLoss, test_loss

_WIDE = 10_000_000  # corrections of order 1/n^2 are below rounding of those of order 1/n

NetworkOfWidths = Callable[[tuple[int, ...]], MLP]


@dataclass(frozen=True, eq=False)
class ExpectedLoss:
    """Expected test loss over depths and widths, split into bias and variance."""

    depths: Float[np.ndarray, " D"]
    widths: Float[np.ndarray, " W"]
    bias: Float[np.ndarray, "D W"]
    variance: Float[np.ndarray, "D W"]
    infinite_bias: Float[np.ndarray, " D"]
    infinite_variance: Float[np.ndarray, " D"]
    bias_coefficient: Float[np.ndarray, " D"]  # of L/n
    variance_coefficient: Float[np.ndarray, " D"]
    target_scale: Float[np.ndarray, " D"] = field(repr=False)  # by which targets were scaled

    @property
    def total(self) -> Float[np.ndarray, "D W"]:
        return self.bias + self.variance

    @property
    def infinite_total(self) -> Float[np.ndarray, " D"]:
        return self.infinite_bias + self.infinite_variance

    @property
    def coefficient(self) -> Float[np.ndarray, " D"]:
        """c: the change of the loss with L/n; negative where finite width helps."""
        return self.bias_coefficient + self.variance_coefficient


def expected_loss(
    net: MLP | NetworkOfWidths,
    X_train,
    Y_train,
    X_test,
    Y_test,
    *,
    depths: Sequence[int],
    widths: Sequence[int],
    algorithm: Algorithm = GradientFlow(),
    four_leg_tolerance: float | None = None,
) -> ExpectedLoss:
    """Expected test loss at order 1/n for networks of several depths and hidden widths.

    `net` is a network whose hyperparameters are the same in all layers, or a function from widths to a
    network, such as `lambda widths: fw.MLP.critical(widths, "tanh")`. Depth counts layers with parameters.
    """
    depths, widths = _whole("depths", depths, 2), _whole("widths", widths, 2)
    X_train = np.asarray(X_train)
    build, ends = _builder(net, X_train)
    X = as_inputs(X_train, ends[0], name="X_train")
    Y = as_targets(Y_train, X.shape[0], np.shape(Y_train)[-1])
    Y_test = np.asarray(Y_test, dtype=float)
    rows = []
    for depth in depths:
        network = build((ends[0], *[_WIDE] * (depth - 1), Y.shape[1]))
        prepared = finite_width(network, X, Y, X_test, four_leg_tolerance=four_leg_tolerance)
        rows.append(_of_depth(prepared, Y_test, widths, algorithm))
    stacked = [np.stack(column) for column in zip(*rows, strict=True)]
    return ExpectedLoss(np.asarray(depths, float), np.asarray(widths, float), *stacked)


def _of_depth(prepared: FiniteWidth, Y_test: np.ndarray, widths: Sequence[int], algorithm: Algorithm):
    depth, activation = prepared.net.depth, prepared.net.activation
    point = criticality(activation)
    power = point.exponents["p_0"] if point.universality_class == "K*=0" else 0.0
    scale = float(depth) ** (-power / 2)
    scaled = prepared.with_targets(scale * prepared.Y)

    def loss(width: int) -> tuple[TestLoss, TestLoss]:
        prediction = scaled.with_width(width).predict(algorithm)
        both = (prediction, prediction.infinite_width)
        first, leading = (test_loss(p, scale * Y_test) for p in both)
        return first, leading

    losses = [loss(width)[0] for width in widths]
    wide, infinite = loss(_WIDE)
    unit = scale**2
    slope = [
        (getattr(wide, part) - getattr(infinite, part)) * _WIDE / depth / unit
        for part in ("bias", "variance")
    ]
    return (
        np.array([found.bias for found in losses]) / unit,
        np.array([found.variance for found in losses]) / unit,
        infinite.bias / unit,
        infinite.variance / unit,
        *slope,
        scale,
    )


def _builder(net: MLP | NetworkOfWidths, X_train: np.ndarray) -> tuple[NetworkOfWidths, tuple[int, ...]]:
    if not isinstance(net, MLP):
        return net, (int(X_train.shape[-1]),)
    values = {}
    for name in ("C_b", "C_W", "lambda_b", "lambda_W"):
        per_layer = getattr(net, name)
        if len(set(per_layer)) > 1:
            raise ValueError(
                f"net has different values of {name} in its layers, {per_layer}; pass a function of widths "
                "that makes a network of any depth."
            )
        values[name] = per_layer[0]
    return lambda widths: MLP(widths, net.activation, **values), (net.widths[0],)


def _whole(name: str, values: Sequence[int], lowest: int) -> list[int]:
    found = [int(value) for value in np.atleast_1d(values)]
    if (
        not found
        or min(found) < lowest
        or any(a != b for a, b in zip(found, np.atleast_1d(values), strict=True))
    ):
        raise ValueError(f"{name} must be whole numbers of at least {lowest}, got {list(values)!r}.")
    return found
