"""The recursion at order 1/n: all statistics of layer l + 1 from those of layer l."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from finitewidth.theory.averages import FourLegs, source
from finitewidth.theory.blocks import Blocks, propagate
from finitewidth.theory.features import created, feature_maps
from finitewidth.theory.layers.activation import KernelResponse
from finitewidth.theory.steps import Step
from finitewidth.theory.tensors import SHAPES


@dataclass(frozen=True)
class State:
    """Statistics of one layer: means, their 1/n corrections and the blocks of all 1/n tensors."""

    K: np.ndarray
    Theta: np.ndarray
    G1: np.ndarray | None  # None where kinks between parallel inputs forbid it
    H1: np.ndarray | None
    blocks: Blocks = field(default_factory=dict)  # absent blocks are zero

    @classmethod
    def first_layer(cls, K: np.ndarray, Theta: np.ndarray, *, bare: bool = False) -> "State":
        """All 1/n tensors vanish in the first layer."""
        return cls(K, Theta, None, None) if bare else cls(K, Theta, np.zeros_like(K), np.zeros_like(K))

    def tensors(self) -> dict[str, np.ndarray]:
        """The blocks as the tensors of PDLT, slots in printed order."""
        return {
            name: np.einsum(f"abcd->{shape.printed}", self.blocks[shape.row, shape.column])
            for name, shape in SHAPES.items()
            if (shape.row, shape.column) in self.blocks
        }


def next_layer(state: State, step: Step, averages: FourLegs) -> State:
    """Statistics of layer l + 1; every right-hand side uses those of layer l only."""
    blocks = _sources(step, averages)
    for maps in feature_maps(step):
        family = {key: block for key, block in state.blocks.items() if key[0] in maps}
        for key, block in propagate(family, maps).items():
            blocks[key] += step.width_ratio * block
    return State(*step.means_above, *corrections(state, step), blocks)


def _sources(step: Step, averages: FourLegs) -> Blocks:
    """The blocks that one layer creates."""
    features = created(step)
    return {
        (shape.row, shape.column): source(shape, features, step.moments, step.Theta, averages.values)
        for shape in SHAPES.values()
        if shape.row in features and shape.column in features
    }


class Own(NamedTuple):
    """What a neuron that remembers its past adds to the corrections of means, by acting on itself."""

    sigma: np.ndarray | float = 0.0  # of <sigma sigma>
    slope: np.ndarray | float = 0.0  # of <sigma' sigma'>
    tied: np.ndarray | float = 0.0  # of <sigma' sigma' H>, besides Theta times the one before

    def plus(self, other: "Own") -> "Own":
        return Own(*(a + b for a, b in zip(self, other, strict=True)))


ALONE = Own()  # a neuron of a dense layer, which remembers nothing


def corrections(state: State, step: Step, own: Own = ALONE) -> tuple[np.ndarray | None, np.ndarray | None]:
    """G1 and H1 of layer l + 1, as far as the weights of that layer make them."""
    if step.bare or state.G1 is None or state.H1 is None:
        return None, None
    if not state.blocks:  # nothing fluctuates in layer 1
        return np.zeros_like(step.K), np.zeros_like(step.K)
    sigma, slope = step.moments.sigma, step.moments.slope
    C, r, V = step.C_W, step.width_ratio, state.blocks["v", "v"]
    signal = sigma.correction(state.G1, V) + own.sigma
    gradient = (
        state.H1 * slope.value
        + state.Theta * (slope.correction(state.G1, V) + own.slope)
        + _tied(slope, state.blocks)
        + own.tied
    )
    return r * C * signal, r * (step.lambda_W * signal + C * gradient)


def _tied(slope: KernelResponse, blocks: Mapping) -> np.ndarray:
    """1/2 sum_ab <d_a d_b (s1' s2')> (D_12ab + F_1a2b + F_1b2a)."""
    D, F = blocks["x", "v"], blocks["f", "f"]
    index = np.arange(D.shape[0])
    a, b = index[:, None], index[None, :]
    assert slope.slope is not None
    first, both, second = slope.slope
    return (
        first * (D[a, b, a, a] + 2 * F[a, a, b, a])
        + both * (D[a, b, a, b] + F[a, a, b, b] + F[a, b, b, a])
        + second * (D[a, b, b, b] + 2 * F[a, b, b, b])
    )
