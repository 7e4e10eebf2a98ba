r"""Four-leg averages of activations with kinks, of one layer or of two, for one set of samples at a time.

Two layers of which one has kinks need, for the corrections of means, derivatives of the upper legs that may
be delta functions or their derivatives. The Gaussian is differentiated instead: with
$z^{(p)} = R z^{(k)} + \eta$, $\eta$ independent of layer k with covariance Q, and $y = Q^{-1}\eta$,

$$\langle A^{(k)}\, \partial_c f^{(p)} \rangle = \langle A\, y_c f \rangle, \qquad
  \langle A^{(k)}\, \partial_c \partial_d f^{(p)} \rangle = \langle A\, (y_c y_d - Q^{-1}_{cd}) f \rangle.$$

For one sample, f is $\sigma^2$ or $\sigma'^2$ and the whole derivative of it is what exists. It is given to
the averages such that their sums over legs are right, as for derivatives by the kernel of one layer.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.four_legs.families import Family, highest_order
from finitewidth.gaussian.four_legs.panels import Key, LegTower, Sums, Z, integrate
from finitewidth.gaussian.four_legs.slot_arrays import Filling
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import Activation

ACCURACY = 1e-5  # reached by panels in reasonable time; a tighter tolerance is treated as this one
_SMALLEST = 1e-9  # relative determinant of the noise between two layers that derivatives are trusted with

Terms = dict[Key, float]  # a sum of averages
Labels = tuple[int, ...]


def check_orders(activation: Activation, families: tuple[Family, ...]) -> None:
    """Refuse derivatives that are delta functions."""
    for family in families:
        if max(family) > activation.jump_order:
            raise ValueError(
                f"families contains {family}, but derivative {max(family)} of activation "
                f"{activation.name!r} is a delta function at its kink (order {activation.jump_order} jumps "
                "there), so the average does not exist; leave the family out or use a smooth activation "
                "such as 'gelu' or 'tanh'."
            )


# --- one layer ------------------------------------------------------------------------------------------


def fill_kinked(filling: Filling, tower: Tower, K: np.ndarray, tolerance: float) -> float:
    """Fill the arrays and return an estimate of the largest error."""
    families = tuple(filling.arrays)
    sets = [
        samples
        for size in range(1, 5)
        for samples in itertools.combinations(range(len(K)), size)
        if filling.fixed is None or filling.fixed in samples
    ]
    largest, legs_tower = 0.0, LegTower(tower.activation, tower.highest)
    assigned = {size: list(_assignments(families, size)) for size in range(1, 5)}
    sums = {size: Sums.of([{key: 1.0} for _, _, key in listed]) for size, listed in assigned.items()}

    def work(samples: tuple[int, ...]):
        size = len(samples)
        return integrate([legs_tower] * size, K[np.ix_(samples, samples)], sums[size], _reachable(tolerance))

    for samples, (values, error) in on_all_cores(work, sets):
        largest = max(largest, error)
        for (family, legs, _), value in zip(assigned[len(samples)], values, strict=True):
            filling.put(family, [samples[leg] for leg in legs], value)
    return largest


def _reachable(tolerance: float) -> float:
    return max(tolerance, ACCURACY)


def _assignments(families: tuple[Family, ...], size: int) -> Iterator[tuple[Family, Labels, Key]]:
    """Every way to put all of `size` samples into the four slots of a family."""
    for family in families:
        for legs in itertools.product(range(size), repeat=4):
            if len(set(legs)) == size:
                yield family, legs, _key(zip(legs, family, strict=True), size)


def _key(placed, size: int) -> Key:
    """The orders on every leg, from pairs of a leg and an order."""
    on_leg: list[list[int]] = [[] for _ in range(size)]
    for leg, order in placed:
        on_leg[leg].append(order)
    return tuple(tuple(sorted(orders)) for orders in on_leg)


# --- two layers -----------------------------------------------------------------------------------------

FUNCTIONS: tuple[Family, ...] = ((0, 0, 0, 0), (0, 0, 1, 1), (1, 1, 0, 0), (1, 1, 1, 1), (1, 0, 1, 0))
RESPONSES: tuple[Family, ...] = ((0, 0, 2, 0), (0, 0, 3, 1), (0, 0, 2, 2), (1, 0, 2, 1))


def kinked_layers(
    activations: tuple[Activation, Activation], K: np.ndarray, families: tuple[Family, ...], tolerance: float
) -> tuple[dict[Family, np.ndarray], float]:
    """Averages with two legs in each of two layers, at least one of them with kinks, and their error.

    `K` is the joint kernel. Derivatives beyond the first of an upper layer with kinks (`RESPONSES`) are
    filled in where the two layers have the same one or two samples, and are zero elsewhere, where nothing
    asks for them.
    """
    count, largest = len(K) // 2, 0.0
    functions = families if activations[1].is_smooth else tuple(f for f in families if f in FUNCTIONS)
    towers = [LegTower(activation, highest_order(functions)) for activation in activations]
    chosen = [(a,) for a in range(count)] + list(itertools.combinations(range(count), 2))
    sets = list(itertools.product(chosen, chosen))
    arrays = {family: np.zeros((count,) * 4) for family in families}

    def work(samples: tuple[Labels, Labels]):
        lower, upper = samples
        places = [*lower, *(count + sample for sample in upper)]
        joint = K[np.ix_(places, places)]
        terms = dict(_of_functions(functions, len(lower), len(upper)))
        if lower == upper and len(functions) < len(families):
            terms |= _responses(joint, activations[1].name)
        legs = [towers[0]] * len(lower) + [towers[1]] * len(upper)
        values, error = integrate(legs, joint, Sums.of(list(terms.values())), _reachable(tolerance))
        return dict(zip(terms, values, strict=True)), error

    for (lower, upper), (values, error) in on_all_cores(work, sets):
        largest = max(largest, error)
        for (family, (a, b, c, d)), value in values.items():
            arrays[family][lower[a], lower[b], upper[c], upper[d]] = value
    return arrays, largest


Placed = tuple[Family, Labels]  # a family and, for each slot, a sample of its layer's set


def _of_functions(families: Sequence[Family], lower: int, upper: int) -> Iterator[tuple[Placed, Terms]]:
    """Every way to put all samples of both layers into the slots of a family, as averages of functions."""
    slots = [range(lower)] * 2 + [range(upper)] * 2
    for family, labels in itertools.product(families, itertools.product(*slots)):
        a, b, c, d = labels
        if len({a, b}) == lower and len({c, d}) == upper:
            yield (family, labels), {_key(_legs(family, labels, lower), lower + upper): 1.0}


def _legs(family: Sequence[int], labels: Labels, lower: int) -> list[tuple[int, int]]:
    """Pairs of a leg and an order; the legs of the upper layer come behind those of the lower."""
    shift = (0, 0, lower, lower)
    return [(label + more, order) for label, more, order in zip(labels, shift, family, strict=True)]


def _responses(joint: np.ndarray, name: str | None) -> dict[Placed, Terms]:
    """What `RESPONSES` stand for, where both layers have the same samples."""
    size = len(joint) // 2
    below, cross = joint[:size, :size], joint[size:, :size]
    slope = cross @ np.linalg.pinv(below, rcond=1e-12, hermitian=True)
    noise = joint[size:, size:] - slope @ cross.T
    if np.linalg.det(noise) <= _SMALLEST * np.prod(np.diagonal(joint)[size:]):
        raise ValueError(
            "the weights of a residual block add almost nothing to its skip connection, where G1, H1, D and "
            f"A with the kinks of activation {name!r} are not computed; raise C_W or C_b of the block, keep "
            "tensors=('V', 'F', 'B') only, or use a smooth activation."
        )
    inverse = np.linalg.inv(noise)
    y = np.concatenate([-inverse @ slope, inverse], axis=1)  # (sample, leg)

    def first(family: Family, labels: Labels, c: int) -> Terms:
        """<A d_c f>."""
        legs, terms = _legs(family, labels, size), {}
        for leg in range(2 * size):
            _add(terms, _key([*legs, (leg, Z)], 2 * size), y[c, leg])
        return terms

    def second(family: Family, labels: Labels, c: int, d: int) -> Terms:
        """<A d_c d_d f>."""
        legs = _legs(family, labels, size)
        terms: Terms = {_key(legs, 2 * size): -inverse[c, d]}
        for one, other in itertools.product(range(2 * size), repeat=2):
            _add(terms, _key([*legs, (one, Z), (other, Z)], 2 * size), y[c, one] * y[d, other])
        return terms

    return _of_one(first, second) if size == 1 else _of_two(first, second)


def _of_one(first, second) -> dict[Placed, Terms]:
    """One sample: half of the second derivative of sigma^2 less its part with two slopes, and so on."""
    same = (0, 0, 0, 0)
    leading = _scaled(second((0, 0, 0, 0), same, 0, 0), 0.5)
    _add(leading, _key(_legs((0, 0, 1, 1), same, 1), 2), -1.0)
    return {
        ((0, 0, 2, 0), same): leading,
        ((0, 0, 3, 1), same): {_key(_legs((0, 0, 1, 1), same, 1), 2): 0.0},
        ((0, 0, 2, 2), same): _scaled(second((0, 0, 1, 1), same, 0, 0), 0.5),
        ((1, 0, 2, 1), same): _scaled(first((1, 0, 1, 1), same, 0), 0.5),
    }


def _of_two(first, second) -> dict[Placed, Terms]:
    """Two samples, with the legs of the lower layer on any of them."""
    terms = {}
    for a, b, c in itertools.product((0, 1), repeat=3):
        labels = (a, b, c, 1 - c)
        terms[(0, 0, 2, 2), labels] = second((0, 0, 1, 1), labels, c, 1 - c)
        terms[(1, 0, 2, 1), labels] = first((1, 0, 1, 1), labels, c)
        if a == b == c:  # a leg with two derivatives answers to its own fluctuations alone
            terms[(0, 0, 2, 0), labels] = second((0, 0, 0, 0), labels, c, c)
            terms[(0, 0, 3, 1), labels] = second((0, 0, 1, 1), labels, c, c)
    return terms


def _add(terms: Terms, key: Key, coefficient: float) -> None:
    terms[key] = terms.get(key, 0.0) + coefficient


def _scaled(terms: Terms, factor: float) -> Terms:
    return {key: factor * coefficient for key, coefficient in terms.items()}
