r"""Kernel and NTK of two nearby inputs, expanded in their distance, layer by layer.

For $x_\pm = x_0 \pm \delta x / 2$ every pair matrix X = K or Theta is written (PDLT 5.15, 10.58)

$$X_{\pm\pm} = X_{[0]} \pm X_{[1]} + X_{[2]}, \qquad X_{+-} = X_{[0]} - X_{[2]},$$

$$X_{[0]} = X_{00} + \delta\delta X_{[0]}, \quad X_{[1]} = \delta X_{[1]},
  \quad X_{[2]} = \delta\delta X_{[2]},$$

through second order in $\delta x$, with $X_{00}$ the value at the midpoint. Recursions as (10.67) and
(10.70), here with the terms in $\delta X_{[1]}$ of inputs with different norms.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.gaussian.two_legs import quadrature
from finitewidth.network.layers.activation import Activation
from finitewidth.network.network import Network
from finitewidth.theory.checks import require_dense
from finitewidth.theory.layers.dense import behind_weights
from finitewidth.theory.steps import TwoLegs, over_depth

_ORDERS = ((0, 0), (1, 1), (2, 0), (2, 2), (3, 1), (4, 0), (3, 3), (4, 2), (5, 1))


COEFFICIENTS = ("K00", "K0", "K1", "K2", "Theta00", "Theta0", "Theta1", "Theta2")


@shown("robustness", "curvature", "K00", "Theta00", dimensions=dict.fromkeys(COEFFICIENTS, "layer"))
@dataclass(frozen=True, eq=False)
class DeltaExpansion:
    """Coefficients of the expansion at every layer; the distance is included in them."""

    K00: Float[np.ndarray, " L"]
    K0: Float[np.ndarray, " L"]  # second order
    K1: Float[np.ndarray, " L"]  # first order; zero for equal norms
    K2: Float[np.ndarray, " L"]  # second order
    Theta00: Float[np.ndarray, " L"]
    Theta0: Float[np.ndarray, " L"]
    Theta1: Float[np.ndarray, " L"]
    Theta2: Float[np.ndarray, " L"]

    @property
    def robustness(self) -> Float[np.ndarray, " L"]:
        """Theta_{-+}/Theta_{++} - 1 through second order (PDLT 10.65)."""
        first = self.Theta1 / self.Theta00
        return -first - 2 * self.Theta2 / self.Theta00 + first**2

    @property
    def variance(self) -> Float[np.ndarray, " L"]:
        """Of a network trained on x_+ at x_-, through second order (PDLT 10.66)."""
        first = self.Theta1 / self.Theta00
        return 4 * self.K2 - 2 * self.K1 * first + self.K00 * first**2

    @property
    def curvature(self) -> Float[np.ndarray, " L"]:
        """Of interpolation between x_+ and x_-: the second-order part of Theta_[0] over Theta_00."""
        return self.Theta0 / self.Theta00


@dataclass(frozen=True)
class _Expanded:
    """A pair matrix through second order: midpoint, first order, second order on and off the diagonal."""

    midpoint: float
    first: float = 0.0  # X_{++} minus X_{--}, halved
    on: float = 0.0
    off: float = 0.0

    def __add__(self, other: "_Expanded | float") -> "_Expanded":
        b = _as_expanded(other)
        return _Expanded(self.midpoint + b.midpoint, self.first + b.first, self.on + b.on, self.off + b.off)

    def __mul__(self, other: "_Expanded | float") -> "_Expanded":
        """Entry by entry; the two signs of the first order cancel off the diagonal."""
        a, b = self, _as_expanded(other)
        return _Expanded(
            a.midpoint * b.midpoint,
            a.midpoint * b.first + a.first * b.midpoint,
            a.midpoint * b.on + a.first * b.first + a.on * b.midpoint,
            a.midpoint * b.off + a.off * b.midpoint,
        )

    __radd__, __rmul__ = __add__, __mul__

    @property
    def components(self) -> tuple[float, float, float, float]:
        """Midpoint, [0], [1], [2]."""
        return self.midpoint, (self.on + self.off) / 2, self.first, (self.on - self.off) / 2


def _as_expanded(value: "_Expanded | float") -> _Expanded:
    return value if isinstance(value, _Expanded) else _Expanded(value)


def delta_expansion(net: Network, x_plus: ArrayLike, x_minus: ArrayLike) -> DeltaExpansion:
    """K and Theta of two nearby inputs through second order in their distance, at every layer.

    Args:
        net: The network.
        x_plus: One input (n_0,).
        x_minus: The other input (n_0,).

    Returns:
        One number for each layer and quantity, and `robustness` and `curvature`.

    ```python
    fw.textbook.delta_expansion(net, X[0], X[0] + 0.01).curvature[-1]
    ```
    """
    require_dense(net, what="delta_expansion", instead="use fw.textbook.neighbour, which takes any network")
    if net.kinked is not None:
        raise ValueError(
            f"activation {net.kinked.name!r} has a kink, and its kernels no expansion in the distance "
            "of two inputs; use fw.textbook.neighbour, or fw.textbook.finite_angle for scale-invariant "
            "activations."
        )
    plus, minus = two_inputs(net, x_plus, x_minus)
    first = behind_weights(net.dense[0], _products((plus + minus) / 2, plus - minus))

    def averages(layer: int, K: _Expanded) -> TwoLegs:
        return _averages(net.activations[layer - 1], K)

    means = [first, *(above for _, _, above in over_depth(net.ladder, first, averages))]
    columns = ([pair.components for pair in column] for column in zip(*means, strict=True))
    K, Theta = (np.asarray(column).T for column in columns)
    return DeltaExpansion(*K, *Theta)


def two_inputs(
    net: Network, x_plus, x_minus, *, names: tuple[str, str] = ("x_plus", "x_minus")
) -> tuple[np.ndarray, np.ndarray]:
    """Two checked inputs, which may be rows of one."""
    shape, pair = net.input_shape, (np.atleast_1d(x) for x in (x_plus, x_minus))
    rows = (x[None] if x.ndim == len(shape) else x for x in pair)
    plus, minus = (as_inputs(x, shape, name=name) for x, name in zip(rows, names, strict=True))
    if plus.shape[0] != 1 or minus.shape[0] != 1:
        raise ValueError(f"{names[0]} and {names[1]} must be one input each; pass rows of n_0 numbers.")
    return plus[0], minus[0]


def _products(middle: np.ndarray, difference: np.ndarray) -> _Expanded:
    """x.x / n_0 ends at second order: [2] is |dx|^2 / 4 n_0 and [0] has no second order."""
    n_0 = middle.size
    square = float(difference @ difference) / (4 * n_0)
    return _Expanded(float(middle @ middle) / n_0, float(middle @ difference) / n_0, square, -square)


def _averages(activation: Activation, K: _Expanded) -> TwoLegs:
    """<s s> and <s' s'> of the pair, from averages at the midpoint's variance."""
    largest = 2.0 ** np.ceil(np.log2(max(K.midpoint, 1e-300)))  # few values, so that the rule is cached
    precision = quadrature.precision(activation, float(largest), _ORDERS, 1e-12)
    averages = quadrature.one_sample(activation, np.asarray([K.midpoint]), _ORDERS, count=precision.count)
    e = dict(zip(_ORDERS, averages.fine[:, 0].tolist(), strict=True))
    return TwoLegs(_average(e, 0, K), _average(e, 1, K))


def _average(e: dict[tuple[int, int], float], u: int, K: _Expanded) -> _Expanded:
    """<f f> with f the derivative of order u: its first and second derivatives by the entries of K."""
    slopes, curvature = e[u + 1, u + 1], e[u + 2, u]
    fourth, third, second = e[u + 4, u], e[u + 3, u + 1], e[u + 2, u + 2]
    by_variance = slopes + curvature  # the derivative by a common variance
    return _Expanded(
        e[u, u],
        by_variance * K.first,
        by_variance * K.on + (2 * fourth + 8 * third + 6 * second) * K.first**2 / 8,
        slopes * K.off + curvature * K.on + (fourth - second) * K.first**2 / 4,
    )
