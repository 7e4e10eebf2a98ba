"""Gaussian averages of four legs, products of derivatives of the activation at four preactivations.

All quadruples of samples at once, for the six families of derivative orders that the order-1/n
statistics need (PDLT chapters 4, 8 and 11). Four distinct samples are conditioned on a pair; three
on the doubled one; two and one are integrals over a plane and a line.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Float
from scipy.cluster.hierarchy import leaves_list, linkage

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.average import Average
from finitewidth.gaussian.four_legs.exact import closed_form, has_closed_form
from finitewidth.gaussian.four_legs.families import FAMILIES, Family, check_families, highest_order
from finitewidth.gaussian.four_legs.filling import Filling
from finitewidth.gaussian.four_legs.kinked import check_orders, fill_kinked
from finitewidth.gaussian.four_legs.pair import PairConditioning
from finitewidth.gaussian.four_legs.smooth import fill_smooth
from finitewidth.gaussian.four_legs.steps import Unreachable
from finitewidth.gaussian.tower import Tower
from finitewidth.network.activation import Activation, as_activation

__all__ = ["FAMILIES", "Family", "four_legs", "four_legs_with_fixed_leg"]


def four_legs(
    activation: str | Activation,
    K: Float[np.ndarray, "N N"] | Float[Array, "N N"],
    families: Sequence[Family] = FAMILIES,
    *,
    tolerance: float = 1e-8,
) -> dict[Family, Average]:
    r"""Four-leg averages for all quadruples of samples.

    $$\langle \sigma^{(a)}(z_1)\,\sigma^{(b)}(z_2)\,\sigma^{(c)}(z_3)\,\sigma^{(d)}(z_4)\rangle,
      \qquad z \sim N(0, K)$$

    Each value is an (N, N, N, N) array whose axes are the slots of its family. `tolerance` is the
    largest absolute error. Repeated, parallel and zero inputs are ordinary cases.

    For an activation with kinks only families whose derivatives are functions exist; they are
    computed to 1e-5 at best, sample set by sample set, and the error reports what was reached.
    """
    activation, K, families = _checked(activation, K, families, tolerance)
    if has_closed_form(activation):
        return _in_closed_form(activation, K, families)
    distinct, inverse = _distinct(K)
    filling = Filling.empty(len(distinct), families, None)
    error = _fill(filling, activation, K[np.ix_(distinct, distinct)], tolerance)
    values = {family: _expanded(filling.arrays.pop(family)[None], inverse) for family in families}
    return {family: Average(value, _error(value, error)) for family, value in values.items()}


def four_legs_with_fixed_leg(
    activation: str | Activation,
    K: Float[np.ndarray, "N N"] | Float[Array, "N N"],
    fixed: int,
    families: Sequence[Family] = FAMILIES,
    *,
    tolerance: float = 1e-8,
) -> dict[tuple[Family, int], Average]:
    """Four-leg averages with sample `fixed` in one slot, for every family and slot.

    Each value is an (N, N, N) array over the remaining three slots in order: nothing of size N^4 is
    held, so that tensors can be contracted leg by leg. Slots of equal order share one array.
    """
    activation, K, families = _checked(activation, K, families, tolerance)
    if not isinstance(fixed, int | np.integer) or not 0 <= fixed < len(K):
        raise ValueError(f"fixed must be the number of a sample, 0 to {len(K) - 1}, got {fixed!r}.")
    if has_closed_form(activation):
        return _fixed_in_closed_form(activation, K, fixed, families)
    distinct, inverse = _distinct(K)
    place, last = int(inverse[fixed]), len(distinct) - 1
    distinct = np.append(np.delete(distinct, place), distinct[place])  # the fixed sample comes last
    inverse = np.where(inverse == place, last, inverse - (inverse > place))
    filling = Filling.empty(len(distinct), families, last)
    error = _fill(filling, activation, K[np.ix_(distinct, distinct)], tolerance)
    found = {
        (family, slot): _expanded(value, inverse)
        for family in families
        for slot, value in filling.arrays.pop(family).items()
    }
    averages = {key: Average(value, _error(value, error)) for key, value in found.items()}
    return {
        (family, slot): averages[family, family.index(family[slot])]
        for family in families
        for slot in range(4)
    }


def _in_closed_form(activation, K, families) -> dict[Family, Average]:
    everyone = np.arange(len(K))
    values = {family: np.empty((len(K),) * 4) for family in families}
    for sample in everyone:  # one sample at a time: little memory besides the result
        labels = (np.array(sample), *np.ix_(everyone, everyone, everyone))
        part = closed_form(activation, K, labels, families)
        for family in families:
            values[family][sample] = part[family]
    return {family: Average(value, _error(value, 0.0)) for family, value in values.items()}


def _fixed_in_closed_form(activation, K, fixed, families) -> dict[tuple[Family, int], Average]:
    averages = {}
    for slot in range(4):
        labels = list(np.ix_(*[np.arange(len(K))] * 3))
        labels.insert(slot, np.array(fixed))
        part = closed_form(activation, K, tuple(labels), families)
        averages |= {(family, slot): Average(part[family], _error(part[family], 0.0)) for family in families}
    return averages


def _fill(filling: Filling, activation: Activation, K: np.ndarray, tolerance: float) -> float:
    """Fill all arrays; the result is an estimate of the largest error."""
    families = tuple(filling.arrays)
    tower = Tower(activation, highest_order(families))
    if activation.kinks:
        return fill_kinked(filling, tower, K, tolerance)
    try:
        with SingleThreadedProducts():
            fill_smooth(filling, PairConditioning(tower, K, families, tolerance))
    except Unreachable as reason:
        raise ValueError(
            f"tolerance {tolerance:.1e} cannot be reached for activation {activation.name!r} at K with "
            f"largest diagonal entry {K.max():.3g} ({reason}); raise the tolerance, or scale the inputs "
            "or C_W down."
        ) from None
    return tolerance


def _error(value: np.ndarray, tolerance: float) -> float:
    return float(tolerance + 1e-14 * max(value.max(initial=0.0), -value.min(initial=0.0)))


# --- which samples are distinct, and in which order ------------------------------------------


def _distinct(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Representatives of equal samples, in an order that keeps similar ones together, and the map back."""
    close = 1e-14 * max(float(np.diagonal(K).max()), 1e-300)
    representatives: list[int] = []
    inverse = np.zeros(len(K), dtype=int)
    for sample in range(len(K)):
        if representatives:
            apart = np.abs(K[representatives] - K[sample]).max(axis=1)
            nearest = int(apart.argmin())
            if apart[nearest] <= close:
                inverse[sample] = nearest
                continue
        inverse[sample] = len(representatives)
        representatives.append(sample)
    distinct = np.array(representatives)
    order = _similar_together(K[np.ix_(distinct, distinct)])
    return distinct[order], np.argsort(order)[inverse]


def _similar_together(K: np.ndarray) -> np.ndarray:
    """The leaves of a tree of correlations.

    Of four samples in this order, the third lies between the second and the fourth. Conditioning on
    the first and third therefore never leaves two legs that are closer to each other than to the
    conditioning pair, and the Hermite series of the residual pair stays short.
    """
    if len(K) < 3:
        return np.arange(len(K))
    roots = np.sqrt(np.diagonal(K))
    scale = np.outer(roots, roots)
    correlation = np.abs(np.divide(K, scale, out=np.zeros_like(K), where=scale > 0))
    distance = np.maximum(1 - correlation, 0.0)[np.triu_indices(len(K), 1)]
    return leaves_list(linkage(distance, "average"))


def _expanded(value: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    if len(inverse) == len(value) and (inverse == np.arange(len(inverse))).all():
        return value
    return value[np.ix_(*[inverse] * value.ndim)]


# --- arguments -------------------------------------------------------------------------------


def _checked(activation, K, families, tolerance) -> tuple[Activation, np.ndarray, tuple[Family, ...]]:
    require_double_precision()
    if not 1e-12 <= tolerance <= 0.1:
        raise ValueError(f"tolerance must lie between 1e-12 and 0.1, got {tolerance}; 1e-8 is usual.")
    K = np.array(K, dtype=float)
    if K.ndim != 2 or K.shape[0] != K.shape[1] or not len(K):
        raise ValueError(f"K must be a square matrix over samples, got shape {K.shape}.")
    if not np.isfinite(K).all():
        raise ValueError("K contains an entry that is not finite; check the inputs and the layers before.")
    size = max(float(np.abs(K).max()), 1e-300)
    if np.abs(K - K.T).max() > 1e-10 * size:
        raise ValueError(
            f"K must be symmetric, but differs from its transpose by {np.abs(K - K.T).max():.1e}."
        )
    K = (K + K.T) / 2
    lowest = float(np.linalg.eigvalsh(K)[0])
    if lowest < -1e-9 * size * len(K):
        raise ValueError(f"K must be a covariance, but has the negative eigenvalue {lowest:.1e}.")
    activation, families = as_activation(activation), check_families(families)
    check_orders(activation, families)
    return activation, K, families
