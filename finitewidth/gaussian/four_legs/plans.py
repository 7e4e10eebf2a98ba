"""How many Hermite terms the two remaining legs need, and by which rule their coefficients are computed.

Tables of the largest coefficients and of the errors of candidate rules are made once for an activation;
the plan of a task is the cheapest choice that keeps the sum within the tolerance.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from finitewidth.gaussian.four_legs.coefficients import (
    Rule,
    coefficients,
    gauss_hermite,
    term_exponents,
    term_factors,
    trapezoid_rule,
)
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.four_legs.trapezoid import Towers, Unreachable
from finitewidth.gaussian.hermite import weighted_hermite
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import Activation

SHORT, LONG = 48, 320  # numbers of Hermite terms for which rules are tabulated
LONGEST = 1280  # the same for steep activations, where less does not do
_LOOSER = (10.0, 1e2, 1e3)  # tolerances that are tried for a refusal, in units of what was asked for
_FEW = 16  # samples for which they are tried
_VARIANCES = 2.0 ** -np.arange(0, 10, 0.5)  # relative to the largest, decreasing
_CORRELATIONS = 1 - np.linspace(1, 0, 41) ** 2
_WIDEST, _FINEST = 12.0, 0.025
_GAUSS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)
_MULTIPLES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 48)  # of the finest step
_CUTS = (2.4, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.6, 8.2, 9.0, 10.0)


@dataclass(frozen=True)
class Need:
    """How many coefficients of the legs of some tasks must be known, and how well."""

    terms: int
    sensitivity: np.ndarray  # largest change of the result per unit error of c_i, (i)
    tolerance: float


@dataclass(frozen=True)
class Plan(Need):
    """How these coefficients are computed."""

    rule: Rule


@functools.lru_cache(maxsize=32)
def _sizes_and_errors(
    activation: Activation, top: int, largest_variance: float, terms: int
) -> tuple[np.ndarray, np.ndarray]:
    """Largest |c_i| over means, (variance, i), and largest errors, (candidate, variance, i).

    Candidates are the Gauss rules, then the trapezoid steps (without cut), then the cuts (of a
    fine step): the error of a trapezoid rule is the sum of the errors of its step and of its cut.
    """
    tower = Tower(activation, top)
    means = np.linspace(-4.8, 4.8, 33) * np.sqrt(largest_variance)
    means = means[means >= 0] if activation.is_odd else means
    deviations = np.sqrt(_VARIANCES * largest_variance)
    means, deviations = (a.copy() for a in np.broadcast_arrays(means, deviations[:, None]))
    exact, trapezoid_errors = _by_trapezoid_rules(tower, means, deviations, terms)
    gauss_errors = [
        np.moveaxis(coefficients(tower, means, deviations, gauss_hermite(n), terms), 0, -1) - exact
        for n in _GAUSS
    ]
    sizes = np.abs(exact).max(axis=1)
    errors = np.stack([np.abs(error).max(axis=1) for error in gauss_errors + trapezoid_errors])
    # a smaller variance must never look harder than a larger one that stands in for it
    sizes = np.maximum.accumulate(sizes[::-1], axis=0)[::-1]
    errors = np.maximum.accumulate(errors[:, ::-1], axis=1)[:, ::-1]
    return sizes, errors


def _by_trapezoid_rules(
    tower: Tower, means: np.ndarray, deviations: np.ndarray, terms: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Coefficients (variance, mean, i) by the finest rule, and the errors of every step and every cut."""
    top = tower.highest
    nodes, weights = trapezoid_rule(_WIDEST, _FINEST)
    derivatives = tower(means[:, :, None] + deviations[:, :, None] * nodes)
    weighted = weighted_hermite(nodes, weights, terms)

    def on(which: np.ndarray) -> np.ndarray:
        part = np.ascontiguousarray(derivatives[..., which])
        low = np.moveaxis(part[:top] @ weights[which], 0, -1)
        high = part[top].reshape(means.size, -1) @ weighted[:, which].T
        return np.concatenate([low, high.reshape(*means.shape, terms)], axis=-1)

    everywhere = np.arange(nodes.size)
    exact = on(everywhere)
    of_steps = [m * on(everywhere[nodes.size // 2 % m :: m]) - exact for m in _MULTIPLES]
    beyond = np.searchsorted(_CUTS, np.abs(nodes), side="left")  # how many cuts leave a node out
    shells = [on(np.flatnonzero(beyond == number)) for number in range(1, len(_CUTS) + 1)]
    of_cuts = list(np.cumsum(shells[::-1], axis=0)[::-1])
    return exact, of_steps + of_cuts


def _root_mean_squares(tower: Tower, variances: np.ndarray) -> np.ndarray:
    nodes, weights = trapezoid_rule(9.0, 0.12)
    values = tower(np.sqrt(variances)[:, None] * nodes)
    return np.sqrt((values**2 @ weights).max(axis=1))


class CoefficientRules:
    """Chooses the number of Hermite terms and the rule for their coefficients."""

    def __init__(
        self, towers: Towers, dealt: tuple[Family, ...], variances: np.ndarray, tolerance: float, terms: int
    ):
        self.top, self.terms, self.tolerance = towers[0].highest, terms, tolerance
        largest = max(float(variances.max()), 1e-300)
        self.largest = float(2.0 ** np.ceil(np.log2(largest)))  # few different tables
        tables = [
            _sizes_and_errors(activation, self.top, self.largest, terms)
            for activation in dict.fromkeys(tower.activation for tower in towers[2:])
        ]
        self.sizes, self.errors = (functools.reduce(np.maximum, both) for both in zip(*tables, strict=True))
        first, second = (_root_mean_squares(tower, variances) for tower in towers[:2])
        self.ends: dict[tuple[int, int], float] = {}  # orders (r >= s) and the largest norm of s_p s_q
        for p, q, r, s in dealt:
            end = max(r, s), min(r, s)
            self.ends[end] = max(self.ends.get(end, 0.0), first[p] * second[q])
        self._cache: dict[int, np.ndarray] = {}
        self._change_cache: dict[int, np.ndarray] = {}
        self.needed = np.array([self._terms_needed(i) for i in range(_VARIANCES.size)])

    def _variance_index(self, variances):
        """Index of the smallest tabulated variance that is not below."""
        ratio = np.maximum(variances / self.largest, 2.0**-60)
        return np.clip(np.floor(-2 * np.log2(ratio) + 1e-9).astype(int), 0, _VARIANCES.size - 1)

    def _bounds(self, index: int) -> np.ndarray:
        """Bounds of term k at unit correlation for every pair of orders (r, s), (pair, k)."""
        if index not in self._cache:
            sizes = self.sizes[index]
            self._cache[index] = np.stack(
                [
                    self._factor(index, r, s) * norm * sizes[r : r + self.terms] * sizes[s : s + self.terms]
                    for (r, s), norm in self.ends.items()
                ]
            )
        return self._cache[index]

    def sensitivity(self, variance: float, correlation: float, terms: int) -> np.ndarray:
        """The largest change of the result per unit error of c_i, (i)."""
        changes = self._changes(int(self._variance_index(variance)))[:, :terms]
        changes = changes * abs(correlation) ** np.arange(terms)
        result = np.zeros(self.top + terms)
        for order, change in enumerate(changes):
            part = result[order : order + terms]
            np.maximum(part, change, out=part)
        return result

    def _changes(self, index: int) -> np.ndarray:
        """The largest change per unit error of the coefficient in term k of a leg, (order, k)."""
        if index not in self._change_cache:
            changes = np.zeros((self.top + 1, self.terms))
            for (r, s), norm in self.ends.items():
                factor = self._factor(index, r, s) * norm
                for one, other in ((r, s), (s, r)):
                    change = factor * self.sizes[index, other : other + self.terms]
                    np.maximum(changes[one], change, out=changes[one])
            self._change_cache[index] = changes
        return self._change_cache[index]

    def _factor(self, index: int, r: int, s: int) -> np.ndarray:
        top, variance = self.top, _VARIANCES[index] * self.largest
        powers = sum(term_exponents(order, top, self.terms)[1] for order in (r, s))
        return term_factors((r, s), top, self.terms) * variance**powers

    def _terms_needed(self, index: int) -> np.ndarray:
        terms = self._bounds(index).max(axis=0) * _CORRELATIONS[:, None] ** np.arange(self.terms)
        tails = np.cumsum(terms[:, ::-1], axis=1)[:, ::-1]
        enough = tails <= self.tolerance
        # the terms beyond the table are at most as many again as the last few
        enough &= (8 * terms[:, -4:].max(axis=1) <= self.tolerance)[:, None]
        return np.where(enough.any(axis=1), np.maximum(enough.argmax(axis=1), 1), self.terms + 1)

    def terms_needed(self, v_rows: np.ndarray, v_columns: np.ndarray, correlations: np.ndarray) -> np.ndarray:
        """Number of Hermite terms for each (row, column); above `terms` if the table cannot tell."""
        variance = self._variance_index(np.maximum(v_rows[:, None], v_columns))
        size = np.minimum(np.abs(correlations), 1.0)
        correlation = np.ceil((1 - np.sqrt(1 - size)) * 40 - 1e-9).astype(int)
        return self.needed[variance, np.clip(correlation, 0, 40)]

    def rule(self, variance: float, correlation: float, terms: int) -> Rule:
        """The cheapest rule whose coefficients, up to this variance, are good enough for the sum."""
        sensitivity = self.sensitivity(variance, correlation, terms)
        total = self.errors[:, self._variance_index(variance), : sensitivity.size] @ sensitivity
        gauss, steps, cuts = np.split(total, [len(_GAUSS), len(_GAUSS) + len(_MULTIPLES)])
        choices: list[tuple] = [
            (n, gauss_hermite, (int(n),)) for n in np.array(_GAUSS)[gauss <= self.tolerance][:1]
        ]
        for multiple, error in zip(_MULTIPLES, steps, strict=True):
            good = np.array(_CUTS)[cuts + error <= self.tolerance]
            if good.size:
                step = multiple * _FINEST
                choices.append((2 * round(good[0] / step) + 1, trapezoid_rule, (float(good[0]), step)))
        if not choices:
            raise Unreachable("no rule smooths the legs well enough")
        _, make, arguments = min(choices, key=lambda choice: choice[0])
        return make(*arguments)

    def need(self, variance: float, correlation: float, terms: int) -> Need:
        """What the sum needs, up to this variance and correlation."""
        return Need(terms, self.sensitivity(variance, correlation, terms), self.tolerance)

    def plan(self, variance: float, correlation: float, terms: int) -> Plan:
        """The same with a rule."""
        sensitivity = self.sensitivity(variance, correlation, terms)
        return Plan(terms, sensitivity, self.tolerance, self.rule(variance, correlation, terms))


def fill_or_refuse(fill: Callable[[float, int], None], what: str, K: np.ndarray, tolerance: float) -> None:
    """Fill arrays to a tolerance, with many Hermite terms if need be, or name one that can be reached.

    Args:
        fill: Fills all arrays, given a tolerance and the largest number of Hermite terms.
        what: The activations, for the refusal.
        K: The kernel of all legs.
        tolerance: The absolute accuracy that is asked for.
    """
    reason = _missed(fill, tolerance, LONG) and _missed(fill, tolerance, LONGEST)
    if not reason:
        return
    looser = [tolerance * factor for factor in _LOOSER if tolerance * factor <= 0.1 and len(K) <= _FEW]
    reached = next((one for one in looser if not _missed(fill, one, LONGEST)), None)
    remedy = "raise the tolerance" if reached is None else f"method=fw.Tensors(tolerance={reached:.0e}) does"
    raise ValueError(
        f"tolerance {tolerance:.1e} cannot be reached for {what} at K with largest diagonal entry "
        f"{K.max():.3g} ({reason}); {remedy}, or scale the inputs or C_W down."
    )


def _missed(fill: Callable[[float, int], None], tolerance: float, longest: int) -> str:
    """Why the tolerance cannot be reached with so many Hermite terms; empty if it can."""
    try:
        fill(tolerance, longest)
    except Unreachable as reason:
        return str(reason)
    return ""
