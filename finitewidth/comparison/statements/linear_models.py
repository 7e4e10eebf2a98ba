"""PDLT section 10.4: linear models, kernel methods, and infinitely wide networks as examples of both."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, falls, mean_of, pull, root_mean_square
from finitewidth.comparison.statements.problems import (
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
)
from finitewidth.experiment.directions import ntk
from finitewidth.experiment.sampling import preactivations, rates
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.textbook.linear import fit_kernel_machine, fit_linear_model, with_constant

DRAWN, WIDTHS = 4000, (16, 256)


def powers(X) -> np.ndarray:
    """Features of an input: powers, a product and sines."""
    return np.concatenate([X, X**2, X**3, X[:, :1] * X[:, 1:2], np.sin(X)], axis=1)


@claim(
    "10.130-10.131",
    f"{PDLT} (10.130), (10.131)",
    "A fitted linear model and the kernel method with the kernel of its features make the same predictions.",
    "closed form: least squares with 14 features, against a kernel of 3 training inputs",
)
def duality() -> Iterator[Comparison]:
    features = with_constant(powers)
    phi = features(X)
    k = phi @ phi.T
    stated = k[:, :TRAINING] @ np.linalg.inv(k[:TRAINING, :TRAINING]) @ Y
    least, *_ = np.linalg.lstsq(phi[:TRAINING], Y, rcond=None)
    yield agree("least squares", stated, phi @ least, EXACT)
    for fit in (fit_linear_model, fit_kernel_machine):
        yield agree(fit.__name__, stated, fit(features, X[:TRAINING], Y).predict(X), EXACT)


def stochastic_metric(net: Network, one, X) -> jax.Array:
    """(10.135): C_b + C_W times the mean of s s over the last hidden layer."""
    s = net.activations[-1](preactivations(net, one, X)[-2])
    return net.C_b[-1] + net.C_W[-1] * (s @ s.T) / s.shape[1]


@claim(
    "10.135-10.136",
    f"{PDLT} (10.135), (10.136)",
    "The kernel of the random features of the last hidden layer has the mean K, and tends to it as the width "
    "grows.",
    f"sampled networks: {DRAWN} of one hidden layer of width 16, and of the widths {WIDTHS}",
)
def bayesian_features() -> Iterator[Comparison]:
    net = mlp(16, hidden=1)
    K = kernels(net, X).K
    spread = []
    for n in WIDTHS:
        each = of_members(mlp(n, hidden=1), X, DRAWN, n, stochastic_metric)
        yield pull(f"mean at width {n}", K, mean_of(each))
        spread.append(root_mean_square(each - K))
    yield falls("deviation", 0.5, WIDTHS, spread)


def by_hand(net: Network, key: int) -> np.ndarray:
    """The features (10.138) of the first output as products of matrices, (N, parameters)."""
    one = [(np.asarray(b), np.asarray(W)) for b, W in network(net, key)]
    z = [np.asarray(part) for part in preactivations(net, network(net, key), jnp.asarray(X))]
    s = [X, *(np.tanh(part) for part in z[:-1])]
    columns, back = [], np.broadcast_to(np.eye(net.widths[-1])[0], z[-1].shape)
    for layer in reversed(range(net.depth)):
        rate_b, rate_W = rates(net)[layer]
        weights = back[:, :, None] * s[layer][:, None, :]
        columns += [np.sqrt(rate_b) * back, np.sqrt(rate_W) * weights.reshape(len(X), -1)]
        if layer:
            back = (back @ one[layer][1]) / np.cosh(z[layer - 1]) ** 2
    return np.concatenate(columns, axis=1)


@claim(
    "10.137-10.141",
    f"{PDLT} (10.137)-(10.141)",
    "The random features dz/dtheta have the printed form, their kernel is the NTK of the network, and at "
    "infinite width it is Theta.",
    "closed form, against automatic differentiation; and sampled networks: 400 of each of the widths "
    f"{WIDTHS}",
)
def random_features() -> Iterator[Comparison]:
    net = mlp(16, outputs=2)
    phi = by_hand(net, 3)
    H = np.asarray(ntk(net, network(net, 3), jnp.asarray(X)))[0, :, 0]
    yield agree("kernel of the features", H, phi @ phi.T, EXACT)
    Theta = frozen_ntk(mlp(WIDTHS[0], hidden=1), X)
    spread, off = [], []
    for n in WIDTHS:
        H = of_members(mlp(n, hidden=1, outputs=2), X, 400, n, kernels_of).H
        spread.append(root_mean_square(H[:, 0, :, 0] - Theta))
        off.append(root_mean_square(H[:, 0, :, 1]))
        yield pull(f"mean NTK at width {n}", Theta, mean_of(H[:, 0, :, 0]))
    yield falls("deviation from Theta", 0.5, WIDTHS, spread)
    yield falls("NTK between different outputs", 0.5, WIDTHS, off)
