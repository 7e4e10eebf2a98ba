r"""Four-leg averages whose labels name one or two distinct samples: integrals over a line or a plane.

Legs on one sample multiply to one function of one variable, so that
$\langle f(z_a)\, g(z_b)\rangle = \sum_x w(x) f(\sqrt{K_{aa}} x) \sum_y w(y) g(\mu_b(x) + \sqrt{v_b} y)$.
"""

import itertools

import numpy as np

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.tower import Tower

_CHUNK = 30_000  # plane points that are worth a task

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


Orders = tuple[int, ...]  # of the derivatives that are multiplied on one sample, in ascending order


def two_samples(
    tower: Tower,
    K: np.ndarray,
    families: tuple[Family, ...],
    labels: tuple[np.ndarray, np.ndarray],
    grids: tuple[Grid, Grid],
) -> tuple[np.ndarray, dict[tuple[Family, tuple[int, ...]], int]]:
    """For each pair (a, b): a in some slots and b in the others, then the other way round; (couple, 2, pair).

    Returns which couple each family and choice of slots is as well.
    """
    splits = {(family, slots): _split(family, slots) for family in families for slots in slot_splits()}
    couples = sorted(set(splits.values()))
    numbers = {split: couples.index(couple) for split, couple in splits.items()}
    return _line_averages((tower, tower), K, couples, labels, grids), numbers


def one_of_each_layer(
    towers: tuple[Tower, Tower],
    K: np.ndarray,
    families: tuple[Family, ...],
    labels: tuple[np.ndarray, np.ndarray],
    grids: tuple[Grid, Grid],
) -> dict[Family, np.ndarray]:
    """The first two legs on a, the others on b, each with the activation of its layer, (pair)."""
    couples = [_split(family, (0, 1)) for family in families]
    values = _line_averages(towers, K, couples, labels, grids)
    return {family: value[0] for family, value in zip(families, values, strict=True)}


def _split(family: Family, slots: tuple[int, ...]) -> tuple[Orders, Orders]:
    inside = tuple(sorted(family[slot] for slot in slots))
    outside = tuple(sorted(family[slot] for slot in range(4) if slot not in slots))
    return inside, outside


def _line_averages(
    towers: tuple[Tower, Tower],
    K: np.ndarray,
    couples: list[tuple[Orders, Orders]],
    labels: tuple[np.ndarray, np.ndarray],
    grids: tuple[Grid, Grid],
) -> np.ndarray:
    """Products of derivatives of a and of b, and with a and b exchanged, (couple, 2, pair)."""
    from finitewidth.gaussian.four_legs.loops import lines

    (first, second), (grid, inner) = labels, _padded(*grids)
    sets = sorted({orders for couple in couples for orders in couple})
    numbered = np.array([[sets.index(orders) for orders in couple] for couple in couples])
    padded = np.array([(*orders, *[-1] * (3 - len(orders))) for orders in sets])
    results = np.empty((len(couples), 2, first.size))

    def work(start: int, stop: int) -> None:
        values_a, values_b = _on_line(towers, K, (first[start:stop], second[start:stop]), grid, inner)
        of_a, of_b = (np.empty((len(sets), *values_a.shape[1:])) for _ in range(2))
        lines.products_on_line(values_a, grid[1], padded, of_a)
        lines.averages_on_line(values_b, inner[1], padded, of_b)
        lines.line_sums(of_a, of_b, numbered, results[:, :, start:stop])

    pairs = 1 + _CHUNK // (grid[1].size * inner[1].size)
    list(on_all_cores(lambda start: work(start, start + pairs), range(0, first.size, pairs)))
    return results


def _padded(grid: Grid, inner: Grid) -> tuple[Grid, Grid]:
    """The inner grid with as many points as vector units take; those that are added weigh nothing."""
    more = -len(inner[1]) % 8
    return grid, (np.concatenate([inner[0], np.zeros((more, 1))]), np.concatenate([inner[1], np.zeros(more)]))


def _on_line(towers: tuple[Tower, Tower], K: np.ndarray, labels, grid: Grid, inner: Grid):
    """Derivatives of sample a on the line (order, pair, x), and of b given a (order, pair, x, y)."""
    a, b = labels
    root = np.sqrt(K[a, a])
    slope = np.divide(K[a, b], root, out=np.zeros_like(root), where=root > 0)
    left = np.sqrt(np.maximum(K[b, b] - slope**2, 0.0))
    x, y = grid[0][:, 0], inner[0][:, 0]
    means = slope[:, None] * x
    return towers[0](root[:, None] * x), towers[1](means[:, :, None] + left[:, None, None] * y)
