r"""Order 1/n with skip connections: sources of layers of one stream are correlated.

A neuron remembers its own past through skips. So besides the average of a row and a column feature of one
layer, which is all that dense layers create, a tensor has those of features of two layers k and p:

$$X^{(l)} = \sum_{k,p<l} w_k\, \langle \text{row}^{(k)}\, \text{column}^{(p)}\rangle
  \times \Theta^{(k,p)} \text{ ties}
  + \sum_{k<l} w_k \left[ \langle \text{row}^{(k)}\, \text{bare}^{(l)}\rangle
  + \langle \text{bare}^{(l)}\, \text{column}^{(k)}\rangle \right], \qquad w_k = n_{l-1}/n_k,$$

with features as layer l sees them, $K^{(k,p)} = g K^{(a)}$ and $\Theta^{(k,p)} = g \Theta^{(a)}$ where skips
lead down from k and p to layer a. A bare pair is $z_3 z_4$ in V and D, $\phi_2 z_4$ in F and Q (with $\phi$ a
field of covariance $\Theta$) and $\phi_2 \psi_4$ in B, P, R and S; two-leg averages give its correlations.
Means are corrected by the tensors without their bare terms, and by what a neuron does to itself.

Without memory, a source answers to earlier ones of its stream only as far as they change the pairs of its own
layer (the pair law). That is exact where at most one layer of a stream is read by an activation.

Kinks end the features with second derivatives of the activation, as in dense networks: a tensor of a layer
has the average of both features at each single layer below, where delta functions meet. The others remain,
and what a neuron does to itself is finite: its past and its present are different legs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from finitewidth.gaussian.average import Average
from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.gaussian.four_legs.families import FAMILIES, Family
from finitewidth.gaussian.four_legs.kinked import FUNCTIONS, RESPONSES
from finitewidth.gaussian.four_legs.two_layers import TWO_LAYER_FAMILIES, four_legs_of_two_layers
from finitewidth.network.ladder import Ladder
from finitewidth.network.layers.activation import Activation
from finitewidth.theory.feature_products import Product, mean, moment, products, tied
from finitewidth.theory.feature_products import source as source_block
from finitewidth.theory.layers.activation import Moments
from finitewidth.theory.layers.pair_map import Feature
from finitewidth.theory.recursion import Blocks, SelfInteraction, State, corrections
from finitewidth.theory.sources import Source, moved, source_layers
from finitewidth.theory.steps import Step
from finitewidth.theory.tensors import SHAPES, Shape

Averages = Mapping[Family, np.ndarray]
BARE: dict[str, Feature] = {
    "v": {((0, 0), (1, 0)): 1.0},
    "f": {((0, 1), (1, 0)): 1.0},
    "b": {((0, 1), (1, 1)): 1.0},
}


class Pair(NamedTuple):
    """Two source layers k <= p of one stream."""

    lower: int
    upper: int


class Streams:
    """The 1/n tensors of all layers up to the last, filled pair by pair of source layers."""

    def __init__(self, ladder: Ladder, steps: Sequence[Step], *, memory: bool = True):
        self.ladder, self.steps, self.memory = ladder, steps, memory
        self.seen = dict(enumerate(source_layers(ladder, steps), start=2))
        self.last = len(steps) + 1
        self.blocks: dict[int, Blocks] = {layer: {} for layer in self.seen}
        self.own = {layer: SelfInteraction() for layer in range(1, self.last)}
        self.bare: dict[int, tuple[Source, ...]] = {}
        if not memory:
            self.bare = dict(enumerate(source_layers(ladder, steps, _bare_source), start=2))

    @property
    def pairs(self) -> list[Pair]:
        """The pairs of source layers that are correlated by more than pairs."""
        uppers = range(1, self.last)
        return [
            Pair(k, p)
            for p in uppers
            for k in range(1 if self.memory else p, p + 1)
            if self.ladder.relation(k, p)
        ]

    def legs(self, pair: Pair) -> tuple[tuple[Activation, ...], np.ndarray]:
        """The activations of a pair's layers and their joint kernel, of one layer if they are the same."""
        lower, upper = (self.steps[layer - 1] for layer in pair)
        if pair.lower == pair.upper:
            return (lower.activation,), lower.K
        cross = self.crossed(*pair)[0]
        return (lower.activation, upper.activation), np.block([[lower.K, cross], [cross, upper.K]])

    def averaged(self, pair: Pair) -> tuple[Family, ...]:
        """The four-leg averages that `add` needs: no delta functions behind the first kink."""
        upper, same_layer = self.steps[pair.upper - 1], pair.lower == pair.upper
        if upper.smooth:
            return FAMILIES if same_layer else TWO_LAYER_FAMILIES
        if same_layer:
            return tuple(family for family in FAMILIES if max(family) <= 1)
        return FUNCTIONS if upper.bare else FUNCTIONS + RESPONSES

    def crossed(self, lower: int, upper: int) -> tuple[np.ndarray, np.ndarray]:
        """K and Theta between two layers of one stream."""
        relation = self.ladder.relation(lower, upper)
        assert relation is not None
        g, meeting = relation
        if meeting > len(self.steps):
            return self.steps[-1].above
        return g * self.steps[meeting - 1].K, g * self.steps[meeting - 1].Theta

    # --- what a pair of source layers gives --------------------------------------------------------------

    def add(self, pair: Pair, averages: Averages) -> None:
        """Add what a pair of source layers gives to the tensors of all layers above."""
        k, p = pair
        for layer in range(p + 1, self.last + 1):
            there = self.seen[layer][k - 1].features.keys()
            for shape in (one for one in SHAPES.values() if {one.row, one.column} <= there):
                block = self.block(layer, pair, shape, averages)
                total, key = self.blocks[layer], (shape.row, shape.column)
                total[key] = total[key] + block if key in total else block
        if k < p and not self.steps[p - 1].bare:
            source, moments = self.seen[p][k - 1], self.steps[p - 1].moments
            own = self_interaction(source, averages, moments, self.crossed(k, p)[1])
            self.own[p] = self.own[p].plus(SelfInteraction(*(source.weight * term for term in own)))

    def block(self, layer: int, pair: Pair, shape: Shape, averages: Averages) -> np.ndarray:
        """What a pair of source layers gives to a tensor of a layer above, labels in the order a b c d."""
        lower, upper = (self.seen[layer][source - 1] for source in pair)
        if pair.lower == pair.upper:
            return lower.weight * source_block(shape, lower.features, lower.moments, lower.Theta, averages)
        Theta = self.crossed(*pair)[1]
        block = _two_layers(shape, lower, upper, averages, Theta)
        block += _two_layers(shape, upper, lower, turned(averages), Theta)
        return lower.weight * block

    def families(self, layer: int, pair: Pair, shape: Shape) -> tuple[Family, ...]:
        """The four-leg averages that `block` needs."""
        lower, upper = (self.seen[layer][source - 1] for source in pair)
        if pair.lower == pair.upper:
            return tuple({product.family for product in lower.products(shape)})
        forward = {product.family for product in _terms(shape, lower, upper)}
        backward = {product.family for product in _terms(shape, upper, lower)}
        return tuple(forward | {(c, d, a, b) for a, b, c, d in backward})

    # --- the layers, once all pairs have been added -------------------------------------------------------

    def states(self) -> Iterator[State]:
        """Layer 1, 2, ... with all their statistics."""
        first = self.steps[0]
        state = State.first_layer(first.below, bare=first.bare)
        means = [np.zeros((2, *first.K.shape))]  # G1 and H1
        yield state
        for layer, step in enumerate(self.steps, start=1):
            G1, H1 = corrections(state, step, self.own[layer])
            if G1 is not None and H1 is not None:
                means.append(np.stack([G1, H1]) + self._carried(layer, means))
                G1, H1 = means[-1][0], means[-1][1]
            state = State(*step.above, G1, H1, self.blocks.pop(layer + 1))
            whole = replace(state, blocks=self._with_bare(layer + 1, state.blocks))
            state = state if self.memory else whole
            yield whole

    def _carried(self, layer: int, means: Sequence[np.ndarray]) -> np.ndarray | float:
        """What a skip carries of G1 and H1 to the layer behind this one."""
        skip, widths = self.ladder.skips[layer], self.ladder.widths
        if skip is None:
            return 0.0
        return skip.gamma**2 * widths[layer] / widths[skip.source - 1] * means[skip.source - 1]

    def _with_bare(self, layer: int, blocks: Blocks) -> Blocks:
        """The blocks with the correlations of sources and bare pairs of the layer; without memory, of all."""
        total = dict(blocks)
        for shape in SHAPES.values():
            if (key := (shape.row, shape.column)) in total:
                for block in self.bare_blocks(layer, shape):
                    total[key] = total[key] + block
        return total

    def bare_blocks(self, layer: int, shape: Shape) -> Iterator[np.ndarray]:
        """Sources with bare pairs of a later layer, as rows and as columns of a tensor."""
        bare = [(p, source.features) for p, source in enumerate(self.bare.get(layer, ()), start=1)]
        for p, features in (*bare, (layer, BARE)):
            for k, source in enumerate(self.seen[layer][: p - 1], start=1):
                if self.ladder.relation(k, p) is None:
                    continue
                K, Theta = self.crossed(k, p)
                averages = bare_averages(source.moments, K)
                for rows, columns, values in (
                    (source.features, features, averages),
                    (features, source.features, turned(averages)),
                ):
                    if rows.get(shape.row) and columns.get(shape.column):
                        block = moment(rows[shape.row], columns[shape.column], values, apart=True)
                        yield source.weight * tied(block, shape, Theta)


def pair_averages(
    legs: tuple[tuple[Activation, ...], np.ndarray], families: Sequence[Family], tolerance: float
) -> dict[Family, Average]:
    """Four-leg averages of one layer, or of two layers of one stream."""
    activations, K = legs
    if len(activations) == 1:
        return four_legs(activations[0], K, families, tolerance=tolerance)
    return four_legs_of_two_layers((activations[0], activations[1]), K, families, tolerance=tolerance)


def _two_layers(
    shape: Shape, rows: Source, columns: Source, averages: Averages, Theta: np.ndarray
) -> np.ndarray:
    """Rows of one layer and columns of another."""
    block = moment(rows.features[shape.row], columns.features[shape.column], averages, apart=True)
    if shape.centred:
        block -= np.multiply.outer(rows.mean(shape.row), columns.mean(shape.column))
    return tied(block, shape, Theta)


def _terms(shape: Shape, rows: Source, columns: Source) -> Iterator[Product]:
    return products(rows.features[shape.row], columns.features[shape.column], apart=True)


def _bare_source(step: Step) -> Source:
    """The bare pairs of a layer as the next one answers to them."""
    return Source(step.activation, step.K, step.Theta, step.moments, 1.0, moved(BARE, step))


def turned(averages: Averages) -> dict[Family, np.ndarray]:
    """Averages of two layers with the layers exchanged; views."""
    return {(c, d, a, b): np.transpose(value, (2, 3, 0, 1)) for (a, b, c, d), value in averages.items()}


def bare_averages(moments: Moments, K: np.ndarray) -> dict[Family, np.ndarray]:
    r"""Connected averages of two legs and a bare pair, from integration by parts.

    $$\langle f_{12}\, z_3 z_4\rangle_c
      = \sum_{a,b \in 12} \langle\partial_a\partial_b f_{12}\rangle K_{a3} K_{b4}, \qquad
    \langle f_{12}\, z_4\rangle = \sum_{a \in 12} \langle\partial_a f_{12}\rangle K_{a4}$$

    K is that between the two layers; a bare leg with a derivative is one. With kinks between parallel
    inputs, only the averages without derivatives of <sigma' sigma'> are there.
    """
    e20, e11, e31, slope = moments.leading, moments.slope.value, moments.third, moments.slope.gradient
    assert e20 is not None
    whole = (len(K),) * 4

    def pair(first: np.ndarray, both: np.ndarray) -> np.ndarray:
        second = first.T
        return (
            np.einsum("ab,ac,ad->abcd", first, K, K)
            + np.einsum("ab,ac,bd->abcd", both, K, K)
            + np.einsum("ab,bc,ad->abcd", both, K, K)
            + np.einsum("ab,bc,bd->abcd", second, K, K)
        )

    def one(first: np.ndarray, both: np.ndarray) -> np.ndarray:
        values = np.einsum("ab,ad->abd", first, K) + np.einsum("ab,bd->abd", both, K)
        return np.broadcast_to(values[:, :, None, :], whole)

    def none(values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(values[:, :, None, None], whole)

    averages = {
        (0, 0, 0, 0): pair(e20, e11),
        (1, 0, 1, 0): one(e20, e11),
        (1, 1, 1, 1): none(e11),
        (2, 0, 1, 1): none(e20),
    }
    if e31 is None or slope is None or slope.both is None:
        return averages
    return averages | {
        (1, 1, 0, 0): pair(e31, slope.both),
        (2, 1, 1, 0): one(e31, slope.both),
        (3, 1, 1, 1): none(e31),
        (2, 2, 1, 1): none(slope.both),
    }


def self_interaction(
    source: Source, averages: Averages, moments: Moments, Theta: np.ndarray
) -> SelfInteraction:
    r"""What a neuron's own noise of an earlier layer adds to the corrections of means of a later one.

    $$\tfrac12 \sum_{c,d \in 12} \mathrm{Cov}\big(v^{(k)}_{cd},\, (\partial_c\partial_d f_{12})^{(l)}\big)
      \quad\text{for } f = \sigma_1\sigma_2 \text{ and } \sigma'_1\sigma'_2, \qquad
      \mathrm{Cov}\big(x^{(k)}_{12},\, (\sigma'_1\sigma'_2)^{(l)}\big) + \Theta^{(k,l)}_{12} \sum_{a \in 12}
      \langle f^{(k)}_{1a}\, (\partial_a(\sigma'_1\sigma'_2))^{(l)}\rangle + (1 \leftrightarrow 2)$$

    where (1 <-> 2) belongs to the last term.
    """
    assert moments.leading is not None and moments.third is not None and moments.slope.gradient is not None
    e11, e22 = moments.slope.value, moments.slope.gradient.both
    index = np.arange(len(Theta))
    a, b = index[:, None], index[None, :]

    def covariance(name: str, orders: tuple[int, int], average) -> np.ndarray:
        product = _with_legs(source.features[name], orders, averages)
        return product - np.multiply.outer(mean(source.features[name], source.moments), average)

    def response(first, first_average, both, both_average) -> np.ndarray:
        on_one, on_both = covariance("v", first, first_average), covariance("v", both, both_average)
        on_first = on_one[a, a, a, b]
        return (on_first + on_first.T) / 2 + on_both[a, b, a, b]

    sigma = response((2, 0), moments.leading, (1, 1), e11)
    slope = response((3, 1), moments.third, (2, 2), e22)
    mixed = _with_legs(source.features["f"], (2, 1), averages)
    on_first = mixed[a, a, a, b] + mixed[a, b, b, a]
    kernel = covariance("x", (1, 1), e11)[a, b, a, b]
    return SelfInteraction(sigma, slope, kernel + Theta * (on_first + on_first.T))


def _with_legs(feature: Feature, orders: tuple[int, int], averages: Averages) -> np.ndarray:
    """<feature of (a b) in the lower layer times two legs (c d) in the upper>."""
    return moment(feature, {((0, orders[0]), (1, orders[1])): 1.0}, averages, apart=True)
