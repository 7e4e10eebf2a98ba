r"""Linear models and kernel methods, and the duality between them (PDLT section 10.4).

A linear model $z = W \phi(x)$ of given features is solved by inverting a matrix between features, or the
kernel $k_{12} = \sum_i \phi_i(x_1) \phi_i(x_2)$ between samples (10.123)-(10.131). The derivatives
$\sqrt{\lambda_\mu}\, dz/d\theta_\mu$ of one network at initialization are such features (10.137); their
kernel is that network's NTK and tends to Theta as the width grows.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.core.keys import as_key
from finitewidth.core.memory import require_memory
from finitewidth.network.network import Network
from finitewidth.training.infinite.conditioning import largest_condition
from finitewidth.training.infinite.solver import Singular, inverse

Features = Callable[[np.ndarray], np.ndarray]  # from inputs (N, n_0) to features (N, n_f)


@shown("weights")
@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear model with trained weights: the data are forgotten.

    `fw.textbook.fit_linear_model` makes it.

    ```python
    model = fw.textbook.fit_linear_model(fw.textbook.with_constant(np.tanh), X, Y)
    model.predict(X_test), model.weights
    ```
    """

    features: Features = field(repr=False)  # function from inputs to features
    weights: Float[np.ndarray, "n_f n_L"]  # one for each feature and output

    def predict(self, X: ArrayLike) -> Float[np.ndarray, "M n_L"]:
        """W phi(x), PDLT (10.124)."""
        return _evaluate(self.features, X) @ self.weights


@shown("weights", "condition")
@dataclass(frozen=True, eq=False)
class KernelMachine:
    """The dual of a linear model: the training features and one weight for each training sample.

    `fw.textbook.fit_kernel_machine` makes it.

    ```python
    machine = fw.textbook.fit_kernel_machine(fw.textbook.with_constant(np.tanh), X, Y)
    machine.predict(X_test), machine.condition
    ```
    """

    features: Features = field(repr=False)  # function from inputs to features
    training_features: Float[np.ndarray, "N n_f"] = field(repr=False)  # features of the training inputs
    weights: Float[np.ndarray, "N n_L"]  # one for each training sample and output
    condition: float  # of the kernel

    def predict(self, X: ArrayLike) -> Float[np.ndarray, "M n_L"]:
        """k_{beta A} k~^-1 y, PDLT (10.131)."""
        return (_evaluate(self.features, X) @ self.training_features.T) @ self.weights


def with_constant(features: Features) -> Features:
    """The same features and phi_0 = 1, whose weight is a bias.

    Args:
        features: A function from inputs (N, n_0) to features (N, P).

    Returns:
        A function from inputs to features (N, 1 + P).

    ```python
    fw.textbook.with_constant(np.tanh)(X)  # (N, 1 + n_0)
    ```
    """
    return lambda X: np.concatenate([np.ones((len(X), 1)), features(X)], axis=1)


def fit_linear_model(
    features: Features, X_train: ArrayLike, Y_train: ArrayLike, *, ridge: float = 0.0
) -> LinearModel:
    """Weights of least squares, PDLT (10.123); of least norm where there are more features than samples.

    Args:
        features: A function from inputs (N, n_0) to features (N, P).
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        ridge: 2a of PDLT (10.127). Without it the weights of overparameterized models are the limit a -> 0+.

    Returns:
        The trained model, whose `predict` takes test inputs.

    ```python
    fw.textbook.fit_linear_model(fw.textbook.with_constant(np.tanh), X, Y).predict(X_test)
    ```
    """
    phi, Y = _training_data(features, X_train, Y_train, ridge)
    if ridge == 0:
        return LinearModel(features, np.linalg.lstsq(phi, Y, rcond=None)[0])
    M = phi.T @ phi
    M.flat[:: M.shape[0] + 1] += ridge
    return LinearModel(features, scipy.linalg.solve(M, phi.T @ Y, assume_a="pos"))


def fit_kernel_machine(
    features: Features, X_train: ArrayLike, Y_train: ArrayLike, *, ridge: float = 0.0
) -> KernelMachine:
    """The model of `fit_linear_model` by the kernel of its features.

    Args:
        features: A function from inputs (N, n_0) to features (N, P). Without a ridge there must be at least
            as many features as samples.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        ridge: 2a of PDLT (10.127).

    Returns:
        The trained model, whose `predict` takes test inputs.

    ```python
    fw.textbook.fit_kernel_machine(fw.textbook.with_constant(np.tanh), X, Y).predict(X_test)
    ```
    """
    phi, Y = _training_data(features, X_train, Y_train, ridge)
    if ridge == 0 and phi.shape[1] < phi.shape[0]:
        raise ValueError(
            f"{phi.shape[1]} features for {phi.shape[0]} samples make a singular kernel; "
            "pass a ridge, or use fw.textbook.fit_linear_model."
        )
    try:
        solved = inverse(phi @ phi.T, ridge)
    except Singular as singular:
        raise ValueError(
            f"the kernel of the features has condition number {singular.condition:.1e}, above "
            f"{largest_condition(len(phi)):.0e}; pass a ridge, or drop repeated samples."
        ) from None
    return KernelMachine(features, phi, solved.apply(Y), solved.condition)


def _evaluate(features: Features, X) -> np.ndarray:
    phi = np.asarray(features(np.asarray(X)), dtype=np.float64)
    if phi.ndim != 2 or phi.shape[0] != len(X) or not np.isfinite(phi).all():
        raise ValueError(
            f"features must give finite numbers of shape ({len(X)}, n_f), got shape {phi.shape}; check them."
        )
    return phi


def _training_data(features: Features, X, Y, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    if not (np.isscalar(ridge) and np.isfinite(ridge) and ridge >= 0):  # type: ignore[arg-type]
        raise ValueError(f"ridge must be zero or a positive number, got {ridge!r}.")
    phi, Y = _evaluate(features, X), np.asarray(Y, dtype=np.float64)
    if Y.ndim != 2 or Y.shape[0] != phi.shape[0] or not np.isfinite(Y).all():
        raise ValueError(f"Y_train must be finite with shape ({phi.shape[0]}, n_L), got shape {Y.shape}.")
    return phi, Y


def random_features(net: Network, *, key: Any = 0, output: int = 0) -> Features:
    r"""$\sqrt{\lambda_\mu}\, dz_i/d\theta_\mu$ of one network drawn at initialization, for output i (10.137).

    The kernel of these features is $\hat H_{ii}$ of that network (10.140).

    Args:
        net: The network.
        key: The randomness: a number or a key of JAX.
        output: The output i.

    Returns:
        A function from inputs to features.

    ```python
    phi = fw.textbook.random_features(net, key=0)
    phi(X) @ phi(X).T  # the NTK of that network
    ```
    """
    if not 0 <= output < net.widths[-1]:
        raise ValueError(f"output must lie between 0 and {net.widths[-1] - 1}, got {output!r}.")
    parameters = _draw(net, as_key(key))

    def features(X: np.ndarray) -> np.ndarray:
        X = as_inputs(X, net.widths[0])
        require_memory(
            3 * 8 * X.shape[0] * net.parameter_count,
            f"{net.parameter_count} features of {X.shape[0]} inputs",
            "use a narrower network or fewer inputs",
        )
        columns = []
        for layer, (b, W) in enumerate(_gradients(net, output, parameters, jnp.asarray(X))):
            columns.append(np.sqrt(net.lambda_b[layer]) * np.asarray(b))
            scaled = np.sqrt(net.lambda_W[layer] / net.widths[layer]) * np.asarray(W)
            columns.append(scaled.reshape(X.shape[0], -1))
        return np.concatenate(columns, axis=1)

    return features


@functools.partial(jax.jit, static_argnames=("net", "output"))
def _gradients(net: Network, output: int, parameters, X: jax.Array):
    """dz_i/dtheta at every input, in the form of the parameters."""
    return jax.vmap(jax.grad(lambda p, x: _output(net, p, x)[output]), in_axes=(None, 0))(parameters, X)


def _draw(net: Network, key) -> list[tuple[jax.Array, jax.Array]]:
    layers = []
    for layer, (fan_in, fan_out) in enumerate(zip(net.widths, net.widths[1:], strict=False)):
        bias_key, weight_key = jax.random.split(jax.random.fold_in(key, layer))
        b = np.sqrt(net.C_b[layer]) * jax.random.normal(bias_key, (fan_out,), dtype=jnp.float64)
        W = jax.random.normal(weight_key, (fan_out, fan_in), dtype=jnp.float64)
        layers.append((b, np.sqrt(net.C_W[layer] / fan_in) * W))
    return layers


def _output(net: Network, parameters, x: jax.Array) -> jax.Array:
    signal = x
    for layer, (b, W) in enumerate(parameters):
        z = b + W @ signal
        signal = net.activations[layer](z) if layer < net.depth - 1 else z
    return signal
