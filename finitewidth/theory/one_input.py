r"""All statistics for one input, to any depth: scalars, one-dimensional integrals, one compiled scan.

The recursions are those of PDLT chapters 5, 9 and 11 and of (inf.14)-(inf.17). They are written out as
scalars, independently of the block form for many inputs, and the two are tested against each other.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.gaussian.two_legs import quadrature
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.network import Network
from finitewidth.theory.layers.dense import behind_weights

_SHORTEST_SCAN = 64  # layers

NAMES = ("K", "Theta", "G1", "H1", "V", "D", "A", "F", "B", "P", "Q", "R", "S", "T", "U")


class Scalars(NamedTuple):
    """The statistics of one layer for one input, or arrays of them over layers."""

    K: jax.Array
    Theta: jax.Array
    G1: jax.Array
    H1: jax.Array
    V: jax.Array
    D: jax.Array
    A: jax.Array
    F: jax.Array
    B: jax.Array
    P: jax.Array
    Q: jax.Array
    R: jax.Array
    S: jax.Array
    T: jax.Array
    U: jax.Array


class _Averages(NamedTuple):
    """One-leg averages: ab.. is <s^(a) s^(b) ..>."""

    a00: jax.Array
    a11: jax.Array
    a20: jax.Array
    a22: jax.Array
    a31: jax.Array
    sigma_curvature: jax.Array  # 2<s''''s> + 8<s'''s'> + 6<s''s''>
    slope_curvature: jax.Array  # 2<s^(5)s'> + 8<s''''s''> + 6<s'''s'''>
    a0000: jax.Array
    a1100: jax.Array
    a1111: jax.Array
    a2110: jax.Array
    a3111: jax.Array
    a2211: jax.Array


def _smooth_averages(activation: Activation, x, weights, K) -> _Averages:
    s = activation.derivatives(jnp.sqrt(K) * x, 5)

    def mean(*orders):
        return (functools.reduce(jnp.multiply, (s[order] for order in orders)) * weights).sum()

    def curvature(u):
        return 2 * mean(u + 4, u) + 8 * mean(u + 3, u + 1) + 6 * mean(u + 2, u + 2)

    pairs = (mean(0, 0), mean(1, 1), mean(2, 0), mean(2, 2), mean(3, 1), curvature(0), curvature(1))
    return _Averages(
        *pairs,
        mean(0, 0, 0, 0),
        mean(1, 1, 0, 0),
        mean(1, 1, 1, 1),
        mean(2, 1, 1, 0),
        mean(3, 1, 1, 1),
        mean(2, 2, 1, 1),
    )


def _scale_invariant_averages(a_plus: float, a_minus: float, K) -> _Averages:
    """<s s> = A_2 K and <s' s'> = A_2: derivatives with respect to the kernel are A_2 and zero.

    The maps below use <s''s> + <s's'> and <s'''s'> + <s''s''> only, so the split of each sum is free.
    """
    A_2, A_4 = (a_plus**2 + a_minus**2) / 2, (a_plus**4 + a_minus**4) / 2
    zero = jnp.zeros_like(K)
    two = (A_2 * K, A_2 + zero, zero, zero, zero, zero, zero)
    return _Averages(*two, 3 * A_4 * K**2, A_4 * K, A_4 + zero, zero, zero, zero)


class _Weights(NamedTuple):
    """What a layer l + 1 is to the recursion, or all layers."""

    C_b: jax.Array
    C_W: jax.Array
    lambda_b: jax.Array
    lambda_W: jax.Array
    width_ratio: jax.Array  # n_l / n_(l-1)
    orthogonality: jax.Array | None = None  # None where all weights are Gaussian


def _next(now: Scalars, m: _Averages, layer: _Weights) -> Scalars:
    _, Th, G1, H1, V, D, A, F, B, P, Q, R, S, T, U = now
    C, lW, r = layer.C_W, layer.lambda_W, layer.width_ratio
    above = behind_weights(layer, m.a00, Th * m.a11)
    chi = C * m.a11
    y1, y2 = lW * m.a20 + C * Th * m.a31, lW * m.a11 + C * Th * m.a22
    x, g, h = y1 + y2, m.a20 + m.a11, m.a31 + m.a22
    X = lW * m.a00 + C * Th * m.a11
    signal = G1 * g + V / 8 * m.sigma_curvature
    slope = G1 * h + V / 8 * m.slope_curvature
    Xss = lW * m.a0000 + C * Th * m.a1100
    XX = lW**2 * m.a0000 + 2 * lW * C * Th * m.a1100 + (C * Th) ** 2 * m.a1111
    YY = lW**2 * m.a1100 + 2 * lW * C * Th * m.a2110 + (C * Th) ** 2 * m.a2211
    new = Scalars(
        K=above.K,
        Theta=above.Theta,
        G1=r * C * signal,
        H1=r * (lW * signal + chi * H1 + C * Th * slope + C * h * (D + 2 * F)),
        V=C**2 * (m.a0000 - m.a00**2 + r * g**2 * V),
        D=C * (Xss - X * m.a00 + r * (x * g * V + chi * g * D)),
        A=XX - X**2 + r * (x**2 * V + 2 * chi * x * D + chi**2 * A),
        F=C**2 * (m.a1100 * Th + r * g**2 * F),
        B=C**2 * m.a1111 * Th**2 + r * chi**2 * B,
        P=C**2 * m.a2110 * Th**2 + r * chi * C * (m.a20 * B + g * P),
        Q=C * (lW * m.a1100 + C * Th * m.a2110) * Th + r * (C * x * g * F + C * chi * g * Q),
        R=C * lW * m.a2110 * Th**2 + C**2 * m.a3111 * Th**3 + r * chi * (y1 * B + x * P + chi * R),
        S=C * lW * m.a1111 * Th**2 + C**2 * m.a2211 * Th**3 + r * chi * (y2 * B + chi * S),
        T=YY * Th + r * (x**2 * F + 2 * chi * x * Q + chi**2 * T),
        U=C**2 * m.a2211 * Th**3 + r * chi**2 * U,
    )
    if layer.orthogonality is None:
        return new
    return _without_exchanges(new, layer.orthogonality, C * m.a00, chi * Th)


def _without_exchanges(now: Scalars, share, k, t) -> Scalars:
    """What orthogonal weights leave of V, F and B (`theory/layers/isometry.py`)."""
    return now._replace(V=now.V - 2 * share * k**2, F=now.F - share * t * k, B=now.B - share * t**2)


@functools.partial(jax.jit, static_argnames=("activations",))
def _scan(
    activations: tuple[Activation, ...], first: Scalars, grids, which: jax.Array, layers: _Weights
) -> Scalars:
    """All layers from the first; `which` says which of the distinct activations acts on each layer."""
    branches = [functools.partial(_averages, *pair) for pair in zip(activations, grids, strict=True)]

    def step(now, layer):
        place, weights = layer
        averages = branches[0](now.K) if len(branches) == 1 else jax.lax.switch(place, branches, now.K)
        after = _next(now, averages, weights)
        return after, after

    return jax.lax.scan(step, first, (which, layers))[1]


def _averages(activation: Activation, grid: tuple[jax.Array, jax.Array], K) -> _Averages:
    if activation.slopes is not None:
        return _scale_invariant_averages(*activation.slopes, K)
    return _smooth_averages(activation, *grid, K)


class SingleInput(NamedTuple):
    """Statistics of every layer for one input, and the relative error of the averages."""

    layers: dict[str, np.ndarray]  # name: (L,)
    error: float
    rest: float = 0.0  # of series over a neuron's memory, relative to the scale of four-leg averages


def applies(net: Network) -> bool:
    """Smooth activations, and those that are two straight lines."""
    return all(activation.is_smooth or activation.is_scale_invariant for activation in net.ladder.activations)


def single_input(net: Network, square: float, tolerance: float) -> SingleInput:
    """All statistics of all layers for one input with mean square component `square`."""
    K, Theta = behind_weights(net.ladder.dense[0], square)
    first = Scalars(jnp.asarray(K), jnp.asarray(Theta), *[jnp.zeros(())] * 13)
    first = _without_exchanges(first, net.ladder.orthogonality[0], net.ladder.dense[0].C_W * square, 0.0)
    distinct = tuple(dict.fromkeys(net.ladder.activations)) or (as_activation("linear"),)
    widest = K
    while True:  # the grids must fit the largest variance on the way
        grids, errors = zip(*(grid(activation, widest, tolerance) for activation in distinct), strict=True)
        padded = _scan(distinct, first, grids, _which(net, distinct), _weights(net))
        rest = Scalars(*(np.asarray(part)[: net.depth - 1] for part in padded))  # type: ignore[arg-type]
        largest = float(np.max(rest.K, initial=widest))
        if not np.isfinite(largest):
            raise ValueError("the kernel grows beyond double precision with depth; lower C_W or the depth.")
        if largest <= 1.0001 * widest or all(activation.slopes is not None for activation in distinct):
            break
        widest = 2 * largest
    layers = {
        name: np.concatenate([[float(getattr(first, name))], np.asarray(getattr(rest, name))])
        for name in NAMES
    }
    return SingleInput(layers, max(errors))


def grid(activation: Activation, widest: float, tolerance: float) -> tuple[tuple, float]:
    """Nodes and weights for preactivations of variance up to `widest`, and their error."""
    orders = tuple((a, a) for a in range(6)) if activation.is_smooth else ((0, 0), (1, 1))
    precision = quadrature.precision(activation, widest, orders, tolerance)
    extent = quadrature.reach(activation, widest) + 3  # four legs grow faster than two
    x, weights = quadrature.gaussian_grid(np.zeros(1), extent, precision.count)
    return (jnp.asarray(x), jnp.asarray(weights)), precision.error


def _which(net: Network, distinct: tuple[Activation, ...]) -> jax.Array:
    """The place of each layer's activation among the distinct ones."""
    places = {activation: place for place, activation in enumerate(distinct)}
    return jnp.asarray(_padded([places[activation] for activation in net.ladder.activations], int))


def _weights(net: Network) -> _Weights:
    """Those of the layers 2 ... L."""
    dense, widths = net.ladder.dense, net.ladder.widths
    ratios = [widths[l] / widths[l - 1] for l in range(1, net.depth)]
    columns = [[getattr(layer, name) for layer in dense[1:]] for name in _Weights._fields[:4]]
    shares = [net.ladder.orthogonality[1:]] if any(net.ladder.orthogonality) else []
    return _Weights(*(jnp.asarray(_padded(column, float)) for column in (*columns, ratios, *shares)))


def _padded(column: Sequence, dtype: type) -> np.ndarray:
    """Depths share few compiled programs: layers beyond the last one repeat it and are cut off."""
    if not column:
        return np.zeros(0, dtype)
    length = max(_SHORTEST_SCAN, 1 << (len(column) - 1).bit_length())
    return np.pad(np.asarray(column, dtype=dtype), (0, length - len(column)), mode="edge")
