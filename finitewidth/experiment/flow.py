r"""Gradient flow of many networks at once, $d\theta/dt = -\lambda\, dL/d\theta$, each with its own steps.

Integrated by diffrax (Kidger 2021) with the embedded Runge-Kutta pair of Tsitouras (2011), whose steps keep
the estimated local error below the tolerance, absolute and relative to each parameter.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from finitewidth.experiment.descent import Members, Trained, loss_and_residual, pulled_back
from finitewidth.experiment.plan import Numbers, Plan
from finitewidth.experiment.sampling import LayerParameters, Parameters, outputs, rates


class _State(NamedTuple):
    parameters: Parameters
    time: Float[Array, ""]
    active: Bool[Array, " M"]
    steps: Float[Array, " M"]


def follow(plan: Plan, numbers: Numbers, X: Array, Y: Array, members: Members, observe: Callable) -> Trained:
    """Train all members to the end of the plan, recording what `observe` sees on the way."""

    def to_record(state: _State, target) -> tuple[_State, Any]:
        def one(start, active):
            end = jnp.where(active, target, state.time)
            return _integrated(plan, numbers, X, Y, start, (state.time, end))

        parameters, steps, reached = jax.vmap(one)(state.parameters, state.active)
        new = _State(parameters, target, state.active & ~reached, state.steps + steps)
        return new, observe(parameters)

    count = members.bound.shape[0]
    start = _State(members.parameters, jnp.zeros(()), jnp.ones(count, bool), jnp.zeros(count))
    state, records = jax.lax.scan(to_record, start, numbers.points)
    last = records["loss"][-1]
    return Trained(records, ~(last <= members.bound), last <= numbers.low_enough, state.steps)


def _integrated(
    plan: Plan, numbers: Numbers, X: Array, Y: Array, start: Parameters, times: tuple[Array, Array]
) -> tuple[Parameters, Array, Array]:
    """One member from one time to another, or until its training error is reached; and whether it was."""

    def velocity(t, parameters, _):
        gradients = pulled_back(plan.net, parameters, X, lambda z: loss_and_residual(plan.loss, z, Y))[1]
        return tuple(
            LayerParameters(-rate_b * g.b, -rate_W * g.W)
            for g, (rate_b, rate_W) in zip(gradients, rates(plan.net), strict=True)
        )

    def reached(t, parameters, *_, **__):
        value = loss_and_residual(plan.loss, outputs(plan.net, parameters, X), Y)[0]
        return value <= numbers.low_enough

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),  # pyright: ignore[reportArgumentType]
        diffrax.Tsit5(),
        *times,
        None,
        start,
        stepsize_controller=diffrax.PIDController(rtol=numbers.tolerance, atol=numbers.tolerance),
        saveat=diffrax.SaveAt(t1=True),
        adjoint=diffrax.ForwardMode(),  # a plain loop: nobody differentiates through it
        event=diffrax.Event(reached),
        max_steps=plan.max_steps,
        throw=False,
    )
    final = jax.tree.map(lambda leaf: leaf[0], solution.ys)
    return final, solution.stats["num_accepted_steps"].astype(jnp.float64), reached(None, final)
