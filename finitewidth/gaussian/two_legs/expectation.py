r"""The rules for Gaussian averages of two legs, and the choice between them.

A rule is asked in terms of the activation, never of an opaque function, so that closed forms, the
series in the correlation and quadrature can all answer. Averages are asked for in blocks of pairs: work that
depends on one leg only is done once for all blocks.
"""

import abc
import functools
import itertools
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
from finitewidth.gaussian.tiles import tile_side
from finitewidth.gaussian.two_legs import closed_forms, quadrature, series_legs
from finitewidth.gaussian.two_legs.legs import Legs, Side, columns, rows
from finitewidth.gaussian.two_legs.orders import Orders, existing
from finitewidth.gaussian.two_legs.scales import by_quadrature, largest_scale
from finitewidth.gaussian.two_legs.series_legs import SeriesLegs, widest_variance
from finitewidth.network.layers.activation import Activation, as_activation

TOLERANCE = 1e-12
_ROUNDING = 1e-14  # relative rounding error of closed forms


class AbstractExpectation(eqx.Module):
    r"""A rule for $\langle \sigma^{(a)}(z_1) \sigma^{(b)}(z_2) \rangle$ over $z \sim$ Normal(0, K)."""

    uses_closed_forms: eqx.AbstractClassVar[bool]
    tolerance: eqx.AbstractVar[float]

    @abc.abstractmethod
    def legs(
        self, activation: Activation, variances: np.ndarray, orders: tuple[Orders, ...], *, widest: float
    ) -> Legs:
        """Prepare for legs with these variances; `widest` is at least the largest on both sides of a pair."""

    @abc.abstractmethod
    def average(
        self, rows: Side, columns: Side, cross: np.ndarray, same: np.ndarray | None = None
    ) -> tuple[list[np.ndarray], float]:
        """Averages of pairs of legs with covariances `cross`, one array for each pair of orders.

        Also their largest error, in units of the scale that each lives on. `same` marks pairs of a leg with
        itself, for rules that are slow there.
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
        count, side = K.shape[0], tile_side(K.shape[0])
        values = np.empty((len(orders), *K.shape))
        if not count:
            return {pair: values[index] for index, pair in enumerate(orders)}, 0.0
        padded = np.pad(K, (0, -count % side))  # few sizes, so few compilations
        variances = np.pad(np.diag(K), (0, -count % side), mode="edge")
        legs = self.legs(activation, variances, orders, widest=widest_variance(activation, variances))
        worst = 0.0
        for top, left in itertools.product(range(0, count, side), repeat=2):
            part = slice(top, top + side), slice(left, left + side)
            same = np.eye(side, dtype=bool) if top == left else None
            averages, error = self.average(rows(legs, part[0]), columns(legs, part[1]), padded[part], same)
            worst = max(worst, error)
            space = values[:, *part]
            space[...] = np.stack(averages)[:, : space.shape[1], : space.shape[2]]
        return {pair: values[index] for index, pair in enumerate(orders)}, worst


class Automatic(AbstractExpectation):
    """A closed form where there is one; else the Hermite series; quadrature where the series is slow."""

    uses_closed_forms: ClassVar[bool] = True
    tolerance: float = TOLERANCE

    def legs(self, activation, variances, orders, *, widest):
        if all(closed_forms.closed_form(activation, pair) for pair in orders):
            return Legs(activation, orders, variances)
        return SeriesLegs(activation, orders, variances, widest, self.tolerance)

    def average(self, rows, columns, cross, same=None):
        rule = series_legs.average if isinstance(rows.legs, SeriesLegs) else _closed_average
        return rule(rows, columns, cross, same)


class ClosedForm(AbstractExpectation):
    """Closed forms only; refuses activations without one."""

    uses_closed_forms: ClassVar[bool] = True
    tolerance: float = TOLERANCE

    def legs(self, activation, variances, orders, *, widest):
        for pair in orders:
            if closed_forms.closed_form(activation, pair) is None:
                raise ValueError(f"activation {activation.name!r} has no closed form; use Automatic().")
        return Legs(activation, orders, variances)

    def average(self, rows, columns, cross, same=None):
        return _closed_average(rows, columns, cross, same)


def _closed_average(rows: Side, columns: Side, cross: np.ndarray, same: np.ndarray | None):
    legs = rows.legs
    sides = rows.variances, columns.variances
    values = _evaluate_closed_forms(legs.activation, legs.orders, *sides, cross, legs.rounding)
    return [np.asarray(value) for value in values], _ROUNDING


@functools.partial(jax.jit, static_argnames=("activation", "orders"))
def _evaluate_closed_forms(activation, orders, first, second, cross, rounding):
    determinant = closed_forms.determinant(first, second, cross)
    determinant = jnp.where(determinant <= rounding * first * second, 0.0, determinant)
    # computed once for all orders; left alone, the compiler repeats it in the loop of each
    cross, determinant = jax.lax.optimization_barrier((cross, determinant))
    k = closed_forms.Covariance(first, second, cross, determinant)
    return [closed_forms.closed_form(activation, pair)(k) for pair in orders]  # type: ignore[misc]


class HermiteSeries(AbstractExpectation):
    """The Hermite series, with quadrature for the pairs whose correlation makes it too long."""

    uses_closed_forms: ClassVar[bool] = False
    tolerance: float = TOLERANCE

    def legs(self, activation, variances, orders, *, widest):
        return SeriesLegs(activation, orders, variances, widest, self.tolerance)

    def average(self, rows, columns, cross, same=None):
        return series_legs.average(rows, columns, cross, same)


class Quadrature(AbstractExpectation):
    """A graded product rule for every pair: slow, and right wherever the others might not be."""

    uses_closed_forms: ClassVar[bool] = False
    tolerance: float = TOLERANCE

    def legs(self, activation, variances, orders, *, widest):
        return Legs(activation, orders, variances)

    def average(self, rows, columns, cross, same=None):
        legs = rows.legs
        first, second = (np.broadcast_to(side.variances, cross.shape).ravel() for side in (rows, columns))
        averages = by_quadrature(legs.activation, first, second, cross.ravel(), legs.orders, self.tolerance)
        return [value.reshape(cross.shape) for value in averages.values], averages.error


def mean_square(activation: Activation, variances: np.ndarray, rule: AbstractExpectation) -> np.ndarray:
    """<sigma^2> of single legs (M,)."""
    if not variances.size:
        return np.zeros_like(variances)
    if rule.uses_closed_forms and closed_forms.closed_form(activation, (0, 0)):
        padded = np.ones(1 << max(variances.size - 1, 0).bit_length())  # few sizes, so few compilations
        padded[: variances.size] = variances
        return np.asarray(_closed_mean_square(activation, padded))[: variances.size]
    widest = widest_variance(activation, variances)
    count = quadrature.precision(activation, widest, ((0, 0),), rule.tolerance / 4).count
    return quadrature.one_sample(activation, variances, ((0, 0),), count=count).fine[0]


@functools.partial(jax.jit, static_argnames=("activation",))
def _closed_mean_square(activation: Activation, variances: jax.Array) -> jax.Array:
    alone = closed_forms.Covariance(variances, variances, variances, jnp.zeros_like(variances))
    return closed_forms.closed_form(activation, (0, 0))(alone)  # type: ignore[misc]
