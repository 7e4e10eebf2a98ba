"""Any function of parameters and inputs: networks of the package, and models of other libraries."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.core.keys import as_key
from finitewidth.core.precision import require_double_precision
from finitewidth.experiment.sampling import Parameters, draw, outputs, real_network
from finitewidth.network.network import Network

Function = Network | Callable[[Any, Any], Array]  # of parameters and inputs, samples along the first axis


def initialize(net: Network, key: Any) -> Parameters:
    """The parameters of one network at initialization.

    Args:
        net: The network.
        key: The randomness: a number or a key of JAX.

    Returns:
        A structure of arrays for `fw.empirical.apply`, with an entry for each layer that has parameters.

    ```python
    fw.empirical.apply(net, fw.empirical.initialize(net, key=0), X)
    ```
    """
    require_double_precision()
    return draw(net, as_key(key))


def apply(net: Network, parameters: Parameters, X: ArrayLike) -> Float[Array, "N nL"]:
    """The outputs of one network with given parameters.

    Works under `jax.jit`, `jax.vmap` and `jax.grad`.

    Args:
        net: The network.
        parameters: Those of `fw.empirical.initialize`, perhaps trained.
        X: Inputs (N, n_0).

    Returns:
        Outputs (N, n_L).

    ```python
    fw.empirical.apply(net, fw.empirical.initialize(net, key=0), X)  # (N, n_L)
    ```
    """
    require_double_precision()
    if isinstance(X, jax.Array) and X.shape[1:] == net.input_shape:  # perhaps traced
        return outputs(net, parameters, X)
    return outputs(net, parameters, jnp.asarray(as_inputs(X, net.input_shape)))


def as_function(f: Function) -> Callable[[Any, Any], Array]:
    """The function of parameters and inputs that a network or a function stands for."""
    if isinstance(f, Network):
        real_network(f).check_fixed()
        return functools.partial(apply, f)
    if not callable(f):
        raise ValueError(f"f must be a function of parameters and inputs or an fw.Network, got {f!r}.")
    return f


def as_parameters(parameters: Any) -> Any:
    """Parameters in double precision, or an error that says how to choose those that learn."""

    def promoted(leaf):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise ValueError(
                f"parameters has a leaf of type {jnp.result_type(leaf)}, which has no derivatives; pass what "
                "learns only, such as the first part of eqx.partition(model, eqx.is_inexact_array)."
            )
        return jnp.asarray(leaf, jnp.float64)

    try:
        promoted_tree = jax.tree.map(promoted, parameters)
    except TypeError:
        raise ValueError(
            "parameters has a leaf that is no array; pass what learns only, such as the first part of "
            "eqx.partition(model, eqx.is_inexact_array)."
        ) from None
    if not jax.tree.leaves(promoted_tree):
        raise ValueError("parameters has no arrays; pass the parameters of the model.")
    return promoted_tree
