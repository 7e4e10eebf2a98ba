r"""The audit of networks beyond dense layers, from generic inputs that the theory takes through them.

Signals, separations and gradients are curves over depth. A curve is exponential if its rate does not fall
with depth; a power $l^p$ has a rate p/l, which halves when the depth doubles. Powers with p up to four are no
loss: over any doubling of the depth they change by less than $e^3$.
"""

import math
from collections.abc import Sequence

import numpy as np

from finitewidth.critical.architectures.explanation import settings_of_layers
from finitewidth.critical.architectures.two_inputs import TwoInputs
from finitewidth.critical.findings import Finding, losses, merging
from finitewidth.critical.tuning import critical_version
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.network.network import Network

_EXPONENTIAL = 3.0  # logarithm of a change over a doubling of the depth, above that of small powers
_EXPONENTIAL_RATIO = 0.75  # the rate of an exponential at the end over that at the middle; a power has 1/2
_NORM_EPSILON = 3e-5  # smaller rates come from the epsilon of norms
_FEWEST_STEPS = 6  # steps that show a trend
_SUDDEN = 1e-6  # a curve that is larger than this before it vanishes has not fallen gradually


def stream_lengths(path: TwoInputs) -> tuple[float, float]:
    """Correlation lengths of norms and of directions and gradients, in layers; infinite for powers."""
    norm = path.on_stream.norm[np.asarray(path.stream[:-1]) - 1]  # a final norm does not count
    vanished = np.flatnonzero(norm == 0)
    normalized = vanished.size > 0 and abs(norm[vanished[0] - 1]) > _SUDDEN  # by a LayerNorm, at once
    parallel = 0.0 if normalized else correlation_length(path.on_stream.norm, path.stream)
    return parallel, correlation_length(path.on_stream.gradient, path.stream)


def stream_findings(net: Network, path: TwoInputs) -> tuple[Finding, ...]:
    """What explodes or vanishes on the stream, and whether attention makes positions equal."""
    curves = path.on_stream
    if not np.isfinite(curves.signal).all():  # beyond double precision the signal's finding says it all
        ones = np.ones(net.depth)
        length = correlation_length(curves.signal, path.stream)
        return losses(curves.signal, ones, ones, (length, math.inf, math.inf))
    three = (curves.signal, curves.nearby, curves.gradient)
    lengths = [correlation_length(curve, path.stream) for curve in three]
    return (*losses(*three, tuple(lengths)), *_merging_positions(net, path))  # type: ignore[arg-type]


def _merging_positions(net: Network, path: TwoInputs) -> Sequence[Finding]:
    if path.between_positions is None or not any(isinstance(one, SelfAttention) for one in net.walked):
        return ()
    count = _layers_with_positions(net)
    separation = np.maximum(1 - path.between_positions[:count], 1e-15)
    separation = separation / separation[0]
    stream = [layer for layer in path.stream if layer <= count]
    return merging("positions", separation, correlation_length(separation, stream, whole=True))


def _layers_with_positions(net: Network) -> int:
    count, shape = 0, net.input_shape
    for layer in net.layers:
        shape = layer.output_shape(shape)
        if len(shape) == 1:
            break
        count += layer.depth
    return count


def correlation_length(curve: np.ndarray, stream: Sequence[int], *, whole: bool = False) -> float:
    """Layers over which a curve changes by e, infinite if its changes are those of a power of the depth.

    The last step is left out unless the curve is `whole`: pools and the output layer are like no other.
    """
    places = np.asarray(stream) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.abs(curve[places]))
    known = np.flatnonzero(np.isfinite(logs))
    layers, logs = np.asarray(stream, dtype=float)[known], logs[known]
    if not whole and logs.size > 3:
        layers, logs = layers[:-1], logs[:-1]
    if logs.size < 2:
        return math.inf
    halves = [
        (logs.size // (2 * part), logs.size // part - 1) for part in (4, 2, 1)
    ]  # doublings of the depth
    rates = [_rate(layers, logs, *ends) for ends in halves]
    changes = [abs(logs[last] - logs[first]) if last > first else 0.0 for first, last in halves]
    strongest = int(np.argmax(changes))
    if changes[strongest] > _EXPONENTIAL:
        return 1 / abs(rates[strongest])
    is_steady = logs.size >= _FEWEST_STEPS and abs(rates[2]) > max(
        _NORM_EPSILON, _EXPONENTIAL_RATIO * abs(rates[1])
    )
    return 1 / abs(rates[2]) if is_steady else math.inf


def _rate(layers: np.ndarray, logs: np.ndarray, first: int, last: int) -> float:
    return 0.0 if last <= first else float((logs[last] - logs[first]) / (layers[last] - layers[first]))


def stream_advice(net: Network, input_scale: float) -> str:
    """C_b and C_W of the critical network with these layers, or the reason why there is none."""
    try:
        critical = critical_version(net, input_scale=input_scale)
    except ValueError as error:
        return str(error)
    settings = "; ".join(settings_of_layers(critical))
    return f"use fw.Network.critical(input_shape, *layers), which sets {settings}"
