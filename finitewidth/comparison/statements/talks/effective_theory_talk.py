"""Talk "Effective Theory of Deep Neural Networks" (Yaida): effects that appear at order L/n only."""

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
    significant,
    slope_of_logs,
)
from finitewidth.comparison.statements.problems import (
    ASYMPTOTE,
    ONE_OUTPUT,
    TRAINING,
    X,
    Y,
    at_the_end,
    descended,
    frozen_ntk,
    mlp,
    networks,
    of_members,
    predicted,
    trained,
)
from finitewidth.core.estimate import Estimate
from finitewidth.experiment.directions import outputs_and_ntk
from finitewidth.experiment.ensemble.plan import Record
from finitewidth.experiment.sampling import outputs
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import Newton
from finitewidth.network.algorithms.schedule import Schedule
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.theory.solve import solve
from finitewidth.training.infinite.spectrum import spectrum

SOURCE = "Talk: Effective Theory of Deep Neural Networks (Yaida)"
WIDTHS, MOVED = (32, 128), 100
ALGORITHM_WIDTH, PAIRED = 24, 20_000
LEARNING_WIDTH, LEARNING, RATE, STEPS = 128, 2000, 0.12, 12
LARGE = 3 * Y[:, :1]  # targets that are larger than initial outputs
DEPTH = 2000


@claim(
    "effective-theory.no-representation-learning",
    SOURCE,
    "At infinite width there is no representation learning: the movement of the kernels of hidden layers "
    "falls as 1/n.",
    f"trained networks: {MOVED} of each of the widths {WIDTHS}, 40 steps",
)
def no_representation_learning() -> Iterator[Comparison]:
    moved = []
    for n in WIDTHS:
        descent, record = GradientDescent(0.2, 40), Record(kernels=True)
        ensemble = networks(mlp(n), ONE_OUTPUT, descent, MOVED, 2, record=record)
        moved.append(at_the_end(ensemble.kernel_movement, -1))
    yield falls("movement of the last hidden kernel", 1.0, WIDTHS, moved)


@claim(
    "effective-theory.no-algorithm-dependence",
    SOURCE,
    "At infinite width gradient descent, gradient flow, Newton's method and mini-batches lead to the same "
    "ensemble.",
    "closed form, against updates one after another",
)
def no_algorithm_dependence() -> Iterator[Comparison]:
    net, limit = mlp(8), spectrum(mlp(8), ONE_OUTPUT[0]).largest_learning_rate
    Theta, K = frozen_ntk(net, X), kernels(net, X).K
    inverse = np.linalg.inv(Theta[:TRAINING, :TRAINING])
    batches = [0.4 * limit * np.eye(TRAINING)[step % TRAINING] for step in range(60)]
    ends: list[AbstractAlgorithm] = [
        GradientFlow(),
        Newton(),
        GradientDescent(0.3 * limit, 20_000),
        Schedule([*batches, inverse]),
    ]
    gain = Theta[TRAINING:, :TRAINING] @ inverse
    kept = np.concatenate([-gain, np.eye(len(X) - TRAINING)], axis=1)
    for algorithm in ends:
        end = predicted(net, *ONE_OUTPUT, algorithm=algorithm, order=0)
        yield agree(f"mean by {algorithm!r}", gain @ ONE_OUTPUT[1], end.mean, 1e-8)
        yield agree(f"covariance by {algorithm!r}", kept @ K @ kept.T, end.covariance[:, 0, :, 0], 1e-8)


@claim(
    "effective-theory.order-L-over-n",
    SOURCE,
    "At finite width all effects are of order L/n: V/K^2 tends to 2l/3, G1/K to -l/3, B/Theta^2 to l/3, "
    "F/K Theta to l/4, P/Theta^2 to -l/12 for odd activations at criticality, and Q/Theta^2 and A/Theta^2 "
    "grow in proportion to l.",
    f"recursion: {DEPTH} layers, tanh and sin",
)
def order_L_over_n() -> Iterator[Comparison]:
    stated = {
        "V": ("KK", 2 / 3),
        "G1": ("K", -1 / 3),
        "B": ("TT", 1 / 3),
        "F": ("KT", 1 / 4),
        "P": ("TT", -1 / 12),
    }
    for activation in ("tanh", "sin"):
        layers = np.array([DEPTH // 2, DEPTH])
        net = MLP.critical((1, *[1] * DEPTH), activation, lambda_b=0.7, lambda_W=1.3)
        theory = solve(net, [[1.0]], layers=layers.tolist())
        value = lambda name: np.array([getattr(theory.layer(l), name).item() for l in layers])  # noqa: B023, E731
        scale = {"K": value("K"), "T": value("Theta")}
        for name, (units, coefficient) in stated.items():
            ratio = value(name) / np.prod([scale[unit] for unit in units], axis=0)
            # corrections fall as log(l)/l; most of them cancel in the slope between two depths
            growth = (ratio[1] - ratio[0]) / (layers[1] - layers[0])
            yield agree(f"{name} of {activation}", coefficient, growth, ASYMPTOTE)
        for name in ("A", "Q"):
            power = slope_of_logs(layers, value(name) / scale["T"] ** 2)
            yield agree(f"power of depth of {name}, {activation}", 1.0, power, 0.02)


def trained_twice(members: int):
    """Predictions and sampled means for two learning rates, trained to the end from the same networks."""
    net, data = mlp(ALGORITHM_WIDTH), (ONE_OUTPUT[0], 2 * ONE_OUTPUT[1], ONE_OUTPUT[2])
    limit = spectrum(net, ONE_OUTPUT[0]).largest_learning_rate
    pairs = []
    for fraction in (0.15, 0.85):
        algorithm = GradientDescent(fraction * limit)
        mean, _ = trained(net, data, algorithm, members, 3)
        pairs.append((predicted(net, *data, algorithm=algorithm), mean))
    return pairs


@claim(
    "effective-theory.algorithm-dependence",
    SOURCE,
    "At order 1/n the trained ensemble depends on the algorithm: gradient descent with small steps and with "
    "large steps ends at different means.",
    f"trained networks: {PAIRED} of width {ALGORITHM_WIDTH} at 15 % and at 85 % of the largest learning rate",
    long=True,
)
def algorithm_dependence() -> Iterator[Comparison]:
    (slow, slow_mean), (fast, fast_mean) = trained_twice(PAIRED)
    gap = Estimate(fast_mean.value - slow_mean.value, np.hypot(slow_mean.stderr, fast_mean.stderr))
    yield significant("difference of the means", gap)
    yield pull("difference of the means", fast.mean - slow.mean, gap)


def beyond_its_own_ntk(net: Network, one, X) -> jax.Array:
    """The outputs of a trained network minus those of training with its NTK frozen at initialization."""
    start, y, t = outputs_and_ntk(net, one, X), jnp.asarray(LARGE), slice(TRAINING)
    end = outputs(net, descended(net, one, X[t], y, RATE, STEPS), X)
    H, frozen = start.H[0, :, 0, t], start.z.T
    for _ in range(STEPS):
        frozen = frozen - RATE * H @ (frozen[t] - y)
    return (end - frozen)[TRAINING:]


@claim(
    "effective-theory.representation-learning",
    SOURCE,
    "At finite width there is representation learning: trained networks differ from training with their "
    "NTKs frozen at initialization, on average by the contributions of the dNTK and both ddNTKs to the mean.",
    f"trained networks: {LEARNING} of width {LEARNING_WIDTH}, {STEPS} steps, each beside its own frozen NTK",
)
def representation_learning() -> Iterator[Comparison]:
    net = mlp(LEARNING_WIDTH)
    beyond = mean_of(of_members(net, X, LEARNING, 4, beyond_its_own_ntk))
    data = (ONE_OUTPUT[0], LARGE, ONE_OUTPUT[2])
    parts = predicted(net, *data, algorithm=GradientDescent(RATE, STEPS)).contributions
    yield significant("mean beyond the frozen NTK", beyond)
    yield pull("mean beyond the frozen NTK", parts["dntk"] + parts["ddntk_1"] + parts["ddntk_2"], beyond)
