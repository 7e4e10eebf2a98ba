r"""Layer normalization in the theory.

$$K' = c K, \qquad \Theta' = c\, \Theta + \lambda_{\mathrm{gain}} K' + \lambda_{\mathrm{offset}}, \qquad
  c = \frac{1}{\sqrt{(v_1 + \epsilon)(v_2 + \epsilon)}}$$

with the variances v of the two sites, or their means over positions: fluctuations and derivatives of v are of
order 1/n. The share of the gain is the average of $\lambda_{\mathrm{gain}} x_1 x_2$ over neurons of value x;
an activation right behind the norm takes the average together with its slopes (`activation.py`).
"""

from dataclasses import dataclass

import numpy as np

from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Assembly, register
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs


@dataclass(frozen=True)
class LayerNormStep(AbstractStep):
    """Normalization acting on pairs of sites."""

    grid: Grid
    layer: AbstractNorm
    slot: int

    def measure(self, pairs: Pairs) -> np.ndarray:
        variances = super().measure(pairs)
        if self.layer.axes == "all":
            variances = np.broadcast_to(variances.mean(axis=0), variances.shape)
        if self.layer.epsilon == 0 and not (variances > 0).all():
            kind = type(self.layer).__name__
            raise ValueError(f"{kind} with epsilon=0 meets a variance of zero; use epsilon=1e-5.")
        return variances

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        factors = [(v + self.layer.epsilon) ** -0.5 for v in block.of_sites(self, pairs)]
        K = pairs.K * factors[0]
        K *= factors[1]
        Theta = pairs.Theta
        if Theta is not None:
            Theta *= factors[0]
            Theta *= factors[1]
            Theta += self.layer.lambda_gain * K
            Theta += self.layer.lambda_offset
        return Pairs(pairs.grid, wanted, K, Theta)


@register
def _(layer: AbstractNorm, shape: Shape, assembly: Assembly) -> AbstractStep:
    assembly.gain_rate += layer.lambda_gain
    return LayerNormStep(Grid(shape[:-1]), layer, assembly.next_slot())
