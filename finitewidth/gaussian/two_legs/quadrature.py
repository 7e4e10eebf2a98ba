r"""Quadrature for averages of two legs, on one sample or two, for any variance, correlation and kinks.

Every integral is cut into segments on which the integrand is analytic, and each segment is
integrated by the tanh-sinh (double exponential) rule. Its nodes crowd at the ends of the segment,
so a kink sits at an end, and structure of size one near z = 0 is resolved even where the standard
deviation of z is a thousand.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.division import divisor
from finitewidth.gaussian.tower import Tower
from finitewidth.gaussian.two_legs.orders import Orders, as_functions, has_delta, of_legs
from finitewidth.network.layers.activation import Activation

LEAST_REACH = 9.0  # standard deviations; 1e-18 of a Gaussian lies beyond
GREATEST_REACH = 36.0
_POINTS_AT_ONCE = 500_000  # bounds the memory of a batch of pairs
_COUNTS = (97, 193, 385)  # nodes per segment, tried in turn
_UNRELATED = 1.41  # ratio of the numbers of nodes of two rules that share none but the ends and the middle


class Nested(NamedTuple):
    """The same averages by the full rule and by every second of its nodes."""

    fine: np.ndarray
    coarse: np.ndarray

    def error(self, scale: np.ndarray) -> np.ndarray:
        """Error of the full rule in units of `scale`.

        Halving the step about squares the error of a tanh-sinh rule. The largest factor seen over kinked
        and smooth activations is 40, the factor 200 is safe, and the last term covers rounding.
        """
        difference = np.abs(self.fine - self.coarse) / divisor(scale)
        return np.minimum(difference, 200 * difference**2) + 1e-13


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


@functools.lru_cache(maxsize=4096)
def reach(activation: Activation, variance: float) -> float:
    """The number of standard deviations that a grid must cover, given the growth of sigma.

    The part of <sigma^2> beyond must be invisible in double precision.
    """
    x = np.linspace(0.0, GREATEST_REACH, 721)
    z = np.concatenate([-x, x]) * math.sqrt(variance)
    with np.errstate(divide="ignore", over="ignore"):
        size = np.log(np.abs(Tower(activation, 0)(z)[0].reshape(2, -1)).max(axis=0) + 1e-300)
    exponent = 2 * size - x**2 / 2
    tame = bool(np.isfinite(exponent).all())
    needed = x[exponent > exponent.max() - 41][-1] if tame else math.inf  # exp(-41) = 1e-18
    if needed > GREATEST_REACH - 1:
        raise ValueError(
            f"activation {activation.name!r} grows too fast to be averaged at variance {variance:.3g}; "
            "lower C_W or C_b, or scale the inputs down."
        )
    covered = max(LEAST_REACH, math.ceil(2 * needed) / 2)
    activation.require_known_kinks(covered * math.sqrt(variance))
    return covered


def graded_grid(points: np.ndarray, extent: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-extent, extent] (last axis), crowding at every one of `points` inside."""
    nodes, weights = tanh_sinh(count)
    inside = np.sort(np.clip(points, -extent, extent), axis=-1)
    edge = np.full((*points.shape[:-1], 1), extent)
    ends = np.concatenate([-edge, inside, edge], axis=-1)
    left, right = ends[..., :-1, None], ends[..., 1:, None]
    length = right - left
    # count from the nearer end, so that nodes keep their distance to a kink in full precision
    x = np.where(nodes < 0.5, left + length * nodes, right - length * nodes[::-1])
    shape = (*x.shape[:-2], x.shape[-2] * count)
    return x.reshape(shape), (length * weights).reshape(shape)


def _every_second(weights: np.ndarray, count: int) -> np.ndarray:
    """Weights (last axis) of the rule with twice the step."""
    return weights * np.tile(np.where(np.arange(count) % 2 == 0, 2.0, 0.0), weights.shape[-1] // count)


def gaussian_grid(points: np.ndarray, extent: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes x and weights of a unit Gaussian (last axis), cut at `points` (last axis)."""
    x, weights = graded_grid(points, extent, count)
    return x, weights * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def kinks_in_units(activation: Activation, sigma: np.ndarray) -> np.ndarray:
    """Breakpoints (..., kinks) in units of the standard deviation."""
    return np.asarray(breakpoints(activation)) / divisor(sigma)[..., None]


def one_sample(
    activation: Activation, variances: np.ndarray, orders: tuple[Orders, ...], *, count: int = 161
) -> Nested:
    """<sigma^(a) sigma^(b)> with both legs on one sample, for each variance, (orders, M)."""
    extent = reach(activation, float(variances.max(initial=0.0)))
    nested = Nested(np.empty((len(orders), variances.size)), np.empty((len(orders), variances.size)))
    batch = max(1, _POINTS_AT_ONCE // (4 * count))
    for start in range(0, variances.size, batch):
        part = slice(start, start + batch)
        sigma = np.sqrt(variances[part])
        shared = all(kink == 0.0 for kink in breakpoints(activation))  # then one grid serves all legs
        points = np.zeros((1, 1)) if shared else kinks_in_units(activation, sigma)
        x, weights = gaussian_grid(points, extent, count)
        weights = np.broadcast_to(weights, (sigma.size, weights.shape[-1]))
        legs = _legs(activation, sigma[:, None] * x, orders)
        same = Pairs(sigma**2, sigma**2, sigma**2, np.zeros_like(sigma))  # z_1 = z_2
        nested.fine[:, part] = _moments(legs, legs, weights, orders, same, activation)
        nested.coarse[:, part] = _moments(legs, legs, _every_second(weights, count), orders, same, activation)
    return nested


class Precision(NamedTuple):
    """Nodes per segment that one-leg averages need, and the relative error that they then have."""

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    error: float


@functools.lru_cache(maxsize=4096)
def precision(
    activation: Activation, variance: float, orders: tuple[Orders, ...], tolerance: float
) -> Precision:
    """The least number of nodes that reaches the tolerance, or the most that is tried."""
    count, error = 0, math.inf
    for count in (161, 321, 641, 1281):
        nested = one_sample(activation, np.asarray([variance]), orders, count=count)
        error = float(nested.error(nested.fine).max())
        error = max(error, float(_hidden_error(activation, np.asarray([variance]), orders, count)[0]))
        if error <= tolerance:
            break
    return Precision(count, error)


def _hidden_error(
    activation: Activation, variances: np.ndarray, orders: tuple[Orders, ...], count: int
) -> np.ndarray:
    """The relative error that a rule on one sample has and does not report, for each variance; mostly 0.

    A fast oscillation can deceive a rule and every second of its nodes in the same way. The mean squares of
    the legs by a rule without common nodes show it.
    """
    squares = tuple((a, a) for a in as_functions(activation, of_legs(orders)))
    nested = one_sample(activation, variances, squares, count=count)
    other = one_sample(activation, variances, squares, count=2 * round(_UNRELATED * count / 2) + 1)
    difference = np.abs(nested.fine - other.fine) / divisor(nested.fine)
    deceived = difference > nested.error(nested.fine)
    return np.where(deceived, 4 * difference, 0.0).max(axis=0)  # the other rule may be wrong, too


class Pairs(NamedTuple):
    """Covariances of pairs of preactivations, one entry for each pair."""

    first: np.ndarray
    second: np.ndarray
    cross: np.ndarray
    determinant: np.ndarray


class PairGrid(NamedTuple):
    """Nodes of two correlated legs and weights of their Gaussian (M, Y, X), fine and with twice the step."""

    z_1: np.ndarray
    z_2: np.ndarray
    weights: np.ndarray
    rare: np.ndarray


def pair_grid(activation: Activation, pairs: Pairs, extent: float, count: int) -> PairGrid:
    r"""z_1 = sigma_1 x and z_2 = s z_1 + sqrt(v) y with s = K_12/K_11 and v = det/K_11.

    The integral over x is innermost: at fixed y the integrand breaks only where z_1 or z_2 meets a
    kink, so no layer of width sqrt(v) ever appears, however close the correlation is to one.
    """
    kinks = np.asarray(breakpoints(activation))
    fixed = pairs.first == 0
    slope = np.where(fixed, 0.0, pairs.cross / divisor(pairs.first))
    spread = np.sqrt(np.where(fixed, pairs.second, pairs.determinant / divisor(pairs.first)))
    sigma = np.sqrt(pairs.first)

    # in y the integral over x breaks where a kink of z_2 passes a kink of z_1
    passing = (kinks[None, :, None] - slope[:, None, None] * kinks).reshape(slope.size, -1)
    y, y_weights = gaussian_grid(passing / divisor(spread)[:, None], extent, count)
    shift = spread[:, None] * y  # (M, Y)

    steep = (slope * sigma)[:, None, None]
    images = np.where(steep == 0, 0.0, (kinks - shift[:, :, None]) / divisor(steep))
    own = np.broadcast_to(kinks_in_units(activation, sigma)[:, None, :], images.shape)
    x, x_weights = gaussian_grid(np.concatenate([own, images], axis=-1), extent, count)

    z_1 = sigma[:, None, None] * x
    z_2 = slope[:, None, None] * z_1 + shift[:, :, None]
    weights = x_weights * y_weights[:, :, None]
    rare = _every_second(x_weights, count) * _every_second(y_weights, count)[:, :, None]
    return PairGrid(z_1, z_2, weights, rare)


def _pair_averages(activation: Activation, pairs: Pairs, orders, extent: float, count: int) -> Nested:
    grid = pair_grid(activation, pairs, extent, count)
    first, second = _legs(activation, grid.z_1, orders), _legs(activation, grid.z_2, orders)
    both = (_moments(first, second, w, orders, pairs, activation) for w in (grid.weights, grid.rare))
    return Nested(*both)


def _legs(activation: Activation, z: np.ndarray, orders) -> np.ndarray:
    """Functions of a leg (functions, ...): its derivatives, and z times the last that is a function."""
    highest = int(min(max(max(pair) for pair in orders), activation.jump_order))
    functions = Tower(activation, highest)(z)
    delta = has_delta(activation, orders)
    return np.concatenate([functions, [z * functions[-1]]]) if delta else functions


def _moments(first, second, weights, orders, pairs: Pairs, activation: Activation) -> np.ndarray:
    """Averages (orders, M); beyond the jump by parts from <z f g> = K_11 <f'g> + K_12 <f g'>."""
    axes = "xyz"[: weights.ndim - 1]

    @functools.cache
    def sum_of_products(a, b):
        return np.einsum(f"m{axes},m{axes},m{axes}->m", first[a], second[b], weights)

    def average(a, b):
        if a > activation.jump_order:
            return (sum_of_products(-1, b) - pairs.cross * average(a - 1, b + 1)) / divisor(pairs.first)
        if b > activation.jump_order:
            return (sum_of_products(a, -1) - pairs.cross * average(a + 1, b - 1)) / divisor(pairs.second)
        return sum_of_products(a, b)

    return np.stack([average(a, b) for a, b in orders])


def two_samples(
    activation: Activation,
    pairs: Pairs,
    orders: tuple[Orders, ...],
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
        chosen = Pairs(*(part[todo] for part in pairs))
        nested = _in_batches(activation, chosen, orders, extent, count)
        hidden = _hidden_error_of_pairs(activation, chosen, orders, count)
        values[:, todo], errors[:, todo] = nested.fine, np.maximum(nested.error(scale[:, todo]), hidden)
        todo = todo[(errors[:, todo] > tolerance).any(axis=0)]
        if todo.size == 0:
            break
    return values, errors


def _hidden_error_of_pairs(activation: Activation, pairs: Pairs, orders, count: int) -> np.ndarray:
    """The larger of the hidden errors of the two legs of each pair."""
    variances, place = np.unique(np.stack([pairs.first, pairs.second]), return_inverse=True)
    return _hidden_error(activation, variances, orders, count)[place].reshape(2, -1).max(axis=0)


def _in_batches(activation, pairs: Pairs, orders, extent: float, count: int) -> Nested:
    kinks = len(breakpoints(activation))
    batch = max(1, _POINTS_AT_ONCE // ((kinks**2 + 1) * (2 * kinks + 1) * count**2))
    total = pairs.first.size
    nested = Nested(np.empty((len(orders), total)), np.empty((len(orders), total)))
    for start in range(0, total, batch):
        part = slice(start, start + batch)
        some = Pairs(*(entry[part] for entry in pairs))
        nested.fine[:, part], nested.coarse[:, part] = _pair_averages(activation, some, orders, extent, count)
    return nested
