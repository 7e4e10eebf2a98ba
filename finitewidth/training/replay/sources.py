r"""Sources of order 1/n on a trajectory of an infinitely wide network.

With $c$ the accumulated residual, $\epsilon$ the residual of the present step and
$q_{ab} = \mathrm{Opt}[\epsilon_a c_b]$, the Taylor expansion of a network about its initialization gives
the source $X_d(t) + h_d(t)$,

$$X_d = \mathrm{Opt}\big[\, d\!H_{a;db}\, \epsilon_a c_b - \tfrac12 dd\!I_{a;dbc}\, \epsilon_a c_b c_c
        - dd\!II_{ab;dc}\, \epsilon_a q_{bc} \big], \qquad
  h_d = \tfrac12 d\!H_{d;ab}\, c_a c_b - dd\!II_{db;ac}\, c_a q_{bc} - \tfrac16 dd\!I_{d;abc}\, c_a c_b c_c$$

where differentials stand for their means given the initial outputs. Here the sums over outputs are done.
Samples a, b, c are in training and d is any; parts are those of the dNTK, the first and the second ddNTK.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.training.replay.initial_networks import Given, InitialNetworks

PARTS = ("dntk", "ddntk_1", "ddntk_2")


def taylor(
    networks: InitialNetworks,
    given: Given,
    c: Float[Array, "S N_A n_L"],
    q: Float[Array, "S N_A n_L N_A n_L"],
    rows: slice,
) -> Float[Array, "3 S D n_L"]:
    """h: the part of the source that depends on c and q at the same time, on some of the samples."""
    R, S, T, U = (networks.tensors[name][rows] for name in "RSTU")
    A = slice(networks.count)
    pairs = jnp.einsum("sai,sbi->sab", c, c)
    dntk = 0.5 * jnp.einsum("sdabi,sab->sdi", given.P[:, rows], pairs)
    dntk += jnp.einsum("sda,sai->sdi", jnp.einsum("sdabj,sbj->sda", given.Q[:, rows], c), c)
    first = 0.5 * jnp.einsum("sda,sai->sdi", jnp.einsum("dabc,sbc->sda", R[:, A, A, A], pairs), c)
    q_diagonal = jnp.einsum("sbjcj->sbc", q)
    second = jnp.einsum("dbac,sabci->sdi", S[:, A, A, A], jnp.einsum("saj,sbicj->sabci", c, q))
    second += jnp.einsum("sda,sai->sdi", jnp.einsum("dacb,sbc->sda", T[:, A, A, A], q_diagonal), c)
    second += jnp.einsum("dcba,sabci->sdi", U[:, A, A, A], jnp.einsum("saj,sbjci->sabci", c, q))
    return jnp.stack([dntk, -first, -second])


def force(
    networks: InitialNetworks,
    given: Given,
    epsilon: Float[Array, "S N_A n_L"],
    c: Float[Array, "S N_A n_L"],
    q: Float[Array, "S N_A n_L N_A n_L"],
) -> Float[Array, "3 S N n_L"]:
    """What the optimizer accumulates to X, on all samples."""
    R, S, T, U = (networks.tensors[name] for name in "RSTU")
    A = slice(networks.count)
    mixed, pairs = jnp.einsum("sai,sbi->sab", epsilon, c), jnp.einsum("sai,sbi->sab", c, c)
    dntk = jnp.einsum("sdb,sbi->sdi", jnp.einsum("sadbj,saj->sdb", given.P_second, epsilon), c)
    dntk += jnp.einsum("sad,sai->sdi", jnp.einsum("sadbj,sbj->sad", given.Q_second, c), epsilon)
    dntk += jnp.einsum("sabdi,sab->sdi", given.Q_third, mixed)
    first = 0.5 * jnp.einsum("sda,sai->sdi", jnp.einsum("adbc,sbc->sda", R[A, :, A, A], pairs), epsilon)
    first += jnp.einsum("sdc,sci->sdi", jnp.einsum("abcd,sab->sdc", R[A, A, A], mixed), c)
    q_diagonal = jnp.einsum("sbjcj->sbc", q)
    second = jnp.einsum("abdc,sabci->sdi", S[A, A, :, A], jnp.einsum("saj,sbjci->sabci", epsilon, q))
    second += jnp.einsum("sda,sai->sdi", jnp.einsum("adcb,sbc->sda", T[A, :, A, A], q_diagonal), epsilon)
    second += jnp.einsum("acbd,sabci->sdi", U[A, A, A], jnp.einsum("saj,sbicj->sabci", epsilon, q))
    return jnp.stack([dntk, -first, -second])
