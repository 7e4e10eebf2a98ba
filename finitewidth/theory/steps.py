"""A step from layer l to layer l + 1 at order 1/n: hyperparameters and two-leg averages."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from finitewidth.gaussian.two_legs.expectation import AbstractExpectation
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.dense import Dense
from finitewidth.network.network import Network
from finitewidth.theory.layers.activation import Moments, moments
from finitewidth.theory.layers.pair_map import PairMap


@dataclass(frozen=True)
class Step:
    """The activation on layer l and the weights behind it, with averages under the kernel of layer l."""

    activation: Activation
    layer: Dense  # layer l + 1
    width_ratio: float  # r = n_l / n_{l-1}
    K: np.ndarray  # of layer l
    Theta: np.ndarray  # of layer l
    moments: Moments
    smooth: bool  # whether this activation and all below are
    bare: bool  # whether only K, Theta, V, F and B are moved: no derivatives of <s' s'>

    @property
    def C_W(self) -> float:
        return self.layer.C_W

    @property
    def lambda_W(self) -> float:
        return self.layer.lambda_W

    @cached_property
    def X(self) -> np.ndarray:
        """<X_12> = lambda_W <s s> + C_W Theta <s' s'>."""
        return self.lambda_W * self.moments.sigma.value + self.C_W * self.Theta * self.moments.slope.value

    @property
    def means_above(self) -> tuple[np.ndarray, np.ndarray]:
        """K and Theta of layer l + 1."""
        return self.layer.C_b + self.C_W * self.moments.sigma.value, self.layer.lambda_b + self.X

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


def steps(
    net: Network,
    first: tuple[np.ndarray, np.ndarray],
    last: int,
    rule: AbstractExpectation,
    *,
    bare: bool = False,
) -> Iterator[Step]:
    """The steps from layer 1 to layer `last`, from K and Theta of the first layer; two-leg averages only."""
    K, Theta = first
    for l in range(1, last):
        activation = net.activations[l - 1]
        averages = moments(activation, K, rule, bare=bare)
        ratio = net.widths[l] / net.widths[l - 1]
        step = Step(activation, net.dense[l], ratio, K, Theta, averages, l < net.kinked_layer, bare)
        yield step
        K, Theta = step.means_above
