"""Single samples on their way through a network: their values, and what layers need to know of each."""

import functools
from dataclasses import dataclass, field

import numpy as np

from finitewidth.gaussian.two_legs.averages import prepared_legs
from finitewidth.gaussian.two_legs.legs import Side
from finitewidth.gaussian.two_legs.series_legs import widest_variance
from finitewidth.theory.layers.activation import ActivationStep
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Chain
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs
from finitewidth.theory.layers.workspace import Workspace

INPUTS = -1  # the slot of the mean squares of the inputs themselves, (P, N)


class Samples:
    """One of the two sets of inputs: values at all positions, and what layers measured of each sample."""

    def __init__(self, X: np.ndarray, grid: Grid):
        self.count = X.shape[0]
        channels = X.shape[-1]
        self.X = np.ascontiguousarray(np.swapaxes(X.reshape(self.count, grid.size, channels), 0, 1))
        self.grid = grid
        self.measured: dict[int, np.ndarray] = {}  # by slot, samples along the last axis

    @functools.cached_property
    def turned(self) -> np.ndarray:
        """The inputs with samples along the last axis."""
        return np.ascontiguousarray(np.swapaxes(self.X, 1, 2))

    def products(self, rows: slice, other: "Samples", columns: slice, partners: np.ndarray, out: np.ndarray):
        """Mean products over channels of sites p of rows and p + d of columns into `out`, (D, P, A, B)."""
        if self.grid.size == 1:  # one product of matrices
            np.matmul(self.X[0, rows], other.X[0, columns].T, out=out[0, 0])
            out /= self.X.shape[-1]
            return
        from finitewidth.core.loops import mean_products

        mean_products(self.X, other.turned, rows.start, columns.start, partners, out)

    def diagonal_pairs(self, rows: slice, displacements: Displacements) -> Pairs:
        """The inputs paired with themselves, (D, P, A, 1)."""
        partners = self.grid.partners(displacements)
        first = self.X[:, rows]
        K = np.einsum("pac,dpac->dpa", first, first[partners]) / self.X.shape[-1]
        return Pairs(self.grid, displacements, K[..., None], None)

    def measure(self, chain: Chain, end: int, accuracy: float, at_once: int) -> None:
        """Pair samples with themselves, as far as layers up to step `end` need to know of it."""
        displacements = chain.asked((), 0, end, measuring=True)[0] or (self.grid.zero,)
        size = max(1, at_once // (len(displacements) * self.grid.size))
        parts: list[dict[int, np.ndarray]] = []
        workspace = Workspace()
        for start in range(0, self.count, size):
            rows = slice(start, min(start + size, self.count))
            pairs, block = self.diagonal_pairs(rows, displacements), DiagonalBlock(accuracy, workspace)
            place = displacements.index(self.grid.zero)
            block.measured[INPUTS] = pairs.K[place, :, :, 0].copy()
            chain.apply(pairs, (), block, 0, end)
            parts.append(block.measured)
        self.measured = {slot: np.concatenate([part[slot] for part in parts], axis=-1) for slot in parts[0]}


def share(first: Samples, second: Samples, numbers: tuple[np.ndarray, np.ndarray]) -> None:
    """Equal inputs, which have the same number, share what was measured, to the last bit."""
    sides = (first,) if first is second else (first, second)
    for slot in first.measured:
        known = np.concatenate([side.measured[slot] for side in sides], axis=-1)
        for side, chosen in zip(sides, numbers, strict=False):
            side.measured[slot] = known[..., chosen]


@dataclass
class DiagonalBlock(AbstractBlock):
    """Samples paired with themselves, (D, P, A, 1)."""

    accuracy: float
    workspace: Workspace
    measured: dict[int, np.ndarray] = field(default_factory=dict)

    def sides(self, step: AbstractStep, pairs: Pairs) -> tuple[Side, Side]:
        assert isinstance(step, ActivationStep)
        variances = self.measured[step.slot]
        widest = functools.partial(widest_variance, step.activation, variances)
        legs = prepared_legs(step.activation, variances, ((0, 0),), self.accuracy, widest=widest)
        return Side(legs), Side(legs, places=pairs.grid.partners(pairs.displacements))

    def of_samples(self, step: AbstractStep) -> tuple[np.ndarray, np.ndarray]:
        assert step.slot is not None
        values = self.measured[step.slot][..., None]
        return values, values

    def of_sites(self, step: AbstractStep, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        values = self.of_samples(step)[0]
        return values[None], values[pairs.grid.partners(pairs.displacements)]

    def same(self, pairs: Pairs) -> np.ndarray | None:
        if pairs.grid.zero not in pairs.displacements:
            return None
        marks = np.zeros((len(pairs.displacements), 1, pairs.K.shape[2], 1), dtype=bool)
        marks[pairs.displacements.index(pairs.grid.zero)] = True
        return marks

    def record(self, layer: int, pairs: Pairs) -> None:
        require_finite(pairs.K, f"the kernel of layer {layer}", "scale X or C_W down")


def require_finite(values: np.ndarray, what: str, remedy: str) -> None:
    """Refuse numbers that are too large."""
    if not np.isfinite(values).all():
        raise ValueError(f"{what} exceeds what double precision holds; {remedy}.")
