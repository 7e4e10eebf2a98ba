r"""The four-point vertex as a sum over the layers that create it, from averages of four sigmas.

$$V_{(12)(34)} = \sum_k w_k\, \mathrm{Cov}(F^k_{12}, F^k_{34}), \qquad
  F^k_{12} = b_{12} \sigma_1\sigma_2 + f_{12} \sigma_1\sigma_1 + f_{21} \sigma_2\sigma_2,$$

where b and f are the answer of the output's kernel to that of layer k, and w_k is the ratio of widths. A
matrix that meets V is first pulled down to the source layer, where it meets $\langle\sigma_1\sigma_2\sigma_3
\sigma_4\rangle$, and the result is pushed up again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from finitewidth.network.layers.activation import Activation
from finitewidth.theory.layers.pair_map import PairMap
from finitewidth.theory.sources import Source


class Averages(NamedTuple):
    """What a source layer's averages of four sigmas come to, contracted at that layer."""

    straight: Float[np.ndarray, "m N N"]  # <s1 s2 s3 s4> g_34
    crossed: Float[np.ndarray, "q N N"]  # <s1 s2 s3 s4> b_13 M_34 b_24
    twice: Float[np.ndarray, "N N N"]  # <s1 s1 s2 s3>


@dataclass(frozen=True, eq=False)
class VertexSource:
    """One layer that creates a part of V, as a layer above sees it."""

    activation: Activation
    K: Float[np.ndarray, "N N"]
    mean: Float[np.ndarray, "N N"]  # <s s>
    weight: float
    answer: PairMap  # of the kernel above to that of this layer, times C_W

    @classmethod
    def of(cls, source: Source) -> "VertexSource":
        feature, zero = source.features["v"], np.zeros_like(source.K)
        legs = ((0, 0), (0, 0)), ((0, 0), (1, 0)), ((1, 0), (1, 0))
        parts = (np.broadcast_to(feature.get(pair, 0.0), zero.shape) for pair in legs)
        return cls(source.activation, source.K, source.moments.sigma.value, source.weight, PairMap(*parts))

    @property
    def is_isometry(self) -> bool:
        """Whether this is what orthogonal weights take away (`theory/layers/isometry.py`), not a layer."""
        return self.weight < 0

    def pulled(self, P: Float[np.ndarray, "... N N"]) -> Float[np.ndarray, "... N N"]:
        """g with sum g_12 s1 s2 = sum P_12 F_12."""
        first, both, second = self._parts()
        g = both * P
        index = np.arange(P.shape[-1])
        g[..., index, index] += (first * P).sum(axis=-1) + (second * P).sum(axis=-2)
        return g

    def pushed(self, S: Float[np.ndarray, "... N N"]) -> Float[np.ndarray, "... N N"]:
        """What a change S of <s s> in this layer changes in the kernel above."""
        first, both, second = self._parts()
        diagonal = np.einsum("...aa->...a", S)
        return both * S + first * diagonal[..., :, None] + second * diagonal[..., None, :]

    def contracted(
        self, g: np.ndarray, M: np.ndarray, averages: Averages
    ) -> tuple[Float[np.ndarray, "m N N"], Float[np.ndarray, "q N N"]]:
        """This source's part of V contracted straight with P and across with M, where g is P pulled down."""
        means = np.einsum("ab,mab->m", self.mean, g)
        straight = averages.straight - means[:, None, None] * self.mean
        above = self.pushed(self.mean)
        crossed = averages.crossed + self._on_one_sample(M, averages.twice) - above @ M @ above
        return self.weight * self.pushed(straight), self.weight * crossed

    def _on_one_sample(self, M: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """The terms of <F_13 F_24> M_34 in which at least one F has both legs on one sample."""
        f, b, _ = self._parts()
        if not f.any():
            return np.zeros_like(M)
        Z = np.einsum("abb->ab", Y)  # <s1 s1 s2 s2>
        fM = f @ M
        half = np.einsum("ac,bac,qbc->qab", b, Y, fM, optimize=True)
        half += np.einsum("db,qad->qab", f, np.einsum("ac,qcd,dac->qad", b, M, Y, optimize=True))
        half += (Z * fM) @ f
        whole = (fM @ f.T) * Z + f.T @ (M * Z) @ f
        return whole + half + half.transpose(0, 2, 1)

    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, both, second = self.answer
        assert first is not None and both is not None and second is not None
        return first, both, second
