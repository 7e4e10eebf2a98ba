"""The initialization of a network of different activations in words, layer by layer.

`MLP.critical` sets every layer by the activation before it. These sentences say what it set and what the
susceptibilities of each step are; they hold for any network, however it was initialized.
"""

import math
from collections.abc import Sequence

import numpy as np

from finitewidth.critical.activations.classification import criticality
from finitewidth.critical.activations.explanation import in_range, numbered, shortened
from finitewidth.critical.activations.susceptibilities import CRITICAL
from finitewidth.critical.one_input import OneInput
from finitewidth.network.layers.activation import Activation
from finitewidth.network.network import Network


def settings_in_words(net: Network) -> tuple[str, ...]:
    """C_b and C_W of the layers; layers with the same activation before them and equal variances together."""
    first = f"layer 1 to {_variances(net, 1)}"
    kinds = (f"{_named(net, layers)} to {_variances(net, layers[0])}" for layers in _kinds(net))
    return shortened((first, *kinds))


def steps_in_words(net: Network, path: OneInput) -> tuple[str, ...]:
    """C_b and C_W of the layers and whether the step to them is critical, for one input."""
    start = f"layer 1: {_variances(net, 1)}; the kernel starts at K = {path.K[0]:.4g}"
    kinds = (
        f"{_named(net, layers)}: {_variances(net, layers[0])}; {_verdict(net, path, layers)}"
        for layers in _kinds(net)
    )
    return shortened((start, *kinds))


def _kinds(net: Network) -> list[list[int]]:
    """Layers 2 to L, grouped by the activation before them, C_b and C_W."""
    kinds: dict[tuple[Activation, float, float], list[int]] = {}
    for l in range(2, net.depth + 1):
        kinds.setdefault((net.activations[l - 2], net.C_b[l - 1], net.C_W[l - 1]), []).append(l)
    return list(kinds.values())


def _named(net: Network, layers: Sequence[int]) -> str:
    return f"{numbered(layers)} (after {net.activations[layers[0] - 2].name})"


def _variances(net: Network, layer: int) -> str:
    return f"C_b = {net.C_b[layer - 1]:.9g}, C_W = {net.C_W[layer - 1]:.9g}"


def _verdict(net: Network, path: OneInput, layers: Sequence[int]) -> str:
    """Of the steps that end in these layers; chi is that of the layer before."""
    before = np.asarray(layers) - 2
    parallel, perpendicular = path.parallel[before], path.perpendicular[before]
    place = f"at K = {in_range(path.K[before])}"
    if not np.isfinite(perpendicular).all():
        return "the kernel grows beyond double precision"
    if _is_one(perpendicular) and _is_one(parallel):
        return f"critical {place}"
    if _is_one(perpendicular):
        fate = "shrink" if np.abs(parallel[-1]) < 1 else "grow"
        return (
            f"chi_perpendicular = 1 {place} keeps angles and gradients, but differences of norm {fate} "
            f"by chi_parallel = {in_range(parallel)} in each layer"
        )
    numbers = f"chi_parallel = {in_range(parallel)} and chi_perpendicular = {in_range(perpendicular)} {place}"
    point = criticality(net.activations[layers[0] - 2])
    at_zero = point.universality_class == "K*=0" and net.C_b[layers[0] - 1] == 0
    if at_zero and math.isclose(net.C_W[layers[0] - 1], point.C_W or math.nan, rel_tol=CRITICAL):
        return f"critical at K* = 0, and the closer the smaller K is: {numbers}"
    return f"not critical: {numbers}"


def _is_one(chi: np.ndarray) -> bool:
    return bool((np.abs(chi - 1) <= CRITICAL).all())
