r"""Training replayed: outputs of infinitely wide networks, and two corrections that ride along.

A network of width n has outputs $z + z_1/\sqrt n + z_2/n$. With Opt[x] what the optimizer accumulates of x,

$$\begin{aligned}
  z &= z_0 - \Theta c, & c &= \mathrm{Opt}[m\, L'(z)] \\
  z_1 &= -\Delta\!H\, c - \Theta c_1, & c_1 &= \mathrm{Opt}[m\, L'' z_1] \\
  z_2 &= -H_2\, c - \Delta\!H\, c_1 - \Theta c_2 + S, &
      c_2 &= \mathrm{Opt}[m\, (L'' z_2 + \tfrac12 L'''[z_1, z_1])]
\end{aligned}$$

with m the weights of samples in a step. $z_2$ is linear in its sources, and is kept by contribution.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.training.replay import sources
from finitewidth.training.replay.initial_networks import InitialNetworks

CONTRIBUTIONS = ("ntk_mean", "output_with_ntk", "ntk_fluctuation", *sources.PARTS)
FLUCTUATION = CONTRIBUTIONS.index("ntk_fluctuation")


class Outputs(NamedTuple):
    """Outputs at recorded steps, in orders of 1/sqrt(n)."""

    z: Float[Array | np.ndarray, "S T M n_L"]
    z1: Float[Array | np.ndarray, "S T M n_L"]
    z2: Float[Array | np.ndarray, "P S T M n_L"]  # by contribution


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("Y", "rows"), meta_fields=("algorithm", "loss", "ends")
)
@dataclass(frozen=True, eq=False)
class Training:
    """How networks are trained, and when and where outputs are recorded."""

    algorithm: AbstractAlgorithm
    loss: AbstractLoss
    Y: Float[Array | np.ndarray, "N_A n_L"]
    ends: tuple[int, ...]  # steps of records, ascending
    rows: Int[Array | np.ndarray, " M"]  # samples of records


class _State(NamedTuple):
    """Accumulators, each a sum with its memory."""

    c: tuple
    c1: tuple
    c2: tuple
    q: tuple
    X: tuple


def infinite_width(
    networks: InitialNetworks,
    training: Training,
    masks: Float[Array, "some steps N_A"],
    xi: Float[Array, "S N n_L"],
) -> Float[Array, "S T M n_L"]:
    """Outputs of infinitely wide networks."""
    t, z0, Theta = networks.count, networks.z(xi), networks.tensors["Theta"][:, : networks.count]
    gradient, _ = _derivatives(training)

    def outputs(state):
        return z0 - jnp.einsum("da,sai->sdi", Theta, state[0])

    def one_step(step, state):
        z = z0[:, :t] - jnp.einsum("da,sai->sdi", Theta[:t], state[0])
        return _accumulated(training, step, state, masks[:, step, :, None] * gradient(z))

    start = training.algorithm.begin(jnp.zeros((len(xi), t, networks.outputs)))
    return _recorded(training, one_step, outputs, start)[:, :, training.rows]


def corrected(
    networks: InitialNetworks,
    training: Training,
    masks: Float[Array, "some steps N_A"],
    xi: Float[Array, "S N n_L"],
    fluctuation: Float[Array, "S N n_L N_A n_L"],
) -> Outputs:
    """Outputs through order 1/n, for given initial outputs and a given fluctuation of the NTK."""
    t, n, z0 = networks.count, networks.outputs, networks.z(xi)
    Theta, given = networks.tensors["Theta"][:, :t], networks.given(xi)
    gradient, series = _derivatives(training)

    def outputs(state: _State, rows: slice) -> Outputs:
        c, c1, c2, q, X = (accumulator[0] for accumulator in state)
        z = z0[:, rows] - jnp.einsum("da,sai->sdi", Theta[rows], c)
        z1 = -_applied(fluctuation[:, rows], c) - jnp.einsum("da,sai->sdi", Theta[rows], c1)
        by_mean = -jnp.einsum("spdiaj,saj->psdi", given.H[:, :, rows], c)
        by_fluctuation = -_applied(fluctuation[:, rows], c1)[None]
        by_differentials = X[:, :, rows] + sources.taylor(networks, given, c, q, rows)
        source = jnp.concatenate([by_mean, by_fluctuation, by_differentials])
        return Outputs(z, z1, source - jnp.einsum("da,psai->psdi", Theta[rows], c2))

    def one_step(step, state: _State) -> _State:
        c, q = state.c[0], state.q[0]
        mask = masks[:, step, :, None]
        first, second, third = (mask * signal for signal in series(*outputs(state, slice(t))))
        products = jnp.einsum("sai,sbj->saibj", first, c)
        forces = sources.force(networks, given, first, c, q)
        signals = (first, second, third, products, forces)
        return _State(*(_accumulated(training, step, *pair) for pair in zip(state, signals, strict=True)))

    S, begin = len(xi), training.algorithm.begin
    shapes = ((S, t, n),) * 2 + ((len(CONTRIBUTIONS), S, t, n), (S, t, n, t, n), (3, S, networks.size, n))
    start = _State(*(begin(jnp.zeros(shape)) for shape in shapes))
    everywhere = _recorded(training, one_step, lambda state: outputs(state, slice(None)), start)
    return Outputs(*(values[..., training.rows, :] for values in everywhere))


def fluctuating(
    networks: InitialNetworks,
    training: Training,
    masks: Float[Array, "1 steps N_A"],
    fluctuation: Float[Array, "S N n_L N_A n_L"],
) -> Outputs:
    """The same for networks whose outputs begin at zero, with the fluctuation of the NTK alone."""
    t, n = networks.count, networks.outputs
    Theta = networks.tensors["Theta"][:, :t]
    _, series = _derivatives(training)

    def outputs(state, rows: slice) -> Outputs:
        c, c1, c2 = (accumulator[0] for accumulator in state)
        z = -jnp.einsum("da,sai->sdi", Theta[rows], c)
        z1 = -_applied(fluctuation[:, rows], c) - jnp.einsum("da,sai->sdi", Theta[rows], c1)
        z2 = -_applied(fluctuation[:, rows], c1) - jnp.einsum("da,sai->sdi", Theta[rows], c2)
        return Outputs(z, z1, z2)

    def one_step(step, state):
        z, z1, z2 = outputs(state, slice(t))
        first, second, third = series(z, z1, z2[None], at=0)
        signals = tuple(masks[:, step, :, None] * signal for signal in (first, second, third[0]))
        return tuple(_accumulated(training, step, *pair) for pair in zip(state, signals, strict=True))

    start = (training.algorithm.begin(jnp.zeros((len(fluctuation), t, n))),) * 3
    z, z1, z2 = _recorded(training, one_step, lambda state: outputs(state, slice(None)), start)
    return Outputs(*(values[..., training.rows, :] for values in (z, z1, z2[None])))


def _applied(H: Float[Array, "S D n_L N_A n_L"], c: Float[Array, "S N_A n_L"]) -> Float[Array, "S D n_L"]:
    return jnp.einsum("sdiaj,saj->sdi", H, c)


def _accumulated(training: Training, step, state: tuple, signal: Array) -> tuple:
    numbers = {name: jnp.asarray(value) for name, value in training.algorithm.numbers.items()}
    return training.algorithm.accumulate(state, signal, step.astype(jnp.float64), numbers)


def _recorded(training: Training, one_step: Callable, outputs: Callable, start: Any) -> Any:
    """Outputs at every end, with the axis of ends behind that of draws."""

    def to_end(carried, end):
        step, state = carried
        state = jax.lax.fori_loop(step, end, one_step, state)
        return (end, state), outputs(state)

    ends = jnp.asarray(training.ends, dtype=jnp.int64)
    _, records = jax.lax.scan(to_end, (jnp.zeros((), jnp.int64), start), ends)
    return jax.tree.map(lambda values: jnp.moveaxis(values, 0, -3), records)


def _derivatives(training: Training) -> tuple[Callable, Callable]:
    """The gradient of the loss by outputs, and its series along corrections of the outputs."""

    def gradient(z: Float[Array, "S N_A n_L"]) -> Float[Array, "S N_A n_L"]:
        return training.loss.gradient(z, jnp.broadcast_to(training.Y, z.shape))

    def series(z, z1, z2, at: int = FLUCTUATION):
        """L', L'' z1, and L'' z2 by contribution with L'''[z1, z1]/2 in that of fluctuations."""
        _, along = jax.linearize(gradient, z)
        first = lambda u: jax.jvp(gradient, (u,), (z1,))  # noqa: E731
        (value, slope), (_, bend) = jax.jvp(first, (z,), (z1,))
        return value, slope, jax.vmap(along)(z2).at[at].add(0.5 * bend)

    return gradient, series
