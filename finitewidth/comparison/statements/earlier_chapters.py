"""PDLT chapters 5, 7, 9 and 11, to which the sources refer: criticality, one step, the NTK and its change."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, slope_of_logs
from finitewidth.critical.one_input import layer_by_layer
from finitewidth.experiment.directions import ntk
from finitewidth.experiment.functions import initialize
from finitewidth.experiment.sampling import outputs, rates
from finitewidth.network.mlp import MLP
from finitewidth.theory.solve import solve

SOURCE = "PDLT chapters 5, 7, 9 and 11"
LAYERS, DEEP = 8, 1000
ROUNDING, PRINTED = 1e-10, 1e-7  # of a recursion, and of numbers that are printed with eight digits
SLOW = 0.02  # laws of a thousand layers whose corrections fall as log(l)/l
X = np.array([[0.6, -0.8]])
PIECEWISE = {"relu": (1.0, 0.0), "leaky_relu(0.2)": (1.0, 0.2)}


@claim(
    "5.scale-invariant",
    SOURCE,
    "With the averages A_2 of a_+^2 and a_-^2, and A_4 of a_+^4 and a_-^4, piecewise linear activations are "
    "critical at C_W = 1/A_2, where K is the same in all layers and V = (l - 1) (3 A_4/A_2^2 - 1) K^2.",
    f"recursion: {LAYERS} layers, relu and leaky relu",
)
def scale_invariant() -> Iterator[Comparison]:
    for name, slopes in PIECEWISE.items():
        A_2, A_4 = (float(np.mean(np.power(slopes, power))) for power in (2, 4))
        net = MLP((2, *[1] * LAYERS), name, C_b=0.0, C_W=1 / A_2)
        layers = [solve(net, X, tensors=("V",)).layer(l) for l in range(1, LAYERS + 1)]
        K = layers[0].K.item()
        stated = np.arange(LAYERS) * (3 * A_4 / A_2**2 - 1) * K**2
        yield agree(f"K of {name}", K, [layer.K.item() for layer in layers], ROUNDING)
        yield agree(f"V of {name}", stated, [layer.V.item() for layer in layers], ROUNDING)


@claim(
    "5.half-stable",
    SOURCE,
    "Swish and gelu are critical at C_b, C_W = 0.55514317, 1.98800468 and 0.17292239, 1.98305826: there both "
    "susceptibilities are one at the fixed point of the kernel.",
    "closed form: Gauss-Hermite averages of 200 nodes, which know nothing of the library's",
)
def half_stable() -> Iterator[Comparison]:
    printed = {"swish": (0.55514317, 1.98800468, 14.32), "gelu": (0.17292239, 1.98305826, 3.56)}
    functions = {"swish": lambda z: z / (1 + np.exp(-z)), "gelu": lambda z: z * ndtr(z)}
    for name, (C_b, C_W, near) in printed.items():
        K = _fixed_point(functions[name], C_W, near)
        parallel, perpendicular, mean = _averages(functions[name], K)
        yield agree(f"chi_parallel of {name}", 1.0, C_W * parallel, PRINTED)
        yield agree(f"chi_perpendicular of {name}", 1.0, C_W * perpendicular, PRINTED)
        yield agree(f"K of {name}", K, C_b + C_W * mean, PRINTED)


def _averages(sigma: Callable, K: float) -> tuple[float, float, float]:
    """d<ss>/dK, <s's'> and <ss>, with derivatives by differences of fourth order."""
    z, weight = np.polynomial.hermite_e.hermegauss(200)
    z, weight = np.sqrt(K) * z, weight / weight.sum()
    step = 1e-4
    slope = (8 * (sigma(z + step) - sigma(z - step)) - sigma(z + 2 * step) + sigma(z - 2 * step)) / (
        12 * step
    )
    mean = weight @ sigma(z) ** 2
    return weight @ (sigma(z) * slope * z) / K, weight @ slope**2, mean


def _fixed_point(sigma: Callable, C_W: float, near: float) -> float:
    """The K near to `near` at which the perpendicular susceptibility is one, by Newton's method."""
    K = near
    for _ in range(20):
        value, above = (C_W * _averages(sigma, k)[1] - 1 for k in (K, K + 1e-4))
        K -= value * 1e-4 / (above - value)
    return K


@claim(
    "7.one-step",
    SOURCE,
    "A step of gradient descent changes outputs by -eta H (z - y), with the NTK H of the network, up to "
    "order eta^2.",
    "trained networks: one of width 16, one step of three sizes, automatic differentiation",
)
def one_step() -> Iterator[Comparison]:
    net = MLP((2, 16, 16, 1), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5, lambda_W=1.3)
    x, y = jnp.asarray([[0.6, -0.8], [1.0, 0.3]]), jnp.asarray([[0.7], [-0.2]])
    theta, scales = initialize(net, 0), rates(net)
    z = outputs(net, theta, x)
    slopes = jax.grad(lambda theta: 0.5 * jnp.sum((outputs(net, theta, x) - y) ** 2))(theta)
    stated = -np.asarray(ntk(net, theta, x)[0, :, 0, :] @ (z - y))  # over eta

    def moved(eta: float) -> np.ndarray:
        stepped = jax.tree.map(lambda a, scale, slope: a - eta * scale * slope, theta, scales, slopes)
        return np.asarray(outputs(net, stepped, x) - z)

    sizes = np.array([1e-2, 1e-3])
    missed = np.array([np.abs(moved(eta) - eta * stated).max() for eta in sizes])
    yield agree("change of the outputs over eta", stated, moved(1e-6) / 1e-6, 1e-5)
    yield agree("power of eta in what is missed", 2.0, slope_of_logs(sizes, missed), SLOW)


@claim(
    "9.equal-layers",
    SOURCE,
    "All layers contribute equally to the NTK with the learning rates lambda/L in the scale-invariant class "
    "(9.94), and l^(-p) L^(p-1) lambda_b and (L/l)^(p-1) lambda_W at K* = 0 (9.95), with p = 1 for tanh.",
    f"recursion: {DEEP} layers, relu and tanh",
)
def equal_layers() -> Iterator[Comparison]:
    layers = np.arange(1, DEEP + 1)
    for name, C_W, biases, weights in (
        ("relu", 2.0, np.full(DEEP, 1 / DEEP), np.full(DEEP, 1 / DEEP)),
        ("tanh", 1.0, 1 / layers, np.ones(DEEP)),
    ):
        path = layer_by_layer(MLP((1, *[1] * DEEP), name, C_b=0.0, C_W=C_W), 1.0)
        chi = np.array(path.perpendicular)
        above = np.array([np.prod(chi[l:]) for l in range(DEEP)])  # from layer l on, to the output
        half = slice(DEEP // 2, DEEP)
        for part, shares in (
            ("biases", biases * above),
            ("weights", weights[1:] * np.array(path.K[1:]) / C_W * above[1:]),
        ):
            shares = shares[half] / np.mean(shares[half])
            yield agree(f"shares of the {part}, {name}", np.ones(shares.size), shares, SLOW)


@claim(
    "11.growth",
    SOURCE,
    "The correlation of the dNTK with outputs grows as depth over width at criticality: in linear networks P "
    "vanishes, and Q/(n Theta^2) is linear in the number of layers.",
    "recursion: networks of 100 and 200 layers with equal shares of all layers",
)
def differential_grows() -> Iterator[Comparison]:
    sizes = (100, 200)
    ends = [solve(MLP.critical((2, *[1] * L), "linear"), X, tensors=("P", "Q")).output for L in sizes]
    ratios = np.array([end.Q.item() / end.Theta.item() ** 2 for end in ends])
    yield agree("P/Theta^2", 0.0, [end.P.item() / end.Theta.item() ** 2 for end in ends], ROUNDING, scale=1.0)
    yield agree("power of depth in Q/Theta^2", 1.0, slope_of_logs(sizes, ratios), SLOW)
