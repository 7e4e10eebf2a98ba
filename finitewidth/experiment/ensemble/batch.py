"""One batch of an ensemble: draw its members, train them, reduce their records to moments."""

import functools
import math
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.programs import keep_programs
from finitewidth.experiment.directions import ntk
from finitewidth.experiment.ensemble.plan import Numbers, Plan
from finitewidth.experiment.ensemble.trainer import GROWTH, Members, Trained
from finitewidth.experiment.ensemble.trainers import trainer_of
from finitewidth.experiment.partition import Partition
from finitewidth.experiment.sampling import Parameters, draw_members, member_key, passages, real_network
from finitewidth.experiment.streaming import JointMoments, Moments, Rows, moments, rows_or_moments
from finitewidth.network.layers.dense import Dense
from finitewidth.network.network import Network

_CACHE = 1 << 20  # bytes of a core's cache


def observed(plan: Plan, parameters: Parameters, X: Array, Y: Array) -> dict[str, Array]:
    """The record of one member: outputs, loss and, if wanted, the NTK and hidden kernels."""
    layers = passages(plan.net, parameters, X)
    z = layers[-1].preactivations
    record = {"outputs": z, "loss": plan.loss.value(z[: plan.train_count], Y)}
    if plan.ntk:
        record["ntk"] = ntk(plan.net, parameters, X)
    if plan.kernels:
        record["kernels"] = jnp.stack([_kernel(layer.incoming) for layer in layers[1:]])
    return record


def _kernel(s: Float[Array, "N ..."]) -> Float[Array, "N N"]:
    """sigma sigma / n: a hidden layer as the next one sees it, averaged over positions."""
    flat = s.reshape(s.shape[0], -1)
    return flat @ flat.T / flat.shape[1]


def _given_hidden_layers(net: Network, parameters: Parameters, X: Array) -> Float[Array, "N N"]:
    """The covariance of one output at initialization over all last layers, for the hidden layers as drawn."""
    last = cast(Dense, net.readout)
    return last.C_b + last.C_W * _kernel(passages(net, parameters, X)[-1].incoming)


def train_batch(
    plan: Plan, X: np.ndarray, Y: np.ndarray, parts: Partition, key_data: np.ndarray, keep: bool, batch: int
) -> dict[str, Any]:
    """Moments of every record over the members of a batch, by name; `keep` adds every member's outputs."""
    keep_programs()
    numbers, weight = parts.numbers(batch)
    keys, parameters = _drawn(plan.net, key_data, numbers)
    pattern = trainer_of(plan.algorithm).pattern(plan)
    totals = _train_batch(pattern, keep, plan.numbers, X, Y, keys, parameters, weight)
    totals = jax.tree.map(np.asarray, totals)
    if keep:
        totals["member_outputs"] = totals["member_outputs"][: parts.size(batch)]
    return totals


@functools.partial(jax.jit, static_argnums=0)
def _drawn(net: Network, key_data: Array, numbers: Array) -> tuple[Array, Parameters]:
    key = jax.random.wrap_key_data(key_data)
    return jax.vmap(lambda m: member_key(key, m))(numbers), draw_members(net, key, numbers)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _train_batch(
    plan: Plan,
    keep: bool,
    numbers: Numbers,
    X: Array,
    Y: Array,
    keys: Array,
    parameters: Parameters,
    weight: Array,
) -> dict[str, Any]:
    def observe(parameters):
        return jax.vmap(lambda one: observed(plan, one, X, Y))(parameters)

    initial = observe(parameters)
    if plan.controls_covariance:
        initial["covariance"] = jax.vmap(lambda one: _given_hidden_layers(plan.net, one, X))(parameters)
    scale = jnp.maximum(initial["loss"], 0.5 * jnp.sum(Y**2))
    members = Members(parameters, keys, GROWTH * (scale + 1e-300))
    trainer = trainer_of(plan.algorithm)

    def train(group: Members) -> Trained:
        return trainer.train(plan, numbers, X[: plan.train_count], Y, group, observe)

    trained = in_groups(train, members, group_size(plan, X.shape[0]))
    return _reduced(plan, Y, keep, trained, initial, weight)


def group_size(plan: Plan, count: int) -> int:
    """How many members are trained at once: their weights and activations stay in a core's cache."""
    layers = real_network(plan.net)
    return max(1, int(_CACHE // (8 * (layers.normal_count + 2 * count * sum(layers.sizes)))))


def in_groups(train: Callable[[Members], Trained], members: Members, size: int) -> Trained:
    """Groups of members one after the other, each to its end; the last group is filled up with the first."""
    count = members.bound.shape[0]
    if size >= count:
        return train(members)
    groups = -(-count // size)
    size = -(-count // groups)  # equal groups: few members fill up the last one
    places = jnp.arange(groups * size) % count
    grouped = jax.tree.map(lambda leaf: leaf[places].reshape(groups, size, *leaf.shape[1:]), members)
    trained = jax.lax.map(train, grouped)

    def joined(leaf: Array) -> Array:
        return leaf.reshape(groups * size, *leaf.shape[2:])[:count]

    records = jax.tree.map(lambda leaf: jnp.swapaxes(joined(jnp.swapaxes(leaf, 1, 2)), 0, 1), trained.records)
    return Trained(records, *(joined(leaf) for leaf in trained[1:]))


def _reduced(
    plan: Plan, Y: Array, keep: bool, trained: Trained, initial: dict, weight: Array
) -> dict[str, Any]:
    kept = (~trained.diverged).astype(jnp.float64)
    unfinished = (~trained.finished).astype(jnp.float64)
    good = weight * kept
    records = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), trained.records)  # members first
    members, steps = records["loss"].shape
    flat = records["outputs"].reshape(members, steps, -1)
    totals: dict[str, Moments | JointMoments | Rows | Array] = {
        "outputs": rows_or_moments(flat, good),
        "loss": moments(records["loss"], good),
        "steps": moments(trained.steps, good),
        "diverged": jnp.sum(weight * (1 - kept)),
        "unfinished": jnp.sum(good * unfinished),
    }
    if plan.ntk:
        totals["ntk"] = moments(records["ntk"], good)
        totals["ntk_movement"] = moments(_movement(records["ntk"], initial["ntk"], 4), good)
    if plan.kernels:
        totals["kernels"] = moments(records["kernels"], good)
        totals["kernel_movement"] = moments(_movement(records["kernels"], initial["kernels"], 2), good)
    if plan.control is not None:
        taken = jax.vmap(plan.control)(initial["outputs"])
        totals["controlled"] = moments(records["outputs"][:, -1] - taken, good)
    if plan.control is not None and plan.controls_covariance:
        products = _controlled_products(plan, plan.control, Y, records["outputs"][:, -1], initial)
        totals["controlled_covariance"] = moments(products, good)
    if keep:
        totals["member_outputs"] = records["outputs"]
    return totals


def _controlled_products(
    plan: Plan, control: Callable, Y: Array, z: Float[Array, "M N n_L"], initial: dict
) -> Float[Array, "M N_test n_L N_test n_L"]:
    """Products of two deviations of test outputs, with those of the control replaced by their average.

    Over the last layer alone that average has a closed form, so that no mean changes and noise does.
    """
    test = slice(plan.train_count, None)
    pairs = lambda v: jnp.einsum("mai,mbj->maibj", v[:, test], v[:, test])  # noqa: E731
    center = centered_on(control, Y, z.shape[1])
    both_sides = jax.vmap(lambda G: control(control(G).T)[test, test])  # a matrix over samples: L G L^T
    average = both_sides(initial["covariance"])[:, :, None, :, None] * jnp.eye(z.shape[2])[:, None, :]
    return pairs(z - center) - pairs(jax.vmap(control)(initial["outputs"])) + average


def centered_on(control: Callable, Y: Array | np.ndarray, count: int) -> Float[Array, "N n_L"]:
    """The outputs that a linear control says targets lead to; products are taken about them."""
    targets = jnp.concatenate([Y, jnp.zeros((count - Y.shape[0], Y.shape[1]))])
    return targets - control(targets)


def _movement(now: Array, initial: Array, axes: int) -> Array:
    """The Frobenius norm of the change, in units of that of the beginning, over the last `axes` axes."""
    over = tuple(range(-axes, 0))
    change = jnp.sqrt(jnp.sum((now - initial[:, None]) ** 2, axis=over))
    return change / jnp.sqrt(jnp.sum(initial**2, axis=over))[:, None]


def bytes_of_one(plan: Plan, count: int) -> float:
    """The largest memory that one member takes while it is trained."""
    net, trainer = plan.net, trainer_of(plan.algorithm)
    layers, legs = real_network(net), count * net.outputs
    sizes = (math.prod(net.input_shape), *layers.sizes)
    needed = (trainer.copies + 3 * plan.algorithm.memory) * layers.normal_count + 6 * count * sum(sizes)
    needed += 4 * len(plan.points) * legs
    if plan.ntk or trainer.inverts_ntk:
        needed += (3 + 3 * len(plan.points)) * legs**2 + 3 * legs * max(sizes)
        needed += layers.ntk_size(net.outputs, count)
    if plan.controls_covariance:
        needed += 3 * ((count - plan.train_count) * net.outputs) ** 2 + 3 * count**2
    if plan.kernels:
        needed += 3 * len(plan.points) * net.depth * count**2
    return 8.0 * needed
