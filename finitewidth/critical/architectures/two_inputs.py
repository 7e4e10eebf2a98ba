r"""Generic inputs through any network, by the theory's own kernels: what depth does to signals and gradients.

Everything is measured on K and Theta of `theory/pairs/propagation.py`, which are means over positions.

- The **signal** is K of one input.
- **Norms**: the same input, slightly longer. The difference of the two K is multiplied by $\chi_\parallel$.
- **Gradients and nearby directions**: Theta, if only the biases of the first layer learn, is multiplied by
  $\chi_\perp$ in every step, skips and norms included.
- **Correlation** of two inputs with correlation one half, and of neighbouring positions of one input.

The steps are those of the stream: a residual block is one step, whatever its body. Layers inside a body have
their own K and Theta, and the factors of the stream layer before them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from finitewidth.critical.architectures.weights import frozen, with_learning_biases
from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.gaussian.two_legs.one_leg import require_continuous
from finitewidth.network.layers.abstract import AbstractLayer, Shape
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.network.network import Network
from finitewidth.theory.pairs.propagation import Propagation

_NORM_CHANGE = 1e-3  # relative
_RESOLVED = 1e-10  # smaller differences of norm are lost in rounding
_CORRELATION = 0.5  # the correlation of the two inputs


class TwoInputs(NamedTuple):
    """Numbers of each layer, (L,); infinite K and Theta beyond double precision.

    chi of a layer takes it to the next on the stream; it is NaN inside bodies and for the output.
    """

    K: np.ndarray
    Theta: np.ndarray
    parallel: np.ndarray
    perpendicular: np.ndarray
    correlation: np.ndarray  # of two inputs
    between_positions: np.ndarray | None  # the correlation of neighbouring positions; None without positions
    on_stream: "Curves"
    stream: tuple[int, ...]  # the layers on the stream, counted from 1


class Curves(NamedTuple):
    """Curves over all layers, (L,); layers inside bodies have the value of the stream before them."""

    signal: np.ndarray  # K relative to the first layer
    norm: np.ndarray  # differences of norm, likewise
    nearby: np.ndarray  # separations of direction relative to K, likewise
    gradient: np.ndarray  # relative to that at the last layer before the output, which is like no other


def follow_inputs(net: Network, input_scale: float) -> TwoInputs:
    """Generic inputs whose components have mean square `input_scale` through all layers."""
    for layer in net.walked:
        if isinstance(layer, Activation):
            require_continuous(layer)
    X = _inputs(net.input_shape, input_scale)
    K, Theta = _kernels(net, X)
    stream, depth = tuple(stream_layers(net.layers)), net.depth
    bias_ntk = _bias_ntk(net, X[:1], len(K))
    size = K[:, 0, 0]
    known = _up_to(net, (1 + _NORM_CHANGE) * X[:1], len(K))  # on its own, since parallel inputs take long
    norm = (size if known is None else known[0][:, 0, 0]) - size
    norm = np.where(np.abs(norm) > _RESOLVED * size, norm, 0.0)
    over = [_over_layers(part, stream, depth) for part in (size, norm, bias_ntk)]
    roots = np.sqrt(np.einsum("laa->la", K))
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations = K[:, 0] / (roots[:, :1] * roots)
        return TwoInputs(
            K=_filled(size, depth, np.inf),
            Theta=_filled(Theta[:, 0, 0], depth, np.inf),
            parallel=_steps(over[1], stream),
            perpendicular=_steps(over[2], stream),
            correlation=_filled(correlations[:, 1], depth, np.nan),
            between_positions=_filled(correlations[:, 2], depth, np.nan)
            if len(net.input_shape) > 1
            else None,
            on_stream=_curves(*over, last=stream[max(0, len(stream) - 2)] - 1),
            stream=stream,
        )


def stream_layers(layers: Sequence[AbstractLayer]) -> Iterator[int]:
    """The numbers of the layers that end a step at the top of the network; a residual block is one step."""
    count = 0
    for layer in layers:
        count += layer.depth
        if layer.has_weights:
            yield count


def _inputs(shape: Shape, scale: float) -> np.ndarray:
    """An input; one with correlation one half; the first with its positions, if any, moved by one."""
    first, other = np.random.default_rng(0).standard_normal((2, *shape))
    if first.size > 1:
        other = other - first * (other * first).sum() / (first**2).sum()
    first, other = (part / np.sqrt(np.mean(part**2)) for part in (first, other))
    half_correlated = _CORRELATION * first + np.sqrt(1 - _CORRELATION**2) * other
    moved = [np.roll(first, 1, axis=0)] if len(shape) > 1 else []
    return np.sqrt(scale) * np.stack([first, half_correlated, *moved])


def _kernels(net: Network, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """K and Theta of all layers (L, N, N), as far as they are within double precision."""
    known = _up_to(net, X, net.depth)
    if known is not None:
        return known
    low, high, known = 0, net.depth, None
    while high - low > 1:
        middle = (low + high) // 2
        further = _up_to(net, X, middle)
        low, high, known = (low, middle, known) if further is None else (middle, high, further)
    if known is None:
        raise ValueError("the kernel of layer 1 exceeds what double precision holds; scale C_W down.")
    return known


def _up_to(net: Network, X: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray] | None:
    kept = tuple(range(1, layer + 1))
    try:
        layers = Propagation(net, X, None, ACCURACY, kept).matrices()[0]
    except ValueError as error:
        if "double precision" not in str(error):
            raise
        return None
    K, Theta = zip(*(layers[number] for number in kept), strict=True)
    return np.stack(K), np.stack(Theta)


def _bias_ntk(net: Network, x: np.ndarray, count: int) -> np.ndarray:
    """Theta of the first `count` layers if only the biases at the end of the first layer learn."""
    fixed = frozen(net.layers)
    has_attention = any(
        isinstance(layer, SelfAttention) for layer in net.walked
    )  # and learns at rates of its own

    def Thetas(layers: Sequence[AbstractLayer]) -> np.ndarray:
        known = _up_to(net.replace(layers=layers), x, count)
        assert known is not None  # the kernels are the same
        return known[1][:, 0, 0]

    ntk = Thetas(_learning_first(fixed))
    ntk = ntk - Thetas(fixed) if has_attention else ntk
    started = np.flatnonzero(ntk)
    if started.size:  # layers before the first biases have the gradient of these
        ntk[: started[0]] = ntk[started[0]]
    return ntk


def _learning_first(layers: Sequence[AbstractLayer]) -> tuple[AbstractLayer, ...]:
    for place, layer in enumerate(layers):
        learning = with_learning_biases(layer)
        if learning is not None:
            return (*layers[:place], learning, *layers[place + 1 :])
    return tuple(layers)


def _over_layers(values: np.ndarray, stream: Sequence[int], depth: int) -> np.ndarray:
    """The values on the stream, repeated for the layers behind; NaN beyond the last that is known."""
    known = [layer for layer in stream if layer <= len(values)]
    result = np.full(depth, np.nan)
    for first, last in zip(known, [*known[1:], len(values) + 1], strict=True):
        result[first - 1 : last - 1] = values[first - 1]
    result[: known[0] - 1] = values[known[0] - 1]
    return result


def _curves(size: np.ndarray, norm: np.ndarray, bias_ntk: np.ndarray, *, last: int) -> Curves:
    signal, separation = size / size[0], bias_ntk / bias_ntk[0]
    before = np.arange(bias_ntk.size) <= last
    return Curves(
        signal=np.where(np.isnan(signal), np.inf, signal),
        norm=norm / norm[0],
        nearby=separation / signal,
        gradient=np.where(before, bias_ntk[last] / bias_ntk, 1.0),
    )


def _steps(curve: np.ndarray, stream: Sequence[int]) -> np.ndarray:
    factors = np.full(curve.size, np.nan)
    places = np.asarray(stream) - 1
    factors[places[:-1]] = curve[places[1:]] / curve[places[:-1]]
    return factors


def _filled(values: np.ndarray, depth: int, beyond: float) -> np.ndarray:
    return np.concatenate([values, np.full(depth - len(values), beyond)])
