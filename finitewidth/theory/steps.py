r"""The loop over depth: K and Theta of layer l + 1 from those of layer l, in networks of dense layers.

$$K' = C_b + C_W \langle\sigma\sigma\rangle_K, \qquad
  \Theta' = \lambda_b + \lambda_W \langle\sigma\sigma\rangle_K + C_W\, \Theta \langle\sigma'\sigma'\rangle_K$$

(PDLT chapters 4 and 8), plus $\gamma^2$ times K and Theta of the layer where a skip starts. The loop asks for
the two averages and adds and multiplies what it gets: matrices of pairs, numbers of one input, or expansions
in the distance of two inputs. Layers of other kinds act on blocks of pairs (`layers/interface.py`), in the
same order: weights, then the activation. At order 1/n a step has the two-leg averages with all derivatives.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.network.ladder import Ladder
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.dense import Dense
from finitewidth.network.network import Network
from finitewidth.theory.layers.activation import Moments, moments
from finitewidth.theory.layers.dense import Means, behind_weights
from finitewidth.theory.layers.pair_map import PairMap
from finitewidth.theory.pairs.samples import require_finite


class TwoLegs(NamedTuple):
    """Averages under the kernel of one layer."""

    square: Any  # <sigma sigma>
    slope: Any  # <sigma' sigma'>
    details: Any = None  # what they were taken from, for those who need more


class Transition(NamedTuple):
    """From layer l to layer l + 1."""

    below: Means
    averages: TwoLegs
    above: Means


def over_depth(
    ladder: Ladder, first: Means, averages: Callable[[int, Any], TwoLegs], last: int | None = None
) -> Iterator[Transition]:
    """From layer 1 to layer `last`; `averages` takes the number of a layer and its kernel."""
    means = [first]
    for layer in range(1, last or ladder.depth):
        below, skip = means[-1], ladder.skips[layer]
        two = averages(layer, below.K)
        above = behind_weights(ladder.dense[layer], two.square, below.Theta * two.slope)
        if skip is not None:
            above = above.plus(means[skip.source - 1], skip.gamma**2)
        yield Transition(below, two, above)
        means.append(above)


def first_layer(net: Network, X: np.ndarray) -> Means:
    """K and Theta of the first layer, for distinct inputs."""
    with SingleThreadedProducts(), np.errstate(over="ignore"):  # the same bits on any number of cores
        means = behind_weights(net.ladder.dense[0], X @ X.T / X.shape[1])
    require_finite(means.K, "the kernel of layer 1", "scale X or C_W down")
    require_finite(means.Theta, "the NTK of layer 1", "scale X, C_W or lambda_W down")
    return means


@dataclass(frozen=True)
class Step:
    """The activation on layer l and the weights behind it, with averages under the kernel of layer l."""

    activation: Activation
    layer: Dense  # layer l + 1
    width_ratio: float  # r = n_l / n_{l-1}
    below: Means  # K and Theta of layer l
    above: Means  # of layer l + 1
    moments: Moments
    smooth: bool  # whether this activation and all below are
    bare: bool  # whether only K, Theta, V, F and B are moved: no derivatives of <s' s'>
    orthogonality: float = 0.0  # min(1, n_l / n_{l+1}) if the weights behind layer l are orthogonal
    gain: float = 0.0  # learning rate of the gains of a norm right in front of the activation
    kernel_only: bool = False  # whether only K, G1 and V are moved

    @property
    def K(self) -> np.ndarray:
        """The kernel of layer l."""
        return self.below.K

    @property
    def Theta(self) -> np.ndarray:
        """The NTK of layer l."""
        return self.below.Theta

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

    @cached_property
    def E(self) -> PairMap:
        """Multiplication by C_W <s' s'>."""
        return PairMap(None, self.C_W * self.moments.slope.value)

    @cached_property
    def Z(self) -> np.ndarray:
        """<Z_12> = lambda_W <s' s'> + C_W Theta <s'' s''>."""
        slope = self.moments.slope.gradient
        assert slope is not None and slope.both is not None
        return self.lambda_W * self.moments.slope.value + self.C_W * self.Theta * slope.both

    @cached_property
    def dY(self) -> np.ndarray:
        """<d_0 Y_01> = lambda_W <s'' s> + C_W Theta <s''' s'>."""
        assert self.moments.leading is not None and self.moments.third is not None
        return self.lambda_W * self.moments.leading + self.C_W * self.Theta * self.moments.third


def steps(
    net: Network,
    first: Means,
    last: int,
    accuracy: float,
    *,
    bare: bool = False,
) -> Iterator[Step]:
    """The steps from layer 1 to layer `last`, from K and Theta of the first layer; two-leg averages only."""
    ladder = net.ladder

    def averages(layer: int, K: np.ndarray) -> TwoLegs:
        two = moments(ladder.activations[layer - 1], K, accuracy, bare=bare)
        return TwoLegs(two.sigma.value, two.slope.value, two)

    for l, (below, two, above) in enumerate(over_depth(ladder, first, averages, last), start=1):
        activation, ratio = ladder.activations[l - 1], ladder.widths[l] / ladder.widths[l - 1]
        smooth = l < net.kinked_layer
        share = ladder.orthogonality[l]
        yield Step(activation, ladder.dense[l], ratio, below, above, two.details, smooth, bare, share)
