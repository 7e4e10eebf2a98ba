"""PDLT sections inf.2.1 and inf.2.2: one network, predicted from its derivatives at initialization."""

import functools
import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import (
    Comparison,
    agree,
    falls,
    mean_of,
    pull,
    root_mean_square,
    slope_of_logs,
)
from finitewidth.comparison.statements.leaps import Linearized, in_function_space
from finitewidth.comparison.statements.problems import (
    PDLT,
    TRAINING,
    X,
    Y,
    derivatives,
    descended,
    mlp,
    network,
    of_members,
    stepped,
)
from finitewidth.core.estimate import Estimate
from finitewidth.experiment.directions import Outputs, outputs_and_ntk
from finitewidth.experiment.sampling import outputs
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import TwoStep
from finitewidth.network.network import Network
from finitewidth.theory.solve import solve
from finitewidth.training.first_order.one_network import NetworkPrediction, trained_outputs

T = slice(TRAINING)
TARGETS = Y[:, :1]
WIDTHS, NETWORKS = (64, 256), 24  # in narrower networks higher orders still change the powers
LEAP_WIDTHS, LEAPT = (64, 256), 1000
RESIDUAL = np.array(
    [1.4, -1.1, 0.8]
)  # the same for every network: targets are its initial outputs minus this


def leap(net: Network, one, X, y, inverse):
    """Parameters after the update (inf.57) with a given inverse NTK."""
    z, back = jax.vjp(lambda p: outputs(net, p, X[T]), one)
    (gradient,) = back(inverse @ (z - y))
    return stepped(net, one, gradient, 1.0)


@functools.partial(jax.jit, static_argnums=0)
def two_steps(net: Network, one, X, y) -> tuple[jax.Array, jax.Array]:
    """Outputs after a leap with the network's own inverse NTK, and after a second with the same inverse."""
    inverse = jnp.linalg.inv(outputs_and_ntk(net, one, X).H[0, T, 0, T])
    first = leap(net, one, X, y, inverse)
    return outputs(net, first, X)[:, 0], outputs(net, leap(net, first, X, y, inverse), X)[:, 0]


@functools.cache
def real_networks(width: int) -> list[tuple]:
    """Parameters, derivatives and targets (N_A, 1) of a few networks.

    All have the same residual, so that sizes vary little from network to network.
    """
    net, inputs, networks = mlp(width), jnp.asarray(X), []
    for one in (network(net, 100 + k) for k in range(NETWORKS)):
        start = derivatives(net, one, inputs)
        networks.append((one, start, np.asarray(start.z)[0, T, None] - RESIDUAL[:, None]))
    return networks


def foretold(start: Outputs, y: np.ndarray, algorithm) -> NetworkPrediction:
    """The prediction for one network from its derivatives at initialization."""
    parts = (np.asarray(part) for part in (start.H, start.dH, start.ddI, start.ddII))
    return trained_outputs(np.asarray(start.z).T, *parts, Y=y, algorithm=algorithm)


def printed_error(linear, start: Outputs, step: np.ndarray) -> np.ndarray:
    """Training errors after a leap as printed: those of the linear model, and the dNTK and ddNTK terms."""
    dH, ddI = np.asarray(start.dH)[0, T, 0, T, 0, T], np.asarray(start.ddI)[0, T, 0, T, 0, T, 0, T]
    second = np.einsum("dab,a,b->d", dH, step, step) / 2
    return linear + second - np.einsum("dabc,a,b,c->d", ddI, step, step, step) / 6


def fall(what: str, power: float, gaps: dict[int, list]) -> Comparison:
    """Gaps fall as this power of the width; geometric means over networks, so that no network dominates."""
    logs = [mean_of(np.array([np.log(np.square(gap).mean()) / 2 for gap in gaps[n]])) for n in WIDTHS]
    span = np.log(WIDTHS[1] / WIDTHS[0])
    stderr = np.hypot(logs[0].stderr, logs[1].stderr) / span
    return pull(what, power, Estimate((logs[0].value - logs[1].value) / span, stderr))


def leap_residual(inverse, net: Network, one, X) -> jax.Array:
    """The residual that remains after a leap with a given inverse NTK."""
    y = outputs(net, one, X[T]) - jnp.asarray(RESIDUAL)[:, None]
    return (outputs(net, leap(net, one, X, y, inverse), X)[T] - y)[:, 0]


@claim(
    "inf.64-66",
    f"{PDLT} (inf.64)-(inf.66)",
    "The leap that fits infinitely wide networks misses the minimum at finite width. The printed terms give "
    "the training error of each network, up to order 1/n^2.",
    f"sampled networks: {LEAPT} of each of the widths {LEAP_WIDTHS}; {NETWORKS} of each of the widths "
    f"{WIDTHS}",
    corrected="(inf.64): the first term contracts the residual with the second index of the inverse NTK; "
    "(inf.65): of order 1/n on average, of order n^(-1/2) for one network, from the fluctuation of its NTK",
)
def missed_minimum() -> Iterator[Comparison]:
    sizes = []
    for n in LEAP_WIDTHS:
        inverse = np.linalg.inv(solve(mlp(n), X[T], tensors=()).output.H)
        each = of_members(mlp(n), X, LEAPT, n, functools.partial(leap_residual, jnp.asarray(inverse)))
        sizes.append(root_mean_square(each))
    yield falls("training error of a network", 0.5, LEAP_WIDTHS, sizes)
    gaps: dict[int, list] = {n: [] for n in WIDTHS}
    for n in WIDTHS:
        inverse = np.linalg.inv(solve(mlp(n), X[T], tensors=()).output.H)
        for one, start, _ in real_networks(n):
            step = inverse @ RESIDUAL
            printed = printed_error(RESIDUAL - np.asarray(start.H)[0, T, 0, T] @ step, start, step)
            real = leap_residual(jnp.asarray(inverse), mlp(n), one, jnp.asarray(X))
            gaps[n].append(np.asarray(real) - printed)
    yield fall("power of its difference from the printed terms", 2.0, gaps)


@claim(
    "inf.73-78",
    f"{PDLT} (inf.73)-(inf.78)",
    "With its own inverse NTK a network has training errors of order 1/n after one leap, as printed, and of "
    "order 1/n^2 after the second step.",
    f"trained networks: {NETWORKS} of each of the widths {WIDTHS}",
    corrected="(inf.73): the sample index of the ddNTK term is the training index",
)
def after_leaps() -> Iterator[Comparison]:
    first, second, gaps = ({n: [] for n in WIDTHS} for _ in range(3))
    for n in WIDTHS:
        for one, start, y in real_networks(n):
            after_one, after_two = (
                np.asarray(z)[T] - y[:, 0] for z in two_steps(mlp(n), one, jnp.asarray(X), jnp.asarray(y))
            )
            step = np.linalg.solve(np.asarray(start.H)[0, T, 0, T], RESIDUAL)
            first[n].append(after_one)
            second[n].append(after_two)
            gaps[n].append(after_one - printed_error(0.0, start, step))
    yield fall("power of the error after the leap", 1.0, first)
    yield fall("power of the error after the second step", 2.0, second)
    yield fall("power of the error of (inf.73)", 2.0, gaps)


@claim(
    "inf.79",
    f"{PDLT} (inf.79)",
    "The printed solution gives the outputs after both steps up to order 1/n^2.",
    f"trained networks: {NETWORKS} of each of the widths {WIDTHS}",
    corrected="the two lines with the fluctuation of the NTK have the opposite signs: minus for the linear "
    "term, plus for the quadratic one; likewise in (inf.154)",
)
def two_step_solution() -> Iterator[Comparison]:
    gaps, expanded, as_printed = ({n: [] for n in WIDTHS} for _ in range(3))
    for n in WIDTHS:
        H = solve(mlp(n), X, tensors=()).output.H
        for one, start, y in real_networks(n):
            theory = foretold(start, y, TwoStep())
            real = np.asarray(two_steps(mlp(n), one, jnp.asarray(X), jnp.asarray(y))[1])
            gaps[n].append(real[TRAINING:] - theory.outputs[TRAINING:, 0])
            z, own = np.asarray(start.z)[0], np.asarray(start.H)[0, :, 0, :]
            inverse, D = np.linalg.inv(H[T, T]), own - H
            step = inverse @ RESIDUAL
            bracket = D[:, T] - H[:, T] @ inverse @ D[T, T]
            linear, quadratic = bracket @ step, bracket @ inverse @ D[T, T] @ step
            expanded[n].append((z - H[:, T] @ step - linear + quadratic - theory.free[:, 0])[TRAINING:])
            as_printed[n].append((z - H[:, T] @ step + linear - quadratic - theory.free[:, 0])[TRAINING:])
    yield fall("power of the error", 2.0, gaps)
    yield fall("power of the error of the expansion in the NTK", 1.5, expanded)
    yield fall("power of the same error with the printed signs", 0.5, as_printed)


@claim(
    "inf.90-93",
    f"{PDLT} (inf.90)-(inf.93)",
    "With an NTK that does not change the training error decays exponentially, and outputs are z - H a(t), "
    "which ends at the kernel prediction.",
    "closed form, against gradient descent in all parameters of a linearized network",
    corrected="(inf.92): the step inside the sum is s, not t",
)
def free_theory() -> Iterator[Comparison]:
    linear = Linearized(mlp(16), 7)
    H = linear.ntk[T, T]
    eta, theta = 1 / np.linalg.eigvalsh(H)[-1], np.asarray(linear.theta)
    z0, total = linear.outputs(theta), np.zeros(TRAINING)
    for step in range(1, 601):
        total += eta * (linear.outputs(theta)[T] - TARGETS[:, 0])
        theta = linear.updated(theta, eta * np.eye(TRAINING))
        if step in (1, 7, 40):
            stated = in_function_space(linear, GradientDescent(eta, step))
            yield agree(f"outputs after {step} steps", stated, linear.outputs(theta), 1e-9)
            yield agree(
                f"z - H a after {step} steps", z0 - linear.ntk[:, T] @ total, linear.outputs(theta), 1e-9
            )
    yield agree("training data at the end", TARGETS[:, 0], linear.outputs(theta)[T], 1e-6)
    yield agree("outputs at the end", in_function_space(linear, GradientFlow()), linear.outputs(theta), 1e-6)


# --- the coupled equations of motion, step by step ---------------------------------------------------

SAMPLES, PAIRS = 3, 2  # of which two are trained on


@functools.cache
def random_tensors():
    """Outputs, targets, and an NTK and differentials with the symmetries of a network's, none small."""
    random = np.random.default_rng(0)

    def symmetric(shape, orders):
        array = random.standard_normal(shape)
        return np.mean([array.transpose(order) for order in orders], axis=0)

    root = random.standard_normal((SAMPLES, 2 * SAMPLES))
    H = root @ root.T / (2 * SAMPLES) + 0.3 * np.eye(SAMPLES)
    dH = symmetric((SAMPLES,) * 3, [(0, 1, 2), (0, 2, 1)])
    ddI = symmetric((SAMPLES,) * 4, [(0, *rest) for rest in itertools.permutations((1, 2, 3))])
    ddII = symmetric((SAMPLES,) * 4, [(0, 1, 2, 3), (1, 0, 3, 2)])
    return random.standard_normal(SAMPLES), random.standard_normal(PAIRS), (H, dH, ddI, ddII)


def next_ntk(H, dH, ddI, ddII, e, eta: float):
    """The NTK and the dNTK after one step with residual e, (inf.82) and (inf.83)."""
    t = slice(PAIRS)
    first = np.einsum("pqa,a->pq", dH[:, :, t], e)
    second = np.einsum("pqab,a,b->pq", ddI[:, :, t, t], e, e)
    shared = np.einsum("pqab,a,b->pq", ddII[:, :, t, t], e, e)
    mixed = np.einsum("opqa,a->opq", ddII[..., t], e)
    H = H - eta * (first + first.T) + eta**2 / 2 * (second + second.T + 2 * shared)
    dH = dH - eta * (np.einsum("opqa,a->opq", ddI[..., t], e) + mixed + mixed.transpose(0, 2, 1))
    return H, dH


def motion(z, y, tensors, eta: float, steps: int):
    """Outputs, NTK and dNTK after some steps of (inf.81)-(inf.83)."""
    H, dH, ddI, ddII = tensors
    t = slice(PAIRS)
    for _ in range(steps):
        e = z[t] - y
        moved = -eta * H[:, t] @ e + eta**2 / 2 * np.einsum("Iab,a,b->I", dH[:, t, t], e, e)
        moved -= eta**3 / 6 * np.einsum("Iabc,a,b,c->I", ddI[:, t, t, t], e, e, e)
        H, dH = next_ntk(H, dH, ddI, ddII, e, eta)
        z = z + moved
    return z, H, dH


def closed(z, y, tensors, algorithm) -> NetworkPrediction:
    """The library's solution for one output."""
    parts = (array.reshape((1, SAMPLES) * array.ndim) for array in tensors)
    return trained_outputs(z[:, None], *parts, Y=y[:, None], algorithm=algorithm)


def _to_first_order(what: str, read) -> Iterator[Comparison]:
    """The error of the closed form falls as the square of the differentials."""
    z, y, tensors = random_tensors()
    for steps in (7, 400):
        gaps = []
        for size in (1e-3, 1e-4):
            small = (tensors[0], *(size * part for part in tensors[1:]))
            exact = motion(z, y, small, 0.5, steps)
            gaps.append(read(exact, closed(z, y, small, GradientDescent(0.5, steps))))
        power = slope_of_logs((1e-3, 1e-4), gaps)
        yield agree(f"power of the error of {what} after {steps} steps", 2.0, power, 0.05)


@claim(
    "inf.101-102",
    f"{PDLT} (inf.101), (inf.102)",
    "The dNTK evolves by the ddNTKs times the learned residual.",
    "closed form, against the coupled difference equations step by step, seven steps and four hundred",
    corrected="(inf.101): the last term is ddII with its second and third legs exchanged, once",
)
def evolving_dntk() -> Iterator[Comparison]:
    yield from _to_first_order(
        "the dNTK", lambda exact, theory: np.abs(exact[2] - theory.dntk.reshape(exact[2].shape)).max()
    )


@claim(
    "inf.117",
    f"{PDLT} (inf.117)",
    "The NTK evolves by the dNTK and both ddNTKs times helper functions of the free trajectory.",
    f"closed form, against the coupled difference equations; and trained networks: {NETWORKS} of each of "
    f"the widths {WIDTHS}",
)
def evolving_ntk() -> Iterator[Comparison]:
    yield from _to_first_order(
        "the NTK", lambda exact, theory: np.abs(exact[1] - theory.ntk.reshape(exact[1].shape)).max()
    )
    gaps, moved = ({n: [] for n in WIDTHS} for _ in range(2))
    for n in WIDTHS:
        for one, start, y in real_networks(n):
            end = descended(mlp(n), one, jnp.asarray(X[T]), jnp.asarray(y), 0.15, 10)
            H = np.asarray(outputs_and_ntk(mlp(n), end, jnp.asarray(X)).H)
            theory = foretold(start, y, GradientDescent(0.15, 10))
            gaps[n].append(H - theory.ntk)
            moved[n].append(H - np.asarray(start.H))
    yield fall("power of the movement of the NTK", 1.0, moved)
    yield fall("power of the error of its prediction", 2.0, gaps)


@claim(
    "inf.126-130",
    f"{PDLT} (inf.126)-(inf.130)",
    "The interacting part of the outputs vanishes on the training data. Elsewhere it is the sum of the "
    "damping force minus the part that the training data already explain.",
    "closed form, against the damping force summed step by step",
)
def damping_force() -> Iterator[Comparison]:
    z, y, (H, dH, ddI, ddII) = random_tensors()
    eta, t = 0.5, slice(PAIRS)
    e, HI, d, force = z[t] - y, np.zeros_like(H), dH.copy(), np.zeros(SAMPLES)
    for _ in range(600):
        force += eta * (
            -HI[:, t] @ e
            + eta / 2 * np.einsum("Iab,a,b->I", d[:, t, t], e, e)
            - eta**2 / 6 * np.einsum("Iabc,a,b,c->I", ddI[:, t, t, t], e, e, e)
        )
        HI, d = next_ntk(HI, d, ddI, ddII, e, eta)
        e = e - eta * H[t, t] @ e
    stated = force - H[:, t] @ np.linalg.solve(H[t, t], force[t])
    theory = closed(z, y, (H, dH, ddI, ddII), GradientDescent(eta))
    interacting = (theory.outputs - theory.free)[:, 0]
    yield agree("interacting part", stated, interacting, 1e-8)
    yield agree("on the training data", 0.0, interacting[t], 1e-9, scale=1.0)
    late = [closed(z, y, (H, dH, ddI, ddII), GradientDescent(eta, steps)) for steps in (40, 80)]
    left = [np.abs((one.outputs - one.free)[t]).max() for one in late]
    slowest = 1 - eta * np.linalg.eigvalsh(H[t, t])[0]
    # t e^(-eta H t): 40 more steps multiply it by the slowest rate to the power 40, and by two
    yield agree("decay between 40 and 80 steps", np.log(2 * slowest**40), np.log(left[1] / left[0]), 0.05)


@claim(
    "inf.155",
    f"{PDLT} (inf.155)",
    "The trained network is a kernel prediction with a trained NTK: z - H# (H#)^-1 (z - y).",
    "closed form, at two sizes of the differentials, for flow, descent and two steps",
)
def trained_ntk() -> Iterator[Comparison]:
    z, y, tensors = random_tensors()
    for algorithm in (GradientFlow(), GradientDescent(0.5), TwoStep()):
        gaps = []
        for size in (1e-3, 1e-4):
            small = (tensors[0], *(size * part for part in tensors[1:]))
            theory = closed(z, y, small, algorithm)
            assert theory.trained_ntk is not None
            kernel = theory.trained_ntk.reshape(SAMPLES, PAIRS)
            by_kernel = z - kernel @ np.linalg.solve(kernel[:PAIRS], z[:PAIRS] - y)
            gaps.append(np.abs(by_kernel - theory.outputs[:, 0]).max())
        yield agree(f"power of the error, {algorithm!r}", 2.0, slope_of_logs((1e-3, 1e-4), gaps), 0.05)
