"""Checks that every entry to the theory shares."""

import itertools
from typing import TypeGuard

import numpy as np

from finitewidth.core.inputs import as_number
from finitewidth.network.network import Network


def check_tolerance(name: str, value) -> None:
    """Tolerances are fractions."""
    if not 0 < as_number(value) < 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}.")


def accuracy_or_error(error: float, tolerance: float, name: str | None, asked: str = "tolerance") -> None:
    """Refuse results whose averages are much worse than was asked for."""
    if error > 100 * tolerance:
        raise ValueError(
            f"the averages of activation {name!r} reach an accuracy of {error:.1e} only, not {asked}="
            f"{tolerance:g}; ask for {asked}={2 * error:.0e} or lower the variances (C_W, inputs)."
        )


_ANY_NETWORK = "use order=0, infinite width, which knows every layer"


def require_dense(net: Network, *, what: str = "order 1/n", instead: str = _ANY_NETWORK) -> None:
    """Refuse layers that order 1/n, or `what`, does not know."""
    if net.not_dense is not None:
        raise ValueError(
            f"{what} knows dense layers and activations only, not the {net.not_dense} of this network; "
            f"{instead}."
        )


def check_layer(layer: int, depth: int) -> None:
    """Layers are numbered 1 to L."""
    if not (isinstance(layer, int | np.integer) and 1 <= layer <= depth):
        raise ValueError(f"layer must be a whole number from 1 to {depth}, got {layer!r}.")


def is_local(remember: bool | int) -> TypeGuard[int]:
    """Whether a number of lines was asked for."""
    return not isinstance(remember, bool | np.bool_)


def check_memory(remember: bool | int, net: Network) -> None:
    """Refuse a network whose neurons' memory cannot be carried on by so many lines."""
    if not is_local(remember):
        return
    if not net.is_smooth:
        raise ValueError(
            f"remember={remember} needs smooth activations, not {net.activation_name!r}; use remember=True."
        )
    skips = [(skip.source, end) for end, skip in enumerate(net.ladder.skips, start=1) if skip is not None]
    if any(start < before for (_, before), (start, _) in itertools.pairwise(skips)):
        raise ValueError(
            f"remember={remember} does not know skip connections within another; use remember=True."
        )
