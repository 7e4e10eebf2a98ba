"""Recursions with an activation for each layer (PDLT sections 4.3 and 8.3), and orthogonal weights."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import ndtr

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, extrapolated, pull
from finitewidth.comparison.statements.problems import PDLT, X, pair_averages
from finitewidth.core.run import QUIET
from finitewidth.experiment.statistics import sample_statistics
from finitewidth.network.mlp import MLP
from finitewidth.theory.solve import solve

INPUTS = X[:2]
WIDTHS, DRAWN = (16, 32), 20_000
ACTIVATIONS = ("tanh", "relu", "gelu")
LAYERS: dict[str, Any] = dict(
    C_b=(0.1, 0.05, 0.2, 0.1),
    C_W=(1.2, 1.1, 1.8, 1.3),
    lambda_b=(0.5, 0.3, 0.4, 0.6),
    lambda_W=(1.0, 0.8, 1.2, 0.9),
)


def mixed(width: int) -> MLP:
    """A network with tanh, relu and gelu in turn, and different hyperparameters in each layer."""
    return MLP((3, *[width] * len(ACTIVATIONS), 1), ACTIVATIONS, **LAYERS)


def tanh_averages(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """<s s> and <s' s'> of tanh for every pair of samples, by Gauss-Hermite averages."""
    squares = pair_averages(lambda u, v: np.tanh(u) * np.tanh(v), K)
    return squares, pair_averages(lambda u, v: (np.cosh(u) * np.cosh(v)) ** -2.0, K)


def relu_averages(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of relu, by the angle between two samples."""
    size = np.sqrt(np.outer(np.diag(K), np.diag(K)))
    angle = np.arccos(np.clip(K / size, -1.0, 1.0))
    squares = size / (2 * np.pi) * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
    return squares, (np.pi - angle) / (2 * np.pi)


def gelu_averages(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of gelu, z times the normal distribution function, by Gauss-Hermite averages."""

    def slope(z):
        return ndtr(z) + z * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

    squares = pair_averages(lambda u, v: u * ndtr(u) * v * ndtr(v), K)
    return squares, pair_averages(lambda u, v: slope(u) * slope(v), K)


AVERAGES = {"tanh": tanh_averages, "relu": relu_averages, "gelu": gelu_averages}


@claim(
    "mixed-activations",
    f"{PDLT} sections 4.3 and 8.3",
    "K' = C_b + C_W <ss> and Theta' = lambda_b + lambda_W <ss> + C_W <s's'> Theta hold from layer to layer "
    "with the activation between the two layers, here tanh, relu and gelu in turn; G, H and V of networks "
    "tend to K, Theta and the V of the recursions as the width grows.",
    "recursion: as printed, by Gauss-Hermite averages and angles, four layers; and sampled networks: "
    f"{DRAWN} of each of the widths {WIDTHS}, extrapolated in 1/n",
)
def mixed_activations() -> Iterator[Comparison]:
    net = mixed(WIDTHS[0])
    theory = solve(net, INPUTS)
    gram = INPUTS @ INPUTS.T / 3
    K, Theta = net.C_b[0] + net.C_W[0] * gram, net.lambda_b[0] + net.lambda_W[0] * gram
    for l, name in enumerate(ACTIVATIONS, start=1):
        squares, slopes = AVERAGES[name](K)
        Theta = net.lambda_b[l] + net.lambda_W[l] * squares + net.C_W[l] * slopes * Theta
        K = net.C_b[l] + net.C_W[l] * squares
        yield agree(f"K after {name}", K, theory.layer(l + 1).K, 1e-8)
        yield agree(f"Theta after {name}", Theta, theory.layer(l + 1).Theta, 1e-8)
    sampled = [sample_statistics(mixed(n), INPUTS, DRAWN, 10, tensors=("V",), run=QUIET) for n in WIDTHS]
    for name, stated in (("G", K), ("H", Theta), ("V", theory.output.V)):
        estimates = [getattr(one, name) for one in sampled]
        yield pull(f"{name} of networks", stated, extrapolated(WIDTHS, estimates))


# --- orthogonal weights ----------------------------------------------------------------------------------

ORTHOGONAL = "Orthogonal weights at order 1/n"
DEEP, LOGARITHMIC = 4000, 0.01  # layers, and what log(l)/l leaves there


@claim(
    "orthogonal.linear",
    ORTHOGONAL,
    "Deep linear networks with orthogonal weights keep norms and angles: V = -(K13 K24 + K14 K23) at every "
    "depth, and D, A, F, B, P, R, U, G1, H1 vanish, while S = lambda_W mu13 mu24 (l-1)l(2l-1)/6 with "
    "mu = lambda_b + lambda_W K.",
    "closed form: two inputs, six layers",
)
def orthogonal_linear() -> Iterator[Comparison]:
    lb, lW, l = 0.5, 1.3, 6
    net = MLP([3] * (l + 1), "linear", lambda_b=lb, lambda_W=lW, weights="orthogonal")
    out = solve(net, INPUTS).output
    K, mu = out.K, lb + lW * out.K
    exchanged = np.einsum("ac,bd->abcd", K, K) + np.einsum("ad,bc->abcd", K, K)
    yield agree("V", -exchanged, out.V, 1e-11)
    yield agree("S", lW * np.einsum("ac,bd->abcd", mu, mu) * (l - 1) * l * (2 * l - 1) / 6, out.S, 1e-11)
    size = float(np.abs(out.S).max())
    for name in ("D", "A", "F", "B", "P", "R", "U", "G1", "H1"):
        yield agree(name, 0.0, np.abs(out.arrays[name]).max(), 1e-11, scale=size)


@claim(
    "orthogonal.saturation",
    ORTHOGONAL,
    "Fluctuations of critical tanh networks with orthogonal weights saturate with depth: V/K^2 tends to -2, "
    "G1/K to 2, F/(K Theta) to -2/3, B/Theta^2 to 2/l and P/Theta^2 to -1/3, where Gaussian weights have "
    "(2/3) l, -(1/3) l, l/4, l/3 and -l/12; V/K^2 of relu is 3l - 5, and 5(l-1) with Gaussian weights.",
    f"recursion: {DEEP} layers, tanh; closed form, relu",
)
def orthogonal_saturation() -> Iterator[Comparison]:
    rates = [1 / l for l in range(1, DEEP + 1)]
    net = MLP([1] * (DEEP + 1), "tanh", lambda_b=rates, weights="orthogonal")
    layer = solve(net, [[math.sqrt(0.5)]], layers=(DEEP,)).output
    K, Theta = layer.K.item(), layer.Theta.item()
    limits = {"V": (2, 0, -2.0), "G1": (1, 0, 2.0), "F": (1, 1, -2 / 3), "P": (0, 2, -1 / 3)}
    for name, (k, theta, limit) in (limits | {"B": (0, 2, 2 / DEEP)}).items():
        yield agree(name, limit, layer.arrays[name].item() / (K**k * Theta**theta), LOGARITHMIC)
    relu = solve(MLP([2] * 9, "relu", C_W=2.0, weights="orthogonal"), [[0.6, -0.8]])
    for l in (2, 8):
        ratio = relu.layer(l).V.item() / relu.layer(l).K.item() ** 2
        yield agree(f"V of relu, layer {l}", 3.0 * l - 5, ratio, 1e-11, scale=1.0)
    layer = solve(net.replace(weights="gaussian"), [[math.sqrt(0.5)]], layers=(DEEP,)).output
    for name, slope in (("V", 2 / 3), ("G1", -1 / 3), ("F", 1 / 4), ("B", 1 / 3), ("P", -1 / 12)):
        k, theta = {"V": (2, 0), "G1": (1, 0), "F": (1, 1)}.get(name, (0, 2))
        size = layer.arrays[name].item() / (layer.K.item() ** k * layer.Theta.item() ** theta * DEEP)
        yield agree(f"{name} of Gaussian weights, over l", slope, size, LOGARITHMIC)
