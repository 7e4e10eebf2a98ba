"""One batch of an ensemble: draw its members, train them, reduce what was recorded to moments."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.experiment.directions import ntk
from finitewidth.experiment.ensemble.descent import GROWTH, Members, Trained, descend, loss_and_residual
from finitewidth.experiment.ensemble.flow import follow
from finitewidth.experiment.ensemble.newton import leap
from finitewidth.experiment.ensemble.plan import Numbers, Plan
from finitewidth.experiment.partition import Partition
from finitewidth.experiment.sampling import Parameters, draw_members, member_key, preactivations
from finitewidth.experiment.streaming import JointMoments, Moments, joint_moments, moments
from finitewidth.network.algorithm import (
    GradientDescent,
    GradientFlow,
    Newton,
    StochasticGradientDescent,
    TwoStep,
)
from finitewidth.network.network import Network


def observed(plan: Plan, parameters: Parameters, X: Array, Y: Array) -> dict[str, Array]:
    """What is recorded of one member: outputs, loss and, if asked for, NTK and hidden kernels."""
    layers = preactivations(plan.net, parameters, X)
    z = layers[-1]
    found = {"outputs": z, "loss": loss_and_residual(plan.loss, z[: plan.train_count], Y)[0]}
    if plan.ntk:
        found["ntk"] = ntk(plan.net, parameters, X)
    if plan.kernels:
        hidden = zip(plan.net.activations, layers[:-1], strict=True)
        found["kernels"] = jnp.stack([_kernel(activation(z)) for activation, z in hidden])
    return found


def _kernel(s: Float[Array, "N n"]) -> Float[Array, "N N"]:
    """sigma sigma / n: a hidden layer as the next one sees it."""
    return s @ s.T / s.shape[1]


def train_batch(
    plan: Plan, X: np.ndarray, Y: np.ndarray, parts: Partition, key_data: np.ndarray, keep: bool, batch: int
) -> dict[str, Any]:
    """Moments of every record over the members of a batch, by name; `keep` adds every member's outputs."""
    numbers, weight = parts.numbers(batch)
    keys, parameters = _drawn(plan.net, key_data, numbers)
    found = _train_batch(plan.pattern, keep, plan.numbers, X, Y, keys, parameters, weight)
    found = jax.tree.map(np.asarray, found)
    if keep:
        found["member_outputs"] = found["member_outputs"][: parts.size(batch)]
    return found


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
    scale = jnp.maximum(initial["loss"], 0.5 * jnp.sum(Y**2))
    members = Members(parameters, keys, GROWTH * (scale + 1e-300))
    trained = _trained(plan, numbers, X[: plan.train_count], Y, members, observe)
    return _reduced(plan, keep, trained, initial, weight)


def _trained(plan: Plan, numbers: Numbers, X: Array, Y: Array, members: Members, observe) -> Trained:
    match plan.algorithm:
        case GradientDescent() | StochasticGradientDescent():
            train = descend
        case GradientFlow():
            train = follow
        case _:
            train = leap
    return train(plan, numbers, X, Y, members, observe)


def _reduced(plan: Plan, keep: bool, trained: Trained, initial: dict, weight: Array) -> dict[str, Any]:
    kept = (~trained.diverged).astype(jnp.float64)
    unfinished = (~trained.finished).astype(jnp.float64)
    good = weight * kept
    records = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), trained.records)  # members first
    members, steps = records["loss"].shape
    flat = records["outputs"].reshape(members, steps, -1)
    found: dict[str, Moments | JointMoments | Array] = {
        "outputs": joint_moments(flat, good),
        "loss": moments(records["loss"], good),
        "steps": moments(trained.steps, good),
        "diverged": jnp.sum(weight * (1 - kept)),
        "unfinished": jnp.sum(good * unfinished),
    }
    if plan.ntk:
        found["ntk"] = moments(records["ntk"], good)
        found["ntk_movement"] = moments(_movement(records["ntk"], initial["ntk"], 4), good)
    if plan.kernels:
        found["kernels"] = moments(records["kernels"], good)
        found["kernel_movement"] = moments(_movement(records["kernels"], initial["kernels"], 2), good)
    if plan.control is not None:
        taken = jax.vmap(plan.control)(initial["outputs"])
        found["controlled"] = moments(records["outputs"][:, -1] - taken, good)
    if keep:
        found["member_outputs"] = records["outputs"]
    return found


def _movement(now: Array, initial: Array, axes: int) -> Array:
    """The Frobenius norm of the change, in units of that of the beginning, over the last `axes` axes."""
    over = tuple(range(-axes, 0))
    change = jnp.sqrt(jnp.sum((now - initial[:, None]) ** 2, axis=over))
    return change / jnp.sqrt(jnp.sum(initial**2, axis=over))[:, None]


def bytes_of_one(plan: Plan, count: int) -> float:
    """What one member takes at most while it is trained."""
    net, flowing = plan.net, isinstance(plan.algorithm, GradientFlow)
    legs = count * net.widths[-1]
    copies = 16 if flowing else 4
    needed = copies * net.parameter_count + 6 * count * sum(net.widths)
    needed += 4 * len(plan.points) * legs
    if plan.ntk or isinstance(plan.algorithm, Newton | TwoStep):
        needed += (3 + 3 * len(plan.points)) * legs**2 + 3 * legs * max(net.widths)
    if plan.kernels:
        needed += 3 * len(plan.points) * net.depth * count**2
    return 8.0 * needed
