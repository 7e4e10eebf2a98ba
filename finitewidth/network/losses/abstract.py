"""What every loss is: a frozen value, a sum over samples and never a mean."""

import abc

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class AbstractLoss(abc.ABC):
    """A loss. A subclass is a frozen dataclass in one file; only `value` is required.

    | wanted | methods |
    |---|---|
    | real networks, expected test loss, infinite width until a finite time | `value` |
    | learning rates and times refused where training would fail | `largest_curvature` |
    | infinite width, to the end of training | `minimizer`, and `unmoved` where it moves not all outputs |
    | real networks trained until `training_error` | `smallest`, where the smallest loss is not zero |

    Order 1/n of a loss other than the squared error is a replay of training in a finite number of steps; the
    loss must be smooth, with three derivatives.

    ```python
    import dataclasses
    import jax.numpy as jnp


    @dataclasses.dataclass(frozen=True)
    class LogCosh(fw.losses.AbstractLoss):
        def value(self, z, y):
            return jnp.sum(jnp.log(jnp.cosh(z - y)))


    fw.predict(net, X, Y, X_test, order=0).test_loss(Y_test, loss=LogCosh()).total
    ```
    """

    @abc.abstractmethod
    def value(self, z: Float[Array, "*samples n_L"], y: Float[Array, "*samples n_L"]) -> Float[Array, ""]:
        """The loss of outputs z with targets y, summed over all axes, in JAX arithmetic."""

    def gradient(
        self, z: Float[Array, "*samples n_L"], y: Float[Array, "*samples n_L"]
    ) -> Float[Array, "*samples n_L"]:
        """dL/dz, the residual that training sends back."""
        return jax.grad(self.value)(z, y)

    @property
    def largest_curvature(self) -> float | None:
        """The largest eigenvalue of d^2L/dz^2 for one sample, or a bound on it; None if none is known."""
        return None

    @property
    def is_squared_error(self) -> bool:
        """Whether this is 1/2 sum (z - y)^2, for which the theory is Gaussian and knows order 1/n."""
        return False

    def check_targets(self, Y: Float[np.ndarray, "N n_L"], *, name: str = "Y_train") -> None:
        """Refuse targets for which the loss has no meaning."""
        return None

    def smallest(self, Y: Float[np.ndarray, "N n_L"]) -> float:
        """The smallest possible loss."""
        return 0.0

    def minimizer(self, Y: Float[np.ndarray, "N n_L"]) -> Float[np.ndarray, "N n_L"]:
        """The outputs with the smallest loss, where training ends."""
        raise ValueError(
            f"loss={self!r} does not say which outputs minimize it; stop at a finite time, or define its "
            "method minimizer."
        )

    def unmoved(self, outputs: int) -> Float[np.ndarray, "n_L n_L"] | None:
        """The projector on components of the outputs that training never moves; None if it moves all."""
        return None

    def probabilities_in_jax(self, z: Float[Array, "*samples n_L"]) -> Float[Array, "*samples n_L"] | None:
        """Probabilities of the classes in JAX arithmetic, where outputs stand for classes; else None."""
        return None

    def probabilities(self, z: Float[np.ndarray, "*samples n_L"]) -> Float[np.ndarray, "*samples n_L"] | None:
        """The same as an array of NumPy."""
        found = self.probabilities_in_jax(jnp.asarray(z))
        return None if found is None else np.asarray(found)


def as_loss(value: object) -> AbstractLoss:
    """The value itself, if it is a loss."""
    if isinstance(value, AbstractLoss):
        return value
    raise ValueError(
        f"loss must be fw.MSE(), fw.CrossEntropy() or another fw.losses.AbstractLoss, got {value!r}."
    )
