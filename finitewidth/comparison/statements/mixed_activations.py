"""PDLT sections 4.3 and 8.3: the recursions from layer to layer, with a different activation in each."""

from collections.abc import Iterator

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
LAYERS = dict(
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
