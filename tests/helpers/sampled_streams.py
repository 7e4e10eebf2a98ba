"""Residual networks sampled exactly and cheaply: neurons of a layer, given the layers below, are independent.

Weights enter a preactivation linearly. Given layer l, the neurons of layer l + 1 are therefore independent
Gaussian vectors around what skips carry. The same holds for the responses phi and psi of preactivations to
random shifts of all parameters with covariance lambda, and the NTK is their covariance, H = E[phi phi]. So a
layer costs a few normal numbers for each neuron instead of one for each weight. Nothing here knows the
theory.

Means are measured with control variates: averages over the neurons of a layer less what they are on average
given the layers below, which vanish on average at any width. Their coefficients come from a batch of its own.
"""

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from finitewidth.core.estimate import Estimate
from finitewidth.network.network import Network

BATCHES = 50


def stream_statistics(net: Network, X, members: int, seed: int) -> dict[str, Estimate]:
    """G, H, V, D, A, F and B of the last layer, which must be dense; V ... B times n."""
    assert net.ladder.skips[-1] is None
    generator, size = np.random.default_rng(seed), members // BATCHES
    slopes = _regression(*_given_hidden(net, X, 4000, generator))
    parts = [_averages(*_given_hidden(net, X, size, generator), slopes) for _ in range(BATCHES)]
    n = net.ladder.widths[-2]
    whole = _estimates({name: np.mean([part[name] for part in parts], axis=0) for name in parts[0]}, n)
    left_out = [
        _estimates(
            {name: np.mean([p[name] for p in parts[:i] + parts[i + 1 :]], axis=0) for name in parts[0]}, n
        )
        for i in range(BATCHES)
    ]
    spread = {name: np.std([one[name] for one in left_out], axis=0) for name in whole}
    return {name: Estimate(whole[name], spread[name] * np.sqrt(BATCHES - 1)) for name in whole}


def _given_hidden(net: Network, X, members: int, generator) -> tuple[np.ndarray, np.ndarray]:
    """Covariances (members, 3 N, 3 N) of z, phi and psi of one output neuron, given all hidden layers.

    With them control variates (members, controls).
    """
    ladder, (count, inputs) = net.ladder, np.shape(X)
    first = ladder.dense[0]
    products = np.asarray(X) @ np.asarray(X).T / inputs
    blocks = [first.C_b + first.C_W * products] + [first.lambda_b + first.lambda_W * products] * 2
    covariance = np.zeros((1, 3 * count, 3 * count))
    for i, block in enumerate(blocks):
        part = slice(i * count, (i + 1) * count)
        covariance[:, part, part] = block
    covariance = np.repeat(covariance, members, axis=0)
    fields = {1: _drawn(covariance, ladder.widths[1], generator)}
    controls = [_controls(fields[1], np.zeros((1, 1, 1)), covariance, count)]
    for layer in range(1, ladder.depth):
        covariance = _next_covariance(ladder, layer, fields[layer], count)
        if layer + 1 < ladder.depth:
            skip = ladder.skips[layer]
            mean = np.zeros((1, 1, 1)) if skip is None else skip.gamma * fields[skip.source]
            fields[layer + 1] = mean + _drawn(covariance, ladder.widths[layer + 1], generator)
            controls.append(_controls(fields[layer + 1], mean, covariance, count))
    return covariance, np.concatenate(controls, axis=1)


def _drawn(covariance: np.ndarray, n: int, generator) -> np.ndarray:
    members, size, _ = covariance.shape
    shift = 1e-13 * np.trace(covariance, axis1=1, axis2=2)[:, None, None] * np.eye(size)
    root = np.linalg.cholesky(covariance + shift)
    return generator.standard_normal((members, n, size)) @ np.swapaxes(root, 1, 2)


def _controls(fields: np.ndarray, mean: np.ndarray, covariance: np.ndarray, count: int) -> np.ndarray:
    """Squares of z, phi and psi, all and where z > 0, averaged over neurons, less their expectation."""
    mean, controls = np.broadcast_to(mean, fields.shape), []
    for sample in range(count):
        q, u = covariance[:, None, sample, sample], mean[:, :, sample]
        u = u / np.sqrt(q)
        above, density = ndtr(u), np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)
        positive = fields[:, :, sample] > 0
        for place in range(sample, 3 * count, count):
            m, r = mean[:, :, place], covariance[:, None, place, place]
            b = covariance[:, None, sample, place] / q
            half = (m**2 + r - b**2 * q) * above + 2 * m * b * np.sqrt(q) * density
            half += b**2 * q * (above - u * density)
            square = fields[:, :, place] ** 2
            controls += [(square - m**2 - r).mean(axis=1), (square * positive - half).mean(axis=1)]
    return np.stack(controls, axis=1)


def _regression(covariance: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """How much of each covariance goes with each control variate (controls, 3 N, 3 N)."""
    members, size, _ = covariance.shape
    centred = (covariance - covariance.mean(axis=0)).reshape(members, -1)
    return np.linalg.lstsq(controls, centred, rcond=1e-8)[0].reshape(-1, size, size)


def _next_covariance(ladder, layer: int, fields: np.ndarray, count: int) -> np.ndarray:
    """Of what the weights and biases of the next layer add to z, phi and psi of one neuron."""
    dense, n = ladder.dense[layer], fields.shape[1]
    z, phi, psi = np.split(fields, 3, axis=2)
    sigma, slope = (np.asarray(part) for part in ladder.activations[layer - 1].derivatives(jnp.asarray(z), 1))
    moved = np.concatenate([sigma, slope * phi, slope * psi], axis=2)
    covariance = dense.C_W / n * (np.swapaxes(moved, 1, 2) @ moved)
    covariance[:, :count, :count] += dense.C_b
    shifts = dense.lambda_b + dense.lambda_W / n * (np.swapaxes(sigma, 1, 2) @ sigma)
    for i in (1, 2):
        part = slice(i * count, (i + 1) * count)
        covariance[:, part, part] += shifts
    return covariance


def _averages(covariance: np.ndarray, controls: np.ndarray, slopes: np.ndarray) -> dict[str, np.ndarray]:
    count = covariance.shape[-1] // 3
    means = covariance.mean(axis=0) - np.tensordot(controls.mean(axis=0), slopes, 1)
    z, phi, psi = (slice(i * count, (i + 1) * count) for i in range(3))
    G, H, other = covariance[:, z, z], covariance[:, phi, phi], covariance[:, psi, psi]
    mixed, both = covariance[:, phi, z], covariance[:, phi, psi]

    def product(one, two):
        return np.einsum("mab,mcd->abcd", one, two, optimize=True) / len(covariance)

    return {
        "G": means[z, z],
        "H": (means[phi, phi] + means[psi, psi]) / 2,
        "centre": np.stack([G.mean(axis=0), (H + other).mean(axis=0) / 2]),
        "V": product(G, G),
        "D": (product(H, G) + product(other, G)) / 2,
        "A": product(H, other),
        "F": product(mixed, mixed),
        "B": product(both, both),
    }


def _estimates(means: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    G, H = means["centre"]
    centred = {"V": (G, G), "D": (H, G), "A": (H, H)}
    result = {name: means[name] for name in "GH"} | {name: n * means[name] for name in "FB"}
    for name, (one, two) in centred.items():
        result[name] = n * (means[name] - np.multiply.outer(one, two))
    return result
