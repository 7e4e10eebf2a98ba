"""What a user names on the command line: an activation, a function in a module, a network in a few words."""

import importlib
import os
import sys
import warnings
from pathlib import Path

from finitewidth.interface.runs.reading import parse, read_network
from finitewidth.network.activation import Activation, KinkWarning, as_activation
from finitewidth.network.mlp import MLP


def activation_named(text: str) -> tuple[Activation, list[str]]:
    """The activation behind a name or module:function, and what it has to say about kinks."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KinkWarning)
        found = as_activation(_function(text) if ":" in text else text)
    return found, [
        f"note: {warning.message}" for warning in caught if issubclass(warning.category, KinkWarning)
    ]


def _function(text: str):
    module, _, name = text.partition(":")
    if not (module and name):
        raise ValueError(
            f"activation {text!r} is not of the form module:function; use my_module:my_function."
        )
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` would: modules beside the user are found
    try:
        loaded = importlib.import_module(module.removesuffix(".py"))
    except Exception as error:  # whatever a user's module does on import
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
) -> tuple[MLP, list[str]]:
    """The network of `finitewidth audit`, from a TOML file or from widths and options."""
    if widths.endswith(".toml"):
        table = parse(Path(widths)).get("network")
        if not isinstance(table, dict):
            raise ValueError(
                f"{widths}: 'network' is missing; add a table [network] with widths and activation."
            )
        return read_network(table, widths, input_scale), []
    found, notes = activation_named(activation)
    numbers = {name: _numbers(name, text) for name, text in options.items()}
    return MLP(_widths(widths), found, **numbers), notes


_DEEPEST = 100_000


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
