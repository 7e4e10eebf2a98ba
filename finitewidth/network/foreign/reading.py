"""Models of other libraries as networks: the one place where the argument `net` is read.

A model is told by the package that its class comes from, so that no package is imported before a user has.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from finitewidth.network.foreign.graph import MissingInputs
from finitewidth.network.network import Network

_Function = TypeVar("_Function", bound=Callable)


def network_of(model: Any, inputs: Any = None, *, parameters: Any = None) -> Network:
    r"""The network that a model of PyTorch, Equinox or Flax is, with the initialization that it has.

    Linear layers, convolutions over one or two axes, layer norms, average pools, flattening, dropout and skip
    connections, with and without a fixed factor, become layers of the library; activations are recognized by
    the values that they compute. `C_b` and `C_W` are the mean squares of biases and of weights times their
    number of inputs, as measured. Learning rates are those of gradient descent with one rate for all
    parameters ($\lambda_W$ is the number of inputs, $\lambda_b = 1$), and zero for what is frozen. Dropout is
    read as the mode of the model has it: a PyTorch model in evaluation, and any model of JAX, has none.
    Gains of layer norms in models of JAX count as fixed.

    Args:
        model: A model. If it does not hold its parameters it is a Flax module, or a function of parameters
            and inputs that is written with JAX.
        inputs: A batch as the model takes it. It is needed where the model does not say how large inputs are,
            such as in front of a convolution. Networks have channels last, whatever the model has.
        parameters: The parameters of a model that does not hold them.

    Returns:
        The network. What is in no network of the library raises an error that names it.

    ```python
    import equinox as eqx
    import jax

    fw.network_of(eqx.nn.MLP(2, 1, 64, 2, key=jax.random.key(0))).layers
    ```
    """
    if isinstance(model, Network):
        return model
    packages = {kind.__module__.split(".")[0] for kind in type(model).__mro__}
    if "torch" in packages:
        from finitewidth.network.foreign.torch_read import read

        return read(model, inputs, with_dropout=True).net
    if packages & {"equinox", "flax"} or parameters is not None:
        from finitewidth.network.foreign.jax_read import read_model

        return read_model(model, inputs, parameters)
    raise ValueError(
        f"net must be an fw.MLP, an fw.Network or a model of PyTorch, Equinox or Flax, got "
        f"{type(model).__name__}; use fw.MLP(widths, activation)."
    )


def takes_models(function: _Function) -> _Function:
    """Let a function whose first argument is the network `net` take models of other libraries as well.

    A model that does not say how large its inputs are is read with those of the next argument.
    """

    @functools.wraps(function)
    def reading(*args: Any, **options: Any) -> Any:
        X = options.get("X", options.get("X_train"))
        if args:
            model, *others = args
            return function(_network_for(model, others[0] if others else X), *others, **options)
        if "net" in options:
            options["net"] = _network_for(options["net"], X)
        return function(**options)

    return reading  # type: ignore[return-value]


def _network_for(model: Any, X: Any) -> Network:
    """The network of a model, for inputs with channels last, as networks take them."""
    try:
        return network_of(model)
    except MissingInputs:
        numbers = X.detach().cpu() if hasattr(X, "detach") else X  # of a tensor with gradients or on a device
        batch = np.atleast_1d(np.asarray(numbers))[:2]
        if batch.ndim < 2:
            raise
        flax = any(kind.__module__.startswith("flax") for kind in type(model).__mro__)
        return network_of(model, batch if flax else np.moveaxis(batch, -1, 1))
