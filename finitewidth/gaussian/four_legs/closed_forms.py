r"""Four-leg averages in closed form: the sine, and polynomials up to the third degree.

For the sine, products become sums of exponentials. For polynomials, expanding every leg in Hermite
polynomials gives a finite sum over the numbers $k_{ij}$ of links between legs,

$$\Big\langle \prod_i f_i(z_i)\Big\rangle = \sum_{k} \prod_{i<j} \frac{K_{ij}^{k_{ij}}}{k_{ij}!}
  \prod_i \langle f_i^{(n_i)}\rangle, \qquad n_i = \sum_j k_{ij}.$$
"""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from finitewidth.gaussian.four_legs.families import Family
from finitewidth.network.layers.activation import Activation

_HIGHEST_DEGREE = 3  # beyond, the sum over links takes longer than integration
_LINKS = tuple(itertools.combinations(range(4), 2))

Labels = tuple[np.ndarray, ...]  # four of them


def have_closed_form(activations: Sequence[Activation]) -> bool:
    """Whether `closed_form` knows legs with these activations."""
    return _are_sines(activations) or all(_polynomial(one) is not None for one in activations)


def closed_form(
    activations: Sequence[Activation], K: np.ndarray, labels: Labels, families: tuple[Family, ...]
) -> dict[Family, np.ndarray]:
    """Averages for samples labels[i] in slot i; the four arrays of labels broadcast together.

    Each slot has its own activation.
    """
    if _are_sines(activations):
        return _of_sine(K, labels, families)
    return _of_polynomial([np.array(_polynomial(one)) for one in activations], K, labels, families)


def _are_sines(activations: Sequence[Activation]) -> bool:
    return all(activation.family == "sin" for activation in activations)


def _polynomial(activation: Activation) -> tuple[float, ...] | None:
    """Coefficients c_0, c_1, ... if the activation is a polynomial of low degree."""
    if activation.slopes is not None and activation.slopes[0] == activation.slopes[1]:
        return (0.0, activation.slopes[0])
    if activation.family == "polynomial" and len(activation.parameters) <= _HIGHEST_DEGREE + 1:
        return activation.parameters
    return None


def _of_sine(K: np.ndarray, labels: Labels, families: tuple[Family, ...]) -> dict[Family, np.ndarray]:
    """sin^(m)(z) = sin(z + m pi/2), so <prod> = 1/16 sum_e prod(e) cos(e.m pi/2) exp(-e K e / 2)."""
    half = sum(np.diagonal(K)[label] for label in labels) / 2
    shape = np.broadcast_shapes(*(np.shape(label) for label in labels))
    sums = {family: np.zeros(shape) for family in families}
    for signs in itertools.product((1,), *[(1, -1)] * 3):  # e and -e contribute equally
        cross = sum(signs[i] * signs[j] * K[labels[i], labels[j]] for i, j in _LINKS)
        exponential = np.exp(-half - cross) * (math.prod(signs) / 8)
        for family in families:
            quarter_turns = sum(sign * order for sign, order in zip(signs, family, strict=True))
            sums[family] += (1, 0, -1, 0)[quarter_turns % 4] * exponential
    return sums


def _of_polynomial(
    coefficients: list[np.ndarray], K: np.ndarray, labels: Labels, families: tuple[Family, ...]
) -> dict[Family, np.ndarray]:
    degree = max(len(leg) for leg in coefficients) - 1
    padded = [np.pad(leg, (0, degree + 1 - len(leg))) for leg in coefficients]
    means = [_mean_derivatives(leg, np.diagonal(K)) for leg in padded]
    shape = np.broadcast_shapes(*(np.shape(label) for label in labels))
    sums = {family: np.zeros(shape) for family in families}
    powers = {
        link: [K[labels[link[0]], labels[link[1]]] ** k / math.factorial(k) for k in range(degree + 1)]
        for link in _LINKS
    }
    for links, ends in _link_numbers(degree):
        weight = None
        for family in families:
            orders = [order + end for order, end in zip(family, ends, strict=True)]
            if max(orders) > degree or not all(m[n].any() for m, n in zip(means, orders, strict=True)):
                continue
            if weight is None:
                weight = math.prod(powers[link][k] for link, k in zip(_LINKS, links, strict=True) if k)
            sums[family] += weight * math.prod(
                m[n][label] for m, n, label in zip(means, orders, labels, strict=True)
            )
    return sums


@functools.cache
def _link_numbers(degree: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All numbers of links with at most `degree` at each leg, and how many links end at each leg."""
    numbers = []
    for links in itertools.product(range(degree + 1), repeat=len(_LINKS)):
        ends = tuple(sum(k for link, k in zip(_LINKS, links, strict=True) if leg in link) for leg in range(4))
        if max(ends) <= degree:
            numbers.append((links, ends))
    return numbers


def _mean_derivatives(coefficients: np.ndarray, variances: np.ndarray) -> list[np.ndarray]:
    """<f^(n)(z)> for z ~ N(0, variance), n = 0, 1, ...; (sample) each."""
    means = []
    for order in range(len(coefficients)):
        mean = np.zeros(len(variances))
        for power in range(order, len(coefficients), 2):  # odd moments vanish
            half = (power - order) // 2
            moment = math.factorial(power - order) / (2**half * math.factorial(half))
            mean = mean + coefficients[power] * math.perm(power, order) * moment * variances**half
        means.append(mean)
    return means
