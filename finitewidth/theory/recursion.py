r"""The recursion at order 1/n: all statistics of layer l + 1 from those of layer l.

A tensor is a matrix between a row pair (a b) and a column pair (c d) of samples. One law moves them all,

$$X' = \text{source} + r\, R\, X\, C^T, \qquad r = n_l / n_{l-1},$$

where the maps R and C are sparse: the new pair (a b) takes from the old pairs (a a), (a b) and (b b) only.
Families of tensors differ in their features (what stands on a row or a column), in the maps between features
and in the source, and in nothing else.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from finitewidth.theory.feature_products import FourLegs, source_recipe
from finitewidth.theory.features import FeatureMaps, created, feature_maps
from finitewidth.theory.layers.activation import Corners, corners_of
from finitewidth.theory.layers.blocks import Move, Recipe, make_blocks
from finitewidth.theory.layers.dense import Means
from finitewidth.theory.layers.isometry import Isometry
from finitewidth.theory.steps import Step
from finitewidth.theory.tensors import SHAPES

Blocks = dict[tuple[str, str], np.ndarray]  # (row feature, column feature): (N, N, N, N)
Recipes = dict[tuple[str, str], Recipe]


@dataclass(frozen=True)
class State:
    """Statistics of one layer: means, their 1/n corrections and the blocks of all 1/n tensors."""

    K: np.ndarray
    Theta: np.ndarray
    G1: np.ndarray | None  # None where kinks between parallel inputs forbid it
    H1: np.ndarray | None
    blocks: Blocks = field(default_factory=dict)  # absent blocks are zero

    @classmethod
    def first_layer(cls, means: Means, isometry: Isometry | None = None, *, bare: bool = False) -> "State":
        """All 1/n tensors vanish in the first layer, but V of orthogonal weights."""
        corrections = (None, None) if bare else (np.zeros_like(means.K), np.zeros_like(means.K))
        state = cls(*means, *corrections)
        if isometry is not None:
            state.blocks["v", "v"] = np.zeros((len(means.K),) * 4)
            isometry.take_from(state.blocks)
        return state

    def tensors(self) -> dict[str, np.ndarray]:
        """The blocks as the tensors of PDLT, slots in printed order."""
        return {
            name: np.einsum(f"abcd->{shape.printed}", self.blocks[shape.row, shape.column])
            for name, shape in SHAPES.items()
            if (shape.row, shape.column) in self.blocks
        }


def next_layer(state: State, step: Step, averages: FourLegs, spare: Blocks | None = None) -> State:
    """Statistics of layer l + 1; every right-hand side uses those of layer l only.

    Memory of `spare` blocks that nobody needs is used again: a system is slow to hand out new memory.
    """
    recipes = created_recipes(step, averages)
    for maps in feature_maps(step):
        add_moves(recipes, state.blocks, maps, step.width_ratio)
    blocks, isometry = _made(recipes, step.Theta, spare), Isometry.behind(step)
    if isometry is not None:
        isometry.take_from(blocks)
    return State(*step.above, *corrections(state, step), blocks)


def created_recipes(step: Step, averages: FourLegs) -> Recipes:
    """What one layer creates of the blocks."""
    features = created(step)
    return {
        (shape.row, shape.column): source_recipe(shape, features, step.moments, averages.values)
        for shape in SHAPES.values()
        if shape.row in features and shape.column in features
    }


def created_blocks(step: Step, averages: FourLegs) -> Blocks:
    """The blocks that one layer creates."""
    return _made(created_recipes(step, averages), step.Theta)


def _made(recipes: Recipes, Theta: np.ndarray, spare: Blocks | None = None) -> Blocks:
    spare = spare or {}
    blocks = {key: spare[key] if key in spare else np.empty((len(Theta),) * 4) for key in recipes}
    make_blocks([*blocks.values()], [*recipes.values()], Theta)
    return blocks


def add_moves(recipes: Recipes, blocks: Blocks, maps: FeatureMaps, factor: float = 1.0) -> None:
    """Add factor R X C^T to the recipes of one family, where absent blocks X are zero.

    Where rows and columns carry the same features, X is symmetric and one of two mirrored blocks is kept.
    """
    family = {key: block for key, block in blocks.items() if key[0] in maps and key[1] in maps}
    columns = {c for _, c in family}
    mirrored = {(c, r): exchanged(block) for (r, c), block in family.items() if r != c and r in columns}
    for (row, column), recipe in recipes.items():
        if row not in maps or column not in maps:
            continue
        known = family if recipe.mirrored else family | mirrored
        for c, C in maps[column].items():
            rows = [
                (known[r, c], R, factor / 2 if recipe.mirrored and r == c else factor)
                for r, R in maps[row].items()
                if (r, c) in known
            ]
            if rows:
                recipe.moves.append(Move(rows, C))


def propagate(blocks: Blocks, maps: FeatureMaps) -> Blocks:
    """R X C^T for the blocks of one family."""
    moved = {key: Recipe() for key in blocks if key[0] in maps and key[1] in maps}
    add_moves(moved, blocks, maps)
    return _made(moved, np.ones(next(iter(blocks.values())).shape[:2])) if moved else {}


def moved_rows(blocks: Blocks, maps: FeatureMaps) -> Blocks:
    """R X for the blocks of one family."""
    result: Blocks = {}
    for new, sources in maps.items():
        for column in {c for r, c in blocks if r in sources}:
            parts = (m.of_rows(blocks[old, column]) for old, m in sources.items() if (old, column) in blocks)
            result[new, column] = sum(parts)  # type: ignore[assignment]
    return result


def exchanged(block: np.ndarray) -> np.ndarray:
    """Rows and columns exchanged; a view."""
    return block.transpose(2, 3, 0, 1)


class SelfInteraction(NamedTuple):
    """What a neuron that remembers its past adds to the corrections of means, by acting on itself."""

    sigma: np.ndarray | float = 0.0  # of <sigma sigma>
    slope: np.ndarray | float = 0.0  # of <sigma' sigma'>
    tied: np.ndarray | float = 0.0  # of <sigma' sigma' H>, besides Theta times the one before

    def plus(self, other: "SelfInteraction") -> "SelfInteraction":
        return SelfInteraction(*(a + b for a, b in zip(self, other, strict=True)))


NO_MEMORY = SelfInteraction()  # a neuron of a dense layer, which remembers nothing


class Fluctuations(NamedTuple):
    """What corrects the means of two samples 1 and 2: V, and D_12ab + F_1a2b + F_1b2a for (ab)."""

    V: Corners
    on_first: np.ndarray  # (11)
    on_both: np.ndarray  # (12)
    on_second: np.ndarray  # (22)

    @classmethod
    def of(cls, blocks: Blocks) -> "Fluctuations":
        """From the blocks of V, D and F."""
        V = blocks["v", "v"]
        D, F = (blocks.get(key, np.zeros_like(V)) for key in (("x", "v"), ("f", "f")))  # absent ones are zero
        D = corners_of(D)[..., 1, :]
        index = np.arange(len(F))
        a, b = index[:, None], index[None, :]
        both = D[..., 1] + F[a, a, b, b] + F[a, b, b, a]
        ends = D[..., 0] + 2 * F[a, a, b, a], D[..., 2] + 2 * F[a, b, b, b]
        return cls(corners_of(V), ends[0], both, ends[1])


def corrections(
    state: State, step: Step, itself: SelfInteraction = NO_MEMORY
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """G1 and H1 of layer l + 1, as far as the weights of that layer make them."""
    if step.bare or state.G1 is None:
        return None, None
    if state.H1 is None:  # nothing but the kernel is followed
        return _corrected_kernel(state.G1, corners_of(state.blocks["v", "v"]), step), None
    if not state.blocks:  # nothing fluctuates in layer 1
        return np.zeros_like(step.K), np.zeros_like(step.K)
    return corrected_means(state.G1, state.H1, step, Fluctuations.of(state.blocks), itself)


def _corrected_kernel(G1: np.ndarray, V: Corners, step: Step) -> np.ndarray:
    """G1 of layer l + 1, which asks for nothing but G1 and V of layer l."""
    return step.width_ratio * step.C_W * step.moments.sigma.correction(G1, V)


def corrected_means(
    G1: np.ndarray,
    H1: np.ndarray,
    step: Step,
    fluctuations: Fluctuations,
    itself: SelfInteraction = NO_MEMORY,
) -> tuple[np.ndarray, np.ndarray]:
    """G1 and H1 of layer l + 1 from those of layer l."""
    sigma, slope, (V, *tied) = step.moments.sigma, step.moments.slope, fluctuations
    assert slope.gradient is not None
    signal = sigma.correction(G1, V) + itself.sigma
    gradient = (
        H1 * slope.value
        + step.Theta * (slope.correction(G1, V) + itself.slope)
        + slope.gradient.of_three(*tied)
        + itself.tied
    )
    if step.gain:
        assert step.moments.gains is not None
        gradient = gradient + step.gain * step.moments.gains.correction(G1, V)
    r, C = step.width_ratio, step.C_W
    return r * C * signal, r * (step.lambda_W * signal + C * gradient)
