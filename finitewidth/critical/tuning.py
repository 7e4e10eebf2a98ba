r"""The critical network: initialization at the critical point, learning rates by the equivalence principle.

Every layer shall contribute equally to the NTK (PDLT section 9.4). A layer's contribution is its learning
rate times the product of $\chi_\perp$ over the layers above, and for weights also times the kernel below.

| class | lambda_b of layer l | lambda_W of layer l |
|---|---|---|
| scale-invariant, (9.94) | lambda_b / L | lambda_W / L |
| K* = 0, (9.95) | lambda_b l^-p_perp L^(p_perp-1) | lambda_W (L/l)^(p_perp-1) |
| half-stable | lambda_b / (L product of chi_perp above) | lambda_W / (L product of chi_perp above) |

Where K falls as l^-p_0 with p_0 other than one (a derivative jumps at zero, or a_1 vanishes) the weights' law
becomes lambda_W l^(p_0-p_perp) L^(p_perp-1), which is the one in the table for p_0 = 1.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from finitewidth.critical.classification import Criticality, criticality
from finitewidth.critical.one_input import trajectory
from finitewidth.network.activation import Activation
from finitewidth.network.mlp import MLP


def critical_network(
    widths: Sequence[int],
    activation: str | Activation | Callable,
    lambda_b=1.0,
    lambda_W=1.0,
    input_scale=1.0,
) -> MLP:
    """A network at criticality whose layers contribute equally to the NTK (PDLT sections 5.2, 5.3 and 9.4).

    The first layer is like the others, except at a half-stable point: there C_b = 0 and C_W =
    K*/`input_scale`, so that an input whose components have mean square `input_scale` starts at K*.
    """
    input_scale = _positive("input_scale", input_scale)
    given = {"lambda_b": _rate("lambda_b", lambda_b), "lambda_W": _rate("lambda_W", lambda_W)}
    point = criticality(activation)
    _require_point(point)
    net = MLP(widths, point.activation, C_b=point.C_b, C_W=point.C_W)  # type: ignore[arg-type]
    if point.universality_class == "half-stable":
        first_C_W = point.K_star / input_scale  # type: ignore[operator]
        net = net.replace(C_b=(0.0, *net.C_b[1:]), C_W=(first_C_W, *net.C_W[1:]))
    weights_b, weights_W = equivalent_rates(point, net, input_scale)
    rates_b, rates_W = given["lambda_b"] * weights_b, given["lambda_W"] * weights_W
    return net.replace(lambda_b=tuple(rates_b.tolist()), lambda_W=tuple(rates_W.tolist()))


def equivalent_rates(point: Criticality, net: MLP, input_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """What lambda_b and lambda_W of each layer are multiplied by, (L,) and (L,)."""
    L = net.depth
    l = np.arange(1, L + 1.0)
    if point.universality_class == "scale-invariant":
        return np.full(L, 1 / L), np.full(L, 1 / L)
    if point.universality_class == "K*=0":
        p_0, p_perp = point.exponents["p_0"], point.exponents["p_perp"]
        return l**-p_perp * L ** (p_perp - 1), l ** (p_0 - p_perp) * L ** (p_perp - 1)
    above = products_above(trajectory(net, input_scale).perpendicular)
    return 1 / (L * above), 1 / (L * above)


def products_above(chi: np.ndarray) -> np.ndarray:
    """For each layer the product of chi_perp from it to the layer before the output."""
    return np.concatenate([np.cumprod(chi[:-1][::-1])[::-1], [1.0]])


def _require_point(point: Criticality) -> None:
    if point.universality_class in ("none", "unstable"):
        raise ValueError(
            f"activation {point.activation.name!r} has no critical point to initialize at "
            f"({point.universality_class}). {point.explanation}"
        )
    if not point.converged:
        raise ValueError(
            f"the critical point of activation {point.activation.name!r} was not found to accuracy (residual "
            f"{point.residual:.1e}); pass C_b and C_W to fw.MLP yourself."
        )


def _positive(name: str, value) -> float:
    number = _rate(name, value)
    if number == 0:
        raise ValueError(
            f"{name} must be above 0, got {value!r}; it is the mean square of the input components."
        )
    return number


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
