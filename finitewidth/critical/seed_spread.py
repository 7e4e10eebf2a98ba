r"""How much two networks differ that differ in their seed alone, layer by layer, and what sets it.

Between seeds the kernel of a layer is $K (1 \pm \sqrt{V/n}/K)$, its NTK
$\Theta (1 \pm \sqrt{(A + 2B)/n}/\Theta)$. With attention part of that does not fall with the width but with
the number of heads: it is what is left when all widths grow and the heads stay as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from finitewidth.core.display.numbers import number
from finitewidth.core.display.records import shown
from finitewidth.network.layers.abstract import AbstractLayer
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.layer_norm import AbstractNorm, LayerNorm
from finitewidth.network.layers.residual import Residual
from finitewidth.network.network import Network
from finitewidth.theory.records import Layer, Theory
from finitewidth.theory.solve import solve

_WIDER = 10_000  # times, for what is left at infinite width
_DEEPEST = 16  # layers up to which a norm is tried
_MUCH = 0.3  # a spread for which a norm is tried
_WORTH = 0.5  # a remedy takes at least so much of the spread


class LayerSpread(NamedTuple):
    """One layer: standard deviations between seeds, relative to the mean."""

    layer: int
    kernel: float
    ntk: float | None  # None where it is not known


@shown("layers", "share_of_heads", "with_norms")
@dataclass(frozen=True)
class SeedSpread:
    """What an `fw.audit` knows of the differences between seeds.

    ```python
    fw.audit(fw.MLP((2, 64, 64, 1), "relu", C_W=2.0)).spread.layers
    ```
    """

    layers: tuple[LayerSpread, ...]  # from the second on; the kernel of the first is the same in all networks
    share_of_heads: float | None  # of the variance of the last kernel, None without attention
    with_norms: float | None  # of the last kernel, if a norm stood before each activation; None if not tried
    heads: int | None  # the smallest number in a layer

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same in words, the remedy last."""
        last = self.layers[-1]
        ntk = "" if last.ntk is None else f", their NTK by {_percent(last.ntk)}"
        said = [f"between seeds the kernel of the outputs differs by {_percent(last.kernel)}{ntk}"]
        if self.share_of_heads is not None:
            said.append(
                f"{_percent(self.share_of_heads)} of its variance is set by the number of heads "
                f"({self.heads}), the rest by width and depth"
            )
        else:
            said.append("width and depth set it")
        return (*said, self.remedy)

    @property
    def remedy(self) -> str:
        """What takes half of the kernel's spread at the least cost."""
        if self.share_of_heads is not None and self.share_of_heads > _WORTH:
            return "four times the heads halve it, at the same width; wider layers with as many heads do not"
        if self.with_norms is not None and self.with_norms < _WORTH * self.layers[-1].kernel:
            return (
                f"fw.LayerNorm() before each activation makes it {_percent(self.with_norms)}, whatever the "
                "depth; the NTK's spread stays"
            )
        return "four times the width halves it"


def seed_spread(net: Network, X: np.ndarray, theory: Theory) -> SeedSpread | None:
    """From the statistics of one input at all layers; None where nothing fluctuates."""
    if theory.depth < 2:
        return None
    layers = tuple(_of_layer(theory.layer(index)) for index in range(2, theory.depth + 1))
    attention = [layer for layer in net.walked if isinstance(layer, SelfAttention)]
    share = _share_of_heads(net, X, layers[-1].kernel) if attention else None
    heads = min((layer.heads for layer in attention), default=None)
    normed = _with_norms(net, X) if layers[-1].kernel > _MUCH else None
    return SeedSpread(layers, share, normed, heads)


def _of_layer(layer: Layer) -> LayerSpread:
    kernel = _relative(layer.V.item() / layer.n, layer.K.item())
    if not {"A", "B"} <= layer.arrays.keys():
        return LayerSpread(layer.index, kernel, None)
    ntk = _relative((layer.A.item() + 2 * layer.B.item()) / layer.n, layer.Theta.item())
    return LayerSpread(layer.index, kernel, ntk)


def _relative(variance: float, mean: float) -> float:
    return float(np.sqrt(max(variance, 0.0)) / mean) if mean > 0 else 0.0


def _share_of_heads(net: Network, X: np.ndarray, kernel: float) -> float:
    """What is left of the variance when all widths grow."""
    wide = Network(net.input_shape, *_widened(net.layers))
    left = _of_layer(solve(wide, X, layers=(net.depth,)).output).kernel
    return min(1.0, (left / kernel) ** 2) if kernel > 0 else 0.0


def _widened(layers: Sequence[AbstractLayer]) -> list[AbstractLayer]:
    """Layers of many times the width, with as many heads of as many components."""
    return [_wider(layer) for layer in layers]


def _wider(layer: AbstractLayer) -> AbstractLayer:
    if isinstance(layer, Residual):
        return layer.replace(layers=_widened(layer.layers), shortcut=_widened(layer.shortcut))
    if isinstance(layer, SelfAttention):
        return replace(layer, width=_WIDER * layer.width, head_width=layer.components)
    return replace(layer, width=_WIDER * layer.width) if isinstance(layer, Dense | Conv) else layer


def _with_norms(net: Network, X: np.ndarray) -> float | None:
    """The spread of the last kernel with a norm before each activation, where none stands anywhere."""
    others = (isinstance(layer, AbstractNorm | Residual | SelfAttention) for layer in net.walked)
    if any(others) or not 3 <= net.depth <= _DEEPEST or net.has_orthogonal_weights:
        return None
    layers: list[AbstractLayer] = []
    for layer in net.layers:
        layers += [LayerNorm(), layer] if isinstance(layer, Activation) else [layer]
    normed = solve(Network(net.input_shape, *layers), X, layers=(net.depth,), tensors=("V", "F", "B"))
    return _of_layer(normed.output).kernel


def _percent(share: float) -> str:
    return f"{number(100 * share, 2)} percent"
