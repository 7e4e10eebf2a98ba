"""The NTK and its differentials of one network, layer by layer, by the exact forward equations.

Every neuron of every layer is a leg, so memory grows with the fourth power of the width: this is the check of
`finitewidth.experiment.directions` on small networks (PDLT sections 8.1, 11.2, chapter infinity, corrected).
Axes are (neuron, sample) for each leg in printed order. In einsum strings i j k l are neurons of the new
layer, p q r s of the old one, and a b c d samples.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.core.memory import require_memory
from finitewidth.experiment.sampling import Parameters
from finitewidth.network.network import Network


class Differentials(NamedTuple):
    """Preactivations of one layer of one network, its NTK, dNTK and both ddNTKs."""

    z: Float[Array, "n N"]
    H: Float[Array, "n N n N"]
    dH: Float[Array, "n N n N n N"]
    ddI: Float[Array, "n N n N n N n N"]
    ddII: Float[Array, "n N n N n N n N"]


class _Step(NamedTuple):
    """What takes one layer to the next: weights, activations and W_ip sigma'_pa, and lambda_W/n."""

    W: Array
    s: Array  # sigma, p a
    d1: Array
    d2: Array
    d3: Array
    u: Array  # i p a
    rate: float
    same: Array  # Kronecker delta of the new layer


def forward_equations(
    net: Network, parameters: Parameters, X: Float[Array, "N n0"]
) -> tuple[Differentials, ...]:
    """Layers 1 ... L."""
    count, widest = X.shape[0], max(net.widths[1:])
    require_memory(
        3 * 8.0 * (count * widest) ** 4,
        f"the ddNTKs of {count} inputs and {widest} neurons",
        "use a narrower network, or directions, which does not keep hidden legs",
    )
    layer = _first_layer(net, parameters, X)
    layers = [layer]
    for l in range(1, net.depth):
        layer = _next_layer(net, l, parameters[l], layer)
        layers.append(layer)
    return tuple(layers)


def _first_layer(net, parameters, X):
    b, W = parameters[0]
    z = b[:, None] + W @ X.T
    n, N = z.shape
    gram = net.lambda_b[0] + net.lambda_W[0] / net.widths[0] * X @ X.T
    H = jnp.einsum("ij,ab->iajb", jnp.eye(n), gram)
    return Differentials(z, H, *(jnp.zeros((n, N) * legs) for legs in (3, 4, 4)))


def _next_layer(net, l, layer_parameters, old):
    b, W = layer_parameters
    s, d1, d2, d3 = net.activations[l - 1].derivatives(old.z, 3)
    u = W[:, :, None] * d1[None]
    step = _Step(W, s, d1, d2, d3, u, net.lambda_W[l] / net.widths[l], jnp.eye(W.shape[0]))
    gram = net.lambda_b[l] + step.rate * s.T @ s
    H = jnp.einsum("ij,ab->iajb", step.same, gram) + jnp.einsum("ipa,jqb,paqb->iajb", u, u, old.H)
    return Differentials(b[:, None] + W @ s, H, _dntk(step, old), _ddntk_1(step, old), _ddntk_2(step, old))


def _dntk(step, old):
    shared = step.rate * jnp.einsum("ij,pb,pa,krc,parc->iajbkc", step.same, step.s, step.d1, step.u, old.H)
    curved = jnp.einsum("ip,pa,jqb,krc,paqb,parc->iajbkc", step.W, step.d2, step.u, step.u, old.H, old.H)
    carried = jnp.einsum("ipa,jqb,krc,paqbrc->iajbkc", step.u, step.u, step.u, old.dH)
    return shared + shared.transpose(0, 1, 4, 5, 2, 3) + curved + carried


def _ddntk_1(step, old):
    W, s, d1, d2, d3, u, rate, same = step
    H, dH = old.H, old.dH
    # leg 1 shares its weight with leg 0; legs 2 and 3 move what that weight multiplies
    inner = jnp.einsum("pa,parc,pasd->parcsd", d2, H, H) + d1[:, :, None, None, None, None] * dH
    shared = rate * jnp.einsum("ij,pb,krc,lsd,parcsd->iajbkcld", same, s, u, u, inner)
    total = shared + _swap(shared, 1, 2) + _swap(shared, 1, 3)
    mixed = jnp.einsum("pa,paqb,parcsd->paqbrcsd", d2, H, dH)
    inside = jnp.einsum("pa,paqb,parc,pasd->paqbrcsd", d3, H, H, H)
    inside += mixed + _swap(mixed, 1, 2) + _swap(mixed, 1, 3)
    inside += jnp.einsum("pa,paqbrcsd->paqbrcsd", d1, old.ddI)
    return total + jnp.einsum("ip,jqb,krc,lsd,paqbrcsd->iajbkcld", W, u, u, u, inside)


def _ddntk_2(step, old):
    W, s, d1, d2, _, u, rate, same = step
    H, dH = old.H, old.dH
    total = rate**2 * jnp.einsum("ik,jl,pa,pc,qb,qd,paqb->iajbkcld", same, same, d1, s, d1, s, H)
    total += rate * jnp.einsum("ij,pa,pb,krc,lsd,parc,pbsd->iajbkcld", same, d1, d1, u, u, H, H)
    inner = jnp.einsum("qb,qbpa,qbsd->qbpasd", d2, H, H) + d1[:, :, None, None, None, None] * dH
    hung = rate * jnp.einsum("ik,pa,pc,jq,lsd,qbpasd->iajbkcld", same, d1, s, W, u, inner)
    total += hung + _swap(_swap(hung, 0, 1), 2, 3)
    inside = jnp.einsum("pa,qb,paqbrcsd->paqbrcsd", d1, d1, old.ddII)
    inside += jnp.einsum("pa,qb,paqb,parc,qbsd->paqbrcsd", d2, d2, H, H, H)
    one = jnp.einsum("pa,qb,parc,qbpasd->paqbrcsd", d2, d1, H, dH)
    inside += one + _swap(_swap(one, 0, 1), 2, 3)
    return total + jnp.einsum("ip,jq,krc,lsd,paqbrcsd->iajbkcld", W, W, u, u, inside)


def _swap(array, first, second):
    """Exchange two legs, each a (neuron, sample) pair of axes."""
    order = list(range(array.ndim // 2))
    order[first], order[second] = order[second], order[first]
    return array.transpose([axis for leg in order for axis in (2 * leg, 2 * leg + 1)])
