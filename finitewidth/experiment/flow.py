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

from finitewidth.experiment.descent import Trained, finished, loss_and_residual, pulled_back
from finitewidth.experiment.plan import Plan
from finitewidth.experiment.sampling import LayerParameters, Parameters, outputs, rates


class _State(NamedTuple):
    parameters: Parameters
    time: Float[Array, ""]
    active: Bool[Array, " M"]
    steps: Float[Array, " M"]


def follow(
    plan: Plan, X: Array, Y: Array, parameters: Parameters, bound: Array, observe: Callable
) -> Trained:
    """Train all members to the end of `plan`, recording what `observe` sees on the way."""

    def to_record(state: _State, target) -> tuple[_State, Any]:
        def one(start, active):
            return _integrated(plan, X, Y, start, state.time, jnp.where(active, target, state.time))

        parameters, steps, reached = jax.vmap(one)(state.parameters, state.active)
        new = _State(parameters, target, state.active & ~reached, state.steps + steps)
        return new, observe(parameters)

    members = bound.shape[0]
    start = _State(parameters, jnp.zeros(()), jnp.ones(members, bool), jnp.zeros(members))
    state, records = jax.lax.scan(to_record, start, jnp.asarray(plan.points))
    last = records["loss"][-1]
    return Trained(records, ~(last <= bound), finished(plan, last), state.steps)


def _integrated(
    plan: Plan, X: Array, Y: Array, start: Parameters, begin: Array, end: Array
) -> tuple[Parameters, Array, Array]:
    """One member from `begin` to `end`, or until its training error is reached; and whether it was."""

    def velocity(t, parameters, _):
        gradients = pulled_back(plan.net, parameters, X, lambda z: loss_and_residual(plan.loss, z, Y))[1]
        return tuple(
            LayerParameters(-rate_b * g.b, -rate_W * g.W)
            for g, (rate_b, rate_W) in zip(gradients, rates(plan.net), strict=True)
        )

    def reached(t, parameters, *_, **__):
        value = loss_and_residual(plan.loss, outputs(plan.net, parameters, X), Y)[0]
        return value - plan.floor <= (plan.training_error or 0.0)

    stops = plan.training_error is not None
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),  # pyright: ignore[reportArgumentType]
        diffrax.Tsit5(),
        begin,
        end,
        None,
        start,
        stepsize_controller=diffrax.PIDController(rtol=plan.tolerance, atol=plan.tolerance),
        saveat=diffrax.SaveAt(t1=True),
        adjoint=diffrax.ForwardMode(),  # a plain loop: nobody differentiates through it
        event=diffrax.Event(reached) if stops else None,
        max_steps=plan.max_steps,
        throw=False,
    )
    final = jax.tree.map(lambda leaf: leaf[0], solution.ys)
    is_reached = reached(None, final) if stops else jnp.zeros((), bool)
    return final, solution.stats["num_accepted_steps"].astype(jnp.float64), is_reached
