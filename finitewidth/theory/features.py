r"""Features of one neuron: what stands on the rows and columns of the 1/n tensors, and how a step moves it.

$$v_{12} = C_W \sigma_1\sigma_2, \qquad
  x_{12} = X_{12} = \lambda_W \sigma_1\sigma_2 + C_W \Theta_{12} \sigma'_1\sigma'_2,$$
$$f_{13} = C_W \sigma'_1\sigma_3, \qquad
  y_{13} = Y_{13} = \lambda_W \sigma'_1\sigma_3 + C_W \Theta_{13} \sigma''_1\sigma'_3,$$
$$b_{13} = C_W \sigma'_1\sigma'_3, \qquad p_{03} = C_W \sigma''_0\sigma_3, \qquad
  r_{01} = \partial_0 Y_{01}, \qquad u_{14} = C_W \sigma''_1\sigma'_4,$$
$$s_{12} = Z_{12} = \lambda_W \sigma'_1\sigma'_2 + C_W \Theta_{12} \sigma''_1\sigma''_2.$$

A step multiplies and mixes them linearly (PDLT chapters 4, 8, 11 and infinity, rearranged): with
$E = C_W \langle\sigma'\sigma'\rangle$ on the diagonal,

$$p_{03} \to C_W \langle\sigma''_0\sigma_3\rangle (b_{00} + p_{00}) + E\,p_{03}, \qquad
  s_{12} \to \langle Z_{12}\rangle b_{12} + E\,s_{12},$$
$$r_{01} \to \langle\partial_0 Y_{01}\rangle (b_{00} + p_{00}) + \langle Z_{01}\rangle p_{01} + E\,r_{01},$$

v and x answer to the kernel by its derivatives, f and y by those of their first leg, and b and u are
multiplied by E. This file is the only statement of it: the recursion moves blocks by these maps, and the
unrolled form moves the features themselves.
"""

from collections.abc import Mapping

import numpy as np

from finitewidth.network.layers.activation import Activation
from finitewidth.theory.layers.pair_map import Feature, Legs, PairMap, add_to
from finitewidth.theory.steps import Step

OF_GAINS = 9  # beyond all orders of derivatives
FeatureMaps = Mapping[str, Mapping[str, PairMap]]  # new feature: {old feature: map}


def _legs(first: int, second: int) -> Legs:
    """A derivative on each sample of the pair."""
    return (0, first), (1, second)


def order_of_gain(activation: Activation) -> int:
    """What stands for t(z) = z sigma'(z) among derivative orders: of two straight lines it is sigma."""
    return OF_GAINS if activation.slopes is None else 0


def created(step: Step) -> dict[str, Feature]:
    """The features of one neuron of layer l, as layer l + 1 sees them."""
    C, lW, tied = step.C_W, step.lambda_W, step.C_W * step.Theta
    features: dict[str, Feature] = {"v": {_legs(0, 0): C}, "f": {_legs(1, 0): C}, "b": {_legs(1, 1): C}}
    if step.kernel_only:
        return {"v": features["v"]}
    if not step.bare:
        features["x"] = {_legs(0, 0): lW, _legs(1, 1): tied}
        if step.gain:
            order = order_of_gain(step.activation)
            add_to(features["x"], _legs(order, order), C * step.gain)
    if step.smooth:
        features |= {
            "y": {_legs(1, 0): lW, _legs(2, 1): tied},
            "p": {_legs(2, 0): C},
            "r": {_legs(2, 0): lW, _legs(3, 1): tied},
            "s": {_legs(1, 1): lW, _legs(2, 2): tied},
            "u": {_legs(2, 1): C},
        }
    return features


def feature_maps(step: Step) -> tuple[FeatureMaps, ...]:
    """How features of layer l move those of layer l + 1, one table for each family that mixes."""
    if step.kernel_only:
        return (kernel_maps(step),)
    return kernel_maps(step), _mixed_maps(step), _differential_maps(step)


def kernel_maps(step: Step) -> FeatureMaps:
    """Fluctuations of the kernel (v) and the NTK (x)."""
    sigma, slope = step.moments.sigma.gradient, step.moments.slope.gradient
    assert sigma is not None
    maps: FeatureMaps = {"v": {"v": sigma.scaled(step.C_W)}}
    if step.bare or step.kernel_only:
        return maps
    assert slope is not None
    from_kernel = sigma.scaled(step.lambda_W).plus(slope.scaled(step.C_W * step.Theta))
    if step.gain:
        assert step.moments.gains is not None and step.moments.gains.gradient is not None
        from_kernel = from_kernel.plus(step.moments.gains.gradient.scaled(step.C_W * step.gain))
    return {**maps, "x": {"v": from_kernel, "x": step.E}}


def _mixed_maps(step: Step) -> FeatureMaps:
    """Pairs of an NTK leg and a preactivation leg."""
    assert step.moments.leading is not None
    maps: FeatureMaps = {"f": {"f": PairMap(_lifted(step), step.E.both)}}
    return {**maps, "y": {"f": PairMap(step.dY, step.Z), "y": step.E}} if step.smooth else maps


def _differential_maps(step: Step) -> FeatureMaps:
    """Legs of the NTK and of its differentials."""
    if not step.smooth:
        return {"b": {"b": step.E}}
    lifted = _lifted(step)
    return {
        "b": {"b": step.E},
        "p": {"b": PairMap(lifted, None), "p": PairMap(lifted, step.E.both)},
        "r": {"b": PairMap(step.dY, None), "p": PairMap(step.dY, step.Z), "r": step.E},
        "s": {"b": PairMap(None, step.Z), "s": step.E},
        "u": {"u": step.E},
    }


def _lifted(step: Step) -> np.ndarray:
    """C_W <s'' s>."""
    assert step.moments.leading is not None
    return step.C_W * step.moments.leading
