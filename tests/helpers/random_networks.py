"""Random networks of all kinds of layers, as plain numbers and strings."""

import numpy as np

import finitewidth as fw

SHAPES = {"sequence": (6, 2), "image": (4, 5, 2)}  # few, since each shape is compiled anew


def random_network(seed: int, kind: str) -> dict:
    """A network that the library accepts, in the form of `fw.Network.to_dict`."""
    rng = np.random.default_rng([seed, len(kind)])
    for _ in range(1000):
        layers = [weights(rng, kind), *random_layers(rng, kind, 2 + int(rng.integers(3)))]
        network = {
            "input_shape": list(SHAPES[kind]),
            "layers": [*layers, *readout(rng), {"kind": "Dense", "width": 1, **rates(rng)}],
        }
        try:
            fw.Network.from_dict(network)
        except ValueError:
            continue
        return network
    raise AssertionError("no network was accepted")


def random_layers(rng, kind: str, count: int) -> list:
    return [layer for _ in range(count) for layer in random_part(rng, kind)]


def random_part(rng, kind: str) -> list:
    """One of the pieces that networks are made of."""
    inner = [activation(rng), {"kind": "Conv", "width": 4, "filter": 3, **rates(rng)}]
    pieces = [
        [activation(rng), weights(rng, kind)],
        [activation(rng), weights(rng, kind)],
        [{"kind": "Residual", "layers": [*normed(rng), *inner], "gamma": float(rng.uniform(0.3, 1.2))}],
        [{"kind": "Residual", "layers": [*inner, {"kind": "Residual", "layers": inner}]}],
        [residual_with_stride(rng)],
        [activation(rng), pool(rng), weights(rng, kind)],
        [*normed(rng)],
        [activation(rng), {"kind": "Dropout", "drop": 0.3}, weights(rng, kind)],
        [attention(rng), *normed(rng)],
    ]
    return pieces[rng.integers(len(pieces))]


def rates(rng) -> dict:
    names = ("C_b", "C_W", "lambda_b", "lambda_W")
    return dict(zip(names, rng.uniform((0, 0.5, 0, 0.2), (0.3, 2, 1, 2)).tolist(), strict=True))


def activation(rng) -> str:
    return ("relu", "erf")[rng.integers(2)]


def weights(rng, kind: str) -> dict:
    axes = len(SHAPES[kind]) - 1
    if rng.random() < 0.2:
        return {"kind": "Dense", "width": 4, **rates(rng)}
    padding = ("same", "same", "circular", "valid", 1)[rng.integers(5)]
    stride = [1 + int(rng.random() < 0.3) for _ in range(axes)]
    window = rng.integers(1, 4, axes).tolist()
    return {"kind": "Conv", "width": 4, "filter": window, "stride": stride, "padding": padding, **rates(rng)}


def residual_with_stride(rng) -> dict:
    down = {"kind": "Conv", "width": 4, "stride": 2, **rates(rng)}
    shortcut = [{**down, "filter": 1}] if rng.random() < 0.5 else [{"kind": "AveragePool", "window": 2}]
    return {"kind": "Residual", "layers": [activation(rng), down], "shortcut": shortcut, "gamma": 0.8}


def pool(rng) -> dict:
    padding, counts = ("valid", "same", "circular")[rng.integers(3)], bool(rng.integers(2))
    window, stride = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    return {
        "kind": "AveragePool",
        "window": window,
        "stride": stride,
        "padding": padding,
        "count_padding": counts or padding == "circular",
    }


def normed(rng) -> list:
    axes, gain = ("channels", "all")[rng.integers(2)], (0.0, 0.3)[rng.integers(2)]
    return [{"kind": "LayerNorm", "epsilon": 0.1, "axes": axes, "lambda_gain": gain, "lambda_offset": 0.1}]


def attention(rng) -> dict:
    positions = {"mixing": ("sum", "concatenate")[rng.integers(2)], "variance": 0.7, "length": 1.5}
    fields = {"width": 4, "C_OV": 1.2, "C_b": 0.1, "sigma_QK": 0.6}
    return {"kind": "SelfAttention", **fields, **({"positions": positions} if rng.random() < 0.5 else {})}


def readout(rng) -> list:
    end = {"kind": ("Flatten", "GlobalAveragePool")[rng.integers(2)]}
    return [activation(rng), end] if rng.random() < 0.7 else [end]
