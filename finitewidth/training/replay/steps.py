r"""Sums over steps of descent with batches and momentum, drawn without bias.

For the squared error the residual of a step and what has been accumulated are matrices on the first residual,

$$\epsilon(s) = E(s)\,(z_0 - y), \qquad c(s) = C(s)\,(z_0 - y), \qquad
  E(s) = M_s (1 - \tilde\Theta C(s)), \qquad C = \mathrm{Opt}[E].$$

They neither commute with the training NTK nor are they symmetric. With w(t, s) the weight at step t of a
signal of step s, and D(s) = C(s+1) - C(s), a kind of source is a sum over one or two steps:

| kind | sources | factors e, a, b |
|---|---|---|
| fluctuation | A, B | what step s adds to the response to a force that begins behind r; D(r) |
| symmetric | P, Q, R on the outputs | D(s), and C along the step |
| ordered | P, Q, R in gradients | E(s), C(s) |
| following | S, T, U on the outputs, where the signal of step r moves step s | E(r), C(r), C(s+1) |
| taylor | S, T, U on the outputs | E(r), C(r), w(s, r) D(s) with r before s |
| nested | S, T, U in gradients | E(r), C(r), w(s, r) E(s) |

Kinds on the outputs begin behind step s; those in gradients enter as the optimizer accumulates them. In
either case the training set absorbs them by a replay of its own.
"""

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.training.many_points.time_bins import TimeBins, WeightedTime
from finitewidth.training.many_points.time_integrals import FIRST_BIN, TimeNode

KINDS = ("fluctuation", "symmetric", "ordered", "following", "taylor", "nested")


@dataclass(frozen=True, eq=False)
class StepNode(TimeNode):
    """A node whose factors are matrices between training samples."""

    kept: float = 1.0  # the share of an effect that reaches a sample by itself at the end
    shares: np.ndarray | None = None  # of the effect that is there at each step, (steps,)


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a descent on the squared error, and draws of sums over them."""

    algorithm: AbstractAlgorithm
    Theta: Float[np.ndarray, "N_A N_A"]
    largest: float  # eigenvalue of Theta

    unit = 1.0

    @functools.cached_property
    def masks(self) -> Float[np.ndarray, "steps N_A"]:
        """The weight of each sample in each step."""
        return self.algorithm.masks(len(self.Theta))[0]

    @property
    def duration(self) -> float:
        """The number of steps."""
        return float(len(self.masks))

    @functools.cached_property
    def weights(self) -> Float[np.ndarray, "ends steps"]:
        """w(t, s), in one row more than steps."""
        steps = len(self.masks)
        return np.stack(self._replay(lambda total, step: np.eye(steps)[step], np.zeros(steps)))

    # --- accumulated matrices -------------------------------------------------------------------------

    @functools.cached_property
    def _signals(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """E: the samples of a batch and their rows."""
        found, one = [], np.eye(len(self.Theta))

        def force(C: np.ndarray, step: int) -> np.ndarray:
            batch = np.flatnonzero(self.masks[step])
            rows = self.masks[step, batch, None] * (one[batch] - self.Theta[batch] @ C)
            found.append((batch, rows))
            return self._spread(batch, rows)

        self._replay(force, np.zeros_like(self.Theta), keep=False)
        return found

    def _spread(self, batch: np.ndarray, rows: np.ndarray) -> np.ndarray:
        whole = np.zeros((len(self.Theta), rows.shape[1]))
        whole[batch] = rows
        return whole

    def signal(self, step: int) -> Float[np.ndarray, "N_A N_A"]:
        """E."""
        return self._spread(*self._signals[step])

    def accumulated(self, step: int) -> Float[np.ndarray, "N_A N_A"]:
        """C before a step."""
        return self._summed(self.weights[step])

    def moved(self, step: int) -> Float[np.ndarray, "N_A N_A"]:
        """D: what a step adds to C."""
        return self._summed(self.weights[step + 1] - self.weights[step])

    def _summed(self, weights: np.ndarray) -> np.ndarray:
        whole = np.zeros_like(self.Theta)
        for step in np.flatnonzero(weights):
            batch, rows = self._signals[step]
            whole[batch] += weights[step] * rows
        return whole

    def response(self, first: int, step: int) -> Float[np.ndarray, "N_A N_A"]:
        """What a step adds to the response to a force of one that begins behind the first step."""
        one = np.eye(len(self.Theta))

        def force(total: np.ndarray, at: int) -> np.ndarray:
            batch = np.flatnonzero(self.masks[at])
            rows = one[batch] - self.Theta[batch] @ total
            return self._spread(batch, self.masks[at, batch, None] * rows)

        start = np.zeros_like(self.Theta)
        before, after = self._replay(force, start, first + 1, step + 1, keep=False)[-2:]
        return after - before

    def absorbed(self, effect: Float[np.ndarray, "N_A k"], shares: Float[np.ndarray, " steps"]) -> np.ndarray:
        """What the optimizer accumulates until the end of an effect on the training outputs, (N_A, k)."""

        def force(total: np.ndarray, step: int) -> np.ndarray:
            return self.masks[step][:, None] * (shares[step] * effect - self.Theta @ total)

        return self._replay(force, np.zeros_like(effect), keep=False)[-1]

    def through(self, ntk: Float[np.ndarray, "N N_A"], H: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The change of mean outputs by a small change H of the mean NTK, (N, k)."""
        count = len(self.Theta)

        def force(both: np.ndarray, step: int) -> np.ndarray:
            c, change = np.split(both, 2, axis=1)
            forces = -y - self.Theta @ c, -H[:count] @ c - self.Theta @ change
            return self.masks[step][:, None] * np.concatenate(forces, axis=1)

        start = np.zeros((count, 2 * y.shape[1]))
        c, change = np.split(self._replay(force, start, keep=False)[-1], 2, axis=1)
        return -H @ c - ntk @ change

    def _replay(self, force, start, first: int = 0, end: int | None = None, *, keep: bool = True) -> list:
        """Sums before each step and at the end; the last two alone without `keep`."""
        algorithm, state, found = self.algorithm, self.algorithm.begin(start), [start]
        for step in range(first, len(self.masks) if end is None else end):
            signal = force(state[0], step)
            state = algorithm.accumulate(state, signal, np.float64(step), algorithm.numbers)
            found = [*(found if keep else found[-1:]), state[0]]
        return found

    # --- drawn steps ----------------------------------------------------------------------------------

    def bins(self, kind: str) -> int:
        """The number of bins of time of a kind."""
        return self.time_bins(kind).count

    def time_bins(self, kind: str) -> TimeBins:
        """The bins of a kind; two different steps leave one step less."""
        two = kind in ("fluctuation", "nested", "taylor")
        return self._bins_until(self.duration - two)

    def _bins_until(self, span: float) -> TimeBins:
        rate = self.weights[-1].max(initial=0.0) * self.masks.mean()
        return TimeBins(span, FIRST_BIN / max(self.largest * rate, 1 / self.duration))

    def node(self, kind: str, index: int, fractions: np.ndarray) -> StepNode:
        """A node of the sum of a kind in one bin of time."""
        time, weight = self.time_bins(kind).in_bin(index, fractions[0])
        step = _whole(time)
        match kind:
            case "fluctuation":
                return self._fluctuation(step, weight, fractions[1])
            case "symmetric":
                e = self.moved(step)
                a = self.accumulated(step) + (time - step) * e
                return self._node(weight, e, a, a, behind=step)
            case "ordered":
                e, a = self.signal(step), self.accumulated(step)
                return StepNode(weight, 0.0, e, a, a, 0.0, False, *self._in_gradients(step))
            case "following":
                return self._following(step, weight, fractions[1])
        return self._two_steps(kind, step + 1, weight, fractions[1])

    def _fluctuation(self, first: int, weight: float, fraction: float) -> StepNode:
        drawn = self._bins_until(self.duration - 1 - first).in_span(fraction)
        step = first + 1 + _whole(drawn.time)
        e, a = self.response(first, step), self.moved(first)
        return self._node(weight * drawn.weight, e, a, a, behind=step)

    def _following(self, first: int, weight: float, fraction: float) -> StepNode:
        """By how much the weight of the first step grows in later ones, one of which is drawn."""
        growth = np.diff(self.weights[first:, first])
        chances = np.cumsum(np.abs(growth))
        after = min(int(np.searchsorted(chances, fraction * chances[-1])), len(growth) - 1)
        step, sign = first + after, np.sign(growth[after])
        e, a, b = self.signal(first), self.accumulated(first), self.accumulated(step + 1)
        return self._node(weight * sign * chances[-1], e, a, b, behind=step)

    def _two_steps(self, kind: str, step: int, weight: float, fraction: float) -> StepNode:
        drawn: WeightedTime = self._bins_until(float(step)).in_span(fraction)
        first = _whole(drawn.time)
        e, a, weight = self.signal(first), self.accumulated(first), weight * drawn.weight
        factor = self.weights[step, first]
        if kind == "taylor":
            return self._node(weight, e, a, factor * self.moved(step), behind=step)
        b = factor * self.signal(step)
        return StepNode(weight, 0.0, e, a, b, 0.0, True, *self._in_gradients(step))

    def _node(self, weight: float, e, a, b, *, behind: int) -> StepNode:
        """An effect on all outputs that begins behind a step."""
        shares = (np.arange(len(self.masks)) > behind).astype(float)
        return StepNode(weight, 0.0, e, a, b, 0.0, False, 1.0, shares)

    def _in_gradients(self, step: int) -> tuple[float, np.ndarray]:
        """What the optimizer makes of a signal of a step, at the end and at each step."""
        weights = self.weights[:, step]
        return float(weights[-1]), weights[:-1]


def _whole(time: float) -> int:
    return int(np.floor(time + 1e-9))
