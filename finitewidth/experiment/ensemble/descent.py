r"""Gradient descent of many networks at once, $\theta \leftarrow \theta - \eta \lambda\, dL/d\theta$.

Every kind of layer knows its own gradient; with an axis of members each product of a dense layer is one
batched matrix product. A member that has stopped or diverged gets learning rate zero.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from finitewidth.experiment.ensemble.plan import Numbers, Plan
from finitewidth.experiment.sampling import Parameters, outputs, rates, real_network
from finitewidth.network.algorithm import GradientDescent, StochasticGradientDescent
from finitewidth.network.loss import MSE, Loss
from finitewidth.network.network import Network

GROWTH = 1e6  # a loss that has grown by this factor will not come back
_MINI_BATCHES = (
    2**31
)  # the stream of a member's key from which its mini-batches come; layers use 0, 1, 2, ...


class Trained(NamedTuple):
    """What became of the members of a batch; records have axes (records, members, ...)."""

    records: Any
    diverged: Bool[Array, " M"]
    finished: Bool[Array, " M"]  # whether it came to its end, and to its training error if one was set
    steps: Float[Array, " M"]  # updates made


def loss_and_residual(
    loss: Loss, z: Float[Array, "N nL"], y: Float[Array, "N nL"]
) -> tuple[Float[Array, ""], Float[Array, "N nL"]]:
    """L and dL/dz, sums over samples."""
    if isinstance(loss, MSE):
        return 0.5 * jnp.sum((z - y) ** 2), z - y
    T = loss.temperature
    return -jnp.sum(y * jax.nn.log_softmax(z / T)), (jax.nn.softmax(z / T) - y) / T


def pulled_back(
    net: Network, parameters: Parameters, X: Float[Array, "N n0"], residual: Callable
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


class Members(NamedTuple):
    """The members of a batch at initialization, and the loss beyond which they have diverged."""

    parameters: Parameters
    keys: Array
    bound: Float[Array, " M"]


def descend(plan: Plan, numbers: Numbers, X: Array, Y: Array, members: Members, observe: Callable) -> Trained:
    """Train all members to the end of the plan, recording what `observe` sees on the way."""
    gradients = _full_batch if isinstance(plan.algorithm, GradientDescent) else _mini_batch
    count, bound = members.bound.shape[0], members.bound

    def one_step(state: _State) -> _State:
        losses, found = gradients(plan, state, X, Y, members.keys)
        bad = ~(losses <= bound)  # also where the loss is NaN
        active = state.active & ~bad & (losses > numbers.low_enough)
        counted = active.astype(jnp.float64)
        eta = counted * numbers.learning_rate / (1 + numbers.decay * state.step.astype(jnp.float64))
        parameters = jax.vmap(lambda p, g, eta: moved(plan.net, p, g, eta))(state.parameters, found, eta)
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


def finished(numbers: Numbers, losses: Float[Array, " M"]) -> Bool[Array, " M"]:
    """Whether the training error was reached, where one was set."""
    return (losses <= numbers.low_enough) | jnp.isneginf(numbers.low_enough)


def _full_batch(plan: Plan, state: _State, X: Array, Y: Array, keys: Array) -> tuple[Array, Parameters]:
    def one(parameters):
        return pulled_back(plan.net, parameters, X, lambda z: loss_and_residual(plan.loss, z, Y))

    return jax.vmap(one)(state.parameters)


def _mini_batch(plan: Plan, state: _State, X: Array, Y: Array, keys: Array) -> tuple[Array, Parameters]:
    """A new order of the samples in each epoch; a remainder smaller than a mini-batch waits for the next one.

    The sum over a mini-batch is scaled to the size of the data set, so that its mean is the full gradient.
    """
    algorithm = plan.algorithm
    assert isinstance(algorithm, StochasticGradientDescent)
    size, count = algorithm.batch_size, X.shape[0]
    per_epoch = count // size
    epoch, slot = state.step // per_epoch, state.step % per_epoch

    def one(parameters, key):
        order = jax.random.permutation(
            jax.random.fold_in(jax.random.fold_in(key, _MINI_BATCHES), epoch), count
        )
        chosen = jax.lax.dynamic_slice(order, (slot * size,), (size,))

        def scaled(z):
            value, residual = loss_and_residual(plan.loss, z, Y[chosen])
            return value * (count / size), residual * (count / size)

        value, gradients = pulled_back(plan.net, parameters, X[chosen], scaled)
        if plan.training_error is not None:  # a mini-batch does not say how well the others are fitted
            value = loss_and_residual(plan.loss, outputs(plan.net, parameters, X), Y)[0]
        return value, gradients

    return jax.vmap(one)(state.parameters, keys)
