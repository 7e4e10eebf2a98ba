r"""Gradient descent of many networks at once, $\theta \leftarrow \theta - \eta \lambda\, dL/d\theta$.

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

_MINI_BATCHES = 2**31  # the stream of a member's key for its mini-batches; layers use 0, 1, 2, ...


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
    step: Int[Array, ""]
    active: Bool[Array, " M"]
    diverged: Bool[Array, " M"]
    steps: Float[Array, " M"]


class Descent(AbstractTrainer):
    """Steps of gradient descent, full-batch or with mini-batches."""

    remedy = "lower the learning rate"

    def pattern(self, plan: Plan) -> Plan:
        stops_early = plan.algorithm.mini_batch is not None and plan.training_error is not None
        return dataclasses.replace(
            plan,
            algorithm=plan.algorithm.pattern,
            points=(0.0,) * len(plan.points),
            training_error=1.0 if stops_early else None,
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
        gradients = _full_batch if plan.algorithm.mini_batch is None else _mini_batch
        count, bound = members.bound.shape[0], members.bound

        def one_step(state: _State) -> _State:
            losses, slopes = gradients(plan, state, X, Y, members.keys)
            bad = ~(losses <= bound) | ~_is_finite(slopes)  # also where the loss is NaN
            active = state.active & ~bad & (losses > numbers.low_enough)
            counted = active.astype(jnp.float64)
            rate = plan.algorithm.learning_rate_at(state.step.astype(jnp.float64), numbers.algorithm)
            eta = counted * rate
            parameters = jax.vmap(lambda p, g, eta: moved(plan.net, p, g, eta))(state.parameters, slopes, eta)
            diverged = state.diverged | (state.active & bad)
            return _State(parameters, state.step + 1, active, diverged, state.steps + counted)

        def to_record(state: _State, target) -> tuple[_State, Any]:
            state = jax.lax.while_loop(lambda s: (s.step < target) & jnp.any(s.active), one_step, state)
            return state._replace(step=target), observe(state.parameters)

        everyone, nobody = jnp.ones(count, bool), jnp.zeros(count, bool)
        start = _State(members.parameters, jnp.zeros((), jnp.int64), everyone, nobody, jnp.zeros(count))
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


def _full_batch(plan: Plan, state: _State, X: Array, Y: Array, keys: Array) -> tuple[Array, Parameters]:
    def one(parameters):
        return pulled_back(
            plan.net, parameters, X, lambda z: (plan.loss.value(z, Y), plan.loss.gradient(z, Y))
        )

    return jax.vmap(one)(state.parameters)


def _mini_batch(plan: Plan, state: _State, X: Array, Y: Array, keys: Array) -> tuple[Array, Parameters]:
    """A new order of the samples in each epoch; a remainder smaller than a mini-batch waits for the next one.

    The sum over a mini-batch is scaled to the size of the data set, so that its mean is the full gradient.
    """
    size, count = plan.algorithm.mini_batch, X.shape[0]
    assert size is not None
    per_epoch = count // size
    epoch, slot = state.step // per_epoch, state.step % per_epoch

    def one(parameters, key):
        order = jax.random.permutation(
            jax.random.fold_in(jax.random.fold_in(key, _MINI_BATCHES), epoch), count
        )
        chosen = jax.lax.dynamic_slice(order, (slot * size,), (size,))

        def scaled(z):
            value, slope = plan.loss.value(z, Y[chosen]), plan.loss.gradient(z, Y[chosen])
            return value * (count / size), slope * (count / size)

        value, gradients = pulled_back(plan.net, parameters, X[chosen], scaled)
        if plan.training_error is not None:  # a mini-batch does not tell how well the others are fitted
            value = plan.loss.value(outputs(plan.net, parameters, X), Y)
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
