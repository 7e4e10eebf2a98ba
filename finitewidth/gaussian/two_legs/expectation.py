r"""The rules for Gaussian averages of two legs, and the choice between them.

A rule is asked in terms of the activation, never of an opaque function, so that closed forms, the
series in the correlation and quadrature can all answer. Two-leg averages are asked for in tiles of
the matrix of pairs: work that depends on one leg only is done once for a layer.
"""

import abc
import functools
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.average import Average
from finitewidth.gaussian.kernel_matrix import as_kernel
from finitewidth.gaussian.tiles import Tile, tiles
from finitewidth.gaussian.two_legs import closed_forms, quadrature, series, series_tiles
from finitewidth.gaussian.two_legs.orders import Orders, existing
from finitewidth.gaussian.two_legs.scales import by_quadrature, largest_scale
from finitewidth.network.layers.activation import Activation, as_activation

TileAverages = Callable[[np.ndarray, Tile], tuple[list[np.ndarray], float]]
"""From the covariances of a tile to its averages, one for each order, and their largest error
in units of the scale sqrt(<(sigma^(a)_1)^2> <(sigma^(b)_2)^2>) that an average lives on."""

TOLERANCE = 1e-12
_ROUNDING = 1e-14  # relative rounding error of closed forms


class AbstractExpectation(eqx.Module):
    r"""A rule for $\langle \sigma^{(a)}(z_1) \sigma^{(b)}(z_2) \rangle$ over $z \sim$ Normal(0, K)."""

    uses_closed_forms: eqx.AbstractClassVar[bool]
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
        scales = {pair: largest_scale(activation, variances, pair) for pair in values}
        return {pair: Average(value, relative * scales[pair]) for pair, value in values.items()}

    def relative_two_legs(
        self, activation: Activation, K: np.ndarray, orders: tuple[Orders, ...]
    ) -> tuple[dict[Orders, np.ndarray], float]:
        """The same with one error for all, in units of the scale that each average lives on."""
        require_double_precision()
        K = as_kernel(K)
        orders = existing(activation, orders)
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

    uses_closed_forms: ClassVar[bool] = True
    tolerance: float = TOLERANCE

    def on_tiles(self, activation, first, second, orders, largest_correlation=lambda: 1.0):
        if all(closed_forms.closed_form(activation, pair) for pair in orders):
            return ClosedForm().on_tiles(activation, first, second, orders)
        return HermiteSeries(self.tolerance).on_tiles(activation, first, second, orders, largest_correlation)


class ClosedForm(AbstractExpectation):
    """Closed forms only; refuses activations without one."""

    uses_closed_forms: ClassVar[bool] = True
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

    uses_closed_forms: ClassVar[bool] = False
    tolerance: float = TOLERANCE

    def on_tiles(self, activation, first, second, orders, largest_correlation=lambda: 1.0):
        return series_tiles.prepare(
            activation,
            first,
            second,
            orders,
            largest_correlation=largest_correlation,
            tolerance=self.tolerance,
        )


class Quadrature(AbstractExpectation):
    """A graded product rule for every pair: slow, and right wherever the others might not be."""

    uses_closed_forms: ClassVar[bool] = False
    tolerance: float = TOLERANCE

    def on_tiles(self, activation, first, second, orders, largest_correlation=lambda: 1.0):
        def evaluate(cross, tile):
            rows, columns = np.broadcast_arrays(first[tile.rows][:, None], second[tile.columns][None, :])
            flat = rows.ravel(), columns.ravel(), np.ascontiguousarray(cross).ravel()
            averages = by_quadrature(activation, *flat, orders, self.tolerance)
            return [value.reshape(cross.shape) for value in averages.values], averages.error

        return evaluate


def largest_correlation(K: np.ndarray, rows: np.ndarray, columns: np.ndarray, *, diagonal: bool) -> float:
    """The largest |correlation|, without the diagonal if `diagonal`; `rows`, `columns` are deviations."""
    correlations = series.correlations(K, rows, columns)
    if diagonal:
        np.fill_diagonal(correlations, 0.0)
    return float(max(correlations.max(initial=0.0), -correlations.min(initial=0.0)))


def mean_square(activation: Activation, variances: np.ndarray, rule: AbstractExpectation) -> np.ndarray:
    """<sigma^2> of single legs (M,)."""
    if rule.uses_closed_forms and closed_forms.closed_form(activation, (0, 0)):
        padded = np.ones(1 << max(variances.size - 1, 0).bit_length())  # few sizes, so few compilations
        padded[: variances.size] = variances
        return np.asarray(_closed_mean_square(activation, padded))[: variances.size]
    widest = series_tiles.widest_variance(activation, variances)
    count = quadrature.precision(activation, widest, ((0, 0),), rule.tolerance / 4).count
    return quadrature.one_sample(activation, variances, ((0, 0),), count=count).fine[0]


@functools.partial(jax.jit, static_argnames=("activation",))
def _closed_mean_square(activation: Activation, variances: jax.Array) -> jax.Array:
    alone = closed_forms.Covariance(variances, variances, variances, jnp.zeros_like(variances))
    return closed_forms.closed_form(activation, (0, 0))(alone)  # type: ignore[misc]
