r"""Second-order updates: $\theta \leftarrow \theta - \lambda\, z'_a (\tilde H^{-1})_{ab}\, (z - y)_b$.

The inverse is that of each network's own NTK on the training set at initialization. The first update fits an
infinitely wide network (PDLT section 10.2.2); a second one with the same inverse and the new gradients leaves
a residual beyond order 1/n (PDLT section inf.2.2, where it is the inverse of the mean: a difference beyond
that order).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from finitewidth.experiment.directions import outputs_and_ntk
from finitewidth.experiment.ensemble.descent import moved, pulled_back
from finitewidth.experiment.ensemble.plan import Numbers, Plan
from finitewidth.experiment.ensemble.trainer import AbstractTrainer, Members, Trained, finished


class SecondOrder(AbstractTrainer):
    """As many second-order updates as the end of the plan says."""

    needs_squared_error = True
    inverts_ntk = True

    def pattern(self, plan: Plan) -> Plan:
        return plan

    def failure(self, plan: Plan, members: int, X: np.ndarray, key_data: np.ndarray) -> str:
        return (
            "X_train gives every member a singular NTK, which these updates invert; remove repeated inputs "
            "or widen the network."
        )

    def train(
        self, plan: Plan, numbers: Numbers, X: Array, Y: Array, members: Members, observe: Callable
    ) -> Trained:
        def factorized(one):
            H = outputs_and_ntk(plan.net, one, X).H
            size = H.shape[0] * H.shape[1]
            return jnp.linalg.cholesky(H.reshape(size, size))

        def update(one, factor):
            def residual(z):
                solved = jax.scipy.linalg.cho_solve((factor, True), (z - Y).T.reshape(-1))
                return 0.0, solved.reshape(z.shape[1], z.shape[0]).T

            return moved(plan.net, one, pulled_back(plan.net, one, X, residual)[1], 1.0)

        factors = jax.vmap(factorized)(members.parameters)
        states = [members.parameters]
        for _ in range(int(plan.points[-1])):
            states.append(jax.vmap(update)(states[-1], factors))
        observed = [observe(states[int(point)]) for point in plan.points]
        records = jax.tree.map(lambda *leaves: jnp.stack(leaves), *observed)
        last = records["loss"][-1]
        steps = jnp.full(last.shape, float(plan.points[-1]))
        return Trained(records, ~(last <= members.bound), finished(numbers, last), steps)
