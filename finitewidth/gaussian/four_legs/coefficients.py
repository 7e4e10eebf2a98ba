r"""Hermite coefficients of the two legs that remain after conditioning on a pair.

Given the conditioning legs, a further leg is $\mu + \sqrt v\, g$ with $g$ a standard normal variable.
Its Hermite coefficients $a^{(m)}_k = \langle \sigma^{(m)}(\mu + \sqrt v g)\, he_k(g)\rangle
= v^{k/2} S^{(m+k)}(\mu)/\sqrt{k!}$ are derivatives of one smoothed activation $S$. Hence only
$c_i = S^{(i)}$ for $i < m_{top}$ and $c_{m_{top}+j} = a^{(m_{top})}_j$ are computed; all others are
these times powers of v, never a division.
"""

import functools

import numpy as np
from scipy.special import gammaln

from finitewidth.gaussian.hermite import weighted_hermite
from finitewidth.gaussian.tower import Tower

Rule = tuple[np.ndarray, np.ndarray]  # nodes and weights for a standard normal variable


@functools.cache
def term_exponents(order: int, top: int, terms: int) -> tuple[np.ndarray, np.ndarray]:
    """For k < terms: j with a_k = v^((k-j)/2) sqrt(j!/k!) c_(order+k), and (k-j)/2."""
    k = np.arange(terms)
    j = np.maximum(order + k - top, 0)
    return j, (k - j) / 2


@functools.cache
def term_factors(orders: tuple[int, int], top: int, terms: int) -> np.ndarray:
    """sqrt(j_r! j_s!)/k!, the factor of term k besides two coefficients and powers of v."""
    k = np.arange(terms)
    logs = sum(gammaln(term_exponents(order, top, terms)[0] + 1) / 2 for order in orders)
    return np.exp(logs - gammaln(k + 1))


@functools.cache
def gauss_hermite(count: int) -> Rule:
    """Nodes and weights for a standard normal variable; the best rule where the variance is small."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / np.sqrt(2 * np.pi)


@functools.cache
def trapezoid_rule(cut: float, step: float) -> Rule:
    """Equidistant nodes up to the cut; the best rule where the variance is large."""
    half = round(cut / step)
    nodes = np.arange(-half, half + 1) * step
    return nodes, np.exp(-(nodes**2) / 2) * step / np.sqrt(2 * np.pi)


def coefficients(
    tower: Tower, means: np.ndarray, deviations: np.ndarray, rule: Rule, terms: int
) -> np.ndarray:
    """c_0 ... c_(top+terms-1) for every mean and deviation (arrays of one shape), new axis first."""
    nodes, weights = rule
    top = tower.highest
    weighted = weighted_hermite(nodes, weights, terms)
    flat_means, flat_deviations = means.reshape(-1), deviations.reshape(-1)
    values = np.empty((top + terms, flat_means.size))
    rows = max(1, tower.block // nodes.size)
    for start in range(0, flat_means.size, rows):
        part = slice(start, start + rows)
        z = flat_means[part, None] + flat_deviations[part, None] * nodes
        derivatives = tower.on_block(z.reshape(-1))
        for order in range(top):
            values[order, part] = derivatives[order].reshape(z.shape) @ weights
        values[top:, part] = weighted @ derivatives[top].reshape(z.shape).T
    return values.reshape(top + terms, *means.shape)
