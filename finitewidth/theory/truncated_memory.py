r"""The memory of neurons carried from layer to layer: skip connections at a cost that grows as the depth.

The sum over pairs of source layers (`streams.py`) asks for averages of four legs in two layers. Here the
noise of earlier layers, as it answers in layer l, is kept by its averages with Wick monomials of the neuron,
$A_{ab;cd} = \langle a_{ab}\, he_i(x_{cd})\, he_j(y_{cd}) \rangle$ for every feature a. A layer adds its own
and a skip moves them, with M = gamma^2 + L and L the maps of dense layers:

$$A' = \gamma^t\, T\, [M A + \Theta^t \Psi], \qquad
  N' = M N M^T + \langle\Psi\Psi\rangle + (M A)\Psi^T + \Psi (M A)^T,$$

with t ties of Theta, averages $\Psi$ of a layer's own features with monomials, and N the tensors without
their bare terms. Monomials of all degrees exist; those beyond `degree` are left out. How much that is, is
estimated from what the last degrees add, two at a time: odd activations give every second degree only.

Skips may lead over several layers: rows and columns of N are then moved separately behind the place where the
skip starts. Skips within skips are not treated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.wick import Axes, Orders, monomials, of_degree, projections, transported
from finitewidth.network.ladder import Ladder
from finitewidth.theory.feature_products import FourLegs, tie
from finitewidth.theory.features import created, feature_maps
from finitewidth.theory.layers.pair_map import Feature
from finitewidth.theory.recursion import (
    Blocks,
    SelfInteraction,
    State,
    corrections,
    created_blocks,
    exchanged,
    moved_rows,
    propagate,
)
from finitewidth.theory.steps import Step
from finitewidth.theory.tensors import SHAPES

Rows = dict[tuple[str, frozenset[str]], np.ndarray]  # by feature and ties, (N, N, monomial, N^2)
_SLOWEST = 0.9  # ratio of the series in the degree that is believed
_OTHERS: tuple[Orders, ...] = ((1, 0), (2, 1), (1, 2))  # pairs of orders besides those of a step's averages


def ties_of(row: str, column: str) -> frozenset[str]:
    """The ties of a block, as its row sees them."""
    for shape in SHAPES.values():
        if (shape.row, shape.column) == (row, column):
            return frozenset("".join(sorted(pair)) for pair in shape.ties)
    swapped = str.maketrans("abcd", "cdab")
    return frozenset("".join(sorted(pair.translate(swapped))) for pair in ties_of(column, row))


SYMMETRIC = [(shape.row, shape.column) for shape in SHAPES.values()]
BLOCKS = [*SYMMETRIC, *((c, r) for r, c in SYMMETRIC if r != c)]  # every block, also seen from its columns
TIED = {key: (key[0], ties_of(*key)) for key in BLOCKS}  # the memory that a block's row is
_USUAL_TIES = {name: ties_of(name, column) for name, column in reversed(SYMMETRIC)}
_TIES_WITH_P = ties_of("b", "p")  # of b where its column is p


def memory_size(degree: int) -> int:
    """Arrays of N^4 numbers that the memory of one layer takes, as it is, moved and where a skip starts."""
    return 5 * len(set(TIED.values())) * len(monomials(degree))


# --- the memory of neurons -------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """What neurons of a stream remember: averages of earlier noise with monomials at its last layer."""

    axes: Axes  # of the layer that the monomials belong to
    degree: int
    rows: Rows  # noise as the present layer answers to it; empty where nothing is remembered

    def lifted(self, step: Step) -> "Memory":
        """The same noise as the next layer answers to it through its weights."""
        usual = {name: block for (name, ties), block in self.rows.items() if ties == _USUAL_TIES[name]}
        with_p = {name: block for (name, ties), block in self.rows.items() if ties != _USUAL_TIES[name]}
        rows: Rows = {}
        for maps in feature_maps(step):
            for arrays in (usual, with_p):
                for name, sources in maps.items():
                    if name in arrays:
                        ties = _USUAL_TIES[name] if arrays is usual else _TIES_WITH_P
                        parts = (m.of_rows(arrays[old]) for old, m in sources.items())
                        rows[name, ties] = sum(parts)  # type: ignore[assignment]
        return replace(self, rows=rows)

    def plus(self, other: "Memory", factor: float = 1.0) -> "Memory":
        """The sum, with a factor on the other."""
        total = dict(self.rows)
        for key, block in other.rows.items():
            total[key] = total[key] + factor * block if key in total else factor * block
        return replace(self, rows=total)

    def behind_a_skip(self, gamma: float, K: np.ndarray) -> "Memory":
        """The averages with monomials at the end of a skip, where the kernel is K."""
        axes = Axes.of(K)
        R = axes.behind_a_skip(gamma, self.axes)
        moves = [transported(R, m).reshape(m + 1, m + 1, -1) for m in range(self.degree + 1)]
        rows = {}
        for (name, ties), block in self.rows.items():
            parts = [
                np.einsum("nqc,abqc->abnc", move, block[:, :, of_degree(m)]) for m, move in enumerate(moves)
            ]
            rows[name, ties] = gamma ** len(ties) * np.concatenate(parts, axis=2)
        return Memory(axes, self.degree, rows)

    def with_noise(self, noise: Mapping[str, np.ndarray], size: int) -> Blocks:
        """<remembered row times a column of other noise> with the first monomials, labels a b c d."""
        count = len(self.axes.K)
        blocks: Blocks = {}
        for (row, column), key in TIED.items():
            if key in self.rows and column in noise:
                seen = noise[column].reshape(count**2, -1)[:, :size]
                block = np.einsum("abmc,cm->abc", self.rows[key][:, :, :size], seen)
                blocks[row, column] = block.reshape((count,) * 4)
        return blocks


def fresh(axes: Axes, Theta: np.ndarray, noise: Mapping[str, np.ndarray], degree: int) -> Memory:
    """What neurons will remember of a layer's own noise."""
    R, count = axes.between_pairs(), len(Theta)
    names = list(noise)
    stacked = np.stack([noise[name] for name in names])
    parts = []
    for m in range(degree + 1):
        T = transported(R, m)  # (new, old, c, d, a, b)
        parts.append(np.einsum("nqcdab,fabq->fabncd", T, stacked[..., of_degree(m)], optimize=True))
    averages = dict(zip(names, np.concatenate(parts, axis=3), strict=True))
    rows: Rows = {}
    for name, ties in TIED.values():
        if (name, ties) not in rows and name in averages:
            block = averages[name]
            for first, second in sorted(ties):
                block = block * tie(Theta, first, second)[:, :, None]
            rows[name, ties] = block.reshape(count, count, -1, count**2)
    return Memory(axes, degree, rows)


def _noise(step: Step, averages: Mapping[Orders, np.ndarray]) -> dict[str, np.ndarray]:
    """Averages of a layer's features with monomials, (N, N, monomial) each; covariances where centred."""
    noise = {name: _averaged(feature, averages) for name, feature in created(step).items()}
    for name in "vx":
        noise[name][..., 0] = 0.0
    return noise


def _averaged(feature: Feature, averages: Mapping[Orders, np.ndarray]) -> np.ndarray:
    total = 0.0
    for ((_, first), (_, second)), coefficient in feature.items():
        total = total + np.asarray(coefficient)[..., None] * averages[first, second]
    return np.asarray(total)


def _bare(axes: Axes, degree: int) -> dict[str, np.ndarray]:
    """Bare pairs: z_c z_d in v, z_d in f and 1 in b."""
    places = {pair: place for place, pair in enumerate(monomials(degree))}
    bare = {name: np.zeros((*axes.K.shape, len(places))) for name in "vfb"}
    bare["v"][..., places[2, 0]] = np.sqrt(2) * axes.first * axes.along
    bare["v"][..., places[1, 1]] = axes.first * axes.across
    bare["f"][..., places[1, 0]], bare["f"][..., places[0, 1]] = axes.along, axes.across
    bare["b"][..., 0] = 1.0
    return bare


def _own(past: Memory, averages: Mapping[Orders, np.ndarray], size: int) -> SelfInteraction:
    """What a neuron adds to the corrections of means by acting on itself, see `streams.self_interaction`."""
    count = len(past.axes.K)
    index = np.arange(count)
    a, b = index[:, None], index[None, :]
    v, x, f = (past.rows[name, _USUAL_TIES[name]].reshape(count, count, -1, count, count) for name in "vxf")

    def correlated(remembered: np.ndarray, orders: Orders) -> np.ndarray:
        return (remembered[..., :size] * averages[orders][..., :size]).sum(axis=-1)

    def response(first: Orders, both: Orders) -> np.ndarray:
        on_first = correlated(v[a, a, :, a, b], first)
        return (on_first + on_first.T) / 2 + correlated(v[a, b, :, a, b], both)

    def exchanged_pair(remembered: np.ndarray, orders: Orders) -> np.ndarray:
        """The legs on the pair (b a), so that the tie of f is that of a and b."""
        return (remembered[..., :size] * averages[orders].swapaxes(0, 1)[..., :size]).sum(axis=-1)

    tied = exchanged_pair(f[a, a, :, b, a], (1, 2)) + exchanged_pair(f[a, b, :, b, a], (2, 1))
    kernel = correlated(x[a, b, :, a, b], (1, 1))
    return SelfInteraction(response((2, 0), (1, 1)), response((3, 1), (2, 2)), kernel + tied + tied.T)


# --- the layers ------------------------------------------------------------------------------------


class _Read(NamedTuple):
    """A layer of a stream that an activation reads: its noise, and what its neurons remember."""

    averages: Mapping[Orders, np.ndarray]  # of two legs with monomials
    noise: Mapping[str, np.ndarray]  # of features with monomials
    past: Memory  # as this layer answers to it
    lifted: Memory  # as the next one does


class _Layer(NamedTuple):
    """What layer l gives to the next: sources, what is remembered there, and its noise within a stream."""

    sources: Blocks
    above: Memory
    read: _Read | None = None


class _Truncated:
    """The tensors from layer to layer with a number of monomials; 1/n of the layers that made them inside."""

    def __init__(self, ladder: Ladder, first: Step, size: int):
        self.ladder, self.size = ladder, size
        self.now: Blocks = {}
        self.start: Blocks = {}  # where the stream is, at or below the present layer
        self.between: Blocks = {}  # rows in the present layer, columns where the stream is
        self.state = State.first_layer(first.below)
        self.means = [np.zeros((2, *first.K.shape))]  # G1 and H1

    def advance(self, layer: int, step: Step, given: _Layer, starts: bool) -> None:
        """From layer l to layer l + 1; a skip may start in layer l and one may end in layer l + 1."""
        self._correct_means(layer, step, given.read)
        width, skip, read = self.ladder.widths[layer], self.ladder.skips[layer], given.read
        now = _propagated(self.now, step)
        _add(now, {key: block / width for key, block in given.sources.items()})
        if read is not None:
            correlated = _sum_both_ways(read.lifted.with_noise(read.noise, self.size))
            _add(now, {key: block / width for key, block in correlated.items()})
        self.between = _moved(_both_ways(self.now) if starts else self.between, step)
        if starts and read is not None:
            self.start = self.now
            correlated = read.past.with_noise(read.noise, self.size)
            _add(self.between, {(c, r): exchanged(block) / width for (r, c), block in correlated.items()})
        if skip is not None:
            two = skip.gamma**2
            _add(now, {key: two * block for key, block in _sum_both_ways(self.between).items()})
            _add(now, {key: two**2 * block for key, block in self.start.items()})
        self.now = now
        stripped = {key: width * block for key, block in now.items()}
        G1, H1 = self.means[-1][0], self.means[-1][1]
        self.state = State(*step.above, G1, H1, stripped)

    def _correct_means(self, layer: int, step: Step, read: _Read | None) -> None:
        widths, skip, own = self.ladder.widths, self.ladder.skips[layer], SelfInteraction()
        if read is not None and read.past.rows:
            weight = widths[layer - 1] / widths[layer]
            own = SelfInteraction(*(weight * term for term in _own(read.past, read.averages, self.size)))
        G1, H1 = corrections(self.state, step, own)
        assert G1 is not None and H1 is not None  # activations are smooth
        means = np.stack([G1, H1])
        if skip is not None:
            carried = widths[layer] / widths[skip.source - 1] * self.means[skip.source - 1]
            means = means + skip.gamma**2 * carried
        self.means.append(means)


def _sum_both_ways(blocks: Blocks) -> Blocks:
    """Rows with columns and columns with rows."""
    total = {key: blocks[key] for key in SYMMETRIC if key in blocks}
    _add(total, {(r, c): exchanged(blocks[c, r]) for r, c in SYMMETRIC if (c, r) in blocks})
    return total


def _add(total: Blocks, parts: Blocks) -> None:
    for key, block in parts.items():
        total[key] = total[key] + block if key in total else block


def _both_ways(blocks: Blocks) -> Blocks:
    return blocks | {(c, r): exchanged(block) for (r, c), block in blocks.items() if r != c}


def _moved(blocks: Blocks, step: Step) -> Blocks:
    """Rows moved to the next layer."""
    result: Blocks = {}
    for maps in feature_maps(step):
        result |= {key: block for key, block in moved_rows(blocks, maps).items() if key in blocks}
    return result


def _propagated(blocks: Blocks, step: Step) -> Blocks:
    """Rows and columns moved to the next layer."""
    result: Blocks = {}
    for maps in feature_maps(step):
        result |= propagate({key: block for key, block in blocks.items() if key[0] in maps}, maps)
    return result


class TruncatedStreams:
    """The statistics of one layer after the other; `degree` is the largest number of lines that is kept."""

    def __init__(self, ladder: Ladder, steps: Sequence[Step], degree: int):
        self.ladder, self.steps, self.degree = ladder, steps, degree
        skips = [(skip.source, end) for end, skip in enumerate(ladder.skips, start=1) if skip is not None]
        self.starts = {start for start, _ in skips}
        self.inside = {layer for start, end in skips for layer in range(start + 1, end)}  # bodies
        self.error = 0.0  # of averages with monomials
        self.left_out: dict[int, float] = {1: 0.0}  # by layer: what higher degrees would add, see `_left_out`

    def states(self, averages: Iterator[FourLegs]) -> Iterator[State]:
        """Layer 1, 2, ... with all their statistics, from the four-leg averages of each."""
        sizes = (len(monomials(self.degree - fewer)) for fewer in (0, 2, 4))
        courses = [_Truncated(self.ladder, self.steps[0], size) for size in sizes]
        past = present = self._forgotten(self.steps[0].K)
        yield courses[0].state
        for layer, step in enumerate(self.steps, start=1):
            starts, skip = layer in self.starts, self.ladder.skips[layer]
            given = self._given(layer, step, next(averages), present)
            for course in courses:
                course.advance(layer, step, given, starts)
            past = present if starts else past
            present = given.above
            if skip is not None:
                together = present.plus(past, skip.gamma**2)
                present = together.behind_a_skip(skip.gamma, step.above.K)
            elif layer + 1 not in self.inside:
                present = self._forgotten(step.above.K)
            states = [course.state for course in courses]
            if present.rows and layer + 1 not in self.inside:
                bare = self._bare_blocks(layer + 1, present)
                states = [_with(state, bare) for state in states]
            self.left_out[layer + 1] = _left_out(states)
            yield states[0]

    def _forgotten(self, K: np.ndarray) -> Memory:
        return Memory(Axes.of(K), self.degree, {})

    def _given(self, layer: int, step: Step, averages: FourLegs, present: Memory) -> _Layer:
        """What layer l gives to the next: bodies are no part of the stream, and their noise is its own."""
        sources, lifted = created_blocks(step, averages), present.lifted(step)
        if layer in self.inside or not (present.rows or layer in self.starts):
            return _Layer(sources, lifted)
        projected, error = projections(step.activation, present.axes, _known(step), _OTHERS, self.degree)
        self.error, noise = max(self.error, error), _noise(step, projected)
        above = lifted
        if layer in self.starts:
            above = lifted.plus(fresh(present.axes, step.Theta, noise, self.degree))
        return _Layer(sources, above, _Read(projected, noise, present, lifted))

    def _bare_blocks(self, layer: int, present: Memory) -> Blocks:
        """What is remembered with the bare pairs of the layer."""
        widths, bare = self.ladder.widths, _bare(present.axes, self.degree)
        correlated = _sum_both_ways(present.with_noise(bare, len(monomials(self.degree))))
        return {key: widths[layer - 1] / widths[layer] * block for key, block in correlated.items()}


def _left_out(states: Sequence[State]) -> float:
    """What further degrees would add to a statistic, relative to its largest entry.

    From what the last two degrees and the two before add; a geometric series goes on behind them.
    """
    worst = 0.0
    for whole, short, shorter in zip(*(_arrays(state) for state in states), strict=True):
        scale = float(np.abs(whole).max())
        if scale > 0:
            last, before = (float(np.abs(a - b).max()) for a, b in ((whole, short), (short, shorter)))
            ratio = min(last / before, _SLOWEST) if before > 0 else 0.0
            worst = max(worst, last / scale * max(1.0, ratio / (1 - ratio)))
    return worst


def _arrays(state: State) -> list[np.ndarray]:
    assert state.G1 is not None and state.H1 is not None  # activations are smooth
    return [state.G1, state.H1, *state.blocks.values()]


def _known(step: Step) -> dict[Orders, np.ndarray]:
    """Averages of a step that those with monomials must agree with."""
    m = step.moments
    assert m.leading is not None and m.third is not None and m.slope.gradient is not None
    both = m.slope.gradient.both
    assert both is not None
    return {(0, 0): m.sigma.value, (1, 1): m.slope.value, (2, 0): m.leading, (3, 1): m.third, (2, 2): both}


def _with(state: State, extra: Blocks) -> State:
    blocks = dict(state.blocks)
    _add(blocks, extra)
    return replace(state, blocks=blocks)
