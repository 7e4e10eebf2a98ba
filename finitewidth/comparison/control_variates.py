"""Control variates for ensembles: what infinitely wide networks make of the initial outputs of a member.

Networks with a reflected last layer are equally likely, so that any odd function of initial outputs has mean
zero at every width. The odd part of training at infinite width is one for every loss.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.experiment.ensemble.plan import Control
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, as_algorithm
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.fitting import checked_data, fit, ntk
from finitewidth.training.infinite.solver import largest_eigenvalue


def control_variate(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike,
    algorithm: AbstractAlgorithm,
    loss: AbstractLoss = MSE(),
) -> Control:
    """A control variate for `fw.train_ensemble(control=...)`, whose exact mean is zero.

    For the squared error it is z - Theta F z, the part of the initial outputs z that training would keep at
    infinite width. Members differ mostly by this part, so that subtracting it leaves a smaller variance. For
    other losses it is the odd part in z of what training at infinite width makes of z. Batches that each
    network draws for itself are replaced by all samples.

    Args:
        net: The network.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0).
        algorithm: The algorithm that will train the ensemble.
        loss: The loss that it will be trained on.

    Returns:
        The argument `control` of `fw.train_ensemble`.

    ```python
    descent = fw.GradientDescent(0.1, steps=20)
    control = fw.control_variate(net, X, Y, X_test, descent)
    ensemble = fw.train_ensemble(
        net, X, Y, X_test, algorithm=descent, members=50, key=0, control=control
    )
    ensemble.controlled.mean.stderr
    ```
    """
    algorithm, loss = as_algorithm(algorithm), as_loss(loss)
    if loss.is_squared_error and not algorithm.draws_batches:
        fitted = fit(net, X_train, Y_train, algorithm=algorithm)
        X = np.concatenate([fitted.X, as_inputs(X_test, net.input_shape, name="X_test")])
        return Control(_Kept(fitted.gain(X)), np.zeros((X.shape[0], net.outputs)), linear=True)
    if algorithm.motion != "steps" or algorithm.is_finished:
        raise ValueError(
            f"a control variate for loss={loss!r} replays training step by step, got "
            f"algorithm={algorithm!r}; use fw.GradientDescent(learning_rate, steps) with a finite number of "
            "steps, or no control."
        )
    X, Y = checked_data(net, X_train, Y_train)
    loss.check_targets(Y)
    X = np.concatenate([X, as_inputs(X_test, net.input_shape, name="X_test")])
    Theta = ntk(kernels(net, X))[:, : len(Y)]
    algorithm.check_stable(largest_eigenvalue(Theta[: len(Y)]), loss)
    algorithm.check_batches(len(Y))
    one = np.ones((1, int(algorithm.end), len(Y)))
    masks = one if algorithm.draws_batches else algorithm.masks(len(Y))
    odd = _OddPart(Theta, Y, masks[0], algorithm, loss)
    return Control(odd, np.zeros((len(X), net.outputs)), linear=loss.is_squared_error)


@dataclass(frozen=True, eq=False)
class _Kept:
    """z - Theta F z, where F z takes the training samples only; a class, because classes can be pickled."""

    gain: np.ndarray  # (N, N_A)

    # controls with equal gains are equal, so that JAX compiles them once
    def __eq__(self, other) -> bool:
        return isinstance(other, _Kept) and np.array_equal(self.gain, other.gain)

    def __hash__(self) -> int:
        return hash((self.gain.shape, self.gain.tobytes()))

    def __call__(self, z):
        return z - self.gain @ z[: self.gain.shape[1]]


@dataclass(frozen=True, eq=False)
class _OddPart:
    """Half the difference of training at infinite width from z and from -z."""

    Theta: Float[np.ndarray, "N N_A"]
    Y: Float[np.ndarray, "N_A n_L"]
    masks: Float[np.ndarray, "steps N_A"]
    algorithm: AbstractAlgorithm
    loss: AbstractLoss

    @property
    def _values(self) -> tuple[Any, ...]:
        arrays = tuple(array.tobytes() for array in (self.Theta, self.Y, self.masks))
        return (self.Theta.shape, *arrays, self.algorithm, self.loss)

    def __eq__(self, other) -> bool:
        return isinstance(other, _OddPart) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    def __call__(self, z: Float[Array, "N n_L"]) -> Float[Array, "N n_L"]:
        return (self._trained(z) - self._trained(-z)) / 2

    def _trained(self, z):
        count, algorithm, masks = len(self.Y), self.algorithm, jnp.asarray(self.masks)
        numbers = {name: jnp.asarray(value) for name, value in algorithm.numbers.items()}

        def one_step(step, state):
            outputs = z[:count] - self.Theta[:count] @ state[0]
            force = masks[step][:, None] * self.loss.gradient(outputs, jnp.asarray(self.Y))
            return algorithm.accumulate(state, force, jnp.asarray(step, jnp.float64), numbers)

        start = algorithm.begin(jnp.zeros((count, z.shape[1])))
        state = jax.lax.fori_loop(0, len(self.masks), one_step, start)
        return z - self.Theta @ state[0]
