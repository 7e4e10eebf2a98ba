"""Taylor models of a function of parameters around a point: linear, quadratic and cubic in the parameters."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from finitewidth.experiment.functions import Function, as_function, as_parameters


def taylor(f: Function, parameters: Any, order: int = 2) -> Callable[[Any, Any], Array]:
    r"""The Taylor expansion of a model around given parameters,

    $$z(\theta) \approx \sum_{k=0}^{\mathrm{order}} \frac{1}{k!} z^{(k)}(\theta_0)[(\theta - \theta_0)^k]$$

    (PDLT sections 10.1 and 11.4, and chapter infinity).

    Args:
        f: A network, or any function `f(parameters, X)` that JAX can differentiate.
        parameters: $\theta_0$, any structure of arrays.
        order: 1 (the linearized model), 2 or 3.

    Returns:
        A function of parameters $\theta$ and inputs X.

    ```python
    start = fw.empirical.initialize(net, key=0)
    fw.empirical.taylor(net, start, order=3)(start, X)  # the outputs of the network itself
    ```
    """
    if order not in (1, 2, 3):
        raise ValueError(f"order must be 1, 2 or 3, got {order!r}; use order=1 for the linearized network.")
    function, initial = as_function(f), as_parameters(parameters)

    def model(parameters: Any, X: Any) -> Array:
        change = _change(parameters, initial)

        def towers(k: int) -> Callable:
            if k == 0:
                return lambda theta: (function(theta, X),)
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


def _change(parameters: Any, initial: Any) -> Any:
    if jax.tree.structure(parameters) != jax.tree.structure(initial):
        raise ValueError(
            "parameters must have the structure of those around which the model was expanded, got "
            f"{jax.tree.structure(parameters)} for {jax.tree.structure(initial)}."
        )
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype) - old, parameters, initial)
