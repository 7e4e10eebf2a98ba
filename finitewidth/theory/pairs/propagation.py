r"""The way through a network at infinite width: K and Theta of pairs of inputs, block by block.

$$K' = C_b + C_W \langle\sigma\sigma\rangle_K, \qquad
  \Theta' = \lambda_b + \lambda_W \langle\sigma\sigma\rangle_K + C_W\, \Theta \langle\sigma'\sigma'\rangle_K$$

(PDLT chapters 4 and 8). A pair of samples needs only its own sites and what layers measure of single samples,
such as variances. So first each sample is met with itself, and then the whole network is run within a block
of pairs that stays in cache. Memory is that of the result, whatever the number of positions.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.inputs import input_numbers
from finitewidth.gaussian.two_legs.expectation import AbstractExpectation
from finitewidth.gaussian.two_legs.legs import Legs, Side
from finitewidth.gaussian.two_legs.series_legs import widest_variance
from finitewidth.network.network import Network
from finitewidth.theory.layers.activation import ActivationStep
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Chain, Counter
from finitewidth.theory.layers.sites import Displacements, Pairs
from finitewidth.theory.pairs.samples import INPUTS, Samples, require_finite, share
from finitewidth.theory.pairs.sizes import Tile, block_sizes, tiles

Matrices = tuple[np.ndarray, np.ndarray | None]  # K and Theta
_PARALLEL = 4e-15  # 1 - correlation^2 below which sites are equal but for rounding: patches of images are


@dataclass
class PairBlock(AbstractBlock):
    """A block of pairs of different samples, (D, P, A, B)."""

    through: "Propagation"
    tile: Tile
    kept: dict[int, Matrices] = field(default_factory=dict)

    def __post_init__(self):
        self.rule = self.through.rule
        self.equal = self.through.equal(self.tile)

    def sides(self, step: AbstractStep, pairs: Pairs) -> tuple[Side, Side]:
        first, second = self.through.legs(step, self.tile)  # type: ignore[arg-type]
        partners = pairs.grid.partners(pairs.displacements)
        return (
            Side(first, lambda values: values[..., None, :, :, None]),
            Side(second, lambda values: values[..., partners, :][..., None, :]),
        )

    def of_samples(self, step: AbstractStep) -> tuple[np.ndarray, np.ndarray]:
        assert step.slot is not None
        rows, columns = self.through.samples
        return (
            rows.measured[step.slot][..., self.tile.rows, None],
            columns.measured[step.slot][..., None, self.tile.columns],
        )

    def of_sites(self, step: AbstractStep, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = self.of_samples(step)
        return rows[None], columns[pairs.grid.partners(pairs.displacements)]

    def same(self, pairs: Pairs) -> np.ndarray | None:
        if self.equal is None or pairs.grid.zero not in pairs.displacements:
            return None
        marks = np.zeros((len(pairs.displacements), 1, *self.equal.shape), dtype=bool)
        marks[pairs.displacements.index(pairs.grid.zero)] = self.equal
        return marks

    def record(self, layer: int, pairs: Pairs) -> None:
        """The mean over positions, as if the layer were flattened."""
        if layer not in self.through.kept or pairs.grid.zero not in pairs.displacements:
            return
        place = pairs.displacements.index(pairs.grid.zero)
        Theta = None if pairs.Theta is None else pairs.Theta[place].mean(axis=0)
        self.kept[layer] = pairs.K[place].mean(axis=0), Theta


class Propagation:
    """Kernel and NTK of all pairs of two sets of inputs, at the layers that are kept, block by block."""

    def __init__(
        self,
        net: Network,
        X: np.ndarray,
        X_other: np.ndarray | None,
        rule: AbstractExpectation,
        kept: Sequence[int],
    ):
        self.net, self.rule, self.kept = net, rule, frozenset(kept)
        self.has_ntk = net.discontinuous is None
        self.chain = Chain.of(net.layers, net.input_shape, Counter())
        self.symmetric = X_other is None
        other = X if X_other is None else X_other
        rows = Samples(X, self.chain.grid)
        self.samples = (rows, rows if X_other is None else Samples(other, self.chain.grid))
        self.numbers = input_numbers(X, X_other)
        self.end = self._end()
        self.sizes = block_sizes(self.chain, X.shape[0], other.shape[0])
        self._legs: dict[tuple, Legs] = {}
        self._widest_of: dict[AbstractStep, float] = {}  # the largest variance, rounded up
        self._lock = threading.Lock()
        self.sampling_error = 0.0  # of averages over draws, so far
        with np.errstate(over="ignore", invalid="ignore"), SingleThreadedProducts():
            for samples in self.samples[: 1 if self.symmetric else 2]:
                samples.measure(self.chain, self.end, rule, self.sizes.budget)
            share(*self.samples, self.numbers)

    def _end(self) -> int:
        """The number of steps up to the last layer that is kept."""
        last = max(self.kept)
        numbers = enumerate(self.chain.numbers, start=1)
        return next(place for place, number in numbers if number is not None and number >= last)

    def legs(self, step: ActivationStep, tile: Tile) -> tuple[Legs, Legs]:
        """The legs along rows and columns of a tile, in front of an activation."""
        variances = [samples.measured[step.slot] for samples in self.samples]
        orders = step.orders if self.has_ntk else ((0, 0),)
        made = []
        for side, part in ((0, tile.rows), (0 if self.symmetric else 1, tile.columns)):
            key = (step, side, part[0], part.size)
            with self._lock:
                if key not in self._legs:
                    while len(self._legs) >= self.sizes.legs_kept:
                        del self._legs[next(iter(self._legs))]
                    chosen = variances[side][..., part]
                    widest = self._widest(step, variances)
                    legs = self.rule.legs(step.activation, chosen, orders, widest=widest)
                    self._legs[key] = legs.with_rounding(_PARALLEL if self.chain.grid.shape else 0.0)
                made.append(self._legs[key])
        return made[0], made[1]

    def _widest(self, step: ActivationStep, variances: list[np.ndarray]) -> float:
        if step not in self._widest_of:
            self._widest_of[step] = widest_variance(step.activation, *variances)
        return self._widest_of[step]

    def equal(self, tile: Tile) -> np.ndarray | None:
        """Marks pairs of equal inputs within a tile, (A, B); None if there are none."""
        marks = self.numbers[0][tile.rows][:, None] == self.numbers[1][tile.columns][None, :]
        return marks if marks.any() else None

    @property
    def tiles(self) -> list[Tile]:
        """The blocks of pairs; of a symmetric matrix those on and above the diagonal."""
        return list(tiles(self.samples[0].count, self.samples[1].count, self.sizes, self.symmetric))

    @np.errstate(over="ignore", invalid="ignore")
    def block(self, tile: Tile) -> tuple[dict[int, Matrices], float]:
        """K and Theta of one tile at the layers that are kept, and the largest error of an average."""
        block = PairBlock(self, tile)
        self._behind(self.end, (self.chain.steps[self.end - 1].behind.zero,), block)
        with self._lock:
            self.sampling_error = max(self.sampling_error, block.sampling_error)
        return block.kept, block.error

    def _behind(self, end: int, wanted: Displacements, block: PairBlock) -> Pairs:
        """The pairs behind the first `end` steps.

        Where a layer adds different displacements, those in front of it come in chunks that stay in cache.
        """
        mixing = [place for place, step in enumerate(self.chain.steps[:end]) if step.mixes]
        start = mixing[-1] + 1 if mixing else 0
        front = self.chain.asked(wanted, start, end)[0]
        if not mixing:
            return self.chain.apply(self._inputs(front, block), wanted, block, start, end)
        step = self.chain.steps[mixing[-1]]
        chunks = (self._behind(mixing[-1], chunk, block) for chunk in self._chunks(step, step.asks(front)))
        shape = (block.tile.rows.size, block.tile.columns.size)
        pairs = step.gathered(chunks, front, shape, self.has_ntk)  # type: ignore[attr-defined]
        return self.chain.apply(pairs, wanted, block, start, end)

    def _chunks(self, step: AbstractStep, asked: Displacements) -> Iterator[Displacements]:
        size = max(1, self.sizes.budget // (step.grid.size * self.sizes.rows * self.sizes.columns))
        for start in range(0, len(asked), size):
            yield asked[start : start + size]

    def _inputs(self, displacements: Displacements, block: PairBlock) -> Pairs:
        grid, tile, equal, (first, second) = self.chain.grid, block.tile, block.equal, self.samples
        K = first.products(tile.rows, second, tile.columns, grid.partners(displacements))
        if equal is not None and grid.zero in displacements:
            place = displacements.index(grid.zero)
            K[place] = np.where(equal, first.measured[INPUTS][:, tile.rows, None], K[place])
        return Pairs(grid, displacements, K, np.zeros(K.shape) if self.has_ntk else None)

    def matrices(self) -> tuple[dict[int, Matrices], float]:
        """K and Theta of all pairs at the layers that are kept, and the largest error of an average."""
        collected = Collected(self)
        for tile, (blocks, error) in _on_all_cores(self.block, self.tiles):
            collected.add(tile, blocks, error)
        return collected.finished(), collected.error


def first_layer(net: Network, X: np.ndarray, rule: AbstractExpectation) -> tuple[np.ndarray, np.ndarray]:
    """K and Theta of the first layer."""
    K, Theta = Propagation(net, X, None, rule, (1,)).matrices()[0][1]
    assert Theta is not None
    return K, Theta


class Collected:
    """The matrices of the layers that are kept, filled tile by tile."""

    def __init__(self, through: Propagation):
        self.through, self.error = through, 0.0
        shape = tuple(samples.count for samples in through.samples)
        count = 1 + through.has_ntk
        self.layers = {layer: [np.empty(shape) for _ in range(count)] for layer in through.kept}

    def add(self, tile: Tile, blocks: dict[int, Matrices], error: float) -> None:
        """Write the blocks of a tile where they belong, and mirror them."""
        self.error = max(self.error, error)
        rows, columns = tile.inside(*(samples.count for samples in self.through.samples))
        for layer, matrices in self.layers.items():
            for matrix, values in zip(matrices, blocks[layer], strict=False):
                part = values[: rows.size, : columns.size]  # type: ignore[index]
                matrix[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = part
                if self.through.symmetric:
                    _mirror(matrix, rows, columns)

    def finished(self) -> dict[int, Matrices]:
        """All matrices, or an error where a number is too large."""
        for layer, (K, *Theta) in self.layers.items():
            require_finite(K, f"the kernel of layer {layer}", "scale X or C_W down")
            for matrix in Theta:
                require_finite(matrix, f"the NTK of layer {layer}", "scale X, C_W or lambda_W down")
        return {layer: (*matrices, None)[:2] for layer, matrices in self.layers.items()}  # type: ignore[misc]


def _mirror(matrix: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    """Copy what stands above the diagonal in this block to below it."""
    block = matrix[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    above = columns[None, :] >= rows[:, None]
    if above.all():
        matrix[columns[0] : columns[-1] + 1, rows[0] : rows[-1] + 1] = block.T
    else:
        i, j = np.nonzero(above)
        matrix[columns[j], rows[i]] = block[i, j]


def _on_all_cores(work, tasks: list[Tile]):
    """A few tiles are done one after the other: their compiled loops already use all cores."""
    with SingleThreadedProducts():  # threads that wait for the next product would disturb the tiles
        if len(tasks) <= 3:
            yield from ((task, work(task)) for task in tasks)
            return
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            yield from zip(tasks, pool.map(work, tasks), strict=True)
