"""What every training algorithm is: a frozen value that answers for itself, in theory and for real networks.

Gradients are lambda dL/dtheta with rates lambda_b for biases and lambda_W / n_{l-1} for weights, and the loss
L is a sum over samples.
"""

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from finitewidth.core.keys import as_key
from finitewidth.network.algorithms.batches import mask_of
from finitewidth.network.algorithms.clock import Clock
from finitewidth.network.algorithms.symbols import Symbols
from finitewidth.network.losses.abstract import AbstractLoss

Motion = Literal["steps", "flow", "second order"]
Force = Callable[[np.ndarray, int], np.ndarray]
State = tuple[Any, ...]
_NONLINEAR = ("adam", "adagrad", "adadelta", "rmsprop", "lion", "sign", "lamb")


class AbstractAlgorithm(abc.ABC):
    """A training algorithm. A subclass is a frozen dataclass in one file; only `end` is required.

    | wanted | methods |
    |---|---|
    | infinite width, to the end of training | none: every path leads to the same networks |
    | steps along gradients, in theory and real networks | `motion`, and `learning_rate_at` or `accumulate` |
    | trajectories | `at_time` |
    | another motion before its end, at infinite width | `response`, or `replay` for any loss |
    | another motion at order 1/n | `symbols`, and `clock` for hundreds of training points |

    Theory accumulates coefficients of gradients and real networks the gradients themselves, by the same
    method `accumulate`; closed forms are in `response` and `symbols`.

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
    """How real networks move: steps of gradient descent, gradient flow, or second-order updates."""

    draws_batches: ClassVar[bool] = False
    """Whether every network has random batches of its own; then it has a `batch_size`."""

    batch_size: int

    @property
    def independent_batches(self) -> bool:
        """Whether random batches of different steps are independent, of samples drawn one by one."""
        return False

    @property
    def mixes_modes(self) -> bool:
        """Whether it is not enough to know the response to single eigenvalues of the training NTK."""
        return False

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
        if self.is_finished:
            with np.errstate(divide="ignore"):
                return 1 / eigenvalues
        if self.motion == "steps":
            return self._accumulated(lambda F, step: 1 - eigenvalues * F, np.zeros_like(eigenvalues))
        raise ValueError(
            f"algorithm={self!r} has no response to the single eigenvalues of the training NTK; use "
            "fw.GradientFlow or fw.GradientDescent, or define its method response."
        )

    def response_matrix(self, Theta: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
        """The response as a matrix between samples, for algorithms that mix the modes of the training NTK."""
        masks, one = self.masks(len(Theta)), np.eye(len(Theta))

        def force(F: np.ndarray, step: int) -> np.ndarray:
            return masks[0, step][:, None] * (one - Theta @ F)

        return self._accumulated(force, np.zeros_like(Theta))

    def _accumulated(self, force: Force, start: np.ndarray) -> np.ndarray:
        return self.replay(force, start, (self.end,))[0]

    def check_stable(self, largest: float, loss: AbstractLoss) -> None:
        """Refuse settings at which training diverges; `largest` is the top eigenvalue of the training NTK."""
        return None

    def at_time(self, time: float) -> "AbstractAlgorithm":
        """The same algorithm stopped at another time, or after another number of steps."""
        raise ValueError(
            f"a trajectory needs fw.GradientFlow() or fw.GradientDescent(learning_rate), got {self!r}."
        )

    def replay(self, force: Force, start: np.ndarray, ends: Sequence[float]) -> list[np.ndarray]:
        r"""What has been accumulated of `force(c, step)` at ascending times or steps, from c = 0.

        Outputs of infinitely wide networks are $z - \Theta c$ for every loss. Gradient flow is
        $dc/dt = \mathrm{force}(c)$.
        """
        if self.motion != "steps":
            raise ValueError(
                f"algorithm={self!r} is for loss=fw.MSE(); with loss=fw.CrossEntropy() use fw.GradientFlow "
                "or fw.GradientDescent."
            )
        state, numbers, found = self.begin(start), self.numbers, []
        for end, before in zip(ends, (0, *ends), strict=False):
            for step in range(int(before), int(end)):
                with np.errstate(over="ignore", invalid="ignore"):
                    state = self.accumulate(state, force(state[0], step), np.float64(step), numbers)
                if not np.isfinite(state[0]).all():
                    raise ValueError(f"{self!r} diverges at step {step}; lower its learning rates.")
            found.append(np.asarray(state[0]))
        return found

    # --- steps along gradients ------------------------------------------------------------------------

    @property
    def memory(self) -> int:
        """How many arrays an accumulator keeps beside what it has summed, such as a velocity."""
        return 0

    def begin(self, zero: Any) -> State:
        """An accumulator before the first step."""
        return (zero,) * (1 + self.memory)

    def accumulate(self, state: State, x: Any, step: Any, numbers: Mapping[str, Any]) -> State:
        """One step of a sum over past steps: (sum, *memory) after the signal x; `step` counts from 0.0.

        It is linear in state and signal. Parameters move by minus such a sum of gradients, and the theory
        sums everything else that grows with training in the same way.
        """
        (total,) = state
        return (total + self.learning_rate_at(step, numbers) * x,)

    def batch(self, step: Any, key: Any, numbers: Mapping[str, Any], count: int) -> tuple[Any, Any] | None:
        """The samples of one step and their weights, in JAX arithmetic; None for all, with weight 1."""
        return None

    def check_batches(self, count: int) -> None:
        """Refuse batches that do not fit the number of training samples."""
        return None

    def masks(self, count: int, networks: int = 1, key: Any = 0) -> Float[np.ndarray, "networks steps N"]:
        """The weight of each sample in each step, for several networks."""
        self.check_batches(count)
        steps = int(self.end)
        if self.batch(0, as_key(key), self.numbers, count) is None:
            return np.ones((networks, steps, count))

        def mask(network, step):
            own = jax.random.fold_in(as_key(key), network)
            found = self.batch(step, own, self.numbers, count)
            assert found is not None
            return mask_of(*found, count)

        every = jax.vmap(jax.vmap(mask, (None, 0)), (0, None))
        return np.asarray(every(jnp.arange(networks), jnp.arange(steps))).reshape(networks, steps, count)

    # --- order 1/n ------------------------------------------------------------------------------------

    def symbols(self, eigenvalues: Float[np.ndarray, " N"]) -> Symbols:
        """The algorithm at order 1/n, as functions of eigenvalues of the training NTK."""
        raise ValueError(self.refusal(1))

    @property
    def clock(self) -> Clock | None:
        """How its time passes, if it follows the gradient of the loss on a frozen NTK; then order 1/n can be
        sampled along the way, which reaches hundreds of training points."""
        return None

    @property
    def has_symbols(self) -> bool:
        """Whether order 1/n is known in eigenmodes of the training NTK."""
        return type(self).symbols is not AbstractAlgorithm.symbols

    def refusal(self, order: int) -> str | None:
        """Why the theory at this order does not know the algorithm, in one sentence; None where it does."""
        replayed = self.motion == "steps" and not self.is_finished
        if order == 0 or self.has_symbols or replayed:
            return None
        if self.motion == "steps":
            return f"algorithm={self!r} has no closed end at order 1/n; give it a finite number of steps."
        return (
            f"algorithm={self!r} has no solution at order 1/n; use fw.GradientFlow(), "
            "fw.GradientDescent(learning_rate), fw.TwoStep() or fw.algorithms.Projectors(...), or order=0."
        )

    # --- real networks --------------------------------------------------------------------------------

    def learning_rate_at(self, step: Any, numbers: Mapping[str, Any]) -> Any:
        """The learning rate of one step, counted from zero, in JAX arithmetic; `numbers` as named below."""
        raise ValueError(f"algorithm={self!r} has no learning rates; define its method learning_rate_at.")

    @property
    def numbers(self) -> dict[str, Any]:
        """Numbers that may change without compiling the training loop again."""
        return {}

    @property
    def pattern(self) -> "AbstractAlgorithm":
        """The algorithm with these numbers and its end left open, for which the training loop is compiled."""
        return self

    # --- stores ---------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """The algorithm in the configuration of a store: equal for equal algorithms."""
        return repr(self)


def as_algorithm(value: object) -> AbstractAlgorithm:
    """The value itself, if it is an algorithm."""
    if isinstance(value, AbstractAlgorithm):
        return value
    name = value if isinstance(value, str) else type(value).__name__
    if any(part in name.lower() for part in _NONLINEAR):
        raise ValueError(
            f"algorithm {name} moves each parameter by a nonlinear function of its own gradient, and "
            "networks follow no NTK then; use fw.GradientDescent(learning_rate, steps, momentum=0.9)."
        )
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
