"""One step of all statistics at order 1/n, from layer l to layer l + 1."""

from dataclasses import dataclass, field, replace

import numpy as np

from finitewidth.theory.blocks import Blocks, propagate
from finitewidth.theory.differentials import differential_maps, differential_sources
from finitewidth.theory.fluctuations import kernel_maps, kernel_sources, mixed_maps, mixed_sources
from finitewidth.theory.sources import Averages, Step


@dataclass(frozen=True)
class State:
    """Statistics of one layer: means, their 1/n corrections and the blocks of all 1/n tensors."""

    K: np.ndarray
    Theta: np.ndarray
    G1: np.ndarray | None  # None where kinks between parallel inputs forbid it
    H1: np.ndarray | None
    kernel: Blocks = field(default_factory=dict)  # V, D, A; empty blocks are zero
    mixed: Blocks = field(default_factory=dict)  # F, Q, T
    differential: Blocks = field(default_factory=dict)  # B, P, R, S, U

    @classmethod
    def first_layer(cls, K: np.ndarray, Theta: np.ndarray) -> "State":
        """All 1/n tensors vanish in the first layer."""
        return cls(K, Theta, np.zeros_like(K), np.zeros_like(K))


def next_layer(state: State, step: Step, averages: Averages) -> State:
    """Statistics of layer l + 1; every right-hand side uses those of layer l only."""
    rows, columns = differential_maps(step)
    kernel, mixed = kernel_maps(step), mixed_maps(step)
    means = _next_means(state, step)
    return replace(
        means,
        kernel=_step(kernel_sources(step, averages), propagate(state.kernel, kernel, kernel), step),
        mixed=_step(mixed_sources(step, averages), propagate(state.mixed, mixed, mixed), step),
        differential=_step(
            differential_sources(step, averages), propagate(state.differential, rows, columns), step
        ),
    )


def _step(created: Blocks, transported: Blocks, step: Step) -> Blocks:
    for name, block in transported.items():
        created[name] += step.width_ratio * block
    return created


def _next_means(state: State, step: Step) -> State:
    sigma, slope = step.moments.sigma, step.moments.slope
    C, r = step.C_W, step.width_ratio
    K, Theta = step.means_above
    if step.bare or state.G1 is None or state.H1 is None:
        return State(K, Theta, None, None)
    if not state.kernel:  # from layer 1 nothing fluctuates yet
        return State.first_layer(K, Theta)
    V, D, F = state.kernel["v", "v"], state.kernel["x", "v"], state.mixed["f", "f"]
    bare = sigma.correction(state.G1, V)
    G1 = r * C * bare
    H1 = r * (
        step.lambda_W * bare
        + C * (state.H1 * slope.value + state.Theta * slope.correction(state.G1, V) + _tied(slope, D, F))
    )
    return State(K, Theta, G1, H1)


def _tied(slope, D: np.ndarray, F: np.ndarray) -> np.ndarray:
    """1/2 sum_ab <d_a d_b (s1' s2')> (D_12ab + F_1a2b + F_1b2a)."""
    index = np.arange(D.shape[0])
    a, b = index[:, None], index[None, :]
    first, both, second = slope.slope
    return (
        first * (D[a, b, a, a] + 2 * F[a, a, b, a])
        + both * (D[a, b, a, b] + F[a, a, b, b] + F[a, b, b, a])
        + second * (D[a, b, b, b] + 2 * F[a, b, b, b])
    )


def tensors(state: State) -> dict[str, np.ndarray]:
    """The blocks as the tensors of PDLT, slots in printed order."""
    kernel, mixed, differential = state.kernel, state.mixed, state.differential
    found = {
        "V": kernel.get(("v", "v")),
        "D": kernel.get(("x", "v")),
        "A": kernel.get(("x", "x")),
        "F": mixed.get(("f", "f")),
        "Q": mixed.get(("y", "f")),
        "T": _permuted(mixed.get(("y", "y")), (0, 1, 3, 2)),  # block [(13),(24)], printed 1342
        "B": differential.get(("b", "e")),
        "P": _permuted(differential.get(("p", "e")), (0, 2, 3, 1)),  # block [(03),(12)], printed 0123
        "R": differential.get(("r", "e")),
        "S": differential.get(("s", "e")),
        "U": differential.get(("u", "e")),
    }
    return {name: value for name, value in found.items() if value is not None}


def _permuted(block: np.ndarray | None, axes: tuple[int, ...]) -> np.ndarray | None:
    return None if block is None else block.transpose(axes)
