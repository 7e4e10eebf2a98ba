"""A network in one line of text."""

from collections.abc import Sequence
from itertools import groupby

from finitewidth.network.layers.weights import HYPERPARAMETERS
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network

_MOST_NUMBERS = 6


def describe(net: Network) -> str:
    """Widths, activations and hyperparameters in one line that stays short however deep the network is."""
    if not isinstance(net, MLP):
        return repr(net)
    names = [str(activation.name) for activation in net.activations]
    named = net.activation_name if len(set(names)) < 2 else _in_groups(names)
    numbers = [f"{name} {_numbers(getattr(net, name))}" for name in HYPERPARAMETERS]
    return f"widths {_in_groups(net.widths)}; {', '.join([named, *numbers])}"


def _in_groups(entries: Sequence) -> str:
    """Equal neighbours together, such as 784, 100 x 20, 10."""
    groups = [(entry, len(list(equal))) for entry, equal in groupby(entries)]
    return ", ".join(f"{entry}" if times == 1 else f"{entry} x {times}" for entry, times in groups)


def _numbers(values: tuple[float, ...]) -> str:
    if len(set(values)) == 1:
        return f"{values[0]:.8g}"
    shown = [f"{value:.6g}" for value in values]
    if len(shown) > _MOST_NUMBERS:
        shown = [*shown[:3], "...", *shown[-2:]]
    return f"({', '.join(shown)})"
