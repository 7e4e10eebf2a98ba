"""A network in one line of text."""

from collections.abc import Sequence
from itertools import groupby

from finitewidth.network.layers.sequence import shown_layers
from finitewidth.network.layers.weights import HYPERPARAMETERS
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network

_MOST_NUMBERS = 6
_MOST_LAYERS = 10


def describe(net: Network) -> str:
    """Widths, activations and hyperparameters in one line that stays short however deep the network is."""
    if not isinstance(net, MLP):
        texts = shown_layers(net.layers, longest=len(net.layers))
        return f"input {' x '.join(map(str, net.input_shape))}; {_in_groups(texts, most=_MOST_LAYERS)}"
    names = [str(activation.name) for activation in net.activations]
    named = net.activation_name if len(set(names)) < 2 else _in_groups(names)
    numbers = [f"{name} {_numbers(getattr(net, name))}" for name in HYPERPARAMETERS]
    return f"widths {_in_groups(net.widths)}; {', '.join([named, *numbers])}"


def _in_groups(entries: Sequence, most: int | None = None) -> str:
    """Equal neighbours together, such as 784, 100 x 20, 10; at most so many groups."""
    groups = [(entry, len(list(equal))) for entry, equal in groupby(entries)]
    texts = [f"{entry}" if times == 1 else f"{entry} x {times}" for entry, times in groups]
    if most is not None and len(texts) > most:
        texts = [*texts[: most - 4], "...", *texts[-3:]]
    return ", ".join(texts)


def _numbers(values: tuple[float, ...]) -> str:
    if len(set(values)) == 1:
        return f"{values[0]:.8g}"
    shown = [f"{value:.6g}" for value in values]
    if len(shown) > _MOST_NUMBERS:
        shown = [*shown[:3], "...", *shown[-2:]]
    return f"({', '.join(shown)})"
