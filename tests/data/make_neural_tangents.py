"""Make `neural_tangents.npz`: kernels of many architectures by neural-tangents 0.6.5.

    python tests/data/make_neural_tangents.py

It makes an environment for neural-tangents in the directory for temporary files if there is none, and takes a
minute. `tests/helpers/peer_kernels.py` reads the file. It holds for each shape of a sample

    inputs/6x6x2        distinct inputs; some are multiples of others, and those of 8x8x1 have a dark frame

and for each network, of which there is a list below,

    NAME/network        its description as JSON, in the form of `fw.Network.to_dict`
    NAME/K, NAME/Theta  between all these inputs

Between inputs all of which are distinct neural-tangents has no choice but to mean what we mean: its dropout
takes repeated inputs for different ones, and the same inputs given twice for the same.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

VECTOR, SEQUENCE, IMAGE, FRAMED = (7,), (5, 3), (6, 6, 2), (8, 8, 1)
FLATTEN, GLOBAL = {"kind": "Flatten"}, {"kind": "GlobalAveragePool"}


# --- layers -----------------------------------------------------------------------------------------


def _weights(C_W: float, C_b: float) -> dict:
    """Initialization, and the learning rates of the ntk parametrization."""
    return {"C_b": C_b, "C_W": C_W, "lambda_b": C_b, "lambda_W": C_W}


def dense(width: int = 8, C_W: float = 1.6, C_b: float = 0.1) -> dict:
    return {"kind": "Dense", "width": width, **_weights(C_W, C_b)}


def conv(width: int = 8, C_W: float = 1.8, C_b: float = 0.1, **window) -> dict:
    window = {"filter": 3, "stride": 1, "padding": "same", **window}
    return {"kind": "Conv", "width": width, **window, **_weights(C_W, C_b)}


def standard(layer: dict, fan_in: int, lambda_b: float = 1.0) -> dict:
    """The same layer with the learning rates of the standard parametrization."""
    return {**layer, "lambda_b": lambda_b, "lambda_W": float(fan_in)}


def residual(*layers, gamma: float = 1.0, shortcut: tuple = ()) -> dict:
    return {"kind": "Residual", "layers": list(layers), "gamma": gamma, "shortcut": list(shortcut)}


def norm(axes: str = "channels", epsilon: float = 1e-5) -> dict:
    return {"kind": "LayerNorm", "epsilon": epsilon, "axes": axes}


def pool(window, stride=None, padding: str = "valid", count_padding: bool = True) -> dict:
    stride = window if stride is None else stride
    fields = {"window": window, "stride": stride, "padding": padding, "count_padding": count_padding}
    return {"kind": "AveragePool", **fields}


def dropout(drop: float) -> dict:
    return {"kind": "Dropout", "drop": drop}


def attention(C_OV: float = 1.3, C_b: float = 0.1, sigma_QK: float = 0.8, **positions) -> dict:
    fields = {"width": 8, "C_OV": C_OV, "C_b": C_b, "sigma_QK": sigma_QK, "scaling": "linear"}
    return {"kind": "SelfAttention", **fields, **({"positions": positions} if positions else {})}


# --- networks ---------------------------------------------------------------------------------------


def perceptrons() -> dict[str, list]:
    block = residual("gelu", dense(C_W=0.5, C_b=0.02), gamma=0.9)
    plain = residual("relu", dense(C_W=0.4, C_b=0))
    pre_norm = residual(norm(), dense(), "gelu", dense(C_W=0.7))
    nested = residual("erf", dense(), residual("relu", dense(C_W=0.6), gamma=0.5), "sin", dense(), gamma=1.1)
    return {
        "linear": [dense(), dense(C_W=0.7), dense(3)],
        "relu": [dense(), "relu", dense(), "relu", dense(), "relu", dense(1)],
        "relu without biases": [dense(C_b=0), "relu", dense(C_W=2, C_b=0), "relu", dense(1, C_W=2, C_b=0)],
        "mixed activations": [dense(), "relu", dense(), "erf", dense(), "gelu", dense(), "sin", dense(1)],
        "piecewise linear": [dense(), "leaky_relu(0.2)", dense(), "scale_invariant(1.2, -0.5)", dense(1)],
        "polynomials": [dense(), "monomial(2)", dense(C_W=0.2), "polynomial(0.1, 0.8, 0, 0.1)", dense(1)],
        "dropout": [dense(), "relu", dropout(0.2), dense(), "gelu", dropout(0.4), dense(1)],
        "layer norms": [dense(), norm(), "relu", dense(), norm(epsilon=0.3), "erf", dense(1)],
        "standard": [
            standard(dense(16), 7),
            "relu",
            standard(dense(32), 16),
            "erf",
            standard(dense(1, C_b=0), 32),
        ],
        "standard without biases": [
            standard(dense(16, C_b=0), 7, lambda_b=0.0),
            "gelu",
            standard(dense(1, C_b=0), 16, lambda_b=0.0),
        ],
        "residual blocks": [dense(), block, block, block, "gelu", dense(1)],
        "deep residual network": [dense(C_b=0), *[plain] * 20, "relu", dense(1, C_b=0)],
        "nested residual blocks": [dense(), nested, "relu", dense(1)],
        "projected shortcut": [
            dense(),
            residual("relu", dense(12), "relu", dense(12), shortcut=(dense(12),), gamma=0.8),
            "relu",
            dense(1),
        ],
        "nonlinear shortcut": [
            dense(),
            residual("relu", dense(), shortcut=("erf", dense(C_W=0.5))),
            "relu",
            dense(1),
        ],
        "linear body": [dense(), residual(dense(C_W=0.3), gamma=0.6), "erf", dense(1)],
        "norms before bodies": [dense(), pre_norm, pre_norm, norm(), dense(1)],
        "norms behind bodies": [dense(), block, norm(), block, norm(), "relu", dense(1)],
        "dropout in a body": [dense(), residual("relu", dropout(0.3), dense(), gamma=0.7), "erf", dense(1)],
    }


def sequences() -> dict[str, list]:
    transformer = [
        residual(attention(), gamma=0.9),
        norm(),
        residual(dense(), "gelu", dense(C_W=0.8)),
        norm(),
    ]
    return {
        "dense at positions": [dense(), "relu", dense(), "erf", GLOBAL, dense(1)],
        "same": [conv(), "erf", conv(), "relu", FLATTEN, dense(1)],
        "even filter": [conv(filter=4), "erf", conv(filter=2), "gelu", GLOBAL, dense(1)],
        "valid": [conv(filter=2, padding="valid"), "relu", conv(padding="valid"), "relu", GLOBAL, dense(1)],
        "circular": [conv(padding="circular"), "gelu", conv(padding="circular"), "sin", GLOBAL, dense(1)],
        "circular stride": [conv(padding="circular", stride=2), "relu", conv(), "relu", FLATTEN, dense(1)],
        "long stride": [conv(filter=2, stride=3), "erf", conv(), "relu", GLOBAL, dense(1)],
        "edges of pools": [
            conv(),
            "relu",
            pool(3, 2, "same", count_padding=False),
            conv(),
            "erf",
            pool(2, 1, "same"),
            FLATTEN,
            dense(1),
        ],
        "attention, flattened": [dense(), attention(), "relu", FLATTEN, dense(1)],
        "attention, averaged": [dense(), "erf", dense(), attention(C_b=0), GLOBAL, dense(1)],
        "attention to activations": [dense(), "gelu", attention(sigma_QK=2.0), "relu", GLOBAL, dense(1)],
        "attention to data": [attention(), "erf", attention(), FLATTEN, dense(1)],
        "attention with positions": [
            dense(),
            attention(mixing="sum", variance=0.5, length=0.0),
            "relu",
            FLATTEN,
            dense(1),
        ],
        "attention with smooth positions": [
            dense(),
            attention(mixing="sum", variance=1.5, length=1.4),
            "erf",
            attention(mixing="sum", variance=0.7, length=3.0),
            GLOBAL,
            dense(1),
        ],
        "attention with further channels": [
            dense(),
            attention(mixing="concatenate", variance=1.2, length=2.0),
            "relu",
            GLOBAL,
            dense(1),
        ],
        "transformer": [dense(), *transformer, *transformer, GLOBAL, dense(1)],
        "transformer, norms first": [
            dense(),
            residual(norm(), attention()),
            residual(norm(), dense(), "relu", dense()),
            norm(),
            FLATTEN,
            dense(1),
        ],
        "dropout of a transformer": [
            dense(),
            residual(norm(), attention(), dropout(0.2), dense()),
            residual(norm(), dense(), "gelu", dropout(0.1), dense()),
            GLOBAL,
            dense(1),
        ],
    }


def images() -> dict[str, list]:
    one, two = [conv(), "relu"], [conv(), "erf"]
    wide = residual("relu", conv(), "relu", conv(), gamma=0.9)
    down = residual("relu", conv(12, stride=2), "relu", conv(12), shortcut=(conv(12, filter=1, stride=2),))
    end = [FLATTEN, dense(1)]
    return {
        "convolutions, flattened": [*one, *two, *one, *end],
        "convolutions, averaged": [*one, *two, *one, GLOBAL, dense(1)],
        "gelu convolutions, averaged": [conv(), "gelu", conv(), "gelu", GLOBAL, dense(), "sin", dense(1)],
        "valid": [conv(padding="valid"), "relu", conv(filter=2, padding="valid"), "erf", *end],
        "circular": [conv(padding="circular"), "relu", conv(padding="circular"), "relu", *end],
        "circular, averaged": [conv(padding="circular"), "erf", conv(), "relu", GLOBAL, dense(1)],
        "strides": [conv(stride=2), "relu", *one, *end],
        "strides, averaged": [conv(stride=2, padding="valid"), "relu", conv(filter=2, stride=2), "erf"]
        + [GLOBAL, dense(1)],
        "circular strides": [conv(stride=2, padding="circular"), "relu", *two, GLOBAL, dense(1)],
        "unequal axes": [conv(filter=[3, 2], stride=[2, 1]), "relu", conv(filter=[1, 3]), "erf"]
        + [pool([2, 3], [1, 2]), *end],
        "filter of one": [conv(filter=1), "relu", *two, *end],
        "flat data": [FLATTEN, dense(), "relu", dense(1)],
        "averaged data": [pool(2), *one, GLOBAL, dense(1)],
        "pools": [*one, pool(2), *two, pool(3, 1), *end],
        "pools of preactivations": [conv(), pool(2), "relu", conv(), GLOBAL, "erf", dense(1)],
        "padded pools": [*one, pool(3, 2, "same"), *two, pool(2, 1, "same"), *end],
        "padded pools, not counted": [*one, pool(3, 2, "same", False), *two, pool(2, 1, "same", False)]
        + [GLOBAL, dense(1)],
        "circular pools": [*one, pool(3, 1, "circular"), *two, pool(2, 2, "circular"), *end],
        "norm of channels": [conv(), norm(), "relu", conv(), norm(epsilon=0.2), "erf", *end],
        "norm of everything": [
            conv(),
            norm("all"),
            "relu",
            conv(),
            norm("all", 0.2),
            "erf",
            GLOBAL,
            dense(1),
        ],
        "norm of everything, flattened": [conv(), norm("all", 0.1), "relu", conv(), norm("all"), "erf", *end],
        "dropout, flattened": [*one, dropout(0.2), *two, dropout(0.3), *end],
        "dropout, averaged": [*one, dropout(0.2), *two, dropout(0.3), GLOBAL, dropout(0.1), dense(1)],
        "dropout before a pool": [*one, dropout(0.25), pool(2), *two, *end],
        "residual convolutions": [conv(), wide, wide, "relu", *end],
        "wide residual network": [conv(), wide, down, "relu", GLOBAL, dense(1)],
        "strided residual blocks, flattened": [conv(), down, residual("erf", conv(12)), "relu", *end],
        "nested residual convolutions": [conv(), residual("relu", conv(), wide, gamma=0.5), "erf", GLOBAL]
        + [dense(1)],
        "pooled residual": [conv(), residual(conv(stride=2), shortcut=(pool(2),), gamma=0.8), "relu", *end],
        "attention": [*two, conv(), attention(mixing="sum", variance=0.4, length=1.5), "relu", GLOBAL]
        + [dense(1)],
        "standard, flattened": [
            standard(conv(4), 2 * 9),
            "relu",
            standard(conv(6, filter=2, stride=2), 4 * 4),
            "erf",
            FLATTEN,
            standard(dense(1), 6 * 9),
        ],
        "standard, averaged": [
            standard(conv(4), 2 * 9),
            "relu",
            pool(2),
            standard(conv(6), 4 * 9, lambda_b=1.0),
            "gelu",
            GLOBAL,
            standard(dense(1, C_b=0), 6, lambda_b=0.0),
        ],
    }


def framed_images() -> dict[str, list]:
    bare = [conv(C_W=2.17, C_b=0), "relu"]
    end = dense(1, C_W=1, C_b=0)
    return {
        "five convolutions, flattened": [*bare * 5, FLATTEN, end],
        "five convolutions, averaged": [*bare * 5, GLOBAL, end],
        "Myrtle": [*bare * 2, pool(2), *bare, pool(2), *bare, pool(2), FLATTEN, end],
        "biases": [*[conv(), "relu"] * 2, GLOBAL, dense(1)],
    }


SETS = {VECTOR: perceptrons, SEQUENCE: sequences, IMAGE: images, FRAMED: framed_images}
NAMES = {VECTOR: "perceptron", SEQUENCE: "sequence", IMAGE: "image", FRAMED: "framed image"}


# --- kernels ----------------------------------------------------------------------------------------


def distinct_inputs(shape: tuple[int, ...]) -> np.ndarray:
    """Eight distinct inputs; the fifth is a multiple of the second, the eighth of the third."""
    Z = np.random.default_rng(sum(shape)).standard_normal((8, *shape))
    if shape == FRAMED:
        Z[:, [0, 1, -2, -1]] = 0
        Z[:, :, [0, 1, -1]] = 0
    Z[4], Z[7] = -0.5 * Z[1], 2 * Z[2]
    return Z


def make() -> dict[str, np.ndarray]:
    """All arrays of the file, in the environment of neural-tangents."""
    from benchmarks.architectures.speed_peer import Builder
    from benchmarks.peer import about_peer, imported_stax

    builder = Builder(imported_stax())
    arrays = {"made by": np.array(json.dumps(about_peer()))}
    for shape, networks in SETS.items():
        Z = distinct_inputs(shape)
        arrays["inputs/" + "x".join(map(str, shape))] = Z
        for name, layers in networks().items():
            network = {"input_shape": list(shape), "layers": layers}
            kernel_fn = builder.kernel_function(network)
            both = kernel_fn(Z, None, ("nngp", "ntk"))
            if not any("Dropout" in json.dumps(layer) for layer in layers):
                _check_blocks(kernel_fn, Z, both)
            name = f"{NAMES[shape]}: {name}"
            arrays[f"{name}/network"] = np.array(json.dumps(network))
            arrays[f"{name}/K"], arrays[f"{name}/Theta"] = (np.asarray(M) for M in (both.nngp, both.ntk))
            print(name, flush=True)
    return arrays


def _check_blocks(kernel_fn, Z: np.ndarray, both) -> None:
    """Two sets of inputs give the block of all of them."""
    block = kernel_fn(Z[:5], Z[3:], ("nngp", "ntk"))
    for value, whole, most in ((block.nngp, both.nngp, 1e-12), (block.ntk, both.ntk, 1e-6)):
        assert np.isfinite(whole).all()
        np.testing.assert_allclose(value, whole[:5, 3:], rtol=most, atol=most * np.max(whole))


def main() -> None:
    path = Path(__file__).with_name("neural_tangents.npz")
    if "--inside" in sys.argv:
        return np.savez_compressed(path, **make())
    from benchmarks.peer import environment

    subprocess.run([str(environment()), __file__, "--inside"], check=True)


if __name__ == "__main__":
    main()
