"""Gradient flow."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.core.inputs import as_positive
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, Force
from finitewidth.network.algorithms.clock import Clock
from finitewidth.network.algorithms.symbols import Symbols
from finitewidth.network.losses.abstract import AbstractLoss

_LONGEST = 5e4  # time that is integrated, in units of the shortest time scale of learning


@dataclass(frozen=True)
class GradientFlow(AbstractAlgorithm):
    r"""Gradient descent with infinitely small steps, $d\theta/dt = -\lambda\, dL/d\theta$.

    Args:
        time: When training stops; by default at its end.

    ```python
    fw.predict(net, X, Y, X_test, algorithm=fw.GradientFlow(time=2.0), order=0)
    ```
    """

    time: float = math.inf

    motion = "flow"

    def __post_init__(self):
        object.__setattr__(self, "time", as_positive("time", self.time, or_zero=True, or_infinite=True))

    @property
    def end(self) -> float:
        return self.time

    def response(self, eigenvalues: np.ndarray) -> np.ndarray:
        r"""$(1 - e^{-l t}) / l$."""
        if self.is_finished:
            return super().response(eigenvalues)
        l = eigenvalues
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(l > 0, -np.expm1(-l * self.time) / l, self.time)

    def check_stable(self, largest: float, loss: AbstractLoss) -> None:
        """Refuse times too long to integrate, where the flow is not known in closed form."""
        if loss.is_squared_error or self.is_finished or loss.largest_curvature is None:
            return
        duration = largest * loss.largest_curvature * self.time
        if duration > _LONGEST:
            raise ValueError(
                f"time={self.time:.3g} is {duration:.1e} times the shortest time scale of learning, longer "
                f"than the {_LONGEST:.0e} that can be integrated; stop earlier."
            )

    def at_time(self, time: float) -> "GradientFlow":
        return GradientFlow(time)

    def replay(self, force: Force, start: np.ndarray, ends: Sequence[float]) -> list[np.ndarray]:
        from scipy.integrate import solve_ivp  # slow to import, and rarely needed

        c, found = start, []
        for end, before in zip(ends, (0.0, *ends), strict=False):
            if end > before:
                solution = solve_ivp(
                    lambda _, state: force(state.reshape(start.shape), 0).ravel(),
                    (0.0, end - before),
                    c.ravel(),
                    method="DOP853",
                    rtol=1e-9,
                    atol=1e-12,
                    t_eval=(end - before,),
                )
                if not solution.success:
                    raise ValueError(
                        f"gradient flow could not be integrated ({solution.message}); stop earlier."
                    )
                c = solution.y[:, -1].reshape(start.shape)
            found.append(c)
        return found

    @property
    def clock(self) -> Clock:
        return Clock(0.0, self.time)

    def symbols(self, eigenvalues: np.ndarray) -> Symbols:
        return self.clock.symbols(eigenvalues)

    @property
    def pattern(self) -> "GradientFlow":
        return GradientFlow()
