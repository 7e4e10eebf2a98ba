"""Activations and networks as a user names them on the command line."""

import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from finitewidth.interface.runs.network_table import read_network
from finitewidth.interface.runs.toml_tables import parse
from finitewidth.network.layers.activation import Activation, KinkWarning, as_activation
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network

_DEEPEST = 100_000
_BETWEEN_NAMES = re.compile(r",(?![^(]*\))")  # a comma outside of parentheses: polynomial(1, 2) is one name


def activation_named(text: str) -> tuple[Activation, list[str]]:
    """The activation behind a name or module:function, and notes about kinks that were found in it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KinkWarning)
        activation = as_activation(_function(text) if ":" in text else text)
    return activation, [
        f"note: {warning.message}" for warning in caught if issubclass(warning.category, KinkWarning)
    ]


def _function(text: str) -> Callable:
    module, _, name = text.partition(":")
    if not (module and name):
        raise ValueError(
            f"activation {text!r} is not of the form module:function; use my_module:my_function."
        )
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does, so that modules in this directory are found
    try:
        loaded = importlib.import_module(module.removesuffix(".py"))
    except Exception as error:  # a user's module may raise anything when it is imported
        raise ValueError(
            f"module {module!r} cannot be imported ({type(error).__name__}: {error}); it must be a file "
            f"{module.removesuffix('.py')}.py in this directory or an installed module."
        ) from error
    try:
        return getattr(loaded, name)
    except AttributeError:
        raise ValueError(f"module {module!r} has no function {name!r}; check its spelling.") from None


def network_described(
    widths: str, activation: str, options: dict[str, str], input_scale: float
) -> tuple[Network, list[str]]:
    """The network of `finitewidth audit`, from a TOML file or from widths and options, and notes about it."""
    if widths.endswith(".toml"):
        table = parse(Path(widths)).get("network")
        if not isinstance(table, dict):
            raise ValueError(
                f"{widths}: 'network' is missing; add a table [network] with widths and activation."
            )
        return read_network(table, widths).network(input_scale), []
    activations, notes = _activations(activation)
    weights = tuple(name.strip() for name in options.get("weights", "gaussian").split(","))
    numbers = {name: _numbers(name, text) for name, text in options.items() if name != "weights"}
    ensemble = weights[0] if len(weights) == 1 else weights
    return MLP(_widths(widths), activations, **numbers, weights=ensemble), notes


EXAMPLE = "784,100x20,10"


def network_of_pytorch(activation: str) -> tuple[Network, list[str]]:
    """The example of `finitewidth audit`, initialized as torch.nn.Linear is, and notes about it.

    Both weights and biases are uniform between -1 and 1 over the root of the fan-in.
    """
    activations, notes = _activations(activation)
    widths = _widths(EXAMPLE)
    biases = tuple(1 / (3 * n) for n in widths[:-1])
    note = (
        f"note: without WIDTHS this is {EXAMPLE} with {activation}, initialized as torch.nn.Linear is; "
        "name the widths of your own network, as in finitewidth audit 64,128x8,10 --activation tanh."
    )
    return MLP(widths, activations, C_b=biases, C_W=1 / 3), [note, *notes]


def _activations(text: str) -> tuple[Activation | tuple[Activation, ...], list[str]]:
    """One activation, or one for each hidden layer, and notes about them."""
    named = [activation_named(name.strip()) for name in _BETWEEN_NAMES.split(text)]
    activations = tuple(activation for activation, _ in named)
    notes = dict.fromkeys(note for _, notes in named for note in notes)
    return activations[0] if len(activations) == 1 else activations, list(notes)


def _widths(text: str) -> tuple[int, ...]:
    widths: list[int] = []
    for part in text.split(","):
        size, _, times = part.strip().partition("x")
        try:
            width, count = int(size), int(times) if times else 1
        except ValueError:
            raise ValueError(f"WIDTHS has {part!r}; write whole numbers such as 784,100x20,10.") from None
        if not 1 <= count <= _DEEPEST - len(widths):
            raise ValueError(f"WIDTHS must have 1 to {_DEEPEST} layers, got {part!r}; change it.")
        widths += [width] * count
    return tuple(widths)


def _numbers(name: str, text: str) -> float | tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--{name} must be a number or numbers separated by commas, got {text!r}.") from None
    return values[0] if len(values) == 1 else values
