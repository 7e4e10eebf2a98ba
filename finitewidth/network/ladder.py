"""Dense layers with skips between them: the networks that the theory knows through order 1/n."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from finitewidth.network.layers.abstract import AbstractLayer
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.residual import Residual


class Skip(NamedTuple):
    """gamma times the preactivations of layer `source`, added to those of the layer where the skip ends."""

    source: int  # counted from 1
    gamma: float


@dataclass(frozen=True)
class Ladder:
    """The dense layers l = 1 ... L of a network, also those in residual bodies, in the order of signals.

    `activations[l - 1]` acts on layer l < L, linear where there is none; `skips[l - 1]` ends in layer l.
    """

    inputs: int
    dense: tuple[Dense, ...]
    activations: tuple[Activation, ...]
    skips: tuple[Skip | None, ...]

    @classmethod
    def of(cls, inputs: int, layers: Sequence[AbstractLayer]) -> "Ladder":
        builder = _Builder()
        builder.add(layers)
        if any(builder.skips) and any(layer.is_orthogonal for layer in builder.dense):
            raise UnknownLayer("orthogonal weights beside Residual")
        return cls(inputs, tuple(builder.dense), tuple(builder.activations[1:]), tuple(builder.skips))

    @property
    def depth(self) -> int:
        return len(self.dense)

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """n_0 ... n_L."""
        return (self.inputs, *(layer.width for layer in self.dense))

    @functools.cached_property
    def orthogonality(self) -> tuple[float, ...]:
        """min(1, n_{l-1} / n_l) of each layer l with orthogonal weights, 0 of those with Gaussian ones."""
        return tuple(layer.orthogonality(n) for layer, n in zip(self.dense, self.widths, strict=False))

    def require_isometries_of(self, other: "Ladder") -> None:
        """Refuse other widths at which orthogonal weights take another share of order 1/n."""
        if self._isometries != other._isometries:
            raise ValueError(
                f"widths {self.widths} and {other.widths} do not share tensors: orthogonal weights on the "
                "inputs or of the outputs have more neurons than inputs in one of them only; prepare the "
                "other network by itself."
            )

    @property
    def _isometries(self) -> tuple[float, ...]:
        """Shares in units of 1 over the width of hidden layers; at the inputs n_1 / max(n_0, n_1)."""
        first = min(1.0, self.widths[1] / self.inputs) if self.dense[0].is_orthogonal else 0.0
        return (first, *self.orthogonality[1:])

    @property
    def has_skips(self) -> bool:
        return any(self.skips)

    def relation(self, first: int, second: int) -> tuple[float, int] | None:
        r"""How one neuron's preactivations of two layers are correlated, $K^{(k,p)} = g K^{(a)}$, as (g, a).

        Skips lead from both layers down to a, and g is the product of their gammas. None if they never meet.
        """
        ways = [self._way_down(layer) for layer in (first, second)]
        common = set(ways[0]) & set(ways[1])
        if not common:
            return None
        meeting = max(common)
        return ways[0][meeting] * ways[1][meeting], meeting

    def _way_down(self, layer: int) -> dict[int, float]:
        """The layers below along skips, and the product of gammas to each."""
        way, product = {layer: 1.0}, 1.0
        while (skip := self.skips[layer - 1]) is not None:
            layer, product = skip.source, product * skip.gamma
            way[layer] = product
        return way


class UnknownLayer(ValueError):
    """A layer that order 1/n does not know, by its name."""

    def __init__(self, what: str):
        super().__init__(
            "order 1/n knows dense layers, activations and residual blocks of them, not the "
            f"{what} of this network; use order=0, infinite width, which knows every layer."
        )
        self.what = what


class NotAtFirstOrder(ValueError):
    """A layer at a place where even statistics at order 1/n do not know it, by its name."""

    def __init__(self, what: str):
        super().__init__(
            f"order 1/n does not know {what}; use order=0, infinite width, which knows every layer."
        )


class _Builder:
    """Collects layers from the input on."""

    def __init__(self):
        self.dense: list[Dense] = []
        self.activations: list[Activation] = []
        self.skips: list[Skip | None] = []
        self.waiting: Activation | None = None  # the activation in front of the next dense layer

    def add(self, layers: Sequence[AbstractLayer]) -> None:
        for layer in layers:
            if isinstance(layer, Activation):
                self.waiting = layer
            elif isinstance(layer, Dense):
                self.dense.append(layer)
                self.activations.append(self.waiting or as_activation("linear"))
                self.skips.append(None)
                self.waiting = None
            elif isinstance(layer, Residual):
                self._add_block(layer)
            else:
                raise UnknownLayer(type(layer).__name__)

    def _add_block(self, block: Residual) -> None:
        source = len(self.dense)
        if block.shortcut:
            raise UnknownLayer("Residual with a shortcut")
        if source == 0:
            raise UnknownLayer("Residual on the inputs")
        if self.waiting is not None:
            raise UnknownLayer("Residual behind an activation")
        if not isinstance(block.layers[-1], Dense):
            raise UnknownLayer(f"Residual with a body that ends in {type(block.layers[-1]).__name__}")
        self.add(block.layers)
        self.skips[-1] = Skip(source, block.gamma) if block.gamma else None
