r"""Orthogonal weights at order 1/n: what isometry takes away is what a linear neuron would create.

Weights between n and n' neurons carry $k_{12} = C_W\langle\sigma_1\sigma_2\rangle$ forwards and
$t_{12} = C_W\Theta_{12}\langle\sigma'_1\sigma'_2\rangle$ backwards. If they are orthogonal, a product of
four of them has one more term of order 1/n, in which legs are exchanged between rows and columns.
With $\rho = \min(1, n/n')$, three sources change and nothing else:

$$V_{(12)(34)} \mathrel{-}= \rho\,(k_{13}k_{24} + k_{14}k_{23}), \qquad
  F_{1324} \mathrel{-}= \rho\, t_{12}k_{34}, \qquad B_{1324} \mathrel{-}= \rho\, t_{12}t_{34}.$$

A layer of linear neurons z ~ Normal(0, k) with the NTK t and weights that do not learn creates the same
tensors. So every form of the theory knows orthogonal weights as one more source layer, of weight $-\rho$.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from finitewidth.network.ladder import Ladder
from finitewidth.theory.layers.activation import Corners
from finitewidth.theory.layers.dense import Means

if TYPE_CHECKING:
    from finitewidth.theory.steps import Step


@dataclass(frozen=True, eq=False)
class Isometry:
    """What orthogonal weights carry, and the share of its exchanges that they lose."""

    share: float  # rho
    k: np.ndarray  # (N, N), forwards
    t: np.ndarray  # (N, N), backwards

    @classmethod
    def first(cls, ladder: Ladder, means: Means) -> "Isometry | None":
        """That of the weights on the inputs, behind which no NTK arrives; None if they are Gaussian."""
        share, layer = ladder.orthogonality[0], ladder.dense[0]
        return cls(share, means.K - layer.C_b, np.zeros_like(means.K)) if share else None

    @classmethod
    def behind(cls, step: "Step") -> "Isometry | None":
        """That of the weights of a step; None if they are Gaussian."""
        if not step.orthogonality:
            return None
        moments, C = step.moments, step.C_W
        return cls(step.orthogonality, C * moments.sigma.value, C * step.Theta * moments.slope.value)

    def take_from(self, blocks: dict[tuple[str, str], np.ndarray]) -> None:
        """Subtract the exchanges from blocks (N, N, N, N) of V, F and B, in place and row by row."""
        k, t = self.k, self.t
        for a in range(len(k)):
            forwards, backwards = self.share * k[a], self.share * t[a]
            if ("v", "v") in blocks:
                blocks["v", "v"][a] -= forwards[:, None] * k[:, None] + forwards * k[:, :, None]
            if ("f", "f") in blocks:
                blocks["f", "f"][a] -= backwards[:, None] * k[:, None]
            if ("b", "b") in blocks:
                blocks["b", "b"][a] -= backwards[:, None] * t[:, None]

    @property
    def vertex(self) -> Corners:
        """What V loses between the pairs (i i), (i j) and (j j) of every two samples, (N, N, 3, 3)."""
        first, second = self.k.diagonal()[:, None], self.k.diagonal()[None]
        pairs = {(0, 0): first, (0, 1): self.k, (1, 1): second}
        samples = ((0, 0), (0, 1), (1, 1))
        lost = np.empty((*self.k.shape, 3, 3))
        for row, (a, b) in enumerate(samples):
            for column, (c, d) in enumerate(samples):
                k = [pairs[min(one), max(one)] for one in ((a, c), (b, d), (a, d), (b, c))]
                lost[..., row, column] = self.share * (k[0] * k[1] + k[2] * k[3])
        return lost
