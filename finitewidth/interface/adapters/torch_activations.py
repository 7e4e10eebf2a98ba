"""Which activation stands between the linear layers of a torch module, told by what it computes.

The operations between two layers are evaluated on numbers, shown to act on every entry alone, and compared
with the activations of the library; their parameters (slope, alpha, beta, ...) are read off the values.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from finitewidth.interface.adapters.torch_graph import Chain, Piece
from finitewidth.network.activation import Activation, as_activation

_TOLERANCE = 1e-8  # torch's softplus turns into a straight line at 20, 2e-9 off
_ANCHORS = (-1.0, 0.0, 1.0, -31.7, 31.3)  # parameters are read off the values at these points
_POINTS = np.concatenate([_ANCHORS, np.linspace(-9.03, 8.97, 181), [-15.1, 14.7]])
_FIXED = ("tanh", "sigmoid", "sin", "erf", "softplus", "swish", "gelu", "mish", "elu", "selu", "perceptron")
KNOWN = (
    "relu, leaky_relu, tanh, sigmoid, sin, erf, gelu (exact or tanh), silu, mish, elu, selu, "
    "softplus, hardtanh, "
    "relu6, hardswish, softsign"
)


def activation_of(chain: Chain, given: str | Activation | Callable | None) -> Activation:
    """The one activation between all layers: found, or `given` and compared with what the module computes."""
    wanted = None if given is None else as_activation(given)
    found = []
    for index, piece in enumerate(chain.between):
        place = f"between layers {chain.layers[index].name!r} and {chain.layers[index + 1].name!r}"
        values = _sampled(piece, chain.widths[index + 1], place)
        if wanted is None:
            found.append(_recognized(values, piece, place))
            if found[-1] != found[0]:
                raise ValueError(
                    f"module has different activations in different layers: {found[-1].name} {place}, but "
                    f"{found[0].name} before; use one."
                )
        else:
            _compare(wanted, values, place)
    return wanted or (found[0] if found else as_activation("linear"))


def _sampled(piece: Piece, width: int, place: str) -> np.ndarray:
    """Values at _POINTS of what stands between two layers, or a refusal if it is no elementwise function."""
    rows = -(-2 * len(_POINTS) // width)
    order = np.random.default_rng(0).permutation(rows * width)
    entries = np.resize(_POINTS, rows * width)
    with (
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
    ):  # a random operation leaves the user's stream alone
        straight = _evaluated(piece, entries, (rows, width), place)
        shuffled = _evaluated(piece, entries[order], (rows, width), place)
    # vectorized code may round the last entries of a row another way
    if not np.allclose(straight[order], shuffled, rtol=1e-12, atol=1e-14, equal_nan=True):
        raise ValueError(
            f"what stands {place} ({piece}) is not an elementwise function of fixed form; fw.torch needs one "
            "activation that acts on every entry alone."
        )
    values = straight[: len(_POINTS)]
    if not np.isfinite(values).all():
        raise ValueError(
            f"what stands {place} ({piece}) returns NaN or infinity; use an activation that does not."
        )
    return values


def _evaluated(piece: Piece, entries: np.ndarray, shape: tuple[int, int], place: str) -> np.ndarray:
    try:
        value = piece(torch.from_numpy(entries).reshape(shape))
    except (RuntimeError, TypeError, IndexError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ValueError(
            f"what stands {place} ({piece}) cannot be evaluated on numbers: {reason}."
        ) from error
    if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape:
        raise ValueError(
            f"what stands {place} ({piece}) changes the shape of a layer; fw.torch needs an "
            "elementwise activation."
        )
    return value.to(torch.float64).reshape(-1).numpy()


def _recognized(values: np.ndarray, piece: Piece, place: str) -> Activation:
    if np.array_equal(values, _POINTS):
        raise ValueError(
            f"there is no activation {place}; add one, or pass activation='linear' if a deep linear "
            "network is meant."
        )
    at = dict(zip(_ANCHORS, values.tolist(), strict=False))
    for candidate in _named(at):
        if _difference(_on_points(candidate), values).max() <= 1:
            return candidate
    for kind, parameters in _twins(at):
        function = _TWINS[kind](*parameters)[0]
        if _difference(np.asarray(function(jnp.asarray(_POINTS))), values).max() <= 1:
            return _twin(kind, *parameters)
    raise ValueError(
        f"the activation {place} ({piece}) is none that fw.torch knows ({KNOWN}); pass activation=, a "
        "name of "
        "fw.activations() or the same function written with jax.numpy, and the two are compared."
    )


def _compare(wanted: Activation, values: np.ndarray, place: str) -> None:
    off = _difference(_on_points(wanted), values)
    if off.max() > 1:
        at = int(np.argmax(off))
        raise ValueError(
            f"activation {wanted.name!r} is not what stands {place}: at z = {_POINTS[at]:.4g} the "
            "module gives "
            f"{values[at]:.6g}, it {float(_on_points(wanted)[at]):.6g}; pass the module's own."
        )


def _difference(candidate: np.ndarray, values: np.ndarray) -> np.ndarray:
    """In units of what is tolerated."""
    return np.abs(candidate - values) / (_TOLERANCE * (1 + np.abs(values)))


@functools.lru_cache(maxsize=256)
def _on_points(activation: Activation) -> np.ndarray:
    return np.asarray(activation(jnp.asarray(_POINTS)))


def _named(at: dict[float, float]) -> Iterator[Activation]:
    """The library's activations that could have these values; whoever asks compares all points."""
    up, down = at[1.0], 0.0 - at[-1.0]
    yield _straight_lines(up, down)
    for name in _FIXED:
        yield as_activation(name)
    if 0 < up < 1:
        yield as_activation(f"swish({_rounded(math.log(up / (1 - up)))!r})")
    yield as_activation(f"elu({_rounded(down / -math.expm1(-1))!r})")
    yield as_activation("hardtanh")


def _twins(at: dict[float, float]) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Kinds and parameters of other functions of torch that could have them."""
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
    """A parameter as the user wrote it, from one that was computed."""
    return float(f"{value:.12g}")


# functions of torch that have no name in the library: from parameters to function, name and kinks
_TWINS: dict[str, Callable[..., tuple[Callable, str, tuple[float, ...]]]] = {
    "gelu_tanh": lambda: (lambda z: jax.nn.gelu(z, approximate=True), "gelu_tanh", ()),
    "softplus": lambda beta: (lambda z: jax.nn.softplus(beta * z) / beta, f"softplus(beta={beta:g})", ()),
    "hardtanh": lambda a, b: (lambda z: jnp.clip(z, a, b), f"hardtanh({a:g}, {b:g})", (a, b)),
    "hardswish": lambda: (lambda z: z * jnp.clip(z + 3, 0.0, 6.0) / 6, "hardswish", (-3.0, 3.0)),
    "softsign": lambda: (lambda z: z / (1 + jnp.abs(z)), "softsign", (0.0,)),
}


@functools.cache
def _twin(kind: str, *parameters: float) -> Activation:
    """Made once, so that equal ones are one; its making looks for kinks and takes a while."""
    function, name, kinks = _TWINS[kind](*parameters)
    return Activation(function, name=name, kinks=kinks)
