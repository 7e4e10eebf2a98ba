"""Activations of foreign models, recognized by the values that they compute.

What stands between two layers is evaluated on numbers, checked to act on every entry separately, and compared
with the activations of the library; parameters (slope, alpha, beta, ...) are read off the values.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.core.inputs import reason
from finitewidth.network.layers.abstract import AbstractLayer
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.residual import Residual
from finitewidth.network.mlp import ActivationLike
from finitewidth.network.network import Network

Given = ActivationLike | None | Sequence[ActivationLike | None]  # one for all hidden layers, or one for each
Function = Callable[[np.ndarray], np.ndarray]  # of a matrix, a row for each sample

_SINGLE_PRECISION = 1e-4  # of products of weights, with room to spare
_TOLERANCE = 1e-8  # torch's softplus becomes a straight line at 20, with an error of 2e-9
_ANCHORS = (-1.0, 0.0, 1.0, -31.7, 31.3)  # parameters are read off the values at these points
_POINTS = np.concatenate([_ANCHORS, np.linspace(-9.03, 8.97, 181), [-15.1, 14.7]])
_FIXED = ("tanh", "sigmoid", "sin", "erf", "softplus", "swish", "gelu", "mish", "elu", "selu", "perceptron")
_KNOWN = (
    "relu, leaky_relu, tanh, sigmoid, sin, erf, gelu (exact or tanh), silu, mish, elu, selu, softplus, "
    "hardtanh, relu6, hardswish, softsign"
)


def passed(given: Given, count: int) -> list[Activation | None]:
    """For each of `count` hidden layers the activation that the user passed, or None."""
    if isinstance(given, str | Activation) or not isinstance(given, Sequence):
        return [None if given is None else as_activation(given)] * count
    if len(given) != count:
        raise ValueError(
            f"activation has {len(given)} entries for {count} hidden layers; give one, or one for each "
            "hidden layer (None for those that are recognized)."
        )
    return [None if one is None else as_activation(one) for one in given]


def activation_of(
    function: Function, width: int, wanted: Activation | None, *, place: str, text: str
) -> Activation:
    """The activation that a function of matrices with `width` columns is, or the wanted one if it is that.

    `place` and `text` say in messages where it stands and how it is written.
    """
    values = _sampled(function, width, place, text)
    if wanted is not None:
        _compare(wanted, values, place)
        return wanted
    return _recognized(values, place, text)


def _sampled(function: Function, width: int, place: str, text: str) -> np.ndarray:
    """Values at _POINTS of the operations between two layers; an error if they are not elementwise."""
    rows = -(-2 * len(_POINTS) // width)
    order = np.random.default_rng(0).permutation(rows * width)
    entries = np.resize(_POINTS, rows * width)
    straight = _evaluated(function, entries, (rows, width), place, text)
    shuffled = _evaluated(function, entries[order], (rows, width), place, text)
    # vectorized code may round the last entries of a row differently
    if not np.allclose(straight[order], shuffled, rtol=1e-12, atol=1e-14, equal_nan=True):
        raise ValueError(
            f"the operation {place} ({text}) is not an elementwise function of fixed form; the theory needs "
            "an activation that acts on every entry separately."
        )
    values = straight[: len(_POINTS)]
    if not np.isfinite(values).all():
        raise ValueError(
            f"the operation {place} ({text}) returns NaN or infinity; use an activation that does not."
        )
    return values


def _evaluated(
    function: Function, entries: np.ndarray, shape: tuple[int, int], place: str, text: str
) -> np.ndarray:
    try:
        value = np.asarray(function(entries.reshape(shape)))
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        raise ValueError(
            f"the operation {place} ({text}) cannot be evaluated on numbers ({reason(error)}); the theory "
            "needs an elementwise activation."
        ) from error
    if value.shape != shape:
        raise ValueError(
            f"the operation {place} ({text}) changes the shape of a layer; the theory needs an elementwise "
            "activation."
        )
    return value.astype(np.float64).reshape(-1)


def _recognized(values: np.ndarray, place: str, text: str) -> Activation:
    at = dict(zip(_ANCHORS, values.tolist(), strict=False))
    for candidate in _named(at):
        if _difference(_on_points(candidate), values).max() <= 1:
            return candidate
    for kind, parameters in _twins(at):
        function = _TWINS[kind](*parameters)[0]
        if _difference(np.asarray(function(jnp.asarray(_POINTS))), values).max() <= 1:
            return _twin(kind, *parameters)
    raise ValueError(
        f"the activation {place} ({text}) is none that is known ({_KNOWN}); pass activation=, a name "
        "of fw.activations() or the same function written with jax.numpy, and the two are compared."
    )


def _compare(wanted: Activation, values: np.ndarray, place: str) -> None:
    off = _difference(_on_points(wanted), values)
    if off.max() > 1:
        at = int(np.argmax(off))
        raise ValueError(
            f"activation {wanted.name!r} is not the activation {place}: at z = {_POINTS[at]:.4g} the module "
            f"gives {values[at]:.6g}, it gives {float(_on_points(wanted)[at]):.6g}; pass the module's own."
        )


def _difference(candidate: np.ndarray, values: np.ndarray) -> np.ndarray:
    """In units of the tolerance."""
    return np.abs(candidate - values) / (_TOLERANCE * (1 + np.abs(values)))


@functools.lru_cache(maxsize=256)
def _on_points(activation: Activation) -> np.ndarray:
    return np.asarray(activation(jnp.asarray(_POINTS)))


def _named(at: dict[float, float]) -> Iterator[Activation]:
    """The library's activations that could have these values; the caller compares all points."""
    up, down = at[1.0], 0.0 - at[-1.0]
    yield _straight_lines(up, down)
    for name in _FIXED:
        yield as_activation(name)
    if 0 < up < 1:
        yield as_activation(f"swish({_rounded(math.log(up / (1 - up)))!r})")
    yield as_activation(f"elu({_rounded(down / -math.expm1(-1))!r})")
    yield as_activation("hardtanh")


def _twins(at: dict[float, float]) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Kinds and parameters of torch's other functions that could have these values."""
    if at[-31.7] < at[31.3]:
        yield "hardtanh", (at[-31.7], at[31.3])
    if at[0.0] > 0:
        yield "softplus", (_rounded(math.log(2) / at[0.0]),)
    yield from (("gelu_tanh", ()), ("hardswish", ()), ("softsign", ()))


def _straight_lines(up: float, down: float) -> Activation:
    names: dict[Any, str] = {(1.0, 0.0): "relu", (1.0, 1.0): "linear"}
    if up == 1.0 and (up, down) not in names:
        return as_activation(f"leaky_relu({down!r})")
    return as_activation(names.get((up, down), f"scale_invariant({up!r}, {down!r})"))


def _rounded(value: float) -> float:
    """A computed parameter, rounded to the digits that a user would write."""
    return float(f"{value:.12g}")


# functions of torch without a name in the library: function, name and kinks from the parameters
_TWINS: dict[str, Callable[..., tuple[Callable, str, tuple[float, ...]]]] = {
    "gelu_tanh": lambda: (lambda z: jax.nn.gelu(z, approximate=True), "gelu_tanh", ()),
    "softplus": lambda beta: (lambda z: jax.nn.softplus(beta * z) / beta, f"softplus(beta={beta:g})", ()),
    "hardtanh": lambda a, b: (lambda z: jnp.clip(z, a, b), f"hardtanh({a:g}, {b:g})", (a, b)),
    "hardswish": lambda: (lambda z: z * jnp.clip(z + 3, 0.0, 6.0) / 6, "hardswish", (-3.0, 3.0)),
    "softsign": lambda: (lambda z: z / (1 + jnp.abs(z)), "softsign", (0.0,)),
}


@functools.cache
def _twin(kind: str, *parameters: float) -> Activation:
    """Cached, so that equal parameters give one object; making it searches for kinks, which takes a while."""
    function, name, kinks = _TWINS[kind](*parameters)
    return Activation(function, name=name, kinks=kinks)


# --- weights that keep norms and angles ------------------------------------------------------------------


def ensemble_of(W: np.ndarray) -> str:
    """ "orthogonal" if the shorter of rows and columns are orthogonal to each other and of one length.

    A single row or column keeps angles whatever it is drawn from, and counts as Gaussian.
    """
    W = np.asarray(W, dtype=float)
    if min(W.shape) < 2:
        return "gaussian"
    gram = W @ W.T if W.shape[0] <= W.shape[1] else W.T @ W
    square = np.trace(gram) / len(gram)
    isometric = square > 0 and np.abs(gram / square - np.eye(len(gram))).max() < _SINGLE_PRECISION
    return "orthogonal" if isometric else "gaussian"


def gaussian_beside_others(net: Network) -> Network:
    """The network with Gaussian weights unless all its layers are dense: theory knows no others."""
    if net.not_dense is None or not net.has_orthogonal_weights:
        return net
    return net.replace(layers=[_gaussian(layer) for layer in net.layers])


def _gaussian(layer: AbstractLayer) -> AbstractLayer:
    if isinstance(layer, Residual):
        return layer.replace(
            layers=[_gaussian(inner) for inner in layer.layers],
            shortcut=[_gaussian(inner) for inner in layer.shortcut],
        )
    return dataclasses.replace(layer, weights="gaussian") if isinstance(layer, Dense) else layer
