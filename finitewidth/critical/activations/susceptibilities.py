r"""The two susceptibilities of a layer: the factors on small differences between kernels, for any activation.

$$\chi_\parallel = C_W \frac{d}{dK}\langle\sigma\sigma\rangle_K
  = C_W \big(\langle\sigma'\sigma'\rangle_K + \langle\sigma\sigma''\rangle_K\big), \qquad
  \chi_\perp = C_W \langle\sigma'\sigma'\rangle_K$$

(PDLT section 5.1). The first multiplies differences of norm, the second differences of direction and
gradients. The delta function of sigma'' at a kink is counted by integration by parts, without differences.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike
from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.two_legs.one_leg import leg_averages
from finitewidth.network.layers.activation import Activation, as_activation

CRITICAL = 1e-6  # a susceptibility this close to one, or a variance this close to its critical value, is it
Numbers = float | Float[np.ndarray, "..."]


@shown("parallel", "perpendicular", "error")
class Susceptibilities(NamedTuple):
    """chi_parallel and chi_perpendicular of one layer, and the error of the averages behind them.

    `fw.critical.susceptibilities` makes it.

    ```python
    chi = fw.critical.susceptibilities("relu", K=1.0, C_W=2.0)
    chi.parallel, chi.perpendicular  # both are one: relu is critical at C_W = 2
    ```
    """

    parallel: Numbers  # factor of a small difference of norms in one layer
    perpendicular: Numbers  # factor of a small difference of directions
    error: float  # relative to the larger of the two averages


def susceptibilities(
    activation: str | Activation | Callable, K: ArrayLike, C_W: float = 1.0
) -> Susceptibilities:
    r"""$\chi_\parallel$ and $\chi_\perp$ at variance K (PDLT section 5.1).

    At K = 0 they are limits from above; there chi_parallel is infinite if sigma(0) is not zero at a kink.

    Args:
        activation: A name, an `fw.Activation` or a function.
        K: The variance of preactivations, a number or an array.
        C_W: The variance of weights times their fan-in.

    Returns:
        Both, of the shape of K, with the error of the averages.

    ```python
    fw.critical.susceptibilities("tanh", K=0.5, C_W=1.2).perpendicular
    ```
    """
    require_double_precision()
    activation = as_activation(activation)
    variances = _as_variances(K)
    C_W = _as_variance("C_W", C_W)
    averages = leg_averages(activation, variances.ravel())
    parallel, perpendicular = (
        C_W * part.reshape(variances.shape)[()] for part in (averages.growth, averages.slope)
    )
    return Susceptibilities(parallel, perpendicular, float(averages.error.max(initial=0.0)))


def _as_variances(K) -> np.ndarray:
    try:
        variances = np.asarray(K, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"K must be a number or an array of numbers, got {K!r}.") from None
    bad = ~(np.isfinite(variances) & (variances >= 0))
    if bad.any():
        raise ValueError(f"K must be finite and at least 0, got {variances[bad].flat[0]}; it is a variance.")
    return variances


def _as_variance(name: str, value) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}.") from None
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value!r}.")
    return number
