r"""Symbols of flow and descent at order 1/n, as integrals over one or two times of products of mode factors.

With $e_a(s) = e^{-l_a s}$ and $a_a(s) = (1 - e_a)/l_a$, in steps of descent $e_a(s) = u_a^s$, the symbols of
`network/algorithms/clock.py` are integrals over the time s at which an effect reaches the outputs, from where
the training set absorbs it until the end:

| kind | symbols | factors |
|---|---|---|
| fluctuation | ff | $e_a(s)\, e_b(s')$ with $s + s' < T$, absorbed from $s + s'$ on |
| symmetric | 2 B, 3 IB | $e_a a_b + a_a e_b$, $-\frac12 (e_a a_b a_c + a_a e_b a_c + a_a a_b e_c)$ |
| ordered | A, IA, IIB | $e_a a_b$, $-\frac12 e_a a_b a_c$, $-e_a b_b a_c$ with b = a after the step |
| nested | IIA, IIB | $-b_a e_b a_c$, $-e_a b_b a_c$ with e, a at $s'$ and b = e at a later time s |
| squared | f f | $e_a(s)\, e_b(s')$, absorbed from s and from s' on; the variance alone has it |

Steps of descent that coincide are in these factors: b of the ordered kind, and the symmetric kind, which is
integrated along the step, where a grows linearly; so are the terms $\eta/2$ and $\eta^2/6$ of a step.

At the end of training the training set absorbs all, and most integrals are done: fluctuation, symmetric and
squared are 1/l for each mode, IIB is $-e_a a_c / l_b$, and IIA with the time of its middle mode is
$-(e_a / l_a)\, e_b a_c$ (in steps, $u_a e_a / l_a$), at one time.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from finitewidth.network.algorithms.clock import Clock
from finitewidth.training.many_points.time_bins import TimeBins

KINDS = ("fluctuation", "symmetric", "ordered", "nested")  # of the mean
SQUARED = "squared"
COSTS = {
    "fluctuation": 1.0,
    "symmetric": 2.0,
    "ordered": 4.0,
    "nested": 4.0,
    SQUARED: 2.0,
    "following": 3.0,  # these two belong to steps with batches and momentum (training/replay/steps.py)
    "taylor": 3.0,
}  # of a task, about
FIRST_BIN = 0.3  # the first bins end at this fraction of the shortest time scale
_ROUNDING = 1e-6  # of the number of steps in sums and differences of times
_LONG = 20.0  # in units of the longest time scale: the end of training


@dataclass(frozen=True, eq=False)
class TimeNode:
    """A node of the integral of a kind: its weight, the time that remains after it, one factor per mode."""

    weight: float
    remaining: float  # to absorb the effect
    e: np.ndarray
    a: np.ndarray  # e of the second time, for fluctuation and squared
    b: np.ndarray
    remaining_of_second: float = 0.0  # of squared: to absorb the second fluctuation
    at_end: bool = False  # whether training goes on until its end


@dataclass(frozen=True, eq=False)
class Replay:
    """Factors of the modes of the training NTK, replayed in time."""

    clock: Clock
    l: np.ndarray  # (N_A,)
    _absorbed: dict[float, np.ndarray] = field(default_factory=dict, repr=False)  # by number of steps

    @property
    def unit(self) -> float:
        """The time of one step; one for gradient flow."""
        return self.clock.eta or 1.0

    @property
    def duration(self) -> float:
        """The whole time, where the end of training is as good as reached."""
        if not self.clock.has_converged:
            return self.clock.duration * self.unit
        longest = _LONG / self.l[0]
        return math.ceil(longest / self.unit) * self.unit if self.clock.eta else longest

    def bins(self, kind: str) -> int:
        """The number of bins of time of a kind; one where nothing depends on time."""
        return 1 if self._is_static(kind) else self.time_bins(kind).count

    def _is_static(self, kind: str) -> bool:
        return self.clock.has_converged and kind in ("fluctuation", "symmetric", SQUARED)

    def time_bins(self, kind: str) -> TimeBins:
        """The bins of a kind; pairs of steps of descent differ by one step at least."""
        two = kind in ("fluctuation", "nested") and not self.clock.has_converged
        apart = self.clock.eta if two else 0.0
        return self._bins_until(max(self.duration - apart, 0.0))

    def _bins_until(self, span: float) -> TimeBins:
        return TimeBins(span, FIRST_BIN / self.l[-1])

    def decayed(self, time: float) -> np.ndarray:
        """e at a time."""
        return self.clock.until(self._count(time)).decayed(self.l)

    def absorbed(self, time: float) -> np.ndarray:
        """a at a time."""
        if math.isinf(time):
            return 1 / self.l
        count = self._count(time)
        if not self.clock.eta:
            return self.clock.until(count).absorbed(self.l)
        if count not in self._absorbed:
            self._absorbed[count] = self.clock.until(count).absorbed(self.l)
        return self._absorbed[count]

    def _count(self, time: float) -> float:
        """The steps that are finished; for flow the time itself."""
        return max(0, math.floor(time / self.unit + _ROUNDING)) if self.clock.eta else time

    def _whole_steps(self, time: float) -> float:
        return self._count(time) * self.unit if self.clock.eta else time

    def node(self, kind: str, index: int, fractions: np.ndarray) -> TimeNode:
        """A node of the integral in one bin of time."""
        if self.clock.has_converged:
            return self._node_at_end(kind, index, fractions)
        time, weight = self.time_bins(kind).in_bin(index, fractions[0])
        if kind == "fluctuation":
            return self._fluctuation(time, weight, fractions[1])
        if kind == "nested":
            return self._nested(time, weight, fractions[1])
        if kind == SQUARED:
            return self._squared(time, weight, fractions[1])
        step = self._whole_steps(time)
        remaining, e, a = self.duration - self.clock.eta - step, self.decayed(step), self.absorbed(step)
        if kind == "symmetric":  # a grows along a step
            return TimeNode(weight, remaining, e, a + (time - step) * e, e)
        return TimeNode(weight, remaining, e, a, a + self.clock.eta * e)

    def _node_at_end(self, kind: str, index: int, fractions: np.ndarray) -> TimeNode:
        f = 1 / self.l
        if self._is_static(kind):
            return TimeNode(1.0, math.inf, f, f, f, math.inf, at_end=True)
        time, weight = self.time_bins(kind).in_bin(index, fractions[0])
        step = self._whole_steps(time)
        e, a = self.decayed(step), self.absorbed(step)
        later = (1 - self.clock.eta * self.l) * e * f  # e summed over all later times
        return TimeNode(weight, math.inf, e, a, later if kind == "nested" else f, at_end=True)

    def _fluctuation(self, time: float, weight: float, fraction: float) -> TimeNode:
        first = self._whole_steps(time)
        rest = self.duration - self.clock.eta - first
        drawn = self._bins_until(rest).in_span(fraction)
        second = self._whole_steps(drawn.time)
        e, e_second = self.decayed(first), self.decayed(second)
        return TimeNode(weight * drawn.weight, rest - self.clock.eta - second, e, e_second, e_second)

    def _nested(self, time: float, weight: float, fraction: float) -> TimeNode:
        late = self._whole_steps(time) + self.clock.eta
        drawn = self._bins_until(late).in_span(fraction)
        early = self._whole_steps(drawn.time)
        remaining = self.duration - self.clock.eta - late
        e, a = self.decayed(early), self.absorbed(early)
        return TimeNode(weight * drawn.weight, remaining, e, a, self.decayed(late))

    def _squared(self, time: float, weight: float, fraction: float) -> TimeNode:
        drawn = self.time_bins(SQUARED).in_span(fraction)
        first, second = (self._whole_steps(one) for one in (time, drawn.time))
        e, e_second, end = self.decayed(first), self.decayed(second), self.duration - self.clock.eta
        return TimeNode(weight * drawn.weight, end - first, e, e_second, e_second, end - second)
