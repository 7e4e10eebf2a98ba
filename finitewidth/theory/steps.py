"""A step from layer l to layer l + 1 at order 1/n: hyperparameters and two-leg averages."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

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
    carried: tuple[np.ndarray, np.ndarray] | None = None  # K and Theta that a skip adds to layer l + 1

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
        K, Theta = self.layer.C_b + self.C_W * self.moments.sigma.value, self.layer.lambda_b + self.X
        return (K, Theta) if self.carried is None else (K + self.carried[0], Theta + self.carried[1])

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
    accuracy: float,
    *,
    bare: bool = False,
) -> Iterator[Step]:
    """The steps from layer 1 to layer `last`, from K and Theta of the first layer; two-leg averages only."""
    ladder, means = net.ladder, [first]
    for l in range(1, last):
        activation, skip, (K, Theta) = ladder.activations[l - 1], ladder.skips[l], means[-1]
        averages = moments(activation, K, accuracy, bare=bare)
        ratio = ladder.widths[l] / ladder.widths[l - 1]
        carried = None if skip is None else _scaled(means[skip.source - 1], skip.gamma**2)
        smooth = l < net.kinked_layer
        step = Step(activation, ladder.dense[l], ratio, K, Theta, averages, smooth, bare, carried)
        yield step
        means.append(step.means_above)


def _scaled(pair: tuple[np.ndarray, np.ndarray], factor: float) -> tuple[np.ndarray, np.ndarray]:
    return factor * pair[0], factor * pair[1]
