r"""Gaussian averages of an activation's derivatives: which rule answers, and with what error.

A rule is asked in terms of the activation, never of an opaque function, so that closed forms, the
series in the correlation and quadrature can all answer. Two-leg averages are asked for in tiles of
the matrix of pairs: what depends on one leg only is prepared once for a layer.
"""

import abc
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.average import Average
from finitewidth.gaussian.tiles import Tile, tiles
from finitewidth.gaussian.two_legs import closed_forms, quadrature, series
from finitewidth.network.activation import HIGHEST_DERIVATIVE, Activation, as_activation

Orders = tuple[int, int]
TileAverages = Callable[[np.ndarray, Tile], tuple[list[np.ndarray], float]]
"""From the covariances of a tile to its averages, one for each order, and their largest error
in units of the scale sqrt(<(sigma^(a)_1)^2> <(sigma^(b)_2)^2>) that an average lives on."""

TOLERANCE = 1e-12
_ROUNDING = 1e-14  # what closed forms lose


class AbstractExpectation(eqx.Module):
    r"""A rule for $\langle \sigma^{(a)}(z_1) \sigma^{(b)}(z_2) \rangle$ over $z \sim$ Normal(0, K)."""

    tolerance: eqx.AbstractVar[float]

    @abc.abstractmethod
    def on_tiles(
        self,
        activation: Activation,
        first: np.ndarray,
        second: np.ndarray,
        orders: tuple[Orders, ...],
        largest_correlation: Callable[[], float] = lambda: 1.0,
    ) -> TileAverages:
        """Prepare for legs with variances `first` (rows) and `second` (columns).

        `largest_correlation` is asked for by rules that can use it: a hint, not a bound.
        """

    def two_legs(
        self,
        activation: str | Activation | Callable,
        K: Float[np.ndarray, "N N"],
        orders: tuple[Orders, ...] = ((0, 0), (1, 1)),
    ) -> dict[Orders, Average]:
        """Averages over all pairs of samples, by pair of derivative orders."""
        activation = as_activation(activation)
        values, relative = self.relative_two_legs(activation, K, orders)
        variances = np.ascontiguousarray(np.diag(K))
        scales = {pair: _largest_scale(activation, variances, pair) for pair in values}
        return {pair: Average(value, relative * scales[pair]) for pair, value in values.items()}

    def relative_two_legs(
        self, activation: Activation, K: np.ndarray, orders: tuple[Orders, ...]
    ) -> tuple[dict[Orders, np.ndarray], float]:
        """The same with one error for all, in units of the scale that each average lives on."""
        require_double_precision()
        K = _checked(K)
        orders = _existing(activation, orders)
        variances = np.ascontiguousarray(np.diag(K))
        sigma = np.sqrt(variances)
        evaluate = self.on_tiles(
            activation,
            variances,
            variances,
            orders,
            lambda: largest_correlation(K, sigma, sigma, diagonal=True),
        )
        values = np.empty((len(orders), *K.shape))
        worst = 0.0
        for tile in tiles(*K.shape, symmetric=False):
            parts, error = evaluate(K[tile.rows, tile.columns], tile)
            worst = max(worst, error)
            for index, part in enumerate(parts):
                values[index, tile.rows, tile.columns] = part
        return {pair: values[index] for index, pair in enumerate(orders)}, worst


class Automatic(AbstractExpectation):
    """A closed form where there is one; else the Hermite series; quadrature where the series is slow."""

    tolerance: float = TOLERANCE

    def on_tiles(self, activation, first, second, orders, largest_correlation=lambda: 1.0):
        if all(closed_forms.closed_form(activation, pair) for pair in orders):
            return ClosedForm().on_tiles(activation, first, second, orders)
        return HermiteSeries(self.tolerance).on_tiles(activation, first, second, orders, largest_correlation)


class ClosedForm(AbstractExpectation):
    """Closed forms only; refuses activations without one."""

    tolerance: float = TOLERANCE

    def on_tiles(self, activation, first, second, orders, largest_correlation=lambda: 1.0):
        for pair in orders:
            if closed_forms.closed_form(activation, pair) is None:
                raise ValueError(f"activation {activation.name!r} has no closed form; use Automatic().")

        def evaluate(cross, tile):
            padded = tile.padded(cross)
            legs = tile.padded_rows(first), tile.padded_columns(second)
            values = _evaluate_closed_forms(activation, orders, *legs, padded)
            return [tile.unpadded(np.asarray(value)) for value in values], _ROUNDING

        return evaluate


@functools.partial(jax.jit, static_argnames=("activation", "orders"))
def _evaluate_closed_forms(activation, orders, first, second, cross):
    first, second = first[:, None], second[None, :]
    determinant = closed_forms.determinant(first, second, cross)
    # computed once for all orders; left alone, the compiler repeats it in the loop of each
    cross, determinant = jax.lax.optimization_barrier((cross, determinant))
    k = closed_forms.Covariance(first, second, cross, determinant)
    return [closed_forms.closed_form(activation, pair)(k) for pair in orders]  # type: ignore[misc]


class HermiteSeries(AbstractExpectation):
    """The Hermite series, with quadrature for the pairs whose correlation makes it too long."""

    tolerance: float = TOLERANCE

    def on_tiles(self, activation, first, second, orders, largest_correlation=lambda: 1.0):
        exact = max(float(first.max(initial=0.0)), float(second.max(initial=0.0)))
        widest = _rounded_up(exact)
        try:
            quadrature.reach(activation, widest)
        except ValueError:  # growth that no Gaussian tames; perhaps it is tame without the rounding
            quadrature.reach(activation, exact)
            widest = exact
        legs = tuple(sorted({order for pair in orders for order in pair}))
        precision = quadrature.precision(
            activation, widest, _functions(activation, orders), self.tolerance / 4
        )
        length = series.length_for(
            activation,
            widest,
            legs,
            correlation=largest_correlation(),
            tolerance=self.tolerance / 4,
            count=precision.count,
        )
        same = second is first
        prepare = functools.partial(
            series.tables,
            activation,
            pairs=orders,
            length=length,
            widest=widest,
            count=precision.count,
            tolerance=self.tolerance / 16,
        )
        rows = prepare(first)
        columns = rows if same else prepare(second)
        bound = _remainder(rows, columns, orders, activation)
        present = series.parities(rows, columns, orders)
        sigma = np.sqrt(first), np.sqrt(second)
        beyond = any(max(pair) > activation.jump_order for pair in orders)

        def evaluate(cross, tile):
            diagonal = same and tile.on_diagonal  # done by one-dimensional integrals
            alone = tuple(tile.padded_rows(rows.alone[pair]) for pair in orders)
            sums = series.evaluate(
                _side(rows, sigma[0], tile.padded_rows),
                _side(columns, sigma[1], tile.padded_columns),
                series.Diagonal(diagonal, alone),
                tile.padded(cross),
                bound,
                self.tolerance / 2,
                orders,
                present,
            )
            values, error = [tile.unpadded(value) for value in sums.values], sums.remainder
            if beyond or bound[-1] * sums.largest**length > self.tolerance / 2:
                correlation = series.correlations(cross, sigma[0][tile.rows], sigma[1][tile.columns])
                slow = bound[-1] * np.abs(correlation) ** length > self.tolerance / 2
                if beyond:  # a delta function on a narrow leg next to a wide one: the series loses digits
                    narrow = np.maximum(first[tile.rows], 1e-300)
                    ratio = np.divide.outer(narrow, second[tile.columns] + 1e-300)
                    slow |= (ratio > 1e4) | (ratio < 1e-4)
                if diagonal:
                    np.fill_diagonal(slow, False)
                if slow.any():
                    variances = first[tile.rows], second[tile.columns]
                    values = [np.array(value) for value in values]  # what is compiled is read-only
                    error = self._replace(values, slow, activation, *variances, cross, orders)
            return values, error + precision.error

        return evaluate

    def _replace(self, values, slow, activation, first, second, cross, orders) -> float:
        """Overwrite the averages of the pairs marked `slow` by quadrature; the largest error."""
        i, j = np.nonzero(slow)
        done = _by_quadrature(activation, first[i], second[j], cross[i, j], orders, self.tolerance)
        for value, new in zip(values, done.values, strict=True):
            value[i, j] = new
        return max(done.error, self.tolerance / 2)


class Quadrature(AbstractExpectation):
    """A graded product rule for every pair: slow, and right wherever the others might not be."""

    tolerance: float = TOLERANCE

    def on_tiles(self, activation, first, second, orders, largest_correlation=lambda: 1.0):
        def evaluate(cross, tile):
            rows, columns = np.broadcast_arrays(first[tile.rows][:, None], second[tile.columns][None, :])
            flat = rows.ravel(), columns.ravel(), np.ascontiguousarray(cross).ravel()
            done = _by_quadrature(activation, *flat, orders, self.tolerance)
            return [value.reshape(cross.shape) for value in done.values], done.error

        return evaluate


class _Done(NamedTuple):
    values: list[np.ndarray]
    error: float


def _by_quadrature(activation, first, second, cross, orders, tolerance) -> _Done:
    determinant = np.asarray(closed_forms.determinant(*(jnp.asarray(k) for k in (first, second, cross))))
    pairs = quadrature.Pairs(first, second, cross, determinant)
    scale = np.stack([_scale(activation, first, second, pair) for pair in orders])
    values, errors = quadrature.two_legs_of_pairs(activation, pairs, orders, scale=scale, tolerance=tolerance)
    return _Done(list(values), float(errors.max(initial=0.0)))


def _side(tables: series.Tables, sigma: np.ndarray, padded: Callable) -> series.Side:
    return series.Side(padded(sigma), {a: padded(found) for a, found in tables.coefficients.items()})


def largest_correlation(K: np.ndarray, rows: np.ndarray, columns: np.ndarray, *, diagonal: bool) -> float:
    """The largest size, the diagonal left out if asked; `rows` and `columns` are standard deviations."""
    found = series.correlations(K, rows, columns)
    if diagonal:
        np.fill_diagonal(found, 0.0)
    return float(max(found.max(initial=0.0), -found.min(initial=0.0)))


def _rounded_up(variance: float) -> float:
    """To half a power of two, so that what is prepared for the widest leg serves many layers and inputs."""
    return 2.0 ** (math.ceil(2 * math.log2(variance)) / 2) if variance > 0 else 0.0


def _functions(activation: Activation, orders: tuple[Orders, ...]) -> tuple[Orders, ...]:
    """Pairs (a, a) of the orders that are functions, whose averages say how hard the activation is."""
    legs = {min(order, activation.jump_order) for pair in orders for order in pair}
    return tuple((int(a), int(a)) for a in sorted(legs))


def _leveled(activation: Activation, pair: Orders) -> Orders:
    """The orders whose scale an average lives on: a delta function leans on its partner's slope."""
    a, b = sorted(pair, reverse=True)
    leveled = (a - 1, b + 1) if a > activation.jump_order else (a, b)
    return leveled if pair[0] >= pair[1] else (leveled[1], leveled[0])


def _remainder(rows, columns, orders, activation) -> np.ndarray:
    """Relative remainder of the series after k terms at correlation one, for the worst order."""
    levels = [_leveled(activation, pair) for pair in orders]
    factor = math.sqrt(2) if any(max(pair) > activation.jump_order for pair in orders) else 1.0
    return factor * np.max([np.sqrt(rows.tails[a] * columns.tails[b]) for a, b in levels], axis=0)


def _scale(activation, first, second, pair) -> np.ndarray:
    """sqrt(<(sigma^(a)_1)^2> <(sigma^(b)_2)^2>), or what integration by parts makes of a delta function."""
    if pair[0] < pair[1]:
        return _scale(activation, second, first, (pair[1], pair[0]))
    a, b = _leveled(activation, pair)
    sizes = [
        quadrature.one_leg(activation, variances, ((order, order),)).fine[0]
        for order, variances in ((a, first), (b, second))
    ]
    if pair == (a, b):
        return np.sqrt(sizes[0] * sizes[1])
    undone = quadrature.one_leg(activation, second, ((pair[1], pair[1]),)).fine[0] / np.where(
        first == 0, 1.0, first
    )
    return np.sqrt(sizes[0] * np.maximum(sizes[1], undone))


def _largest_scale(activation, variances, pair) -> float:
    """The largest scale over all pairs of legs."""
    smallest = variances[variances > 0].min(initial=np.inf)
    corners = np.asarray([variances.max(initial=0.0), smallest if np.isfinite(smallest) else 0.0])
    alone = _scale(activation, variances, variances, pair).max(initial=0.0)
    mixed = _scale(activation, corners, corners[::-1], pair).max(initial=0.0)
    return float(max(alone, mixed))


def mean_square(activation: Activation, variances: np.ndarray, rule: AbstractExpectation) -> np.ndarray:
    """<sigma^2> of single legs (M,)."""
    if closed_forms.closed_form(activation, (0, 0)) and not isinstance(rule, HermiteSeries | Quadrature):
        padded = np.ones(1 << max(variances.size - 1, 0).bit_length())  # few sizes, so few compilations
        padded[: variances.size] = variances
        return np.asarray(_closed_mean_square(activation, padded))[: variances.size]
    return quadrature.one_leg(activation, variances, ((0, 0),)).fine[0]


@functools.partial(jax.jit, static_argnames=("activation",))
def _closed_mean_square(activation: Activation, variances: jax.Array) -> jax.Array:
    alone = closed_forms.Covariance(variances, variances, variances, jnp.zeros_like(variances))
    return closed_forms.closed_form(activation, (0, 0))(alone)  # type: ignore[misc]


def _checked(K: np.ndarray) -> np.ndarray:
    K = np.asarray(K, dtype=np.float64)
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(f"K must be a square matrix, got shape {K.shape}; pass one row for each sample.")
    if not np.isfinite(K).all():
        raise ValueError("K has an entry that is NaN or infinite; check the inputs and C_W.")
    variances = np.diag(K)
    if (variances < 0).any():
        raise ValueError(f"K has the negative variance {variances.min():.3g}; pass a covariance matrix.")
    scale = np.multiply.outer(np.sqrt(variances), np.sqrt(variances))
    if (np.abs(K) > scale * (1 + 1e-6) + 1e-300).any() or (np.abs(K - K.T) > 1e-6 * scale).any():
        raise ValueError(
            "K is no covariance matrix: it must be symmetric, with no entry above the root of the product of "
            "its two variances."
        )
    return K


def _existing(activation: Activation, orders) -> tuple[Orders, ...]:
    pairs = tuple((int(a), int(b)) for a, b in orders)
    for asked, (a, b) in zip(orders, pairs, strict=True):
        if tuple(asked) != (a, b):
            raise ValueError(f"orders must be pairs of whole numbers, got {tuple(asked)}.")
        high, low = max(a, b), min(a, b)
        if not 0 <= low <= high <= HIGHEST_DERIVATIVE:
            raise ValueError(f"orders must lie between 0 and {HIGHEST_DERIVATIVE}, got {(a, b)}.")
        jump = activation.jump_order
        if high > jump + 1 or (high == jump + 1 and low > jump - 1):
            raise ValueError(
                f"the average of derivatives {(a, b)} does not exist for activation {activation.name!r}: its "
                f"derivative of order {int(jump)} jumps at z = {activation.kinks[0]:g}; use a smooth one."
            )
    return pairs
