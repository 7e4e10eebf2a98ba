"""PDLT sections 10.1 and 10.2: small steps, giant leaps, algorithm independence and kernel prediction."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, differ, extrapolated, mean_of, pull
from finitewidth.comparison.statements.problems import (
    DATA,
    EXACT,
    PDLT,
    TRAINING,
    X,
    Y,
    frozen_ntk,
    kernels_of,
    mlp,
    network,
    of_members,
    predicted,
    trained,
)
from finitewidth.experiment.sampling import outputs, preactivations, rates
from finitewidth.experiment.taylor import taylor
from finitewidth.gaussian.two_legs.averages import relative_two_legs
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import Newton
from finitewidth.network.algorithms.schedule import Schedule
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.bayes.posterior import posterior
from finitewidth.training.first_order.one_network import trained_outputs
from finitewidth.training.infinite.bayes import rates as bayesian_rates

WIDTHS, STEPPED = (32, 64), 10_000
TRAINED_WIDTHS, TRAINED = (32, 64), 4000


def small(width: int) -> MLP:
    """A network of gelu, which is not odd, so that the mean update does not vanish by symmetry."""
    return mlp(width, hidden=1, outputs=2, activation="gelu")


def hidden_update(net: Network, one, X) -> jax.Array:
    """dz/d eta of the last hidden layer for a step of gradient descent on half the squared error, (N, n)."""
    slopes = jax.grad(lambda p: jnp.sum((outputs(net, p, X[:TRAINING]) - jnp.asarray(Y)) ** 2) / 2)(one)
    direction = tuple(
        type(layer)(*(-rate * part for part, rate in zip(layer, pair, strict=True)))
        for layer, pair in zip(slopes, rates(net), strict=True)
    )
    return jax.jvp(lambda p: preactivations(net, p, X)[-2], (one,), (direction,))[1]


def hidden_statistics(net: Network, one, X) -> tuple[jax.Array, jax.Array]:
    """Mean and second moment of the update over the neurons of one network, times the width."""
    update = hidden_update(net, one, X)
    return update.sum(axis=1), update @ update.T


@claim(
    "10.11-10.13",
    f"{PDLT} (10.11)-(10.13)",
    "No representation learning at infinite width: in one step the mean and covariance of the update of the "
    "last hidden layer are of order 1/n, with the printed coefficients.",
    f"sampled networks: {STEPPED} of each of the widths {WIDTHS}, extrapolated in 1/n",
)
def no_representation_learning() -> Iterator[Comparison]:
    net, T = small(WIDTHS[0]), slice(TRAINING)
    low, out = kernels(net, X, layer=1), kernels(net, X)
    K, Theta = low.K, frozen_ntk(net, X, layer=1)[:, T]
    averages, _ = relative_two_legs(net.activations[0], K[T, T], ((1, 0), (1, 1)))
    mean = -1.2 * 2 * Theta @ np.diag(averages[1, 0])  # the Hessian of the squared error ties samples
    errors = 2 * out.K[T, T] + Y @ Y.T  # <<eps eps>>, summed over outputs
    second = 1.2 * Theta @ (errors * averages[1, 1]) @ Theta.T
    updates = [of_members(small(n), X, STEPPED, n, hidden_statistics) for n in WIDTHS]
    for n, (sums, _) in zip(WIDTHS, updates, strict=True):
        yield pull(f"n times the mean, width {n}", mean, mean_of(sums))
    products = [mean_of(product) for _, product in updates]
    yield pull("n times the second moment", second, extrapolated(WIDTHS, products))


# --- linearized networks, in parameter space ---------------------------------------------------------


class Linearized:
    """A network that is linear in its parameters around one initialization, like an infinitely wide one."""

    def __init__(self, net: Network, key: int):
        self.net, self.one = net, network(net, key)
        self.theta, self.unflatten = ravel_pytree(self.one)
        scale = ravel_pytree(
            [
                tuple(jnp.full(p.shape, r) for p, r in zip(layer, pair, strict=True))
                for layer, pair in zip(self.one, rates(net), strict=True)
            ]
        )[0]
        self.rate = np.asarray(scale)
        model = taylor(net, self.one, 1)
        self.model = jax.jit(lambda theta: model(self.unflatten(theta), jnp.asarray(X))[:, 0])
        jacobian = jax.jacrev(lambda theta: outputs(net, self.unflatten(theta), jnp.asarray(X)))(self.theta)
        self.jacobian = np.asarray(jacobian)[:, 0]  # (N, parameters), one output

    @property
    def ntk(self) -> np.ndarray:
        """(N, N), which training does not change."""
        return (self.jacobian * self.rate) @ self.jacobian.T

    def outputs(self, theta) -> np.ndarray:
        return np.asarray(self.model(jnp.asarray(theta)))

    def updated(self, theta, kappa) -> np.ndarray:
        """Parameters after the update (10.19), where `kappa` is a learning rate times the Newton tensor."""
        residual = self.outputs(theta)[:TRAINING] - Y[:, 0]
        return theta - self.rate * (self.jacobian[:TRAINING].T @ (kappa @ residual))


def in_function_space(linear: Linearized, algorithm) -> np.ndarray:
    """The outputs that the theory predicts for a network with this NTK and no differentials."""
    z = np.asarray(outputs(linear.net, linear.one, jnp.asarray(X)))
    zeros = [np.zeros((1, len(X)) * k) for k in (3, 4, 4)]
    H = linear.ntk[None, :, None, :]
    return trained_outputs(z, H, *zeros, Y=Y[:, :1], algorithm=algorithm).outputs[:, 0]


@claim(
    "10.27-10.28",
    f"{PDLT} (10.27), (10.28)",
    "One Newton step in the parameters reaches the minimum: the training data are fitted, and all outputs "
    "are z - Theta Theta^-1 (z - y).",
    "closed form, against the update of all parameters of a linearized network",
)
def newton_step() -> Iterator[Comparison]:
    linear = Linearized(mlp(16), 5)
    inverse = np.linalg.inv(linear.ntk[:TRAINING, :TRAINING])
    end = linear.outputs(linear.updated(np.asarray(linear.theta), inverse))
    yield agree("training data", Y[:, 0], end[:TRAINING], EXACT)
    yield agree("all outputs", in_function_space(linear, GradientFlow()), end, EXACT)


@claim(
    "10.35",
    f"{PDLT} (10.35)",
    "Algorithm independence: the network at the minimum does not depend on the learning rates, Newton "
    "tensors and mini-batches of earlier steps.",
    "closed form, against 200 updates of all parameters of a linearized network",
)
def algorithm_independence() -> Iterator[Comparison]:
    linear, random = Linearized(mlp(16), 6), np.random.default_rng(0)
    H = linear.ntk[:TRAINING, :TRAINING]
    largest = np.linalg.eigvalsh(H)[-1]
    theta = np.asarray(linear.theta)
    for _ in range(199):
        root = random.normal(size=(TRAINING, TRAINING))
        theta = linear.updated(
            theta, (root @ root.T) * random.uniform(0, 0.3) / largest / np.trace(root @ root.T)
        )
    middle = linear.outputs(theta)
    theta = linear.updated(theta, np.linalg.inv(H))
    stated = in_function_space(linear, GradientFlow())
    yield differ("before the last step", stated, middle, 1e-3)
    yield agree("at the end", stated, linear.outputs(theta), 1e-8)
    whole = frozen_ntk(mlp(8), X[:TRAINING])
    path = Schedule(
        [*(0.1 / np.linalg.norm(whole, 2) * np.eye(TRAINING)[k % 3] for k in range(40)), np.linalg.inv(whole)]
    )
    one, other = (
        predicted(mlp(8), X[:TRAINING], Y[:, :1], X, algorithm=a, order=0) for a in (path, Newton())
    )
    yield agree("ensemble mean", other.mean, one.mean, 1e-8)


# --- kernel prediction -------------------------------------------------------------------------------


@claim(
    "10.40-10.41",
    f"{PDLT} (10.40), (10.41)",
    "The ensemble of trained networks has mean Theta Theta^-1 y and the printed covariance in K and Theta "
    "as the width grows.",
    f"closed form, and trained networks: {TRAINED} of each of the widths {TRAINED_WIDTHS}, 12 steps, "
    "extrapolated in 1/n",
)
def kernel_prediction() -> Iterator[Comparison]:
    net, T, B = mlp(8, outputs=2), slice(TRAINING), slice(TRAINING, None)
    both = kernels(net, X)
    Theta = frozen_ntk(net, X)
    gain = Theta[B, T] @ np.linalg.inv(Theta[T, T])
    K = both.K
    printed = K[B, B] - gain @ K[T, B] - K[B, T] @ gain.T + gain @ K[T, T] @ gain.T
    end = predicted(net, *DATA, order=0)
    yield agree("mean", gain @ Y, end.mean, EXACT)
    yield agree("covariance", printed, end.covariance[:, 0, :, 0], EXACT)
    yield agree("covariance of different outputs", 0.0, end.covariance[:, 0, :, 1], EXACT, scale=1.0)
    algorithm, means, covariances = GradientDescent(0.12, 12), [], []
    for n in TRAINED_WIDTHS:
        mean, ensemble = trained(mlp(n, outputs=2), DATA, algorithm, TRAINED, 7)
        means.append(mean)
        covariances.append(ensemble.covariance)
    stopped = predicted(net, *DATA, algorithm=algorithm, order=0)
    yield pull("mean of networks", stopped.mean, extrapolated(TRAINED_WIDTHS, means))
    yield pull("covariance of networks", stopped.covariance, extrapolated(TRAINED_WIDTHS, covariances))


@claim(
    "10.49",
    f"{PDLT} (10.49)",
    "Training the last layer alone with rates equal to its variances gives Theta = K, and the trained "
    "ensemble is the posterior of Bayesian inference.",
    "closed form, against conditioning of the Gaussian prior; and sampled networks: 20000 of width 16",
)
def bayesian_limit() -> Iterator[Comparison]:
    net, T, B = bayesian_rates(mlp(16, outputs=2)), slice(TRAINING), slice(TRAINING, None)
    both = kernels(net, X)
    yield agree("Theta", both.K, frozen_ntk(net, X), 1e-11)
    each = of_members(net, X, 20_000, 8, kernels_of)
    gap = each.H[:, 0, :, 0, :] - np.einsum("ma,mb->mab", each.z[:, 0], each.z[:, 0])
    yield pull("mean NTK minus mean of zz", 0.0, mean_of(gap))
    precision = np.linalg.inv(both.K)  # its block of test outputs is the inverse of their covariance given y
    spread = np.linalg.inv(precision[B, B])
    trained = predicted(net, *DATA, order=0)
    yield agree("posterior mean", -spread @ precision[B, T] @ Y, trained.mean, 1e-8)
    yield agree("posterior covariance", spread, trained.covariance[:, 0, :, 0], 1e-8)
    yield agree("posterior of the library", posterior(net, *DATA, order=0).mean, trained.mean, 1e-8)
