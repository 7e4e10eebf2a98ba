r"""Means and covariances that are gathered batch by batch, with their standard errors.

Each batch is reduced to its moments about its own mean; two batches are merged by shifting both to the
common mean (Chan, Golub and LeVeque 1983, here up to $\sum d_a^2 d_b^2$). Merging in a fixed order gives the
same bits whoever computed the batches. Memory does not depend on how many members there are.

Long vectors of few members take less room than the matrices of their moments. Such batches stay `Rows`, and
are reduced when together they have as many rows as a vector has entries.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.estimate import Estimate

AnyArray = Array | np.ndarray


class Moments(NamedTuple):
    """Count, mean and sum of squared deviations of some numbers."""

    count: Float[AnyArray, ""]  # pyright: ignore[reportIncompatibleMethodOverride]
    mean: Float[AnyArray, "..."]
    M2: Float[AnyArray, "..."]


class JointMoments(NamedTuple):
    """Moments of vectors of size S, with d = x - mean: sums of d_a d_b, d_a^2 d_b and d_a^2 d_b^2."""

    count: Float[AnyArray, ""]  # pyright: ignore[reportIncompatibleMethodOverride]
    mean: Float[AnyArray, "*steps S"]
    M11: Float[AnyArray, "*steps S S"]
    M21: Float[AnyArray, "*steps S S"]
    M22: Float[AnyArray, "*steps S S"]


class Rows(NamedTuple):
    """Vectors of size S of single members, whose joint moments are not taken yet."""

    values: Float[AnyArray, "M *steps S"]
    weight: Float[AnyArray, " M"]


def moments(values: Float[Array, "M ..."], weight: Float[Array, " M"]) -> Moments:
    """Moments of the rows of weight 1; rows of weight 0 may hold anything."""
    weight_of = weight.reshape(-1, *[1] * (values.ndim - 1))
    values = jnp.where(weight_of > 0, values, 0.0)
    count = jnp.sum(weight)
    mean = jnp.sum(values, axis=0) / jnp.maximum(count, 1.0)
    M2 = jnp.sum(weight_of * (values - mean[None]) ** 2, axis=0)
    return Moments(count, mean, M2)


def joint_moments(values: Float[Array, "M *steps S"], weight: Float[Array, " M"]) -> JointMoments:
    """Joint moments of the rows of weight 1; rows of weight 0 may hold anything."""
    weight_of = weight.reshape(-1, *[1] * (values.ndim - 1))
    values = jnp.where(weight_of > 0, values, 0.0)
    count = jnp.sum(weight)
    mean = jnp.sum(values, axis=0) / jnp.maximum(count, 1.0)
    d = weight_of * (values - mean[None])
    M11, M21, M22 = (
        jnp.einsum("m...a,m...b->...ab", left, right) for left, right in ((d, d), (d * d, d), (d * d, d * d))
    )
    return JointMoments(count, mean, M11, M21, M22)


def rows_or_moments(values: Float[Array, "M *steps S"], weight: Float[Array, " M"]) -> Rows | JointMoments:
    """Whichever takes less room."""
    return Rows(values, weight) if values.shape[0] < values.shape[-1] else joint_moments(values, weight)


class Gathered(NamedTuple):
    """Joint moments of all batches so far but the last ones, which are still rows."""

    moments: JointMoments | None = None
    waiting: tuple[Rows, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether no batch has come yet."""
        return self.moments is None and not self.waiting

    def joined(self, batch: Rows | JointMoments) -> "Gathered":
        """With one more batch."""
        if isinstance(batch, JointMoments):
            return Gathered(batch if self.empty else merge_joint(self.total(), batch))
        gathered = self._replace(waiting=(*self.waiting, batch))
        enough = sum(len(rows.weight) for rows in gathered.waiting) >= batch.values.shape[-1]
        return Gathered(gathered.total()) if enough else gathered

    def total(self) -> JointMoments:
        """The joint moments of all batches, of which there is at least one."""
        if not self.waiting:
            assert self.moments is not None
            return self.moments
        values, weight = (jnp.concatenate(parts) for parts in zip(*self.waiting, strict=True))
        reduced = JointMoments(*(np.asarray(part) for part in joint_moments(values, weight)))
        return reduced if self.moments is None else merge_joint(self.moments, reduced)


def merge(first: Moments, second: Moments) -> Moments:
    """The moments of both together."""
    count = first.count + second.count
    if count == 0:
        return first
    change = second.mean - first.mean
    mean = first.mean + change * (second.count / count)
    M2 = first.M2 + second.M2 + change**2 * (first.count * second.count / count)
    return Moments(np.asarray(count), np.asarray(mean), np.asarray(M2))


def merge_joint(first: JointMoments, second: JointMoments) -> JointMoments:
    """The joint moments of both together."""
    count = first.count + second.count
    if count == 0:
        return first
    mean = first.mean + (second.mean - first.mean) * (second.count / count)
    shifted = [_shifted(part, np.asarray(mean - part.mean)) for part in (first, second)]
    return JointMoments(np.asarray(count), mean, *(a + b for a, b in zip(*shifted, strict=True)))


def _shifted(part: JointMoments, shift: np.ndarray) -> tuple[np.ndarray, ...]:
    """M11, M21 and M22 about mean + shift."""
    n, M11, M21, M22 = (np.asarray(x) for x in (part.count, part.M11, part.M21, part.M22))
    a, b = shift[..., :, None], shift[..., None, :]
    squares = np.einsum("...aa->...a", M11)
    square_a, square_b = squares[..., :, None], squares[..., None, :]
    M12 = np.swapaxes(M21, -1, -2)
    new21 = M21 - 2 * a * M11 - b * square_a - n * a * a * b
    new22 = M22 - 2 * b * M21 - 2 * a * M12 + b * b * square_a + a * a * square_b
    return M11 + n * a * b, new21, new22 + 4 * a * b * M11 + n * a * a * b * b


def mean_estimate(total: Moments | JointMoments) -> Estimate:
    """The mean and its standard error; infinite from a single member, which says nothing about the spread."""
    if isinstance(total, JointMoments):
        squares = np.einsum("...aa->...a", total.M11)
    else:
        squares = total.M2
    count = float(total.count)
    if count < 2:
        return Estimate(np.asarray(total.mean), np.full(np.shape(total.mean), np.inf))
    variance = np.maximum(squares, 0.0) / (count - 1)
    return Estimate(np.asarray(total.mean), np.sqrt(variance / count))


def covariance_estimate(total: JointMoments) -> Estimate:
    r"""The unbiased covariance and its standard error,

    $$\mathrm{Var}[\hat c_{ab}] \approx \frac{1}{M}\Bigl(m_{22} - \frac{M-2}{M-1} c_{ab}^2
      + \frac{1}{M-1} c_{aa} c_{bb}\Bigr),$$

    exact but for the moments' own estimates.
    """
    count = float(total.count)
    if count < 2:
        return Estimate(np.full(total.M11.shape, np.nan), np.full(total.M11.shape, np.inf))
    covariance = np.asarray(total.M11) / (count - 1)
    squares = np.einsum("...aa->...a", covariance)
    spread = total.M22 / count - (count - 2) / (count - 1) * covariance**2
    spread = spread + squares[..., :, None] * squares[..., None, :] / (count - 1)
    return Estimate(covariance, np.sqrt(np.maximum(spread, 0.0) / count))
