"""The six families of four-leg averages, and the ways to deal their derivative orders to four legs."""

import itertools

Family = tuple[int, int, int, int]
Layers = tuple[int, int, int, int]  # of two layers with two slots each, 0 or 1

# derivative orders in the four slots; every four-leg average of the theory is one of these
FAMILIES: tuple[Family, ...] = (
    (0, 0, 0, 0),
    (1, 1, 0, 0),
    (1, 1, 1, 1),
    (2, 1, 1, 0),
    (3, 1, 1, 1),
    (2, 2, 1, 1),
)


def check_families(families) -> tuple[Family, ...]:
    """The families as tuples of four derivative orders, each once, or an error that lists all families."""
    checked = []
    for family in families:
        try:
            orders = tuple(int(order) for order in family)
        except TypeError:
            orders = ()
        if orders not in FAMILIES:
            raise ValueError(
                f"families contains {family!r}, which is not a family of the theory; choose from {FAMILIES}."
            )
        checked.append(orders)
    if not checked:
        raise ValueError("families is empty; name at least one, for example (0, 0, 0, 0).")
    return tuple(dict.fromkeys(checked))


def highest_order(families: tuple[Family, ...]) -> int:
    """The highest derivative of the activation that the families contain."""
    return max(max(family) for family in families)


def arrangements(families: tuple[Family, ...], layers: Layers | None = None) -> tuple[Family, ...]:
    """All distinct ways in which four distinct samples can carry the orders of some family."""
    return tuple(sorted({orders for family in families for _, orders in placements(family, layers)}))


def placements(family: Family, layers: Layers | None = None) -> list[tuple[tuple[int, ...], Family]]:
    """Every way to put samples (p, q, r, s) into the four slots, with the orders they then carry.

    Each item is (places, orders): `places[i]` is the slot of the i-th sample, `orders[i]` its order. If
    samples belong to `layers`, slots 0 and 1 are those of the first layer.
    """
    return [
        ((p, q, r, s), (family[p], family[q], family[r], family[s]))
        for p, q, r, s in itertools.permutations(range(4))
        if layers is None or (p // 2, q // 2, r // 2, s // 2) == layers
    ]
