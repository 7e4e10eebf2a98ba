r"""What flow and descent do at order 1/n, as integrals over one or two times of products of one-mode factors.

With $e_a(s) = e^{-l_a s}$ and $a_a(s) = (1 - e_a)/l_a$, in steps of descent $e_a(s) = u_a^s$, the symbols of
`network/algorithms/clock.py` are integrals over the time s at which an effect reaches the outputs, from where
the training set absorbs it until the end:

| kind | symbols | factors |
|---|---|---|
| fluctuation | ff | $e_a(s)\, e_b(s')$ with $s + s' < T$, absorbed from $s + s'$ on |
| straight | 2 B, 3 IB | $e_a a_b + a_a e_b$, $-\frac12 (e_a a_b a_c + a_a e_b a_c + a_a a_b e_c)$ |
| bent | A, IA, IIB | $e_a a_b$, $-\frac12 e_a a_b a_c$, $-e_a a^+_b a_c$ |
| nested | IIA, IIB | $-e_a(s) e_b(s') a_c(s')$, $-e_b(s) e_a(s') a_c(s')$ with $s' < s$ |
| twice | f f | $e_a(s)\, e_b(s')$, absorbed from s and from s' on; the variance alone has it |

Steps of descent that coincide are in these factors: $a^+$ is a after the step, and the straight kind is
integrated along the step, where a grows linearly; so are the terms $\eta/2$ and $\eta^2/6$ of a step.

At the end of training the training set absorbs all, and most integrals are done: fluctuation, straight and
twice are 1/l for each mode, IIB is $-e_a a_c / l_b$, and IIA with the time of its middle mode is
$-(e_a / l_a)\, e_b a_c$ (in steps, $u_a e_a / l_a$), at one time.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from finitewidth.network.algorithms.clock import Clock
from finitewidth.training.many_points.time_bins import Times

KINDS = ("fluctuation", "straight", "bent", "nested")  # of the mean
TWICE = "twice"
COSTS = {"fluctuation": 1.0, "straight": 2.0, "bent": 4.0, "nested": 4.0, TWICE: 2.0}  # of a sample, about
_FIRST = 0.3  # the first bins end at this fraction of the shortest time scale
_ROUNDING = 1e-6  # of the number of steps in sums and differences of times
_LONG = 20.0  # in units of the longest time scale: the end of training


@dataclass(frozen=True, eq=False)
class Moment:
    """One point of the integral of a kind: its weight, the time left to absorb it, one factor per mode."""

    weight: float
    left: float
    e: np.ndarray
    a: np.ndarray
    before: np.ndarray  # a after the step, or e of the later time
    left_of_other: float = 0.0  # of twice: the time left to absorb the second fluctuation
    ended: bool = False  # whether training goes on until the end


@dataclass(frozen=True, eq=False)
class Replay:
    """Modes of the training NTK on the way to the end of training."""

    clock: Clock
    l: np.ndarray  # (N_A,)
    _after: dict[float, np.ndarray] = field(default_factory=dict, repr=False)  # absorbed, by number of steps

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
        return 1 if self._is_static(kind) else self.times(kind).bins

    def _is_static(self, kind: str) -> bool:
        return self.clock.has_converged and kind in ("fluctuation", "straight", TWICE)

    def times(self, kind: str) -> Times:
        """The times of a kind; pairs of steps of descent differ by one step at least."""
        two = kind in ("fluctuation", "nested") and not self.clock.has_converged
        apart = self.clock.eta if two else 0.0
        return self._until(max(self.duration - apart, 0.0))

    def _until(self, span: float) -> Times:
        return Times(span, _FIRST / self.l[-1])

    def decayed(self, time: float) -> np.ndarray:
        return self.clock.until(self._count(time)).decayed(self.l)

    def absorbed(self, time: float) -> np.ndarray:
        if math.isinf(time):
            return 1 / self.l
        count = self._count(time)
        if not self.clock.eta:
            return self.clock.until(count).absorbed(self.l)
        if count not in self._after:
            self._after[count] = self.clock.until(count).absorbed(self.l)
        return self._after[count]

    def _count(self, time: float) -> float:
        """The steps that are finished; for flow the time itself."""
        return max(0, math.floor(time / self.unit + _ROUNDING)) if self.clock.eta else time

    def moment(self, kind: str, index: int, fractions: np.ndarray) -> Moment:
        """A point of the integral in one bin of time."""
        if self.clock.has_converged:
            return self._at_the_end(kind, index, fractions)
        time, weight = self.times(kind).in_bin(index, fractions[0])
        if kind == "fluctuation":
            return self._two_answers(time, weight, fractions[1])
        if kind == "nested":
            return self._two_times(time, weight, fractions[1])
        if kind == TWICE:
            return self._two_legs(time, weight, fractions[1])
        step = self._whole_steps(time)
        left, e, a = self.duration - self.clock.eta - step, self.decayed(step), self.absorbed(step)
        if kind == "straight":  # a grows along a step
            return Moment(weight, left, e, a + (time - step) * e, e)
        return Moment(weight, left, e, a, a + self.clock.eta * e)

    def _at_the_end(self, kind: str, index: int, fractions: np.ndarray) -> Moment:
        f, never = 1 / self.l, math.inf
        if self._is_static(kind):
            return Moment(1.0, never, f, f, f, never, ended=True)
        time, weight = self.times(kind).in_bin(index, fractions[0])
        step = self._whole_steps(time)
        e, a = self.decayed(step), self.absorbed(step)
        later = (1 - self.clock.eta * self.l) * e * f  # all that comes after
        return Moment(weight, never, e, a, later if kind == "nested" else f, ended=True)

    def _two_answers(self, time: float, weight: float, fraction: float) -> Moment:
        first = self._whole_steps(time)
        rest = self.duration - self.clock.eta - first
        drawn = self._until(rest).anywhere(fraction)
        second = self._whole_steps(drawn.time)
        e, other = self.decayed(first), self.decayed(second)
        return Moment(weight * drawn.weight, rest - self.clock.eta - second, e, other, other)

    def _two_times(self, time: float, weight: float, fraction: float) -> Moment:
        late = self._whole_steps(time) + self.clock.eta
        drawn = self._until(late).anywhere(fraction)
        early = self._whole_steps(drawn.time)
        left = self.duration - self.clock.eta - late
        e, a = self.decayed(early), self.absorbed(early)
        return Moment(weight * drawn.weight, left, e, a, self.decayed(late))

    def _two_legs(self, time: float, weight: float, fraction: float) -> Moment:
        drawn = self.times(TWICE).anywhere(fraction)
        first, second = (self._whole_steps(one) for one in (time, drawn.time))
        e, other, end = self.decayed(first), self.decayed(second), self.duration - self.clock.eta
        return Moment(weight * drawn.weight, end - first, e, other, other, end - second)

    def _whole_steps(self, time: float) -> float:
        return self._count(time) * self.unit if self.clock.eta else time
