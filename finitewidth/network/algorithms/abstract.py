"""What every training algorithm is: a frozen value that answers for itself, in theory and for real networks.

Every update is theta -= learning_rate * lambda * dL/dtheta with rates lambda_b for biases and
lambda_W / n_{l-1} for weights, and the loss L is a sum over samples.
"""

import abc
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from finitewidth.network.algorithms.clock import Clock
from finitewidth.network.algorithms.symbols import Symbols
from finitewidth.network.losses.abstract import AbstractLoss

Motion = Literal["steps", "flow", "leaps"]
Force = Callable[[np.ndarray], np.ndarray]


class AbstractAlgorithm(abc.ABC):
    """A training algorithm. A subclass is a frozen dataclass in one file; only `end` is required.

    | wanted | methods |
    |---|---|
    | infinite width, to the end of training | none: every path leads to the same networks |
    | infinite width, before the end | `response`, and `at_time` for trajectories |
    | the same with a loss that is not quadratic | `advance` |
    | order 1/n | `symbols`, and `clock` for hundreds of training points |
    | real networks | `motion`, and `learning_rate_at` for steps of gradient descent |

    Theory sees an algorithm through `response` and `symbols` alone, real networks through `motion` and
    `learning_rate_at`, so that their agreement is evidence for both.

    ```python
    import dataclasses


    @dataclasses.dataclass(frozen=True)
    class FastModesOnly(fw.algorithms.AbstractAlgorithm):
        cutoff: float
        end = 1.0

        def response(self, eigenvalues):
            return np.where(eigenvalues > self.cutoff, 1 / eigenvalues, 0.0)


    fw.predict(net, X, Y, X_test, algorithm=FastModesOnly(0.5), order=0).mean
    ```
    """

    motion: ClassVar[Motion | None] = None
    """How real networks move: steps of gradient descent, gradient flow, or second-order updates ("leaps")."""

    mixes_modes: ClassVar[bool] = False
    """Whether it is not enough to know the response to single eigenvalues of the training NTK."""

    @property
    @abc.abstractmethod
    def end(self) -> float:
        """The time, or the number of steps, after which training ends; may be infinite."""

    @property
    def is_finished(self) -> bool:
        """Whether infinitely wide networks are trained to the end, where all paths meet."""
        return math.isinf(self.end)

    # --- infinite width -------------------------------------------------------------------------------

    def response(self, eigenvalues: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        r"""$f(l)$ at eigenvalues $l \ge 0$ of the training NTK: $z_d - \Theta_{dA} f(\tilde\Theta)(z_A - y)$.

        $1/l$ at the end of training (PDLT 10.35), infinite at $l = 0$.
        """
        if not self.is_finished:
            raise ValueError(
                f"algorithm={self!r} has no response to the single eigenvalues of the training NTK; use "
                "fw.GradientFlow or fw.GradientDescent, or define its method response."
            )
        with np.errstate(divide="ignore"):
            return 1 / eigenvalues

    def response_matrix(self, Theta: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
        """The response as a matrix between samples, for algorithms that mix the modes of the training NTK."""
        raise ValueError(f"algorithm={self!r} mixes no modes; use its method response.")

    def check_stable(self, largest: float, loss: AbstractLoss) -> None:
        """Refuse settings at which training diverges; `largest` is the top eigenvalue of the training NTK."""
        return None

    def at_time(self, time: float) -> "AbstractAlgorithm":
        """The same algorithm stopped at another time, or after another number of steps."""
        raise ValueError(
            f"a trajectory needs fw.GradientFlow() or fw.GradientDescent(learning_rate), got {self!r}."
        )

    def advance(self, force: Force, c: np.ndarray, duration: float) -> np.ndarray:
        r"""$c$ after training for another `duration` (time or steps), from a given $c$.

        Outputs of infinitely wide networks are $z - \Theta c$ for every loss. Gradient flow is
        $dc/dt = \mathrm{force}(c)$, and one step of descent adds the learning rate times $\mathrm{force}(c)$.
        """
        raise ValueError(
            f"algorithm={self!r} is for loss=fw.MSE(); with loss=fw.CrossEntropy() use fw.GradientFlow or "
            "fw.GradientDescent."
        )

    # --- order 1/n ------------------------------------------------------------------------------------

    def symbols(self, eigenvalues: Float[np.ndarray, " N"]) -> Symbols:
        """The algorithm at order 1/n, as functions of eigenvalues of the training NTK."""
        raise ValueError(self.refusal(1))

    @property
    def clock(self) -> Clock | None:
        """How its time passes, if it follows the gradient of the loss on a frozen NTK; then order 1/n can be
        sampled along the way, which reaches hundreds of training points."""
        return None

    def refusal(self, order: int) -> str | None:
        """Why the theory at this order does not know the algorithm, in one sentence; None where it does."""
        if order == 0 or type(self).symbols is not AbstractAlgorithm.symbols:
            return None
        return (
            f"algorithm={self!r} has no solution at order 1/n; use fw.GradientFlow(), "
            "fw.GradientDescent(learning_rate), fw.TwoStep() or fw.algorithms.Projectors(...), or order=0."
        )

    # --- real networks --------------------------------------------------------------------------------

    def learning_rate_at(self, step: Any, numbers: Mapping[str, Any]) -> Any:
        """The learning rate of one step, counted from zero, in JAX arithmetic; `numbers` as named below."""
        raise ValueError(f"algorithm={self!r} has no learning rates; define its method learning_rate_at.")

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers that may change without compiling the training loop again."""
        return {}

    @property
    def pattern(self) -> "AbstractAlgorithm":
        """The algorithm with these numbers and its end left open, for which the training loop is compiled."""
        return self

    @property
    def mini_batch(self) -> int | None:
        """The number of samples in a randomly drawn mini-batch; None for all samples in every step."""
        return None

    # --- stores ---------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """The algorithm in the configuration of a store: equal for equal algorithms."""
        return repr(self)


def as_algorithm(value: object) -> AbstractAlgorithm:
    """The value itself, if it is an algorithm."""
    if isinstance(value, AbstractAlgorithm):
        return value
    raise ValueError(
        "algorithm must be fw.GradientFlow(), fw.GradientDescent(learning_rate), fw.Newton(), fw.TwoStep(), "
        f"fw.algorithms.Schedule(updates) or another fw.algorithms.AbstractAlgorithm, got {value!r}."
    )


def check_algorithm(value: object, *, order: int) -> AbstractAlgorithm:
    """An algorithm that the theory knows at this order."""
    algorithm = as_algorithm(value)
    reason = algorithm.refusal(order)
    if reason is not None:
        raise ValueError(reason)
    return algorithm
