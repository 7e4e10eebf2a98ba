r"""Self-attention in the theory (Hron, Bahri, Sohl-Dickstein and Novak, *Infinite attention*, 2020).

With linear scaling and tied keys and queries attention is the same in all wide networks,
$a = \mathrm{softmax}_q(\sigma_{QK} K(p, q))$, and

$$K' = C_b + C_{OV}\, a K a^T, \qquad \Theta' = C_b + C_{OV}\, a (\Theta + 2 K) a^T.$$

With scaling by the root it is random, and these are averages over attention (`random_attention.py`), where
Theta' also has a part in which scores learn.
"""

import abc
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.theory.layers import random_attention
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Assembly, register
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs

Square = np.ndarray  # pairs of positions of pairs of samples, (p, q, A, B)


class AbstractAttention(AbstractStep):
    """Attention acting on all pairs of positions of a pair of samples."""

    grid: Grid
    layer: SelfAttention

    def asks(self, wanted: Displacements) -> Displacements:
        return self.grid.everything

    @property
    def measured(self) -> Displacements:
        return self.grid.everything

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        first, second = block.of_samples(self)
        K = self._square(pairs, pairs.K)
        Theta = None if pairs.Theta is None else self._square(pairs, pairs.Theta)
        K, Theta = self.attended(K, Theta, first, second, block)
        behind = Pairs(self.grid, wanted, K, Theta)
        return behind.mapped(lambda values: self._images(self.layer.C_b + self.layer.C_OV * values, wanted))

    @abc.abstractmethod
    def attended(
        self, K: Square, Theta: Square | None, first: Square, second: Square, block: AbstractBlock
    ) -> tuple[Square, Square | None]:
        """K and Theta of values with attention, from what was measured of the samples of a pair."""

    def of_keys(self, K: Square) -> Square:
        """The kernel of the keys, which see positions; values do not."""
        positions = self.layer.positions
        if positions is None:
            return K
        return self.share_of_keys * (K + positions.kernel(self.grid.shape)[:, :, None, None])

    @property
    def share_of_keys(self) -> float:
        """Of the channels that keys see, the share that values see."""
        positions = self.layer.positions
        return 0.5 if positions is not None and positions.mixing == "concatenate" else 1.0

    def _square(self, pairs: Pairs, values: np.ndarray) -> np.ndarray:
        """From images (D, P, A, B) to pairs of positions (p, q, A, B)."""
        square = np.empty((self.grid.size, *values.shape[1:]))
        partners = self.grid.partners(pairs.displacements)
        square[np.arange(self.grid.size)[None, :], partners] = values
        return square

    def _images(self, square: np.ndarray, wanted: Displacements) -> np.ndarray:
        return square[np.arange(self.grid.size)[None, :], self.grid.partners(wanted)]


@dataclass(frozen=True)
class LinearAttention(AbstractAttention):
    """Attention with linear scaling."""

    grid: Grid
    layer: SelfAttention
    slot: int

    def measure(self, pairs: Pairs) -> np.ndarray:
        """The attention (p, q, A) of each sample."""
        K = self.of_keys(self._square(pairs, pairs.K))[..., 0]
        return softmax(self.layer.sigma_QK * K, axis=1)

    def attended(
        self, K: Square, Theta: Square | None, first: Square, second: Square, block: AbstractBlock
    ) -> tuple[Square, Square | None]:
        a, b = (np.moveaxis(part, (0, 1), (-2, -1)) for part in (first, second))

        def average(values: Square) -> Square:
            """sum_{p' q'} a(p, p') b(q, q') M(p', q'), each pair of samples with attention of its own."""
            M = np.moveaxis(values, (0, 1), (-2, -1))
            return np.moveaxis(a @ M @ np.swapaxes(b, -1, -2), (-2, -1), (0, 1))

        return average(K), None if Theta is None else average(Theta + 2 * K)


@dataclass(frozen=True)
class RootAttention(AbstractAttention):
    """Attention with scaling by the root, which is random."""

    grid: Grid
    layer: SelfAttention
    slot: int

    def measure(self, pairs: Pairs) -> np.ndarray:
        """The kernel (p, q, A) within each sample."""
        return self._square(pairs, pairs.K)[..., 0]

    def attended(
        self, K: Square, Theta: Square | None, first: Square, second: Square, block: AbstractBlock
    ) -> tuple[Square, Square | None]:
        seen = [np.broadcast_to(self.of_keys(part), K.shape) for part in (first, K, second)]
        parts = [part if part is None else np.moveaxis(part, (0, 1), (-2, -1)) for part in (K, *seen, Theta)]
        pair, layer = random_attention.Pair(*parts, share=self.share_of_keys), self.layer  # type: ignore[arg-type]
        normals = random_attention.normals(layer.key, self.slot, layer.draws, 2 * self.grid.size)
        values, error = random_attention.average(pair, normals, layer.sigma_QK)
        block.sampling_error = max(block.sampling_error, error)
        behind = [np.moveaxis(part, (-2, -1), (0, 1)) for part in values]
        return behind[0], None if Theta is None else behind[1]


@register
def _(layer: SelfAttention, shape: Shape, assembly: Assembly) -> AbstractStep:
    kind = LinearAttention if layer.scaling == "linear" else RootAttention
    return kind(Grid(shape[:-1]), layer, assembly.next_slot())
