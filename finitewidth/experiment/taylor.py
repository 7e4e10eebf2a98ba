"""Taylor models of a network around its initialization: linear, quadratic and cubic in the parameters."""

import math
from collections.abc import Callable

import jax
from jaxtyping import Array, Float

from finitewidth.experiment.sampling import Parameters, outputs
from finitewidth.network.network import Network


def taylor(net: Network, initial: Parameters, order: int) -> Callable:
    r"""The function (parameters, X) -> outputs (N, n_L) of the expansion around `initial`,

    $$z(\theta) \approx \sum_{k=0}^{\mathrm{order}} \frac{1}{k!} z^{(k)}(\theta_0)[(\theta - \theta_0)^k],$$

    with order 1 (the linearized network), 2 or 3 (PDLT sections 10.1 and 11.4, and chapter infinity).
    """
    if order not in (1, 2, 3):
        raise ValueError(f"order must be 1, 2 or 3, got {order!r}; use order=1 for the linearized network.")

    def model(parameters: Parameters, X: Float[Array, "N n0"]) -> Float[Array, "N nL"]:
        change = jax.tree.map(lambda new, old: new - old, parameters, initial)

        def towers(k: int) -> Callable:
            if k == 0:
                return lambda theta: (outputs(net, theta, X),)
            lower = towers(k - 1)

            def values_and_derivative(theta):
                values, tangents = jax.jvp(lower, (theta,), (change,))
                return (*values, tangents[-1])

            return values_and_derivative

        terms = towers(order)(initial)
        value = terms[0]
        for k, term in enumerate(terms[1:], start=1):
            value = value + term / math.factorial(k)
        return value

    return model
