r"""Descent of many networks at once, $\theta(t) = \theta(0) - \lambda X(t)$ with X the accumulated gradient.

Every kind of layer knows its own gradient; with an axis of members each product of a dense layer is one
batched matrix product. A member that has stopped or diverged gets learning rate zero.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from finitewidth.experiment.directions import ntk
from finitewidth.experiment.ensemble.plan import Numbers, Plan
from finitewidth.experiment.ensemble.trainer import AbstractTrainer, Members, Trained, finished
from finitewidth.experiment.sampling import Parameters, draw, member_key, outputs, rates, real_network
from finitewidth.network.network import Network


def pulled_back(
    net: Network, parameters: Parameters, X: Float[Array, "N ..."], residual: Callable
) -> tuple[Any, Parameters]:
    """The value that `residual` gives for the outputs beside dL/dz, and dL/dtheta by backpropagation."""
    layers = real_network(net)
    z, saved = layers.forward(parameters, X, 1)
    value, delta = residual(z)
    return value, layers.backward(parameters, saved, delta)[0]


def moved(net: Network, parameters: Parameters, gradients: Parameters, learning_rate) -> Parameters:
    """theta - learning_rate lambda dL/dtheta."""
    return jax.tree.map(lambda p, g, rate: p - learning_rate * rate * g, parameters, gradients, rates(net))


class _State(NamedTuple):
    parameters: Parameters
    accumulators: tuple[Parameters, ...]  # sum of gradients and its memory; empty where steps are forgotten
    step: Int[Array, ""]
    active: Bool[Array, " M"]
    diverged: Bool[Array, " M"]
    steps: Float[Array, " M"]


class Descent(AbstractTrainer):
    """Steps of gradient descent, full-batch or with mini-batches."""

    remedy = "lower the learning rate"

    def pattern(self, plan: Plan) -> Plan:
        return dataclasses.replace(
            plan,
            algorithm=plan.algorithm.pattern,
            points=(0.0,) * len(plan.points),
            training_error=None if plan.training_error is None else 1.0,
            max_steps=1,
            tolerance=1.0,
            floor=0.0,
        )

    def failure(self, plan: Plan, members: int, X: np.ndarray, key_data: np.ndarray) -> str:
        return (
            f"algorithm {plan.algorithm} makes all {members} members diverge; use a learning rate below 2 / "
            f"largest eigenvalue of the NTK, here about {_largest_learning_rate(plan, X, key_data):.3g}."
        )

    def train(
        self, plan: Plan, numbers: Numbers, X: Array, Y: Array, members: Members, observe: Callable
    ) -> Trained:
        count, bound, algorithm = members.bound.shape[0], members.bound, plan.algorithm

        def one_step(state: _State) -> _State:
            losses, slopes = _gradients(plan, numbers, state, X, Y, members.keys)
            bad = ~(losses <= bound) | ~_is_finite(slopes)  # also where the loss is NaN
            active = state.active & ~bad & (losses > numbers.low_enough)
            counted = active.astype(jnp.float64)
            step = state.step.astype(jnp.float64)
            if algorithm.memory:
                accumulators = _accumulated(plan, numbers, state, slopes, active, step)
                parameters = jax.vmap(lambda p, x: moved(plan.net, p, x, 1.0))(
                    members.parameters, accumulators[0]
                )
            else:
                eta = counted * algorithm.learning_rate_at(step, numbers.algorithm)
                accumulators = ()
                parameters = jax.vmap(lambda p, g, eta: moved(plan.net, p, g, eta))(
                    state.parameters, slopes, eta
                )
            diverged = state.diverged | (state.active & bad)
            return _State(parameters, accumulators, state.step + 1, active, diverged, state.steps + counted)

        def to_record(state: _State, target) -> tuple[_State, Any]:
            state = jax.lax.while_loop(lambda s: (s.step < target) & jnp.any(s.active), one_step, state)
            return state._replace(step=target), observe(state.parameters)

        everyone, nobody = jnp.ones(count, bool), jnp.zeros(count, bool)
        zeros = jax.tree.map(jnp.zeros_like, members.parameters)
        accumulators = algorithm.begin(zeros) if algorithm.memory else ()
        start = _State(
            members.parameters, accumulators, jnp.zeros((), jnp.int64), everyone, nobody, jnp.zeros(count)
        )
        state, records = jax.lax.scan(to_record, start, numbers.steps.astype(jnp.int64))
        last = records["loss"][-1]
        diverged = state.diverged | ~(last <= bound)
        return Trained(records, diverged, finished(numbers, last), state.steps)


def _is_finite(slopes: Parameters) -> Bool[Array, " M"]:
    """Whether the gradient of the first parameters is a number, for each member.

    Backpropagation comes there last. An update that waits for it finds nobody else who needs the old weights
    and overwrites them; otherwise the compiler makes a copy of them in every step.
    """
    first = jax.tree.leaves(slopes)[0]
    return jnp.isfinite(jnp.sum(first.reshape(first.shape[0], -1), axis=1))


def _accumulated(
    plan: Plan, numbers: Numbers, state: _State, slopes: Parameters, active: Array, step: Array
) -> tuple[Parameters, ...]:
    """The accumulators after one step, where members are active."""
    algorithm, structure = plan.algorithm, jax.tree.structure(slopes)

    def one(slope: Array, *before: Array) -> tuple[Array, ...]:
        after = algorithm.accumulate(before, slope, step, numbers.algorithm)
        here = active.reshape(-1, *[1] * (slope.ndim - 1))
        return tuple(jnp.where(here, new, old) for new, old in zip(after, before, strict=True))

    leaves = [jax.tree.leaves(tree) for tree in (slopes, *state.accumulators)]
    found = [one(*together) for together in zip(*leaves, strict=True)]
    return tuple(jax.tree.unflatten(structure, column) for column in zip(*found, strict=True))


def _gradients(
    plan: Plan, numbers: Numbers, state: _State, X: Array, Y: Array, keys: Array
) -> tuple[Array, Parameters]:
    """The loss of the batch, or of all samples where that ends training, and its gradient."""
    loss = plan.loss

    def one(parameters, key):
        batch = plan.algorithm.batch(state.step, key, numbers.algorithm, X.shape[0])
        if batch is None:
            return pulled_back(plan.net, parameters, X, lambda z: (loss.value(z, Y), loss.gradient(z, Y)))
        samples, weights = batch

        def weighted(z):
            slope = weights[:, None] * loss.gradient(z, Y[samples])
            each = jax.vmap(loss.value)(z[:, None], Y[samples][:, None])
            return jnp.sum(weights * each), slope

        value, gradients = pulled_back(plan.net, parameters, X[samples], weighted)
        if plan.training_error is not None:  # a mini-batch does not tell how well the others are fitted
            value = loss.value(outputs(plan.net, parameters, X), Y)
        return value, gradients

    return jax.vmap(one)(state.parameters, keys)


def _largest_learning_rate(plan: Plan, X: np.ndarray, key_data: np.ndarray) -> float:
    """2 / largest eigenvalue of the training NTK, the mean over a few members."""
    key = jax.random.wrap_key_data(jnp.asarray(key_data))
    X_train = jnp.asarray(X[: plan.train_count])
    legs = plan.train_count * plan.net.outputs
    rates = []
    for member in range(4):
        H = ntk(plan.net, draw(plan.net, member_key(key, member)), X_train).reshape(legs, legs)
        rates.append(2 / float(jnp.linalg.eigvalsh(H)[-1]))
    return float(np.mean(rates))
