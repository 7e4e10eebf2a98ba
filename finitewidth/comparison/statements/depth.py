"""PDLT section 10.3.1: the dependence of generalization on depth, in both universality classes."""

import functools
import math
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, differ, slope_of_logs
from finitewidth.comparison.statements.generalization import pair
from finitewidth.comparison.statements.problems import ASYMPTOTE, PDLT
from finitewidth.critical.activations.classification import criticality
from finitewidth.critical.one_input import layer_by_layer
from finitewidth.network.layers.activation import Activation
from finitewidth.network.mlp import MLP
from finitewidth.theory.solve import solve
from finitewidth.training.infinite.bayes import rates as bayesian_rates
from finitewidth.training.textbook.delta_expansion import delta_expansion
from finitewidth.training.textbook.finite_angle import finite_angle
from finitewidth.training.textbook.generalization import neighbour

DEPTH, LB, LW = 4000, 0.7, 1.3
NEARBY = 800  # layers of the expansion for two inputs
LOGARITHMIC = 0.03  # accuracy at hundreds of layers of a law whose corrections fall as log(l)/l
TILTED = Activation(lambda z: jnp.tanh(z) + 0.3 * z * z, name="tanh(z) + 0.3 z^2")  # sigma_2 is not zero


@functools.cache
def deep(activation: str | Activation):
    """One input through a critical network with the learning rates of (10.74)."""
    net = MLP.critical((1, *[1] * DEPTH), activation, lambda_b=LB, lambda_W=LW)
    return layer_by_layer(net, 1.0), criticality(activation)


@functools.cache
def nearby(activation: str | Activation, equal_rates: bool = False):
    """Two nearby inputs of equal norm; `equal_rates` ignores the learning rate equivalence principle."""
    net = MLP.critical((3, *[1] * NEARBY), activation, lambda_b=LB, lambda_W=LW)
    if equal_rates:
        net = net.replace(lambda_b=LB, lambda_W=LW)
    return delta_expansion(net, *pair(0.05))


@claim(
    "10.71-10.72",
    f"{PDLT} (10.71), (10.72)",
    "At K* = 0 criticality K tends to 1/(-a_1 l), ddK_[2] falls as l^(-p) and chi_perp tends to 1 - p/l "
    "with p = b_1/a_1.",
    f"recursion: {DEPTH} layers, tanh and tanh(z) + 0.3 z^2",
)
def kernel_laws() -> Iterator[Comparison]:
    for activation in ("tanh", TILTED):
        path, point = deep(activation)
        a_1, p = point.constants["a_1"], point.constants["b_1"] / point.constants["a_1"]
        name = point.activation.name
        yield agree(f"-a_1 l K of {name}", 1.0, -a_1 * DEPTH * path.K[-1], ASYMPTOTE)
        yield agree(f"l (1 - chi) of {name}", p, DEPTH * (1 - path.perpendicular[-1]), ASYMPTOTE)
        separation = nearby(activation).K2
        layers = np.array([NEARBY // 2, NEARBY])
        yield agree(f"power of ddK_[2] of {name}", -p, slope_of_logs(layers, separation[layers - 1]), 0.02)


@claim(
    "10.75",
    f"{PDLT} (10.75)",
    "Theta_00 tends to (lambda_b + lambda_W sigma_1^2/(-a_1)) (L/l)^(p-1) under learning rate equivalence.",
    f"recursion: {DEPTH} layers, tanh and tanh(z) + 0.3 z^2",
)
def ntk_law() -> Iterator[Comparison]:
    for activation in ("tanh", TILTED):
        path, point = deep(activation)
        p, total = point.exponents["p_perp"], _total(point)
        for layer in (DEPTH // 4, DEPTH):
            stated = total * (DEPTH / layer) ** (p - 1)
            yield agree(
                f"Theta of {point.activation.name} at {layer}", stated, path.Theta[layer - 1], ASYMPTOTE
            )


def _total(point) -> float:
    """lambda_b + lambda_W sigma_1^2/(-a_1)."""
    return LB + LW * point.constants["sigma_1_squared"] / -point.constants["a_1"]


@claim(
    "10.76-10.78",
    f"{PDLT} (10.76)-(10.78)",
    "ddTheta_[2] = delta^2 L^(p-1)/(2-p) {lambda_W sigma_1^2 + sigma_2^2/sigma_1^2 [...]} l^(2-2p), so "
    "that robustness is proportional to L^(1-p), which is constant for odd activations.",
    f"recursion: {NEARBY} layers, tanh and tanh(z) + 0.3 z^2",
)
def robustness_law() -> Iterator[Comparison]:
    for activation, accuracy in (("tanh", LOGARITHMIC), (TILTED, 0.06)):
        expansion, point = nearby(activation), criticality(activation)
        s1, p = point.constants["sigma_1_squared"], point.exponents["p_perp"]
        s2 = 0.6 if activation is TILTED else 0.0  # sigma''(0)
        brackets = LW * s1 + s2**2 / s1 * _total(point)
        delta = expansion.K2[-1] * NEARBY**p  # delta^2 of (10.71)
        stated = delta / (2 - p) * brackets * NEARBY ** (1 - p)
        name = point.activation.name
        yield agree(f"ddTheta_[2] of {name}", stated, expansion.Theta2[-1], accuracy)
        robustness = -2 * stated / _total(point)
        yield agree(f"robustness of {name}", robustness, expansion.robustness[-1], 2 * accuracy)
        # at the outputs of networks of half and of full depth
        shallow = MLP.critical((3, *[1] * (NEARBY // 2)), activation, lambda_b=LB, lambda_W=LW)
        half = delta_expansion(shallow, *pair(0.05))
        power = slope_of_logs((NEARBY // 2, NEARBY), (half.robustness[-1], expansion.robustness[-1]))
        yield agree(f"power of the depth, {name}", 1 - p, power, LOGARITHMIC, scale=1.0)


@claim(
    "10.79-10.81",
    f"{PDLT} (10.79)-(10.81)",
    "With equal rates in all layers and an odd activation Theta_00 grows as lambda_b l/2, ddTheta_[2] stays "
    "constant, and robustness falls as 1/L.",
    f"recursion: {NEARBY} layers, tanh and sin",
    corrected="(10.80), (10.81): lambda_W sigma_1^2 must be lambda_W sigma_1^2 + (-a_1) lambda_b/2, because "
    "<s''s''> falls as fast as Theta_00 grows",
)
def equal_rates() -> Iterator[Comparison]:
    for activation, a_1 in (("tanh", -2.0), ("sin", -1.0)):
        expansion = nearby(activation, equal_rates=True)
        delta, corrected = expansion.K2[-1] * NEARBY, LW - a_1 * LB / 2
        ratio = expansion.Theta2[-1] / delta
        yield agree(f"Theta_00/l of {activation}", LB / 2, expansion.Theta00[-1] / NEARBY, LOGARITHMIC)
        yield agree(f"ddTheta_[2]/delta^2 of {activation}", corrected, ratio, LOGARITHMIC)
        yield differ(f"ddTheta_[2]/delta^2 of {activation} as printed", LW, ratio, LOGARITHMIC)
        stated = -4 * corrected * delta / LB / NEARBY
        yield agree(f"robustness of {activation}", stated, expansion.robustness[-1], 2 * LOGARITHMIC)


# --- the scale-invariant class -----------------------------------------------------------------------

RELU_DEPTH, PLUS, MINUS = 10_000, [1.0, 0.2], [0.2, 1.0]


@functools.cache
def angles(activation: str, depth: int = RELU_DEPTH):
    """Two inputs through a critical network by the recursion of angles, and the activation's constants."""
    net = MLP.critical((2, *[1] * depth), activation, lambda_b=LB, lambda_W=LW)
    return finite_angle(net, PLUS, MINUS), criticality(activation).constants


@functools.cache
def solved_relu():
    """The same inputs through a relu network, by Gaussian averages."""
    net = MLP.critical((2, *[1] * 400), "relu", lambda_b=LB, lambda_W=LW)
    return solve(net, [PLUS, MINUS], order=0), net


@claim(
    "10.90",
    f"{PDLT} (10.90)",
    "The kernel of a critical scale-invariant network is constant and its angle falls as 3/(rho l).",
    f"recursion: {RELU_DEPTH} layers, relu and leaky relu; 400 layers by Gaussian averages",
)
def kernel_angle() -> Iterator[Comparison]:
    for activation in ("relu", "leaky_relu(0.5)"):
        path, constants = angles(activation)
        yield agree(f"K of {activation}", path.K_d[0], path.K_d[-1], 1e-9)
        scaled = path.psi[-1] * RELU_DEPTH * constants["rho"] / 3
        yield agree(f"psi l rho/3 of {activation}", 1.0, scaled, ASYMPTOTE)
    theory, net = solved_relu()
    K = theory.output.K
    yield agree("K by averages", theory.layer(1).K[0, 0], K[0, 0], 1e-9)
    # corrections of order log(l)/l are 3 % at 400 layers, so the recursion of angles is the reference
    yield agree("psi by averages", angles("relu", net.depth)[0].psi[-1], math.acos(K[0, 1] / K[0, 0]), 1e-6)


@claim(
    "10.91",
    f"{PDLT} (10.91)",
    "Theta_d = (lambda_b + lambda_W A_2 K) l/L exactly.",
    "recursion: 400 layers by Gaussian averages, relu",
)
def relu_ntk() -> Iterator[Comparison]:
    theory, net = solved_relu()
    for l in (1, 10, net.depth):
        stated = (LB + LW * 0.5 * theory.layer(1).K[0, 0]) * l / net.depth
        yield agree(f"Theta of layer {l}", stated, theory.layer(l).Theta[0, 0], 1e-9)


@claim(
    "10.92-10.95",
    f"{PDLT} (10.92)-(10.95)",
    "cos zeta' = (1 - 4/l) cos zeta + 1/l, so that cos zeta tends to 1/4, robustness to -3/4 and the "
    "variance to 9/16 K, for all inputs, learning rates and slopes.",
    f"recursion: {RELU_DEPTH} layers, relu and leaky relu; 400 layers by Gaussian averages",
)
def one_quarter() -> Iterator[Comparison]:
    for activation in ("relu", "leaky_relu(0.5)"):
        path, constants = angles(activation)
        l = RELU_DEPTH - 1
        kept = (1 - constants["rho"] * path.psi[-2]) * path.Theta_d[-2] / path.Theta_d[-1]
        yield agree(f"decay of {activation}", 4.0, l * (1 - kept), ASYMPTOTE)
        source = l * (path.cos_zeta[-1] - kept * path.cos_zeta[-2])
        yield agree(f"source of {activation}", 1.0, source, ASYMPTOTE)
        yield agree(f"cos zeta of {activation}", 1 / 4, path.cos_zeta[-1], ASYMPTOTE)
        yield agree(f"robustness of {activation}", -3 / 4, path.robustness[-1], ASYMPTOTE)
        yield agree(f"variance/K of {activation}", 9 / 16, path.variance[-1] / path.K_d[-1], ASYMPTOTE)
    _, net = solved_relu()
    exact, by_angles = neighbour(net, PLUS, MINUS), angles("relu", net.depth)[0]
    yield agree("robustness by averages", by_angles.robustness[-1], exact.robustness, 1e-6)
    yield agree("variance by averages", by_angles.variance[-1], exact.variance, 1e-6)


@claim(
    "10.96-10.98",
    f"{PDLT} (10.96)-(10.98)",
    "Deep linear networks keep the angle psi of the kernel: Theta_d cos zeta grows by [lambda_b + lambda_W "
    "A_2 K cos psi]/L per layer, and cos zeta tends to (lambda_b + lambda_W A_2 K cos psi)/(lambda_b + "
    "lambda_W A_2 K).",
    "recursion: 400 layers by Gaussian averages",
)
def deep_linear() -> Iterator[Comparison]:
    depth, x = 400, np.array([[1.0, 0.0], [0.6, 0.8]])
    net = MLP((2, *[1] * depth), "linear", lambda_b=LB / depth, lambda_W=LW / depth)
    theory, K, cosine = solve(net, x, order=0), 0.5, 0.6
    first = theory.layer(1).Theta[0, 1]
    for l in (2, depth // 2, depth):
        stated = (LB + LW * K * cosine) * (l - 1) / depth + first
        yield agree(f"off-diagonal Theta of layer {l}", stated, theory.layer(l).Theta[0, 1], 1e-9)
    Theta = theory.output.Theta
    yield agree("cos zeta", (LB + LW * K * cosine) / (LB + LW * K), Theta[0, 1] / Theta[0, 0], ASYMPTOTE)


@claim(
    "10.footnote-37",
    f"{PDLT} section 10.3.1, footnote 37",
    "With the rates of Bayesian inference the robustness of deep relu networks is cos psi - 1, which falls "
    "as 1/l^2.",
    "recursion: 200 and 400 layers by Gaussian averages, 10000 by angles",
)
def bayesian_robustness() -> Iterator[Comparison]:
    robustness = []
    for depth in (200, 400):
        net = bayesian_rates(MLP.critical((2, *[1] * depth), "relu"))
        robustness.append(neighbour(net, PLUS, MINUS).robustness)
        yield agree(f"{depth} layers", math.cos(angles("relu", depth)[0].psi[-1]) - 1, robustness[-1], 1e-5)
    path, constants = angles("relu")
    stated = -(9 / 2) / constants["rho"] ** 2  # from psi = 3/(rho l)
    yield agree("(cos psi - 1) l^2", stated, (math.cos(path.psi[-1]) - 1) * RELU_DEPTH**2, 2 * ASYMPTOTE)
    yield agree("power of the depth", -2.0, slope_of_logs((200, 400), robustness), 0.05)
