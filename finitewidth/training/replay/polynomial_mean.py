r"""The mean for the squared loss, exactly: with batches and momentum too $z_2$ is cubic in $z_0$.

For such a polynomial of normal numbers $\xi$

$$E f = f(0) + \tfrac12 \sum_k \big[ f(e_k) + f(-e_k) - 2 f(0) \big],$$

and the part of NTK fluctuations, which is linear in $z_0$ and quadratic in them, needs outputs that begin at
zero and the roots of A and B.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.training.replay.initial_networks import InitialNetworks
from finitewidth.training.replay.trajectories import (
    CONTRIBUTIONS,
    FLUCTUATION,
    Training,
    corrected,
    fluctuating,
)

_AT_ONCE = 1 << 24  # numbers of a group of replays


def mean_of_squared_error(
    networks: InitialNetworks, training: Training, masks: Float[Array | np.ndarray, "1 steps N_A"]
) -> dict[str, Float[np.ndarray, "T M n_L"]]:
    """n times the correction of mean outputs, by contribution, for batches that all networks share."""
    size = networks.size * networks.outputs
    nodes = np.concatenate([np.zeros((1, size)), np.eye(size), -np.eye(size)])
    weights = np.concatenate([[1.0 - size], np.full(2 * size, 0.5)])
    total = np.zeros(())
    for start, group in _groups(nodes, replays_at_once(networks)):
        xi = jnp.asarray(group.reshape(-1, networks.size, networks.outputs))
        z2 = np.asarray(_without_fluctuation(networks, training, masks, xi))
        share = weights[start : start + len(group)]
        total = total + np.einsum("s,ps...->p...", share, z2[:, : len(share)])
    total[FLUCTUATION] = fluctuation_mean(networks, training, masks)
    return dict(zip(CONTRIBUTIONS, total, strict=True))


def fluctuation_mean(networks: InitialNetworks, training: Training, masks) -> Float[np.ndarray, "T M n_L"]:
    """The mean of z_2 by fluctuations of the NTK where outputs begin at zero: a sum over roots of A and B."""
    return sum(np.asarray(z2).sum(axis=0) for _, _, z2 in fluctuations_one_by_one(networks, training, masks))  # type: ignore[return-value]


def fluctuations_one_by_one(
    networks: InitialNetworks, training: Training, masks
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """z, z_1 and z_2 for outputs that begin at zero, in groups of columns of the roots of A and B."""
    n, common, separate = networks.outputs, networks.common.shape[1], networks.separate.shape[1]
    columns_in_all = common + n**2 * separate
    room = max(1, min(columns_in_all, _AT_ONCE // (networks.size * networks.count * n**2)))
    for first in range(0, columns_in_all, room):
        columns = np.arange(first, first + room)
        one = np.zeros((room, columns_in_all))
        inside = columns < columns_in_all
        one[np.flatnonzero(inside), columns[inside]] = 1.0
        shared, own = one[:, :common], one[:, common:].reshape(room, n, n, separate)
        found = still(networks, training, masks, jnp.asarray(shared), jnp.asarray(own))
        z, z1, z2 = (np.asarray(values) for values in found)
        yield z[inside], z1[inside], z2[0][inside]


@jax.jit
def still(networks: InitialNetworks, training: Training, masks, common, separate):
    """Networks whose outputs begin at zero, with these normal numbers for the fluctuation of their NTK."""
    return fluctuating(networks, training, masks, networks.fluctuation(common, separate))


@jax.jit
def _without_fluctuation(networks: InitialNetworks, training: Training, masks, xi):
    n = networks.outputs
    nothing = jnp.zeros((len(xi), networks.size, n, networks.count, n))
    return corrected(networks, training, masks, xi, nothing).z2


def _groups(nodes: np.ndarray, room: int) -> Iterator[tuple[int, np.ndarray]]:
    """Groups of equal size, the last one filled up with zeros."""
    for start in range(0, len(nodes), room):
        group = nodes[start : start + room]
        yield start, np.concatenate([group, np.zeros((min(room, len(nodes)) - len(group), nodes.shape[1]))])


def replays_at_once(networks: InitialNetworks) -> int:
    """How many replays go together: what they need at a time fits into a part of the cache and memory."""
    N, t, n = networks.size, networks.count, networks.outputs
    numbers = 5 * N * t**2 * n + 6 * t**3 * n + 4 * (t * n) ** 2 + 2 * N * t * n**2
    return int(np.clip(_AT_ONCE // numbers, 2, 512)) // 2 * 2
