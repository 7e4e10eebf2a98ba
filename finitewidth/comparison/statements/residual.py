"""Residual networks through order 1/n: the memory of a neuron, and depth at criticality (PDLT appendix B)."""

import functools
import math
from collections.abc import Iterator

import jax
import numpy as np
from scipy.special import ndtr

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import (
    Comparison,
    agree,
    differ,
    extrapolated,
    mean_of,
    pull,
    significant,
)
from finitewidth.comparison.statements.problems import EXACT, hermite
from finitewidth.core.estimate import Estimate
from finitewidth.core.methods import Tensors
from finitewidth.core.run import QUIET
from finitewidth.critical.activations.classification import criticality
from finitewidth.critical.aspect_ratio import aspect, scale_invariant_vertex
from finitewidth.experiment.sampling import draw_members, outputs
from finitewidth.experiment.statistics import sample_statistics
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.residual import Residual
from finitewidth.network.network import Network
from finitewidth.theory.solve import solve

SOURCE, APPENDIX = "Residual networks at order 1/n", "PDLT appendix B"
DEPTH, GAMMAS = 1000, (0.5, 0.8)
LOGARITHMIC = 0.03  # accuracy at a thousand layers of laws whose corrections fall as log(l)/l
SKIP = 0.8
PRINTED = dict(G1=0.25251709, H1=0.80781979, V=3.23677328, D=5.84144259, A=12.27136654, F=2.39161803)
PRINTED |= dict(
    B=3.89858940, P=0.33377303, Q=3.36492524, R=-4.61977320, S=6.91176484, T=6.71177453, U=1.67375811
)
PAIR_LAW = dict(G1=0.02990979, H1=0.08424889, V=2.61778596, D=4.38867337, A=8.75857577, F=2.12231520)
PAIR_LAW |= dict(
    B=3.69113416, P=0.31249630, Q=2.82431635, R=-4.36053915, S=6.48539521, T=5.50461840, U=1.58444408
)
DIGITS = 1e-8  # as printed


def three_layers(n: int) -> Network:
    """A gelu network whose second layer has a skip; all numbers of it were printed."""
    layer = functools.partial(Dense, C_b=0.1, C_W=1.0, lambda_b=0.5, lambda_W=1.0)
    return Network(1, layer(n), Residual("gelu", layer(n), gamma=SKIP), "gelu", layer(8))


def gelu(z: np.ndarray) -> list[np.ndarray]:
    """gelu and its first four derivatives."""
    p, density = ndtr(z), np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    bends = [(2 - z**2) * density, (z**3 - 4 * z) * density, (-(z**4) + 7 * z**2 - 4) * density]
    return [z * p, p + z * density, *bends]


class Trajectory:
    """Averages over the preactivations of one neuron in layers 1 and 2, by Gauss-Hermite quadrature."""

    def __init__(self) -> None:
        x, w = hermite(160)
        first, second = np.meshgrid(x, x, indexing="ij")
        self.weights = np.multiply.outer(w, w)
        self.K, self.Theta = 1.1, 1.5  # of layer 1
        self.early = gelu(math.sqrt(self.K) * first)
        kept, square = SKIP**2 * self.K, self.mean(self.early[0] ** 2)
        rest = math.sqrt(0.1 + square)  # the standard deviation of what layer 2 adds
        self.late = gelu(SKIP * math.sqrt(self.K) * first + rest * second)
        slope = self.mean(self.early[1] ** 2)
        self.Theta_late = 0.5 + square + (SKIP**2 + slope) * self.Theta
        self.bare = kept * self.K, kept * self.Theta, SKIP**2 * self.Theta**2, 0.0

    def mean(self, values: np.ndarray) -> float:
        return float(np.sum(self.weights * values))

    def covariance(self, first: np.ndarray, second: np.ndarray) -> float:
        return self.mean(first * second) - self.mean(first) * self.mean(second)

    def change(self, layer: list[np.ndarray]) -> float:
        """Of <ss> with K: <s's'> + <s''s>."""
        return self.mean(layer[1] ** 2 + layer[0] * layer[2])

    def tensor(self, name: str) -> tuple[float, float]:
        """V, F, B or U of layer 3, with all of a neuron's memory and with what pairs carry of it."""
        ties, (a, b) = {"V": (0, (0, 0)), "F": (1, (1, 0)), "B": (2, (1, 1)), "U": (3, (2, 1))}[name]
        early, late = self.early[a] * self.early[b], self.late[a] * self.late[b]
        product = self.mean if ties else None
        maps = [
            self.change(one) if name in "VF" else self.mean(one[1] ** 2) for one in (self.early, self.late)
        ]

        def moment(u: np.ndarray, v: np.ndarray, Theta: float) -> float:
            return Theta**ties * (product(u * v) if product else self.covariance(u, v))

        noise = maps[1] ** 2 * moment(early, early, self.Theta) + moment(late, late, self.Theta_late)
        memory = moment(early, late, SKIP * self.Theta)
        pairs = (2 if name == "V" else 1) * self.bare[ties] * maps[0] * maps[1]
        return noise + 2 * maps[1] * memory, noise + 2 * maps[1] * pairs

    def correction(self) -> tuple[float, float]:
        """G1 of layer 3, likewise."""
        s, t = self.early, self.late
        bend = 2 * (t[1] ** 2 + t[0] * t[2])
        fourth = self.mean(6 * t[2] ** 2 + 8 * t[1] * t[3] + 2 * t[0] * t[4])
        noise = self.covariance(s[0] ** 2, s[0] ** 2)
        bare = 4 * self.bare[0] * self.change(s)
        return noise * fourth / 8 + self.covariance(s[0] ** 2, bend) / 2, (noise + bare) * fourth / 8


@claim(
    "residual.memory",
    SOURCE,
    "Through a skip a neuron remembers its past: V' = L^2 N + 2 L cov(s^2(z1), s^2(z2)) + var(s^2), and "
    "likewise F, B, U and G1; the law that keeps only pair tensors (remember=False) is 5 to 90 per cent too "
    "small.",
    "closed form: one neuron's two preactivations by Gauss-Hermite quadrature, and printed digits; gelu, "
    "three layers",
)
def memory_of_a_neuron() -> Iterator[Comparison]:
    net, trajectory = three_layers(20), Trajectory()
    several = np.array([[1.0], [0.6]])  # by the sum over pairs of layers, one input by Hermite coefficients
    theories = [solve(net, X, method=Tensors(tolerance=1e-10)).output for X in ([[1.0]], several)]
    without = solve(net, [[1.0]], method=Tensors(remember=False, tolerance=1e-10)).output
    for name, value in PRINTED.items():
        for words, theory in zip(("one input", "two inputs"), theories, strict=True):
            yield agree(f"{name}, {words}", value, theory.arrays[name].flat[0], DIGITS, scale=1.0)
        yield agree(
            f"{name} of the pair law", PAIR_LAW[name], without.arrays[name].flat[0], DIGITS, scale=1.0
        )
        yield differ(f"{name} of the pair law", value, without.arrays[name].flat[0], 0.04)
    for name in ("V", "F", "B", "U", "G1"):
        exact, pairs = trajectory.correction() if name == "G1" else trajectory.tensor(name)
        yield agree(f"{name} by trajectories", exact, theories[0].arrays[name].item(), DIGITS, scale=1.0)
        yield agree(f"{name} by pairs", pairs, without.arrays[name].item(), DIGITS, scale=1.0)


@claim(
    "residual.memory-sampled",
    SOURCE,
    "V, D, F, A and B of real residual networks are those with memory, and not those of the pair law.",
    "sampled networks: 100000 of each of the widths (16, 32), gelu, three layers, extrapolated in 1/n",
    long=True,
)
def sampled_memory() -> Iterator[Comparison]:
    names, widths = ("V", "D", "F", "A", "B"), (16, 32)
    laws = [
        solve(three_layers(16), [[1.0]], method=Tensors(remember=memory)).output for memory in (True, False)
    ]
    sampled = [
        sample_statistics(three_layers(n), [[1.0]], 100_000, n, tensors=names, run=QUIET) for n in widths
    ]
    for name in names:
        estimate = extrapolated(widths, [getattr(one, name) for one in sampled])
        yield pull(name, laws[0].arrays[name], estimate)
        yield significant(f"{name} of the pair law", estimate, float(laws[1].arrays[name].item()))


# --- criticality -------------------------------------------------------------------------------------


@functools.cache
def deep_stream(gamma: float):
    """One input through a critical tanh network with skips, with the learning rates 1/l and 1."""
    first = Dense(9, 0.0, 1.0)
    blocks = [
        Residual("tanh", Dense(9, 0.0, 1 - gamma**2, lambda_b=1 / l), gamma=gamma)
        for l in range(2, DEPTH + 1)
    ]
    return solve(Network(1, first, *blocks), [[1.0]], layers=[DEPTH // 2, DEPTH])


@claim(
    "residual.odd-class",
    SOURCE,
    "In critical residual networks of odd activations V/K^2 tends to (2/3)(1-gamma^4) l, G1/K to "
    "-(1/3)(1-gamma^4) l, B/Theta^2 to (1/3)(1-gamma^4) l, F/(K Theta) to (1/4)(1-gamma^4) l, P/Theta^2 to "
    "-(1/12)(1-gamma^4) l, U/Theta^3 to (-a_1/2)(1+gamma^4)/(1+gamma^2), K to 1/((1-gamma^2)(-a_1) l) and "
    "Theta to lambda_b + lambda_W sigma_1^2/((1-gamma^2)(-a_1)).",
    f"recursion: {DEPTH} layers, tanh, gamma = {GAMMAS[0]} and {GAMMAS[1]}",
)
def odd_class() -> Iterator[Comparison]:
    laws = {
        "V": (2, 0, 2 / 3),
        "G1": (1, 0, -1 / 3),
        "B": (0, 2, 1 / 3),
        "F": (1, 1, 1 / 4),
        "P": (0, 2, -1 / 12),
    }
    for gamma in GAMMAS:
        layer, unit, share = deep_stream(gamma).layer(DEPTH), (1 - gamma**4) * DEPTH, 1 - gamma**2
        K, Theta = layer.K.item(), layer.Theta.item()
        yield agree(f"K, gamma {gamma}", 1.0, 2 * share * DEPTH * K, LOGARITHMIC)
        yield agree(f"Theta, gamma {gamma}", 1 + 1 / (2 * share), Theta, LOGARITHMIC)
        for name, (k, theta, limit) in laws.items():
            ratio = layer.arrays[name].item() / (K**k * Theta**theta * unit)
            yield agree(f"{name}, gamma {gamma}", limit, ratio, LOGARITHMIC)
        U = layer.arrays["U"].item() / Theta**3
        yield agree(f"U, gamma {gamma}", (1 + gamma**4) / (1 + gamma**2), U, LOGARITHMIC)
        yield differ(f"U of the pair law, gamma {gamma}", 1 - gamma**2, U, LOGARITHMIC)


@functools.cache
def correlation_of_squares(gammas: tuple[float, ...], depth: int) -> list[float]:
    """The sum of h(gamma^|k-p|) over pairs of layers below the last, of gelu at its critical point."""
    point = criticality("gelu")
    assert point.K_star is not None and point.C_W is not None
    x, w = hermite(160)
    values = point.C_W * gelu(math.sqrt(point.K_star) * x)[0] ** 2 / point.K_star
    orders = np.arange(60)
    norms = np.exp([math.lgamma(m + 1) for m in orders])
    squares = (np.polynomial.hermite_e.hermevander(x, 59).T @ (w * values)) ** 2 / norms
    whole = float(w @ values**2) - squares[0] - squares[2]  # h(1), to which the series converges slowly
    squares[[0, 2]] = 0.0
    lags = np.arange(1, depth - 1)
    h = [np.array([float(squares @ gamma ** (orders * lag)) for lag in lags]) for gamma in gammas]
    return [(depth - 1) * whole + float(2 * (depth - 1 - lags) @ one) for one in h]


@claim(
    "residual.fixed-kernel",
    SOURCE,
    "Where the kernel stays, V/K^2 = 2(1-gamma^4)(l-1) + (1-gamma^2)^2 sum_{k,p<l} h(gamma^|k-p|), with "
    "h(rho) the correlation of C_W s^2/K at two layers without its quadratic part; so skips with gamma = 1/2 "
    "make gelu networks fluctuate more than none.",
    "closed form: Hermite coefficients by quadrature, gelu, 30 layers",
)
def fixed_kernel() -> Iterator[Comparison]:
    depth, gammas, point = 30, (0.0, 0.5, 0.9), criticality("gelu")
    assert point.K_star is not None and point.C_W is not None and point.C_b is not None
    vertices = {}
    for gamma, correlation in zip(gammas, correlation_of_squares(gammas, depth), strict=True):
        share = 1 - gamma**2
        block = Residual("gelu", Dense(9, share * point.C_b, share * point.C_W), gamma=gamma)
        net = Network(1, Dense(9, 0.0, point.K_star), *[block] * (depth - 1))
        layer = solve(net, [[1.0]], layers=[depth]).output
        vertices[gamma] = layer.V.item() / layer.K.item() ** 2
        stated = 2 * (1 - gamma**4) * (depth - 1) + share**2 * correlation
        yield agree(f"V/K^2, gamma {gamma}", stated, vertices[gamma], 1e-7)
    yield differ("V/K^2 with gamma 0.5 and without skips", vertices[0.0], vertices[0.5], 0.2)


def vertex_of(net: Network, members: int, key: int, batches: int = 40) -> Estimate:
    """V of the output layer from its outputs alone, 1/n stripped: different neurons, pairs of networks."""
    n, size = net.outputs, members // batches

    @jax.jit
    def one_batch(number):
        drawn = draw_members(net, jax.random.key(key), number * size + jax.numpy.arange(size))
        z = jax.vmap(lambda one: outputs(net, one, jax.numpy.ones((1, net.input_shape[0]))))(drawn)[:, 0]
        squares = (z**2).sum(axis=1)
        pairs = (squares**2 - (z**4).sum(axis=1)) / (n * (n - 1))
        means = squares / n
        product = ((means.sum()) ** 2 - (means**2).sum()) / (size * (size - 1))
        return n * (pairs.mean() - product), means.mean()

    estimates = np.array([one_batch(number) for number in range(batches)])
    return mean_of(estimates[:, 0])


@claim(
    "residual.relu",
    SOURCE,
    "In critical relu networks with skips V/K^2 = 2(1-gamma^4)(l-1) + (1-gamma^2)^2 sum_{k,p<l} "
    "h(gamma^|k-p|) with h(rho) = (2/pi)[(1+2 rho^2) asin(rho) + 3 rho sqrt(1-rho^2)]; the "
    "diagonal alone, which the pair law keeps, is excluded.",
    "sampled networks: 40000 of each of the widths (16, 32), five layers, gamma = 0.8, extrapolated in 1/n",
    long=True,
)
def relu_vertex() -> Iterator[Comparison]:
    gamma, depth, widths = 0.8, 5, (16, 32)
    estimates = []
    for n in widths:
        block = Residual("relu", Dense(n, 0.0, 2 * (1 - gamma**2)), gamma=gamma)
        net = Network(1, Dense(n, 0.0, 1.0), *[block] * (depth - 1))
        estimates.append(vertex_of(net, 40_000, n))
    estimate = extrapolated(widths, estimates)
    yield pull("V/K^2", scale_invariant_vertex(1.0, 0.0, gamma, depth)[-1], estimate)
    pair_law = (2 * (1 - gamma**4) + 3 * (1 - gamma**2) ** 2) * (depth - 1)
    yield significant("V/K^2 of the pair law", estimate, pair_law)


@claim(
    "residual.linear",
    SOURCE,
    "Linear residual networks without biases have E[z_i^2 z_k^2] = K^2 prod [(gamma^2+C)^2 + (4 gamma^2 C + "
    "2 C^2)/n] at any width.",
    "closed form, and sampled networks: 40000 of width 4, five layers",
)
def linear_moment() -> Iterator[Comparison]:
    n, skips, C_W = 4, (0.5, -0.9, 0.7, 1.1), (0.8, 0.3, 0.6, 0.2)
    blocks = [Residual(Dense(n, 0.0, C), gamma=gamma) for gamma, C in zip(skips, C_W, strict=True)]
    net = Network(1, Dense(n, 0.0, 1.0), *blocks)
    steps = [((g**2 + C) ** 2, 4 * g**2 * C + 2 * C**2) for g, C in zip(skips, C_W, strict=True)]
    square = math.prod(step[0] for step in steps)  # K^2 of the last layer
    first_order = square * sum(added / kept for kept, added in steps)
    yield agree("V, order 1/n", first_order, solve(net, [[1.0]]).output.V.item(), EXACT)
    exact = n * (math.prod(kept + added / n for kept, added in steps) - square)
    yield pull("n (E[z_i^2 z_k^2] - K^2), width 4", exact, vertex_of(net, 40_000, 7))
    yield differ("order 1/n at width 4", first_order, exact, 0.05)


@claim(
    "appendix-B.depth",
    APPENDIX,
    "Residual connections extend the range of effectively deep networks: at a width, networks of odd "
    "activations may have 1/(1-gamma^4) times as many layers.",
    "recursion: until the largest ratio is 0.3 at width 1000, tanh, gamma = 0.2, 0.5 and 0.8",
)
def effectively_deep() -> Iterator[Comparison]:
    for gamma in (0.2, 0.5, 0.8):
        depth = aspect("tanh", width=1000, gamma=gamma).depth
        yield agree(f"layers times 1-gamma^4, gamma {gamma}", 450.0, depth * (1 - gamma**4), 0.05)


@claim(
    "appendix-B.networks",
    APPENDIX,
    "Real networks with residual connections fluctuate less: the variance of the kernel of the last layer is "
    "that of order 1/n with gamma = 0.9, and larger without skips.",
    "sampled networks: 4000 of 20 layers of width 64 with gamma = 0.9, and of width 16 with both",
    long=True,
)
def networks_fluctuate_less() -> Iterator[Comparison]:
    spread = {}
    for gamma, n in ((0.9, 64), (0.9, 16), (0.0, 16)):
        block = Residual("tanh", Dense(n, 0.0, 1 - gamma**2), gamma=gamma)
        theory = solve(Network(1, Dense(n, 0.0, 1.0), *[block] * 19), [[1.0]]).output
        K, estimate = theory.K.item(), vertex_of(theory.net, 4000, 3)
        spread[gamma, n] = Estimate(estimate.value / K**2, estimate.stderr / K**2)
        if n == 64:
            yield pull("V/K^2, gamma 0.9", theory.V.item() / K**2, spread[gamma, n])
    with_skips, without = spread[0.9, 16], spread[0.0, 16]
    gap = Estimate(without.value - with_skips.value, np.hypot(without.stderr, with_skips.stderr))
    yield significant("V/K^2 without skips less that with gamma 0.9", gap)
