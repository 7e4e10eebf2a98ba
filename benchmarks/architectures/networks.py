"""The networks of `speed.py` as plain numbers and strings, and the arithmetic that they need."""

import json

import numpy as np
from helpers.brute_force import windows

WIDTH = 64  # enters neither side: the learning rates do not depend on it
C_W, C_B = 2.0, 0.01
FLATTEN, GLOBAL = {"kind": "Flatten"}, {"kind": "GlobalAveragePool"}
POOL = {"kind": "AveragePool", "window": 2, "stride": 2, "padding": "valid", "count_padding": True}


def _weights(kind: str, width: int = WIDTH, C_W: float = C_W, **fields) -> dict:
    """Weights with the learning rates that neural-tangents has: lambda_W = C_W, lambda_b = C_b."""
    rates = {"C_b": C_B, "C_W": C_W, "lambda_b": C_B, "lambda_W": C_W}
    return {"kind": kind, "width": width, **fields, **rates}


def _conv(width: int = WIDTH, taps: int = 3, stride: int = 1) -> dict:
    return _weights("Conv", width, filter=taps, stride=stride, padding="same")


def _text(input_shape: list[int], *layers) -> str:
    return json.dumps({"input_shape": input_shape, "layers": [*layers, _weights("Dense", 10)]})


def convolutions(side: int, channels: int, end: dict, activation: str = "relu", count: int = 5) -> str:
    """Convolutions of 3x3, then the readout."""
    return _text([side, side, channels], *[_conv(), activation] * count, end)


def myrtle(side: int, channels: int = 1, activation: str = "relu") -> str:
    """Myrtle-5: four convolutions with pools between them down to one position."""
    step = [_conv(), activation]
    pools = side.bit_length() - 3  # behind the last convolution
    return _text([side, side, channels], *step * 2, POOL, *step, POOL, *step, *[POOL] * pools, FLATTEN)


def pooled(side: int, channels: int, activation: str = "relu") -> str:
    """Two convolutions, an average over 2x2 and the readout by position."""
    return _text([side, side, channels], *[_conv(), activation] * 2, POOL, FLATTEN)


def residual_perceptron(depth: int, activation: str = "relu", dimension: int = 64) -> str:
    """So many layers with weights, all but the first and the last with a skip."""
    block = {"kind": "Residual", "gamma": 0.9, "shortcut": []}
    block["layers"] = [activation, _weights("Dense", C_W=0.4)]
    return _text([dimension], _weights("Dense"), *[block] * (depth - 2), activation)


def wide_residual_network(side: int, channels: int = 3, activation: str = "relu") -> str:
    """Two strided residual blocks of two convolutions, then the average of all positions."""

    def block(stride: int) -> dict:
        body = [activation, _conv(stride=stride), activation, _conv()]
        skip = [_conv(taps=1, stride=stride)] if stride > 1 else []
        return {"kind": "Residual", "layers": body, "gamma": 1.0, "shortcut": skip}

    return _text([side, side, channels], _conv(), block(1), block(2), activation, GLOBAL)


# --- the least that must be done --------------------------------------------------------------------


def site_pairs(text: str) -> int:
    """Pairs of positions that pass an activation, in all layers, for one pair of samples.

    A pair counts if the output depends on it: found backwards from the readout, layer by layer.
    """
    network = json.loads(text)
    shapes = [tuple(network["input_shape"][:-1])]
    for layer in network["layers"]:
        shapes.append(_shape_behind(layer, shapes[-1]))
    count, asked = 0, np.ones((1, 1), dtype=bool)
    for layer, shape in zip(reversed(network["layers"]), reversed(shapes[:-1]), strict=True):
        more, asked = _asked_before(layer, shape, asked)
        count += more
    return count


def _shape_behind(layer, shape: tuple[int, ...]) -> tuple[int, ...]:
    kind = "" if isinstance(layer, str) else layer["kind"]
    if kind in ("Flatten", "GlobalAveragePool"):
        return ()
    if kind == "Residual":
        for one in layer["layers"]:
            shape = _shape_behind(one, shape)
        return shape
    return _windows(layer, shape)[1] if kind in ("Conv", "AveragePool") else shape


def _asked_before(layer, shape: tuple[int, ...], asked: np.ndarray) -> tuple[int, np.ndarray]:
    """How many pairs the layer itself evaluates, and which pairs of positions (P, P) it asks for."""
    positions = int(np.prod(shape))
    if isinstance(layer, str):
        return int(asked.sum()), asked
    if layer["kind"] == "Flatten":
        return 0, np.eye(positions, dtype=bool)
    if layer["kind"] == "GlobalAveragePool":
        return 0, np.ones((positions, positions), dtype=bool)
    if layer["kind"] == "Residual":
        return _asked_by_branches(layer, shape, asked)
    if layer["kind"] not in ("Conv", "AveragePool"):
        return 0, asked
    return 0, _asked_by_windows(layer, shape, asked)


def _asked_by_branches(layer: dict, shape: tuple[int, ...], asked: np.ndarray) -> tuple[int, np.ndarray]:
    count, wanted = 0, np.zeros((int(np.prod(shape)),) * 2, dtype=bool)
    for branch in (layer["layers"], layer["shortcut"]):
        shapes = [shape]
        for one in branch:
            shapes.append(_shape_behind(one, shapes[-1]))
        of_branch = asked
        for one, before in zip(reversed(branch), reversed(shapes[:-1]), strict=True):
            more, of_branch = _asked_before(one, before, of_branch)
            count += more
        wanted |= of_branch
    return count, wanted


def _asked_by_windows(layer: dict, shape: tuple[int, ...], asked: np.ndarray) -> np.ndarray:
    sources, _ = _windows(layer, shape)
    positions = int(np.prod(shape))
    wanted = np.zeros((positions + 1, positions + 1), dtype=bool)  # the last one is outside
    first, second = np.nonzero(asked)
    taps = range(sources.shape[1])
    pairs = [(f, g) for f in taps for g in taps if f == g or layer["kind"] == "AveragePool"]
    for f, g in pairs:  # a convolution moves both positions by the same tap
        wanted[sources[first, f], sources[second, g]] = True
    return wanted[:-1, :-1]


def _windows(layer: dict, shape: tuple[int, ...]):
    size = layer["filter"] if layer["kind"] == "Conv" else layer["window"]
    return windows(shape, size, layer["stride"], layer["padding"])
