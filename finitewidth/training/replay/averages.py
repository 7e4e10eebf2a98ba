r"""Averages over initial networks of smooth functions of their trained outputs, in samples.

$$a_1[F] = E\big[ \omega(z_0)\, F(z) + F'(z)\, z_2 + \tfrac12 F''(z)[z_1, z_1] \big], \qquad
  E_n[F] = E[F(z)] + a_1[F]/n$$

Samples come in pairs of opposite $\xi$, so that odd terms cancel. Three things of known mean are subtracted:
second Hermite polynomials of $\xi$, by regression; fluctuations of the NTK around the path from zero; and the
quadratic fit of F, where the density multiplies it. Every pair depends on its number and the key alone.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.estimate import Estimate
from finitewidth.core.tasks import Runner
from finitewidth.training.replay.initial_networks import InitialNetworks
from finitewidth.training.replay.polynomial_mean import fluctuations_one_by_one, replays_at_once, still
from finitewidth.training.replay.trajectories import (
    CONTRIBUTIONS,
    FLUCTUATION,
    Outputs,
    Training,
    corrected,
    infinite_width,
)

DENSITY = "initial_distribution"  # the contribution of G1 and V
_CHEAP = 8  # pairs of infinitely wide networks for each pair through order 1/n
_PER_FEATURE = 8  # pairs for each coefficient of the regression
Numbers = np.ndarray | Array
Function = Callable[[Array], Array]  # of the outputs (T, M, n_L) of one network


class Draws(NamedTuple):
    """Pairs of networks: arrays begin with the sign of xi and the number of the pair."""

    xi: Float[np.ndarray, "pairs k"]  # leading directions
    outputs: Outputs
    still: Outputs | None  # the same fluctuations around the path from zero
    roots: Outputs | None  # that path with each root of A and B; sums over them are means of `still`
    cheap_xi: Float[np.ndarray, "many k"]
    cheap_z: Float[np.ndarray, "2 many T M n_L"]
    omega: Float[np.ndarray, "2 many"]
    white_G1: Float[np.ndarray, "k k"]  # E[omega He2] of these directions

    @property
    def pairs(self) -> int:
        """The number of pairs through order 1/n."""
        return len(self.xi)


def draw(
    networks: InitialNetworks, training: Training, batches: range, key: tuple, running: Runner
) -> list[dict[str, np.ndarray]]:
    """Batches of pairs, which are independent tasks."""
    work = functools.partial(_batch, networks, training, key, batches.start)
    return list(running.results(work, len(batches), name=f"draws_{batches.start}", what="replaying training"))


def pairs_of_batch(networks: InitialNetworks) -> int:
    """How many pairs a batch has."""
    return replays_at_once(networks) // 2


def gathered(networks: InitialNetworks, training: Training, parts: list[dict[str, np.ndarray]]) -> Draws:
    """All batches together, with the exact means of what is subtracted."""
    joined = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    roots = quiet = None
    if not training.algorithm.draws_batches:
        masks = jnp.asarray(training.algorithm.masks(networks.count))
        columns = list(fluctuations_one_by_one(networks, training, masks))
        roots = Outputs(*(np.concatenate(values) for values in zip(*columns, strict=True)))
        quiet = Outputs(*(joined[f"still_{name}"] for name in Outputs._fields))
    few = _directions(networks, joined["z"].shape[1])
    flat = lambda xi: xi[:, ::-1].reshape(len(xi), -1)[:, :few]  # noqa: E731
    return Draws(
        flat(joined["xi"][0]),
        Outputs(joined["z"], joined["z1"], np.moveaxis(joined["z2"], -4, 0)),
        quiet,
        roots,
        flat(joined["cheap_xi"][0]),
        joined["cheap_z"],
        joined["omega"],
        np.kron(networks.white_G1[::-1, ::-1], np.eye(networks.outputs))[:few, :few],
    )


def _directions(networks: InitialNetworks, pairs: int) -> int:
    """How many leading directions have their products in the regression."""
    most = networks.size * networks.outputs
    return int(min(most, max(0.0, np.sqrt(2 * pairs / _PER_FEATURE) - 1)))


def _batch(networks: InitialNetworks, training: Training, key: tuple, first: int, task: int) -> dict:
    """One task: pairs through order 1/n, and more of them at infinite width."""
    own = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(key, dtype=jnp.uint32)), first + task)
    keys, count, size = jax.random.split(own, 5), networks.count, pairs_of_batch(networks)
    shape = (networks.size, networks.outputs)
    xi = jax.random.normal(keys[0], (size, *shape))
    common = jax.random.normal(keys[1], (2 * size, networks.common.shape[1]))
    roots = (networks.outputs, networks.outputs, networks.separate.shape[1])
    separate = jax.random.normal(keys[2], (2 * size, *roots))
    drawn = training.algorithm.draws_batches
    masks = jnp.asarray(training.algorithm.masks(count, size if drawn else 1, keys[3]))
    both = jnp.concatenate([masks, masks]) if drawn else masks
    outputs = _through_first_order(networks, training, both, jnp.concatenate([xi, -xi]), common, separate)
    found = {"xi": xi, "z": outputs.z, "z1": outputs.z1, "z2": jnp.moveaxis(outputs.z2, 0, 1)}
    if not drawn:
        quiet = still(networks, training, masks, common, separate)
        found |= {"still_z": quiet.z, "still_z1": quiet.z1, "still_z2": quiet.z2[0]}
    many = _CHEAP * size
    xi = jax.random.normal(keys[4], (many, *shape))
    if drawn:
        masks = jnp.asarray(training.algorithm.masks(count, many, jax.random.fold_in(keys[3], 1)))
    both = jnp.concatenate([masks, masks]) if drawn else masks
    z, omega = _at_infinite_width(networks, training, both, jnp.concatenate([xi, -xi]))
    found |= {"cheap_xi": xi, "cheap_z": z, "omega": omega}
    return {name: _in_pairs(np.asarray(values), name) for name, values in found.items()}


def _in_pairs(values: np.ndarray, name: str) -> np.ndarray:
    """With an axis of signs in front."""
    return values[None] if name.endswith("xi") else values.reshape(2, -1, *values.shape[1:])


@jax.jit
def _through_first_order(networks, training, masks, xi, common, separate) -> Outputs:
    return corrected(networks, training, masks, xi, networks.fluctuation(common, separate))


@jax.jit
def _at_infinite_width(networks, training, masks, xi):
    return infinite_width(networks, training, masks, xi), networks.density(xi)


# --- estimates ----------------------------------------------------------------------------------------


class Average(NamedTuple):
    """The average of a function at infinite width, and n times its correction at order 1/n."""

    leading: Estimate
    correction: Estimate
    contributions: dict[str, Estimate]  # to the correction


def average(draws: Draws, function: Function) -> Average:
    """The average of a smooth function of trained outputs."""
    z, z1, z2 = draws.outputs
    moved = np.stack([_pairs(_directional(function, z, part)) for part in z2])
    bent = _pairs(_bend(function, z, z1))
    shape, pairs = moved.shape[2:], draws.pairs
    if draws.still is not None and draws.roots is not None:
        bent = bent - _pairs(_along(function, draws.still)) + _along(function, draws.roots).sum(axis=0)
    moved[FLUCTUATION] += bent
    parts = [*moved.reshape(len(moved), pairs, -1), moved.sum(axis=0).reshape(pairs, -1)]
    features = _products(draws.xi)
    found = [Estimate(*(v.reshape(shape) for v in _intercept(features, part))) for part in parts]
    leading, density = _with_density(draws, function)
    contributions = dict(zip(CONTRIBUTIONS, found[:-1], strict=True)) | {DENSITY: density}
    value = found[-1].value + density.value
    return Average(leading, Estimate(value, np.hypot(found[-1].stderr, density.stderr)), contributions)


def _with_density(draws: Draws, function: Function) -> tuple[Estimate, Estimate]:
    """E[F], and E[omega F]: the quadratic fit of one half of the pairs is subtracted from the other half."""
    values = _pairs(_values(function, draws.cheap_z))
    shape, flat = values.shape[1:], values.reshape(len(values), -1)
    omega, features = draws.omega.mean(axis=0), _products(draws.cheap_xi)  # even, as pairs are
    upper = np.triu_indices(draws.cheap_xi.shape[1])
    half, found = len(flat) // 2, []
    for fitted, used in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        fit = _regression(features[fitted], flat[fitted])
        rest = omega[used, None] * (flat[used] - fit[0] - features[used] @ fit[1:])
        exact = draws.white_G1[upper] @ fit[1:]
        found.append((rest.mean(axis=0) + exact, rest.std(axis=0, ddof=1) / np.sqrt(len(rest))))
    (one, one_error), (other, other_error) = found
    density = (one + other) / 2, np.hypot(one_error, other_error) / 2
    leading = _intercept(features, flat)
    as_given = lambda pair: Estimate(*(v.reshape(shape) for v in pair))  # noqa: E731
    return as_given(leading), as_given(density)


def _pairs(values: Float[np.ndarray, "2 pairs ..."]) -> np.ndarray:
    return values.mean(axis=0)


def _products(x: Float[np.ndarray, "pairs k"]) -> Float[np.ndarray, "pairs features"]:
    """Second Hermite polynomials, whose mean is zero."""
    upper = np.triu_indices(x.shape[1])
    return x[:, upper[0]] * x[:, upper[1]] - (upper[0] == upper[1])


def _regression(features: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Coefficients of one and the features."""
    X = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    return np.linalg.lstsq(X, values, rcond=None)[0]


def _intercept(features: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of values where features of mean zero explain them, and its standard error."""
    X = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    normal = X.T @ X
    inverse = np.linalg.inv(normal)
    fit = inverse @ (X.T @ values)
    rest = ((values - X @ fit) ** 2).sum(axis=0) / (len(X) - len(normal))
    return fit[0], np.sqrt(rest * inverse[0, 0])


# --- functions of outputs and their derivatives --------------------------------------------------------


def _mapped(function: Callable, *arrays: Numbers) -> np.ndarray:
    """The function for every network; the leading axes are those of networks."""
    lead = arrays[0].shape[:-3]
    flat = [jnp.asarray(values).reshape(-1, *values.shape[-3:]) for values in arrays]
    found = np.asarray(jax.jit(jax.vmap(function))(*flat))
    return found.reshape(*lead, *found.shape[1:])


def _values(function: Function, z: Numbers) -> np.ndarray:
    return _mapped(function, z)


def _directional(function: Function, z: Numbers, step: Numbers) -> np.ndarray:
    """F'(z) step."""
    return _mapped(lambda z, v: jax.jvp(function, (z,), (v,))[1], z, step)


def _bend(function: Function, z: Numbers, step: Numbers) -> np.ndarray:
    """F''(z)[step, step] / 2."""

    def one(z, v):
        slope = lambda u: jax.jvp(function, (u,), (v,))[1]  # noqa: E731
        return 0.5 * jax.jvp(slope, (z,), (v,))[1]

    return _mapped(one, z, step)


def _along(function: Function, outputs: Outputs) -> np.ndarray:
    """What fluctuations of the NTK alone add to a function."""
    z, z1, z2 = outputs
    return _directional(function, z, z2) + _bend(function, z, z1)
