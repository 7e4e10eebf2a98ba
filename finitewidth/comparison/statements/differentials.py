"""PDLT section inf.1: the ddNTKs, their scaling with depth and width, and the failure for kinks."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, falls, pull, slope_of_logs
from finitewidth.comparison.statements.problems import (
    ASYMPTOTE,
    PDLT,
    TRAINING,
    X,
    Y,
    at_the_end,
    mlp,
    networks,
    predicted,
)
from finitewidth.comparison.statements.talks.sparsity_lecture import (
    INPUTS,
    MEMBERS,
    NARROW,
    as_printed,
    narrow_networks,
    sampled,
    two_layers,
)
from finitewidth.core.estimate import Estimate
from finitewidth.experiment.ensemble.plan import Record
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.layers.activation import Activation
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.theory.solve import solve

DEPTH, LB, LW = 4000, 0.7, 1.3
DDNTK = ("R", "S", "T", "U")
SAMPLED_WIDTHS = (2, NARROW)
RELU_WIDTHS, RELU_DEPTHS, STEPPED = (64, 512), (4, 8, 16), 200


@claim(
    "inf.13",
    f"{PDLT} (inf.13)",
    "The means of both ddNTKs are of order 1/n.",
    f"sampled networks: {MEMBERS} of two layers of each of the widths {SAMPLED_WIDTHS}",
)
def means_of_order_one_over_n() -> Iterator[Comparison]:
    theory = solve(two_layers(), INPUTS).output
    measured = {
        n: narrow_networks() if n == NARROW else sampled(two_layers(n), MEMBERS, DDNTK)
        for n in SAMPLED_WIDTHS
    }
    for n, statistics in measured.items():
        for name in DDNTK:
            stated, estimate = getattr(theory, name), getattr(statistics, name)
            yield pull(f"n times the mean, {name} at width {n}", stated, estimate)
    for name in DDNTK:
        sizes = [_entry(getattr(statistics, name), n) for n, statistics in measured.items()]
        yield falls(f"mean of {name}", 1.0, SAMPLED_WIDTHS, sizes)


def _entry(stripped: Estimate, n: int) -> Estimate:
    """The entry of the first input, with the factor 1/n of a network of width n."""
    return Estimate(np.abs(stripped.value.ravel()[0]) / n, stripped.stderr.ravel()[0] / n)


@claim(
    "inf.14-17",
    f"{PDLT} (inf.14)-(inf.17)",
    "R, S, T and U of one input obey the printed recursions.",
    "recursion: as printed, by Gauss-Hermite averages, six layers",
)
def ddntk_recursions() -> Iterator[Comparison]:
    yield from as_printed(DDNTK)


@claim(
    "inf.19-22",
    f"{PDLT} (inf.19)-(inf.22)",
    "R, S, T and U have the dimensions of NTK cubed over z squared, so that R K/Theta^3 is dimensionless.",
    "recursion: four layers, with units of z larger by 1.7 and of learning rates by 0.6",
)
def dimensions() -> Iterator[Comparison]:
    a, c = 1.7, 0.6
    plain = mlp(8, hidden=3)
    scaled = MLP(
        plain.widths,
        Activation(lambda z: a * jnp.tanh(z / a), name="tanh in other units"),
        C_b=a**2 * 0.1,
        C_W=1.2,
        lambda_b=c * a**2 * 0.5,
        lambda_W=c,
    )
    one, other = solve(plain, X[:2]).output, solve(scaled, a * X[:2]).output
    yield agree("K", a**2 * one.K, other.K, 1e-9)
    yield agree("Theta", c * a**2 * one.Theta, other.Theta, 1e-9)
    for name in ("P", "Q"):
        yield agree(name, c**2 * a**4 * getattr(one, name), getattr(other, name), 1e-6)
    for name in DDNTK:
        yield agree(name, c**3 * a**4 * getattr(one, name), getattr(other, name), 1e-6)


@claim(
    "inf.23-26",
    f"{PDLT} (inf.23)-(inf.26)",
    "K falls as l^(-p_0). Outputs times L^(p_0/2) have a size that does not depend on depth, and training "
    "them is the same as training on targets times L^(-p_0/2).",
    f"recursion: {DEPTH} layers of tanh, p_0 = 1; and closed form through order 1/n",
)
def rescaled_outputs() -> Iterator[Comparison]:
    for depth in (DEPTH // 4, DEPTH):
        net = MLP.critical((1, *[1] * depth), "tanh")
        larger = net.replace(C_W=(*net.C_W[:-1], depth * net.C_W[-1]))
        yield agree(
            f"K of rescaled outputs at {depth}",
            0.5,
            solve(larger, [[1.0]], order=1, layers=[depth]).output.K.item(),
            0.02,
        )
    net, s = mlp(32), np.sqrt(3.0)
    last = {
        name: (*getattr(net, name)[:-1], s**2 * getattr(net, name)[-1])
        for name in ("C_b", "C_W", "lambda_b", "lambda_W")
    }
    rescaled = predicted(net.replace(**last), X[:TRAINING], Y[:, :1], X[TRAINING:])
    plain = predicted(net, X[:TRAINING], Y[:, :1] / s, X[TRAINING:])
    yield agree("mean", s * plain.mean, rescaled.mean, 1e-6)
    yield agree("covariance", s**2 * plain.covariance, rescaled.covariance, 1e-6)


@functools.cache
def deep(activation: str) -> dict[str, np.ndarray]:
    """R, S, T, U, K and Theta at half and full depth."""
    net = MLP.critical((1, *[1] * DEPTH), activation, lambda_b=LB, lambda_W=LW)
    layers = [DEPTH // 2, DEPTH]
    theory = solve(net, [[1.0]], layers=layers)
    return {n: np.array([getattr(theory.layer(l), n).item() for l in layers]) for n in ("K", "Theta", *DDNTK)}


class OddNetwork(NamedTuple):
    """A deep critical network of an odd activation with sigma_1 = 1."""

    activation: str
    a: float  # -a_1
    values: dict[str, np.ndarray]  # at half and full depth

    @property
    def w(self) -> float:
        """lambda_W/(-a_1)."""
        return LW / self.a

    @property
    def total(self) -> float:
        """lambda_b + lambda_W/(-a_1)."""
        return LB + self.w


def odd_networks() -> Iterator[OddNetwork]:
    for activation, a in (("tanh", 2.0), ("sin", 1.0)):
        yield OddNetwork(activation, a, deep(activation))


@claim(
    "inf.30-33",
    f"{PDLT} (inf.30)-(inf.33)",
    "R, S and T grow as l^2 and U is constant, with the printed coefficients, for odd activations at K* = 0 "
    "criticality.",
    f"recursion: {DEPTH} layers, tanh and sin",
)
def ddntk_asymptotes() -> Iterator[Comparison]:
    l = DEPTH
    for net in odd_networks():
        stated = {
            "R": -(l**2) / 48 * (3 * LB + 4 * net.w) * net.total**2 * net.a,
            "S": l**2 / 12 * net.total**2 * LW,
            "T": l**2 / 32 * net.total * net.a * LB**2,
            "U": net.total**3 * net.a / 2,
        }
        for name, value in stated.items():
            yield agree(f"{name} of {net.activation}", value, net.values[name][-1], 2 * ASYMPTOTE)


@claim(
    "inf.34-38",
    f"{PDLT} (inf.34)-(inf.38)",
    "R K/Theta^3, S K/Theta^3 and T K/Theta^3 grow as l with the printed coefficients; U K/Theta^3 falls "
    "as 1/2l.",
    f"recursion: {DEPTH} layers, tanh and sin",
)
def ddntk_ratios() -> Iterator[Comparison]:
    l = DEPTH
    for net in odd_networks():
        unit = net.values["K"] / net.values["Theta"] ** 3
        stated = {
            "R": -(3 * LB + 4 * net.w) / net.total * l / 48,
            "S": net.w / net.total * l / 12,
            "T": (LB / net.total) ** 2 * l / 32,
            "U": 1 / (2 * l),
        }
        for name, value in stated.items():
            ratio = net.values[name] * unit
            yield agree(f"{name} K/Theta^3 of {net.activation}", value, ratio[-1], 2 * ASYMPTOTE)
            power = -1.0 if name == "U" else 1.0
            fitted = slope_of_logs((l // 2, l), ratio)
            yield agree(f"power of {name}, {net.activation}", power, fitted, 0.02)


LINEAR_DEPTH = 60


@functools.cache
def deep_linear():
    """A deep linear network with one input, and the kernel K of that input."""
    L, K = LINEAR_DEPTH, 0.8
    net = MLP((1, *[1] * L), "linear", lambda_b=LB / L, lambda_W=LW / L)
    return solve(net, [[np.sqrt(K)]]), K


@claim(
    "inf.46-48",
    f"{PDLT} (inf.46)-(inf.48)",
    "In deep linear networks R and U vanish, and S and T are exactly l^2(l^2 - 1)/12 L^3 times the printed "
    "factors.",
    f"recursion: {LINEAR_DEPTH} layers, one input and several",
)
def linear_ddntk() -> Iterator[Comparison]:
    theory, K = deep_linear()
    mu = LB + LW * K
    for l in (2, 10, LINEAR_DEPTH):
        layer, growth = theory.layer(l), l**2 * (l**2 - 1) / (12 * LINEAR_DEPTH**3)
        for name, stated in (("S", growth * mu**2 * LW), ("T", growth * mu * LW**2 * K)):
            yield agree(f"{name} of layer {l}", stated, getattr(layer, name).item(), 1e-9)
        for name in ("R", "U"):
            yield agree(f"{name} of layer {l}", 0.0, getattr(layer, name).item(), 1e-12, scale=1.0)
    depth, inputs = 6, np.array([[1.0, 0.3], [0.2, -0.9]])
    several = solve(MLP((2, *[8] * (depth - 1), 1), "linear", lambda_b=LB, lambda_W=LW), inputs).output
    gram = inputs @ inputs.T / 2
    mu_all, growth = LB + LW * gram, depth**2 * (depth**2 - 1) / 12
    S = growth * LW * np.einsum("ac,bd->abcd", mu_all, mu_all)
    T = growth * LW**2 * np.einsum("ad,bc->abcd", mu_all, gram)  # printed order 1342
    yield agree("S of several inputs", S, several.S, 1e-8)
    yield agree("T of several inputs", T, several.T, 1e-8)


@claim(
    "inf.49-51",
    f"{PDLT} (inf.49)-(inf.51)",
    "S K/Theta^3 and T K/Theta^3 of deep linear networks grow as l/12 times the printed factors.",
    f"recursion: {LINEAR_DEPTH} layers",
)
def linear_ratios() -> Iterator[Comparison]:
    theory, K = deep_linear()
    factor, layers = LW * K / (LB + LW * K), np.array([LINEAR_DEPTH // 2, LINEAR_DEPTH])
    for name, stated in (("S", factor / 12), ("T", factor**2 / 12)):
        ratio = np.array(
            [getattr(theory.layer(l), name).item() * K / theory.layer(l).Theta.item() ** 3 for l in layers]
        )
        yield agree(f"{name} K/Theta^3 l", stated, ratio[-1] / LINEAR_DEPTH, ASYMPTOTE)
        yield agree(f"power of {name}", 1.0, slope_of_logs(layers, ratio), ASYMPTOTE)


# --- kinks -------------------------------------------------------------------------------------------


def ntk_update(net: Network, members: int) -> Estimate:
    """The relative change of the NTK of one training input in a step that fits it at infinite width."""
    Theta = solve(net, X[:1], order=0, layers=[net.depth]).output.Theta.item()
    algorithm = GradientDescent(1 / Theta, 1)
    ensemble = networks(net, (X[:1], [[1.5]], X[:1]), algorithm, members, 6, record=Record(ntk=True))
    return at_the_end(ensemble.ntk_movement)


def kinked(width: int, depth: int = 3) -> MLP:
    """A critical relu network."""
    return MLP.critical((3, *[width] * (depth - 1), 1), "relu")


@claim(
    "inf.relu-width",
    f"{PDLT} section inf.1, after (inf.44)",
    "The expansion fails for relu: its NTK update falls with the width as 1/sqrt(n), while that of a smooth "
    "activation falls as 1/n.",
    f"trained networks: {STEPPED} of each of the widths {RELU_WIDTHS}, one step",
)
def relu_width() -> Iterator[Comparison]:
    for activation, power in (("relu", 0.5), ("gelu", 1.0)):
        nets = [kinked(n) if activation == "relu" else mlp(n, activation="gelu") for n in RELU_WIDTHS]
        updates = [ntk_update(net, STEPPED) for net in nets]
        yield falls(f"update of the NTK of {activation}", power, RELU_WIDTHS, updates)


@claim(
    "inf.relu-depth",
    f"{PDLT} section inf.1, after (inf.44)",
    "The NTK update of relu networks grows linearly with depth.",
    f"trained networks: {STEPPED} of width 256 of each of the depths {RELU_DEPTHS}, one step",
    long=True,
)
def relu_depth() -> Iterator[Comparison]:
    updates = [ntk_update(kinked(256, depth), STEPPED) for depth in RELU_DEPTHS]
    yield falls("update of the NTK", -1.0, RELU_DEPTHS, updates)
