"""PDLT section inf.2.2: algorithm projectors, as tensors over samples as they are printed."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, slope_of_logs
from finitewidth.comparison.statements.one_network import (
    NETWORKS,
    PAIRS,
    WIDTHS,
    T,
    closed,
    fall,
    foretold,
    random_tensors,
    real_networks,
)
from finitewidth.comparison.statements.problems import PDLT, TRAINING, X, descended, mlp, predicted
from finitewidth.experiment.sampling import outputs
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import TwoStep
from finitewidth.network.mlp import MLP

ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
H3 = np.array([[2.0, 0.5, 0.6], [0.5, 1.5, 0.7], [0.6, 0.7, 1.8]])  # an NTK of three training inputs
TWO, THREE = ("A", "B"), ("IA", "IB", "IIA", "IIB")
LARGE_STEPS = 0.4


def inverting_tensors(H: np.ndarray, eta: float) -> tuple[np.ndarray, np.ndarray]:
    """X_II and X_III by their definitions (inf.107), (inf.110); (inf.152), (inf.153) where eta is 0."""
    n, I = len(H), np.eye(len(H))
    two = np.kron(H, I) + np.kron(I, H) - eta * np.kron(H, H)
    one = [np.kron(np.kron(a, b), c) for a, b, c in ((H, I, I), (I, H, I), (I, I, H))]
    pairs = [np.kron(np.kron(a, b), c) for a, b, c in ((H, H, I), (H, I, H), (I, H, H))]
    three = np.sum(one, axis=0) - eta * np.sum(pairs, axis=0) + eta**2 * np.kron(np.kron(H, H), H)
    return np.linalg.inv(two).reshape((n,) * 4), np.linalg.inv(three).reshape((n,) * 6)


def printed_projectors(H: np.ndarray, eta: float) -> dict[str, np.ndarray]:
    """(inf.142)-(inf.147) by (inf.135), (inf.138)-(inf.140), index by index; flow where eta is 0."""
    h, (X2, X3) = np.linalg.inv(H), inverting_tensors(H, eta)
    e = np.einsum
    Y1 = e("abde,cf->abcdef", X2, h) - e("cg,abgdef->abcdef", h, X3)
    Y2 = e("ac,bd->abcd", h, h) - e("be,aecd->abcd", h, X2)
    Y3 = e("ad,be,cf->abcdef", h, h, h) - e("bg,agde,cf->abcdef", h, X2, h)
    Y3 = Y3 - e("ad,cg,bgef->abcdef", h, h, X2) + e("ci,bigh,aghdef->abcdef", h, X2, X3)
    Y4 = e("ad,bcef->abcdef", h, X2) - e("bcgh,aghdef->abcdef", X2, X3)
    return {
        "A": Y2,
        "B": Y2 + eta / 2 * X2,
        "IA": -Y3 - eta / 2 * Y4,
        "IB": -Y3 - eta / 2 * Y4 - eta / 2 * Y1 - eta**2 / 6 * X3,
        "IIA": -Y3,
        "IIB": -Y3 - e("abcdef->bacedf", Y3) - e("abcdef->acbdfe", Y3) - eta * Y4 - eta * Y1,
    }


def in_sample_space(H: np.ndarray, algorithm: AbstractAlgorithm) -> dict[str, np.ndarray]:
    """The library's projectors, symbols of eigenvalues, as tensors over samples."""
    l, V = np.linalg.eigh(H)
    modes = algorithm.symbols(l).outputs
    two = {name: np.einsum("xy,ax,by,cx,dy->abcd", modes[name], V, V, V, V) for name in TWO}
    return two | {
        name: np.einsum("xyz,ax,by,cz,dx,ey,fz->abcdef", modes[name], V, V, V, V, V, V) for name in THREE
    }


def symmetrized(printed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Projectors averaged over legs in which the differentials are symmetric; only this part contributes."""
    averaged = dict(printed)
    averaged["B"] = (printed["B"] + printed["B"].transpose(1, 0, 3, 2)) / 2
    averaged["IA"] = (printed["IA"] + printed["IA"].transpose(0, 2, 1, 3, 5, 4)) / 2
    orders = [(*order, *(3 + k for k in order)) for order in ORDERS]
    averaged["IB"] = np.mean([printed["IB"].transpose(order) for order in orders], axis=0)
    return averaged


def _as_printed(eta: float, algorithm: AbstractAlgorithm) -> Iterator[Comparison]:
    library = in_sample_space(H3, algorithm)
    for name, value in symmetrized(printed_projectors(H3, eta)).items():
        yield agree(f"Z_{name}", value, library[name], 1e-9)


@claim(
    "inf.141",
    f"{PDLT} (inf.141)",
    "The printed solution gives the outputs of a network after many steps of gradient descent, up to order "
    "1/n^2.",
    f"closed form in sample space; and trained networks: {NETWORKS} of each of the widths {WIDTHS}, 10 steps",
)
def descent_solution() -> Iterator[Comparison]:
    z, y, tensors = random_tensors()
    printed = printed_solution(z, y, tensors)
    yield agree("outputs", printed, closed(z, y, tensors, GradientDescent(LARGE_STEPS)).outputs[:, 0], 1e-8)
    gaps, free = ({n: [] for n in WIDTHS} for _ in range(2))
    for n in WIDTHS:
        for one, start, y in real_networks(n):
            end = descended(mlp(n), one, jnp.asarray(X[T]), jnp.asarray(y), 0.15, 10)
            real = np.asarray(outputs(mlp(n), end, jnp.asarray(X)))[TRAINING:]
            theory = foretold(start, y, GradientDescent(0.15, 10))
            gaps[n].append(real - theory.outputs[TRAINING:])
            free[n].append(real - theory.free[TRAINING:])
    yield fall("power of the error", 2.0, gaps)
    yield fall("power of the error of the NTK alone", 1.0, free)


def printed_solution(z: np.ndarray, y: np.ndarray, tensors: tuple[np.ndarray, ...]) -> np.ndarray:
    """Outputs by (inf.141) with the projectors of gradient descent."""
    t = slice(PAIRS)
    H, dH, ddI, ddII = tensors
    Z, eps = printed_projectors(H[t, t], LARGE_STEPS), z[t] - y
    e = np.einsum
    source = e("aIb,abcd,c,d->I", dH[t, :, t], Z["A"], eps, eps) + e(
        "Iab,abcd,c,d->I", dH[:, t, t], Z["B"], eps, eps
    )
    for kind, legs in (("IA", ddI[t, :, t, t]), ("IIA", ddII[t, t, :, t].transpose(0, 2, 1, 3))):
        source = source + e("aIbc,abcdef,d,e,f->I", legs, Z[kind], eps, eps, eps)
    for kind, legs in (("IB", ddI[:, t, t, t]), ("IIB", ddII[:, t, t, t])):
        source = source + e("Iabc,abcdef,d,e,f->I", legs, Z[kind], eps, eps, eps)
    inverse = np.linalg.inv(H[t, t])
    return z - H[:, t] @ inverse @ eps + source - H[:, t] @ inverse @ source[t]


@claim(
    "inf.142-147",
    f"{PDLT} (inf.142)-(inf.147)",
    "Gradient descent has the six printed algorithm projectors.",
    "closed form: printed tensors from their defining equations, three training inputs",
)
def descent_projectors() -> Iterator[Comparison]:
    yield from _as_printed(LARGE_STEPS, GradientDescent(LARGE_STEPS))
    # the projector Z_A is a nested sum over steps
    l, steps = np.linalg.eigvalsh(H3), 400
    u = 1 - LARGE_STEPS * l
    power, a, total = np.ones(3), np.zeros(3), np.zeros((3, 3))
    for _ in range(steps):
        total += LARGE_STEPS * np.multiply.outer(power, a)
        a, power = a + LARGE_STEPS * power, power * u
    yield agree("Z_A as a sum over steps", total, GradientDescent(LARGE_STEPS).symbols(l).outputs["A"], 1e-9)


@claim(
    "inf.148",
    f"{PDLT} (inf.148)",
    "The two-step solution has Z_B = H^-1 H^-1/2 and Z_IB = -H^-1 H^-1 H^-1/6; its other projectors vanish.",
    "closed form in sample space, three training inputs",
)
def two_step_projectors() -> Iterator[Comparison]:
    h, library = np.linalg.inv(H3), in_sample_space(H3, TwoStep())
    yield agree("Z_B", np.einsum("ac,bd->abcd", h, h) / 2, library["B"], 1e-9)
    yield agree("Z_IB", -np.einsum("ad,be,cf->abcdef", h, h, h) / 6, library["IB"], 1e-9)
    for name in ("A", "IA", "IIA", "IIB"):
        yield agree(f"Z_{name}", 0.0, library[name], 1e-12, scale=1.0)


@claim(
    "inf.149-153",
    f"{PDLT} (inf.149)-(inf.153)",
    "Gradient flow has the printed projectors, with the inverting tensors of the continuum limit.",
    "closed form: printed tensors from their defining equations; and descent with small steps",
)
def flow_projectors() -> Iterator[Comparison]:
    yield from _as_printed(0.0, GradientFlow())
    flow = in_sample_space(H3, GradientFlow())
    for name in ("A", "IA", "IIA", "IIB"):
        gaps = [
            np.abs(in_sample_space(H3, GradientDescent(eta))[name] - flow[name]).max() for eta in (1e-3, 1e-4)
        ]
        power = slope_of_logs((1e-3, 1e-4), gaps)
        yield agree(f"power of eta of the difference between descent and flow, Z_{name}", 1.0, power, 0.02)


@claim(
    "inf.168-171",
    f"{PDLT} (inf.168)-(inf.171)",
    "For one training input the projectors are the printed powers of 1/H, Z_A of descent diverges at eta = "
    "2/H, and each part of the mean is of order L/n.",
    "closed form, against inversion of the defining equations; and parts of the mean at depths 32 and 64",
)
def one_training_input() -> Iterator[Comparison]:
    h = 1.7
    flow = {
        "A": 1 / (2 * h**2),
        "B": 1 / (2 * h**2),
        "IA": -1 / (6 * h**3),
        "IB": -1 / (6 * h**3),
        "IIA": -1 / (6 * h**3),
    }
    flow["IIB"] = -1 / (2 * h**3)
    brute, library = printed_projectors(np.array([[h]]), 0.0), GradientFlow().symbols(np.array([h])).outputs
    for name, stated in flow.items():
        yield agree(f"Z_{name} of flow", stated, library[name], 1e-12)
        yield agree(f"Z_{name} of flow by inversion", stated, brute[name], 1e-12)
    for fraction in (0.3, 0.9, 0.999):
        eta = fraction * 2 / h
        stated = (1 - eta * h) / (2 - eta * h) / h**2
        descent = GradientDescent(eta).symbols(np.array([h])).outputs
        yield agree(f"Z_A at {fraction} of the limit", stated, descent["A"], 1e-9)
        yield agree(f"Z_B at {fraction} of the limit", 1 / (2 * h**2), descent["B"], 1e-9)
    yield from _parts_of_the_mean()


def _parts_of_the_mean() -> Iterator[Comparison]:
    """Each contribution of a differential grows as the depth."""
    depths, parts = (32, 64), []
    for depth in depths:
        net = MLP.critical((3, *[4096] * (depth - 1), 1), "tanh")
        parts.append(predicted(net, X[:1], [[depth**-0.5]], X[1:2]).contributions)  # targets as in (inf.26)
    for name in ("dntk", "ddntk_1", "ddntk_2"):
        sizes = [part[name].item() * depth**0.5 for part, depth in zip(parts, depths, strict=True)]
        yield agree(f"power of the depth of the {name} part", 1.0, slope_of_logs(depths, sizes), 0.25)
