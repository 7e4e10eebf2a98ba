"""Gaussian averages of four legs: products of derivatives of the activation at four preactivations.

All quadruples of samples are computed at once, for the six families of derivative orders that the
order-1/n statistics need (PDLT chapters 4, 8 and 11). An activation with a closed form uses it, a smooth
one is conditioned on a pair of legs, and one with kinks is integrated over panels that end at the kinks.
"""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.average import Average
from finitewidth.gaussian.four_legs.closed_forms import closed_form, have_closed_form
from finitewidth.gaussian.four_legs.conditioning import PairConditioning
from finitewidth.gaussian.four_legs.distinct import distinct_samples, expanded
from finitewidth.gaussian.four_legs.families import (
    FAMILIES,
    Family,
    arrangements,
    check_families,
    highest_order,
)
from finitewidth.gaussian.four_legs.kinked import check_orders, fill_kinked
from finitewidth.gaussian.four_legs.plans import fill_or_refuse
from finitewidth.gaussian.four_legs.slot_arrays import Filling
from finitewidth.gaussian.four_legs.smooth import fill_smooth
from finitewidth.gaussian.kernel_matrix import as_positive_kernel
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import Activation, as_activation


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
    computed to 1e-5 at best, one set of samples at a time, and the error reports the accuracy reached.
    """
    activation, K, families = _checked(activation, K, families, tolerance)
    compute = functools.partial(_four_legs, activation, K, families, tolerance)
    return _memory.recall((activation, K.tobytes(), families, tolerance), compute) if _memory else compute()


def _four_legs(
    activation: Activation, K: np.ndarray, families: tuple[Family, ...], tolerance: float
) -> dict[Family, Average]:
    if have_closed_form((activation,)):
        return _in_closed_form(activation, K, families)
    distinct, inverse = distinct_samples(K)
    filling = Filling.empty(len(distinct), families, None)
    error = _fill(filling, activation, K[np.ix_(distinct, distinct)], tolerance)
    values = {family: expanded(filling.arrays.pop(family)[None], inverse) for family in families}
    return {family: Average(value, _error(value, error)) for family, value in values.items()}


class _Memory:
    """The newest averages, up to a number of bytes."""

    def __init__(self, most_bytes: float):
        self._most = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple, dict[Family, Average]] = OrderedDict()
        self._lock = threading.Lock()

    def recall(self, key: tuple, compute: Callable[[], dict[Family, Average]]) -> dict[Family, Average]:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return _copied(self._kept[key])
        averages = compute()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = _copied(averages)
                self._bytes += _size(averages)
            while self._bytes > self._most:
                self._bytes -= _size(self._kept.popitem(last=False)[1])
        return averages


def _copied(averages: dict[Family, Average]) -> dict[Family, Average]:
    """The same in arrays of its own, since callers may work in place."""
    return {family: Average(np.array(one.value), one.error) for family, one in averages.items()}


def _size(averages: dict[Family, Average]) -> int:
    return sum(average.value.nbytes for average in averages.values())


_memory: _Memory | None = None


def remember_averages(most_bytes: float) -> None:
    """From now on keep the newest averages: networks that differ in learning rates or depth share them."""
    global _memory
    _memory = _Memory(most_bytes)


def four_legs_with_fixed_leg(
    activation: str | Activation,
    K: Float[np.ndarray, "N N"] | Float[Array, "N N"],
    fixed: int,
    families: Sequence[Family] = FAMILIES,
    *,
    tolerance: float = 1e-8,
) -> dict[tuple[Family, int], Average]:
    """Four-leg averages with sample `fixed` in one slot, for every family and slot.

    Each value is an (N, N, N) array over the remaining three slots in order. Nothing of size N^4 is
    stored, so tensors can be contracted leg by leg. Slots of equal order share one array.
    """
    activation, K, families = _checked(activation, K, families, tolerance)
    if not isinstance(fixed, int | np.integer) or not 0 <= fixed < len(K):
        raise ValueError(f"fixed must be the number of a sample, 0 to {len(K) - 1}, got {fixed!r}.")
    if have_closed_form((activation,)):
        return _fixed_in_closed_form(activation, K, fixed, families)
    distinct, inverse = distinct_samples(K)
    place, last = int(inverse[fixed]), len(distinct) - 1
    distinct = np.append(np.delete(distinct, place), distinct[place])  # the fixed sample comes last
    inverse = np.where(inverse == place, last, inverse - (inverse > place))
    filling = Filling.empty(len(distinct), families, last)
    error = _fill(filling, activation, K[np.ix_(distinct, distinct)], tolerance)
    arrays = {
        (family, slot): expanded(value, inverse)
        for family in families
        for slot, value in filling.arrays.pop(family).items()
    }
    averages = {key: Average(value, _error(value, error)) for key, value in arrays.items()}
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
        part = closed_form((activation,) * 4, K, labels, families)
        for family in families:
            values[family][sample] = part[family]
    return {family: Average(value, _error(value, 0.0)) for family, value in values.items()}


def _fixed_in_closed_form(activation, K, fixed, families) -> dict[tuple[Family, int], Average]:
    averages = {}
    for slot in range(4):
        labels = list(np.ix_(*[np.arange(len(K))] * 3))
        labels.insert(slot, np.array(fixed))
        part = closed_form((activation,) * 4, K, tuple(labels), families)
        averages |= {(family, slot): Average(part[family], _error(part[family], 0.0)) for family in families}
    return averages


def _fill(filling: Filling, activation: Activation, K: np.ndarray, tolerance: float) -> float:
    """Fill all arrays and return an estimate of the largest error."""
    families = tuple(filling.arrays)
    tower = Tower(activation, highest_order(families))
    if activation.kinks:
        return fill_kinked(filling, tower, K, tolerance)

    def fill(reached: float, longest: int) -> None:
        conditioning = PairConditioning(
            (tower, tower, tower, tower), K, arrangements(families), reached, longest=longest
        )
        fill_smooth(filling, conditioning, families)

    with SingleThreadedProducts():
        fill_or_refuse(fill, f"activation {activation.name!r}", K, tolerance)
    return tolerance


def _error(value: np.ndarray, tolerance: float) -> float:
    return float(tolerance + 1e-14 * max(value.max(initial=0.0), -value.min(initial=0.0)))


def _checked(activation, K, families, tolerance) -> tuple[Activation, np.ndarray, tuple[Family, ...]]:
    require_double_precision()
    if not 1e-12 <= tolerance <= 0.1:
        raise ValueError(f"tolerance must lie between 1e-12 and 0.1, got {tolerance}; 1e-8 is usual.")
    K = as_positive_kernel(K)
    activation, families = as_activation(activation), check_families(families)
    check_orders(activation, families)
    return activation, K, families
