r"""The way through a network at infinite width: K and Theta of pairs of inputs, block by block.

$$K' = C_b + C_W \langle\sigma\sigma\rangle_K, \qquad
  \Theta' = \lambda_b + \lambda_W \langle\sigma\sigma\rangle_K + C_W\, \Theta \langle\sigma'\sigma'\rangle_K$$

(PDLT chapters 4 and 8). A pair of samples needs only its own sites and what layers measure of single samples,
such as variances. So each sample is paired with itself first. Then the whole network is run within a block of
pairs that stays in cache. Memory is that of the result, whatever the number of positions.
"""

import functools
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.cores import SingleThreadedProducts, on_all_cores
from finitewidth.core.display.progress import Progress, progress
from finitewidth.core.inputs import input_numbers
from finitewidth.gaussian.two_legs.averages import prepared_legs
from finitewidth.gaussian.two_legs.closed_averages import ROUNDING
from finitewidth.gaussian.two_legs.legs import Legs, Side
from finitewidth.gaussian.two_legs.series_legs import widest_variance
from finitewidth.network.network import Network
from finitewidth.theory.layers.activation import ActivationStep
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Assembly, BlockShape, Chain
from finitewidth.theory.layers.sites import Displacements, Pairs
from finitewidth.theory.layers.workspace import Workspace
from finitewidth.theory.pairs.block_sizes import Tile, block_sizes, tiles
from finitewidth.theory.pairs.closed_chain import ClosedChain, closed_chain
from finitewidth.theory.pairs.samples import INPUTS, Samples, require_finite, share

Matrices = tuple[np.ndarray, np.ndarray | None]  # K and Theta
_LEGS = 1 << 26  # bytes of tables of legs
_PARALLEL = 4e-15  # 1 - correlation^2 below which sites are equal but for rounding: patches of images are


@dataclass
class PairBlock(AbstractBlock):
    """A block of pairs of different samples, (D, P, A, B)."""

    through: "Propagation"
    tile: Tile
    kept: dict[int, Matrices] = field(default_factory=dict)

    def __post_init__(self):
        self.workspace = self.through.workspace
        self.equal = self.through.equal(self.tile)

    def sides(self, step: AbstractStep, pairs: Pairs) -> tuple[Side, Side]:
        (first, rows), (second, columns) = self.through.legs(step, self.tile)  # type: ignore[arg-type]
        partners = pairs.grid.partners(pairs.displacements)
        return Side(first, rows), Side(second, columns, partners, along_columns=True)

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
        Theta = None if pairs.Theta is None else _mean(pairs.Theta[place])
        self.kept[layer] = _mean(pairs.K[place]), Theta


def _mean(image: np.ndarray) -> np.ndarray:
    """The mean over positions, in an array of its own."""
    return image[0].copy() if len(image) == 1 else image.mean(axis=0)


@functools.lru_cache(maxsize=64)
def _chain(net: Network) -> Chain:
    return Chain.of(net.layers, net.input_shape, Assembly())


@functools.lru_cache(maxsize=64)
def _closed_chain(net: Network, end: int) -> ClosedChain | None:
    return closed_chain(_chain(net).steps[:end])


class Propagation:
    """Kernel and NTK of all pairs of two sets of inputs, at the layers that are kept, block by block."""

    def __init__(
        self,
        net: Network,
        X: np.ndarray,
        X_other: np.ndarray | None,
        accuracy: float,
        kept: Sequence[int],
        *,
        distinct: bool = False,  # whether all inputs are known to differ
    ):
        self.net, self.accuracy, self.kept = net, accuracy, frozenset(kept)
        self.has_ntk = net.discontinuous is None
        self.chain = _chain(net)
        self.symmetric = X_other is None
        other = X if X_other is None else X_other
        rows = Samples(X, self.chain.grid)
        self.samples = (rows, rows if X_other is None else Samples(other, self.chain.grid))
        order = np.arange(len(X))
        self.numbers = (order, order) if distinct else input_numbers(X, X_other)
        self.all_differ = self.symmetric and bool((np.diff(self.numbers[0]) > 0).all())
        self.end = self._end()
        self.sizes = block_sizes(self.chain, X.shape[0], other.shape[0], self.symmetric)
        self._legs: dict[tuple, Legs] = {}
        self._widest_of: dict[tuple, float] = {}  # the largest variance, rounded up
        self._lock = threading.Lock()
        self.sampling_error = 0.0  # of averages over draws, so far
        self._of_thread = threading.local()
        self.closed = self._closed()
        self._variances: list[np.ndarray] = []  # of both sets of samples, (S, N) each, on the closed way
        with np.errstate(over="ignore", invalid="ignore"), SingleThreadedProducts():
            if not (self.closed and self._measure_closed(self.closed)):
                self.closed = None
                self._measure()

    def _closed(self) -> ClosedChain | None:
        """The compiled pass through all layers, if there is one."""
        if self.chain.grid.shape or not self.has_ntk or len(self.kept) > 1:
            return None
        return _closed_chain(self.net, self.end)

    def _measure(self) -> None:
        """Pair samples with themselves."""
        for samples in self.samples[: 1 if self.symmetric else 2]:
            samples.measure(self.chain, self.end, self.accuracy, self.sizes.budget)
        share(*self.samples, self.numbers)

    def _measure_closed(self, closed: ClosedChain) -> bool:
        """The same on the closed way; whether all variances are finite."""
        for samples in self.samples[: 1 if self.symmetric else 2]:
            samples.measured = {
                INPUTS: samples.diagonal_pairs(slice(None), (samples.grid.zero,)).K[0, :, :, 0]
            }
        share(*self.samples, self.numbers)
        self._variances = [closed.variances(samples.measured[INPUTS][0]) for samples in self.samples]
        return all(np.isfinite(part).all() for part in self._variances)

    @property
    def workspace(self) -> Workspace:
        """The arrays of this thread."""
        if not hasattr(self._of_thread, "workspace"):
            self._of_thread.workspace = Workspace()
        return self._of_thread.workspace

    def _end(self) -> int:
        """The number of steps up to the last layer that is kept."""
        last = max(self.kept)
        numbers = enumerate(self.chain.numbers, start=1)
        return next(place for place, number in numbers if number is not None and number >= last)

    def legs(self, step: ActivationStep, tile: Tile) -> list[tuple[Legs, slice]]:
        """The legs in front of an activation, along rows and along columns, and the tile's part of them."""
        size = self.sizes.legs
        made = []
        for side, part in ((0, tile.rows), (0 if self.symmetric else 1, tile.columns)):
            start = part.start - part.start % size
            legs = self._legs_of(step, side, slice(start, start + size))
            made.append((legs, slice(part.start - start, part.stop - start)))
        return made

    def _legs_of(self, step: ActivationStep, side: int, part: slice) -> Legs:
        key = (step.slot, step.orders, side, part.start)
        with self._lock:
            if key not in self._legs:
                variances = [samples.measured[step.slot] for samples in self.samples]
                widest = functools.partial(self._widest, step, variances)
                orders = step.orders if self.has_ntk else ((0, 0),)
                chosen = np.ascontiguousarray(variances[side][..., part])
                legs = prepared_legs(step.activation, chosen, orders, self.accuracy, widest=widest)
                most = _LEGS // (8 * legs.numbers_each * legs.variances.size)
                while len(self._legs) >= max(8, most):
                    del self._legs[next(iter(self._legs))]
                self._legs[key] = legs.with_rounding(_PARALLEL if self.chain.grid.shape else 0.0)
            return self._legs[key]

    def _widest(self, step: ActivationStep, variances: list[np.ndarray]) -> float:
        key = step.slot, step.orders
        if key not in self._widest_of:
            self._widest_of[key] = widest_variance(step.activation, *variances)
        return self._widest_of[key]

    def equal(self, tile: Tile) -> np.ndarray | None:
        """Marks pairs of equal inputs within a tile, (A, B); None if there are none."""
        if self.all_differ and tile.columns.start >= tile.rows.stop:
            return None
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
        if self.closed:
            return {max(self.kept): self._closed_block(self.closed, block)}, ROUNDING
        pairs = self._behind(self.end, (self.chain.steps[self.end - 1].behind.zero,), block)
        block.workspace.free(pairs.K, pairs.Theta)
        with self._lock:
            self.sampling_error = max(self.sampling_error, block.sampling_error)
        return block.kept, block.error

    def _closed_block(self, closed: ClosedChain, block: PairBlock) -> Matrices:
        (rows, columns), tile = self._variances, block.tile
        upper = self.symmetric and tile.rows.start == tile.columns.start
        K = self._input_kernel((self.chain.grid.zero,), block)[0, 0]
        Theta = block.workspace.empty(K.shape)
        closed.advance(K, Theta, rows[:, tile.rows], columns[:, tile.columns], upper=upper)
        return K, Theta

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
        chunks = (self._behind(mixing[-1], chunk, block) for chunk in self._chunks(step, front, block))
        like = BlockShape(*block.tile.shape, self.has_ntk)
        pairs = step.gathered(chunks, front, like, block.workspace)  # type: ignore[attr-defined]
        return self.chain.apply(pairs, wanted, block, start, end)

    def _chunks(self, step: AbstractStep, wanted: Displacements, block: PairBlock) -> Iterator[Displacements]:
        asked = step.asks(wanted)
        size = max(1, self.sizes.budget // (step.grid.size * math.prod(block.tile.shape)))
        for start in range(0, len(asked), size):
            yield asked[start : start + size]

    def _inputs(self, displacements: Displacements, block: PairBlock) -> Pairs:
        K = self._input_kernel(displacements, block)
        Theta = block.workspace.zeros(K.shape) if self.has_ntk else None
        return Pairs(self.chain.grid, displacements, K, Theta)

    def _input_kernel(self, displacements: Displacements, block: PairBlock) -> np.ndarray:
        grid, tile, equal, (first, second) = self.chain.grid, block.tile, block.equal, self.samples
        K = block.workspace.empty((len(displacements), grid.size, *tile.shape))
        first.products(tile.rows, second, tile.columns, grid.partners(displacements), K)
        if equal is not None and grid.zero in displacements:
            place = displacements.index(grid.zero)
            np.copyto(K[place], first.measured[INPUTS][:, tile.rows, None], where=equal)
        return K

    def matrices(self, shown: Progress = False) -> tuple[dict[int, Matrices], float]:
        """K and Theta of all pairs at the layers that are kept, and the largest error of an average."""
        collected, tiles, largest = Collected(self), self.tiles, 0.0
        pairs = self.samples[0].count * self.samples[1].count
        one_thread = self.closed is not None and not self.closed.is_worth_threads(pairs)
        with progress("kernels of pairs of inputs", len(tiles), shown=shown) as advance:
            for _, error in _on_all_cores(collected.fill, tiles, one_thread):
                largest = max(largest, error)
                advance(1)
        return collected.layers, largest


class Collected:
    """The matrices of the layers that are kept, filled tile by tile."""

    def __init__(self, through: Propagation):
        self.through = through
        shape = tuple(samples.count for samples in through.samples)
        self.layers: dict[int, Matrices] = {
            layer: (np.empty(shape), np.empty(shape) if through.has_ntk else None) for layer in through.kept
        }

    def fill(self, tile: Tile) -> float:
        """Compute a tile, write it where it belongs and mirror it; the largest error of an average."""
        blocks, error = self.through.block(tile)
        for layer, matrices in self.layers.items():
            require_finite(blocks[layer][0], f"the kernel of layer {layer}", "scale X or C_W down")
            if blocks[layer][1] is not None:
                remedy = "scale X, C_W or lambda_W down"
                require_finite(blocks[layer][1], f"the NTK of layer {layer}", remedy)  # type: ignore[arg-type]
            for matrix, values in zip(matrices, blocks[layer], strict=True):
                if matrix is not None and values is not None:
                    self._write(matrix, tile, values)
            self.through.workspace.free(*blocks[layer])
        return error

    def _write(self, matrix: np.ndarray, tile: Tile, values: np.ndarray) -> None:
        if self.through.symmetric:
            on_diagonal = tile.rows.start == tile.columns.start
            if on_diagonal and not self.through.closed:  # what stands above the diagonal counts
                square = values[:, : tile.shape[0]]
                square[...] = np.where(np.tri(len(square), k=-1, dtype=bool), square.T, square)
            matrix[tile.columns, tile.rows] = values.T
        matrix[tile.rows, tile.columns] = values


def _on_all_cores(work, tasks: list[Tile], one_thread: bool):
    """A single tile, or little work, needs no thread of its own."""
    if len(tasks) > 1 and not one_thread:
        yield from on_all_cores(work, tasks)
        return
    with SingleThreadedProducts():  # the same bits whatever the number of tiles
        yield from ((task, work(task)) for task in tasks)
