"""What a step from layer l to layer l + 1 is made of: hyperparameters, moments, four-leg averages."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from finitewidth.gaussian.average import Average
from finitewidth.gaussian.four_legs.families import FAMILIES
from finitewidth.network.mlp import MLP
from finitewidth.theory.blocks import PairMap
from finitewidth.theory.moments import Moments


@dataclass(frozen=True)
class Averages:
    """Four-leg averages of one layer by derivative orders."""

    values: dict[tuple[int, int, int, int], np.ndarray]
    error: float  # largest absolute error

    @classmethod
    def of(cls, averages: Mapping[tuple[int, int, int, int], Average]) -> "Averages":
        return cls(
            {family: np.asarray(average.value) for family, average in averages.items()},
            max(float(average.error) for average in averages.values()),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What can be sent and stored: arrays by their derivative orders, such as 2110, and the error."""
        named = {"".join(map(str, family)): value for family, value in self.values.items()}
        return {**named, "error": np.asarray(self.error)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Averages":
        """What `to_arrays` made."""
        named = {"".join(map(str, family)): family for family in FAMILIES.values()}
        values = {named[name]: value for name, value in arrays.items() if name in named}
        return cls(values, float(arrays["error"]))

    def at(self, family: str, slots: str) -> np.ndarray:
        """The average as an array over (a, b, c, d), where `slots` names the label on each of its legs."""
        return np.einsum(f"{slots}->abcd", self.values[FAMILIES[family]])


@dataclass(frozen=True)
class Step:
    """Hyperparameters of layer l + 1, frozen NTK of layer l and averages under its kernel."""

    C_b: float
    C_W: float
    lambda_b: float
    lambda_W: float
    width_ratio: float  # r = n_l / n_(l-1)
    Theta: np.ndarray
    moments: Moments
    smooth: bool

    @classmethod
    def above(cls, net: MLP, layer: int, Theta: np.ndarray, moments: Moments) -> "Step":
        """The step from layer `layer` (counted from 1) to the next."""
        return cls(
            net.C_b[layer],
            net.C_W[layer],
            net.lambda_b[layer],
            net.lambda_W[layer],
            net.widths[layer] / net.widths[layer - 1],
            Theta,
            moments,
            net.activation.is_smooth,
        )

    @property
    def bare(self) -> bool:
        """Whether only K, Theta, V, F and B can be moved: no derivatives of <s' s'>."""
        return self.moments.slope.slope is None

    @cached_property
    def X(self) -> np.ndarray:
        """<X_12> = lambda_W <s s> + C_W Theta <s' s'>."""
        return self.lambda_W * self.moments.sigma.value + self.C_W * self.Theta * self.moments.slope.value

    @property
    def means_above(self) -> tuple[np.ndarray, np.ndarray]:
        """K and Theta of layer l + 1."""
        return self.C_b + self.C_W * self.moments.sigma.value, self.lambda_b + self.X

    @cached_property
    def E(self) -> PairMap:
        """Multiplication by C_W <s' s'>."""
        return PairMap(None, self.C_W * self.moments.slope.value)

    @cached_property
    def Z(self) -> np.ndarray:
        """<Z_12> = lambda_W <s' s'> + C_W Theta <s'' s''>."""
        slope = self.moments.slope.slope
        assert slope is not None and slope.both is not None
        return self.lambda_W * self.moments.slope.value + self.C_W * self.Theta * slope.both

    @cached_property
    def dY(self) -> np.ndarray:
        """<d_0 Y_01> = lambda_W <s'' s> + C_W Theta <s''' s'>."""
        assert self.moments.leading is not None and self.moments.third is not None
        return self.lambda_W * self.moments.leading + self.C_W * self.Theta * self.moments.third
