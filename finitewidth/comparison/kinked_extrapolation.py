r"""Trained networks with kinks at any width, from ensembles of narrower ones.

Their mean and variance approach infinite width as $n^{-1/2}$, from neurons that cross their kink, so that no
theory is known behind infinite width. What networks differ from it is fitted with $n^{-1/2}$, 1/n and
$n^{-3/2}$; untrained networks with 1/n and $1/n^2$. The next powers are larger than those of smooth
activations, and take part in the fit with the size that a geometric series gives them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from finitewidth.comparison.remainders import growth_of_orders
from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import as_count
from finitewidth.experiment.scaling import Fall, fall_with_width
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.training.infinite.gaussian import Prediction

WIDTHS = (64, 128, 256, 512)
TRAINED = (0.5, 1.0, 1.5), (2.0, 2.5, 3.0)  # powers of 1/n that are fitted, and those of expected size
UNTRAINED = (1.0, 2.0), (3.0, 4.0)


@shown(
    "n",
    "mean",
    "variance",
    "chi_square",
    "freedom",
    "widths",
    "members",
    dimensions={"mean": "sample output", "variance": "sample output"},
)
@dataclass(frozen=True, eq=False)
class KinkedExtrapolation:
    """Mean and variance of trained networks with kinks at any width, from infinite width and ensembles.

    `fw.extrapolate` makes it.

    ```python
    net = fw.MLP((2, 64, 64, 1), "relu", C_W=2.0)
    descent = fw.GradientDescent(0.1, steps=5)
    wide = fw.extrapolate(net, X, Y, X_test, algorithm=descent, widths=(8, 12, 16, 24), members=40)
    wide.at(256).mean.stderr
    ```
    """

    n: int  # the width that was asked for
    widths: tuple[int, ...]  # of the ensembles
    members: int  # of each ensemble
    infinite_width: Prediction = field(repr=False)  # the same at infinite width
    algorithm: AbstractAlgorithm  # how networks are trained
    falls: Mapping[str, Fall] = field(repr=False)  # of what networks differ from infinite width
    remainders: Mapping[str, Sequence[Estimate]] = field(repr=False)  # those differences at each width

    def at(self, n: int) -> "KinkedExtrapolation":
        """The same at another width of all hidden layers."""
        return replace(self, n=int(as_count("n", n, lowest=2)))

    @property
    def mean(self) -> Estimate:
        """Mean outputs on test inputs, (M, n_L)."""
        return self._with_remainder("mean")

    @property
    def variance(self) -> Estimate:
        """Variances of outputs on test inputs, (M, n_L)."""
        return self._with_remainder("variance")

    @property
    def chi_square(self) -> dict[str, Float[np.ndarray, "M n_L"]]:
        """Of the fits to mean and variance, each over `freedom`; large values say that powers are missing."""
        return {name: fall.chi_square for name, fall in self.falls.items()}

    @property
    def freedom(self) -> int:
        """Degrees of freedom of each fit."""
        return next(iter(self.falls.values())).freedom

    def _with_remainder(self, name: str) -> Estimate:
        left = self.falls[name].at(self.n)
        return Estimate(getattr(self.infinite_width, name) + left.value, left.stderr)


def powers_of(algorithm: AbstractAlgorithm) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The powers of 1/n that are fitted, and those behind them."""
    return UNTRAINED if algorithm.end == 0 else TRAINED


def extrapolate_kinked(
    n: int,
    widths: Sequence[int],
    members: int,
    algorithm: AbstractAlgorithm,
    infinite: Prediction,
    measure: Callable[[int], Mapping[str, Estimate]],
) -> KinkedExtrapolation:
    """From networks of several widths, whose mean and variance `measure` gives."""
    free, behind = powers_of(algorithm)
    if len(widths) <= len(free):
        raise ValueError(
            f"widths={tuple(widths)} are {len(widths)}, but {len(free)} powers that can be judged need "
            f"{len(free) + 1} for networks with kinks; use widths={WIDTHS}."
        )
    seen = [measure(width) for width in widths]
    remainders = {
        name: [Estimate(one[name].value - getattr(infinite, name), one[name].stderr) for one in seen]
        for name in ("mean", "variance")
    }
    falls = {name: fall_of_powers(widths, estimates, free, behind) for name, estimates in remainders.items()}
    return KinkedExtrapolation(n, tuple(widths), members, infinite, algorithm, falls, remainders)


def fall_of_powers(
    widths: Sequence[int], estimates: Sequence[Estimate], free: Sequence[float], behind: Sequence[float]
) -> Fall:
    """A fit whose errors contain the powers behind it, as a geometric series continues the fitted ones."""
    fitted = fall_with_width(widths, estimates, free)
    step = free[1] - free[0]
    noise = np.einsum("kk...->k...", fitted.errors)
    squares = fitted.coefficients**2 - noise
    growth = growth_of_orders(squares, squares, widths[-1] ** step)
    scale = growth ** np.arange(len(free)).reshape(-1, *[1] * (squares.ndim - 1))
    typical = np.sqrt(np.maximum(np.mean(squares / scale**2, axis=0), noise[0] / len(free)))
    expected = {power: typical * growth ** ((power - free[0]) / step) for power in behind}
    return fall_with_width(widths, estimates, free, expected)
