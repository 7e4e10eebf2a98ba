r"""The rules for Gaussian averages of two legs, and the choice between them.

A rule is asked in terms of the activation, never of an opaque function, so that closed forms, the
series in the correlation and quadrature can all answer. Averages are asked for in blocks of pairs: work that
depends on one leg only is done once for all blocks.
"""

import abc
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.average import Average
from finitewidth.gaussian.kernel_matrix import as_kernel
from finitewidth.gaussian.tiles import tile_side
from finitewidth.gaussian.two_legs import closed_averages, quadrature, series_legs
from finitewidth.gaussian.two_legs.closed_averages import ClosedLegs
from finitewidth.gaussian.two_legs.legs import Legs, Side
from finitewidth.gaussian.two_legs.orders import Orders, existing
from finitewidth.gaussian.two_legs.scales import by_quadrature, largest_scale
from finitewidth.gaussian.two_legs.series_legs import SeriesLegs, widest_variance
from finitewidth.network.layers.activation import Activation, as_activation

TOLERANCE = 1e-12


@dataclass(frozen=True)
class AbstractExpectation(abc.ABC):
    r"""A rule for $\langle \sigma^{(a)}(z_1) \sigma^{(b)}(z_2) \rangle$ over $z \sim$ Normal(0, K)."""

    uses_closed_forms: ClassVar[bool]
    tolerance: float = TOLERANCE

    @abc.abstractmethod
    def legs(
        self,
        activation: Activation,
        variances: np.ndarray,
        orders: tuple[Orders, ...],
        *,
        widest: Callable[[], float],
    ) -> Legs:
        """Prepare legs with these variances; `widest()` is at least the largest on both sides of a pair."""

    @abc.abstractmethod
    def average(
        self, rows: Side, columns: Side, cross: np.ndarray, same: np.ndarray | None = None
    ) -> tuple[list[np.ndarray], float]:
        """Averages of pairs of legs with covariances `cross`, one array for each pair of orders.

        Also their largest error, in units of the scale that each lives on. `same` marks pairs of a leg with
        itself, for rules that are slow there.
        """

    def advance(
        self,
        rows: Side,
        columns: Side,
        K: np.ndarray,
        Theta: np.ndarray | None,
        same: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None, float]:
        """<sigma sigma>_K, Theta <sigma' sigma'>_K and the error; K and Theta may be overwritten."""
        averages, error = self.average(rows, columns, K, same)
        if Theta is not None:
            Theta *= averages[1]
        return averages[0], Theta, error

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
        variances = np.diag(K)[None].copy()
        widest = functools.partial(widest_variance, activation, variances)
        legs = self.legs(activation, variances, orders, widest=widest)
        worst = 0.0
        for top, left in itertools.product(range(0, count, side), repeat=2):
            part = slice(top, min(top + side, count)), slice(left, min(left + side, count))
            cross = K[part][None, None]
            same = np.eye(cross.shape[2], dtype=bool)[None, None] if top == left else None
            sides = Side(legs, part[0]), Side(legs, part[1], along_columns=True)
            averages, error = self.average(*sides, cross, same)
            worst = max(worst, error)
            values[:, *part] = np.stack(averages)[:, 0, 0]
        return {pair: values[index] for index, pair in enumerate(orders)}, worst


@dataclass(frozen=True)
class Automatic(AbstractExpectation):
    """A closed form where there is one; else the Hermite series; quadrature where the series is slow."""

    uses_closed_forms: ClassVar[bool] = True

    def legs(self, activation, variances, orders, *, widest):
        if closed_averages.has_closed_form(activation):
            return ClosedLegs(activation, orders, variances)
        return SeriesLegs(activation, orders, variances, widest(), self.tolerance)

    def average(self, rows, columns, cross, same=None):
        if isinstance(rows.legs, SeriesLegs):
            return series_legs.average(rows, columns, cross, same)
        return _closed_average(rows, columns, cross)

    def advance(self, rows, columns, K, Theta, same=None):
        legs = rows.legs
        if isinstance(legs, SeriesLegs):
            return series_legs.advance(rows, columns, K, Theta, same)
        if legs.family is None:
            return super().advance(rows, columns, K, Theta, same)
        return *closed_averages.advance(rows, columns, K, Theta), closed_averages.ROUNDING


@dataclass(frozen=True)
class ClosedForm(AbstractExpectation):
    """Closed forms only; refuses activations without one."""

    uses_closed_forms: ClassVar[bool] = True

    def legs(self, activation, variances, orders, *, widest):
        if not closed_averages.has_closed_form(activation):
            raise ValueError(f"activation {activation.name!r} has no closed form; use Automatic().")
        return ClosedLegs(activation, orders, variances)

    def average(self, rows, columns, cross, same=None):
        return _closed_average(rows, columns, cross)


def _closed_average(rows: Side, columns: Side, cross: np.ndarray):
    legs, sides = rows.legs, (rows.variances, columns.variances)
    values = closed_averages.averages(legs.activation, legs.orders, *sides, cross, legs.rounding)
    return values, closed_averages.ROUNDING


@dataclass(frozen=True)
class HermiteSeries(AbstractExpectation):
    """The Hermite series, with quadrature for the pairs whose correlation makes it too long."""

    uses_closed_forms: ClassVar[bool] = False

    def legs(self, activation, variances, orders, *, widest):
        return SeriesLegs(activation, orders, variances, widest(), self.tolerance)

    def average(self, rows, columns, cross, same=None):
        return series_legs.average(rows, columns, cross, same)


@dataclass(frozen=True)
class Quadrature(AbstractExpectation):
    """A graded product rule for every pair: slow, and right wherever the others might not be."""

    uses_closed_forms: ClassVar[bool] = False

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
    if rule.uses_closed_forms and closed_averages.has_closed_form(activation):
        return closed_averages.averages(activation, ((0, 0),), variances, variances, variances)[0]
    widest = widest_variance(activation, variances)
    count = quadrature.precision(activation, widest, ((0, 0),), rule.tolerance / 4).count
    return quadrature.one_sample(activation, variances, ((0, 0),), count=count).fine[0]
