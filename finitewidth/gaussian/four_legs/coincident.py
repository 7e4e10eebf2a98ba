r"""Four-leg averages whose labels name one or two distinct samples: integrals over a line or a plane.

Legs on one sample multiply to one function of one variable, so that
$\langle f(z_a)\, g(z_b)\rangle = \sum_x w(x) f(\sqrt{K_{aa}} x) \sum_y w(y) g(\mu_b(x) + \sqrt{v_b} y)$.
"""

import itertools

import numpy as np

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.tower import Tower

_CHUNK = 50_000  # plane points evaluated at once

Grid = tuple[np.ndarray, np.ndarray]


def one_sample(
    tower: Tower, K: np.ndarray, families: tuple[Family, ...], grid: Grid
) -> dict[Family, np.ndarray]:
    """<s^(a) s^(b) s^(c) s^(d)> with all legs on the same sample, (sample)."""
    points, weights = grid
    values = tower(np.sqrt(np.diagonal(K))[:, None] * points[:, 0])
    return {family: values[list(family)].prod(axis=0) @ weights for family in families}


def slot_splits() -> list[tuple[int, ...]]:
    """The subsets of the four slots that one of two samples can occupy: neither none nor all."""
    return [slots for size in (1, 2, 3) for slots in itertools.combinations(range(4), size)]


def two_samples(
    tower: Tower,
    K: np.ndarray,
    families: tuple[Family, ...],
    labels: tuple[np.ndarray, np.ndarray],
    grids: tuple[Grid, Grid],
) -> dict[tuple[Family, tuple[int, ...]], np.ndarray]:
    """For each pair (a, b): a in the given slots and b in the others, then the other way round; (2, pair)."""
    (first, second), (grid, inner) = labels, grids
    sizes = grid[1].size * inner[1].size
    pairs = max(1, _CHUNK // sizes)
    results = {(family, slots): np.zeros((2, first.size)) for family in families for slots in slot_splits()}

    def work(start: int) -> None:
        part = slice(start, start + pairs)
        of_a, of_b = _line_functions((tower, tower), K, (first[part], second[part]), grid, inner)
        for (family, slots), result in results.items():
            here, there = _split(family, slots)
            result[0, part] = np.einsum("px,px->p", of_a(here), of_b(there))
            result[1, part] = np.einsum("px,px->p", of_a(there), of_b(here))

    list(on_all_cores(work, range(0, first.size, pairs)))
    return results


def one_of_each_layer(
    towers: tuple[Tower, Tower],
    K: np.ndarray,
    families: tuple[Family, ...],
    labels: tuple[np.ndarray, np.ndarray],
    grids: tuple[Grid, Grid],
) -> dict[Family, np.ndarray]:
    """The first two legs on a, the others on b, each with the activation of its layer, (pair)."""
    (first, second), (grid, inner) = labels, grids
    values = {family: np.empty(first.size) for family in families}
    pairs = max(1, _CHUNK // (grid[1].size * inner[1].size))
    for start in range(0, first.size, pairs):
        part = slice(start, start + pairs)
        of_a, of_b = _line_functions(towers, K, (first[part], second[part]), grid, inner)
        for (a, b, c, d), value in values.items():
            value[part] = np.einsum("px,px->p", of_a((a, b)), of_b((c, d)))
    return values


def _split(family: Family, slots: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    inside = tuple(sorted(family[slot] for slot in slots))
    outside = tuple(sorted(family[slot] for slot in range(4) if slot not in slots))
    return inside, outside


def _line_functions(towers: tuple[Tower, Tower], K: np.ndarray, labels, grid: Grid, inner: Grid):
    """Products of derivatives of sample a on the line, weighted, and of b averaged given a."""
    a, b = labels
    points, weights = grid
    root = np.sqrt(K[a, a])
    slope = np.divide(K[a, b], root, out=np.zeros_like(root), where=root > 0)
    left = np.sqrt(np.maximum(K[b, b] - slope**2, 0.0))
    values_a = towers[0](root[:, None] * points[:, 0])
    values_b = towers[1]((slope[:, None] * points[:, 0])[:, :, None] + left[:, None, None] * inner[0][:, 0])
    kept_a, kept_b = {}, {}

    def of_a(orders):
        if orders not in kept_a:
            kept_a[orders] = values_a[list(orders)].prod(axis=0) * weights
        return kept_a[orders]

    def of_b(orders):
        if orders not in kept_b:
            kept_b[orders] = values_b[list(orders)].prod(axis=0) @ inner[1]
        return kept_b[orders]

    return of_a, of_b
