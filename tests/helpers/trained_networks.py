"""Real networks trained many at once by full-batch gradient descent; nothing here knows the theory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import finitewidth as fw


def initialize(net: fw.MLP, key):
    """Biases of variance C_b and weights of variance C_W / fan-in."""
    layers = []
    for l, (fan_in, fan_out) in enumerate(zip(net.widths, net.widths[1:], strict=False)):
        key, one, two = jax.random.split(key, 3)
        b = np.sqrt(net.C_b[l]) * jax.random.normal(one, (fan_out,), dtype=float)
        W = np.sqrt(net.C_W[l] / fan_in) * jax.random.normal(two, (fan_out, fan_in), dtype=float)
        layers.append((b, W))
    return layers


def outputs(net: fw.MLP, layers, X):
    signal = X
    for l, (b, W) in enumerate(layers):
        z = signal @ W.T + b
        signal = net.activation(z) if l < net.depth - 1 else z
    return signal


def squared(z, Y):
    return jnp.sum((z - Y) ** 2) / 2


def cross_entropy(z, Y):
    return -jnp.sum(Y * jax.nn.log_softmax(z))


def train(net: fw.MLP, X, Y, X_test, key, *, learning_rate, steps, members, loss=squared):
    """Outputs (members, M, n_L) on X_test after each of the numbers of steps, and at the start."""
    X, Y, X_test = (jnp.asarray(a, dtype=float) for a in (X, Y, X_test))
    rates = [
        (net.lambda_b[l] * learning_rate, net.lambda_W[l] / net.widths[l] * learning_rate)
        for l in range(net.depth)
    ]
    gradient = jax.grad(lambda layers: loss(outputs(net, layers, X), Y))

    def step(_, layers):
        slopes = gradient(layers)
        return [
            (b - rb * gb, W - rW * gW)
            for (b, W), (gb, gW), (rb, rW) in zip(layers, slopes, rates, strict=True)
        ]

    @functools.partial(jax.jit, static_argnums=1)
    def advance(layers, count):
        def one(member):
            member = jax.lax.fori_loop(0, count, step, member)
            return member, outputs(net, member, X_test)

        return jax.vmap(one)(layers)

    layers = jax.vmap(functools.partial(initialize, net))(jax.random.split(key, members))
    records, now = [], 0
    for target in steps:
        layers, z = advance(layers, target - now)
        records.append(np.asarray(z))
        now = target
    return records


def pulls(members: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the mean (M n_L) and of the covariance, flattened, in units of standard errors."""
    count = members.shape[0]
    flat = members.reshape(count, -1)
    centred = flat - flat.mean(axis=0)
    of_mean = (flat.mean(axis=0) - mean.ravel()) / (flat.std(axis=0, ddof=1) / np.sqrt(count))
    products = centred[:, :, None] * centred[:, None, :] * count / (count - 1)
    size = flat.shape[1]
    stderr = products.std(axis=0, ddof=1) / np.sqrt(count)
    return of_mean, (products.mean(axis=0) - covariance.reshape(size, size)) / stderr
