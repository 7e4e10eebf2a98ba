"""What one network says about every tensor, and unbiased estimates from a batch of networks.

A tensor is the coefficient of a product of Kronecker deltas in a correlator, so it is the average of that
correlator over neurons i != j put where the deltas tie them together (a U-statistic within a network): the
other delta structures vanish there. Where the product of two means is subtracted (V, D, A), it is formed from
pairs of different networks (a U-statistic between networks). Every estimate is therefore unbiased.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.experiment.directions import Outputs


class Structure(NamedTuple):
    """A tensor as a product of outputs whose neurons are equal in pairs, i for one and j for the other."""

    factors: tuple[str, ...]
    pairing: str


STRUCTURES = {
    "V": Structure(("z", "z", "z", "z"), "ia,ib,jc,jd,ij->abcd"),
    "D": Structure(("H", "z", "z"), "iaib,jc,jd,ij->abcd"),
    "F": Structure(("H", "z", "z"), "iajb,ic,jd,ij->acbd"),
    "A": Structure(("H", "H"), "iaib,jcjd,ij->abcd"),
    "B": Structure(("H", "H"), "iajb,icjd,ij->acbd"),
    "P": Structure(("dH", "z"), "iajbjc,id,ij->abcd"),
    "Q": Structure(("dH", "z"), "iaibjc,jd,ij->abcd"),
    "R": Structure(("ddI",), "iaibjcjd,ij->abcd"),
    "S": Structure(("ddII",), "iaibjcjd,ij->abcd"),
    "T": Structure(("ddII",), "iajbicjd,ij->acdb"),
    "U": Structure(("ddII",), "iajbjcid,ij->adbc"),
}
FLUCTUATIONS = ("V", "D", "F", "A", "B")  # of the outputs and the NTK
DIFFERENTIALS = ("P", "Q", "R", "S", "T", "U")  # of the differentials of the NTK
DISCONNECTED = {"V": ("G", "G"), "D": ("H", "G"), "A": ("H", "H")}  # products of means that are subtracted


def correlators(network: Outputs, names: tuple[str, ...]) -> dict[str, Float[Array, "N N N N"]]:
    """The products of `names` in one network, averaged over its pairs of different neurons."""
    count = network.z.shape[0]
    different = (1 - jnp.eye(count)) / (count * (count - 1))
    values = {}
    for name in names:
        factors = [getattr(network, symbol) for symbol in STRUCTURES[name].factors]
        values[name] = jnp.einsum(STRUCTURES[name].pairing, *factors, different)
    return values


def means(network: Outputs) -> dict[str, Float[Array, "N N"]]:
    """zz and the NTK of one network, averaged over its neurons."""
    count = network.z.shape[0]
    return {
        "G": jnp.einsum("ia,ib->ab", network.z, network.z) / count,
        "H": jnp.einsum("iaib->ab", network.H) / count,
    }


def batch_estimates(
    each: dict[str, Float[Array, "M ..."]], weight: Float[Array, " M"], n: int
) -> dict[str, Array]:
    """Unbiased estimates from the networks of a batch that have weight 1; others have weight 0.

    `n` is the width whose inverse is stripped from tensors.
    """
    size = jnp.sum(weight)
    estimates = {name: jnp.tensordot(weight, value, 1) / size for name, value in each.items()}
    for name, (left, right) in DISCONNECTED.items():
        if name in estimates:
            product = _product_of_means(each[left], each[right], weight)
            estimates[name] = estimates[name] - product
    return {name: value if name in ("G", "H") else n * value for name, value in estimates.items()}


def _product_of_means(u: Array, v: Array, weight: Array) -> Array:
    """E[u] E[v] from all pairs of different networks."""
    size = jnp.sum(weight)
    total_u, total_v = jnp.tensordot(weight, u, 1), jnp.tensordot(weight, v, 1)
    same = jnp.einsum("m,mab,mcd->abcd", weight, u, v)
    return (jnp.einsum("ab,cd->abcd", total_u, total_v) - same) / (size * (size - 1))
