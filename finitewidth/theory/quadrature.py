r"""Quadrature for averages of one or two legs that holds for any variance, correlation and kink.

Every integral is cut into segments on which the integrand is analytic, and each segment is
integrated by the tanh-sinh (double exponential) rule. Its nodes crowd at the ends of the segment,
so a kink sits at an end, and structure of size one near z = 0 is resolved even where the standard
deviation of z is a thousand.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.activation import Activation

LEAST_REACH = 9.0  # standard deviations; beyond lies 1e-18 of a Gaussian
GREATEST_REACH = 36.0
_POINTS_AT_ONCE = 500_000  # bounds the memory of a batch of pairs
_COUNTS = (97, 193, 385)  # nodes per segment, tried in turn


class Nested(NamedTuple):
    """The same averages by the full rule and by every second of its nodes."""

    fine: np.ndarray
    coarse: np.ndarray

    def error(self, scale: np.ndarray) -> np.ndarray:
        """Error of the full rule in units of `scale`.

        Halving the step about squares the error of a tanh-sinh rule; the factor 200 covers what was
        seen over kinked and smooth activations (at most 40) and the last term covers rounding.
        """
        difference = np.abs(self.fine - self.coarse) / np.where(scale == 0, 1.0, scale)
        return np.minimum(difference, 200 * difference**2) + 2e-14


@functools.cache
def tanh_sinh(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes as fractions of a segment and weights; `count` is odd, every second node is a rule too."""
    t = np.linspace(-3.3, 3.3, count)  # the outermost nodes are 1e-19 of the segment from its ends
    step = t[1] - t[0]
    nodes = 0.5 * (1 + np.tanh(np.pi / 2 * np.sinh(t)))
    weights = step * np.pi / 4 * np.cosh(t) / np.cosh(np.pi / 2 * np.sinh(t)) ** 2
    return nodes, weights


def breakpoints(activation: Activation) -> tuple[float, ...]:
    """Where segments end: the kinks, or else zero, around which activations have their structure."""
    return activation.kinks or (0.0,)


def reach(activation: Activation, variance: float) -> float:
    """How many standard deviations must be covered, given how sigma grows.

    The average of sigma^2 must have lost nothing that double precision could see.
    """
    x = np.linspace(0.0, GREATEST_REACH, 721)
    z = jnp.asarray(np.concatenate([-x, x]) * math.sqrt(variance))
    with np.errstate(divide="ignore", over="ignore"):
        size = np.log(np.abs(np.asarray(activation.function(z)).reshape(2, -1)).max(axis=0) + 1e-300)
    exponent = 2 * size - x**2 / 2
    needed = x[exponent > exponent.max() - 41][-1]  # exp(-41) = 1e-18
    if not np.isfinite(exponent).all() or needed > GREATEST_REACH - 1:
        raise ValueError(
            f"activation {activation.name!r} grows too fast to be averaged at variance {variance:.3g}; "
            "lower C_W or C_b, or scale the inputs down."
        )
    return max(LEAST_REACH, math.ceil(2 * needed) / 2)


def _segments(points: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Ends of the segments of [low, high] cut at `points` (last axis); some may be empty."""
    inside = jnp.sort(jnp.clip(points, low[..., None], high[..., None]), axis=-1)
    ends = jnp.concatenate([low[..., None], inside, high[..., None]], axis=-1)
    return ends[..., :-1], ends[..., 1:]


def graded_grid(points: Array, low: Array, high: Array, count: int) -> tuple[Array, Array]:
    """Nodes and weights on [low, high] (last axis), crowding at every one of `points`."""
    nodes, weights = (jnp.asarray(part) for part in tanh_sinh(count))
    left, right = _segments(points, low, high)
    length = (right - left)[..., None]
    # count from the nearer end, so that nodes keep their distance to a kink in full precision
    x = jnp.where(nodes < 0.5, left[..., None] + length * nodes, right[..., None] - length * nodes[::-1])
    shape = (*x.shape[:-2], x.shape[-2] * count)
    return x.reshape(shape), (length * weights).reshape(shape)


def _every_second(count: int, segments: int) -> np.ndarray:
    """Weights' factor that turns the rule into the one with twice the step."""
    return np.tile(np.where(np.arange(count) % 2 == 0, 2.0, 0.0), segments)


def gaussian_grid(
    activation: Activation, sigma: Float[Array, " M"], extent: float | Array, count: int
) -> tuple[Array, Array]:
    """Nodes x (M, G) in units of sigma and weights of a unit Gaussian, cut at the breakpoints."""
    points = jnp.asarray(breakpoints(activation))[None, :] / _divisor(sigma)[:, None]
    edge = extent * jnp.ones_like(sigma)
    x, weights = graded_grid(points, -edge, edge, count)
    return x, weights * jnp.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


@functools.partial(jax.jit, static_argnames=("activation", "orders", "count"))
def _diagonal(activation, sigma, orders, extent, count):
    x, weights = gaussian_grid(activation, sigma, extent, count)
    second = _every_second(count, x.shape[-1] // count)[None, :]
    z = (sigma[:, None] * x)[:, None, :]
    legs = _legs(activation, z, max(max(pair) for pair in orders))
    alone = Pairs(sigma**2, sigma**2, sigma**2, jnp.zeros_like(sigma))  # z_1 = z_2
    fine = _moments(legs, legs * weights[:, None, :], orders, alone, activation)
    coarse = _moments(legs, legs * (weights * second)[:, None, :], orders, alone, activation)
    return fine, coarse


def one_leg(
    activation: Activation, variances: np.ndarray, orders: tuple[tuple[int, int], ...], *, count: int = 161
) -> Nested:
    """<sigma^(a) sigma^(b)> of one Gaussian variable, for each variance (orders, M)."""
    extent = reach(activation, float(variances.max(initial=0.0)))
    sigma = np.sqrt(variances)
    padded = np.pad(sigma, (0, padding(sigma.size)))
    fine, coarse = _diagonal(activation, jnp.asarray(padded), orders, extent, count)
    return Nested(np.asarray(fine)[:, : sigma.size], np.asarray(coarse)[:, : sigma.size])


class Precision(NamedTuple):
    """Nodes per segment that one-leg averages need, and the relative error that they then have."""

    count: int
    error: float


@functools.lru_cache(maxsize=4096)
def precision(
    activation: Activation, variance: float, orders: tuple[tuple[int, int], ...], tolerance: float
) -> Precision:
    """The least number of nodes that reaches the tolerance, or the most that is tried."""
    for count in (161, 321, 641, 1281):
        nested = one_leg(activation, np.asarray([variance]), orders, count=count)
        error = float(nested.error(nested.fine).max())
        if error <= tolerance:
            break
    return Precision(count, error)


def padding(size: int) -> int:
    """What brings a length to a power of two, so that few shapes are compiled."""
    return (1 << max(size - 1, 0).bit_length()) - size


class Pairs(NamedTuple):
    """Covariances of pairs of preactivations, one entry for each pair."""

    first: np.ndarray
    second: np.ndarray
    cross: np.ndarray
    determinant: np.ndarray


@functools.partial(jax.jit, static_argnames=("activation", "orders", "count"))
def _pair_averages(activation, pairs: Pairs, orders, extent, count):
    r"""z_1 = sigma_1 x and z_2 = s z_1 + sqrt(v) y with s = K_12/K_11 and v = det/K_11.

    The integral over x is innermost: at fixed y the integrand breaks only where z_1 or z_2 meets a
    kink, so no layer of width sqrt(v) ever appears, however close the correlation is to one.
    """
    kinks = jnp.asarray(breakpoints(activation))
    degenerate = pairs.first == 0
    safe = _divisor(pairs.first)
    slope = jnp.where(degenerate, 0.0, pairs.cross / safe)
    spread = jnp.sqrt(jnp.where(degenerate, pairs.second, pairs.determinant / safe))
    sigma = jnp.sqrt(pairs.first)

    # in y the integral over x breaks where a kink of z_2 passes a kink of z_1
    passing = (kinks[None, :, None] - slope[:, None, None] * kinks[None, None, :]).reshape(slope.size, -1)
    edge = extent * jnp.ones_like(slope)
    y, y_weights = graded_grid(passing / _divisor(spread)[:, None], -edge, edge, count)
    y_weights = y_weights * jnp.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)

    shift = spread[:, None] * y  # (M, Y)
    steep = (slope * sigma)[:, None, None]
    images = (kinks - shift[:, :, None]) / _divisor(steep)
    images = jnp.where(steep == 0, 0.0, images)
    own = jnp.broadcast_to(kinks / _divisor(sigma)[:, None, None], images.shape)
    edge = extent * jnp.ones_like(y)
    x, x_weights = graded_grid(jnp.concatenate([own, images], axis=-1), -edge, edge, count)
    x_weights = x_weights * jnp.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)

    z_1 = sigma[:, None, None] * x
    z_2 = slope[:, None, None] * z_1 + shift[:, :, None]
    weights = x_weights * y_weights[:, :, None]
    every_second = (
        _every_second(count, y.shape[-1] // count)[:, None]
        * _every_second(count, x.shape[-1] // count)[None, :]
    )
    highest = max(max(pair) for pair in orders)
    first, second = _legs(activation, z_1, highest), _legs(activation, z_2, highest)
    fine = _moments(first, second * weights, orders, pairs, activation)
    coarse = _moments(first, second * (weights * every_second), orders, pairs, activation)
    return fine, coarse


def _legs(activation, z, highest):
    """Functions of a leg (functions, M, Y, X): the derivatives, and z times the last one that is a function."""
    functions = activation.derivatives(z, int(min(highest, activation.jump_order)))
    return jnp.stack([*functions, z * functions[-1]])


def _moments(first, second, orders, pairs: Pairs, activation):
    """Averages (orders, M); one order beyond the jump is integrated by parts, <z f g> = K_11 <f'g> + K_12 <f g'>."""
    first, second = jax.lax.optimization_barrier((first, second))  # evaluate the legs once for all orders

    @functools.cache
    def sum_of_products(a, b):
        return (first[a] * second[b]).sum(axis=(-2, -1))

    def average(a, b):
        if a > activation.jump_order:
            return (sum_of_products(-1, b) - pairs.cross * average(a - 1, b + 1)) / _divisor(pairs.first)
        if b > activation.jump_order:
            return (sum_of_products(a, -1) - pairs.cross * average(a + 1, b - 1)) / _divisor(pairs.second)
        return sum_of_products(a, b)

    return jnp.stack([average(a, b) for a, b in orders])


def _divisor(variance):
    return jnp.where(variance == 0, 1.0, variance)


def two_legs_of_pairs(
    activation: Activation,
    pairs: Pairs,
    orders: tuple[tuple[int, int], ...],
    *,
    scale: np.ndarray,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """<sigma^(a)_1 sigma^(b)_2> for a list of pairs (orders, M), and errors in units of `scale`.

    Pairs that miss the tolerance are done again with twice the nodes, twice at most.
    """
    extent = reach(activation, float(max(pairs.first.max(initial=0.0), pairs.second.max(initial=0.0))))
    values, errors = np.empty(scale.shape), np.full(scale.shape, np.inf)
    todo = np.arange(pairs.first.size)
    for count in _COUNTS:
        nested = _in_batches(activation, Pairs(*(part[todo] for part in pairs)), orders, extent, count)
        values[:, todo], errors[:, todo] = nested.fine, nested.error(scale[:, todo])
        todo = todo[(errors[:, todo] > tolerance).any(axis=0)]
        if todo.size == 0:
            break
    return values, errors


def _in_batches(activation, pairs: Pairs, orders, extent: float, count: int) -> Nested:
    kinks = len(breakpoints(activation))
    batch = max(1, _POINTS_AT_ONCE // ((kinks**2 + 1) * (2 * kinks + 1) * count**2))
    total = pairs.first.size
    nested = Nested(np.empty((len(orders), total)), np.empty((len(orders), total)))
    for start in range(0, total, batch):
        part = [entry[start : start + batch] for entry in pairs]
        size = part[0].size
        padded = Pairs(*(np.pad(entry, (0, batch - size), mode="edge") for entry in part))
        done = _pair_averages(activation, padded, orders, extent, count)
        for target, result in zip(nested, done, strict=True):
            target[:, start : start + size] = np.asarray(result)[:, :size]
    return nested
