r"""Width, depth and skip connections of critical networks: any two of them fix the third.

Networks with the same initialization differ from each other by ratios such as $V/(nK^2)$, which grow with
depth over width. Skips $z' = \gamma z + W\sigma(z)$ slow this down, since a critical layer is then
initialized with $1 - \gamma^2$ times the critical $C_b$ and $C_W$ of the activation. The largest ratio
decides, as in `audit`. Its leading part for one input is

| class | $V/K^2$ of layer l |
|---|---|
| K* = 0 | approaches $\frac23 (1-\gamma^4)\, l$ |
| scale-invariant | $2(1-\gamma^4)(l-1) + \kappa (1-\gamma^2)^2 \sum_{k,p<l} h(\gamma^{\lvert k-p\rvert})$ |

with $\kappa = ((a_+^2-a_-^2)/(a_+^2+a_-^2))^2$ and
$h(\rho) = \frac2\pi[(1+2\rho^2)\arcsin\rho + 3\rho\sqrt{1-\rho^2}]$. The second line is exact. Other
ratios of smooth activations, and those of half-stable ones, come from the recursions of the theory.
"""

import functools
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.display.numbers import number
from finitewidth.core.display.records import shown
from finitewidth.critical.activations.classification import critical_variances, criticality
from finitewidth.critical.tuning import critical_version
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.residual import Residual
from finitewidth.network.layers.weights import as_ensemble
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.theory.ratios import ratios
from finitewidth.theory.solve import solve

ALLOWED = 0.3  # the largest ratio of networks that `audit` trusts, with a little to spare
DEEPEST = 8192  # layers; deeper networks are not searched
_SMALLEST_GAP = 1e-6  # the smallest 1 - gamma that is searched
_ACCURACY = 5e-3  # of the ratio at the gamma that is found, below the allowed one
_DEEPEST_ADVICE = 1000  # layers up to which an audit searches a better gamma, in seconds


@shown("explanation", "ratio", "allowed", "width", "depth", "gamma", "C_b", "C_W", "activation")
@dataclass(frozen=True, eq=False)
class Aspect:
    """A width, a depth and a gamma at which the largest ratio is allowed, and their critical initialization.

    `fw.critical.aspect` makes it.

    ```python
    shape = fw.critical.aspect("relu", width=64, gamma=0.9)
    shape.depth, shape.C_W, shape.explanation
    ```
    """

    activation: Activation  # of all layers
    width: int  # of all layers
    depth: int  # layers on the stream; the first has no skip
    gamma: float  # 0 without skips
    C_b: float  # of the layers where skips end
    C_W: float  # of the same layers
    ratio: float  # the largest ratio of layer `depth`, 1/n included
    allowed: float  # the largest ratio that was asked for
    curve: np.ndarray = field(repr=False)  # n times the largest ratio of the layers up to `depth`

    @property
    def explanation(self) -> str:
        """The same in a sentence."""
        name = self.activation.name
        skips = f"skips with gamma = {number(self.gamma, 3)}" if self.gamma else "no skips"
        return (
            f"{self.depth} {name} layers of width {self.width} with {skips} have a largest ratio of "
            f"{number(self.ratio, 2)}; C_b = {number(self.C_b, 4)} and C_W = {number(self.C_W, 4)} in each"
        )


def aspect(
    activation: str | Activation | Callable,
    *,
    width: int | None = None,
    depth: int | None = None,
    gamma: float | None = None,
    allowed: float = ALLOWED,
    input_scale: float = 1.0,
    weights: str = "gaussian",
) -> Aspect:
    """How deep, how wide, or with which skips: give two of `width`, `depth` and `gamma`, and get the third.

    Networks are critical, of one activation, with layers z' = gamma z + W sigma(z) of one width behind the
    first. The depth is the largest, the width the smallest and gamma the smallest for which the largest ratio
    of the tensors of order 1/n stays at most `allowed`. For piecewise-linear activations that ratio is
    V/(n K^2).

    Args:
        activation: A name, an `fw.Activation` or a function.
        width: The width of all hidden layers.
        depth: The number of layers.
        gamma: The factor of the skip connections; 0 for none.
        allowed: The largest ratio; 0.3 is what `fw.audit` trusts.
        input_scale: The mean square of the input components.
        weights: "gaussian", or "orthogonal" for networks without skips (gamma=0) whose inputs are as many as
            hidden neurons. Fluctuations of tanh then stop to grow with depth.

    Returns:
        All three, and the critical `C_b` and `C_W`.

    ```python
    fw.critical.aspect("relu", width=64, gamma=0.9).depth
    fw.critical.aspect("relu", width=64, gamma=0, weights="orthogonal").depth
    ```
    """
    activation = as_activation(activation)
    _check(activation, width, depth, gamma)
    if as_ensemble("weights", weights) == "orthogonal" and gamma != 0:
        raise ValueError(
            f"weights='orthogonal' is known without skip connections, got gamma={gamma!r}; use gamma=0."
        )
    for name, value in (("allowed", allowed), ("input_scale", input_scale)):
        if not (_is_number(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {value!r}.")
    sizes = functools.partial(_sizes, activation, float(input_scale))
    if weights == "orthogonal":
        sizes = functools.partial(_orthogonal_sizes, activation, float(input_scale))
    if depth is None:
        assert width is not None and gamma is not None
        curve = _curve_beyond(sizes, gamma, allowed * width)
        beyond = np.flatnonzero(curve > allowed * width)
        depth = int(beyond[0]) if beyond.size else DEEPEST
    elif width is None:
        assert gamma is not None
        curve = sizes(gamma, depth)
        width = max(1, math.ceil(curve[-1] / allowed * (1 - 1e-12)))
    else:
        gamma = _smallest_gamma(lambda one: sizes(one, depth)[-1], allowed * width)
        curve = sizes(gamma, depth)
    share, point = 1 - gamma**2, criticality(activation)
    C_b, C_W = (share * part for part in critical_variances(point, "no remedy is known"))
    ratio = float(curve[depth - 1] / width)
    return Aspect(activation, width, depth, float(gamma), C_b, C_W, ratio, float(allowed), curve[:depth])


def _check(activation: Activation, width, depth, gamma) -> None:
    given = {"width": width, "depth": depth, "gamma": gamma}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1:
        raise ValueError(
            f"exactly two of width, depth and gamma must be given, got {3 - len(missing)}; leave out the one "
            "to be found."
        )
    for name, value in (("width", width), ("depth", depth)):
        if value is not None and not (isinstance(value, numbers.Integral) and int(value) >= 1):
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
    if depth is not None and depth > DEEPEST:
        raise ValueError(f"depth must be at most {DEEPEST} layers, got {depth}; ratios grow linearly beyond.")
    if gamma is not None and not (_is_number(gamma) and abs(gamma) <= 1 - _SMALLEST_GAP):
        raise ValueError(
            f"gamma must be a number between -1 and 1, got {gamma!r}; gamma = 1 has no critical point."
        )
    critical_variances(criticality(activation), "use a named activation")
    if not (activation.is_smooth or activation.is_scale_invariant):
        raise ValueError(
            f"activation {activation.name!r} has a kink, and its fluctuations with skip connections are not "
            "known; use a smooth activation such as gelu or tanh, or relu."
        )


def _is_number(value) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _sizes(activation: Activation, input_scale: float, gamma: float, depth: int) -> np.ndarray:
    """n times the largest ratio of each layer, (depth,)."""
    if activation.slopes is not None:
        return scale_invariant_vertex(*activation.slopes, gamma, depth)
    block = Residual(activation, Dense(1), gamma=float(gamma))
    net = critical_version(Network(1, Dense(1), *[block] * (depth - 1)), input_scale=input_scale)
    theory = solve(net, [[math.sqrt(input_scale)]])
    return np.array([ratios(theory.layer(l)).expansion_parameter for l in range(1, depth + 1)])


def _orthogonal_sizes(activation: Activation, input_scale: float, gamma: float, depth: int) -> np.ndarray:
    """The same for orthogonal weights, without skips: straight lines have (l - 1)(3 A4/A2^2 - 3) - 2."""
    if activation.slopes is not None:
        a, b = activation.slopes
        growth = 6 * (a**4 + b**4) / (a**2 + b**2) ** 2 - 3
        return np.abs(growth * np.arange(depth) - 2)
    net = MLP.critical((1,) * (depth + 1), activation, input_scale=input_scale, weights="orthogonal")
    theory = solve(net, [[math.sqrt(input_scale)]])
    return np.array([ratios(theory.layer(l)).expansion_parameter for l in range(1, depth + 1)])


def scale_invariant_vertex(a_plus: float, a_minus: float, gamma: float, depth: int) -> np.ndarray:
    """V/K^2 of every layer of a critical network with a piecewise-linear activation, (depth,)."""
    kappa = ((a_plus**2 - a_minus**2) / (a_plus**2 + a_minus**2)) ** 2
    lags = float(gamma) ** np.arange(depth)
    correlations = (2 / math.pi) * ((1 + 2 * lags**2) * np.arcsin(lags) + 3 * lags * np.sqrt(1 - lags**2))
    memory = 2 * np.cumsum(correlations) - correlations[0]  # a layer and all earlier ones, in both orders
    growth = 2 * (1 - gamma**4) + kappa * (1 - gamma**2) ** 2 * memory
    return np.concatenate([[0.0], np.cumsum(growth)])[:depth]


def _curve_beyond(sizes: Callable[[float, int], np.ndarray], gamma: float, limit: float) -> np.ndarray:
    """The curve over as many layers as it takes to exceed the limit, at most DEEPEST."""
    depth = min(DEEPEST, 16 + math.ceil(limit / (6 * (1 - gamma**4))))
    curve = sizes(gamma, depth)
    while curve[-1] <= limit and depth < DEEPEST:
        depth = min(DEEPEST, 2 * depth)
        curve = sizes(gamma, depth)
    return curve


def _smallest_gamma(size: Callable[[float], float], limit: float) -> float:
    """The smallest gamma from which on the size is within the limit; 0 if it is without skips.

    With gamma the size may first grow, by the memory of neurons, and then falls as 1 - gamma, so that its
    logarithm is interpolated over that of 1 - gamma. The size comes to within half a per cent of the limit.
    """
    without = size(0.0)
    if without <= limit:
        return 0.0
    too_far, enough = (1.0, without), (0.5, size(0.5))  # 1 - gamma and the size there
    while enough[1] > limit:
        too_far, step = enough, 0.9 * enough[0] * limit / enough[1]
        if step < _SMALLEST_GAP:
            raise ValueError(
                f"no gamma below 1 brings the largest ratio down to what is allowed ({limit:.3g} over the "
                "width); widen the network."
            )
        enough = step, size(1 - step)
    while enough[1] < (1 - _ACCURACY) * limit:
        (x, below), (y, above) = enough, too_far
        share = (math.log((1 - _ACCURACY / 2) * limit) - math.log(below)) / (
            math.log(above) - math.log(below)
        )
        step = x * (y / x) ** min(max(share, 0.05), 0.95)
        tried = step, size(1 - step)
        too_far, enough = (tried, enough) if tried[1] > limit else (too_far, tried)
    return 1 - enough[0]


def longer_skips(net: Network, input_scale: float) -> str:
    """The advice to raise gamma, for residual networks of one activation and one width; else nothing."""
    ladder = net.ladder
    uniform = len(set(ladder.activations)) == 1 and len(set(ladder.widths[1:-1])) == 1
    over_one = all(skip is None or skip.source == layer for layer, skip in enumerate(ladder.skips))
    if not (uniform and over_one and ladder.depth <= _DEEPEST_ADVICE):
        return ""
    try:
        remedy = aspect(
            ladder.activations[0], width=ladder.widths[1], depth=ladder.depth, input_scale=input_scale
        )
    except ValueError:  # nothing to advise
        return ""
    settings = f"C_b = {number(remedy.C_b, 3)}, C_W = {number(remedy.C_W, 3)}"
    return f", or give it skips with gamma = {number(remedy.gamma, 3)} and {settings} in each layer"
