"""Real networks, sampled many at once, and the statistics of their outputs; nothing here knows the theory.

For one network the NTK and its differentials follow from their definitions (PDLT sections 8 and 11.2, and
chapter infinity): the direction g_a = lambda dz_a/dtheta of output a is sent through the network, so that

    H_{0a} = dz_0[g_a],  dH_{0ab} = d2z_0[g_a, g_b],  ddI_{0abc} = d3z_0[g_a, g_b, g_c],
    ddII_{abcd} = sum_theta lambda d2z_a[g_c, theta] d2z_b[g_d, theta].

Averages over networks and over output neurons i != j separate the delta structures of every correlator.
Products of two means are taken over pairs of different networks, so that every estimate is unbiased.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.estimate import Estimate
from finitewidth.network import MLP


class Outputs(NamedTuple):
    """One network; `i` is an output neuron, `a` a sample, and (i, a) are neighbouring axes."""

    z: jax.Array  # i a
    H: jax.Array  # i a  j b
    dH: jax.Array | None = None
    ddI: jax.Array | None = None
    ddII: jax.Array | None = None


class Pass(NamedTuple):
    """What one layer hands to the next: outputs of the previous layer and the derivatives dz^(L)_a/dz^(l)."""

    W: jax.Array
    incoming: jax.Array  # sample, neuron of layer l - 1
    delta: jax.Array  # output a, neuron of layer l
    slopes: tuple[jax.Array, ...]  # sigma', sigma'', sigma''' of layer l - 1, empty for the first layer
    bias_rate: float
    weight_rate: float


def parameters(net: MLP, normals: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    """Biases and weights of every layer, of variance C_b and C_W / fan-in, from standard normal numbers."""
    found, start = [], 0
    for l, (fan_in, fan_out) in enumerate(zip(net.widths, net.widths[1:], strict=False)):
        end = start + fan_out
        b = np.sqrt(net.C_b[l]) * normals[start:end]
        start, end = end, end + fan_in * fan_out
        W = np.sqrt(net.C_W[l] / fan_in) * normals[start:end].reshape(fan_out, fan_in)
        found.append((b, W))
        start = end
    return found


def outputs(net: MLP, X: jax.Array, biases_and_weights: list, *, order: int) -> Outputs:
    """z and H of one network, and its dNTK and ddNTKs if `order` is 3."""
    z, passes = _layers(net, X, biases_and_weights)
    samples, neurons = z.shape
    leg = (neurons, samples)
    of_leg = jnp.tile(jnp.arange(samples), neurons)  # the sample of leg (i, a)
    tangents = _first_order(passes, of_leg)
    z, H = z.T, _legs(tangents[-1], leg, 1)
    if order == 1:
        return Outputs(z, H)
    dH, ddI = _higher_orders(passes, tangents, of_leg)
    ddII = _shared_parameter(passes, tangents, of_leg).reshape(leg * 4)
    return Outputs(z, H, _legs(dH, leg, 2), _legs(ddI, leg, 3), ddII)


def _legs(tangent, leg, count):
    """Axes (sample, legs..., neuron) to ((neuron, sample), legs...)."""
    return jnp.moveaxis(tangent, -1, 0).reshape(leg * (count + 1))


def _layers(net, X, biases_and_weights):
    incoming, slopes, kept = X, (), []
    for l, (b, W) in enumerate(biases_and_weights):
        z = b + incoming @ W.T
        kept.append((W, incoming, slopes, net.lambda_b[l], net.lambda_W[l] / net.widths[l]))
        incoming, *slopes = net.activation.derivatives(z, 3)
    samples, neurons = z.shape
    delta, passes = jnp.repeat(jnp.eye(neurons), samples, axis=0), []
    of_leg = jnp.tile(jnp.arange(samples), neurons)
    for W, incoming, slopes, bias_rate, weight_rate in reversed(kept):
        passes.append(Pass(W, incoming, delta, tuple(slopes), bias_rate, weight_rate))
        delta = (delta @ W) * slopes[0][of_leg] if slopes else None
    return z, passes[::-1]


def _first_order(passes, of_leg):
    """dz^(l)[g_a] of every layer, axes (sample, a, neuron)."""
    found = []
    for layer in passes:
        overlap = layer.weight_rate * layer.incoming @ layer.incoming[of_leg].T
        tangent = (layer.bias_rate + overlap)[:, :, None] * layer.delta
        if found:
            tangent = tangent + (layer.slopes[0][:, None] * found[-1]) @ layer.W.T
        found.append(tangent)
    return found


def _higher_orders(passes, tangents, of_leg):
    """d2z^(L)[g_a, g_b] and d3z^(L)[g_a, g_b, g_c], axes (sample, legs..., neuron)."""
    count, legs, width = tangents[0].shape
    second = jnp.zeros((count, legs, legs, width))
    third = jnp.zeros((count, legs, legs, legs, width))
    for layer, t in zip(passes[1:], tangents, strict=False):
        d1, d2, d3 = layer.slopes
        first_out = d1[:, None] * t
        pair = t[:, :, None] * t[:, None, :]
        second_out = d2[:, None, None] * pair + d1[:, None, None] * second
        mixed = t[:, :, None, None] * second[:, None]
        third_out = d3[:, None, None, None] * t[:, :, None, None] * pair[:, None]
        third_out += d2[:, None, None, None] * _three(mixed) + d1[:, None, None, None] * third
        towards = layer.weight_rate * layer.incoming[of_leg]
        once = jnp.einsum("an,aj,xbj->xabn", layer.delta, towards, first_out)
        twice = jnp.einsum("an,aj,xbcj->xabcn", layer.delta, towards, second_out)
        second = once + once.swapaxes(1, 2) + second_out @ layer.W.T
        third = _three(twice) + third_out @ layer.W.T
    return second, third


def _three(x):
    """The three ways to single out one of legs a, b, c, given x with leg a singled out."""
    return x + x.transpose(0, 2, 1, 3, 4) + x.transpose(0, 2, 3, 1, 4)


def _shared_parameter(passes, tangents, of_leg):
    """ddNTK_II, axes (1, 2, 3, 4): gradients of dz_1[g_3] and dz_2[g_4] contracted."""
    total, change = 0.0, jnp.zeros((of_leg.size, *passes[-1].delta.shape))  # change of delta_a along g_c
    below = [None, *tangents[:-1]]
    for layer, tangent in zip(reversed(passes), reversed(below), strict=True):
        incoming = layer.incoming[of_leg]
        aligned = layer.delta @ layer.delta.T
        turned = jnp.einsum("acn,bn->acb", change, layer.delta)
        rate = layer.bias_rate + layer.weight_rate * incoming @ incoming.T
        total += jnp.einsum("acn,bdn,ab->abcd", change, change, rate)
        if tangent is None:
            return total
        moved = layer.slopes[0][of_leg][:, None] * tangent[of_leg]  # change of the incoming of a along g_c
        along = layer.weight_rate * jnp.einsum("acj,bj->acb", moved, incoming)
        cross = jnp.einsum("acb,bda->abcd", turned, along)
        total += cross + cross.transpose(1, 0, 3, 2)
        total += layer.weight_rate * jnp.einsum("ab,acj,bdj->abcd", aligned, moved, moved)
        d1, d2 = layer.slopes[0][of_leg], layer.slopes[1][of_leg]
        back = layer.weight_rate * jnp.einsum("ac,cj->acj", aligned, incoming) + change @ layer.W
        change = d1[:, None] * back + (d2 * (layer.delta @ layer.W))[:, None] * tangent[of_leg]
    return total


# --- correlators of one network, averaged over output neurons i != j, or with all neurons equal ------------


class Structure(NamedTuple):
    """A tensor as a product of outputs whose neurons are equal in pairs, i for one and j for the other."""

    product: str
    pairing: str


STRUCTURES = {
    "V": Structure("zzzz", "ia,ib,jc,jd,ij->abcd"),
    "D": Structure("Hzz", "iaib,jc,jd,ij->abcd"),
    "F": Structure("Hzz", "iajb,ic,jd,ij->acbd"),
    "A": Structure("HH", "iaib,jcjd,ij->abcd"),
    "B": Structure("HH", "iajb,icjd,ij->acbd"),
    "P": Structure("dHz", "iajbjc,id,ij->abcd"),
    "Q": Structure("dHz", "iaibjc,jd,ij->abcd"),
    "R": Structure("ddI", "iaibjcjd,ij->abcd"),
    "S": Structure("ddII", "iaibjcjd,ij->abcd"),
    "T": Structure("ddII", "iajbicjd,ij->acdb"),
    "U": Structure("ddII", "iajbjcid,ij->adbc"),
}
PRODUCTS = {  # the factors of each product, and their indices when all neurons are equal
    "zzzz": ("z z z z", "ia,ib,ic,id->abcd"),
    "Hzz": ("H z z", "iaib,ic,id->abcd"),
    "HH": ("H H", "iaib,icid->abcd"),
    "dHz": ("dH z", "iaibic,id->abcd"),
    "ddI": ("ddI", "iaibicid->abcd"),
    "ddII": ("ddII", "iaibicid->abcd"),
}
FLUCTUATIONS = ("V", "D", "F", "A", "B")
DIFFERENTIALS = ("P", "Q", "R", "S", "T", "U")


def correlators(found: Outputs, names: tuple[str, ...]) -> dict[str, jax.Array]:
    """`G` = zz and `H` of one network, the products of `names` paired, and with all neurons equal."""
    count = found.z.shape[0]
    other = (1 - jnp.eye(count)) / (count * (count - 1))
    values = {
        "G": jnp.einsum("ia,ib->ab", found.z, found.z) / count,
        "H": jnp.einsum("iaib->ab", found.H) / count,
    }
    for name in names:
        product, pairing = STRUCTURES[name]
        symbols, equal = PRODUCTS[product]
        factors = [getattr(found, symbol) for symbol in symbols.split()]
        values[name] = jnp.einsum(pairing, *factors, other)
        values[product] = jnp.einsum(equal, *factors) / count
    return values


def batch_estimates(
    net: MLP, names: tuple[str, ...], X: jax.Array, normals: jax.Array
) -> dict[str, jax.Array]:
    """Unbiased estimates from one network per row, the 1/n of the last hidden layer stripped from tensors."""
    order = 1 if set(names) <= set(FLUCTUATIONS) else 3

    def one(row):
        return correlators(outputs(net, X, parameters(net, row), order=order), names)

    each = jax.vmap(one)(normals)
    found = {name: value.mean(axis=0) for name, value in each.items()}
    GG, HG, HH = (_product_of_means(each[a], each[b]) for a, b in (("G", "G"), ("H", "G"), ("H", "H")))
    all_pairs = GG + GG.transpose(0, 2, 1, 3) + GG.transpose(0, 2, 3, 1)  # (12)(34), (13)(24), (14)(23)
    disconnected = {"V": GG, "zzzz": all_pairs, "D": HG, "Hzz": HG, "A": HH, "HH": HH}
    n = net.widths[-2]
    tensors = {name: n * (found[name] - disconnected.get(name, 0.0)) for name in found.keys() - {"G", "H"}}
    return {"G": found["G"], "H": found["H"], **tensors}


def _product_of_means(u, v):
    """E[u] E[v] from all pairs of different networks."""
    size = u.shape[0]
    same = jnp.einsum("mab,mcd->abcd", u, v) / size
    return (size * jnp.einsum("ab,cd->abcd", u.mean(axis=0), v.mean(axis=0)) - same) / (size - 1)


def sample(net: MLP, X, names: tuple[str, ...], *, batches: int, size: int, seed: int) -> dict[str, Estimate]:
    """`G`, `H`, tensors `names` and their products from `batches` times `size` networks.

    Errors come from the scatter of the batches.
    """
    one_batch = jax.jit(functools.partial(batch_estimates, net, names, jnp.asarray(X)))
    found = [jax.tree.map(np.asarray, one_batch(normals)) for normals in _draws(net, batches, size, seed)]
    return {name: _over_batches(np.stack([batch[name] for batch in found])) for name in found[0]}


def _draws(net, batches, size, seed):
    random = np.random.default_rng(seed)
    for _ in range(batches):
        yield random.standard_normal((size, net.parameter_count))


def _over_batches(values):
    return Estimate(values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values)))


# --- the mean kernel and NTK alone, with less noise: they deviate from infinite width by 1/n only ----------


def kernels_given_hidden(net: MLP, X: jax.Array, biases_and_weights: list) -> tuple[jax.Array, ...]:
    """zz and H of an output neuron, averaged over the parameters of the last layer, and the excess below it.

    The excess of a hidden layer is the average of zz over its neurons less what the layer before it lets
    expect, C_b + C_W ss/n: its mean is zero.
    """
    z, passes = _layers(net, X, biases_and_weights[:-1])
    samples, neurons = z.shape
    H = 0.0  # of neuron j of the last hidden layer with itself
    for layer in passes:
        delta = layer.delta.reshape(neurons, samples, -1)
        rate = layer.bias_rate + layer.weight_rate * layer.incoming @ layer.incoming.T
        H += rate * jnp.einsum("jan,jbn->jab", delta, delta)
    s, slope = net.activation.derivatives(z, 1)
    overlap, n = s @ s.T, neurons
    G_out = net.C_b[-1] + net.C_W[-1] / n * overlap
    H_out = net.lambda_b[-1] + net.lambda_W[-1] / n * overlap
    H_out += net.C_W[-1] / n * jnp.einsum("aj,bj,jab->ab", slope, slope, H)
    return G_out, H_out, _excess(net, X, biases_and_weights[:-1])


def _excess(net, X, biases_and_weights):
    incoming, found = X, []
    upper = np.triu_indices(X.shape[0])
    for l, (b, W) in enumerate(biases_and_weights):
        z = b + incoming @ W.T
        expected = net.C_b[l] + net.C_W[l] / net.widths[l] * incoming @ incoming.T
        found.append((z @ z.T / net.widths[l + 1] - expected)[upper])
        incoming = net.activation(z)
    return jnp.concatenate(found)


def sample_means(net: MLP, X, *, batches: int, size: int, seed: int) -> dict[str, Estimate]:
    """`G` and `H` of the output layer; the first batch serves to find how they follow the excess."""
    X = jnp.asarray(X)
    each = jax.jit(jax.vmap(lambda row: kernels_given_hidden(net, X, parameters(net, row))))
    draws = _draws(net, batches + 1, size, seed)
    pilot = [np.asarray(value) for value in each(next(draws))]
    follows = [_slopes(value, pilot[2]) for value in pilot[:2]]
    found = []
    for normals in draws:
        *kernels, excess = (np.asarray(value).mean(axis=0) for value in each(normals))
        found.append(
            [value - np.tensordot(excess, slope, 1) for value, slope in zip(kernels, follows, strict=True)]
        )
    return {
        name: _over_batches(np.stack(values))
        for name, values in zip("GH", zip(*found, strict=True), strict=True)
    }


def _slopes(values, excess):
    """Least-squares slopes of `values` on `excess`, axes (excess, *axes of one value)."""
    flat = values.reshape(len(values), -1)
    slopes, *_ = np.linalg.lstsq(excess, flat - flat.mean(axis=0), rcond=None)
    return slopes.reshape(-1, *values.shape[1:])


# --- estimates at several widths ----------------------------------------------------------------------------


def extrapolated(widths, estimates: list[Estimate]) -> Estimate:
    """The value at 1/n = 0 of the polynomial in 1/n that goes through the estimates."""
    h = 1 / np.asarray(widths, dtype=float)
    weights = [np.prod([other / (other - own) for other in h if other != own]) for own in h]
    value = sum(w * e.value for w, e in zip(weights, estimates, strict=True))
    variance = sum((w * e.stderr) ** 2 for w, e in zip(weights, estimates, strict=True))
    return Estimate(value, np.sqrt(variance))


def falling_power(widths, residuals: list[Estimate]) -> Estimate:
    """p if the size of the residuals falls as n^-p; an infinite error where noise hides a residual."""
    squares = np.array([np.sum(e.value**2 - e.stderr**2) for e in residuals])
    noise = np.array([np.sqrt(np.sum(e.stderr**2)) for e in residuals])
    if np.any(squares <= noise**2):
        return Estimate(np.nan, np.inf)
    x = np.log(widths)
    error, y = noise / np.sqrt(squares), np.log(squares) / 2
    centred = (x - np.average(x, weights=error**-2)) * error**-2
    return Estimate(-np.sum(centred * y) / np.sum(centred * x), np.sum(centred * x) ** -0.5)
