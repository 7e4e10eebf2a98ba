"""Infinite-width kernels by brute force: numpy, all pairs of sites, one layer after the other.

A site is a position of a sample; kernels are arrays over (sample, position, sample, position). Nothing here
is fast and nothing is shared with the package. A network is described by plain numbers and strings, in the
form of `fw.Network.to_dict`; instead of the name of an activation there may be a pair of functions, the
activation and its derivative.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr


class Sites(NamedTuple):
    """Kernels between all sites."""

    K: np.ndarray  # (N, P, N, P)
    Theta: np.ndarray
    shape: tuple[int, ...]  # of positions
    same: np.ndarray  # (N, N), whether two samples are one and the same input
    gain: float = 0.0  # rates of the gains of norms since the last weights: they gave gain * K of Theta

    def mapped(self, K: np.ndarray, Theta: np.ndarray, shape: tuple[int, ...] | None = None) -> "Sites":
        return self._replace(K=K, Theta=Theta, shape=self.shape if shape is None else shape)


def kernels(network: dict, X, X_other=None) -> tuple[np.ndarray, np.ndarray]:
    """K and Theta of X, or between X and X_other, at the output."""
    N, X = len(X), np.asarray(X, dtype=float)
    everything = X if X_other is None else np.concatenate([X, X_other])
    sites = behind(network["layers"], first_sites(everything.reshape(-1, *network["input_shape"])))
    assert sites.shape == (), f"the output has positions, {sites.shape}"
    columns = slice(None) if X_other is None else slice(N, None)
    return sites.K[:N, 0, columns, 0], sites.Theta[:N, 0, columns, 0]


def first_sites(X: np.ndarray) -> Sites:
    """K = x.x / n_0 over channels, Theta = 0."""
    N, *shape, channels = X.shape
    flat = X.reshape(N, -1, channels)
    K = np.einsum("apc,bqc->apbq", flat, flat) / channels
    same = np.array([[np.array_equal(one, other) for other in X] for one in X])
    return Sites(K, np.zeros_like(K), tuple(shape), same)


def behind(layers: list, sites: Sites) -> Sites:
    """The kernels behind a sequence of layers."""
    for layer in layers:
        sites = _KINDS[layer["kind"]](layer, sites) if isinstance(layer, dict) else activated(layer, sites)
    return sites


# --- activations ------------------------------------------------------------------------------------


def activated(activation: str | tuple[Callable, Callable], sites: Sites) -> Sites:
    """K' = <s s>, Theta' = <s' s'> Theta; of the share gain * K of Theta it makes gain * <z s' z s'>."""
    name, _, listed = activation.rstrip(")").partition("(") if isinstance(activation, str) else ("", "", "")
    numbers = [float(part) for part in listed.split(",") if part.strip()]
    N, P = sites.K.shape[:2]
    K = sites.K.reshape(N * P, N * P)
    v = np.diag(K)
    if name in _SLOPES:
        mean, slope = piecewise_linear(K, v, *_SLOPES[name](*numbers))
        moved = mean  # z s'(z) = s(z)
    elif name == "erf":
        mean, slope = erf_averages(K, v)
        moved = averages(lambda z: 2 / np.sqrt(np.pi) * z * np.exp(-z * z), K, v) if sites.gain else 0.0
    else:
        function, derivative = _FUNCTIONS[name](*numbers) if name else activation
        mean, slope = averages(function, K, v), averages(derivative, K, v)
        moved = averages(lambda z: z * derivative(z), K, v) if sites.gain else 0.0
    Theta = slope * (sites.Theta.reshape(K.shape) - sites.gain * K) + sites.gain * moved
    return sites.mapped(mean.reshape(sites.K.shape), Theta.reshape(sites.K.shape))._replace(gain=0.0)


_SLOPES = {
    "linear": lambda: (1.0, 1.0),
    "relu": lambda: (1.0, 0.0),
    "leaky_relu": lambda slope=0.01: (1.0, slope),
    "scale_invariant": lambda plus, minus: (plus, minus),
}


def piecewise_linear(K, v, plus: float, minus: float) -> tuple[np.ndarray, np.ndarray]:
    """Averages of a slope `plus` above zero and `minus` below (PDLT section 5.2 has the angle)."""
    product = np.outer(v, v)
    determinant = product - K * K
    determinant[determinant < 1e-14 * product] = 0  # parallel to rounding, so that the angle is exact
    angle = np.where(product > 0, np.arctan2(np.sqrt(determinant), K), np.pi / 2)
    jump, part = (plus - minus) ** 2 / (2 * np.pi), plus * minus
    slope = jump * (np.pi - angle) + part
    return jump * np.sqrt(determinant) + slope * K, slope


def erf_averages(K, v) -> tuple[np.ndarray, np.ndarray]:
    product = np.outer(1 + 2 * v, 1 + 2 * v)
    return 2 / np.pi * np.arcsin(2 * K / np.sqrt(product)), 4 / np.pi / np.sqrt(product - 4 * K * K)


def averages(function: Callable, K, v) -> np.ndarray:
    """<f f> of every pair by the trapezoidal rule in two variables, which converges geometrically here.

    The nearest poles of tanh and the like are at distance pi/2, so the step is a fifth of that in z.
    """
    step = 0.3 / np.sqrt(max(1.0, v.max()))
    half = round(9 / step)
    x = np.arange(-half, half + 1) * step
    weights = np.exp(-x * x / 2)
    weights /= weights.sum()
    values, sigma = np.empty_like(K), np.sqrt(v)
    rows, columns = np.triu_indices(len(K))
    for some in np.array_split(np.arange(len(rows)), 1 + len(rows) * len(x) ** 2 // 10**6):
        i, j = rows[some], columns[some]
        c = np.clip(K[i, j] / np.where(sigma[i] * sigma[j] > 0, sigma[i] * sigma[j], 1), -1, 1)[:, None, None]
        second = sigma[j][:, None, None] * (c * x[:, None] + np.sqrt(1 - c * c) * x[None, :])
        inner = function(second) @ weights
        values[i, j] = values[j, i] = (function(sigma[i][:, None] * x) * inner) @ weights
    return values


def _density(z):
    return np.exp(-z * z / 2) / np.sqrt(2 * np.pi)


def _polynomial(*coefficients: float) -> tuple[Callable, Callable]:
    function = np.polynomial.Polynomial(coefficients)
    return function, function.deriv()


_FUNCTIONS = {
    "tanh": lambda: (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "sin": lambda: (np.sin, np.cos),
    "gelu": lambda: (lambda z: z * ndtr(z), lambda z: ndtr(z) + z * _density(z)),
    "swish": lambda: (
        lambda z: z / (1 + np.exp(-z)),
        lambda z: (1 + z / (1 + np.exp(z))) / (1 + np.exp(-z)),
    ),
    "monomial": lambda degree: _polynomial(*[0.0] * int(degree), 1.0),
    "polynomial": _polynomial,
}


# --- layers with weights ----------------------------------------------------------------------------


def _weights(layer: dict, sites: Sites, gathered: Callable, shape: tuple[int, ...]) -> Sites:
    """K' = C_b + C_W A K, Theta' = lambda_b + lambda_W A K + C_W A Theta."""
    C_b, C_W = layer.get("C_b", 0.0), layer.get("C_W", 1.0)
    lambda_b, lambda_W = layer.get("lambda_b", 1.0), layer.get("lambda_W", 1.0)
    K, Theta = gathered(sites.K), gathered(sites.Theta)
    behind = sites.mapped(C_b + C_W * K, lambda_b + lambda_W * K + C_W * Theta, shape)
    return behind._replace(gain=0.0)


def dense(layer: dict, sites: Sites) -> Sites:
    return _weights(layer, sites, lambda M: M, sites.shape)


def conv(layer: dict, sites: Sites) -> Sites:
    """A M = (1/F) sum_f M(s p + f, s q + f), zeros outside."""
    window, stride = layer.get("filter", 3), layer.get("stride", 1)
    sources, shape = windows(sites.shape, window, stride, layer.get("padding", "same"))

    def gathered(M):
        padded = np.pad(M, ((0, 0), (0, 1), (0, 0), (0, 1)))  # position -1 is the zero outside
        return sum(padded[:, tap][..., tap] for tap in sources.T) / sources.shape[1]

    return _weights(layer, sites, gathered, shape)


def self_attention(layer: dict, sites: Sites) -> Sites:
    """K' = C_b + C_OV a K a^T, Theta' = C_b + C_OV a (Theta + 2 K) a^T.

    a = softmax(sigma_QK K) within each sample.
    """
    assert layer.get("scaling", "linear") == "linear"
    logits = np.einsum("apaq->apq", sites.K)
    if layer.get("positions"):
        logits = _with_positions(logits, sites.shape, **layer["positions"])
    a = np.exp(layer.get("sigma_QK", 1.0) * logits)
    a /= a.sum(axis=-1, keepdims=True)
    C_b, C_OV = layer.get("C_b", 0.0), layer.get("C_OV", 1.0)

    def attended(M):
        return C_b + C_OV * np.einsum("apx,axby,bqy->apbq", a, M, a, optimize=True)

    return sites.mapped(attended(sites.K), attended(sites.Theta + 2 * sites.K))._replace(gain=0.0)


def _with_positions(K, shape, mixing: str = "sum", variance: float = 1.0, length: float = 0.0) -> np.ndarray:
    """Keys see random features of positions; values do not."""
    places = np.array(list(np.ndindex(*shape)))
    squares = ((places[:, None] - places) ** 2).sum(axis=-1)
    R = variance * (np.exp(-squares / (2 * length**2)) if length else (squares == 0))
    return K + R if mixing == "sum" else (K + R) / 2


# --- layers that gather positions -------------------------------------------------------------------


def windows(shape, window, stride, padding) -> tuple[np.ndarray, tuple[int, ...]]:
    """The input position of every output position and tap, -1 outside, and the shape of output positions."""
    axes = len(shape)
    window, stride = (_each(value, axes) for value in (window, stride))
    padding = (padding,) * axes if isinstance(padding, str) else _each(padding, axes)
    along = [_along_axis(*axis) for axis in zip(shape, window, stride, padding, strict=True)]
    outputs = tuple(len(sources) for sources in along)
    rows = []
    for place in np.ndindex(*outputs):
        taps = itertools.product(*(sources[p] for sources, p in zip(along, place, strict=True)))
        rows.append([-1 if -1 in tap else np.ravel_multi_index(tap, shape) for tap in taps])
    return np.array(rows), outputs


def _along_axis(size: int, taps: int, stride: int, padding) -> list[list[int]]:
    if padding in ("same", "circular"):
        count = -(-size // stride)
        before = max((count - 1) * stride + taps - size, 0) // 2  # an odd zero comes behind
    else:
        before, after = (0, 0) if padding == "valid" else _each(padding, 2)
        count = (size + before + after - taps) // stride + 1
    places = [[p * stride + f - before for f in range(taps)] for p in range(count)]
    if padding == "circular":
        return [[place % size for place in row] for row in places]
    return [[place if 0 <= place < size else -1 for place in row] for row in places]


def _each(value, axes: int) -> tuple:
    return tuple(value) if isinstance(value, list | tuple) else (value,) * axes


def average_pool(layer: dict, sites: Sites) -> Sites:
    """K' = B K B^T, Theta likewise."""
    stride = layer["window"] if layer.get("stride") is None else layer["stride"]
    sources, shape = windows(sites.shape, layer["window"], stride, layer.get("padding", "valid"))
    B = np.zeros((len(sources), sites.K.shape[1]))
    for row, taps in zip(B, sources, strict=True):
        inside = taps[taps >= 0]
        np.add.at(row, inside, 1 / (len(taps) if layer.get("count_padding", True) else len(inside)))
    return _averaged(sites, B, shape)


def global_average_pool(layer: dict, sites: Sites) -> Sites:
    P = sites.K.shape[1]
    return _averaged(sites, np.full((1, P), 1 / P), ())


def _averaged(sites: Sites, B: np.ndarray, shape: tuple[int, ...]) -> Sites:
    K, Theta = (np.einsum("px,axby,qy->apbq", B, M, B, optimize=True) for M in (sites.K, sites.Theta))
    return sites.mapped(K, Theta, shape)


def flatten(layer: dict, sites: Sites) -> Sites:
    """The mean over p of M(p, p)."""
    P = sites.K.shape[1]
    K, Theta = (np.einsum("apbp->ab", M)[:, None, :, None] / P for M in (sites.K, sites.Theta))
    return sites.mapped(K, Theta, ())


# --- other layers -----------------------------------------------------------------------------------


def residual(layer: dict, sites: Sites) -> Sites:
    """K' = gamma^2 K_shortcut + K_body, Theta' likewise."""
    body, skip = behind(layer["layers"], sites), behind(layer.get("shortcut", []), sites)
    square = layer.get("gamma", 1.0) ** 2
    return body.mapped(square * skip.K + body.K, square * skip.Theta + body.Theta)


def layer_norm(layer: dict, sites: Sites) -> Sites:
    """K' = c K, Theta' = c Theta + lambda_gain K' + lambda_offset, c = 1/sqrt((v + eps)(v' + eps))."""
    v = np.einsum("apap->ap", sites.K)
    if layer.get("axes", "channels") == "all":
        v = np.broadcast_to(v.mean(axis=1, keepdims=True), v.shape)
    root = 1 / np.sqrt(v + layer.get("epsilon", 1e-5))
    c = np.einsum("ap,bq->apbq", root, root)
    K = c * sites.K
    gain = layer.get("lambda_gain", 0.0)
    Theta = c * sites.Theta + gain * K + layer.get("lambda_offset", 0.0)
    return sites.mapped(K, Theta)._replace(gain=sites.gain + gain)


def dropout(layer: dict, sites: Sites) -> Sites:
    """Times 1/keep where both sites are one and the same site of one and the same input."""
    one = sites.same[:, None, :, None] & np.eye(sites.K.shape[1], dtype=bool)[:, None, :]
    factor = np.where(one, 1 / (1 - layer.get("drop", 0.1)), 1.0)
    return sites.mapped(factor * sites.K, factor * sites.Theta)


_KINDS = {
    "Dense": dense,
    "Conv": conv,
    "SelfAttention": self_attention,
    "AveragePool": average_pool,
    "GlobalAveragePool": global_average_pool,
    "Flatten": flatten,
    "Residual": residual,
    "LayerNorm": layer_norm,
    "Dropout": dropout,
}
