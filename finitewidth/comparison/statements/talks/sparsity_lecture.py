"""Lecture "The Principle of Sparsity": statistics of networks of one, two and many layers."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, extrapolated, pull, significant
from finitewidth.comparison.statements.problems import EXACT, X, average, derivatives, mlp, of_members
from finitewidth.comparison.statements.recursions import single_input
from finitewidth.core.estimate import Estimate
from finitewidth.core.run import QUIET
from finitewidth.experiment.statistics import SampledStatistics, sample_statistics
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.theory.solve import solve

SOURCE = "Lecture 3, The Principle of Sparsity (Yaida)"
INPUTS = X[:2]
NARROW, DEEP = 4, (16, 32)
LAYERS: dict[str, Any] = dict(C_b=(0.03, 0.06), C_W=(1.2, 1.8), lambda_b=(0.3, 0.5), lambda_W=(0.9, 1.1))
MEMBERS, LAYERED = 40_000, 400_000
RECURSION = 1e-7  # four-leg averages are good to 1e-8


def two_layers(width: int = NARROW) -> MLP:
    """A network of one hidden layer with different hyperparameters in its two layers."""
    return MLP((3, width, 1), "tanh", **LAYERS)


def sampled(
    net: Network, members: int, tensors: tuple[str, ...], *, layer: int | None = None
) -> SampledStatistics:
    """Statistics of real networks at initialization."""
    return sample_statistics(net, INPUTS, members, 9, layer=layer, tensors=tensors, run=QUIET)


@functools.cache
def narrow_networks() -> SampledStatistics:
    """All tensors of two layers, measured once for all claims about them."""
    return sample_statistics(two_layers(), INPUTS, MEMBERS, 9, run=QUIET)


@claim(
    "sparsity.one-layer",
    SOURCE,
    "In a network of one layer G = C_b + C_W x.x/n_0, neurons are independent, the NTK is lambda_b + "
    "lambda_W x.x/n_0 in every network, and its differentials vanish.",
    f"sampled networks: {MEMBERS} for the outputs, 20 for the NTK",
)
def one_layer() -> Iterator[Comparison]:
    net = two_layers()
    gram = INPUTS @ INPUTS.T / 3
    first = sampled(net, MEMBERS, ("V",), layer=1)
    yield pull("two-point correlator", 0.03 + 1.2 * gram, first.G)
    yield pull("connected four-point correlator of different neurons", 0.0, first.V)
    single = MLP((3, 2), "tanh", C_b=0.03, C_W=1.2, lambda_b=0.3, lambda_W=0.9)
    each = of_members(single, INPUTS, 20, 1, derivatives)
    exact = np.einsum("ij,ab->iajb", np.eye(2), 0.3 + 0.9 * gram)
    yield agree("NTK of every network", np.broadcast_to(exact, each.H.shape), each.H, EXACT)
    for name in ("dH", "ddI", "ddII"):
        yield agree(name, 0.0, getattr(each, name), EXACT, scale=1.0)


@claim(
    "sparsity.two-layers",
    SOURCE,
    "In a network of two layers G = C_b + C_W <ss>, V = C_W^2 (<ssss> - <ss>^2) and H = lambda_b + lambda_W "
    "<ss> + C_W H' <s's'>, at any width.",
    f"closed form, and sampled networks: {MEMBERS} of width {NARROW}",
)
def two_layer_means() -> Iterator[Comparison]:
    K, Theta = (c + d * np.mean(INPUTS[0] ** 2) for c, d in ((0.03, 1.2), (0.3, 0.9)))
    s2, s4 = average(lambda z: np.tanh(z) ** 2, K), average(lambda z: np.tanh(z) ** 4, K)
    slope2 = average(lambda z: np.cosh(z) ** -4.0, K)
    printed = {"G": 0.06 + 1.8 * s2, "H": 0.5 + 1.1 * s2 + 1.8 * Theta * slope2, "V": 1.8**2 * (s4 - s2**2)}
    theory = solve(two_layers(), INPUTS).output
    for name, value in printed.items():
        yield agree(f"{name} of one input", value, getattr(theory, name).ravel()[0], 1e-7)
    yield from _as_sampled(*printed)


@claim(
    "sparsity.two-layers-dependent",
    SOURCE,
    "From the second layer on neurons are statistically dependent: the connected correlator of different "
    "neurons is not zero.",
    f"sampled networks: {MEMBERS} of width {NARROW}",
)
def dependence() -> Iterator[Comparison]:
    yield significant("V", narrow_networks().V)


def _as_sampled(*names: str) -> Iterator[Comparison]:
    """Statistics of two layers in theory and in sampled networks."""
    theory, statistics = solve(two_layers(), INPUTS).output, narrow_networks()
    for name in names:
        yield pull(name, getattr(theory, name), getattr(statistics, name))


@claim(
    "sparsity.two-layers-ntk",
    SOURCE,
    "The NTK of two layers fluctuates and is correlated with the outputs, with tensors A, B, D and F over n.",
    f"sampled networks: {MEMBERS} of width {NARROW}",
)
def ntk_fluctuations() -> Iterator[Comparison]:
    yield from _as_sampled("A", "B", "D", "F")


@claim(
    "sparsity.two-layers-dntk",
    SOURCE,
    "The dNTK of two layers is correlated with the outputs, with tensors P and Q over n.",
    f"sampled networks: {MEMBERS} of width {NARROW}",
)
def dntk() -> Iterator[Comparison]:
    yield from _as_sampled("P", "Q")


@claim(
    "sparsity.two-layers-ddntk",
    SOURCE,
    "The ddNTKs of two layers have means of order 1/n, with tensors R, S, T and U.",
    f"sampled networks: {MEMBERS} of width {NARROW}",
)
def ddntk() -> Iterator[Comparison]:
    yield from _as_sampled("R", "S", "T", "U")


def as_printed(names: tuple[str, ...]) -> Iterator[Comparison]:
    """Printed statistics of one input against the library's recursions, for one input and for several."""
    net = mlp(8, hidden=5)
    printed = single_input(net, float(np.mean(INPUTS[0] ** 2)))
    for theory in (solve(net, INPUTS[:1]), solve(net, INPUTS)):
        for layer in (2, 3, net.depth):
            for name in names:
                value = getattr(theory.layer(layer), name).ravel()[0]
                yield agree(f"{name} of layer {layer}", printed[name][layer - 1], value, RECURSION)


@claim(
    "sparsity.many-layers",
    SOURCE,
    "G' = C_b + C_W <ss>, H' = lambda_b + lambda_W <ss> + C_W H <s's'> and V' = C_W^2 (<ssss> - <ss>^2) + "
    "C_W^2 V <ss(z^2 - G)>^2 / 4 G^4, layer by layer, with corrections of order 1/n to G and H.",
    "recursion: as printed, by Gauss-Hermite averages, six layers",
)
def many_layers() -> Iterator[Comparison]:
    yield from as_printed(("K", "Theta", "V", "G1", "H1"))


@claim(
    "sparsity.many-layers-ntk",
    SOURCE,
    "A, B, D, F, P and Q follow recursions over layers, as V does.",
    "recursion: as printed, by Gauss-Hermite averages, six layers",
)
def many_layers_ntk() -> Iterator[Comparison]:
    yield from as_printed(("A", "B", "D", "F", "P", "Q"))


@claim(
    "sparsity.many-layers-sampled",
    SOURCE,
    "The recursions over many layers describe G, H and V of the fourth layer of real networks at order 1/n.",
    f"sampled networks: {LAYERED} of width {DEEP[0]} and as many of width {DEEP[1]}, extrapolated in 1/n",
    long=True,
)
def many_layers_sampled() -> Iterator[Comparison]:
    statistics = [sampled(mlp(n, hidden=3), LAYERED, ("V",)) for n in DEEP]
    theory = solve(mlp(DEEP[0], hidden=3), INPUTS).output
    yield pull("V", theory.V, extrapolated(DEEP, [one.V for one in statistics]))
    for mean, leading, correction in (("G", "K", "G1"), ("H", "Theta", "H1")):
        estimates = [getattr(one, mean) for one in statistics]
        yield pull(mean, getattr(theory, leading), extrapolated(DEEP, estimates))
        pairs = zip(DEEP, estimates, strict=True)
        stripped = [Estimate(n * (e.value - getattr(theory, leading)), n * e.stderr) for n, e in pairs]
        yield pull(correction, getattr(theory, correction), extrapolated(DEEP, stripped))
