"""Residual blocks: a body beside a skip connection."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from finitewidth.core.inputs import as_number
from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values
from finitewidth.network.layers.plain import layers_from_plain
from finitewidth.network.layers.sequence import (
    LayerLike,
    as_layer,
    layers_with_rates,
    output_shape,
    shown_layers,
    up_to,
    values_behind,
)
from finitewidth.network.layers.weights import RateRule


class Residual(AbstractLayer):
    """gamma * shortcut(z) + body(z). Blocks may be nested.

    Args:
        layers: The body, a sequence of layers that ends in weights.
        gamma: The factor of the skip connection.
        shortcut: Layers on the skip connection; none for the identity.

    ```python
    block = fw.Residual("tanh", fw.Dense(64), gamma=0.9)
    fw.Network(2, fw.Dense(64), block, block, "tanh", fw.Dense(1))
    ```
    """

    layers: tuple[AbstractLayer, ...]
    gamma: float
    shortcut: tuple[AbstractLayer, ...]

    def __init__(self, *layers: LayerLike, gamma: float = 1.0, shortcut: Any = ()):
        number = as_number(gamma)
        if not math.isfinite(number):
            raise ValueError(f"gamma must be a finite number, got {gamma!r}.")
        given = shortcut if isinstance(shortcut, list | tuple) else (shortcut,)
        object.__setattr__(self, "layers", tuple(as_layer(layer) for layer in layers))
        object.__setattr__(self, "gamma", number)
        object.__setattr__(self, "shortcut", tuple(as_layer(layer) for layer in given))
        if not self.layers or not self.layers[-1].has_weights:
            raise ValueError(
                "a residual body must end in weights, which make it independent of the skip; end it with "
                "fw.Dense or fw.Conv."
            )
        if not _is_fresh(self.layers):
            raise ValueError(
                "a residual body consists of blocks whose skips lead back to its start, so that it is not "
                "independent of its own skip; put fw.Dense or fw.Conv into the body, outside of these blocks."
            )

    @property
    def has_weights(self) -> bool:
        return True

    @property
    def is_homogeneous(self) -> bool:
        return True

    @property
    def depth(self) -> int:
        return sum(layer.depth for layer in self.layers)

    def up_to(self, count: int) -> tuple[AbstractLayer, ...]:
        """The skip is part of the last layer only; the others stand on the way through the body."""
        return (self,) if count == self.depth else up_to(self.layers, count)

    def fan_in(self, shape: Shape) -> int:
        """The number of inputs of a neuron at the end of the body."""
        return self.layers[-1].fan_in(output_shape(self.layers[:-1], shape))  # type: ignore[attr-defined]

    def output_shape(self, shape: Shape) -> Shape:
        body, skip = output_shape(self.layers, shape), output_shape(self.shortcut, shape)
        if body != skip:
            raise ValueError(
                f"Residual adds a body of shape {body} to a skip of shape {skip}; make their widths equal or "
                "give a shortcut with weights, such as shortcut=[fw.Dense(width)]."
            )
        return body

    def values_behind(self, values: Values) -> Values:
        values_behind(self.layers, values)
        skipped = values_behind(self.shortcut, values)
        carried = {Values.GAINED: Values.CARRIED, Values.ACTIVATED: Values.SUMMED}
        return carried.get(skipped, skipped)

    def walk(self) -> Iterator[AbstractLayer]:
        yield self
        for layer in (*self.layers, *self.shortcut):
            yield from layer.walk()

    def with_rates(self, rule: RateRule, shape: Shape) -> "Residual":
        body, skip = (layers_with_rates(part, rule, shape) for part in (self.layers, self.shortcut))
        return self.replace(layers=body, shortcut=skip)

    def frozen(self) -> "Residual":
        body, skip = ([layer.frozen() for layer in part] for part in (self.layers, self.shortcut))
        return self.replace(layers=body, shortcut=skip)

    def to_plain(self) -> dict:
        body, skip = ([layer.to_plain() for layer in part] for part in (self.layers, self.shortcut))
        return {"kind": "Residual", "layers": body, "gamma": self.gamma, "shortcut": skip}

    @classmethod
    def from_plain(cls, fields: dict[str, Any]) -> "Residual":
        given = {"layers": [], "shortcut": [], **fields}
        body, skip = (layers_from_plain(given.pop(name)) for name in ("layers", "shortcut"))
        return cls(*body, shortcut=skip, **given)

    def replace(self, **changes: Any) -> "Residual":
        """A copy with other layers, gamma or shortcut."""
        fields = {"layers": self.layers, "gamma": self.gamma, "shortcut": self.shortcut, **changes}
        return Residual(*fields.pop("layers"), **fields)

    def _identity(self) -> tuple:
        return self.layers, self.gamma, self.shortcut

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("Residual is immutable; use replace for a copy with other fields.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Residual) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self):
        return _remade, self._identity()

    def __repr__(self) -> str:
        parts = shown_layers(self.layers)
        if self.gamma != 1.0:
            parts.append(f"gamma={self.gamma:.8g}")
        if self.shortcut:
            parts.append(f"shortcut=[{', '.join(shown_layers(self.shortcut))}]")
        return f"Residual({', '.join(parts)})"


def _is_fresh(layers: Sequence[AbstractLayer]) -> bool:
    """Whether every way through the layers, also along skips, passes weights."""
    return any(
        _is_fresh(layer.shortcut) if isinstance(layer, Residual) else layer.has_weights for layer in layers
    )


def _remade(layers: tuple, gamma: float, shortcut: tuple) -> Residual:
    return Residual(*layers, gamma=gamma, shortcut=shortcut)
