"""Layers from plain numbers and strings, as TOML files and stores hold them."""

import functools
import sys
from collections.abc import Mapping
from typing import Any

from finitewidth.core.rooms import import_modules
from finitewidth.network.layers.abstract import AbstractLayer, AbstractWeights
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.network.layers.sequence import as_layer, refuse_without_kernel


@functools.cache
def _discover() -> None:
    import_modules(sys.modules[__name__.rpartition(".")[0]])


def kinds() -> dict[str, type[AbstractLayer]]:
    """All kinds of layers that are written as tables, by name."""
    _discover()
    families = AbstractWeights, AbstractNorm
    kinds = [kind for family in (*families, AbstractLayer) for kind in family.__subclasses__()]
    return {kind.__name__: kind for kind in kinds if kind not in (Activation, *families)}


def layers_from_plain(plain: Any) -> list[AbstractLayer]:
    """The layers of a list."""
    if not isinstance(plain, list | tuple):
        raise ValueError(f"layers must be a list, got {plain!r}; write one entry for each layer.")
    return [layer_from_plain(entry) for entry in plain]


def layer_from_plain(plain: Any) -> AbstractLayer:
    """The layer that `to_plain` wrote down."""
    if isinstance(plain, str):
        return as_layer(plain)
    kind = plain.get("kind") if isinstance(plain, Mapping) else None
    if isinstance(kind, str):
        refuse_without_kernel(kind)
    known = kinds()
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(
            f"layers has {plain!r}; write an activation's name or a table with kind = {', '.join(known)}."
        )
    fields = {name: value for name, value in plain.items() if name != "kind"}
    try:
        return known[kind].from_plain(fields)
    except TypeError as error:
        raise ValueError(f"layers has {plain!r}, which is no {kind}: {error}.") from None
