r"""Gradient flow of many networks at once, $d\theta/dt = -\lambda\, dL/d\theta$, each with its own steps.

Integrated by diffrax (Kidger 2021) with the embedded Runge-Kutta pair of Tsitouras (2011), whose steps keep
the estimated local error below the tolerance, absolute and relative to each parameter. Steps are also kept
within the stability of the pair: when little is left to learn its error estimate would let them grow until
the fastest mode is excited again, and the training error would hover where the tolerance leaves it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from finitewidth.experiment.ensemble.descent import pulled_back
from finitewidth.experiment.ensemble.plan import Numbers, Plan
from finitewidth.experiment.ensemble.trainer import AbstractTrainer, Members, Trained, finished
from finitewidth.experiment.sampling import Parameters, outputs, rates

_STABLE = 2.0  # step times rate of the fastest mode; the pair is stable up to about 3
_ITERATIONS = 12  # of the power method: that rate is needed within a factor of 1.5


class _State(NamedTuple):
    parameters: Parameters
    time: Float[Array, ""]
    active: Bool[Array, " M"]
    steps: Float[Array, " M"]
    whole: Bool[Array, " M"]  # whether the integration never ran out of steps


class Flow(AbstractTrainer):
    """Gradient flow by numerical integration."""

    counts_steps = False
    copies = 16

    def pattern(self, plan: Plan) -> Plan:
        algorithm, points = plan.algorithm.pattern, (0.0,) * len(plan.points)
        return dataclasses.replace(
            plan, algorithm=algorithm, points=points, training_error=None, tolerance=1.0, floor=0.0
        )

    def failure(self, plan: Plan, members: int, X: np.ndarray, key_data: np.ndarray) -> str:
        return f"algorithm {plan.algorithm} makes all {members} members diverge; scale the data."

    def train(
        self, plan: Plan, numbers: Numbers, X: Array, Y: Array, members: Members, observe: Callable
    ) -> Trained:
        def to_record(state: _State, target) -> tuple[_State, Any]:
            def one(start, active, longest):
                end = jnp.where(active, target, state.time)
                return _integrated(plan, numbers, X, Y, start, (state.time, end), longest)

            parameters, steps, reached, whole = jax.vmap(one)(state.parameters, state.active, longest)
            active = state.active & ~reached
            new = _State(parameters, target, active, state.steps + steps, state.whole & whole)
            return new, observe(parameters)

        longest = _STABLE / jax.vmap(lambda member: _fastest_rate(plan, X, member))(members.parameters)
        count = members.bound.shape[0]
        everyone = jnp.ones(count, bool)
        start = _State(members.parameters, jnp.zeros(()), everyone, jnp.zeros(count), everyone)
        state, records = jax.lax.scan(to_record, start, numbers.points)
        last = records["loss"][-1]
        done = finished(numbers, last) & state.whole
        return Trained(records, ~(last <= members.bound), done, state.steps)


def _integrated(
    plan: Plan,
    numbers: Numbers,
    X: Array,
    Y: Array,
    start: Parameters,
    times: tuple[Array, Array],
    longest: Array,
) -> tuple[Parameters, Array, Array, Array]:
    """One member from one time to another, or until its training error is reached.

    Also the steps taken, whether that error was reached, and whether it came to one of the two ends.
    """

    arrays, structure = jax.tree.flatten(start)  # diffrax fails where a skip without parameters is ()

    def velocity(t, arrays, _):
        parameters = jax.tree.unflatten(structure, arrays)
        _, slopes = pulled_back(plan.net, parameters, X, lambda z: (None, plan.loss.gradient(z, Y)))
        return jax.tree.leaves(_downhill(plan, slopes))

    def reached(t, arrays, *_, **__):
        z = outputs(plan.net, jax.tree.unflatten(structure, arrays), X)
        return plan.loss.value(z, Y) <= numbers.low_enough

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),  # pyright: ignore[reportArgumentType]
        diffrax.Tsit5(),
        *times,
        None,
        arrays,
        stepsize_controller=diffrax.PIDController(
            rtol=numbers.tolerance, atol=numbers.tolerance, dtmax=longest
        ),
        saveat=diffrax.SaveAt(t1=True),
        adjoint=diffrax.ForwardMode(),  # a plain loop: nobody differentiates through it
        event=diffrax.Event(reached),
        max_steps=plan.max_steps,
        throw=False,
    )
    final = [leaf[0] for leaf in jax.tree.leaves(solution.ys)]
    steps = solution.stats["num_accepted_steps"].astype(jnp.float64)
    return jax.tree.unflatten(structure, final), steps, reached(None, final), diffrax.is_okay(solution.result)


def _downhill(plan: Plan, gradients: Parameters) -> Parameters:
    """Minus the gradient, with the learning rate of each layer."""
    return jax.tree.map(lambda g, rate: -rate * g, gradients, rates(plan.net))


def _fastest_rate(plan: Plan, X: Array, start: Parameters) -> Array:
    """The largest eigenvalue of a member's NTK on the training set, by the power method."""

    def of(parameters):
        return outputs(plan.net, parameters, X)

    z, back = jax.vjp(of, start)

    def turn(_, state):
        direction, _ = state
        moved = jax.jvp(of, (start,), (_downhill(plan, back(direction)[0]),))[1]
        size = jnp.linalg.norm(moved)
        return moved / jnp.maximum(size, 1e-300), size

    first = jnp.cos(jnp.arange(z.size, dtype=z.dtype)).reshape(z.shape)  # no mode is likely to be orthogonal
    return jnp.maximum(jax.lax.fori_loop(0, _ITERATIONS, turn, (first, jnp.ones(())))[1], 1e-300)
