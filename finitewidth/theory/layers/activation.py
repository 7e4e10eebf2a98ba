r"""Activations in the theory.

$$K' = \langle\sigma\sigma\rangle_K, \qquad \Theta' = \langle\sigma'\sigma'\rangle_K\, \Theta$$

at infinite width. Where gains of norms right before the activation learn, Theta contains their share
$\lambda K$, the average of $\lambda z_1 z_2$ over neurons, and behind the activation this share is
$\lambda \langle z_1 z_2 \sigma'_1 \sigma'_2\rangle_K$: the average $\langle uu \rangle_K$ of the function
$u(z) = z \sigma'(z)$.

At order 1/n a step also asks how these averages answer to a change of the kernel: a change
v of it changes $\langle u_1 u_2 \rangle$, with u = sigma or u = sigma', by

$$\tfrac12 \langle u''_1 u_2 \rangle v_{11} + \langle u'_1 u'_2 \rangle v_{12}
  + \tfrac12 \langle u_1 u''_2 \rangle v_{22},$$

and to second order by fourth derivatives. For kinked activations the separate averages diverge where
the two legs coincide, while the derivative with respect to the kernel does not.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from finitewidth.gaussian.two_legs.averages import advance, average, relative_two_legs
from finitewidth.gaussian.two_legs.kernel_derivatives import kernel_derivatives
from finitewidth.gaussian.two_legs.legs import Side
from finitewidth.gaussian.two_legs.orders import Orders
from finitewidth.network.layers.abstract import Shape
from finitewidth.network.layers.activation import Activation, times_slope
from finitewidth.theory.layers.interface import AbstractBlock, AbstractStep, Assembly, register
from finitewidth.theory.layers.pair_map import PairMap
from finitewidth.theory.layers.sites import Displacements, Grid, Pairs


@dataclass(frozen=True)
class ActivationStep(AbstractStep):
    """An activation acting on pairs of Gaussian preactivations."""

    grid: Grid
    activation: Activation
    slot: int
    gain: float = 0.0  # learning rates of the gains of norms right before it, added up
    orders: tuple[Orders, ...] = ((0, 0), (1, 1))  # of the derivatives that Theta needs

    def apply(self, pairs: Pairs, wanted: Displacements, block: AbstractBlock) -> Pairs:
        rows, columns = block.sides(self, pairs)
        same, K = block.same(pairs), pairs.K
        if same is not None:  # one input paired with itself has correlation one to the last bit
            np.copyto(K, rows.variances, where=same)
        if self.gain and pairs.Theta is not None:
            return self._with_gains(rows, columns, K, same, pairs, wanted, block)
        K, Theta, error = advance(rows, columns, K, pairs.Theta, same)
        block.error = max(block.error, error)
        return Pairs(pairs.grid, wanted, K, Theta)

    def _with_gains(self, rows: Side, columns: Side, K, same, pairs: Pairs, wanted, block) -> Pairs:
        (value, slope), error = average(rows, columns, K, same)
        block.error = max(block.error, error)
        moved = self._of_gains(pairs, K, same, value, block)
        Theta = pairs.Theta * slope + self.gain * (moved - K * slope)
        return Pairs(pairs.grid, wanted, value, Theta)

    def _of_gains(
        self, pairs: Pairs, K: np.ndarray, same: np.ndarray | None, known: np.ndarray, block: AbstractBlock
    ) -> np.ndarray:
        """The average <u u> of u(z) = z sigma'(z); `known` is <sigma sigma>."""
        u = times_slope(self.activation)
        if u is self.activation:
            return known
        rows, columns = block.sides(replace(self, activation=u, orders=((0, 0),)), pairs)
        averages, error = average(rows, columns, K, same)
        block.error = max(block.error, error)
        return averages[0]


@register
def _(layer: Activation, shape: Shape, assembly: Assembly) -> AbstractStep:
    return ActivationStep(Grid(shape[:-1]), layer, assembly.next_slot(), assembly.gain_rate)


Corners = Float[np.ndarray, "N N 3 3"]  # of a block: between the pairs (11), (12), (22) of each two samples


def corners_of(block: np.ndarray) -> Corners:
    """The entries of a block (N, N, N, N) that have labels from one pair of samples only."""
    a, b = np.indices(block.shape[:2])
    pairs = (a, a), (a, b), (b, b)
    return np.stack([np.stack([block[*row, *column] for column in pairs], -1) for row in pairs], -2)


class KernelResponse(NamedTuple):
    r"""How $\langle u_1 u_2 \rangle$ answers to a change of the kernel, to first and second order."""

    value: Float[np.ndarray, "N N"]
    gradient: PairMap | None  # first derivative with respect to K_11, K_12, K_22
    curvature: tuple[np.ndarray, ...]  # <u''''u>, <u'''u'>, <u''u''>, <u'u'''>, <u u''''>

    def correction(self, G1: np.ndarray, V: Corners) -> np.ndarray:
        """1/2 sum <dd f> G1 + 1/8 sum <dddd f> V, over the legs of f = u_1 u_2."""
        assert self.gradient is not None
        fourth = (
            self.curvature[0] * V[..., 0, 0]
            + 4 * self.curvature[1] * V[..., 0, 1]
            + self.curvature[2] * (2 * V[..., 0, 2] + 4 * V[..., 1, 1])
            + 4 * self.curvature[3] * V[..., 1, 2]
            + self.curvature[4] * V[..., 2, 2]
        )
        return self.gradient.of_pairs(G1) + fourth / 8


class Moments(NamedTuple):
    """All averages over pairs of legs that a step at order 1/n needs."""

    sigma: KernelResponse  # of <sigma sigma>
    slope: KernelResponse  # of <sigma' sigma'>
    leading: np.ndarray | None  # <sigma'' sigma>, for the maps that treat the two legs differently
    third: np.ndarray | None  # <sigma''' sigma'>; with kinks zero for one sample, as slope.gradient.first
    error: float  # of averages, in units of the scale they live on
    derivative_error: float  # of derivatives with respect to the kernel, where kinks ask for them
    gains: KernelResponse | None = None  # of <t t> with t(z) = z sigma'(z), where gains of norms learn


_SMOOTH_ORDERS = ((0, 0), (1, 1), (2, 0), (2, 2), (3, 1), (4, 0), (3, 3), (4, 2), (5, 1))
_KINKED_ORDERS = ((0, 0), (1, 1), (2, 0))


def moments(activation: Activation, K: np.ndarray, accuracy: float, *, bare: bool = False) -> Moments:
    """Two-leg averages of a step, for smooth and for kinked activations.

    `bare` leaves out, for kinked ones, the derivatives that diverge between parallel inputs: enough for
    K, Theta, V, F and B.
    """
    if not activation.is_smooth:
        return _bare(activation, K, accuracy) if bare else _kinked(activation, K, accuracy)
    e, error = relative_two_legs(activation, K, _SMOOTH_ORDERS, accuracy)
    for (a, b), value in list(e.items()):
        e[b, a] = value.T
    return Moments(_response(e, 0), _response(e, 1), e[2, 0], e[3, 1], error, 0.0)


def _response(e: dict[tuple[int, int], np.ndarray], u: int) -> KernelResponse:
    slope = PairMap(e[u + 2, u] / 2, e[u + 1, u + 1], e[u, u + 2] / 2)
    bend = tuple(e[u + 4 - k, u + k] for k in range(5))
    return KernelResponse(e[u, u], slope, bend)


def _kinked(activation: Activation, K: np.ndarray, accuracy: float) -> Moments:
    """The same through derivatives with respect to the kernel, which exist where averages do not."""
    values, error = relative_two_legs(activation, K, _KINKED_ORDERS, accuracy)
    *derivatives, derivative_error = kernel_derivatives(activation, K)
    responses = []
    for u, d in enumerate(derivatives):
        first, second = (d.first, d.second) if u else (values[2, 0] / 2, values[2, 0].T / 2)
        slope = PairMap(first, d.both if u else values[1, 1], second)
        bend = (4 * d.first2, 2 * d.first_both, d.both2, 2 * d.first_both.T, 4 * d.first2.T)
        responses.append(KernelResponse(values[u, u], slope, bend))
    third = 2 * derivatives[1].first
    return Moments(responses[0], responses[1], values[2, 0], third, error, derivative_error)


def _bare(activation: Activation, K: np.ndarray, accuracy: float) -> Moments:
    values, error = relative_two_legs(activation, K, _KINKED_ORDERS, accuracy)
    slope = PairMap(values[2, 0] / 2, values[1, 1], values[2, 0].T / 2)
    sigma = KernelResponse(values[0, 0], slope, ())
    return Moments(sigma, KernelResponse(values[1, 1], None, ()), values[2, 0], None, error, 0.0)
