r"""Self-attention in the theory, with linear scaling and tied keys and queries.

Attention is then the same in all wide networks, $a = \mathrm{softmax}_q(\sigma_{QK} K(p, q))$, and

$$K' = C_b + C_{OV}\, a K a^T, \qquad \Theta' = C_b + C_{OV}\, a (\Theta + 2 K) a^T$$

(Hron, Bahri, Sohl-Dickstein and Novak, *Infinite attention*, 2020).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Counter, register
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs


@dataclass(frozen=True)
class AttentionStep(AbstractStep):
    """Attention acting on all pairs of positions of a pair of samples."""

    grid: Grid
    layer: SelfAttention
    slot: int

    def asks(self, wanted: Displacements) -> Displacements:
        return self.grid.everything

    @property
    def measured(self) -> Displacements:
        return self.grid.everything

    def measure(self, pairs: Pairs) -> np.ndarray:
        """The attention (p, q, A) of each sample."""
        K = self._of_keys(self._square(pairs, pairs.K))[..., 0]
        return softmax(self.layer.sigma_QK * K, axis=1)

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        first, second = block.of_samples(self)
        layer, Theta = self.layer, None
        K = self._square(pairs, pairs.K)
        if pairs.Theta is not None:
            Theta = self._square(pairs, pairs.Theta)
            Theta = layer.C_b + layer.C_OV * _attended(Theta + 2 * K, first, second)
            Theta = self._images(Theta, wanted)
        K = self._images(layer.C_b + layer.C_OV * _attended(K, first, second), wanted)
        return Pairs(self.grid, wanted, K, Theta)

    def _of_keys(self, K: np.ndarray) -> np.ndarray:
        """The kernel of the keys, which see positions; values do not."""
        if self.layer.positions is None:
            return K
        with_positions = K + self.layer.positions.kernel(self.grid.shape)[:, :, None, None]
        return with_positions / 2 if self.layer.positions.mixing == "concatenate" else with_positions

    def _square(self, pairs: Pairs, values: np.ndarray) -> np.ndarray:
        """From images (D, P, A, B) to pairs of positions (p, q, A, B)."""
        square = np.empty((self.grid.size, *values.shape[1:]))
        partners = self.grid.partners(pairs.displacements)
        square[np.arange(self.grid.size)[None, :], partners] = values
        return square

    def _images(self, square: np.ndarray, wanted: Displacements) -> np.ndarray:
        return square[np.arange(self.grid.size)[None, :], self.grid.partners(wanted)]


def _attended(values: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """sum_{p' q'} a_1(p, p') a_2(q, q') M(p', q'), each pair of samples with attention of its own."""
    M, a, b = (np.moveaxis(part, (0, 1), (-2, -1)) for part in (values, first, second))  # (A, B, p, q)
    return np.moveaxis(a @ M @ np.swapaxes(b, -1, -2), (-2, -1), (0, 1))


@register
def _(layer: SelfAttention, shape: Shape, count: Counter) -> AbstractStep:
    if layer.scaling != "linear":
        raise ValueError(
            f"SelfAttention with scaling={layer.scaling!r} has no closed form, since attention is random at "
            'infinite width too; use scaling="linear".'
        )
    return AttentionStep(Grid(shape[:-1]), layer, count.slot())
