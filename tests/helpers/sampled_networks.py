"""Estimates from sampled networks that the tests of the theory need beyond `fw.sample_statistics`.

Correlators with all output neurons equal, where all their delta structures add up, and the mean kernel and
NTK with less noise. Networks and their derivatives are those of `finitewidth.experiment`, which knows no
theory.
Products of two means are taken over pairs of different networks, so that every estimate is unbiased.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.experiment.correlators import DIFFERENTIALS as DIFFERENTIALS
from finitewidth.experiment.correlators import FLUCTUATIONS, STRUCTURES
from finitewidth.experiment.directions import Outputs, differentials, outputs_and_ntk
from finitewidth.experiment.sampling import Parameters, passages, real_network, up_to
from finitewidth.network.network import Network


def parameters(net: Network, normals: jax.Array) -> Parameters:
    """Biases and weights of every layer, of variance C_b and C_W / fan-in, from standard normal numbers."""
    return real_network(net).initial(normals)


def outputs(net: Network, X: jax.Array, drawn: Parameters, *, order: int) -> Outputs:
    """z and H of one network, and its dNTK and ddNTKs if `order` is 3."""
    return differentials(net, drawn, X) if order == 3 else outputs_and_ntk(net, drawn, X)


# --- correlators of one network, averaged over output neurons i != j, or with all neurons equal ------------


PRODUCTS = {  # indices of each product when all neurons are equal
    "zzzz": "ia,ib,ic,id->abcd",
    "Hzz": "iaib,ic,id->abcd",
    "HH": "iaib,icid->abcd",
    "dHz": "iaibic,id->abcd",
    "ddI": "iaibicid->abcd",
    "ddII": "iaibicid->abcd",
}


def correlators(network: Outputs, names: tuple[str, ...]) -> dict[str, jax.Array]:
    """`G` = zz and `H` of one network, the products of `names` paired, and with all neurons equal."""
    count = network.z.shape[0]
    other = (1 - jnp.eye(count)) / (count * (count - 1))
    values = {
        "G": jnp.einsum("ia,ib->ab", network.z, network.z) / count,
        "H": jnp.einsum("iaib->ab", network.H) / count,
    }
    for name in names:
        structure = STRUCTURES[name]
        product = "".join(structure.factors)
        factors = [getattr(network, symbol) for symbol in structure.factors]
        values[name] = jnp.einsum(structure.pairing, *factors, other)
        values[product] = jnp.einsum(PRODUCTS[product], *factors) / count
    return values


def batch_estimates(
    net: Network, names: tuple[str, ...], X: jax.Array, normals: jax.Array
) -> dict[str, jax.Array]:
    """Unbiased estimates from one network per row, the 1/n of the last hidden layer stripped from tensors."""
    order = 1 if set(names) <= set(FLUCTUATIONS) else 3

    def one(row):
        return correlators(outputs(net, X, parameters(net, row), order=order), names)

    each = jax.vmap(one)(normals)
    values = {name: value.mean(axis=0) for name, value in each.items()}
    GG, HG, HH = (_product_of_means(each[a], each[b]) for a, b in (("G", "G"), ("H", "G"), ("H", "H")))
    all_pairs = GG + GG.transpose(0, 2, 1, 3) + GG.transpose(0, 2, 3, 1)  # (12)(34), (13)(24), (14)(23)
    disconnected = {"V": GG, "zzzz": all_pairs, "D": HG, "Hzz": HG, "A": HH, "HH": HH}
    n = net.ladder.widths[-2]
    tensors = {name: n * (values[name] - disconnected.get(name, 0.0)) for name in values.keys() - {"G", "H"}}
    return {"G": values["G"], "H": values["H"], **tensors}


def _product_of_means(u, v):
    """E[u] E[v] from all pairs of different networks."""
    size = u.shape[0]
    same = jnp.einsum("mab,mcd->abcd", u, v) / size
    return (size * jnp.einsum("ab,cd->abcd", u.mean(axis=0), v.mean(axis=0)) - same) / (size - 1)


def sample(
    net: Network, X, names: tuple[str, ...], *, batches: int, size: int, seed: int
) -> dict[str, Estimate]:
    """`G`, `H`, tensors `names` and their products from `batches` times `size` networks.

    Errors come from the scatter of the batches.
    """
    one_batch = jax.jit(functools.partial(batch_estimates, net, names, jnp.asarray(X)))
    reduced = [jax.tree.map(np.asarray, one_batch(normals)) for normals in _draws(net, batches, size, seed)]
    return {name: _over_batches(np.stack([batch[name] for batch in reduced])) for name in reduced[0]}


def _draws(net, batches, size, seed):
    random = np.random.default_rng(seed)
    for _ in range(batches):
        yield random.standard_normal((size, real_network(net).normal_count))


def _over_batches(values):
    return Estimate(values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values)))


# --- the mean kernel and NTK alone, with less noise: they deviate from infinite width by 1/n only ----------


def kernels_given_hidden(net: Network, X: jax.Array, drawn: Parameters) -> tuple[jax.Array, ...]:
    """zz and H of an output neuron, averaged over the parameters of the last layer, and the excess below it.

    The last layer is dense. The excess of a hidden layer is the average of zz over its neurons less what the
    layers before it let expect, C_b + C_W ss/n and gamma^2 times that of a skip's source: its mean is zero.
    """
    network = outputs_and_ntk(up_to(net, net.depth - 1), drawn[:-1], X)
    H = jnp.einsum("jajb->jab", network.H)  # of neuron j of the last hidden layer with itself
    last = net.ladder.dense[-1]
    s, slope = net.ladder.activations[-1].derivatives(network.z.T, 1)
    overlap, n = s @ s.T, s.shape[1]
    G_out = last.C_b + last.C_W / n * overlap
    H_out = last.lambda_b + last.lambda_W / n * overlap
    H_out += last.C_W / n * jnp.einsum("aj,bj,jab->ab", slope, slope, H)
    return G_out, H_out, _excess(net, X, drawn[:-1])


def _excess(net, X, drawn):
    excess, ladder, upper = [], net.ladder, np.triu_indices(X.shape[0])
    traced = passages(up_to(net, net.depth - 1), drawn, X)
    overlaps = [passage.preactivations @ passage.preactivations.T for passage in traced]
    for l, passage in enumerate(traced):
        layer, skip, n = ladder.dense[l], ladder.skips[l], ladder.widths[l + 1]
        expected = layer.C_b + layer.C_W / ladder.widths[l] * passage.incoming @ passage.incoming.T
        if skip is not None:
            expected += skip.gamma**2 * overlaps[skip.source - 1] / n
        excess.append((overlaps[l] / n - expected)[upper])
    return jnp.concatenate(excess)


def sample_means(net: Network, X, *, batches: int, size: int, seed: int) -> dict[str, Estimate]:
    """`G` and `H` of the output layer; the first batch serves to find how they follow the excess."""
    X = jnp.asarray(X)
    each = jax.jit(jax.vmap(lambda row: kernels_given_hidden(net, X, parameters(net, row))))
    draws = _draws(net, batches + 1, size, seed)
    pilot = [np.asarray(value) for value in each(next(draws))]
    follows = [_slopes(value, pilot[2]) for value in pilot[:2]]
    results = []
    for normals in draws:
        *kernels, excess = (np.asarray(value).mean(axis=0) for value in each(normals))
        results.append(
            [value - np.tensordot(excess, slope, 1) for value, slope in zip(kernels, follows, strict=True)]
        )
    return {
        name: _over_batches(np.stack(values))
        for name, values in zip("GH", zip(*results, strict=True), strict=True)
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
